"""One actor: a task, its mailbox, and the steps from start to end.

It decides in which order an actor's end becomes visible, and what happens to asks and messages then. Whether it is
restarted is the supervisor's decision; it must not know other actors.

starting -> running -> ended, with `restarting` (waiting for its next start), `draining` and `stopping` on the way.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import outcome
import trio
from trio.lowlevel import (
    Abort,
    RaiseCancelT,
    Task,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from actors.runtime.context import Ctx
from actors.runtime.errors import ActorGone, own_part
from actors.runtime.mailbox import Mailbox
from actors.runtime.ref import Down, DownKind, Ref
from actors.runtime.reply import OpenAsks, reply_of

if TYPE_CHECKING:
    from actors.runtime.supervisor import Supervisor
    from actors.runtime.system import System

M = TypeVar("M")


class Actor(Generic[M]):
    """What the runtime knows of one actor, over all its restarts. Everybody else holds a `Ref`."""

    __slots__ = (
        "_args",
        "_body",
        "_done",
        "_kind",
        "_scope",
        "_starter",
        "_supervisor",
        "asks",
        "current",
        "down",
        "error",
        "mailbox",
        "name",
        "nursery",
        "on_end",
        "paused_s",
        "published",
        "ready",
        "ref",
        "restart_times",
        "restarting",
        "restarts",
        "started_with",
        "stop_reason",
        "system",
    )

    def __init__(
        self,
        supervisor: "Supervisor",
        body: Callable[..., Awaitable[None]],
        args: tuple[Any, ...],
        name: str,
        mailbox_size: int,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.system: System = supervisor.system
        self.mailbox: Mailbox[M] = Mailbox(mailbox_size)
        self.asks = OpenAsks(self.system)
        self.ref: Ref[M] = Ref(self)
        self.current: M | None = None
        self.ready = False  # this incarnation has started
        self.published = False  # some incarnation has
        self.restarting = False
        self.restarts = 0
        self.restart_times: tuple[float, ...] = ()
        self.paused_s = 0.0
        self.started_with: object = None
        self.stop_reason: str | None = None
        self.error: BaseException | None = None
        self.down: Down | None = None
        self._supervisor = supervisor
        self._body = body
        self._args = args
        self._scope = trio.CancelScope()
        self._kind: DownKind | None = None
        self.nursery: trio.Nursery | None = None
        self.on_end = on_end
        self._starter: Task | None = None
        self._done: trio.Event | None = None

    # What others see.

    @property
    def path(self) -> str:
        """Its name under its supervisor's."""
        return self._supervisor.path_of(self.name)

    @property
    def handling_kind(self) -> str | None:
        """The type name of the message it has in hand."""
        return None if self.current is None else type(self.current).__name__

    @property
    def state(self) -> str:
        """One word for `tree()`."""
        if self.down is not None:
            return "ended"
        if self.stop_reason is not None:
            return "stopping"
        if self.restarting:
            return "restarting"
        if not self.mailbox.senders:
            return "draining"
        return "running" if self.ready else "starting"

    @property
    def draining(self) -> bool:
        """True once it was asked to drain, or to stop."""
        return not self.mailbox.senders

    def gone(self) -> ActorGone:
        """Return a new error for one who is turned away, or was not answered."""
        if self.down is not None:
            reason = self.down.reason
        elif self.stop_reason is not None:
            reason = self.stop_reason
        else:
            reason = "draining" if self.draining else "crashed" if self.error is not None else "restarting"
        return ActorGone(self.name, reason, self.error)

    # Start, stop, end.

    async def start(self, nursery: trio.Nursery, *, own_nursery: bool = False) -> None:
        """Run it in a nursery and wait until it is ready, or has ended without an error.

        Args:
            nursery: Where its task runs.
            own_nursery: It gets one for tasks of its own.

        Raises:
            Exception: What its body raised before it was ready.
            ActorGone: It was stopped before it was ready.
        """
        self._starter = current_task()
        # Not in the spawner's context: a restart has no spawner, and a request's variables are not the actor's.
        run = self._run_with_nursery if own_nursery else self._run
        self.system.context.run(lambda: nursery.start_soon(run, name=f"actor {self.path}"))

        def abort(_: RaiseCancelT) -> Abort:
            self._starter = None
            return Abort.SUCCEEDED

        try:
            await wait_task_rescheduled(abort)
        except trio.Cancelled:
            self.stop("its start was cancelled")
            with trio.move_on_after(self.system.grace_s, shield=True):
                await self.join()  # its name is free, when the spawner goes on
            raise

    @enable_ki_protection
    def mark_ready(self, value: object) -> None:
        """Its body has started: the spawner goes on, the name leads to it. Only the first call of a start counts."""
        if self.ready:
            return
        self.ready = True
        self.started_with = value
        self.error = None
        if not self.published:
            self.published = True
            self.system.registry.publish(self.ref)
        if self._starter is not None:
            reschedule(self._starter)
            self._starter = None

    def drain(self) -> None:
        """Accept nothing more; the body ends when the queue is empty."""
        self.mailbox.close_sending()

    @enable_ki_protection
    def stop(self, reason: str) -> None:
        """Accept nothing more and cancel the body."""
        if self.stop_reason is not None or self.down is not None:
            return
        self.stop_reason = reason or "stopped"
        # First the cancel: closing first would wake a body that waits for a message as if it were drained.
        self._scope.cancel(reason=self.stop_reason)
        self.mailbox.close_sending()

    async def join(self) -> Down:
        """Wait for the end. A checkpoint."""
        if self.down is None:
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()
        else:
            await trio.lowlevel.checkpoint()
        assert self.down is not None
        return self.down

    async def _run(self) -> None:
        delay: float | None = 0.0
        try:
            with self._scope:
                await trio.lowlevel.checkpoint_if_cancelled()  # stopped before it began: nothing runs
                while delay is not None:
                    try:
                        await self._body(Ctx(self), *self._args)
                    except BaseException as error:  # noqa: ASYNC103 - what is not the body's own goes on
                        crash, rest = own_part(error, cancelled=_cancel_is_due())
                        delay = self._crashed(crash, final=rest is not None) if crash is not None else None
                        if rest is not None:
                            raise rest from None  # noqa: ASYNC104 - Cancelled, to its scope
                    else:
                        self._kind = DownKind.DRAINED if self.draining else DownKind.RETURNED
                        delay = self._next_start(self._supervisor.judge_return(self))
                    if delay is not None:
                        await self._wait_restart(delay)
        finally:
            self._end()

    async def _run_with_nursery(self) -> None:
        """`_run` for an actor that has a nursery: its scope is the actor's. What it runs cannot be begun again."""
        try:
            try:
                async with trio.open_nursery() as self.nursery:
                    self._scope = self.nursery.cancel_scope
                    if self.stop_reason is not None:
                        self._scope.cancel(reason=self.stop_reason)
                    await trio.lowlevel.checkpoint_if_cancelled()
                    await self._body(Ctx(self), *self._args)
                    self._kind = DownKind.DRAINED if self.draining else DownKind.RETURNED
                    self._scope.cancel(reason=f"the body of actor {self.path!r} has ended")
            except BaseException as error:  # noqa: ASYNC103 - as in `_run`
                crash, rest = own_part(error, cancelled=_cancel_is_due())
                if crash is not None:
                    self._crashed(crash, final=True)
                if rest is not None:
                    raise rest from None  # noqa: ASYNC104
        finally:
            self._end()

    async def _wait_restart(self, delay_s: float) -> None:
        before = trio.current_time()
        await trio.sleep(delay_s)
        self.paused_s += trio.current_time() - before
        self.restarting = False

    @enable_ki_protection
    def _crashed(self, error: BaseException, *, final: bool = False) -> float | None:
        handling = self.handling_kind
        doing = f"while handling {handling}" if handling else "while running" if self.ready else "while starting"
        error.add_note(f"in actor {self.path!r}, {doing}")
        self.error = error
        self._kind = DownKind.CRASHED
        if self._starter is not None:  # the spawner gets it, so nobody logs it
            return None
        return self._next_start(self._supervisor.judge_crash(self, error, final=final or _cancel_is_due()))

    def _next_start(self, delay: float | None) -> float | None:
        self.current = None
        if delay is None:
            return None
        self._kind = None
        self.restarting = True
        self.ready = False
        self.restarts += 1
        self.system.actor_restarts()
        # The asks of this incarnation end with it, also the queued; what was only told stays for the next one. Asks
        # that still wait for room were not accepted, and keep their place.
        waiting = {reply_of(message) for message in self.mailbox.waiting()}
        queued = [message for message in self.mailbox.queued() if reply_of(message) in self.asks]
        for slot in self.asks:
            if slot not in waiting:
                slot.end(self.gone())
        self.mailbox.hand_back(queued)
        self.system.count_returned(len(queued))
        return delay

    @enable_ki_protection
    def _end(self) -> None:
        """Make the end visible, in one synchronous step: first the name, then the asks, then those who wait for it."""
        kind = self._kind or DownKind.CANCELLED
        if self.stop_reason is not None:
            kind = DownKind.STOPPED
        self.current = None
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()
        self.down = Down(self.name, self.stop_reason or kind.value, self.error, kind)
        self._args = ()  # a handle that is kept must not keep what the actor worked with
        left = self.mailbox.close_receiving()
        self.mailbox.close_sending()
        self._supervisor.forget(self)
        self.system.actor_ended(self, len(left))
        for slot in self.asks:
            slot.end(self.gone())
        for message in left:
            reply_of(message).end(self.gone())  # open still if it was asked of another actor, and passed on
        if self._done is not None:
            self._done.set()
        starter, self._starter = self._starter, None
        if starter is not None:
            fine = self.error is None and kind in (DownKind.RETURNED, DownKind.DRAINED)
            reschedule(starter, outcome.Value(None) if fine else outcome.Error(self.error or self.gone()))


def _cancel_is_due() -> bool:
    return trio.current_effective_deadline() == float("-inf")
