"""What the benches of `ask/*` put is one question for each session, and that many stay open."""

import pytest
import trio

from bench import asks


def test_sessions_are_answered_scattered_and_at_most_once_where_there_are_enough() -> None:
    order = asks.answer_order(1_000, 100)
    assert len(set(order)) == len(order) == 100
    assert order != sorted(order)
    assert order == asks.answer_order(1_000, 100)


def test_fewer_sessions_than_samples_are_answered_in_turn() -> None:
    assert asks.answer_order(2, 5) == [0, 1, 0, 1, 0]
    assert asks.answer_order(1, 3) == [0, 0, 0]


@pytest.mark.parametrize("pending", [1, 5])
def test_a_roundtrip_is_measured_and_everything_ends(pending: int) -> None:
    assert asks.roundtrip_us(pending, asks.answer_order(pending, 4)) > 0


async def test_each_session_has_one_run_with_one_open_ask() -> None:
    async with asks.open_asking_agent() as agent:
        await asks.put_asks(agent, 3)
        await asks.put_asks(agent, 2)
        sessions, more = agent.open_sessions()
        assert [info.open_asks for info in sessions] == [1] * 5
        assert not more
        assert agent.active_runs == 5


async def test_asks_are_put_without_anybody_watching() -> None:
    async with asks.open_asking_agent() as agent:
        before = trio.lowlevel.current_statistics().tasks_living
        await asks.put_asks(agent, 4)
        # Two tasks for each session, its actor and its run; a consumer would be a third.
        assert trio.lowlevel.current_statistics().tasks_living == before + 8


def test_roundtrip_has_a_row_for_one_and_one_for_ten_thousand() -> None:
    assert [row.n for row in asks.roundtrip(quick=False)] == [1, 10_000]
    assert [row.n for row in asks.roundtrip(quick=True)] == [1, 100]


def test_the_stated_goals_are_those_of_the_benches() -> None:
    goals = [row.goal for row in (*asks.roundtrip(quick=True), *asks.memory(quick=True)) if row.goal is not None]
    assert [(goal.value, goal.at_most, goal.scales) for goal in goals] == [
        (40, True, True), (40, True, True), (12, True, False),
    ]  # fmt: skip


def test_memory_says_what_it_leaves_out() -> None:
    (row,) = asks.memory(quick=False)
    assert (row.n, row.unit) == (10_000, "kB per ask")
    assert row.note == "growth of a new process; counts session and run, not a consumer; 1 kB is 1,000 bytes"
