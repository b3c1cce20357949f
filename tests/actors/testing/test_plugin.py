"""The plugin as its users have it: small test files, run by a pytest of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

# All of the kit: a pytest in this process drops what was first loaded in it, and a later one would load it again.
from actors.testing import conservation, faults, probe, running  # noqa: F401
from actors.testing.seeding import SEED_VARIABLE

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
HEAD = """
import pytest
import trio
from actors.runtime import Ctx, System, open_system
from actors.testing import MakeProbe, Probe, check_conservation, run, seeds

async def idle(ctx):
    async for message in ctx:
        pass

async def leak(system):
    ref = await system.spawn(idle, name="bank")
    ref.tell("work")
    await trio.testing.wait_all_tasks_blocked()
    ref.for_runtime().mailbox.handled -= 1
"""
BANK = "actor 'bank' of system 'system': accepted 1, but handled 0 + expired 0 + dropped 0 + returned 0 + queued 0 = 0"


class Play(Protocol):
    def __call__(self, source: str, *options: str, mode: str = "trio_mode = true") -> pytest.RunResult: ...


@pytest.fixture
def play(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a file of tests, with the plugin and in trio mode, in this process."""
    monkeypatch.delenv(SEED_VARIABLE, raising=False)

    def run_file(source: str, *options: str, mode: str = "trio_mode = true") -> pytest.RunResult:
        pytester.makeini(f"[pytest]\n{mode}\nfilterwarnings = error\naddopts = --strict-markers -p no:cacheprovider")
        pytester.makepyfile(HEAD + source)
        return pytester.runpytest_inprocess("-p", "actors.testing.plugin", "-q", *options)

    return run_file


# ---- fixtures


def test_a_system_is_open_in_virtual_time_and_ends_with_the_test(play: Play) -> None:
    result = play("""
kept = []

async def test_first(system: System):
    kept.append(await system.spawn(idle))
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    await trio.sleep(86_400)
    assert clock.current_time() == 86_400

async def test_second(system):
    assert not kept[0].alive
    assert system.statistics().started == 0
""")
    result.assert_outcomes(passed=2)


def test_probes_are_opened_in_that_system(play: Play) -> None:
    result = play("""
async def test_it(system: System, probe: MakeProbe):
    first = await probe(name="first")
    async with probe() as second:
        second.ref.tell(1)
        assert await second.expect(int) == 1
    assert system.registry.lookup("first") is first.ref

async def test_without_the_system_in_sight(probe):
    await (await probe()).expect_nothing(within=1000)
""")
    result.assert_outcomes(passed=2)


def test_a_clock_that_the_test_asks_for_is_the_one_it_gets(play: Play) -> None:
    result = play("""
async def test_it(autojump_clock, system):
    assert trio.lowlevel.current_clock() is autojump_clock

async def test_by_hand(mock_clock, system):
    assert trio.lowlevel.current_clock() is mock_clock
    mock_clock.jump(5)
    assert trio.current_time() == 5
""")
    result.assert_outcomes(passed=2)


