"""`@scenario`: what is swept, and with which faults."""

from collections.abc import Awaitable, Callable, Sequence
from typing import overload

from actors.testing.sweep.case import CANCEL, ERROR, Pattern, read_pattern
from actors.testing.sweep.stage import Stage

Play = Callable[[Stage], Awaitable[object]]

#: Seconds on the virtual clock after which a play that has not ended is found to hang.
LIMIT_S = 100_000.0


class Scenario:
    """An async function with what a sweep has to know about it. Made by `scenario`.

    Attributes:
        play: The function.
        name: Its name, with its module: `tests.orders:one_order`.
        errors_in: The fault `error` strikes tasks of such names only.
    """

    def __init__(self, play: Play, faults: Sequence[str] | None, errors_in: str, seeds: Sequence[int]) -> None:
        self.play = play
        self.name = f"{play.__module__}:{getattr(play, '__qualname__', 'it')}"
        self.errors_in = errors_in
        self.seeds = tuple(seeds)
        self._faults = None if faults is None else tuple([read_pattern(text) for text in faults])
        self.__doc__ = play.__doc__

    def patterns(self, possible: Sequence[str]) -> tuple[Pattern, ...]:
        """Return which faults it is swept with.

        Args:
            possible: The names of those that it offered when it was played undisturbed.

        Raises:
            ValueError: A fault of a pattern is none of these, so that nothing would ever happen.
        """
        if self._faults is None:
            return tuple([Pattern((name,)) for name in (CANCEL, ERROR, *possible)])
        for pattern in self._faults:
            unknown = pattern.names - {CANCEL, ERROR, *possible}
            if unknown:
                known = ", ".join((CANCEL, ERROR, *possible))
                raise ValueError(f"{self.name} has no fault {', '.join(sorted(unknown))}; it has {known}")
        return self._faults


@overload
def scenario(play: Play, /) -> Scenario: ...


@overload
def scenario(
    *, faults: Sequence[str] | None = None, errors_in: str = "*", seeds: Sequence[int] = (0,)
) -> Callable[[Play], Scenario]: ...


def scenario(
    play: Play | None = None,
    /,
    *,
    faults: Sequence[str] | None = None,
    errors_in: str = "*",
    seeds: Sequence[int] = (0,),
) -> Scenario | Callable[[Play], Scenario]:
    """Make a scenario of an async function that takes a `Stage`.

    Args:
        play: The function. Each play must be independent of those before: what it works with is made in it.
        faults: Patterns as in `actors.testing.sweep.case`. None means each fault by itself that it offers, and the two
            that every scenario has: `cancel` and `error`.
        errors_in: The fault `error` strikes only tasks whose name is like this, with `*` and `?`.
        seeds: Of the scheduler; it is swept under each.

    Raises:
        ValueError: A pattern is none.
    """

    def make(play: Play) -> Scenario:
        return Scenario(play, faults, errors_in, seeds)

    return make if play is None else make(play)
