"""Dead letters: what was sent to an actor and will not be handled by it, and why.

It decides what is counted, what is kept and who is told, and that nothing a subscriber does reaches a sender. It must
not know mailboxes, actors or systems; they report here. Nothing is logged per letter: a flood of them is counted.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from actors.runtime.mailbox import Lost

logger = logging.getLogger("actors.runtime")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that its addressee will not handle.

    Attributes:
        name: The actor it was sent to.
        message: The message itself.
        how: Whether it was refused, or accepted and then lost.
        reason: Why, in words.
    """

    name: str
    message: object
    how: Lost
    reason: str


class _Subscriber:
    __slots__ = ("active", "callback", "raised")

    def __init__(self, callback: Callable[[DeadLetter], object]) -> None:
        self.callback = callback
        self.active = True
        self.raised = False


class DeadLetters:
    """The dead letters of one system, at `system.dead_letters`. Nothing here is a checkpoint.

    Args:
        keep: How many of the newest are kept, 0 or more; the messages in them live as long. All are counted.

    Raises:
        ValueError: `keep` is negative.
    """

    __slots__ = ("_counts", "_kept", "_subscribers", "_telling")

    def __init__(self, keep: int = 100) -> None:
        if keep < 0:
            raise ValueError(f"keep must be 0 or more, not {keep}")
        self._counts = dict.fromkeys(Lost, 0)
        # Plain tuples: a frozen dataclass for each would cost more than all the rest of `add`.
        self._kept: deque[tuple[str, object, Lost, str]] = deque(maxlen=keep)
        self._subscribers: tuple[_Subscriber, ...] = ()
        self._telling = False

    def __repr__(self) -> str:
        return f"<DeadLetters {self.count}>"

    @property
    def counts(self) -> dict[Lost, int]:
        """How many there were of each kind since the system was opened; every kind is there. A copy."""
        return self._counts.copy()

    @property
    def count(self) -> int:
        """How many there were since the system was opened."""
        return sum(self._counts.values())

    @property
    def last(self) -> tuple[DeadLetter, ...]:
        """The newest ones, at most `keep`, the newest last."""
        return tuple(DeadLetter(*letter) for letter in self._kept)

    def subscribe(self, callback: Callable[[DeadLetter], object]) -> Callable[[], None]:
        """Have each dead letter from now on given to a function, in the order of subscribing.

        Args:
            callback: Called synchronously, in the middle of what made the letter; it must not block. What it returns
                is ignored, so `ref.tell` will do. What it raises goes nowhere; the first time it is logged. Letters
                that arise while subscribers are told are counted and kept, and nobody is told of them.

        Returns:
            A function that ends it. Idempotent; the callback is not called again, not even for the letter being told.
        """
        subscriber = _Subscriber(callback)
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            subscriber.active = False
            self._subscribers = tuple(each for each in self._subscribers if each is not subscriber)

        return unsubscribe

    def add(self, name: str, message: object, how: Lost, reason: str) -> None:
        """Count a letter, keep it, and tell the subscribers. For the runtime; never raises."""
        self._counts[how] += 1
        self._kept.append((name, message, how, reason))
        if self._subscribers and not self._telling:
            self._tell(DeadLetter(name, message, how, reason))

    def _tell(self, letter: DeadLetter) -> None:
        self._telling = True
        try:
            for subscriber in self._subscribers:
                if not subscriber.active:
                    continue
                try:
                    subscriber.callback(letter)
                except Exception:
                    if subscriber.raised:
                        continue
                    subscriber.raised = True
                    # A log filter of the host may raise too; the sender must not get that either.
                    with contextlib.suppress(Exception):
                        logger.exception("a subscriber to dead letters raised; it is told of the next ones, unlogged")
        finally:
            self._telling = False
