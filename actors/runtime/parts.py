"""What one incarnation of an actor has beside its body: timers, tasks, watches, cleanup. It ends with the incarnation.

It decides the order of that end: timers and watches at once; then the tasks, cancelled and waited for, as a nursery
would; then the cleanup, last registered first, shielded and each within its own time. It must not know mailboxes'
insides or supervisors.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from actors.runtime import log
from actors.runtime.errors import note, own_part, raise_rest

if TYPE_CHECKING:
    from actors.runtime.actor import Actor
    from actors.runtime.ref import Down



class Timer:
    """A message that an actor has ordered for later. Made by `ctx.after` and `ctx.every`."""

    __slots__ = ("_at", "_every_s", "_message", "_parts")

    def __init__(self, parts: "Parts", message: Any, at: float, every_s: float) -> None:
        self._parts: Parts | None = parts
        self._message = message
        self._at = at
        self._every_s = every_s  # 0 for once

    @property
    def active(self) -> bool:
        """True while a message is still to come."""
        return self._parts is not None

    def cancel(self) -> None:
        """Send nothing more; what is in the mailbox stays there. Idempotent, no checkpoint."""
        parts, self._parts = self._parts, None
        if parts is not None:
            self._message = None
            parts.timers.pop(self, None)

    def due(self) -> None:
        """Its time has come. Called by the wheel."""
        parts, message = self._parts, self._message
        if parts is None:
            return
        mailbox = parts.actor.mailbox
        if self._every_s and parts.actor.draining:
            self.cancel()  # else a body that takes longer than the period would never be done
            return
        if not self._every_s:
            self.cancel()
            mailbox.post(message)
            return
        # A tick that waits unhandled is enough: an actor that is busy finds one, not all it has missed.
        if not any(queued is message for queued in mailbox.queued()):
            mailbox.post(message)
        wheel = parts.actor.system.wheel
        missed = max(0, int((wheel.now() - self._at) / self._every_s))
        self._at += self._every_s * (1 + missed)
        wheel.add(self, self._at)


class ChildTask:
    """A task of an actor whose result comes back to it as a message. Made by `ctx.spawn`."""

    __slots__ = ("_error", "_parts", "_result", "_scope", "_work", "name")

    def __init__(
        self,
        parts: "Parts",
        work: Callable[[], Awaitable[Any]],
        result: Callable[[Any], Any],
        error: Callable[[Exception], Any] | None,
        name: str,
    ) -> None:
        self.name = name
        self._parts = parts
        self._work = work
        self._result = result
        self._error = error
        self._scope = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<ChildTask {self.name!r}>"

    def cancel(self, reason: str = "") -> None:
        """Cancel it: no message comes back. Idempotent, no checkpoint."""
        self._scope.cancel(reason=reason or f"task {self.name!r} was cancelled")

    async def run(self) -> None:
        """Do the work, and report. The runtime runs it, in a task of its own."""
        try:
            with self._scope:
                try:
                    await self._report()
                except trio.Cancelled as cancelled:
                    self._parts.note_cut_off(cancelled)
                    raise
        except BaseException as raised:  # noqa: ASYNC103 - what is not the task's own goes on
            failure, rest = own_part(raised, cancelled=trio.current_effective_deadline() == float("-inf"))
            if failure is not None:
                self._parts.task_failed(failure)
            if rest is not None:
                raise rest from None  # noqa: ASYNC104
        finally:
            self._parts.task_ended(self)

    async def _report(self) -> None:
        try:
            value = await self._work()
        except Exception as raised:
            if self._error is None:
                raise
            self._post(self._error, raised)
        else:
            self._post(self._result, value)

    def _post(self, make: Callable[[Any], Any], outcome: object) -> None:
        # One that was cancelled may end well all the same: it was past its last checkpoint, or shielded.
        if not self._scope.cancel_called:
            self._parts.actor.mailbox.post(make(outcome))


class Parts:
    """Made when an incarnation first needs one of them: most actors never do."""

    __slots__ = ("_all_ended", "_hooks", "_released", "actor", "cut_off", "failure", "tasks", "timers", "watching")

    def __init__(self, actor: "Actor[Any]") -> None:
        self.actor = actor
        self.timers: dict[Timer, None] = {}
        self.tasks: dict[ChildTask, None] = {}
        self.watching: dict[Actor[Any], None] = {}
        #: The latest Cancelled of a task of the actor.
        self.cut_off: BaseException | None = None
        #: What a task of the actor has failed with: the crash of this incarnation.
        self.failure: BaseException | None = None
        self._hooks: list[tuple[Callable[[], Awaitable[None]], float, str]] = []
        self._released = actor.ended  # a `Ctx` may be kept longer than its actor
        self._all_ended: trio.Event | None = None

    # Timers.

    def add_timer(self, message: object, delay_s: float, every_s: float) -> Timer:
        """Order a message."""
        wheel = self.actor.system.wheel
        at = wheel.now() + delay_s
        timer = Timer(self, message, at, every_s)
        if self._released:
            timer.cancel()
            return timer
        self.timers[timer] = None
        wheel.add(timer, at)
        return timer

    # Tasks.

    def add_task(self, task: ChildTask) -> None:
        """Start a task of the actor. It runs beside the actor, in its supervisor's nursery."""
        if self.actor.ended:
            return
        self.tasks[task] = None
        if self._released:
            task.cancel(f"actor {self.actor.path!r} has ended")
        self.actor.mailbox.expect_more()
        self.actor.start_beside(task.run, f"{self.actor.path}: {task.name}")

    def task_failed(self, error: BaseException) -> None:
        """A task of the actor has raised, and nobody asked for the error: the actor crashes."""
        note(error, f"in a task of actor {self.actor.path!r}")
        if self.failure is None:
            self.failure = error
            self.actor.interrupt(f"a task of actor {self.actor.path!r} failed with {type(error).__name__}")
        else:
            self.failure = BaseExceptionGroup(f"tasks of actor {self.actor.path!r} failed", [self.failure, error])

    def note_cut_off(self, cancelled: trio.Cancelled) -> None:
        """A task was cancelled, perhaps in its cleanup after an error: kept if that was the actor's end."""
        if self._released:
            self.cut_off = cancelled

    def task_ended(self, task: ChildTask) -> None:
        """A task of the actor has ended."""
        self.tasks.pop(task, None)
        self.actor.mailbox.expect_less()
        if not self.tasks and self._all_ended is not None:
            self._all_ended.set()

    # Watches.

    def watch(self, other: "Actor[Any]", to: "Callable[[Down], Any] | None") -> None:
        """Have the end of another actor come as a message; at once, if it has ended."""
        if self._released:
            return
        if other.down is not None:
            self.actor.mailbox.post_system(other.down if to is None else to(other.down))
            return
        self.watching[other] = None
        other.add_watcher(self.actor, to)

    def unwatch(self, other: "Actor[Any]") -> None:
        """Take a watch back."""
        if self.watching.pop(other, self) is None:
            other.remove_watcher(self.actor)

    # The end.

    def add_hook(self, hook: Callable[[], Awaitable[None]], within_s: float, name: str) -> None:
        """Register cleanup."""
        self._hooks.append((hook, within_s, name))

    def release(self) -> None:
        """Let go of what needs no waiting. Idempotent, no checkpoint."""
        self._released = True
        for timer in tuple(self.timers):
            timer.cancel()
        for other in tuple(self.watching):
            self.unwatch(other)
        for task in self.tasks:
            task.cancel(f"actor {self.actor.path!r} has ended")

    async def finish(self) -> list[str]:
        """End everything, and return in words what went wrong in the cleanup. A checkpoint if there is one to wait for.

        It is shielded: the tasks are waited for as long as they take, a hook as long as it was given.
        """
        self.release()
        await self._tasks_end()
        said: list[str] = []
        while self._hooks:
            hook, within_s, name = self._hooks.pop()
            in_time, raised = await self._clean_up(hook, within_s)
            if in_time and raised is None:
                continue
            problem = f"did not end within {within_s:g} s" if raised is None else f"raised {raised!r}"
            said.append(f"on_stop {name!r} {problem}")
            log.error("actor %r: on_stop %r %s", self.actor.path, name, problem, cause=raised)
        await self._tasks_end()  # a cleanup may have started one
        return said

    async def _tasks_end(self) -> None:
        if self.tasks:
            self._all_ended = trio.Event()
            with trio.CancelScope(shield=True):
                await self._all_ended.wait()

    async def _clean_up(
        self, hook: Callable[[], Awaitable[None]], within_s: float
    ) -> tuple[bool, BaseException | None]:
        """Run one hook, and return whether it was in time, and what it raised."""
        try:
            with trio.move_on_after(within_s, shield=True) as scope:
                await hook()
        except BaseException as raised:  # noqa: ASYNC103 - what ends the process goes on
            # Shielded, so a Cancelled that comes out is of a scope that is not around this.
            failure, rest = own_part(raised, cancelled=False)
            raise_rest(rest)
            return True, failure  # noqa: ASYNC104 - what is left of it is nobody's Cancelled
        return not scope.cancelled_caught, None


def call_later(fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Callable[[], Awaitable[Any]]:
    """Return `fn` with its arguments, to be called without any."""
    return partial(fn, *args) if args else fn
