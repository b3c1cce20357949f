import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from actors.runtime import Ctx, open_system
from actors.testing.sweep import Finding, Report, Stage, Wrong, play, read_case, scenario, sweep, twice


async def tidy(stage: Stage) -> None:
    taken: list[str] = []

    def given_back() -> None:
        assert not taken, "still taken"

    stage.afterwards(given_back)
    await trio.sleep(1)
    taken.append("it")
    try:
        await trio.sleep(1)
        async with trio.Lock():
            await trio.lowlevel.checkpoint()
    finally:
        taken.clear()


async def careless(stage: Stage) -> None:
    taken: list[str] = []

    def given_back() -> None:
        assert not taken, "still taken"

    stage.afterwards(given_back)
    await trio.sleep(1)
    taken.append("it")
    lock = trio.Lock()
    await lock.acquire()  # a look, and the only checkpoint that leaves it taken
    taken.clear()
    await trio.sleep(1)


def only(report: Report) -> Finding:
    (finding,) = report.findings
    return finding


def line_of(text: str) -> int:
    lines = Path(__file__).read_text("utf-8").splitlines()
    return 1 + next(number for number, line in enumerate(lines) if text in line)


# ---- what is swept


def test_every_checkpoint_is_cancelled_once_and_fails_once() -> None:
    report = sweep(tidy).check()
    # Undisturbed; four checkpoints fail; each of the moments is cancelled, which are those and the lock's yield.
    assert report.checkpoints == 4
    assert report.plays == 1 + report.checkpoints + report.moments
    assert report.moments > report.checkpoints
    assert str(report) == f"{__name__}:tidy: 4 checkpoints, {report.plays} plays, all held"


def test_a_leak_planted_at_one_checkpoint_is_found_there_and_nowhere_else() -> None:
    finding = only(sweep(careless, faults=["cancel"]))
    assert finding.text == "AssertionError: still taken"
    where = f"{__file__}:{line_of('a look, and the only checkpoint')}, in careless"
    assert finding.where[-1] == where
    assert finding.task == f"{__name__}:careless"
    assert finding.case is not None
    moments = play(scenario(careless), None).moments
    for moment in {*range(1, moments + 1)} - {finding.case.moment}:
        play(scenario(careless), read_case(f"cancel@{moment}"))


def test_a_finding_says_what_plays_it_again() -> None:
    finding = only(sweep(careless, faults=["error"], seeds=[7]))
    command = f"-m actors.testing.sweep {__name__}:careless --seed 7 --case {finding.case}"
    assert finding.command.endswith(command)
    assert str(finding).splitlines()[0] == f"{__name__}:careless, {finding.case}, seed 7: AssertionError: still taken"
    assert str(finding).endswith(f"again: {finding.command}")
    assert 'assert not taken, "still taken"' in finding.details


def test_check_raises_everything_that_was_found() -> None:
    with pytest.raises(AssertionError) as caught:
        sweep(careless).check()
    assert "cancel@" in str(caught.value)
    assert "error@" in str(caught.value)
    assert "Traceback" in str(caught.value)


def test_what_breaks_undisturbed_is_found_and_not_swept() -> None:
    async def broken(stage: Stage) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("no")

    report = sweep(broken)
    finding = only(report)
    assert (finding.case, finding.text, report.plays) == (None, "ValueError: no", 1)
    assert "undisturbed" in str(finding)
    assert "--case" not in finding.command


def test_a_stride_leaves_moments_out_and_starts_elsewhere_for_each_pattern() -> None:
    struck: list[tuple[str, int]] = []

    async def walk(stage: Stage) -> None:
        stage.fault("a", lambda: struck.append(("a", stage.moments)))
        stage.fault("b", lambda: struck.append(("b", stage.moments)))
        for _ in range(9):
            await trio.lowlevel.checkpoint()

    sweep(walk, faults=["a", "b"], stride=3).check()
    assert struck == [("a", 1), ("a", 4), ("a", 7), ("b", 2), ("b", 5), ("b", 8)]


