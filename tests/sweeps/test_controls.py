"""The controls: with a fault planted in the runtime, a sweep must find something, or it proves nothing."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from actors.agent import session as session_module
from actors.agent.grace import CancelGrace
from actors.agent.run import LiveRun
from actors.agent.session import Session
from actors.testing.sweep import Report, Scenario, Stage, Wrong, play, read_case, sweep
from protocol import decisions
from protocol import events as ev
from protocol.history import Run, State
from tests.faults.stores import LyingStore
from tests.sweeps.asks import ask_beside_a_tool, three_asks
from tests.sweeps.stage_agent import Acting, acting
from tests.sweeps.stores import store_that_is_slow
from tests.sweeps.tools import PLAN, PLANNED, fetch, planned_work, tool_that_swallows_the_cancel


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Planned failures are not worth a line each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def found_by(scenario: Scenario, fault: str, *, stride: int = 1) -> str:
    """Sweep with one fault, and return what is found first."""
    report: Report = sweep(scenario, faults=[fault], stride=stride)
    assert report.findings, f"a sweep of {scenario.name} with {fault} finds nothing"
    return report.findings[0].text


def test_nothing_is_found_where_nothing_is_planted() -> None:
    for scenario in (planned_work, three_asks, store_that_is_slow, tool_that_swallows_the_cancel):
        play(scenario, None)


@pytest.mark.parametrize("append", range(2, 8))
def test_a_store_that_acknowledges_before_it_keeps_is_found(append: int) -> None:
    async def lied_to(stage: Stage) -> None:
        async with acting(stage, PLANNED, store=LyingStore(append), tools=[fetch], extensions=[PLAN]) as agent:
            await agent.perform()

    with pytest.raises(Wrong, match="what was reported as kept is not what was kept"):
        play(Scenario(lied_to, None, "*", (0,)), None)


def test_a_session_that_publishes_before_it_registers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Session.append

    def hasty(session: Session, events: Sequence[ev.Event], *, run: str = "", cause: str = "") -> int:
        for event in events:
            if isinstance(event, ev.AskOpened):
                for reader in session._readers:
                    reader.offer(event)
        return append(session, events, run=run, cause=cause)

    monkeypatch.setattr(Session, "append", hasty)
    with pytest.raises(Wrong, match="a reader was shown 0 after 4"):
        play(three_asks, None)


def test_a_cancel_that_leaves_asks_open_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_close_asks", lambda state, run: [])
    with pytest.raises(Wrong):
        play(three_asks, None)


def test_a_cancel_that_does_not_reach_the_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "cancel_run", lambda session, run, reason: None)
    assert "the run that was left went on" in found_by(planned_work, "leave", stride=9)


def test_a_run_that_forgets_its_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveRun, "ended", lambda live: None)
    with pytest.raises(Wrong, match="still counted as active"):
        play(planned_work, None)


def test_a_session_that_forgets_its_waiters_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = {kind: effect for kind, effect in session_module._EFFECTS.items() if kind is not ev.AskSettled}
    monkeypatch.setattr(session_module, "_EFFECTS", effects)
    with pytest.raises(Wrong, match="TooSlowError"):
        play(ask_beside_a_tool, None)


def test_a_grace_that_forgets_its_alarms_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CancelGrace, "ended", lambda grace, live: None)
    assert found_by(planned_work, "request", stride=5)


def test_an_acknowledgement_ahead_of_the_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(agent: Acting, session: Session, seq: int) -> None:
        agent.acknowledged.append((session.state.log_id, seq + 1))

    monkeypatch.setattr(Acting, "acknowledge", at_once)
    assert "acknowledged and is not kept" in found_by(store_that_is_slow, "request", stride=7)


def test_a_cancelled_run_that_ends_as_completed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = decisions.finish

    def forgetful(state: State, run: Run, how: Any, **options: Any) -> list[ev.Event]:
        *others, end = finish(state, run, how, **options)
        return [*others, ev.RunCompleted(run=run.id) if isinstance(end, ev.RunCancelled) else end]

    monkeypatch.setattr(decisions, "finish", forgetful)
    assert "was cancelled and ended as RunCompleted" in found_by(planned_work, "request", stride=9)


def test_a_run_without_an_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveRun, "_finish", lambda live, how, error: None)
    with pytest.raises(Wrong):
        play(planned_work, None)


def test_the_same_case_plays_the_same_moments() -> None:
    case = read_case("request@20+2:request")
    first, second = play(planned_work, case, seed=7), play(planned_work, case, seed=7)
    assert (first.moments, first.where) == (second.moments, second.where)
    assert first.where
