import inspect
import random
import time
from pathlib import Path

import pytest
import trio

from actors.runtime import Ctx, Replies, open_system
from actors.testing import inject, run, seeds
from actors.testing.seeding import SEED_VARIABLE


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEED_VARIABLE, raising=False)


async def order_of(names: str) -> str:
    order: list[str] = []

    async def one(name: str) -> None:
        order.append(name)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(one, name)
    return "".join(order)


def test_it_returns_what_the_function_returns_and_passes_arguments() -> None:
    assert sorted(run(order_of, "abc")) == ["a", "b", "c"]


def test_an_error_comes_out_as_it_is() -> None:
    error = KeyError("mine")

    async def fail() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        run(fail, seed=3)
    assert caught.value is error


def test_a_seed_repeats_an_order_and_another_changes_it() -> None:
    assert run(order_of, "abcdef", seed=1) == run(order_of, "abcdef", seed=1)
    assert run(order_of, "abcdef", seed=1) != run(order_of, "abcdef", seed=2)


def test_without_a_seed_the_order_differs_from_run_to_run() -> None:
    assert len({run(order_of, "abcdef") for _ in range(20)}) > 1


def test_jitter_repeats_with_the_seed() -> None:
    async def draw() -> float:
        return random.random()

    assert run(draw, seed=1) == run(draw, seed=1) != run(draw, seed=2)


def test_an_error_names_the_seed_and_how_to_repeat_it() -> None:
    async def broken() -> None:
        raise ValueError

    with pytest.raises(ValueError) as caught:
        run(broken, seed=17)
    assert caught.value.__notes__ == [
        "under scheduler seed 17; to repeat: run(broken, seed=17) or ACTORS_SCHEDULER_SEED=17"
    ]


def test_the_seed_of_a_failure_without_one_repeats_it() -> None:
    async def first_is_a() -> None:
        order = await order_of("abcdef")
        assert order[0] == "a"

    with pytest.raises(AssertionError) as caught:
        for _ in range(100):
            run(first_is_a)
    seed = int(caught.value.__notes__[0].split("=")[-1])
    with pytest.raises(AssertionError) as again:
        run(first_is_a, seed=seed)
    assert str(again.value) == str(caught.value)  # the same one came first


def test_the_environment_names_the_seed_of_a_run_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "5")
    assert run(order_of, "abcdef") == run(order_of, "abcdef", seed=5)
    assert run(order_of, "abcdef", seed=1) != run(order_of, "abcdef", seed=5)


def test_time_is_virtual() -> None:
    async def sleep() -> float:
        before = trio.current_time()
        await trio.sleep(3600)
        return trio.current_time() - before

    began = time.perf_counter()
    assert run(sleep) == 3600
    assert time.perf_counter() - began < 60


def test_time_can_be_real_for_what_waits_for_threads() -> None:
    async def thread() -> str:
        assert not isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
        with trio.fail_after(60):
            return await trio.to_thread.run_sync(lambda: "done")

    assert run(thread, clock="real") == "done"


class Get(Replies[int]):
    pass


def test_what_waits_for_ever_ends_and_says_who_waits_where() -> None:
    async def silent(ctx: Ctx[Get]) -> None:
        kept: list[Get] = []
        async for message in ctx:
            kept.append(message)

    async def deadlock() -> None:
        async with open_system() as system:
            ref = await system.spawn(silent, name="bank")
            await ref.ask(Get())

    with pytest.raises(trio.TooSlowError) as caught:
        run(deadlock)
    first, *lines = str(caught.value).splitlines()
    assert first == (
        "deadlock was not done after 100000 s. A virtual clock does not wait for threads and sockets, clock='real' "
        "does. These waited:"
    )
    assert lines[0].startswith("  deadlock: ")
    number = inspect.getsourcelines(silent)[1] + 2
    assert f"  actor bank: {__file__}:{number}, in silent" in lines
    assert len(lines) < 10


def test_the_limit_is_in_seconds_and_what_catches_it_does_not_hide_it() -> None:
    async def stubborn() -> str:
        with trio.move_on_after(100):
            await trio.sleep_forever()
        return "never"

    assert run(stubborn) == "never"
    with pytest.raises(trio.TooSlowError, match=r"^stubborn was not done after 99 s\."):
        run(stubborn, limit_s=99)


def test_what_waits_for_ever_behind_a_shield_ends_too_after_a_grace_for_cleanup() -> None:
    cleaned: list[float] = []

    async def stubborn() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(900)
                cleaned.append(trio.current_time())
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)

    with pytest.raises(trio.TooSlowError, match=r"^stubborn was not done after 5 s\."):
        run(stubborn, limit_s=5)
    assert cleaned == [905]


def test_an_error_while_it_is_cancelled_for_the_limit_comes_out() -> None:
    async def broken() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("in cleanup")

    with pytest.raises(ValueError, match=r"^in cleanup"):
        run(broken)


def test_a_run_in_a_run_is_refused() -> None:
    async def nested() -> None:
        run(order_of, "a")

    with pytest.raises(RuntimeError):
        run(nested)


def test_a_fault_that_cancels_the_whole_run_leaves_none() -> None:
    async def sleep() -> str:
        await trio.sleep(1)
        return "done"

    fault = inject(1, "cancel")
    assert run(sleep, fault=fault) is None
    assert fault.cancelled


# ---- seeds


def test_a_test_under_seeds_is_sync_and_sees_many_orders_but_the_same_ones_again() -> None:
    orders: list[str] = []

    @seeds(30)
    async def check(names: str) -> None:
        orders.append(await order_of(names))

    assert not inspect.iscoroutinefunction(check)
    assert inspect.signature(check) == inspect.signature(order_of).replace(return_annotation=None)
    check("abcd")
    first = orders.copy()
    orders.clear()
    check("abcd")
    assert orders == first
    assert len(set(first)) > 10


def test_two_tasks_are_interleaved_both_ways() -> None:
    seen: set[str] = set()

    @seeds(20)
    async def check() -> None:
        seen.add(await order_of("ab"))

    check()
    assert seen == {"ab", "ba"}


def test_the_first_failing_seed_ends_it_and_can_be_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    @seeds(200)
    async def a_before_b() -> None:
        runs.append(await order_of("ab"))
        assert runs[-1] == "ab"

    with pytest.raises(AssertionError) as caught:
        a_before_b()
    seed = len(runs) - 1
    assert runs == ["ab"] * seed + ["ba"]
    assert caught.value.__notes__ == [
        f"under scheduler seed {seed}; to repeat: run(a_before_b, seed={seed}) or ACTORS_SCHEDULER_SEED={seed}"
    ]
    runs.clear()
    monkeypatch.setenv(SEED_VARIABLE, str(seed))
    with pytest.raises(AssertionError):
        a_before_b()
    assert runs == ["ba"]


def test_the_seeds_can_be_given() -> None:
    drawn: list[float] = []

    @seeds([4, 9])
    async def check() -> None:
        drawn.append(random.random())

    check()
    assert drawn == [random.Random(4).random(), random.Random(9).random()]


def test_no_seeds_at_all_are_refused_where_they_are_written() -> None:
    with pytest.raises(ValueError, match=r"^at least one scheduler seed is needed, or nothing is tested; not 0$"):
        seeds(0)


@seeds(3)
async def test_fixtures_and_parameters_reach_a_test_under_seeds(tmp_path: Path) -> None:
    await trio.sleep(1)
    assert "fixtures_and_parameters" in tmp_path.name
