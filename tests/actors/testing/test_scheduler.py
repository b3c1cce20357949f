"""What the kit takes from trio's insides: each test here fails when a release of trio changes it."""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import trio
from trio.lowlevel import Task

from actors.testing.scheduler import (
    at_checkpoint,
    fail_wait,
    is_trios_own,
    seeded,
    take_shields_off,
    unwatch_looks,
    watch_looks,
)

RUNNER: Any = import_module("trio._core._run")


async def race(order: list[int]) -> None:
    async def one(number: int) -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(one, number)


def race_under(seed: int) -> tuple[int, ...]:
    order: list[int] = []
    with seeded(seed):
        trio.run(race, order)
    return tuple(order)


def test_one_seed_is_one_order() -> None:
    for seed in range(20):
        assert race_under(seed) == race_under(seed)


def test_different_seeds_are_different_orders() -> None:
    assert len({race_under(seed) for seed in range(50)}) > 45
    first = {race_under(seed)[:6] for seed in range(200)}
    # Not only reversed: each of the six comes first somewhere, and in many arrangements.
    assert {order[0] for order in first} == set(range(6))
    assert len(first) > 100


def test_the_module_random_is_seeded_too() -> None:
    with seeded(3):
        drawn = [random.random() for _ in range(5)]
    with seeded(3):
        assert [random.random() for _ in range(5)] == drawn


@pytest.mark.parametrize("allowed", [True, False])
def test_afterwards_both_generators_go_on_as_if_nothing_had_been(
    allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RUNNER, "_ALLOW_DETERMINISTIC_SCHEDULING", allowed)
    before = (RUNNER._r.getstate(), random.getstate())
    with pytest.raises(ZeroDivisionError):
        with seeded(1):
            assert RUNNER._ALLOW_DETERMINISTIC_SCHEDULING is True
            race_under(2)
            random.random()
            raise ZeroDivisionError
    assert (RUNNER._r.getstate(), random.getstate()) == before
    assert RUNNER._ALLOW_DETERMINISTIC_SCHEDULING is allowed


def test_seeds_nest() -> None:
    with seeded(5):
        race_under(6)
        order: list[int] = []
        trio.run(race, order)
    assert tuple(order) == race_under(5)


class Step(trio.abc.Instrument):
    """Calls a function after each step of one task, while it lives."""

    def __init__(self, task_name: str, then: Callable[[Task], object]) -> None:
        self.task_name = task_name
        self.then = then
        self.exited: Task | None = None

    def task_exited(self, task: Task) -> None:
        self.exited = task

    def after_task_step(self, task: Task) -> None:
        if task.name == self.task_name and task is not self.exited:
            self.then(task)


async def after_steps(body: Callable[[], Awaitable[object]], then: Callable[[Task], object]) -> None:
    """Run `body` in a task of its own, and call `then` each time it gives way."""

    async def run() -> None:
        await body()

    instrument = Step("looked at", then)
    trio.lowlevel.add_instrument(instrument)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, name="looked at")
    finally:
        trio.lowlevel.remove_instrument(instrument)


async def _lock() -> None:
    async with trio.Lock():
        pass


async def _cancelled() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await trio.sleep_forever()


async def _nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 0)


async def _empty_nursery() -> None:
    async with trio.open_nursery():
        pass


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (trio.lowlevel.checkpoint, [True]),
        (partial(trio.sleep, 0), [True]),
        (partial(trio.sleep, 0.001), [True]),
        (trio.lowlevel.cancel_shielded_checkpoint, [False]),
        (_lock, [False]),  # taken without a wait, and then others run: that cannot fail, or the lock would stay taken
        (_empty_nursery, [False]),
        (_nursery, [True]),
        (_cancelled, [True]),
    ],
    ids=["checkpoint", "sleep 0", "sleep", "shielded", "lock", "empty nursery", "nursery", "cancelled"],
)
async def test_a_checkpoint_is_where_a_cancel_could_reach_a_task(
    body: Callable[[], Awaitable[object]], expected: list[bool]
) -> None:
    found: list[bool] = []
    await after_steps(body, lambda task: found.append(at_checkpoint(task)))
    assert found == expected


async def test_a_wait_that_has_refused_to_be_cancelled_is_no_checkpoint_any_more() -> None:
    found: list[bool] = []
    instrument = Step("looked at", lambda task: found.append(at_checkpoint(task)))

    async def stubborn() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            with pytest.raises(trio.Cancelled):
                task = trio.lowlevel.current_task()

                def refuse(raise_cancel: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
                    trio.lowlevel.current_trio_token().run_sync_soon(trio.lowlevel.reschedule, task)
                    return trio.lowlevel.Abort.FAILED

                await trio.lowlevel.wait_task_rescheduled(refuse)
                await trio.lowlevel.checkpoint()

    trio.lowlevel.add_instrument(instrument)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stubborn, name="looked at")
    trio.lowlevel.remove_instrument(instrument)
    assert found == [False, True, True]


