"""What a simulation remembers of itself: a hash of all that anybody saw, counts of what happened, the first problem.

It decides nothing about sessions. Nothing random may enter the hash: the id of a log does not, nor any text of ours.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import trio

from protocol import events as ev

_encode = msgspec.json.Encoder().encode


class Found(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One simulation that went well.

    Attributes:
        digest: Of what every client saw, of every command's outcome, in order, and of the logs as they ended.
        counts: How often what happened.
    """

    seed: int
    digest: str
    counts: Mapping[str, int]


class Recorder:
    """Takes notes, synchronously: readers and replies are called in the middle of a session's step and may not raise.

    Attributes:
        counts: How often what happened.
        scope: Is cancelled at the first problem, so that nothing that follows from it hides it.
        first: The first problem, or "".
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.scope = trio.CancelScope()
        self.first = ""
        self._hash = hashlib.blake2b(digest_size=16)

    def note(self, *words: object) -> None:
        """Put words into the hash."""
        self._hash.update("\x1f".join(map(str, words)).encode() + b"\n")

    def event(self, who: str, session_id: str, event: ev.Event) -> None:
        """Put an event that somebody saw into the hash."""
        if isinstance(event, ev.SessionOpened):
            event = msgspec.structs.replace(event, log_id="")
        self._hash.update(f"{who}\x1f{session_id}\x1f".encode() + _encode(event) + b"\n")

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times

    def problem(self, text: str) -> None:
        """Note what must not be."""
        if not self.first:
            self.first = text
            self.scope.cancel(reason=text)

    def check(self, holds: bool, text: str) -> None:
        if not holds:
            self.problem(text)

    def trace(self, seed: int) -> Trace:
        return Trace(seed, self._hash.hexdigest(), dict(sorted(self.counts.items())))
