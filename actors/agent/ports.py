"""What an agent needs from outside, as small protocols; the implementations are in `models`, `stores` and tests."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import trio

from actors.runtime.threads import Threads as Threads
from actors.runtime.threads import WorkerThreads as WorkerThreads
from protocol.chat import ModelEvent, ModelRequest
from protocol.events import Event


class Model(Protocol):
    """A language model, or something that plays one."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream one message.

        Usually an async generator: it is iterated and closed in the run's own task, so `finally` blocks run and a
        cancel reaches whatever it awaits. It must not open a nursery or cancel scope around a `yield`.

        Raises:
            ModelError: The run fails with the error's code. Any other `Exception` fails it with `model.failed`.
        """
        ...


class CommitSink(Protocol):
    """Where a store reports what it has kept. Both calls are synchronous and never block."""

    def commit(self, head: int) -> None:
        """Everything up to and including seq `head` is kept."""
        ...

    def store_failed(self, error: Exception) -> None:
        """What was appended and not committed is lost; nothing more will be taken."""
        ...


class StoredLog(Protocol):
    """A log as the store has it."""

    @property
    def log_id(self) -> str: ...

    @property
    def events(self) -> Sequence[Event]: ...


class SessionStore(Protocol):
    """Keeps one ordered log per session."""

    def create(self, session_id: str, log_id: str) -> None:
        """Begin a log. The session id is not in use."""
        ...

    async def load(self, session_id: str) -> StoredLog | None:
        """Return the log of a session that this store has, or None. It has everything that was taken and committed."""
        ...

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        """Take events with contiguous seq. Never blocks; reports through `sink`, at once or later, in order."""
        ...

    async def release(self, session_id: str) -> None:
        """The session was closed. A durable store keeps its log, the memory store forgets it."""
        ...

    async def aclose(self) -> None:
        """Finish what was taken and let go of everything."""
        ...


class Clock(Protocol):
    """Unix seconds that never jump."""

    def now(self) -> float: ...


class TrioClock:
    """An anchor taken at start plus trio's clock: virtual under a mock clock, monotonic always."""

    __slots__ = ("_anchor", "_time")

    def __init__(self, unix_now: float) -> None:
        self._time = trio.lowlevel.current_clock().current_time
        self._anchor = unix_now - self._time()

    def now(self) -> float:
        return self._anchor + self._time()
