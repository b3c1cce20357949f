"""Runs of async functions for tests: virtual time, an order of tasks that can be repeated, an end that always comes.

It decides how a failing run says which one it was. It must not know pytest.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from typing import Literal, ParamSpec, TypeVar, TypeVarTuple, overload

import trio
from trio.testing import MockClock

from actors.testing.conservation import conserving
from actors.testing.scheduler import seeded, take_shields_off
from actors.testing.seeding import SEED_VARIABLE, choose_seed, only_seed, seed_range
from actors.testing.waiting import program_tasks, who_waits

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: The most seconds on the clock that a run may take.
LIMIT_S = 100_000.0
#: After the limit, so long is given to cleanup that is shielded from the cancel.
_GRACE_S = 1000.0


@overload
def run(
    async_fn: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
    seed: int | None = None,
    clock: Literal["virtual", "real"] = "virtual",
    limit_s: float = LIMIT_S,
) -> T: ...


@overload
def run(
    async_fn: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
    seed: int | None = None,
    clock: Literal["virtual", "real"] = "virtual",
    limit_s: float = LIMIT_S,
    fault: AbstractContextManager[object],
) -> T | None: ...


def run(
    async_fn: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
    seed: int | None = None,
    clock: Literal["virtual", "real"] = "virtual",
    limit_s: float = LIMIT_S,
    fault: AbstractContextManager[object] | None = None,
) -> T | None:
    """Run an async function as `trio.run` does, and return what it returns.

    Time is virtual: when every task waits, the clock jumps to the next deadline. The order in which tasks run follows
    from the seed. At the end every system that was opened in it must be conserved, see `check_conservation`.

    Args:
        async_fn: What to run.
        args: Given to it.
        seed: Of the scheduler, and of the module `random`. None takes the environment's `ACTORS_SCHEDULER_SEED`, or
            another one each time. What goes wrong has the seed in a note.
        clock: `"real"` for what waits for sockets or threads: a virtual clock does not wait for these.
        limit_s: The most seconds on the clock; with virtual time, the end of a run in which everything waits for ever.
        fault: From `inject` or `count_checkpoints`. If it cancels the whole run, None is returned.

    Raises:
        TooSlowError: The limit is reached; it says what every task waits for.
        AssertionError: A system was not conserved.
        Exception: What `async_fn` raised.
    """
    if seed is None:
        seed = choose_seed()
    name = getattr(async_fn, "__name__", "it")
    mock = MockClock(autojump_threshold=0) if clock == "virtual" else None
    try:
        with seeded(seed), conserving():
            return trio.run(limited, name, partial(async_fn, *args), limit_s, fault or nullcontext(), clock=mock)
    except BaseException as error:
        error.add_note(f"under scheduler seed {seed}; to repeat: run({name}, seed={seed}) or {SEED_VARIABLE}={seed}")
        raise


async def limited(
    name: str, async_fn: Callable[[], Awaitable[T]], limit_s: float, fault: AbstractContextManager[object]
) -> T | None:
    """Be the main task of a run that has a limit, see `run`. Returns None if the fault cancelled it. A checkpoint.

    Args:
        name: Of the task, and for the error.
        async_fn: What to run.
        limit_s: Seconds on the clock.
        fault: A block around it, or something without effect.
    """
    trio.lowlevel.current_task().name = name
    waiting: list[str] = []
    result: T | None = None
    with trio.CancelScope() as scope:
        trio.lowlevel.spawn_system_task(_watch, limit_s, scope, waiting)
        with fault:
            result = await async_fn()
    if scope.cancelled_caught:
        raise trio.TooSlowError(
            f"{name} was not done after {limit_s:g} s. A virtual clock does not wait for threads and sockets, "
            "clock='real' does. These waited:\n" + "\n".join(waiting)
        )
    return result


async def _watch(limit_s: float, scope: trio.CancelScope, waiting: list[str]) -> None:
    # A task of its own, so that it sees the others while they still wait.
    await trio.sleep(limit_s)
    waiting += who_waits()
    scope.cancel(reason=f"the limit of {limit_s:g} s is reached")
    await trio.sleep(_GRACE_S)
    # What waits for ever behind a shield would keep the run for ever.
    for task in program_tasks():
        take_shields_off(task)


def seeds(which: int | Iterable[int]) -> Callable[[Callable[P, Awaitable[None]]], Callable[P, None]]:
    """Make a sync test of an async one, that runs it under many orders of the scheduler, each as `run` does.

    The first failure ends it; the seed is in a note of the error, and `ACTORS_SCHEDULER_SEED=17` runs that one alone.
    The arguments are the same objects each time. A test that takes async fixtures is marked with
    `@pytest.mark.scheduler_seeds(n)` instead.

    Args:
        which: How many seeds, from 0 on, at least 1; or the seeds themselves.

    Raises:
        ValueError: There would be none.
    """
    chosen = seed_range(which)

    def decorate(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
        @wraps(test)
        def under_each(*args: P.args, **kwargs: P.kwargs) -> None:
            for seed in only_seed(chosen):
                run(_bound(test, *args, **kwargs), seed=seed)

        return under_each

    return decorate


def _bound(test: Callable[P, Awaitable[None]], *args: P.args, **kwargs: P.kwargs) -> Callable[[], Awaitable[None]]:
    async def once() -> None:
        await test(*args, **kwargs)

    once.__name__ = getattr(test, "__name__", "it")
    return once
