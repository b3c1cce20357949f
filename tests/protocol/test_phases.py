"""The phases of a run: the whole matrix."""

import re

import pytest

from protocol.errors import LocalProtocolError
from protocol.phases import ENDS, TRANSITIONS, Phase, enter

ALLOWED = {
    "created": "loading_context failed cancelled",
    "loading_context": "ready failed cancelled",
    "ready": "generating running_tool compacting completed failed cancelled",
    "generating": "ready failed cancelled",
    "running_tool": "ready failed cancelled",
    "compacting": "ready failed cancelled",
    "completed": "",
    "failed": "",
    "cancelled": "",
}
PAIRS = [(old, new) for old in Phase for new in Phase]


@pytest.mark.parametrize(("old", "new"), [pair for pair in PAIRS if pair[1] in ALLOWED[pair[0]].split()])
def test_the_table_leads_there(old: Phase, new: Phase) -> None:
    assert enter(old, new) is new


@pytest.mark.parametrize(("old", "new"), [pair for pair in PAIRS if pair[1] not in ALLOWED[pair[0]].split()])
def test_anything_else_is_a_bug_and_says_what_is_allowed(old: Phase, new: Phase) -> None:
    allowed = ", ".join(sorted(ALLOWED[old].split())) or "nothing: it is an end"
    text = f"a run cannot go {old} -> {new}; from {old} it may go to {allowed}"
    with pytest.raises(LocalProtocolError, match=f"^{re.escape(text)}$"):
        enter(old, new)


def test_every_phase_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(Phase)


def test_the_ends_are_those_that_lead_nowhere() -> None:
    assert {phase for phase in Phase if not TRANSITIONS[phase]} == ENDS


def test_a_run_that_goes_on_can_always_be_broken_off() -> None:
    for phase in set(Phase) - ENDS:
        assert {Phase.FAILED, Phase.CANCELLED} <= TRANSITIONS[phase]


def test_only_a_run_that_does_nothing_else_can_complete() -> None:
    assert [phase for phase in Phase if Phase.COMPLETED in TRANSITIONS[phase]] == [Phase.READY]
