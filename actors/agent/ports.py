"""What an agent needs from outside, as small protocols; the implementations are in `models`, `stores` and tests."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import trio
from msgspec import Struct

from actors.runtime.system import System
from actors.runtime.threads import Threads as Threads
from actors.runtime.threads import WorkerThreads as WorkerThreads
from protocol.chat import ModelEvent, ModelRequest
from protocol.errors import Code, RuleViolation
from protocol.events import Event
from protocol.history import State


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
    """Where a store reports what it has kept. All calls are synchronous and never block.

    A sink may also have `summary() -> tuple[str, int]`: what the session does now and how many questions it has open.
    A store that keeps lists calls it with each append; without it a session is listed as idle.
    """

    def commit(self, head: int) -> None:
        """Everything up to and including seq `head` is kept."""
        ...

    def store_failed(self, error: Exception) -> None:
        """What was appended and not committed is lost; nothing more will be taken. Perhaps called more than once."""
        ...


class StoreError(RuleViolation):
    """A store cannot be opened, has failed, or has something of a session that cannot be read.

    The text is for people and says what to do. `store.failed` concerns everything that is in the store, except where
    it names a session; `store.damaged` concerns one session, the others go on.
    """

    def __init__(self, message: str, *, code: Code = Code.STORE_FAILED) -> None:
        super().__init__(code, message)


class StoredLog(Protocol):
    """A log as the store has it: the state after some record, if a snapshot was saved, and all records behind that.

    Attributes:
        first: Seq of the oldest record that the store still has.
        snapshot: Nobody else's: whoever loads it may go on with it. Its `seq` says after which record it was taken.
        events: The records behind the snapshot; without one, all of them.
    """

    @property
    def log_id(self) -> str: ...

    @property
    def first(self) -> int: ...

    @property
    def snapshot(self) -> State | None: ...

    @property
    def events(self) -> Sequence[Event]: ...


class StoredSession(Struct, frozen=True):
    """One line of a list of sessions.

    Attributes:
        seq: Of its last record.
        created: Time of its first record that was kept, in Unix seconds, and `updated` of its last one.
        status: What it did then, see `protocol.history.Status`, and `asks` how many questions were open.
        damage: Why it is not opened, or "".
    """

    id: str
    log_id: str
    seq: int
    created: float
    updated: float
    status: str
    asks: int
    damage: str = ""


class SessionStore(Protocol):
    """Keeps one ordered log per session, and beside it a snapshot of its state and large parts by their hash.

    What is taken is kept in the order in which it was taken, or not at all. After a failure a store takes nothing
    more: what it has is decided by what is there when it is opened again.
    """

    async def open(self, system: System) -> None:
        """Start what the store needs, under `system`. Called once, before everything else. A checkpoint.

        Raises:
            StoreError: It cannot be opened; somebody else has it.
        """
        ...

    def create(self, session_id: str, log_id: str) -> None:
        """Begin a log; it is kept with its first records. The session id is not in use."""
        ...

    async def load(self, session_id: str) -> StoredLog | None:
        """Return the log of a session that this store has, or None. It has everything that was taken and committed.

        Raises:
            StoreError: The store has failed, or the session is damaged.
        """
        ...

    async def read(self, session_id: str, *, after: int, limit: int) -> Sequence[Event]:
        """Return at most `limit` committed records behind `after`; none of a session that is not there.

        Raises:
            StoreError: They cannot be read, or are not kept any more.
        """
        ...

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        """Take events whose seq follow the last ones. Never blocks; reports through `sink`, at once or later, in order.

        The events, and the sequence, do not change any more. Where the log ends elsewhere than the first of them
        says, the sink is told that the store failed; no other session is concerned.
        """
        ...

    def save_snapshot(self, session_id: str, state: State) -> None:
        """Keep the state after the last record that was appended, in place of the snapshot before. Never blocks."""
        ...

    def trim(self, session_id: str, first: int, *, before: float | None = None) -> None:
        """Forget the records before `first`, as far as a snapshot covers them. The last record stays. Never blocks.

        Args:
            session_id: Whose.
            first: Seq of the first one that is kept at any rate.
            before: Only those that were recorded before this time, in Unix seconds.
        """
        ...

    def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep bytes and return their name, the SHA-256 in hexadecimal digits. Never blocks.

        They are kept before what is appended later, so whoever sees the record has the bytes. The session has a log.
        """
        ...

    async def get_blob(self, session_id: str, name: str) -> bytes | None:
        """Return bytes by their name, or None.

        Raises:
            StoreError: They are not what was put.
        """
        ...

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> Sequence[StoredSession]:
        """Return at most `limit` sessions whose ids come behind `after`, in the order of their ids."""
        ...

    async def delete(self, session_id: str) -> bool:
        """Forget a session and everything of it; False if there is none. It must not be open.

        Raises:
            StoreError: The store has failed.
        """
        ...

    async def release(self, session_id: str) -> None:
        """The session was closed. A durable store keeps its log, the memory store forgets it."""
        ...

    async def aclose(self) -> None:
        """Finish what was taken and let go of everything. Idempotent."""
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
