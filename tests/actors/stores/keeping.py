"""What the tests of stores share: sinks that remember, sessions that append, an open store, a file that fails."""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from msgspec.structs import replace

from actors.runtime import Threads, open_system
from actors.stores import SqliteStore
from actors.stores.connecting import connect
from protocol import events as ev
from protocol.history import State, apply
from protocol.stored import decode_record

GOLDEN = Path(__file__).parents[2] / "protocol" / "golden"


class Sink:
    """What a session is to a store: it remembers what it was told, and wakes who waits for it."""

    def __init__(self) -> None:
        self.heads: list[int] = []
        self.errors: list[str] = []
        self._told = trio.Event()

    def commit(self, head: int) -> None:
        assert not self.errors, f"{head} was committed after {self.errors}"
        self.heads.append(head)
        self._wake()

    def store_failed(self, error: Exception) -> None:
        self.errors.append(str(error))
        self._wake()

    def _wake(self) -> None:
        self._told.set()
        self._told = trio.Event()

    async def wait_head(self, head: int) -> None:
        """Wait until `head` is committed, or the store has failed."""
        with trio.fail_after(30):
            while not self.errors and (not self.heads or self.heads[-1] < head):
                await self._told.wait()

    async def wait_failed(self) -> str:
        """Wait until the store has failed and return what it said."""
        with trio.fail_after(30):
            while not self.errors:
                await self._told.wait()
        return self.errors[0]


class Writing(Sink):
    """A session that appends what it is given and keeps the state."""

    def __init__(self, store: Any, name: str = "s") -> None:
        super().__init__()
        self.store = store
        self.name = name
        self.state = State()
        self.log: list[ev.Event] = []

    def summary(self) -> tuple[str, int]:
        return self.state.status, len(self.state.open_asks())

    def begin(self) -> "Writing":
        self.store.create(self.name, f"log of {self.name}")
        self.append(ev.SessionOpened(self.name, f"log of {self.name}"))
        return self

    def append(self, *events: ev.Event) -> None:
        stamped = [replace(event, seq=seq, time=float(seq)) for seq, event in enumerate(events, self.state.seq + 1)]
        for event in stamped:
            apply(self.state, event)
        self.log += stamped
        self.store.append(self.name, stamped, self)

    async def wait_kept(self) -> None:
        await self.wait_head(self.state.seq)
        assert not self.errors, self.errors


def custom(*seqs: int, text: str = "x") -> list[ev.Event]:
    return [ev.Custom(text, seq=seq, time=float(seq)) for seq in seqs]


def golden() -> list[ev.Event]:
    """Return a log with every durable event."""
    return [decode_record(line) for line in (GOLDEN / "log-v1.jsonl").read_bytes().splitlines()]


@asynccontextmanager
async def sqlite_store(path: Path, *, threads: Threads | None = None, **options: Any) -> AsyncGenerator[SqliteStore]:
    """Open a store for a block."""
    async with open_system(name="test", threads=threads) as system:
        store = SqliteStore(path, **options)
        await store.open(system)
        try:
            yield store
        finally:
            await store.aclose()


class Faulty:
    """A connection that works until it has executed so many statements, and then fails once or from then on."""

    def __init__(self, path: str, fails: Callable[[int, str], str | None]) -> None:
        self._inner = connect(path)
        self._fails = fails
        self.count = 0

    def _step(self, statement: str) -> None:
        self.count += 1
        text = self._fails(self.count, statement)
        if text is not None:
            raise sqlite3.OperationalError(text)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        self._step(statement)
        return self._inner.execute(statement, parameters)

    def executemany(self, statement: str, parameters: Any) -> sqlite3.Cursor:
        self._step(statement)
        return self._inner.executemany(statement, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
