"""What a run does next, read from its record alone, so that a resumed run enters the same loop."""

from enum import Enum

from protocol.history import Run


class Step(Enum):
    CALL_MODEL = "call_model"
    RUN_CALLS = "run_calls"
    STEER = "steer"
    COMPLETE = "complete"
    GIVE_UP = "give_up"


def next_step(run: Run) -> Step:
    """Return the next step of a run that is not being cancelled.

    Calls without a result come first; a steering message comes before the next model call and before the end; the
    budget of model calls starts anew with each steering message.
    """
    if run.calls:
        return Step.RUN_CALLS
    if run.steers:
        return Step.STEER
    if run.answered:
        return Step.COMPLETE
    if run.max_turns and run.turn - run.budget_from >= run.max_turns:
        return Step.GIVE_UP
    return Step.CALL_MODEL
