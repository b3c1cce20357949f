"""What becomes of runs whose actor, or whose process, ended before they did. Pure.

A run goes on, waits until a person has said so, or ends; which of them is decided here, from the record alone, so a
second interruption at any moment leads to the same. It must not know why a run was interrupted, nor how it is carried
on: that is the loop which every run is in (`protocol.steps`).

    interrupted -> resumed | held | ended        held -> resumed | ended
"""

from collections.abc import Callable
from typing import Literal

from protocol import decisions
from protocol import events as ev
from protocol.asks import Ask, AskOutcome, AskRecord, Option, Question
from protocol.errors import Code
from protocol.history import CallRecord, Run, State
from protocol.ids import ask_id
from protocol.limits import DEFAULT_LIMITS

ResumeMode = Literal["auto", "ask", "never"]

INTERRUPTED = "the session was interrupted"
CONTINUE, STOP = "continue", "stop"
QUESTION = Question(
    "q1",
    "Continue what was interrupted?",
    options=(Option("Continue", value=CONTINUE), Option("Stop", value=STOP)),
    other=False,
)


def resume(
    state: State, *, mode: ResumeMode = "auto", max_resumes: int = DEFAULT_LIMITS.max_resumes
) -> list[ev.Event]:
    """Decide about the active run of a session that was interrupted; without one this is no event.

    A run whose cancel was acknowledged ends as cancelled. Nested runs end as cancelled: the call that waited for them
    is gone. What else was interrupted is settled once the run's tools are known, by `interrupt_calls`.

    Args:
        state: The fold of the log.
        mode: `auto` - the run goes on. `ask` - it goes on once a person has said so, unless it only waits for a person
            anyway. `never` - it ends as failed, `session.crashed`.
        max_resumes: So often in a row a run goes on without a model message in between; then it ends as failed, as
            it would bring down its actor for ever. One with an open question may wait over any number of restarts.
    """
    run = state.run
    if run is None:
        return []
    if run.cancelling:
        return decisions.finish(state, run, "cancelled")
    if mode == "never":
        return _fail(state, run, INTERRUPTED)
    waits = any(record.run == run.id for record in state.open_asks())
    if run.resumed >= max_resumes and not waits:
        return _fail(state, run, f"{INTERRUPTED} {run.resumed + 1} times in a row, and the run came no further")
    events: list[ev.Event] = []
    for nested in state.runs.values():
        if nested.parent == run.id:  # those below it end with it
            events += decisions.finish(state, nested, "cancelled", message=INTERRUPTED)
    if run.held:
        return events + _go_on_held(state, run, mode)
    if mode == "ask" and not (waits and not _started(run)):
        return [*events, _ask(state, run, len(events))]
    return [*events, ev.RunResumed(run=run.id, path=run.path)]


def settle_held(state: State, run: Run) -> list[ev.Event]:
    """Decide what the answer to `QUESTION` means. Only the word `continue` goes on; anything else ends the run.

    Args:
        state: The session's state.
        run: A run that is held, its ask settled.
    """
    record = _held_ask(state, run)
    given = (record.payload or {}).get("answer")
    if record.outcome is AskOutcome.ANSWERED and given in (CONTINUE, [CONTINUE], "Continue", ["Continue"]):
        return [ev.RunResumed(run=run.id, path=run.path)]
    reason = record.note or "it was interrupted, and was not to be continued"
    return decisions.finish(state, run, "cancelled", message=reason)


def interrupt_calls(state: State, run: Run, *, retryable: Callable[[str], bool]) -> list[ev.Event]:
    """Settle the calls that had started before a run was resumed: nobody knows what they have done.

    A call whose answer is on the record has it for its result.

    Args:
        state: The session's state.
        run: A run that was resumed and has started nothing since.
        retryable: Whether the tool of this name may be called again with the same idempotency key.
    """
    return [
        decisions.result_without_end(state, run, record, when=INTERRUPTED)
        for record in _started(run)
        if not retryable(record.call.name)
    ]


def _started(run: Run) -> list[CallRecord]:
    return [record for record in (run.calls or {}).values() if record.started and record.result is None]


def _fail(state: State, run: Run, why: str) -> list[ev.Event]:
    return decisions.finish(state, run, "failed", code=Code.SESSION_CRASHED, message=why)


def _go_on_held(state: State, run: Run, mode: ResumeMode) -> list[ev.Event]:
    record = _held_ask(state, run)
    if record.outcome is not None:
        return settle_held(state, run)
    if mode == "ask":
        return []
    withdrawn = ev.AskSettled(
        record.ask.id, run.held, AskOutcome.CANCELLED, note="the run goes on", run=run.id, path=run.path
    )
    return [withdrawn, ev.RunResumed(run=run.id, path=run.path)]


def _held_ask(state: State, run: Run) -> AskRecord:
    return (state.asks or {})[run.held]


def _ask(state: State, run: Run, before: int) -> ev.Event:
    """Put `QUESTION`. It belongs to no call, so its call id is one that no call of the session has or will have."""
    id_ = ask_id(state.seq + 1 + before)
    call_id = f"resume-{id_}"
    while call_id in (state.call_ids or ()):
        call_id += "_"
    return ev.AskOpened(Ask(id_, call_id, (QUESTION,), path=run.path, answers_call=False), run=run.id, path=run.path)
