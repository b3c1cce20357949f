"""What a run does next is read from its record alone."""

from typing import Any

import pytest

from protocol.chat import ToolCall, ToolMessage, UserMessage
from protocol.history import CallRecord, Run
from protocol.steps import Step, next_step

CALLS = {"c1": CallRecord(ToolCall("c1", "f"))}
DONE = {
    "c1": CallRecord(ToolCall("c1", "f"), started=True, result=ToolMessage("c1", "f", "x")),
    "c2": CallRecord(ToolCall("c2", "f")),
}
STEERS = [UserMessage("rather this")]


@pytest.mark.parametrize(
    ("fields", "step"),
    [
        ({}, Step.CALL_MODEL),
        ({"turn": 2}, Step.CALL_MODEL),
        ({"turn": 3}, Step.GIVE_UP),
        ({"turn": 4}, Step.GIVE_UP),
        ({"turn": 3, "answered": True}, Step.COMPLETE),
        ({"turn": 1, "answered": True}, Step.COMPLETE),
        ({"turn": 1, "calls": CALLS}, Step.RUN_CALLS),
        ({"turn": 1, "calls": DONE}, Step.RUN_CALLS),
        ({"turn": 3, "calls": CALLS}, Step.RUN_CALLS),
        ({"turn": 1, "calls": CALLS, "steers": STEERS}, Step.RUN_CALLS),
        ({"turn": 1, "steers": STEERS}, Step.STEER),
        ({"turn": 1, "answered": True, "steers": STEERS}, Step.STEER),
        ({"turn": 3, "steers": STEERS}, Step.STEER),
        ({"turn": 3, "budget_from": 3}, Step.CALL_MODEL),
        ({"turn": 5, "budget_from": 3}, Step.CALL_MODEL),
        ({"turn": 6, "budget_from": 3}, Step.GIVE_UP),
    ],
)
def test_the_next_step(fields: dict[str, Any], step: Step) -> None:
    assert next_step(Run("r2", UserMessage("hi"), 3, **fields)) is step


def test_a_run_without_a_budget_goes_on() -> None:
    assert next_step(Run("r2", UserMessage("hi"), 0, turn=1_000)) is Step.CALL_MODEL


def test_looking_changes_nothing() -> None:
    run = Run("r2", UserMessage("hi"), 3, steers=list(STEERS))
    assert next_step(run) is next_step(run) is Step.STEER
    assert run == Run("r2", UserMessage("hi"), 3, steers=STEERS)