# ---- faults of its own


def test_a_fault_happens_at_every_moment_from_when_it_is_offered() -> None:
    struck: list[int] = []

    async def walk(stage: Stage) -> None:
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        stage.fault("it", lambda: struck.append(stage.moments))
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        stage.withdraw("it")
        await trio.lowlevel.checkpoint()

    report = sweep(walk, faults=["it"]).check()
    assert struck == [3, 4]
    assert report.plays == 1 + 2


def test_without_patterns_each_fault_happens_by_itself() -> None:
    struck: set[tuple[str, ...]] = set()

    async def walk(stage: Stage) -> None:
        stage.fault("one", lambda: None)
        stage.fault("two", lambda: None)
        try:
            await trio.lowlevel.checkpoint()
        finally:
            struck.add(tuple(stage.struck))

    sweep(walk).check()
    assert struck == {(), ("cancel",), ("error",), ("one",), ("two",)}


def test_two_faults_of_one_tick_happen_in_their_order() -> None:
    struck: set[tuple[str, ...]] = set()

    async def walk(stage: Stage) -> None:
        for name in ("one", "two"):
            stage.fault(name, lambda: None)
        await trio.lowlevel.checkpoint()
        struck.add(tuple(stage.struck))

    sweep(walk, faults=["one,two", "two,one"]).check()
    assert struck >= {("one", "two"), ("two", "one")}


def test_a_second_fault_comes_so_many_moments_later() -> None:
    struck: list[list[tuple[str, int]]] = []

    async def walk(stage: Stage) -> None:
        seen: list[tuple[str, int]] = []
        stage.fault("one", lambda: seen.append(("one", stage.moments)))
        stage.fault("two", lambda: seen.append(("two", stage.moments)))
        for _ in range(12):
            await trio.lowlevel.checkpoint()
        struck.append(seen)

    sweep(walk, faults=twice("one", "two")).check()
    pairs = [(second[1] - first[1]) for first, *rest in filter(None, struck) for second in rest]
    assert set(pairs) == set(range(1, 9))
    assert pairs.count(1) == 12 - 1


def test_what_a_fault_itself_raises_is_found() -> None:
    async def walk(stage: Stage) -> None:
        def bad() -> None:
            raise OSError("no such thing")

        stage.fault("bad", bad)
        await trio.lowlevel.checkpoint()

    finding = only(sweep(walk, faults=["bad"]))
    assert finding.text == "AssertionError: the fault itself met OSError('no such thing')"


def test_a_fault_that_is_never_offered_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r":tidy has no fault request; it has cancel, error$"):
        sweep(tidy, faults=["request"])


@pytest.mark.parametrize("name", ["cancel", "error"])
def test_the_names_of_the_faults_that_all_have_are_taken(name: str) -> None:
    async def walk(stage: Stage) -> None:
        stage.fault(name, lambda: None)

    assert only(sweep(walk)).text == f"ValueError: every scenario has the fault {name!r} already"


def test_errors_strike_only_the_tasks_that_are_named() -> None:
    struck: set[str] = set()

    @scenario(faults=["error"], errors_in="sec*")
    async def two(stage: Stage) -> None:
        async def one(name: str) -> None:
            try:
                await trio.sleep(1)
            except Exception:
                struck.add(name)
                raise

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "first", name="first")
            nursery.start_soon(one, "second", name="second")

    sweep(two).check()
    assert struck == {"second"}


def test_an_injected_error_may_come_out_and_another_may_not() -> None:
    async def translates(stage: Stage) -> None:
        try:
            await trio.lowlevel.checkpoint()
        except Exception as error:
            raise RuntimeError("something") from error

    assert only(sweep(translates, faults=["error"])).text == "RuntimeError: something"


# ---- what is wrong in every program


