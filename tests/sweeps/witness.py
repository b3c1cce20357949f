"""A store and a client that remember everything: what was appended and kept, by whom, and what was shown.

They decide what of that cannot be true together. They must not know which faults there were.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from actors.agent.ports import CommitSink, SessionStore, StoredLog, StoredSession
from actors.agent.session import Session
from actors.runtime import System
from protocol import events as ev
from protocol.errors import Code
from protocol.history import State, fold
from tests.faults.invariants import check_log
from tests.faults.stores import FailingStore, PlainStore, SlowStore


@dataclass(slots=True)
class Written:
    """One log.

    Attributes:
        session_id: Of which session.
        log_id: Its own id.
        events: What was appended and not lost again.
        committed: How much of it was reported as kept.
        sessions: Whoever wrote in it, one after the other.
    """

    session_id: str
    log_id: str
    events: list[ev.Event] = field(default_factory=list[ev.Event])
    committed: int = 0
    sessions: list[Session] = field(default_factory=list[Session])

    @property
    def kept(self) -> list[ev.Event]:
        """What must not be lost any more."""
        return self.events[: self.committed]


class _Sink:
    """Stands between a store and a session, and notes what the store reports."""

    def __init__(self, log: Written, session: Session) -> None:
        self.log = log
        self.session = session

    def commit(self, head: int) -> None:
        self.log.committed = max(self.log.committed, head)
        self.session.commit(head)

    def store_failed(self, error: Exception) -> None:
        self.session.store_failed(error)

    def summary(self) -> tuple[str, int]:
        return self.session.summary()


class WitnessStore(PlainStore):
    """A store around another one.

    Attributes:
        inner: The other one.
        logs: Every log that was ever begun, in that order.
        problems: What a store was asked to do and should not have been.
    """

    def __init__(self, inner: SessionStore) -> None:
        self.inner = inner
        self.logs: list[Written] = []
        self.problems: list[str] = []
        self._current: dict[str, Written] = {}
        self._sinks: dict[Session, _Sink] = {}

    async def open(self, system: System) -> None:
        await self.inner.open(system)

    def create(self, session_id: str, log_id: str) -> None:
        self.inner.create(session_id, log_id)
        self._current[session_id] = Written(session_id, log_id)
        self.logs.append(self._current[session_id])

    async def load(self, session_id: str) -> StoredLog | None:
        return await self.inner.load(session_id)

    def save_snapshot(self, session_id: str, state: State) -> None:
        self.inner.save_snapshot(session_id, state)

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> Sequence[StoredSession]:
        return await self.inner.list_sessions(after=after, limit=limit)

    def append(self, session_id: str, events: Sequence[ev.Event], sink: CommitSink) -> None:
        log = self._current[session_id]
        assert isinstance(sink, Session)
        if sink not in self._sinks:
            self._sinks[sink] = _Sink(log, sink)
            log.sessions.append(sink)
        first = events[0].seq
        if not log.committed < first <= len(log.events) + 1:
            self.problems.append(
                f"{first} was appended to a log of {len(log.events)}, of which {log.committed} are kept"
            )
        if sink is not log.sessions[-1]:
            self.problems.append(f"{first} was appended by a session that another one has taken the place of")
        log.events[first - 1 :] = events
        self.inner.append(session_id, events, self._sinks[sink])

    async def release(self, session_id: str) -> None:
        await self.inner.release(session_id)

    async def aclose(self) -> None:
        await self.inner.aclose()

    def log(self, log_id: str) -> Written:
        """Return the log with this id."""
        (found,) = [log for log in self.logs if log.log_id == log_id]
        return found

    def check(self, *, shut: Sequence[Session] = ()) -> None:
        """Check every log, and that no session has anything left of its runs. When the agent is closed.

        Args:
            shut: Sessions whose record was ended in the middle, so that their runs have no end.
        """
        assert not self.problems, self.problems[0]
        for log in self.logs:
            last = log.sessions[-1]
            for session in log.sessions:
                check_left(session)
            if last.closed is None:  # cancelled before it had its actor: nobody has ever had it
                assert not last.state.root and len(log.sessions) == 1, f"session {last.id!r} is still open"
                continue
            over = last.closed.code is Code.SESSION_CLOSED and last not in shut
            check_log(log.kept, over=over)
            check_cancelled(log.kept)
            if over and log.committed == len(log.events):
                assert fold(log.kept) == last.state, "the fold of the log is not the last state"
        if isinstance(self.inner, SlowStore | FailingStore):
            for session_id, stored in self.inner.logs.items():
                kept = self._current[session_id].kept
                assert stored.events == kept, "what was reported as kept is not what was kept"


def check_cancelled(log: Sequence[ev.Event]) -> None:
    """Check that a run whose cancel is on the record has not ended in another way."""
    cancelled = {event.run for event in log if isinstance(event, ev.CancelRequested)}
    for event in log:
        if isinstance(event, ev.RUN_ENDS) and event.run in cancelled and not isinstance(event, ev.RunCancelled):
            raise AssertionError(f"run {event.run} was cancelled and ended as {type(event).__name__}")


def check_left(session: Session) -> None:
    """Check that a session which has ended holds nothing any more."""
    assert not session.lives, f"live runs are left: {session.lives}"
    assert not session.callers, f"callers are left: {session.callers}"
    assert not session._waiters, f"waiters are left: {session._waiters}"  # pyright: ignore[reportPrivateUsage]
    assert not session._outbox, f"the outbox is not empty: {session._outbox}"  # pyright: ignore[reportPrivateUsage]
    assert not session._readers, f"readers are left: {session._readers}"  # pyright: ignore[reportPrivateUsage]


class Client:
    """A reader that looks at everything it is shown.

    Attributes:
        refusing: It takes nothing more, as one whose connection is gone.
        seen: The records that it was shown.
        ended: Why nothing more comes, if it was told.
        problems: What it should not have seen.
    """

    def __init__(self, session: Session, react: Callable[[ev.Event], object]) -> None:
        self.log_id = session.state.log_id
        self.refusing = False
        self.seen: list[ev.Event] = []
        self.ended: Code | None = None
        self.problems: list[str] = []
        self._react = react
        self._refused = False

    def offer(self, event: ev.Event | ev.Ephemeral) -> bool:
        if self.ended is not None or self._refused:
            self.problems.append(f"a reader that was cut off was shown {type(event).__name__}")
        if self.refusing:
            self._refused = True
            return False
        if isinstance(event, ev.Event) and event.durable:
            if self.seen and event.seq != self.seen[-1].seq + 1:
                self.problems.append(f"a reader was shown {event.seq} after {self.seen[-1].seq}")
            self.seen.append(event)
            try:
                self._react(event)
            except Exception as error:  # raised here, it would only be logged
                self.problems.append(repr(error))
        return True

    def closed(self, code: Code, seq: int) -> None:
        if self.ended is not None:
            self.problems.append("a reader was told twice that it is over")
        self.ended = code
        if self.seen and seq < self.seen[-1].seq:
            self.problems.append(f"a reader has seen {self.seen[-1].seq} and was told {seq}")

    def check(self, store: WitnessStore) -> None:
        """Check that what it saw is what was kept, all of it from the first on."""
        assert not self.problems, self.problems[0]
        if self.seen:
            kept = store.log(self.log_id).kept
            first = self.seen[0].seq - 1
            assert kept[first : first + len(self.seen)] == self.seen, "a reader saw what is not kept"
