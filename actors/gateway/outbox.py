"""What waits to be sent to one client, bounded in bytes and in messages. Synchronous; knows no sockets.

Slowness is judged by what is queued, the frame about to be queued included: a client that answers every ping and reads
nothing is slow all the same.
"""

from collections import deque
from typing import NamedTuple

from actors.gateway.ports import Reader


class Item(NamedTuple):
    """A frame, and, where it carries a record, whose and which: so that a cursor says what was really sent.

    `seq` is 0 for what is no record, -1 for what was asked for.
    """

    frame: bytes
    reader: Reader | None = None
    seq: int = 0


class Outbox:
    """A queue of frames that refuses instead of growing.

    What a client asked for is counted apart from events, so that a large snapshot on its way makes nobody slow.
    """

    __slots__ = ("_asked_bytes", "_event_bytes", "_items", "_max_bytes", "_max_messages")

    def __init__(self, *, max_bytes: int, max_messages: int) -> None:
        self._event_bytes = 0
        self._asked_bytes = 0
        self._max_bytes = max_bytes
        self._max_messages = max_messages
        self._items: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def queued_bytes(self) -> int:
        """Size of all that waits."""
        return self._event_bytes + self._asked_bytes

    def put(self, frame: bytes, reader: Reader | None = None, seq: int = 0) -> bool:
        """Queue an event. False: with it the events would be over the bound, and nothing was queued."""
        size = self._event_bytes + len(frame)
        if size > self._max_bytes or len(self._items) >= self._max_messages:
            return False
        self._event_bytes = size
        self._items.append(Item(frame, reader, seq))
        return True

    def put_reply(self, frame: bytes) -> bool:
        """Queue what was asked for. False: the replies before it are over the bound already.

        So one reply may be larger than the bound, and all that waits is at most twice the bound and one reply.
        """
        if self._asked_bytes > self._max_bytes or len(self._items) >= self._max_messages:
            return False
        self._asked_bytes += len(frame)
        self._items.append(Item(frame, None, -1))
        return True

    def take(self, *, max_messages: int, max_bytes: int) -> list[Item]:
        """Take the oldest frames: at least one if there is any, more while they fit."""
        taken: list[Item] = []
        size = 0
        while self._items and len(taken) < max_messages:
            size += len(self._items[0].frame)
            if taken and size > max_bytes:
                break
            item = self._items.popleft()
            if item.seq < 0:
                self._asked_bytes -= len(item.frame)
            else:
                self._event_bytes -= len(item.frame)
            taken.append(item)
        return taken

    def clear(self) -> None:
        """Drop everything."""
        self._items.clear()
        self._event_bytes = self._asked_bytes = 0
