"""The kit for pytest: fixtures, a marker, and the books of every system that a test opens.

It decides what belongs to one test: which order of the scheduler, which clock, and that a test whose messages are not
accounted for has failed. It must not know agents, and imports trio only where a test has done so: pytest loads it in
every project. Async tests and fixtures need pytest-trio; without it the rest works.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import pytest

from actors.testing.seeding import SEED_VARIABLE, choose_seed, only_seed, seed_range

if TYPE_CHECKING:
    from actors.runtime import System
    from actors.testing.conservation import Watch
    from actors.testing.probe import MakeProbe


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "scheduler_seeds(n): run the test under n scheduler seeds, each a test of its own; or under the seeds given. "
        f"{SEED_VARIABLE}=17 runs seed 17 alone.",
    )


@pytest.fixture
def scheduler_seed(request: pytest.FixtureRequest) -> int:
    """The seed of trio's scheduler, and of the module `random`, while the test runs. It is in what goes wrong."""
    seed: int = request.param if hasattr(request, "param") else choose_seed()
    return seed


@pytest.fixture
def _virtual_time() -> None:
    """Whatever uses this runs under a clock that jumps when every task waits, unless the test brings its own."""


@pytest.fixture
async def system(scheduler_seed: int, _virtual_time: None) -> AsyncIterator["System"]:
    """An open system, in virtual time and under a scheduler seed. It ends with the test."""
    from actors.runtime import open_system

    async with open_system() as system:
        yield system


@pytest.fixture
def probe(system: "System") -> "MakeProbe":
    """Open probes in `system`: `await probe()`, or `async with probe(name="buyer") as buyer`."""
    from actors.testing.probe import open_probe

    return partial(open_probe, system)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each scheduler seed that a marker asks for."""
    marker = metafunc.definition.get_closest_marker("scheduler_seeds")
    if marker is None:
        return
    seeds = only_seed(seed_range(*marker.args, **marker.kwargs))
    if "scheduler_seed" not in metafunc.fixturenames:
        metafunc.fixturenames.append("scheduler_seed")
    metafunc.parametrize("scheduler_seed", seeds, indirect=True, ids=[f"seed{seed}" for seed in seeds])


@pytest.hookimpl(trylast=True)  # pytest-trio has marked what it takes for its own
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have pytest-trio run in virtual time what uses `system`."""
    manager = config.pluginmanager
    if not (manager.hasplugin("trio") or manager.hasplugin("pytest_trio.plugin")):
        return
    for item in items:
        if isinstance(item, pytest.Function) and "_virtual_time" in item.fixturenames and iscoroutinefunction(item.obj):
            runs = [marker.kwargs.get("run") for marker in item.iter_markers("trio")]
            run = next(filter(None, runs), None)
            # Before all other markers, so that this is the one that is asked how to run the test.
            item.add_marker(pytest.mark.trio(run=partial(_run_virtual, item.name, run)), append=False)


def _run_virtual(
    name: str,
    run: Callable[..., Any] | None,
    async_fn: Callable[[], Awaitable[Any]],
    *,
    clock: Any = None,
    instruments: Any = (),
) -> Any:
    """Be what pytest-trio calls instead of `trio.run`, or of the runner that the test was marked with."""
    import trio
    from trio.testing import MockClock

    from actors.testing.running import LIMIT_S, limited

    clock = clock or MockClock(autojump_threshold=0)
    return (run or trio.run)(limited, name, async_fn, LIMIT_S, nullcontext(), clock=clock, instruments=instruments)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run the test under its seed, and check the books of the systems that it opens."""
    funcargs: dict[str, Any] | None = getattr(item, "funcargs", None)
    seed = (funcargs or {}).get("scheduler_seed")
    watch = _watch()
    try:
        with _seeded(seed):
            result = yield
    except BaseException as error:
        if isinstance(seed, int):
            error.add_note(f"under scheduler seed {seed}; to repeat: {SEED_VARIABLE}={seed}")
        problems = watch.end() if watch is not None else ""
        if problems:
            error.add_note(problems)
        raise
    problems = watch.end() if watch is not None else ""
    if problems:
        pytest.fail(problems, pytrace=False)
    return result


def _watch() -> "Watch | None":
    if "trio" not in sys.modules:  # nothing that was imported so far opens systems
        return None
    from actors.testing.conservation import Watch

    return Watch()


def _seeded(seed: object) -> AbstractContextManager[None]:
    if not isinstance(seed, int):
        return nullcontext()
    from actors.testing.scheduler import seeded

    return seeded(seed)
