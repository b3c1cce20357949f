"""The loads on actors are what they are named after. How long they take is nobody's business here."""

import pytest
import trio

from actors.runtime import Ref, open_system
from bench import ours, raw


def test_messages_are_told_and_sent_where_there_is_no_room() -> None:
    assert ours.tells_per_second(3 * raw.BUFFER) > 0


def test_messages_are_sent() -> None:
    assert ours.sends_per_second(3 * raw.BUFFER) > 0


@pytest.mark.parametrize("askers", [1, 8])
def test_every_ask_is_answered(askers: int) -> None:
    assert ours.asks_per_second(16, askers) > 0


def test_a_fan_out_reaches_every_actor() -> None:
    assert ours.fanout_per_second(3 * raw.BURST, 6) > 0


def test_actors_are_spawned() -> None:
    assert ours.spawns_per_second(5, ready=True) > 0
    assert ours.spawns_per_second(5, ready=False) > 0


async def test_idle_actors_wait_for_messages() -> None:
    refs: list[Ref[ours.Message]] = []
    async with open_system() as system:
        before = trio.lowlevel.current_statistics().tasks_living
        await ours.spawn_idle(3, system, refs)
        assert trio.lowlevel.current_statistics().tasks_living == before + 3
        assert [ref.statistics().tasks_waiting_receive for ref in refs] == [1, 1, 1]


def test_a_supervisor_is_stopped_and_the_loop_is_watched_meanwhile() -> None:
    us_per_actor, held_ms = ours.stop(5)
    assert us_per_actor > 0
    assert held_ms > 0
