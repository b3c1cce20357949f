"""A SQLite store that is open: its files, the actor that writes them, and who else may touch them when.

It decides that each of the two connections is used by one thread at a time, and that the files are let go of once
nothing uses them, whoever ends the store. It must not know what is written or read.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, TypeVarTuple

import trio

from actors.agent.ports import StoreError
from actors.runtime import Ctx, Ref, Threads, WorkerThreads
from actors.stores.commits import Commits, Item, write_some
from actors.stores.connecting import in_words
from actors.stores.files import Files
from actors.stores.reading import Reader
from actors.stores.records import Damaged, Quarantine
from protocol.errors import Code

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CLOSE_S = 10.0


class OpenedStore:
    """A store that is open: its files, and the actor that writes."""

    ref: Ref[None]

    def __init__(self, path: str, files: Files, threads: Threads) -> None:
        self.commits = Commits(path, self._write, lambda: self.ref.tell(None))
        self._path = path
        self._files = files
        self._threads = threads
        # Of its own: forty tools that block in their threads must not hold up every commit.
        self._limiter = trio.CapacityLimiter(2)
        self._reading = trio.Lock()
        self._closed = False

    async def body(self, ctx: Ctx[None]) -> None:
        """Write what comes; in the end let go of the files."""
        ctx.on_stop(self._close, within=_CLOSE_S)  # registered first, so it comes last
        await self.commits.body(ctx)

    async def _write(self, batch: Sequence[Item]) -> tuple[int, frozenset[str]]:
        return await self.run(write_some, self._files.writer, batch)

    async def run(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a blocking function where those of the system run. A checkpoint."""
        if type(self._threads) is WorkerThreads:
            return await trio.to_thread.run_sync(call, *args, limiter=self._limiter)
        return await self._threads.run_sync(call, *args)

    async def read(self, call: Callable[[Reader, *Ts], T], *args: *Ts) -> T:
        """Call a function of the reader. What is damaged for good is put into quarantine. A checkpoint."""
        async with self._reading:
            if self._closed:
                raise StoreError(f"store {self._path} is closed")
            try:
                return await self.run(call, self._files.reader, *args)
            except Damaged as damaged:
                if damaged.lasting and self.commits.failed is None:
                    make = partial(Quarantine, damaged.session, str(damaged))
                    self.commits.put(Item(damaged.session, make, nothing, nothing))
                raise StoreError(str(damaged), code=Code.STORE_DAMAGED) from None
            except sqlite3.Error as error:
                raise StoreError(in_words(self._path, error)) from None

    async def _close(self) -> None:
        async with self._reading:
            self._closed = True
            await self.run(self._files.close)


def nothing(*_: object) -> None:
    """Nobody waits for this write, and the log says what a failure was."""
