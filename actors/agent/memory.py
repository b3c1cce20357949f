"""The store of an agent that need not outlive its process: commits at once and forgets a session when it is closed."""

from collections.abc import Sequence

from msgspec import Struct

from actors.agent.ports import CommitSink
from protocol.errors import Code, RuleViolation
from protocol.events import Event


class MemoryLog(Struct):
    log_id: str
    events: list[Event]


class MemoryStore:
    """Keeps logs in memory. Every append is committed before it returns."""

    __slots__ = ("_logs",)

    def __init__(self) -> None:
        self._logs: dict[str, MemoryLog] = {}

    def create(self, session_id: str, log_id: str) -> None:
        """Begin a log.

        Raises:
            RuleViolation: `store.failed` - the session has a log.
        """
        if session_id in self._logs:
            raise RuleViolation(Code.STORE_FAILED, f"session {session_id!r} has a log already")
        self._logs[session_id] = MemoryLog(log_id, [])

    async def load(self, session_id: str) -> MemoryLog | None:
        """Return the log of a session that was not closed. Not a checkpoint: nothing has to be waited for."""
        return self._logs.get(session_id)

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        self._logs[session_id].events.extend(events)
        sink.commit(events[-1].seq)

    async def release(self, session_id: str) -> None:
        """Forget a session. Not a checkpoint."""
        self._logs.pop(session_id, None)

    async def aclose(self) -> None:
        """Forget everything. Not a checkpoint."""
        self._logs.clear()
