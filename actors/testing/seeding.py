"""Which scheduler seeds a test runs under.

It decides that one seed can always be run alone: the environment names it. It must not know trio or pytest.
"""

import os
import random
from collections.abc import Iterable, Sequence

#: Names the one scheduler seed that is run where there would be several, or another one each time.
SEED_VARIABLE = "ACTORS_SCHEDULER_SEED"


def choose_seed() -> int:
    """Return the seed that the environment names, or else another one each time.

    Raises:
        ValueError: The environment names something that is no integer.
    """
    only = _named()
    return random.SystemRandom().randrange(2**32) if only is None else only


def only_seed(seeds: Sequence[int]) -> Sequence[int]:
    """Return the one seed that the environment names, or else all of `seeds`.

    Raises:
        ValueError: The environment names something that is no integer.
    """
    only = _named()
    return seeds if only is None else (only,)


def seed_range(which: int | Iterable[int]) -> Sequence[int]:
    """Return so many seeds from 0 on, or the ones that are given.

    Raises:
        ValueError: There would be none.
    """
    seeds = range(which) if isinstance(which, int) else tuple(which)
    if not seeds:
        raise ValueError(f"at least one scheduler seed is needed, or nothing is tested; not {which!r}")
    return seeds


def _named() -> int | None:
    text = os.environ.get(SEED_VARIABLE)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{SEED_VARIABLE} is a scheduler seed, an integer; not {text!r}") from None