@pytest.mark.parametrize(
    "wait", [trio.lowlevel.checkpoint, partial(trio.sleep, 0.001), trio.Event().wait], ids=["yield", "sleep", "event"]
)
async def test_a_wait_can_be_made_to_fail(wait: Callable[[], Awaitable[object]]) -> None:
    error = OSError("disk full")

    async def body() -> None:
        with pytest.raises(OSError, match=r"^disk full$") as caught:
            await wait()
        assert caught.value is error

    await after_steps(body, lambda task: fail_wait(task, error))


async def test_a_wait_that_fails_leaves_no_trace_where_it_waited() -> None:
    lock = trio.Lock()
    await lock.acquire()

    async def body() -> None:
        with pytest.raises(OSError):
            await lock.acquire()

    await after_steps(body, lambda task: fail_wait(task, OSError()))
    assert lock.statistics().tasks_waiting == 0
    lock.release()


async def test_an_error_at_the_end_of_a_nursery_cancels_its_tasks_and_comes_out_of_it() -> None:
    ended: list[str] = []

    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("child")

    async def body() -> None:
        with pytest.RaisesGroup(OSError):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child)

    struck: list[Task] = []

    def once(task: Task) -> None:
        if not struck:
            struck.append(task)
            fail_wait(task, OSError())

    await after_steps(body, once)
    assert ended == ["child"]


async def test_an_error_can_take_the_place_of_a_cancel_which_then_comes_again() -> None:
    seen: list[type[BaseException]] = []

    async def body() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.sleep_forever()
            except BaseException as error:
                seen.append(type(error))
            try:
                await trio.sleep_forever()
            except BaseException as error:
                seen.append(type(error))
                raise

    steps: list[Task] = []

    def first(task: Task) -> None:
        steps.append(task)
        if len(steps) == 1:
            fail_wait(task, OSError())

    await after_steps(body, first)
    assert seen == [OSError, trio.Cancelled]


async def test_without_its_shields_a_task_is_reached_by_a_cancel_from_outside() -> None:
    async with trio.open_nursery() as nursery:
        with (
            trio.CancelScope(shield=True) as outer,
            trio.CancelScope() as middle,
            trio.CancelScope(shield=True) as inner,
        ):
            nursery.cancel_scope.cancel()
            await trio.lowlevel.checkpoint()
            take_shields_off(trio.lowlevel.current_task())
            with pytest.raises(trio.Cancelled):
                await trio.sleep_forever()
            assert not (outer.shield or middle.shield or inner.shield)


async def test_trios_own_tasks_are_told_from_the_programs() -> None:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    own: list[bool] = []

    async def note() -> None:
        own.append(is_trios_own(trio.lowlevel.current_task()))

    system_task_done = trio.Event()

    async def system_task() -> None:
        await note()
        system_task_done.set()

    trio.lowlevel.spawn_system_task(system_task)
    await system_task_done.wait()
    await note()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(note)
        await nursery.start(_started, own)
    assert own == [True, False, False, False]
    assert is_trios_own(root)
    entry_queue = [task for nursery in root.child_nurseries for task in nursery.child_tasks if "soon" in task.name]
    assert [is_trios_own(task) for task in entry_queue] == [True]


async def _started(own: list[bool], task_status: trio.TaskStatus[None]) -> None:
    own.append(is_trios_own(trio.lowlevel.current_task()))
    task_status.started()


def test_looks_are_watched_under_every_name_and_only_meanwhile() -> None:
    seen: list[str] = []
    codes = (trio.lowlevel.checkpoint_if_cancelled.__code__, RUNNER.checkpoint_if_cancelled.__code__)
    names = set(vars(RUNNER))

    async def main() -> None:
        look = trio.lowlevel.checkpoint_if_cancelled

        def watcher(task: Task) -> None:
            seen.append(task.name)

        watch_looks(watcher)
        watch_looks(seen.append)  # type: ignore[arg-type]
        try:
            await look()
            await RUNNER.checkpoint_if_cancelled()
            assert len(seen) == 4
            unwatch_looks(seen.append)  # type: ignore[arg-type]
            await look()
            assert len(seen) == 5
        finally:
            unwatch_looks(watcher)
        await look()

    trio.run(main)
    assert len(seen) == 5
    assert (trio.lowlevel.checkpoint_if_cancelled.__code__, RUNNER.checkpoint_if_cancelled.__code__) == codes
    assert set(vars(RUNNER)) == names


def test_a_watched_look_still_counts_for_trio_and_still_sees_a_cancel() -> None:
    async def main() -> None:
        def watcher(_: Task) -> None: ...

        watch_looks(watcher)
        try:
            task: Any = trio.lowlevel.current_task()
            before = task._cancel_points
            await trio.lowlevel.checkpoint_if_cancelled()
            assert task._cancel_points == before + 1
            with trio.CancelScope() as scope:
                scope.cancel()
                await trio.lowlevel.checkpoint_if_cancelled()
                pytest.fail("it was cancelled")
        finally:
            unwatch_looks(watcher)

    trio.run(main)