def test_a_scenario_that_hangs_after_a_fault_is_found_with_who_waits() -> None:
    async def stubborn(stage: Stage) -> None:
        done = trio.Event()
        async with trio.open_nursery() as nursery:

            async def work() -> None:
                await trio.sleep(1)
                done.set()

            nursery.start_soon(work, name="work")
            with trio.CancelScope(shield=True):
                await done.wait()  # for ever, if the work was cancelled

    finding = only(sweep(stubborn, faults=["cancel"]))
    assert finding.text.startswith("TooSlowError: ")
    assert f"{__file__}:" in finding.details.partition("These waited:")[2]


def test_a_task_that_is_left_is_found() -> None:
    async def careless(stage: Stage) -> None:
        with trio.CancelScope():
            try:
                await trio.sleep(1)
            except trio.Cancelled:
                trio.lowlevel.spawn_system_task(trio.sleep_forever)
                raise

    assert only(sweep(careless, faults=["cancel"])).text == "AssertionError: 1 tasks are left"


def test_a_descriptor_that_is_left_is_found() -> None:
    opened: list[int] = []

    async def careless(stage: Stage) -> None:
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            opened.append(os.open(os.devnull, os.O_RDONLY))
            raise

    try:
        assert only(sweep(careless, faults=["cancel"])).text == "1 descriptors are left open"
    finally:
        for descriptor in opened:
            os.close(descriptor)


def test_an_error_that_could_only_be_printed_is_found() -> None:
    class Angry:
        def __del__(self) -> None:
            raise OSError("in a finalizer")

    async def careless(stage: Stage) -> None:
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            Angry()
            raise

    text = only(sweep(careless, faults=["cancel"])).text
    assert text.startswith("could only be printed: OSError('in a finalizer') in ")


def test_a_coroutine_that_nobody_awaits_is_found() -> None:
    async def careless(stage: Stage) -> None:
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            trio.sleep(1)  # type: ignore[unused-coroutine]  # noqa: ASYNC105
            raise

    assert only(sweep(careless, faults=["cancel"])).text == (
        "could only be printed: coroutine 'sleep' was never awaited"
    )


def test_an_async_generator_that_is_left_to_the_collector_is_found() -> None:
    async def numbers(scopes: list[trio.CancelScope]) -> object:
        while True:
            yield len(scopes)
            await trio.sleep(1)

    async def careless(stage: Stage) -> None:
        async for number in numbers([]):  # type: ignore[attr-defined]
            await trio.sleep(1)
            if number == 0:
                break

    text = only(sweep(careless, faults=["cancel"])).text
    assert "could only be printed" in text
    assert "numbers" in text


def test_an_actor_that_outlives_its_system_or_a_lost_message_is_found() -> None:
    async def forgetful(stage: Stage) -> None:
        async def keep(ctx: Ctx[int]) -> None:
            async for _ in ctx:
                pass

        async with open_system() as system:
            ref = await system.spawn(keep, name="keep")
            actor = next(iter(system.actors()))

            def lose() -> None:
                actor.mailbox.handled -= 1

            stage.fault("lose", lose)
            ref.tell(1)
            await trio.sleep(1)

    text = only(sweep(forgetful, faults=["lose"])).text
    assert text.startswith("AssertionError: actor 'keep' of system 'system': ")


def test_a_play_that_cannot_be_repeated_is_found() -> None:
    lengths = iter([5, 5, 2, 2, 2, 2, 2])

    async def shrinks(stage: Stage) -> None:
        for _ in range(next(lengths)):
            await trio.lowlevel.checkpoint()

    finding = only(sweep(shrinks, faults=["cancel"]))
    assert finding.text.endswith("did not come: the same play is another one each time")


def test_checks_are_awaited_in_their_order_and_are_not_cancelled() -> None:
    order: list[str] = []

    async def walk(stage: Stage) -> None:
        async def first() -> None:
            await trio.sleep(1)
            order.append("first")

        stage.afterwards(first)
        stage.afterwards(lambda: order.append("second"))
        await trio.sleep(1)

    case = read_case("cancel@1")
    play(scenario(walk), case)
    assert order == ["first", "second"]


