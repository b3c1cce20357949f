"""A session: the record, its one ordered log, and the outbox through which everything leaves.

It carries decisions out and decides nothing: `protocol.decisions` turns state and command into events, `append` stamps,
applies and stores them in one synchronous step, and what they imply (a run starts, a scope is cancelled, a waiter
wakes) follows in the same step. So at every checkpoint state, log and readers agree. What leaves: events, deltas,
acknowledgements, snapshots - is released in order, each once the record that justifies it is committed.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import trio
from msgspec.structs import force_setattr

from protocol import decisions
from protocol import events as ev
from protocol.errors import Code, RuleViolation
from protocol.history import Ack, State, apply
from protocol.limits import COMMANDS_KEPT

if TYPE_CHECKING:
    from actors.agent.agent import Agent
    from actors.agent.run import LiveRun
    from actors.agent.stream import RunStream

logger = logging.getLogger("actors.session")


class Reader(Protocol):
    """A subscription to one session. Both calls are synchronous and must not raise."""

    def offer(self, event: ev.Event) -> bool:
        """Take an event, durable or ephemeral, in order and after its commit. False cuts this reader off."""
        ...

    def closed(self, code: Code, seq: int) -> None:
        """Nothing more will come; the last durable event offered was `seq`."""
        ...


# (seq that justifies it, what to do, its arguments, what to do instead if the store fails)
_Item = tuple[int, Callable[..., object], tuple[Any, ...], Callable[[RuleViolation], object] | None]


class Session:
    """The record of one session and the only place where it changes. Made by its agent, owned by its actor."""

    __slots__ = (
        "_noted",
        "_outbox",
        "_readers",
        "_released",
        "_releasing",
        "_waiters",
        "agent",
        "callers",
        "closed",
        "committed",
        "id",
        "idle",
        "lives",
        "log",
        "nursery",
        "state",
    )

    def __init__(self, agent: "Agent", session_id: str) -> None:
        self.agent = agent
        self.id = session_id
        self.state = State()
        self.log: list[ev.Event] = []
        self.committed = 0
        self.closed: RuleViolation | None = None
        self.lives: dict[str, LiveRun] = {}
        self.callers: dict[str, RunStream] | None = None
        self.nursery: trio.Nursery | None = None
        self.idle: trio.Event | None = None
        self._noted: dict[str, Ack] | None = None
        self._released = 0
        self._releasing = False
        self._readers: list[Reader] = []
        self._outbox: deque[_Item] | None = None
        self._waiters: dict[str, trio.lowlevel.Task] | None = None

    # ---- the one writer

    def append(self, events: Sequence[ev.Event], *, run: str = "", cause: str = "") -> int:
        """Record `events`, let out what is committed, carry out what they imply. Never a checkpoint.

        Args:
            events: As the deciders made them.
            run: The run that says so. A straggler of a run that has ended changes nothing.
            cause: The id of the command that led to this.

        Returns:
            The seq of the last record.

        Raises:
            RuleViolation: `run.settled`, or why the session is closed.
        """
        if self.closed is not None:
            raise self.closed
        state = self.state
        if run and run not in state.runs:
            raise RuleViolation(Code.RUN_SETTLED, f"run {run} of session {self.id!r} has ended")
        if not events:
            return state.seq
        now = self.agent.clock.now()
        log = self.log
        for event in events:
            force_setattr(event, "seq", state.seq + 1)
            force_setattr(event, "time", now)
            if cause:
                force_setattr(event, "cause", cause)
            apply(state, event)
            log.append(event)
        self.agent.store.append(self.id, events, self)
        if self.closed is not None:
            return state.seq  # the store failed in there: this record is dead, and nothing follows from it
        for event in events:
            effect = _EFFECTS.get(type(event))
            if effect is not None:
                effect(self, event)
        return state.seq

    def commit(self, head: int) -> None:
        """The store has kept everything up to `head`."""
        if head > self.committed and self.closed is None:
            self.committed = head
            self._release()

    def store_failed(self, error: Exception) -> None:
        """The store will keep nothing more: drop what is uncommitted, close everything. The log decides."""
        if self.closed is None:
            logger.error("session %s: the store failed: %s", self.id, error)
            self.shut(RuleViolation(Code.STORE_FAILED, f"session {self.id!r} could not be stored"))

    def shut(self, why: RuleViolation) -> None:
        """End this record for good: nothing is appended any more, readers and pending replies are told why."""
        if self.closed is not None:
            return
        self.closed = why
        outbox, self._outbox = list(self._outbox or ()), None
        readers, self._readers = self._readers, []
        lives, self.lives = list(self.lives.values()), {}
        for _, _, _, failed in outbox:
            if failed is not None:
                failed(why)
        for reader in readers:
            reader.closed(why.code, self._released)
        for live in lives:
            live.abandon(why)
        if self.idle is not None:
            self.idle.set()
        if self.nursery is not None:
            self.nursery.cancel_scope.cancel(reason=str(why))
        self.agent.forget(self)

    # ---- the outbox

    def leave(
        self, action: Callable[..., object], *args: Any, failed: Callable[[RuleViolation], object] | None = None
    ) -> None:
        """Do `action(*args)` once everything recorded so far is committed, in order. It must only queue, never raise.

        Args:
            action: Called at most once.
            args: For `action`.
            failed: Called instead if the store fails first.
        """
        if self._released == self.state.seq and not self._outbox and not self._releasing:
            action(*args)
            return
        if self.closed is not None:
            if failed is not None:
                failed(self.closed)
            return
        if self._outbox is None:
            self._outbox = deque()
        self._outbox.append((self.state.seq, action, args, failed))
        self._release()

    def _release(self) -> None:
        # Whoever is offered an event may call back into this session: the outermost call delivers, in order.
        if self._releasing:
            return
        self._releasing = True
        try:
            while True:
                outbox = self._outbox
                while outbox and outbox[0][0] <= self._released:
                    _, action, args, _ = outbox.popleft()
                    action(*args)
                if self._released >= self.committed or self.closed is not None:
                    break
                event = self.log[self._released]
                self._released += 1
                for reader in self._readers:
                    if not reader.offer(event):
                        self._cut_off(reader)
        finally:
            self._releasing = False
        if outbox is not None and not outbox:
            self._outbox = None

    def _cut_off(self, reader: Reader) -> None:
        self.detach(reader)
        reader.closed(Code.LINK_TOO_SLOW, self._released)

    @property
    def watched(self) -> bool:
        """Somebody would see an ephemeral event."""
        return bool(self._readers)

    def show(self, event: ev.Ephemeral) -> None:
        """Send an ephemeral event to the readers, behind everything recorded so far. It has its `base` and time."""
        self.leave(self._offer, event)

    def _offer(self, event: ev.Ephemeral) -> None:
        for reader in self._readers:
            if not reader.offer(event):
                self._cut_off(reader)

    # ---- readers

    def attach(
        self,
        reader: Reader,
        *,
        after: int | None = None,
        joined: Callable[[], object] | None = None,
        failed: Callable[[RuleViolation], object] | None = None,
    ) -> None:
        """Let `reader` see what follows, in one synchronous step: no gap, nothing twice.

        Args:
            reader: Offered every event after this point.
            after: Offer first the records after this seq.
            joined: Called right before, for the reply that must precede the events.
            failed: Called instead, if the store fails before it could join.
        """
        self.leave(self._join, reader, after, joined, failed=failed)

    def _join(self, reader: Reader, after: int | None, joined: Callable[[], object] | None) -> None:
        if joined is not None:
            joined()
        for event in self.log[after : self._released] if after is not None else ():
            if not reader.offer(event):
                reader.closed(Code.LINK_TOO_SLOW, event.seq - 1)
                return
        self._readers = [*self._readers, reader]

    def detach(self, reader: Reader) -> None:
        """Stop offering to `reader`. Does nothing if it is not attached."""
        self._readers = [other for other in self._readers if other is not reader]
        if self._outbox:  # it may not have joined yet
            joins = [item for item in self._outbox if item[1] == self._join and item[2][0] is reader]
            for item in joins:
                self._outbox.remove(item)

    # ---- commands; each is decided and recorded before it returns

    def act(self, cause: str, decide: Callable[..., list[ev.Event]], *args: Any, **options: Any) -> Ack:
        """Decide on the state and append. A command that was carried out before gets its first acknowledgement.

        Raises:
            RuleViolation: What `decide` refuses, or why the session is closed. Nothing changed.
        """
        if cause and (known := self.known(cause)) is not None:
            return known
        events = decide(self.state, *args, **options)
        seq = self.append(events, cause=cause)
        if self.closed is not None:
            raise self.closed
        ack = Ack(seq, events[0].run if events else self.state.root)
        if cause and not events:
            self.note(cause, ack)
        return ack

    def known(self, cause: str) -> Ack | None:
        """Return what this command was acknowledged with, if it was carried out before."""
        return (self.state.commands or {}).get(cause) or (self._noted or {}).get(cause)

    def note(self, cause: str, ack: Ack) -> None:
        """Remember the acknowledgement of a command that led to no record, so not by the log, the last 256."""
        self._noted = {**(self._noted or {}), cause: ack}
        if len(self._noted) > COMMANDS_KEPT:
            del self._noted[next(iter(self._noted))]

    def cancel_run(self, run: str, reason: str) -> None:
        """Cancel one run if it is active or queued; else there is nothing to cancel."""
        queued = any(waiting.id == run for waiting in self.state.queue or ())
        if self.closed is None and (run in self.state.runs or queued):
            self.append(decisions.cancel(self.state, run, reason=reason))

    def call_for(self, run: str, caller: "RunStream") -> None:
        """Name the stream that a run, active or queued, must not outpace."""
        live = self.lives.get(run)
        if live is not None:
            live.caller = live.caller or caller  # whoever steers a run does not take it from its own caller
        elif any(waiting.id == run for waiting in self.state.queue or ()):
            self.callers = {**(self.callers or {}), run: caller}

    def open_log(self, log_id: str) -> None:
        self.agent.store.create(self.id, log_id)
        self.append(decisions.open_session(self.id, log_id))

    def recover(self, log: Sequence[ev.Event]) -> None:
        """Become what a stored log says, then end the runs that were cut off."""
        self.log = list(log)
        for event in self.log:
            apply(self.state, event)
        self.committed = self._released = self.state.seq
        while self.state.runs and self.closed is None:  # a run ends with those nested in it
            run = next(iter(self.state.runs.values()))
            self.append(
                decisions.finish(
                    self.state, run, "failed", code=Code.SESSION_CRASHED, message="the session's actor failed"
                )
            )

    # ---- waiting on the record

    def wait_settled(self, tool_call_id: str) -> Awaitable[object]:
        """Wait until the ask of this call has its outcome: await the result at once. A checkpoint where it waits.

        Read the outcome from the record, and check for cancellation after it: answered and cancelled in one tick have
        one outcome, the record's.
        """
        record = (self.state.asks or {})[tool_call_id]
        if record.outcome is not None:
            return trio.lowlevel.checkpoint_if_cancelled()  # noqa: ASYNC105
        if self._waiters is None:
            self._waiters = {}
        self._waiters[tool_call_id] = trio.lowlevel.current_task()
        # No coroutine and no closure of its own: ten thousand open asks wait here, and each would keep them.
        return trio.lowlevel.wait_task_rescheduled(partial(self._stop_waiting, tool_call_id))  # noqa: ASYNC105

    def _stop_waiting(self, tool_call_id: str, _: object) -> trio.lowlevel.Abort:
        if self._waiters is not None:
            self._waiters.pop(tool_call_id, None)
        return trio.lowlevel.Abort.SUCCEEDED

    async def wait_committed(self, seq: int) -> None:
        """Wait until everything up to `seq` is kept. A checkpoint only where it waits.

        Raises:
            RuleViolation: `store.failed` or `session.closed` - it never will be.
        """
        if self.committed >= seq:
            return
        done = trio.Event()
        self.leave(done.set, failed=lambda _: done.set())
        await done.wait()
        if self.closed is not None:
            raise self.closed

    async def wait_idle(self) -> None:
        """Wait until no run is active or queued. A checkpoint only where it waits."""
        while self.state.root and self.closed is None:
            if self.idle is None:
                self.idle = trio.Event()
            await self.idle.wait()

    async def wait_kept(self) -> None:
        """Wait until no run is active or queued, and all of it is kept or never will be. A checkpoint if it waits."""
        await self.wait_idle()
        with contextlib.suppress(RuleViolation):
            await self.wait_committed(self.state.seq)


# ---- what records imply


def _start_run(session: Session, event: ev.Event) -> None:
    session.agent.start_run(session, event.run)


def _cancel_run(session: Session, event: ev.Event) -> None:
    live = session.lives.get(event.run)
    if live is not None:
        live.cancel()


def _wake_waiter(session: Session, event: ev.Event) -> None:
    assert isinstance(event, ev.AskSettled)
    if session._waiters and (task := session._waiters.pop(event.tool_call_id, None)):  # pyright: ignore[reportPrivateUsage]
        trio.lowlevel.reschedule(task)


def _end_run(session: Session, event: ev.Event) -> None:
    live = session.lives.pop(event.run, None)
    if live is not None:
        live.ended()
    elif session.callers is not None and session.callers.pop(event.run, None) is not None:
        session.callers = session.callers or None  # it was cancelled in the queue
    if not session.state.root:
        if session.state.queue and session.nursery is not None:
            session.append(decisions.start_queued(session.state))
        elif session.idle is not None:
            session.idle.set()
            session.idle = None


_EFFECTS: dict[type[ev.Event], Callable[[Session, ev.Event], None]] = {
    ev.RunStarted: _start_run,
    ev.CancelRequested: _cancel_run,
    ev.AskSettled: _wake_waiter,
    ev.RunCompleted: _end_run,
    ev.RunFailed: _end_run,
    ev.RunCancelled: _end_run,
}
