"""What dies and what does not: a store that can be cut off, and the disk under it, for tests of many lives."""

from collections.abc import Sequence
from pathlib import Path

import trio

from actors.agent.memory import MemoryStore
from actors.agent.ports import CommitSink, SessionStore, StoredLog, StoredSession
from actors.runtime import System
from actors.stores import SqliteStore
from protocol import events as ev
from protocol.history import State
from tests.faults.stores import PlainStore

KINDS = ["memory", "sqlite"]


class Crash(Exception):
    """The process of the agent dies of it."""


class Power(PlainStore):
    """A store that is cut off from what keeps things, after so many appends.

    Attributes:
        cut: Set when it has been; before that the process lives.
        appends: How many came.
    """

    def __init__(self, inner: SessionStore, *, after: int | None = None) -> None:
        self.inner = inner
        self.after = after
        self.appends = 0
        self.cut = trio.Event()

    async def open(self, system: System) -> None:
        if isinstance(self.inner, SqliteStore):
            await self.inner.open(system)

    def create(self, session_id: str, log_id: str) -> None:
        if self.after != 0:
            self.inner.create(session_id, log_id)

    async def load(self, session_id: str) -> StoredLog | None:
        return await self.inner.load(session_id)

    async def read(self, session_id: str, *, after: int, limit: int) -> Sequence[ev.Event]:
        return await self.inner.read(session_id, after=after, limit=limit)

    def append(self, session_id: str, events: Sequence[ev.Event], sink: CommitSink) -> None:
        if self.appends == self.after:
            self.cut.set()
        if self.cut.is_set():
            return
        self.appends += 1
        self.inner.append(session_id, events, sink)

    def save_snapshot(self, session_id: str, state: State) -> None:
        if not self.cut.is_set():
            self.inner.save_snapshot(session_id, state)

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> Sequence[StoredSession]:
        return await self.inner.list_sessions(after=after, limit=limit)

    async def aclose(self) -> None:
        if isinstance(self.inner, SqliteStore):
            await self.inner.aclose()


class Disk:
    """What outlives a process: gives each life its store."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._path = folder / "sessions.sqlite"
        self._memory = MemoryStore() if kind == "memory" else None

    def store(self, *, after: int | None = None) -> Power:
        return Power(self._memory or SqliteStore(self._path), after=after)
