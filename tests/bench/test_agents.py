"""What the benches of `agent/*` run is what they are named after."""

from collections.abc import Sequence

import pytest

from actors.models.scripted import Turn
from bench import agents
from bench.harness import Row

ROWS = {"agent/one_turn": agents.one_turn, "agent/todo_write": agents.todo_write}


def test_the_reference_has_as_many_events_as_a_run_turn_by_turn() -> None:
    assert agents.count_events(agents.ONE_TURN) == (8,)
    assert agents.count_events(agents.TODO_WRITE) == (8, 6)


@pytest.mark.parametrize("name", ROWS)
def test_a_bench_has_a_row_for_a_reused_session_and_one_for_new_ones(name: str) -> None:
    reused, new = ROWS[name](quick=False)
    assert [row.bench for row in (reused, new)] == [name, name]
    assert [row.case for row in (reused, new)] == ["session reused", "new session per run"]
    assert reused.goal is not None
    assert new.goal is None


@pytest.mark.parametrize("name", ROWS)
def test_quick_is_smaller_and_says_so(name: str) -> None:
    for quick, full in zip(ROWS[name](quick=True), ROWS[name](quick=False), strict=True):
        assert (quick.n < full.n, quick.repeats < full.repeats) == (True, True)
        assert quick.n == quick.samples


@pytest.mark.parametrize("new_session", [False, True])
@pytest.mark.parametrize("script", [agents.ONE_TURN, agents.TODO_WRITE], ids=["one_turn", "todo_write"])
def test_runs_are_measured(script: Sequence[Turn], new_session: bool) -> None:
    assert agents.runs_per_second(script, 3, new_session=new_session) > 0


def test_the_stated_goals_are_those_of_the_benches() -> None:
    def goal(row: Row) -> tuple[float, bool, bool]:
        assert row.goal is not None
        return row.goal.value, row.goal.at_most, row.goal.scales

    assert goal(agents.one_turn(quick=True)[0]) == (12_000, False, True)
    assert goal(agents.todo_write(quick=True)[0]) == (8_000, False, True)
