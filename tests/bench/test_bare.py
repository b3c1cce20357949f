"""The references do what they are named after. How long they take is nobody's business here."""

import pytest
import trio

from bench import bare


def test_a_checkpoint_takes_time() -> None:
    assert bare.checkpoint_us(100) > 0


@pytest.mark.parametrize("new_session", [False, True])
@pytest.mark.parametrize("turns", [(8,), (8, 6)])
def test_runs_end_with_all_their_events_taken(turns: tuple[int, ...], new_session: bool) -> None:
    assert bare.runs_per_second(5, turns, new_session=new_session) > 0


@pytest.mark.parametrize(("pending", "order"), [(1, [0, 0, 0]), (4, [3, 1])])
def test_every_pair_that_is_answered_answers(pending: int, order: list[int]) -> None:
    assert bare.answer_us(order, pending) > 0


async def test_a_parked_session_is_two_tasks() -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        await bare.park_sessions(3, nursery)
        assert trio.lowlevel.current_statistics().tasks_living == before + 6
        nursery.cancel_scope.cancel()
    assert trio.lowlevel.current_statistics().tasks_living == before
