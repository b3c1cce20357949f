"""The longest turn of trio's loop. Its clock is a list of numbers: nothing here takes time."""

import pytest
import trio
import trio.testing

from bench import loop


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(loop, "perf_counter", lambda: now[0])
    return now


async def test_one_long_step_holds_the_loop(clock: list[float]) -> None:
    hold = loop.LongestHold()
    hold.start()
    await trio.lowlevel.checkpoint()
    clock[0] += 3.0
    await trio.lowlevel.checkpoint()
    clock[0] += 1.0
    await trio.lowlevel.checkpoint()
    hold.stop()
    assert hold.longest_s == 3.0


async def test_steps_of_one_turn_hold_it_together(clock: list[float]) -> None:
    async def step() -> None:
        clock[0] += 1.0
        await trio.lowlevel.checkpoint()

    hold = loop.LongestHold()
    hold.start()
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(step)
    hold.stop()
    assert hold.longest_s == 5.0


async def test_a_loop_that_waits_is_not_held(clock: list[float]) -> None:
    class Waiting(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            if timeout:
                clock[0] += 60.0

    waiting = Waiting()
    hold = loop.LongestHold()
    hold.start()
    trio.lowlevel.add_instrument(waiting)  # after the other: the wait begins when that one has looked
    await trio.sleep(0.001)
    trio.lowlevel.remove_instrument(waiting)
    hold.stop()
    assert clock[0] >= 160.0
    assert hold.longest_s == 0.0


async def test_the_turns_in_which_it_starts_and_stops_count_from_there_and_up_to_there(clock: list[float]) -> None:
    clock[0] += 50.0
    hold = loop.LongestHold()
    hold.start()
    clock[0] += 2.0
    hold.stop()
    clock[0] += 50.0
    await trio.lowlevel.checkpoint()
    assert hold.longest_s == 2.0
