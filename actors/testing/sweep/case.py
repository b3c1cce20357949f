"""One case of a sweep: which faults happen at which moment. In words, so that it fits on a command line. Pure.

    cancel@41               everything is cancelled at moment 41
    answer,request@41       two faults in one tick, in this order
    request@41+3:cancel     another one three moments later

A pattern is a case without its moment: `answer,request` or `request+3:cancel`.
"""

import re
from dataclasses import dataclass

#: Faults that every scenario has: it is cancelled from outside, and the task that waits gets an error.
CANCEL = "cancel"
ERROR = "error"

_NAME = r"[A-Za-z][\w-]*"
_NAMES = rf"{_NAME}(?:,{_NAME})*"
_PATTERN = re.compile(rf"(?P<first>{_NAMES})(?:@(?P<at>\d+))?(?:\+(?P<later>\d+):(?P<second>{_NAMES}))?")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which faults happen, and in which distance.

    Attributes:
        first: Names, all in one tick, in this order.
        later: So many moments after `first` comes `second`; 0 if nothing does.
        second: Names.
    """

    first: tuple[str, ...]
    later: int = 0
    second: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ",".join(self.first) + self._tail()

    @property
    def names(self) -> frozenset[str]:
        """Every fault that is in it."""
        return frozenset((*self.first, *self.second))

    def at(self, moment: int) -> "Case":
        """Return the case that begins at a moment."""
        return Case(self, moment)

    def _tail(self) -> str:
        return f"+{self.later}:{','.join(self.second)}" if self.second else ""


@dataclass(frozen=True, slots=True)
class Case:
    """A pattern at a moment, 1 being the first."""

    pattern: Pattern
    moment: int

    def __str__(self) -> str:
        return f"{','.join(self.pattern.first)}@{self.moment}{self.pattern._tail()}"  # pyright: ignore[reportPrivateUsage]


def read_pattern(text: str) -> Pattern:
    """Read `answer,request` or `request+3:cancel`.

    Raises:
        ValueError: It is none.
    """
    pattern, moment = _read(text)
    if moment is not None:
        raise ValueError(f"{text!r} names a moment, so it is a case; a pattern is {str(pattern)!r}")
    return pattern


def read_case(text: str) -> Case:
    """Read `answer,request@41` or `request@41+3:cancel`.

    Raises:
        ValueError: It is none.
    """
    pattern, moment = _read(text)
    if moment is None:
        raise ValueError(f"{text!r} has no moment: a case is, for example, '{','.join(pattern.first)}@41'")
    return Case(pattern, moment)


def twice(first: str, second: str | None = None, *, distances: range = range(1, 9)) -> list[str]:
    """Return the patterns in which a fault is followed by itself, or by another, at each distance, in moments."""
    return [f"{first}+{distance}:{second or first}" for distance in distances]


def _read(text: str) -> tuple[Pattern, int | None]:
    found = _PATTERN.fullmatch(text)
    if found is None:
        looks = "'cancel', 'answer,cancel', 'cancel@41', 'cancel@41+3:cancel'"
        raise ValueError(f"{text!r} is no fault; they look like {looks}")
    first, at, later, second = found.group("first", "at", "later", "second")
    moment = None if at is None else int(at)
    if moment == 0 or later == "0":
        raise ValueError(f"{text!r}: moments count from 1")
    pattern = Pattern(tuple(first.split(",")), int(later or 0), tuple(second.split(",")) if second else ())
    return pattern, moment
