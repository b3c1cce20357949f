"""Deciders: state and a wish in, events or a refusal out. None of them changes anything.

`RuleViolation` means that nothing happened. Events come out without seq, time and cause; whoever appends them stamps
them. Ids are made of the seq that the record will get, which is why `state.seq` is read here.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from protocol import events as ev
from protocol.asks import Ask, AskOutcome, AskRecord, Question, check_answer, given
from protocol.chat import CallOutcome, Part, ToolMessage, UserMessage
from protocol.errors import Code, Detail, RuleViolation, error_payload
from protocol.history import CallRecord, Run, State
from protocol.ids import ask_id, is_blank, run_id
from protocol.limits import DEFAULT_LIMITS, MAX_NOTE_CHARS, Limits
from protocol.sendable import check_size, check_text
from protocol.todos import TodoList

WhenBusy = Literal["reject", "queue", "steer"]

_encode = msgspec.json.Encoder().encode


def open_session(session_id: str, log_id: str) -> list[ev.Event]:
    return [ev.SessionOpened(session_id, log_id)]


# ---- runs


def user_message(text: object, parts: Sequence[Part] = (), *, limits: Limits = DEFAULT_LIMITS) -> UserMessage:
    """Return the text of a person as a message.

    Raises:
        RuleViolation: `command.invalid` - not text, blank without parts, too long, or not encodable.
    """
    if not isinstance(text, str):
        raise RuleViolation(Code.COMMAND_INVALID, f"a message is text, not {type(text).__name__}")
    if len(text) > limits.max_prompt_chars:
        raise RuleViolation(
            Code.COMMAND_INVALID, f"a message has at most {limits.max_prompt_chars} characters, not {len(text)}"
        )
    if not parts and is_blank(text):
        raise RuleViolation(Code.COMMAND_INVALID, "a message must not be blank")
    try:
        message = UserMessage(check_text(text, path="the message"), tuple(parts))
        if parts or len(text) * 6 + 64 > limits.max_event_bytes:  # six bytes: the longest escape of one character
            check_size(message, max_bytes=limits.max_event_bytes)
    except RuleViolation as refused:
        raise RuleViolation(Code.COMMAND_INVALID, refused.message) from None
    return message


def prompt(
    state: State,
    message: UserMessage,
    *,
    max_turns: int,
    when_busy: WhenBusy = "reject",
    limits: Limits = DEFAULT_LIMITS,
) -> list[ev.Event]:
    """Start a run, or do what `when_busy` says while another one is active.

    Raises:
        RuleViolation: `session.busy` - a run is active and this one may not, or no longer, queue.
    """
    active = state.run
    if active is None:
        return [ev.RunStarted(message, max_turns, run=run_id(state.seq + 1))]
    if when_busy == "steer" and not active.cancelling:
        return steer(state, message, limits=limits)
    if when_busy == "queue":
        if len(state.queue or ()) >= limits.max_queued_runs:
            raise RuleViolation(Code.SESSION_BUSY, f"{limits.max_queued_runs} runs are queued already")
        return [ev.RunQueued(message, max_turns, run=run_id(state.seq + 1))]
    raise RuleViolation(Code.SESSION_BUSY, f"run {active.id} is active; cancel it, steer it, or queue behind it")


def start_queued(state: State) -> list[ev.Event]:
    """Start the run that waited longest; nothing while one is active or none waits."""
    if state.root or not state.queue:
        return []
    first = state.queue[0]
    return [ev.RunStarted(first.input, first.max_turns, run=first.id)]


def steer(state: State, message: UserMessage, *, limits: Limits = DEFAULT_LIMITS) -> list[ev.Event]:
    """Say something to the active run; the model sees it before its next call.

    Raises:
        RuleViolation: `session.idle` - no run is active, or it is ending; `session.busy` - too many wait already.
    """
    active = state.run
    if active is None or active.cancelling:
        raise RuleViolation(Code.SESSION_IDLE, "no run is active that could be steered")
    if len(active.steers or ()) >= limits.max_queued_steers:
        raise RuleViolation(Code.SESSION_BUSY, f"{limits.max_queued_steers} steering messages wait already")
    return [ev.SteeringQueued(message, run=active.id)]


def start_steering(run: Run) -> list[ev.Event]:
    if not run.steers:
        return []
    return [ev.SteeringStarted(run.steers[0], run=run.id, path=run.path)]


def cancel(state: State, run: str = "", *, reason: str = "", at_rest: bool = False) -> list[ev.Event]:
    """Cancel a run, by default the active one. Idempotent: a second cancel, or one without a run, is no event.

    The open asks close here and not when tasks unwind, so that no answer slips in between.

    Args:
        state: The session's state.
        run: Which run.
        reason: Recorded with it.
        at_rest: All of the run waits for answers: nothing has to unwind, so it ends here and now.

    Raises:
        RuleViolation: `run.unknown` - a run was named which is neither active nor queued; `command.invalid` - the
            reason cannot be recorded.
    """
    _check_note(reason, "the reason of a cancel")
    if not run or run == state.root:
        target = state.run
        if target is None:
            return []
    elif run in state.runs:
        target = state.runs[run]
    elif any(queued.id == run for queued in state.queue or ()):
        return [ev.RunCancelled(reason, run=run)]
    elif run[:1] == "r" and run[1:].isdecimal() and len(run) < 20 and 0 < int(run[1:]) <= state.seq:
        return []  # it has ended in the meantime
    else:
        raise RuleViolation(Code.RUN_UNKNOWN, f"no run {run!r} is active or queued")
    if target.cancelling:
        return []
    nested = _nested(state, target)
    if at_rest and not nested:
        requested = ev.CancelRequested(reason, run=target.id, path=target.path)
        return [requested, *finish(state, target, "cancelled", message=reason)]
    events: list[ev.Event] = []
    for member in (*nested, target):
        if not member.cancelling:
            events.append(ev.CancelRequested(reason, run=member.id, path=member.path))
            events += _close_asks(state, member)
    return events


def _nested(state: State, run: Run) -> list[Run]:
    """The active runs below `run`, the deepest first."""
    nested: list[Run] = []
    for child in state.runs.values():
        if child.parent == run.id:
            nested = [*nested, *_nested(state, child), child]
    return nested


def finish(
    state: State,
    run: Run,
    how: Literal["completed", "failed", "cancelled"],
    *,
    code: str = "",
    message: str = "",
    stuck: tuple[str, ...] = (),
    error: str = "",
) -> list[ev.Event]:
    """End a run: close its asks, give each call without a result the one its record says, then the terminal event.

    A run whose cancel was acknowledged ends as cancelled, whatever `how` says. The terminal event is the last. Nested
    runs that are still active end first, as cancelled.
    """
    events: list[ev.Event] = []
    for child in state.runs.values():
        if child.parent == run.id:
            events += finish(state, child, "cancelled", message=f"run {run.id} ended")
    events += _close_asks(state, run)
    if run.calls:
        events += [result_without_end(state, run, record) for record in run.calls.values() if record.result is None]
    for steering in (*((run.steering,) if run.steering else ()), *(run.steers or ())):
        events.append(ev.SteeringInterrupted(steering, run=run.id, path=run.path))
    if run.cancelling or how == "cancelled":
        reason = run.reason or message
        events.append(ev.RunCancelled(reason, run.turn, run.todos, stuck, error, run=run.id, path=run.path))
    elif how == "failed":
        events.append(ev.RunFailed(code, message, run.turn, run.todos, run=run.id, path=run.path))
    else:
        events.append(ev.RunCompleted(run.message_id, run.turn, run.todos, run=run.id, path=run.path))
    return events


def settle_call(
    state: State, run: Run, result: ToolMessage, *, code: str = "", withdrawn: str = "its call failed"
) -> list[ev.Event]:
    """Record the one result of a call. An ask of the call that is still open is withdrawn first: nobody waits for it.

    Args:
        state: The session's state.
        run: The run the call belongs to.
        result: What the model will read.
        code: The stable code of a failure.
        withdrawn: Said of the ask.
    """
    events: list[ev.Event] = []
    record = (state.asks or {}).get(result.tool_call_id)
    if record is not None and record.outcome is None:
        cancelled = AskOutcome.CANCELLED
        events.append(
            ev.AskSettled(
                record.ask.id, record.ask.tool_call_id, cancelled, note=withdrawn, run=run.id, path=run.path
            )
        )
    if result.outcome is CallOutcome.COMPLETED:
        events.append(ev.ToolCompleted(result, run=run.id, path=run.path))
    else:
        events.append(ev.ToolFailed(result, code or Code.TOOL_FAILED, run=run.id, path=run.path))
    return events


def _close_asks(state: State, run: Run) -> list[ev.Event]:
    return [
        ev.AskSettled(record.ask.id, key, AskOutcome.CANCELLED, run=run.id, path=run.path)
        for key, record in (state.asks or {}).items()
        if record.outcome is None and record.run == run.id
    ]


def result_without_end(state: State, run: Run, record: CallRecord, *, when: str = "the run ended") -> ev.Event:
    """Return the result of a call that does not come to its end: an answer that was given is used, a started call may
    have acted.
    """
    call = record.call
    ask = (state.asks or {}).get(call.id)
    if ask is not None and ask.ask.answers_call and ask.outcome is AskOutcome.ANSWERED:
        answer = ToolMessage(call.id, call.name, answer_content(ask))
        return ev.ToolCompleted(answer, run=run.id, path=run.path)
    if record.started:
        text = f"{call.name} was interrupted when {when}; it may have had effects."
        content = error_content(Code.CALL_INTERRUPTED, text)
        interrupted = ToolMessage(call.id, call.name, content, CallOutcome.INTERRUPTED)
        return ev.ToolFailed(interrupted, Code.CALL_INTERRUPTED, run=run.id, path=run.path)
    skipped = ToolMessage(call.id, call.name, _skipped_content(call.name), CallOutcome.SKIPPED)
    return ev.ToolSkipped(skipped, run=run.id, path=run.path)


@lru_cache(maxsize=256)  # ten thousand runs that are cancelled together have called few tools
def _skipped_content(name: str) -> str:
    return error_content(Code.CALL_SKIPPED, f"{name} was not run: the run ended before it started.")


def error_content(code: str, message: str, details: tuple[Detail, ...] = ()) -> str:
    """Return the model-facing JSON text of an error."""
    return _encode(error_payload(code, message, details)).decode()


def answer_content(record: AskRecord) -> str:
    """Return the model-facing JSON text of an answer: the payload, unchanged."""
    return _encode(record.payload).decode()


# ---- asks


def open_ask(
    state: State,
    run: Run,
    tool_call_id: str,
    questions: tuple[Question, ...],
    *,
    answers_call: bool = True,
    limits: Limits = DEFAULT_LIMITS,
) -> list[ev.Event]:
    """Put a question for a call of this turn that has not started.

    A run that goes on after an interruption comes here again: the question that it put before is the one, no event.

    Raises:
        RuleViolation: `ask.settled` - the call has an ask already; `call.invalid` - it is no call of this run that
            could wait, or nothing is asked; `run.settled` - the run is ending, nobody is asked any more;
            `event.too_large`, `event.unsendable` - the questions cannot be recorded.
    """
    before = (state.asks or {}).get(tool_call_id)
    if run.resumed and before is not None and before.run == run.id:
        asked, wanted = (before.ask.questions, before.ask.answers_call), (questions, answers_call)
        if asked == wanted:
            return []
    record = (run.calls or {}).get(tool_call_id)
    if record is None or record.result is not None or record.started:
        raise RuleViolation(Code.CALL_INVALID, f"{tool_call_id!r} is no call of run {run.id} that has yet to start")
    if not questions:
        raise RuleViolation(Code.CALL_INVALID, f"the ask for {tool_call_id!r} has no question")
    if before is not None:
        raise RuleViolation(Code.ASK_SETTLED, f"call {tool_call_id!r} has its ask already")
    if run.cancelling:
        raise RuleViolation(Code.RUN_SETTLED, f"run {run.id} is being cancelled")
    ask = Ask(ask_id(state.seq + 1), tool_call_id, questions, path=run.path, answers_call=answers_call)
    check_size(ask, max_bytes=limits.max_event_bytes)
    return [ev.AskOpened(ask, run=run.id, path=run.path)]


def find_ask(state: State, target: str) -> AskRecord:
    """Return the open ask with this tool call id or ask id.

    Raises:
        RuleViolation: `ask.settled` - it has its outcome, which the details name; `ask.unknown`.
    """
    asks = state.asks or {}
    record = asks.get(target) or next((record for record in asks.values() if record.ask.id == target), None)
    if record is not None:
        if record.outcome is None:
            return record
        raise _settled(target, record.outcome)
    settled = state.settled or {}
    past = settled.get(target) or next((past for past in settled.values() if past.ask == target), None)
    if past is not None:
        raise _settled(target, past.outcome)
    raise RuleViolation(Code.ASK_UNKNOWN, f"session {state.session_id!r} has no ask {target!r}")


def _check_note(text: str, what: str) -> None:
    if len(text) > MAX_NOTE_CHARS:
        raise RuleViolation(
            Code.COMMAND_INVALID, f"{what} has at most {MAX_NOTE_CHARS} characters, not {len(text)}"
        )
    try:
        check_text(text, path=what)
    except RuleViolation as refused:
        raise RuleViolation(Code.COMMAND_INVALID, refused.message) from None


def _settled(target: str, outcome: AskOutcome) -> RuleViolation:
    return RuleViolation(Code.ASK_SETTLED, f"ask {target!r} is {outcome}", Detail("ask", outcome, f"it is {outcome}"))


def answer(
    state: State, target: object, payload: Mapping[str, Any], *, via: str = "", limits: Limits = DEFAULT_LIMITS
) -> list[ev.Event]:
    """Answer an open ask.

    Raises:
        RuleViolation: `ask.invalid`, `ask.settled` or `ask.unknown`; the ask is as it was.
    """
    if not isinstance(target, str) or is_blank(target):
        raise RuleViolation(Code.ASK_INVALID, "an answer names its ask by `tool_call_id`")
    record = find_ask(state, target)
    copied = check_answer(record.ask, payload, limits=limits)
    return [
        ev.AskSettled(
            record.ask.id,
            record.ask.tool_call_id,
            AskOutcome.ANSWERED,
            copied,
            given(record.ask, copied),
            via=via,
            run=record.run,
            path=record.ask.path,
        )
    ]


def settle_ask(state: State, target: str, outcome: AskOutcome, *, note: str = "") -> list[ev.Event]:
    """Settle an open ask without an answer: declined by a person, or nobody there who could answer.

    Raises:
        RuleViolation: `ask.settled` or `ask.unknown`; `command.invalid` - the note cannot be recorded.
    """
    _check_note(note, "the note of an ask")
    record = find_ask(state, target)
    return [
        ev.AskSettled(
            record.ask.id, record.ask.tool_call_id, outcome, note=note, run=record.run, path=record.ask.path
        )
    ]


# ---- todo lists


def write_todos(run: Run, todos: TodoList | None, tool_call_id: str = "") -> list[ev.Event]:
    return [ev.TodosChanged(todos, tool_call_id, run=run.id, path=run.path)]
