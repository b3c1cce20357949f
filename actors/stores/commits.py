"""Group commit: everything that waits is written in one transaction, by one actor, in a worker thread.

It decides what is written together, and who is told of it when. Nobody is told before the transaction is on the disk.
OPEN -> FAILED: after an error nothing more is written, for what the file has then only the file knows. What cannot be
written of one session is told to that session alone. It must not know how sessions look or what is written.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import trio

from actors.agent.ports import StoreError
from actors.runtime import Ctx
from actors.stores.connecting import in_words
from actors.stores.records import Refused, Write, size_of
from actors.stores.writing import Writer

logger = logging.getLogger("actors.store")

#: The most that one transaction takes, so that whoever waits does not wait for all the others.
MAX_RECORDS = 1_000
MAX_BYTES = 1_048_576
#: Sessions are told of a commit in slices, so that the event loop is never held for long.
_SLICE = 64
#: Seconds that what still waits has, when the system stops.
_FLUSH_S = 30.0


@dataclass(slots=True)  # not frozen, which would make each one three times as slow to make
class Item:
    """One write that waits. It does not change.

    Attributes:
        session: Whom it concerns; "" for none.
        make: Makes the write, in the worker thread; None writes nothing and only waits for what was put before.
        done: Called when it is on the disk.
        failed: Called instead, with the reason, if it never will be, or if nobody can know.
        records: How many it counts for.
    """

    session: str
    make: Callable[[], Write] | None
    done: Callable[[], object]
    failed: Callable[[StoreError], object]
    records: int = 1


class Commits:
    """The writes of one store that are not on the disk yet.

    Attributes:
        failed: Why nothing more is written, or None.
        deleted: The sessions that the last transaction has deleted.
    """

    def __init__(
        self,
        path: str,
        write: Callable[[Sequence[Item]], Awaitable[tuple[int, frozenset[str]]]],
        wake: Callable[[], object],
    ) -> None:
        """Begin with nothing.

        Args:
            path: The store's, for messages.
            write: Runs `write_some` in a worker thread.
            wake: Lets `body` go on, which waits for messages.
        """
        self.failed: StoreError | None = None
        self.deleted: frozenset[str] = frozenset()
        self._path = path
        self._write = write
        self._wake = wake
        self._waiting: deque[Item] = deque()
        self._awake = False

    def put(self, item: Item) -> None:
        """Take a write. Never blocks; if nothing is written any more, it fails at once."""
        if self.failed is not None:
            item.failed(self.failed)
            return
        self._waiting.append(item)
        if not self._awake:
            self._awake = True
            self._wake()

    async def wait_written(self) -> None:
        """Wait until everything that was put is on the disk, or never will be. A checkpoint only where it waits."""
        if not self._awake:
            return
        through = trio.Event()
        self.put(Item("", None, through.set, lambda _: through.set(), 0))
        await through.wait()

    async def body(self, ctx: Ctx[None]) -> None:
        """Write what comes, until the actor is drained or stopped; then what is left."""
        ctx.on_stop(self._finish, within=_FLUSH_S)
        async for _ in ctx:
            await self._flush()

    async def _finish(self) -> None:
        self._awake = True  # there is nobody left to be woken
        try:
            await self._flush()
        finally:
            self.failed = self.failed or StoreError(f"store {self._path} is closed")
            for item in self._take_all():
                _tell(item.failed, self.failed)

    async def _flush(self) -> None:
        while self._waiting:
            # What follows at once from what was put, or from what was just told, belongs to the same commit.
            await trio.lowlevel.checkpoint()
            await self._write_batch()
        self._awake = False

    async def _write_batch(self) -> None:
        batch = self._take_batch()
        try:
            # Not to be left half-way: whoever is told "cancelled" would not know whether it was written. A thread
            # cannot be interrupted anyway, and waits for a locked file for some seconds at most.
            taken = 0
            with trio.CancelScope(shield=True):
                taken, self.deleted = await self._write(batch)
        except Refused as refused:
            self._waiting.extendleft(reversed(batch))
            self._refuse(refused)
        except Exception as error:
            self._waiting.extendleft(reversed(batch))
            await self._fail(error)
        else:
            self._waiting.extendleft(reversed(batch[taken:]))
            for number, item in enumerate(islice(batch, taken), 1):
                _tell(item.done)
                if number % _SLICE == 0:
                    await trio.lowlevel.cancel_shielded_checkpoint()

    def _take_batch(self) -> list[Item]:
        batch: list[Item] = []
        records = 0
        while self._waiting and (not batch or records + self._waiting[0].records <= MAX_RECORDS):
            batch.append(self._waiting.popleft())
            records += batch[-1].records
        return batch

    def _take_all(self) -> list[Item]:
        items = list(self._waiting)
        self._waiting.clear()
        return items

    def _refuse(self, refused: Refused) -> None:
        logger.error("store %s: %s", self._path, refused)
        error = StoreError(str(refused))
        items = self._take_all()
        self._waiting.extend(item for item in items if item.session != refused.session)
        for item in items:
            if item.session == refused.session:
                _tell(item.failed, error)

    async def _fail(self, error: Exception) -> None:
        words = in_words(self._path, error)
        logger.error("nothing more is written: %s", words, exc_info=error)
        self.failed = StoreError(words)
        for number, item in enumerate(self._take_all(), 1):
            _tell(item.failed, self.failed)
            if number % _SLICE == 0:
                await trio.lowlevel.cancel_shielded_checkpoint()


def write_some(writer: Writer, batch: Sequence[Item]) -> tuple[int, frozenset[str]]:
    """Write as many items as one transaction takes, at least one. Blocking.

    Returns:
        How many were written, from the first on, and the sessions that were deleted.

    Raises:
        Refused: Nothing was written, because of one session.
        Exception: As `Writer.write`.
    """
    writes: list[Write] = []
    size = taken = 0
    for item in batch:
        if item.make is not None:
            write = item.make()
            size += size_of(write)
            if taken and size > MAX_BYTES:
                break
            writes.append(write)
        taken += 1
    return taken, writer.write(writes) if writes else frozenset()


def _tell(call: Callable[..., object], *args: object) -> None:
    try:
        call(*args)
    except Exception:  # the fault of one session is not the store's, nor that of the others
        logger.exception("a session raised when it was told of a commit")
