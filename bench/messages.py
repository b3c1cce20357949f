"""What the benches of `runtime/*` send: the same objects to actors, to bare tasks and to the peers that take them.

It imports no trio, as peers run without it.
"""

import threading
from collections.abc import Callable

from msgspec import Struct


class Item(Struct):
    """One message. Whoever receives it adds `number` up."""

    number: int
    text: str


class Amount(Struct):
    """What is asked of a peer: add `amount` up and answer with the sum."""

    amount: int


class Tally:
    """How many receivers are through, and what all of them received together.

    Args:
        receivers: How many there are.
        finished: Called once, when the last of them has said its sum; in that one's task or thread.
    """

    def __init__(self, receivers: int, finished: Callable[[], object]) -> None:
        self._left = receivers
        self._finished = finished
        self._total = 0
        self._lock = threading.Lock()  # some peers are threads

    def add(self, total: int) -> None:
        """Take what one receiver has added up."""
        with self._lock:
            self._total += total
            self._left -= 1
            last = not self._left
        if last:
            self._finished()

    def check(self, expected: int) -> None:
        """Make sure that nothing got lost: a bench that loses messages has measured something else.

        Raises:
            RuntimeError: The receivers have added up to something else.
        """
        if self._total != expected:
            raise RuntimeError(f"{expected} messages were sent and {self._total} of them handled")


class Done(Struct):
    """The last message to a receiver: it says its sum."""

    tally: Tally