def test_a_test_that_waits_for_ever_fails_and_says_who_waits(play: Play) -> None:
    result = play("""
async def test_it(system: System):
    await system.spawn(idle, name="bank")
    await trio.sleep_forever()
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*TooSlowError: test_it was not done after 100000 s.*", "*  actor bank: *, in idle", "*under scheduler seed *"]
    )


def test_a_failing_test_says_its_seed_and_the_seed_repeats_it(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
import random
async def test_it(system, scheduler_seed):
    raise ValueError(f"{scheduler_seed} drew {random.random()}")
"""
    result = play(source)
    result.assert_outcomes(failed=1)
    (said,) = {line.split("ValueError: ")[1] for line in result.outlines if "ValueError: " in line}
    seed = said.split()[0]
    result.stdout.fnmatch_lines([f"*under scheduler seed {seed}; to repeat: ACTORS_SCHEDULER_SEED={seed}"])
    monkeypatch.setenv(SEED_VARIABLE, seed)
    play(source).stdout.fnmatch_lines([f"*ValueError: {said}"])


def test_what_a_supervisor_gives_up_on_fails_the_test(play: Play) -> None:
    result = play("""
async def broken(ctx):
    ctx.ready()
    raise ValueError("mine")

async def test_it(system: System):
    sup = await system.supervise(
        name="sup", restart="permanent", intensity=(0, 1.0), budget="supervisor", strategy="one_for_all"
    )
    await sup.spawn(broken)
    await trio.sleep(10)
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ValueError: mine", "*supervisor 'sup' gave up: *"])


# ---- seeds


def test_a_marker_makes_a_test_of_each_seed(play: Play) -> None:
    result = play(
        """
seen = {}

async def order(names):
    order = []
    async def one(name):
        order.append(name)
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)
    return "".join(order)

@pytest.mark.scheduler_seeds(8)
async def test_with_fixtures(system, probe, tmp_path, scheduler_seed):
    seen[scheduler_seed] = await order("abcde")

@pytest.mark.scheduler_seeds([3, 5])
async def test_again(system, probe, tmp_path, scheduler_seed):
    assert seen[scheduler_seed] == await order("abcde")

@pytest.mark.scheduler_seeds(range(6, 8))
@pytest.mark.parametrize("names", ["ab", "abc"])
async def test_with_parameters_and_no_fixtures(names):
    assert sorted(await order(names)) == sorted(names)

@pytest.mark.scheduler_seeds(2)
def test_sync(scheduler_seed):
    assert scheduler_seed in (0, 1)

def test_orders_differ():
    assert len(set(seen.values())) > 1
""",
        "-vv",
    )
    result.assert_outcomes(passed=8 + 2 + 4 + 2 + 1)
    result.stdout.fnmatch_lines(["*::test_with_fixtures?seed7? PASSED*", "*::test_again?seed5? PASSED*"])


def test_a_failing_seed_is_named_and_runs_alone(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
@pytest.mark.scheduler_seeds(5)
async def test_it(system, scheduler_seed):
    assert scheduler_seed != 3
"""
    result = play(source)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(
        ["*under scheduler seed 3; to repeat: ACTORS_SCHEDULER_SEED=3", "FAILED*test_it?seed3?*"]
    )
    monkeypatch.setenv(SEED_VARIABLE, "3")
    play(source).assert_outcomes(failed=1)
    monkeypatch.setenv(SEED_VARIABLE, "77")
    result = play(source, "-vv")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_it?seed77? PASSED*"])


def test_the_function_seeds_works_beside_fixtures(play: Play) -> None:
    result = play("""
@seeds(20)
async def test_it(tmp_path):
    async with open_system() as system:
        assert tmp_path.is_dir()

@seeds(20)
async def test_broken():
    async with open_system() as system:
        await leak(system)
""")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([f"*{BANK}", "*under scheduler seed 0; to repeat: run(test_broken, seed=0) or *"])


@pytest.mark.parametrize("wrong", ["0", "[]"])
def test_a_marker_without_a_seed_is_an_error_of_the_file(wrong: str, play: Play) -> None:
    result = play(f"""
@pytest.mark.scheduler_seeds({wrong})
async def test_it():
    pass
""")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*at least one scheduler seed is needed, or nothing is tested; not {wrong}*"])


def test_the_marker_is_listed(play: Play) -> None:
    play("", "--markers").stdout.fnmatch_lines(
        ["@pytest.mark.scheduler_seeds(n): *ACTORS_SCHEDULER_SEED=17 runs seed 17*"]
    )


# ---- the books


@pytest.mark.parametrize(
    "test",
    [
        "async def test_it(system):\n    await leak(system)",
        "async def test_it():\n    async with open_system() as system:\n        await leak(system)",
        "def test_it():\n    async def main():\n        async with open_system() as system:\n"
        "            await leak(system)\n    trio.run(main)",
    ],
    ids=["fixture", "block", "sync"],
)
def test_a_message_that_is_not_accounted_for_fails_the_test(test: str, play: Play) -> None:
    result = play(f"{test}\n\nasync def test_other(system):\n    await system.spawn(idle)\n")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([BANK, "all actors of system 'system' together: accepted 1, but handled 0 *"])


def test_a_name_that_is_left_fails_the_test(play: Play) -> None:
    result = play("""
async def test_it(system):
    system.registry.reserve("mine")
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["system 'system' has closed, and the names 'mine' are left"])


def test_a_test_that_fails_anyway_fails_with_its_own_error_and_the_problem_in_a_note(
    play: Play,
) -> None:
    result = play("""
async def test_it(system):
    await leak(system)
    raise KeyError("mine")
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{BANK}", "*KeyError: 'mine'"])


def test_a_leak_that_the_test_expects_is_no_failure(play: Play) -> None:
    result = play("""
def test_it():
    async def main():
        async with open_system() as system:
            await leak(system)
    with pytest.raises(AssertionError, match="bank"):
        run(main)

@pytest.mark.xfail(strict=True)
async def test_expected(system):
    await leak(system)
""")
    result.assert_outcomes(passed=1, xfailed=1)


# ---- other people's tests


def test_other_tests_are_left_alone(play: Play) -> None:
    result = play("""
import unittest

async def test_trio():
    await trio.sleep(0)
    assert not isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)

def test_sync():
    pass

def test_skip():
    pytest.skip("no")

class TestUnit(unittest.TestCase):
    def test_it(self):
        self.assertTrue(True)

@pytest.fixture
async def mine():
    yield 1

async def test_fixture(mine):
    assert mine == 1
""")
    result.assert_outcomes(passed=4, skipped=1)


def test_a_system_of_the_tests_own_is_in_real_time(play: Play) -> None:
    result = play("""
@pytest.fixture
def system():
    return "mine"

async def test_it(system):
    assert system == "mine"
    assert not isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
""")
    result.assert_outcomes(passed=1)


def test_without_trio_mode_the_fixtures_work_where_they_are_asked_for(play: Play) -> None:
    result = play(
        """
import asyncio

async def test_ours(system, probe):
    assert isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    await (await probe()).expect_nothing()

@pytest.mark.trio
async def test_marked(system):
    await trio.sleep(1000)

def test_asyncio():
    asyncio.run(asyncio.sleep(0))
""",
        mode="",
    )
    result.assert_outcomes(passed=3)


def test_a_runner_of_the_tests_own_is_kept(play: Play) -> None:
    result = play("""
ran = []

def own_run(*args, **options):
    ran.append(args)
    return trio.run(*args, **options)

@pytest.mark.trio(run=own_run)
async def test_it(system):
    assert isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    assert ran
""")
    result.assert_outcomes(passed=1)


def test_property_tests_see_the_books_of_every_example(play: Play) -> None:
    result = play("""
from hypothesis import given, settings, strategies as st

@given(st.integers(0, 3))
@settings(max_examples=20, database=None)
async def test_good(n):
    async with open_system() as system:
        for _ in range(n):
            await system.spawn(idle)

@given(st.integers(0, 3))
@settings(max_examples=20, database=None)
async def test_leaky(n):
    async with open_system() as system:
        await leak(system)
""")
    result.assert_outcomes(passed=1, failed=1)


def test_without_pytest_trio_all_that_is_sync_works(play: Play) -> None:
    result = play(
        """
@seeds(3)
async def test_seeds():
    await trio.sleep(1000)

def test_run():
    async def main():
        async with open_system() as system:
            await leak(system)
    trio.run(main)

@pytest.mark.scheduler_seeds(2)
def test_sync():
    pass
""",
        "-p",
        "no:trio",
        mode="",
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines([BANK])


def _loaded_by(code: str) -> set[str]:
    code = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60, capture_output=True, text=True
    )
    return set(json.loads(done.stdout))


def test_loading_the_plugin_loads_neither_trio_nor_agents() -> None:
    loaded = _loaded_by("import pytest\nimport actors.testing.plugin") - _loaded_by("import pytest")
    assert {name for name in loaded if name.split(".")[0] in ("actors", "protocol", "trio", "msgspec", "pydantic")} == {
        "actors",
        "actors.testing",
        "actors.testing.plugin",
        "actors.testing.seeding",
    }


def test_the_kit_loads_no_agents() -> None:
    loaded = _loaded_by("from actors.testing import *\nimport actors.testing\nassert dir(actors.testing)")
    assert "actors.testing.faults" in loaded
    unwanted = ("actors.agent", "actors.testing.plugin", "protocol", "pydantic")
    assert not {name for name in loaded if name.startswith(unwanted)}


def test_a_project_without_trio_is_not_made_to_load_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
import sys

def test_it():
    assert "trio" not in sys.modules
""")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "actors.testing.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=pytester.path, env=environment, timeout=60, capture_output=True, text=True)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


def test_a_name_that_the_kit_does_not_have_is_refused() -> None:
    import actors.testing

    with pytest.raises(AttributeError, match=r"^module 'actors\.testing' has no attribute 'mock'$"):
        actors.testing.mock  # noqa: B018
    assert all(getattr(actors.testing, name) for name in actors.testing.__all__)
    assert dir(actors.testing) == actors.testing.__all__
