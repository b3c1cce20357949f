"""The sweep: play the scenario, interfere at its k-th task step, check what must hold; for every k.

The scheduler is seeded and the clock virtual, so a finding is repeated by its `Case`. A case is one interference with
one store; `play` raises `Found` with the case in it.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import trio
from trio.testing import MockClock

from tests.faults.scene import ACTS, Case, Found, Interference, Stage, perform


def play(case: Case) -> int:
    """Play one case and return its number of task steps.

    Raises:
        Found: An invariant does not hold; names the case.
    """
    runner: Any = trio._core._run
    runner._ALLOW_DETERMINISTIC_SCHEDULING = True
    runner._r.seed(case.seed)
    stage = Stage(case)
    ignored: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, ignored.append
    try:
        trio.run(_guarded, stage, clock=MockClock(autojump_threshold=0), instruments=[Interference(stage)])
    except BaseException as error:
        raise Found(f"{case}: {_first(error)!r}") from error
    finally:
        sys.unraisablehook = hook
        runner._ALLOW_DETERMINISTIC_SCHEDULING = False
    if ignored:
        raise Found(f"{case}: ignored {ignored[0].exc_value!r} in {ignored[0].object!r}")
    return stage.steps


async def _guarded(stage: Stage) -> None:
    with trio.fail_after(10_000):  # virtual: reached when every task waits for ever
        await perform(stage)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def sweep(cases: Iterator[Case]) -> tuple[int, list[Found]]:
    """Play cases; return how many, and what was found."""
    played, found = 0, list[Found]()
    for case in cases:
        played += 1
        try:
            play(case)
        except Found as error:
            found.append(error)
    return played, found


def every_step(
    *, stores: Sequence[str], acts: Sequence[str] = ACTS, seeds: Sequence[int] = (0,), stride: int = 1,
    seconds: Sequence[int] = (0,), fails_at: Sequence[int] = (0,),
) -> Iterator[Case]:  # fmt: skip
    """Yield a case for every `stride`-th step of the scenario, with an offset that differs from act to act."""
    for store in stores:
        for seed in seeds:
            for fails in fails_at:
                steps = play(Case(seed=seed, store=store, fails_at=fails))
                for number, act in enumerate(acts):
                    for second in seconds:
                        for step in range(1 + (number + seed) % stride, steps + 1, stride):
                            yield Case(act, step, second, seed, store, fails)
