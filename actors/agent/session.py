"""A session: the record, its one ordered log, and the commands that change them.

It carries decisions out and decides nothing: `protocol.decisions` turns state and command into events, `append` stamps,
applies and stores them in one synchronous step, and what they imply (a run starts, a scope is cancelled, a waiter
wakes) follows in the same step. So at every checkpoint state, log and readers agree. How it all leaves is `Outbox`'s.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Container, Sequence, Sized
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import trio
from msgspec.structs import force_setattr

from actors.agent import recovery
from actors.agent.outbox import Outbox
from actors.runtime import Ref
from protocol import decisions
from protocol import events as ev
from protocol.errors import Code, RuleViolation
from protocol.history import Ack, State, apply
from protocol.sendable import check_text

if TYPE_CHECKING:
    from actors.agent.agent import Agent
    from actors.agent.run import LiveRun
    from actors.agent.stream import RunStream

logger = logging.getLogger("actors.session")

_FEW_IDS = 64
_NOTES_KEPT = 256


class Session(Outbox):
    """The record of one session and the only place where it changes. Made by its agent, owned by its actor.

    Attributes:
        quiet: How often the agent has looked and found it idle, since it was last used.
        passive: It has left memory because it was idle; whoever addresses it gets another one.
    """

    __slots__ = (
        "_first", "_others", "_used", "actor", "agent", "callers", "closing", "id", "idle", "lives", "noted",
        "nursery", "passive", "quiet", "saved_seq", "state", "unsaved_chars", "weigh_at", "weighed",
    )  # fmt: skip

    def __init__(self, agent: "Agent", session_id: str) -> None:
        super().__init__(agent.limits.max_log_records)
        self.agent = agent
        self.id = session_id
        self.state = State()
        self.lives: tuple[LiveRun, ...] = ()
        self.callers: dict[str, RunStream] | None = None
        self.closing = self.passive = False
        self.quiet = 0
        # How far the last snapshot goes; when to look at what came after it; how far, and how much text, was looked at.
        self.saved_seq = self.weighed = self.unsaved_chars = 0
        self.weigh_at = recovery.weigh_after(agent.limits)
        # Both only while the body of its actor runs: afterwards the nursery may be gone at any moment.
        self.actor: Ref[Any] | None = None
        self.nursery: trio.Nursery | None = None
        self.idle: trio.Event | None = None
        self.noted: dict[str, Ack] | None = None
        self._used: set[str] | None = None
        # The task that waits for an ask, with its call; and those beside it.
        self._first: tuple[str, trio.lowlevel.Task] | None = None
        self._others: dict[str, trio.lowlevel.Task] | None = None

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
        now, log, seq = self.agent.clock.now(), self.log, state.seq
        for event in events:
            seq += 1
            force_setattr(event, "seq", seq)
            force_setattr(event, "time", now)
            if cause:
                force_setattr(event, "cause", cause)
            apply(state, event)
            log.append(event)
        self.quiet = 0
        try:
            self.agent.store.append(self.id, events, self)
        except Exception as error:  # it may have kept some or none: as good as one that says so
            self.store_failed(error)
        if self.closed is not None:
            return events[-1].seq  # the store failed in there: this record is dead, and nothing follows from it
        if seq >= self.weigh_at:
            recovery.weigh(self)
        for event in events:
            effect = _EFFECTS.get(type(event))
            if effect is not None:
                effect(self, event)
        return events[-1].seq  # not the head: what followed from them may have been recorded by now

    def store_failed(self, error: Exception) -> None:
        """The store will keep nothing more: drop what is uncommitted, close everything. The log decides."""
        if self.closed is None:
            logger.error("session %s: the store failed: %s", self.id, error)
            self.shut(RuleViolation(Code.STORE_FAILED, f"session {self.id!r} could not be stored"))

    def shut(self, why: RuleViolation) -> None:
        """End this record for good: nothing is appended any more, readers and pending replies are told why."""
        if self.closed is not None:
            return
        lives, self.lives = self.lives, ()
        self.callers = None
        self.end(why)
        for live in lives:
            live.abandon(why)
        if self.idle is not None:
            self.idle.set()
        if self.actor is not None:
            self.actor.stop(str(why))
        self.agent.forget(self)

    def summary(self) -> tuple[str, int]:
        """Return what the session does, and how many questions are open: for a store's list of sessions."""
        return self.state.status.value, len(self.state.open_asks())

    # ---- commands; each is decided and recorded before it returns

    def act(self, cause: str, decide: Callable[..., list[ev.Event]], *args: Any, **options: Any) -> Ack:
        """Decide on the state and append. A command that was carried out before gets its first acknowledgement.

        Raises:
            RuleViolation: What `decide` refuses, or why the session is closed. Nothing changed.
        """
        if cause:
            check_text(cause, path="a command's id")
            if (known := self.known(cause)) is not None:
                return known
        events = decide(self.state, *args, **options)
        if (self.closing or self.agent.closed) and events and isinstance(events[0], ev.RunStarted | ev.RunQueued):
            why = f"session {self.id!r} is being closed, nothing is started in it"
            raise self.closed or RuleViolation(Code.SESSION_CLOSED, why)
        seq = self.append(events, cause=cause)
        if self.closed is not None:
            raise self.closed
        if cause and events:
            # What a repeat gets: whoever was shown the records may have recorded something behind them.
            return (self.state.commands or {})[cause]
        ack = Ack(seq, events[0].run if events else self.state.root)
        if cause:
            self.note(cause, ack)
        return ack

    def known(self, cause: str) -> Ack | None:
        """Return what this command was acknowledged with, if it was carried out before."""
        return (self.state.commands or {}).get(cause) or (self.noted or {}).get(cause)

    def note(self, cause: str, ack: Ack) -> None:
        """Remember the acknowledgement of a command that led to no record, so not by the log, the last 256."""
        self.noted = {**(self.noted or {}), cause: ack}
        if len(self.noted) > _NOTES_KEPT:
            del self.noted[next(iter(self.noted))]

    def cancel(self, cause: str, run: str = "", reason: str = "") -> Ack:
        """Cancel a run, by default the active one; see `protocol.decisions.cancel`. Never a checkpoint."""
        ack = self.act(cause, decisions.cancel, run, reason=reason, at_rest=self._at_rest(run))
        return ack if ack.run == run or not run else Ack(ack.seq, run)  # it had ended: another one may be active

    def _at_rest(self, run: str) -> bool:
        live = self.live(run or self.state.root)
        return live is not None and live.at_rest

    def cancel_run(self, run: str, reason: str) -> None:
        """Cancel one run if it is active or queued; else there is nothing to cancel."""
        queued = any(waiting.id == run for waiting in self.state.queue or ())
        if self.closed is None and (run in self.state.runs or queued):
            self.append(decisions.cancel(self.state, run, reason=reason, at_rest=self._at_rest(run)))

    def leave_run(self, run: str, caller: "RunStream") -> None:
        """Let a run go on without the stream that it must not outpace."""
        live = self.live(run)
        if live is not None and live.caller is caller:
            live.caller = None

    def used_ids(self) -> Container[str]:
        """Return the call ids that this session has seen, to be looked up quickly."""
        ids = self.state.call_ids or []
        if len(ids) <= _FEW_IDS:
            return ids
        if self._used is None:
            self._used = set()
        self._used.update(ids[len(self._used) :])  # ids are unique, so the set has the first so many of them
        return self._used

    def live(self, run: str) -> "LiveRun | None":
        """Return the task side of a run that is active."""
        for live in self.lives:  # the root run and its few nested ones
            if live.id == run:
                return live
        return None

    def body_ended(self, reason: str = "") -> None:
        """The body of the session's actor has ended; its runs may still unwind. Nothing is started behind them."""
        self.actor = self.nursery = None
        self.closing = True
        if self.agent.keeps_runs:
            return  # they wait for the session's next life
        for queued in list(self.state.queue or ()):
            self.cancel_run(queued.id, reason)

    def actor_ended(self) -> None:
        """The session's actor and its runs have ended, whatever ended them."""
        self.shut(RuleViolation(Code.SESSION_CLOSED, f"session {self.id!r} is closed"))

    def add_live(self, live: "LiveRun") -> None:
        self.lives = (*self.lives, live)

    def call_for(self, run: str, caller: "RunStream") -> None:
        """Name the stream that a run, active or queued, must not outpace."""
        live = self.live(run)
        if live is not None:
            live.caller = live.caller or caller  # whoever steers a run does not take it from its own caller
        elif any(waiting.id == run for waiting in self.state.queue or ()):
            self.callers = {**(self.callers or {}), run: caller}

    def open_log(self, log_id: str) -> None:
        self.agent.store.create(self.id, log_id)
        self.append(decisions.open_session(self.id, log_id))

    def become(self, state: State, tail: Sequence[ev.Event]) -> None:
        """Be what a store has: a state, and the last records that led to it, all of them committed."""
        self.state, self.log, self.log_base = state, list(tail), state.seq - len(tail)
        self.committed = self._released = state.seq
        self.saved_seq = self.weighed = self.log_base
        self.weigh_at = state.seq + 1

    @property
    def at_rest(self) -> bool:
        """Return whether nothing of it is going on, and nobody is there: it may leave memory."""
        state, tasks = self.state, self.nursery.child_tasks if self.nursery is not None else ()
        return (
            self.closed is None
            and self.actor is not None
            and not (state.runs or state.queue or self.lives or self.closing or self._readers or self._outbox)
            and not (self._first or self._others or self._releasing or len(cast("Sized", tasks)))
            and self.committed == state.seq
            and not self.actor.statistics().current_buffer_used
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
        task = trio.lowlevel.current_task()
        # No coroutine, no closure and mostly no table of its own: ten thousand open asks wait here, and each would
        # keep them.
        if self._first is None:
            self._first = (tool_call_id, task)
            return trio.lowlevel.wait_task_rescheduled(self._stop_first)  # noqa: ASYNC105
        if self._others is None:
            self._others = {}
        self._others[tool_call_id] = task
        return trio.lowlevel.wait_task_rescheduled(partial(self._stop_other, tool_call_id))  # noqa: ASYNC105

    def _stop_first(self, _: object) -> trio.lowlevel.Abort:
        self._first = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _stop_other(self, tool_call_id: str, _: object) -> trio.lowlevel.Abort:
        if self._others is not None:
            self._others.pop(tool_call_id, None)
        return trio.lowlevel.Abort.SUCCEEDED

    @property
    def _waiters(self) -> dict[str, trio.lowlevel.Task]:
        """Who waits for an ask, by its call."""
        return {**dict([self._first] if self._first is not None else ()), **(self._others or {})}

    def wake_waiter(self, tool_call_id: str) -> None:
        """The ask of a call has its outcome: let whoever waits for it go on."""
        if self._first is not None and self._first[0] == tool_call_id:
            task: trio.lowlevel.Task | None = self._first[1]
            self._first = None
        else:
            task = self._others.pop(tool_call_id, None) if self._others is not None else None
        if task is not None:
            trio.lowlevel.reschedule(task)

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
    live = session.live(event.run)
    if live is not None:
        live.cancel()


def _wake_waiter(session: Session, event: ev.Event) -> None:
    assert isinstance(event, ev.AskSettled)
    session.wake_waiter(event.tool_call_id)


def _end_run(session: Session, event: ev.Event) -> None:
    live = session.live(event.run)
    if live is not None:
        session.lives = tuple([other for other in session.lives if other is not live])
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
