"""The references of `runtime/*` do what they are named after. How long they take is nobody's business here."""

import pytest
import trio

from bench import raw


def test_items_go_through_a_channel_that_is_full_on_the_way() -> None:
    assert raw.items_per_second(3 * raw.BUFFER) > 0


@pytest.mark.parametrize("askers", [1, 8])
def test_every_ask_is_answered(askers: int) -> None:
    assert raw.asks_per_second(16, askers) > 0


def test_a_fan_out_reaches_every_receiver() -> None:
    assert raw.fanout_per_second(3 * raw.BURST, 6) > 0


def test_tasks_are_started() -> None:
    assert raw.spawns_per_second(5) > 0
    assert raw.starts_per_second(5) > 0


async def test_a_parked_task_is_one_task_with_one_channel() -> None:
    ends: list[trio.MemorySendChannel[raw.Message]] = []
    before = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        await raw.park_tasks(3, nursery, ends)
        assert trio.lowlevel.current_statistics().tasks_living == before + 3
        assert [end.statistics().tasks_waiting_receive for end in ends] == [1, 1, 1]
        nursery.cancel_scope.cancel()


def test_tasks_are_cancelled_and_the_loop_is_watched_meanwhile() -> None:
    us_per_task, held_ms = raw.stop(5)
    assert us_per_task > 0
    assert held_ms > 0
