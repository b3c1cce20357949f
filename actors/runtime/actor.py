"""One actor: a task, its mailbox, and the steps from start to end.

It decides in which order an actor's end becomes visible, and what happens to asks and messages then. Whether it is
restarted is the supervisor's decision; it must not know other actors.

starting -> running -> ended, with `restarting` (waiting for its next start), `draining` and `stopping` on the way. One
start with what follows is an incarnation; name, mailbox and handle are the same for all of them.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import outcome
import trio
from trio.lowlevel import (
    Abort,
    RaiseCancelT,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from actors.runtime import log, waits
from actors.runtime.context import Ctx
from actors.runtime.errors import cut_off_error, note, own_part, raise_rest, stray_cancel
from actors.runtime.mailbox import Lost
from actors.runtime.record import Record
from actors.runtime.ref import Down, DownKind
from actors.runtime.reply import reply_of

M = TypeVar("M")


class Actor(Record[M]):
    """The life of one actor. Everybody else holds a `Ref`."""

    __slots__ = ()

    # Start, stop, end.

    def launch(self, nursery: trio.Nursery) -> None:
        """Run it in a nursery. No checkpoint."""
        assert self.spec is not None
        run = self._run_with_nursery if self.spec.own_nursery else self._run
        # Not in the spawner's context: a restart has no spawner, and a request's variables are not the actor's.
        self.system.context.run(lambda: nursery.start_soon(run, name=f"actor {self.path}"))

    async def start(self, nursery: trio.Nursery) -> None:
        """Run it in a nursery and wait until it is ready, or has ended without an error.

        Raises:
            Exception: What its body raised before it was ready.
            ActorGone: It was stopped before it was ready.
        """
        self._starter = current_task()
        body = waits.bodies.get(self._starter)
        if body is not None:  # its own start may ask whom it is started by
            waits.begin(body, self, waits.Until(lambda: self._starter is not None))
        self.launch(nursery)

        def abort(_: RaiseCancelT) -> Abort:
            self._starter = None
            return Abort.SUCCEEDED

        try:
            await wait_task_rescheduled(abort)
        except BaseException:  # a cancel, an interrupt; or the actor has ended, then there is nothing to stop
            self.stop("its start was cancelled", DownKind.CANCELLED)
            with trio.move_on_after(self.system.grace_s, shield=True):
                await self._join()  # its name is free, when the spawner goes on
            raise
        finally:
            if body is not None:
                waits.end(body)

    def start_beside(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        """Run a task of the actor, beside it."""
        nursery = self.supervisor.nursery
        assert nursery is not None  # it has children
        self.system.context.run(lambda: nursery.start_soon(run, name=name))

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
        self.supervisor.judge.ready(self)

    def drain(self) -> None:
        """Accept nothing more; the body ends when the queue is empty."""
        self.mailbox.close_sending()

    @enable_ki_protection
    def stop(self, reason: str, kind: DownKind = DownKind.STOPPED) -> None:
        """Accept nothing more and cancel the body."""
        if self.stop_reason is not None or self.down is not None:
            return
        self.stop_reason = reason or "stopped"
        self._stop_kind = kind
        # First the cancel: closing first would wake a body that waits for a message as if it were drained.
        if self._scope is not None:
            self._scope.cancel(reason=self.stop_reason)
        self.mailbox.close_sending()
        if self._parked is not None:
            self.go()

    @enable_ki_protection
    def interrupt(self, reason: str) -> None:
        """End this incarnation. What follows is decided when it has ended."""
        if self._scope is not None and self._parked is None:
            self._scope.cancel(reason=reason)

    def interrupt_for_restart(self, reason: str) -> None:
        """End this incarnation, because its supervisor starts it again."""
        if self.interrupted is None and self.down is None:
            self.interrupted = reason
            self.interrupt(reason)

    @enable_ki_protection
    def go(self) -> None:
        """Let it start again: it waits for that, or will."""
        if self._parked is None:
            self._may_start = True
        else:
            task, self._parked = self._parked, None
            reschedule(task)

    async def join(self) -> Down:
        """Wait for the end. A checkpoint."""
        if self.down is None:
            body = waits.bodies.get(current_task())
            if body is not None:
                waits.check(body, self)
                waits.begin(body, self, waits.Until(lambda: self.down is None))
            try:
                await self._join()
            finally:
                if body is not None:
                    waits.end(body)
        else:
            await checkpoint()
        assert self.down is not None
        return self.down

    async def _join(self) -> None:
        if self.down is None:
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()

    async def _run(self) -> None:
        waits.enter(self)
        try:
            while self.spec is not None:
                self._scope = trio.CancelScope()
                try:
                    with self._scope:
                        self._check_stopped()
                        try:
                            await checkpoint_if_cancelled()
                            await self.spec.body(Ctx(self), *self.spec.args)
                        except BaseException as error:  # noqa: ASYNC103 - what is not the body's own goes on
                            if self._goes_through(error):
                                raise
                            raise_rest(self._body_raised(error))
                        else:
                            self._body_returned()
                finally:
                    if self._parts is not None:
                        await self._end_parts()  # noqa: ASYNC102 - shielded in there, each part in its own way
                if not (self._goes_on() and await self._starts_again()):
                    return
        finally:
            waits.leave()
            self._end()

    async def _run_with_nursery(self) -> None:
        """`_run` for an actor that has a nursery: its scope is the actor's."""
        waits.enter(self)
        try:
            while self.spec is not None:
                try:
                    try:
                        async with trio.open_nursery() as self.nursery:
                            self._scope = self.nursery.cancel_scope
                            self._check_stopped()
                            await checkpoint_if_cancelled()
                            await self.spec.body(Ctx(self), *self.spec.args)
                            self._body_returned()
                            self._scope.cancel(reason=f"the body of actor {self.path!r} has ended")
                    except BaseException as error:  # noqa: ASYNC103 - as in `_run`
                        if self._goes_through(error):
                            raise
                        raise_rest(self._body_raised(error))
                finally:
                    if self._parts is not None:
                        await self._end_parts()  # noqa: ASYNC102 - shielded in there, each part in its own way
                if not (self._goes_on() and await self._starts_again()):
                    return
        finally:
            waits.leave()
            self._end()

    def _check_stopped(self) -> None:
        """Let nothing run that was stopped before it began."""
        assert self._scope is not None
        reason = self.stop_reason or self.interrupted
        if reason is not None:
            self._scope.cancel(reason=reason)

    def _body_returned(self) -> None:
        self._kind = DownKind.DRAINED if self.draining else DownKind.RETURNED

    def _goes_through(self, error: BaseException) -> bool:
        """Return whether an error that left the body is nothing but the actor's own cancel: the usual end."""
        return type(error) is trio.Cancelled and error.__context__ is None and self._cancelled()

    def _cancelled(self) -> bool:
        return self._scope is not None and self._scope.cancel_called

    @enable_ki_protection
    def _body_raised(self, error: BaseException) -> BaseException | None:
        """Keep what is the actor's own of an error that left its body, and return what must go on."""
        crash, rest = own_part(error, cancelled=trio.current_effective_deadline() == float("-inf"))
        self._crash = crash
        if crash is not None:
            handling = self.handling_kind
            doing = f"while handling {handling}" if handling else "while running" if self.ready else "while starting"
            note(crash, f"in actor {self.path!r}, {doing}")
        elif rest is not None:
            self._note_cut_off(rest)
        return rest

    def _note_cut_off(self, cancelled: BaseException) -> None:
        """Keep an error that a stop has cut off on its way out; a restart of the group makes it a crash of its own."""
        error = cut_off_error(cancelled)
        if error is None:
            return
        if self.interrupted is not None:
            self._crash = error
        elif self.stop_reason is not None:
            self.error = error

    async def _end_parts(self) -> None:
        parts = self._parts
        assert parts is not None
        said = await parts.finish()
        self._parts = None
        if parts.cut_off is not None and self._crash is None:
            self._note_cut_off(parts.cut_off)
        if parts.failure is not None:
            own, self._crash = self._crash, parts.failure
            if own is not None:
                self._crash = BaseExceptionGroup(f"actor {self.path!r} and a task of it failed", [parts.failure, own])
        if self._crash is not None:
            for problem in said:
                note(self._crash, problem)

    @enable_ki_protection
    def _goes_on(self) -> bool:
        """Decide, with the supervisor, whether another incarnation follows, and prepare for it."""
        crash, self._crash = self._crash, None
        interrupted, self.interrupted = self.interrupted, None
        if interrupted is not None and self.supervisor.closing:
            self.stop(interrupted)  # it will not be started again
        if crash is None and self._kind is None and self.stop_reason is None and interrupted is None:
            crash = stray_cancel(None)  # its nursery has taken it for its own
        if crash is not None:
            self.error = crash
            self._kind = DownKind.CRASHED
        stays = self.stop_reason is None
        if self._starter is not None and interrupted is None:
            return False  # the spawner gets what was raised, so nobody logs it
        if interrupted is not None and stays:
            if crash is not None:
                self.supervisor.judge.report(self, crash, 0.0)
            self.supervisor.judge.down(self)
        elif crash is not None:
            stays = self.supervisor.judge.crashed(self, crash)
        else:
            stays = stays and self.supervisor.judge.returned(self)
        self.current = None
        if stays:
            self._prepare_restart()
        return stays

    def _prepare_restart(self) -> None:
        self._kind = None
        self.restarting = True
        self.ready = False
        self.restarts += 1
        self.system.count_restart()
        # The asks of this incarnation end with it, also the queued; what was only told stays for the next one. Asks
        # that still wait for room were not accepted, and keep their place.
        self.mailbox.unstash()
        waiting = {reply_of(message) for message in self.mailbox.waiting()}
        queued = [message for message in self.mailbox.queued() if reply_of(message) in self.asks]
        for slot in tuple(self.asks):
            if slot not in waiting:
                slot.end(self.gone())
        self.mailbox.hand_back(queued)
        for message in queued:
            self.system.dead_letters.add(self.name, message, Lost.RETURNED, "restarting")

    async def _starts_again(self) -> bool:
        """Wait for the next start; False if it was stopped instead."""
        before = self.system.wheel.now()
        while True:
            if self._may_start or self.stop_reason is not None:
                await checkpoint()
            else:
                await self._park()
            self._may_start = False
            # While its supervisor closes, nothing starts: it waits on, for its turn to be stopped.
            if self.stop_reason is not None or not self.supervisor.closing:
                break
        self.paused_s += self.system.wheel.now() - before
        self.restarting = False
        return self.stop_reason is None

    async def _park(self) -> None:
        self._parked = current_task()

        def abort(_: RaiseCancelT) -> Abort:
            self._parked = None
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    @enable_ki_protection
    def _end(self) -> None:
        """Make the end visible, in one synchronous step: first the name, then the asks, then those who wait for it."""
        kind = self._kind or DownKind.CANCELLED
        if self.stop_reason is not None:
            kind = self._stop_kind
        self.current = None
        waits.end(self)
        spec, self.spec = self.spec, None  # a handle that is kept must not keep what the actor worked with
        if spec is not None and spec.on_end is not None:
            try:
                spec.on_end()
            except Exception:
                log.exception("the on_end of actor %r raised", self.path)
        if self._parts is not None:  # it ended without its cleanup: KeyboardInterrupt and the like
            self._parts.release()
        mailbox = self.mailbox
        left = mailbox.close_receiving()
        mailbox.close_sending()
        self.down = Down(self.ref, self.name, self.stop_reason or kind.value, self.error, kind, mailbox.handled)
        self.system.actor_ended(self, self.down)
        for slot in tuple(self.asks):
            slot.end(self.gone())
        for message in left:
            reply_of(message).end(self.gone())  # open still if it was asked of another actor, and passed on
            self.system.dead_letters.add(self.name, message, Lost.RETURNED, self.down.reason)
        watchers, self._watchers = self._watchers, None
        for watcher, to in (watchers or {}).items():
            watcher.told_down(self, self.down, to)
        if self._done is not None:
            self._done.set()
        starter, self._starter = self._starter, None
        if starter is not None:
            fine = self.error is None and kind in (DownKind.RETURNED, DownKind.DRAINED)
            reschedule(starter, outcome.Value(None) if fine else outcome.Error(self.error or self.gone()))
        self.supervisor.child_ended(self)

    def told_down(self, other: "Actor[Any]", down: Down, to: Callable[[Down], Any] | None) -> None:
        """An actor that this one watches has ended."""
        self.parts.watching.pop(other, None)
        try:
            notice: Any = down if to is None else to(down)
        except Exception as error:
            self.parts.failure = error
            self.interrupt("the watch raised")
            return
        self.mailbox.post_system(notice)
