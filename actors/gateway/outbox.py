"""What waits to be sent to one client, bounded in bytes and in messages. Synchronous; knows no sockets.

Slowness is judged by what is queued, the frame about to be queued included: a client that answers every ping and reads
nothing is slow all the same.
"""

from collections import deque
from typing import NamedTuple

from actors.gateway.ports import Reader


class Item(NamedTuple):
    """A frame, and, where it carries a record, whose and which: so that a cursor says what was really sent."""

    frame: bytes
    reader: Reader | None = None
    seq: int = 0


class Outbox:
    """A queue of frames that refuses instead of growing."""

    __slots__ = ("_items", "_max_bytes", "_max_messages", "queued_bytes")

    def __init__(self, *, max_bytes: int, max_messages: int) -> None:
        self.queued_bytes = 0
        self._max_bytes = max_bytes
        self._max_messages = max_messages
        self._items: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, frame: bytes, reader: Reader | None = None, seq: int = 0) -> bool:
        """Queue a frame. False: it is over the bound and nothing was queued."""
        size = self.queued_bytes + len(frame)
        if size > self._max_bytes or len(self._items) >= self._max_messages:
            return False
        self._append(Item(frame, reader, seq), size)
        return True

    def put_reply(self, frame: bytes) -> bool:
        """Queue what was asked for, a snapshot perhaps larger than the bound; False if the bound was reached before.

        So one reply at a time may exceed it, and memory stays bounded by the bound and one reply.
        """
        if self.queued_bytes > self._max_bytes or len(self._items) >= self._max_messages:
            return False
        self._append(Item(frame), self.queued_bytes + len(frame))
        return True

    def _append(self, item: Item, size: int) -> None:
        self._items.append(item)
        self.queued_bytes = size

    def take(self, *, max_messages: int, max_bytes: int) -> list[Item]:
        """Take the oldest frames: at least one if there is any, more while they fit."""
        taken: list[Item] = []
        size = 0
        while self._items and len(taken) < max_messages:
            size += len(self._items[0].frame)
            if taken and size > max_bytes:
                break
            item = self._items.popleft()
            self.queued_bytes -= len(item.frame)
            taken.append(item)
        return taken

    def clear(self) -> None:
        """Drop everything."""
        self._items.clear()
        self.queued_bytes = 0
