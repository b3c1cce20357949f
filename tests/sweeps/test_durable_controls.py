"""The controls of the durable scenarios: with a fault planted where sessions come back, a sweep must find something."""

import logging
from collections.abc import Iterator

import pytest

from actors.agent import recovery
from actors.testing.sweep import play, read_case, sweep
from tests.sweeps.durable import (
    run_that_a_person_continues,
    run_that_outlives_its_process,
    session_that_leaves_memory,
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Planned failures are not worth a line each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def found(fault: str, stride: int) -> str:
    return " ".join(
        finding.text for finding in sweep(run_that_outlives_its_process, faults=[fault], stride=stride).findings
    )


def test_nothing_is_found_where_nothing_is_planted() -> None:
    for scenario in (run_that_outlives_its_process, run_that_a_person_continues, session_that_leaves_memory):
        play(scenario, None)


def test_a_call_that_is_made_again_and_should_not_be_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "interrupt_calls", lambda live: None)
    assert "a call was run twice" in found("session", 1)


def test_a_run_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "go_on", lambda session: None)
    assert found("cancel", 17)


def test_the_same_case_plays_the_same_moments() -> None:
    case = read_case("session@40")
    first, second = play(run_that_outlives_its_process, case, seed=7), play(run_that_outlives_its_process, case, seed=7)
    assert (first.moments, first.where) == (second.moments, second.where)
