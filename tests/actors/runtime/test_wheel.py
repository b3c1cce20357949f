import logging
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import wheel as wheel_module
from actors.runtime.wheel import Wheel


class Entry:
    """Writes down when it was due, and does what it is told to then."""

    def __init__(self, log: list[tuple[str, float]], name: str = "e", then: Callable[[], object] | None = None) -> None:
        self.active = True
        self._log = log
        self._name = name
        self._then = then

    def due(self) -> None:
        self._log.append((self._name, trio.current_time()))
        if self._then is not None:
            self._then()


@asynccontextmanager
async def turning() -> AsyncGenerator[Wheel, None]:
    wheel = Wheel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wheel.run)
        await wait_all_tasks_blocked()
        yield wheel
        nursery.cancel_scope.cancel()


async def test_each_is_due_at_its_instant_in_the_order_of_deadlines(autojump_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    async with turning() as wheel:
        for name, at in [("c", 3.0), ("a", 1.0), ("b", 2.5), ("also a", 1.0), ("past", -5.0)]:
            wheel.add(Entry(log, name), at)
        assert log == []  # nothing is due in the middle of an add
        await trio.sleep(10)
    assert log == [("past", 0.0), ("a", 1.0), ("also a", 1.0), ("b", 2.5), ("c", 3.0)]


async def test_it_is_due_at_the_exact_instant_and_not_before(mock_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    async with turning() as wheel:
        wheel.add(Entry(log), 1.0)
        mock_clock.jump(math.nextafter(1.0, 0.0))
        await wait_all_tasks_blocked()
        assert log == []
        mock_clock.jump(1.0 - mock_clock.current_time())
        await wait_all_tasks_blocked()
        assert log == [("e", 1.0)]


async def test_while_nothing_is_due_the_clock_is_free_to_jump(autojump_clock: MockClock) -> None:
    async with turning() as wheel:
        await trio.sleep_until(1e9)
        never = Entry([])
        wheel.add(never, math.inf)
        await trio.sleep_until(2e9)
        assert trio.current_time() == 2e9
        assert len(wheel) == 1
        never.active = False
        assert len(wheel) == 0


async def test_an_empty_wheel_wakes_nobody(autojump_clock: MockClock) -> None:
    async with turning():
        before = trio.lowlevel.current_statistics().seconds_to_next_deadline
        assert before == math.inf


async def test_an_earlier_one_is_served_first_while_the_wheel_waits_for_a_later(autojump_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    async with turning() as wheel:
        wheel.add(Entry(log, "late"), 100.0)
        await trio.sleep(1)
        wheel.add(Entry(log, "middle"), 50.0)
        wheel.add(Entry(log, "early"), 2.0)
        wheel.add(Entry(log, "later still"), 200.0)
        await trio.sleep(300)
    assert log == [("early", 2.0), ("middle", 50.0), ("late", 100.0), ("later still", 200.0)]


async def test_what_was_added_before_the_wheel_turns_is_served(autojump_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    wheel = Wheel()
    wheel.add(Entry(log, "b"), 2.0)
    wheel.add(Entry(log, "a"), 1.0)
    with trio.move_on_after(3):
        await wheel.run()
    assert log == [("a", 1.0), ("b", 2.0)]


async def test_what_is_not_wanted_any_more_is_not_called(autojump_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    async with turning() as wheel:
        first, second, third = Entry(log, "1"), Entry(log, "2"), Entry(log, "3")
        for entry, at in ((first, 1.0), (second, 2.0), (third, 3.0)):
            wheel.add(entry, at)
        first.active = third.active = False
        assert len(wheel) == 1
        await trio.sleep(5)
        assert (log, len(wheel)) == ([("2", 2.0)], 0)


async def test_one_that_is_taken_back_in_the_instant_it_is_due_is_not_called(autojump_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    async with turning() as wheel:
        second = Entry(log, "second")
        wheel.add(Entry(log, "first", lambda: setattr(second, "active", False)), 1.0)
        wheel.add(second, 1.0)
        await trio.sleep(2)
    assert log == [("first", 1.0)]


async def test_a_wake_up_that_nobody_wants_moves_on_to_the_next(autojump_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    async with turning() as wheel:
        unwanted = [Entry(log, "unwanted") for _ in range(3)]
        for number, entry in enumerate(unwanted):
            wheel.add(entry, 1.0 + number)
        wheel.add(Entry(log, "wanted"), 9.0)
        for entry in unwanted:
            entry.active = False
        await trio.sleep(1.5)
        # The first had to be waited for; the others were dropped from the front then.
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == 7.5
        assert len(wheel._heap) == 1
        await trio.sleep(10)
    assert log == [("wanted", 9.0)]


async def test_what_is_not_wanted_is_swept_out_when_it_is_the_larger_part() -> None:
    log: list[tuple[str, float]] = []
    wheel = Wheel()
    kept = [Entry(log) for _ in range(10)]
    for entry in kept:
        wheel.add(entry, 1e6)
    for _ in range(10_000):
        gone = Entry(log)
        wheel.add(gone, 5.0)
        gone.active = False
        assert len(wheel._heap) <= 64
    assert len(wheel) == 10


async def test_a_sweep_is_rare_while_all_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps: list[int] = []
    sweep = Wheel._sweep

    def counted(wheel: Wheel) -> None:
        sweeps.append(len(wheel._heap))
        sweep(wheel)

    monkeypatch.setattr(Wheel, "_sweep", counted)
    wheel = Wheel()
    entries = [Entry([]) for _ in range(1000)]
    for entry in entries:
        wheel.add(entry, 1.0)
    assert sweeps == [64, 128, 256, 512]
    for entry in entries:
        entry.active = False
    for _ in range(25):
        wheel.add(Entry([]), 1.0)
    assert sweeps[4:] == [1024]
    assert len(wheel) == len(wheel._heap) == 25


async def test_the_order_survives_a_sweep(autojump_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    async with turning() as wheel:
        entries = [Entry(log, str(number)) for number in range(200)]
        for number, entry in enumerate(entries):
            wheel.add(entry, 300.0 - number)
            entry.active = number % 7 == 0
        await trio.sleep(400)
    assert log == [(str(number), 300.0 - number) for number in reversed(range(0, 200, 7))]


async def test_what_raises_is_logged_and_stops_no_other(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[tuple[str, float]] = []

    def fail() -> None:
        raise ValueError("a bug")

    async with turning() as wheel:
        wheel.add(Entry(log, "bad", fail), 1.0)
        wheel.add(Entry(log, "good"), 1.0)
        wheel.add(Entry(log, "later"), 2.0)
        await trio.sleep(3)
    assert log == [("bad", 1.0), ("good", 1.0), ("later", 2.0)]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("actors.runtime", logging.ERROR)
    assert record.getMessage() == "what was due raised"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "a bug"


async def test_an_exit_is_let_through(autojump_clock: MockClock) -> None:
    def leave() -> None:
        raise SystemExit(3)

    wheel = Wheel()
    wheel.add(Entry([], "exit", leave), 1.0)
    with pytest.raises(SystemExit):
        await wheel.run()


async def test_many_due_at_once_hold_the_others_up_for_a_slice_only(autojump_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    seen: list[int] = []

    async def other() -> None:
        await trio.sleep_until(1.0)
        while len(log) < 1000:
            seen.append(len(log))
            await trio.lowlevel.checkpoint()

    async with turning() as wheel, trio.open_nursery() as nursery:
        for _ in range(1000):
            wheel.add(Entry(log), 1.0)
        nursery.start_soon(other)
        await trio.sleep(2)
    stops = sorted({*seen, 0, 1000})
    # Twice, as trio shuffles who runs first in each round.
    assert max(after - before for before, after in pairwise(stops)) <= 2 * 128
    assert len(log) == 1000
    # A round for each of them would be the price of a checkpoint too many.
    assert len(seen) <= 1000 // 128 + 2


async def test_what_is_due_may_order_more_and_the_past_is_served_at_once(autojump_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    async with turning() as wheel:

        def more() -> None:
            wheel.add(Entry(log, "at once"), 0.5)
            wheel.add(Entry(log, "now"), 1.0)
            wheel.add(Entry(log, "soon"), 1.25)

        wheel.add(Entry(log, "first", more), 1.0)
        await trio.sleep(2)
    assert log == [("first", 1.0), ("at once", 1.0), ("now", 1.0), ("soon", 1.25)]


async def test_one_that_is_added_between_two_slices_is_not_forgotten(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_module, "_SLICE", 1)
    log: list[tuple[str, float]] = []
    async with turning() as wheel:
        for _ in range(3):
            wheel.add(Entry(log, "many"), 1.0)
        await trio.sleep_until(1.0)
        while not log:
            await trio.lowlevel.checkpoint()
        wheel.add(Entry(log, "between"), 0.75)
        wheel.add(Entry(log, "after"), 1.5)
        await trio.sleep(3)
    assert sorted(log) == [("after", 1.5), ("between", 1.0), ("many", 1.0), ("many", 1.0), ("many", 1.0)]


async def test_a_wheel_that_is_cancelled_between_two_slices_ends() -> None:
    log: list[tuple[str, float]] = []
    wheel = Wheel()
    with trio.CancelScope() as scope:
        for _ in range(300):
            wheel.add(Entry(log, "e", scope.cancel), -1.0)
        await wheel.run()
    assert scope.cancelled_caught
    assert len(log) == 128
    assert len(wheel) == 172


async def test_a_deadline_that_is_no_number_is_refused_and_harms_no_other(autojump_clock: MockClock) -> None:
    log: list[tuple[str, float]] = []
    async with turning() as wheel:
        with pytest.raises(ValueError, match=r"^a deadline is a time in seconds, not nan$"):
            wheel.add(Entry(log, "nan"), math.nan)
        wheel.add(Entry(log, "good"), 1.0)
        await trio.sleep(2)
    assert log == [("good", 1.0)]


async def test_a_stamp_is_the_virtual_time_where_time_is_virtual(autojump_clock: MockClock) -> None:
    wheel = Wheel()
    await trio.sleep(12.5)
    assert wheel.stamp() == wheel.now() == trio.current_time() == 12.5


async def test_two_stamps_are_as_far_apart_as_two_times() -> None:
    wheel = Wheel()
    first_stamp, first_time = wheel.stamp(), wheel.now()
    await wait_all_tasks_blocked()
    second_time, second_stamp = wheel.now(), wheel.stamp()
    assert second_stamp - first_stamp == pytest.approx(second_time - first_time, abs=0.005)
    assert second_stamp > first_stamp


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans()), max_size=150),
    st.integers(1, 5),
)
def test_whatever_is_added_and_taken_back_is_due_at_its_time_in_order(
    plan: list[tuple[int, int, bool]], slice_: int
) -> None:
    """Each one is (when it is added, its deadline, whether it is taken back as soon as it is in)."""
    log: list[tuple[str, float]] = []

    async def main() -> None:
        async with turning() as wheel:
            for number, (when, at, wanted) in enumerate(sorted(plan, key=lambda one: one[0])):
                await trio.sleep_until(when)
                entry = Entry(log, str(number))
                wheel.add(entry, at)
                entry.active = wanted
            await trio.sleep_until(100)
            assert len(wheel) == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wheel_module, "_SLICE", slice_)
        trio.run(main, clock=MockClock(autojump_threshold=0))
    expected = {
        str(number): float(max(when, at))
        for number, (when, at, wanted) in enumerate(sorted(plan, key=lambda one: one[0]))
        if wanted
    }
    assert dict(log) == expected
    assert len(log) == len(expected)
    assert [at for _, at in log] == sorted(at for _, at in log)
