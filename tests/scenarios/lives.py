"""What dies and what does not: a process, a store that can be cut off, the disk under it. For tests of many lives."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from actors import Agent, AskUserExtension, ScriptedModel, TodoWriteExtension, open_agent
from actors.agent.memory import MemoryStore
from actors.agent.outbox import Reader
from actors.agent.ports import CommitSink, SessionStore, StoredLog, StoredSession
from actors.agent.serving import Attached
from actors.runtime import System
from actors.stores import SqliteStore
from protocol import commands as cmd
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


@asynccontextmanager
async def life(
    disk: Disk, turns: Sequence[Any], *, dies: bool = False, after: int | None = None, **options: Any
) -> AsyncGenerator[Agent]:
    """One process.

    Args:
        disk: Outlives it.
        turns: What the model says.
        dies: At the end of the block, without closing anything in order.
        after: So many appends are kept, and nothing behind them.
        options: For `open_agent`.
    """
    options.setdefault("extensions", [TodoWriteExtension(), AskUserExtension()])
    try:
        async with open_agent(ScriptedModel(turns), store=disk.store(after=after), **options) as agent:
            yield agent
            if dies:
                raise Crash
    except* Crash:
        pass


async def attach(agent: Agent, reader: Reader, log_id: str = "", cursor: int = 0) -> Attached:
    """Attach to the session s through its mailbox, as a link of the gateway does."""
    replies: list[Any] = []
    command = cmd.Attach(session="s", log_id=log_id, cursor=cursor)
    await agent.session("s").submit(command, replies.append, reader=reader)
    await wait_all_tasks_blocked()
    (reply,) = replies
    assert isinstance(reply, Attached), reply
    return reply
