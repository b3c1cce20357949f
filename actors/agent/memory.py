"""The store of an agent that need not outlive its process: commits at once and forgets a session when it is closed."""

from collections.abc import Sequence

from msgspec import Struct

from actors.agent.ports import CommitSink
from protocol.errors import Code, RuleViolation
from protocol.events import Event


class MemoryLog(Struct, frozen=True):
    """A log as `load` returns it."""

    log_id: str
    events: Sequence[Event]


class MemoryStore:
    """Keeps logs in memory. Every append is committed before it returns."""

    __slots__ = ("_ids", "_logs")

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._logs: dict[str, list[Event]] = {}

    def create(self, session_id: str, log_id: str) -> None:
        """Begin a log.

        Raises:
            RuleViolation: `store.failed` - the session has a log.
        """
        if session_id in self._ids:
            raise RuleViolation(Code.STORE_FAILED, f"session {session_id!r} has a log already")
        self._ids[session_id] = log_id
        self._logs[session_id] = []

    async def load(self, session_id: str) -> MemoryLog | None:
        """Return the log of a session that was not closed. Not a checkpoint: nothing has to be waited for."""
        log_id = self._ids.get(session_id)
        return MemoryLog(log_id, self._logs[session_id]) if log_id is not None else None

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        self._logs[session_id].extend(events)
        sink.commit(events[-1].seq)

    async def release(self, session_id: str) -> None:
        """Forget a session. Not a checkpoint."""
        self._ids.pop(session_id, None)
        self._logs.pop(session_id, None)

    async def aclose(self) -> None:
        """Forget everything. Not a checkpoint."""
        self._ids.clear()
        self._logs.clear()