def test_a_check_sees_which_faults_have_happened() -> None:
    seen: list[tuple[list[str], bool]] = []

    async def walk(stage: Stage) -> None:
        stage.afterwards(lambda: seen.append((stage.struck, stage.error is not None)))
        await trio.sleep(1)

    play(scenario(walk), None)
    play(scenario(walk), read_case("cancel@1"))
    play(scenario(walk), read_case("error@1"))
    assert seen == [([], False), (["cancel"], False), (["error"], True)]


def test_ctrl_c_ends_the_sweep() -> None:
    async def interrupted(stage: Stage) -> None:
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(interrupted)


# ---- several processes

_MODULE = '''
import trio
from actors.testing.sweep import Stage, scenario, twice

taken = []

@scenario(faults=["cancel", "error", "poke", *twice("poke", "cancel")])
async def careless(stage: Stage) -> None:
    """Takes something."""
    taken.clear()

    def given_back() -> None:
        assert not taken, "still taken"

    stage.afterwards(given_back)
    stage.fault("poke", lambda: None)
    await trio.sleep(1)
    taken.append("it")
    await trio.sleep(1)
    taken.clear()

@scenario
async def tidy(stage: Stage) -> None:
    await trio.sleep(1)

def not_one() -> None: ...

number = 3
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(_MODULE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def swept_in(shop: str) -> Callable[[int], Report]:
    from actors.testing.sweep import find

    return lambda processes: sweep(find(f"{shop}:careless"), processes=processes)


def test_several_processes_find_what_one_finds(swept_in: Callable[[int], Report]) -> None:
    alone, together = swept_in(1), swept_in(2)
    assert [str(finding) for finding in together.findings] == [str(finding) for finding in alone.findings]
    assert len(alone.findings) == 1 + 1 + 1  # not after `poke` alone, nor where the cancel comes too late
    assert (together.plays, together.moments) == (alone.plays, alone.moments)


def test_what_several_processes_cannot_import_is_said_at_once() -> None:
    async def local(stage: Stage) -> None:
        await trio.sleep(1)

    with pytest.raises(LookupError, match=r"^there is no scenario '.*local'"):
        sweep(local, processes=2)


def test_scenarios_are_found_by_their_names(shop: str) -> None:
    from actors.testing.sweep import find, scenarios_in

    assert [one.name for one in scenarios_in(shop)] == [f"{shop}:careless", f"{shop}:tidy"]
    assert find(f"{shop}:tidy").name == f"{shop}:tidy"
    with pytest.raises(LookupError, match=rf"^there is no scenario '{shop}:nobody': "):
        find(f"{shop}:nobody")
    with pytest.raises(LookupError, match=rf"^'{shop}:number' is int, no scenario$"):
        find(f"{shop}:number")
    with pytest.raises(LookupError, match=r"^there is no module 'no_such_shop': "):
        scenarios_in("no_such_shop")
    with pytest.raises(LookupError, match=r"^nothing in 'json' is made with @scenario$"):
        scenarios_in("json")


def test_a_package_stands_for_all_its_modules_but_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from actors.testing.sweep import scenarios_in

    (tmp_path / "mall" / "floor").mkdir(parents=True)
    for name in ("baker", "test_baker", "floor/grocer"):
        (tmp_path / "mall" / f"{name}.py").write_text(_MODULE, "utf-8")
    (tmp_path / "mall" / "floor" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    names = [one.name for one in scenarios_in("mall")]
    assert names == ["mall.baker:careless", "mall.baker:tidy", "mall.floor.grocer:careless", "mall.floor.grocer:tidy"]
    for module in [name for name in sys.modules if name.split(".")[0] == "mall"]:
        del sys.modules[module]


def test_wrong_is_an_assertion() -> None:
    with pytest.raises(Wrong, match=r"^AssertionError: still taken") as caught:
        play(scenario(careless), read_case("cancel@2"))
    assert isinstance(caught.value, AssertionError)
    assert caught.value.played.where
