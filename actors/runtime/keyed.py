"""A queue of messages in which one may take the place of another that has the same key.

It decides where a message is; it must not know what a key means, nor mailboxes.
"""

from collections import deque
from collections.abc import Collection, Hashable, Iterable
from typing import TypeVar

M = TypeVar("M")


class KeyedQueue(deque[M]):
    """A queue that finds a message by its key. A key is there once at most; messages without one have None."""

    __slots__ = ("_first", "_keys", "_places")

    def __init__(self) -> None:
        super().__init__()
        self._keys: deque[Hashable | None] = deque()
        # Places are counted from `_first`, that of the first message, so that they stay when others leave. With each is
        # how many senders had waited for room before the message came.
        self._places: dict[Hashable, tuple[int, int]] = {}
        self._first = 0

    def append(self, message: M, /) -> None:
        super().append(message)
        self._keys.append(None)

    def extendleft(self, messages: Iterable[M], /) -> None:
        before = len(self)
        super().extendleft(messages)
        self._keys.extendleft([None] * (len(self) - before))
        self._first -= len(self) - before

    def popleft(self) -> M:
        message = super().popleft()
        self._first += 1
        key = self._keys.popleft()
        if key is not None:
            del self._places[key]
        return message

    def mark_last(self, key: Hashable, waited: int) -> None:
        """Give the last message its key."""
        self._keys[-1] = key
        self._places[key] = (self._first + len(self) - 1, waited)

    def waited_before(self, key: Hashable) -> int | None:
        """Return how many senders had waited before the message of this key came; None if there is no such message."""
        found = self._places.get(key)
        return None if found is None else found[1]

    def replace(self, key: Hashable, message: M, waited: int) -> M:
        """Put a message in the place of the one that has its key, and return that."""
        place = self._places[key][0]
        self._places[key] = (place, waited)
        older = self[place - self._first]
        self[place - self._first] = message
        return older

    def without(self, gone: Collection[int]) -> "KeyedQueue[M]":
        """Return a queue without the messages with these ids."""
        rest: KeyedQueue[M] = KeyedQueue()
        for message, key in zip(self, self._keys, strict=True):
            if id(message) not in gone:
                rest.append(message)
                if key is not None:
                    rest.mark_last(key, self._places[key][1])
        return rest
