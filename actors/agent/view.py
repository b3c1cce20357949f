"""`AgentEvent`, the flat in-process view of an event, and how a record looks in it. Pure."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from protocol import events as ev
from protocol.asks import RESPONSE_EVENT, Ask
from protocol.chat import AssistantMessage, Message, ToolCall
from protocol.errors import Code
from protocol.todos import TodoList, TodoWriteResult, result


class AgentEventType(StrEnum):
    """What an `AgentEvent` tells. The values are the type names of the wire."""

    SESSION_OPENED = "session_opened"
    MESSAGE_ADDED = "message_added"
    HISTORY_REPLACED = "history_replaced"
    STATE_CHANGED = "state_changed"
    STATE_DAMAGED = "state_damaged"
    BOARD_CHANGED = "board_changed"
    CUSTOM = "custom"
    RUN_QUEUED = "run_queued"
    RUN_STARTED = "run_started"
    RUN_RESUMED = "run_resumed"
    CANCEL_REQUESTED = "cancel_requested"
    RUN_COMPLETED = "run_completed"
    RUN_FAILED = "run_failed"
    RUN_CANCELLED = "run_cancelled"
    MODEL_STARTED = "model_started"
    MODEL_COMPLETED = "model_completed"
    CONTENT_STARTED = "content_started"
    CONTENT_COMPLETED = "content_completed"
    REASONING_STARTED = "reasoning_started"
    REASONING_COMPLETED = "reasoning_completed"
    REASONING_DELTA = "reasoning_delta"
    TEXT_DELTA = "text_delta"
    TOOL_CALL_DELTA = "tool_call_delta"
    TOOL_STARTED = "tool_started"
    TOOL_COMPLETED = "tool_completed"
    TOOL_FAILED = "tool_failed"
    TOOL_SKIPPED = "tool_skipped"
    TOOL_PROGRESS = "tool_progress"
    ASK_SETTLED = "ask_settled"
    TODOS_CHANGED = "todos_changed"
    STEERING_QUEUED = "steering_queued"
    STEERING_STARTED = "steering_started"
    STEERING_COMPLETED = "steering_completed"
    STEERING_INTERRUPTED = "steering_interrupted"
    COMPACTION_STARTED = "compaction_started"
    COMPACTION_COMPLETED = "compaction_completed"
    COMPACTION_TEXT_DELTA = "compaction_text_delta"
    COMPACTION_REASONING_DELTA = "compaction_reasoning_delta"
    DRAFT = "draft"


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class AgentEvent(Struct, omit_defaults=True, gc=False):
    """One thing that happened, flat: fields that an event has not are empty.

    Attributes:
        type: What happened.
        name: Of a CUSTOM event, and of no other: `event.name == "ask_user"` is a question.
        payload: Of a CUSTOM event; the answer, a tool's progress, what changed.
        session_id: Whose event it is.
        run_id: The run it belongs to, or "".
        path: The agent path of a sub-agent, or "".
        seq: Its place in the log; 0 for what is not stored.
        time: Unix seconds.
        delta: The piece of text that was streamed.
        tool_calls: The calls that a message made, or that an ask or a result belongs to.
        response: The assistant's message of MODEL_COMPLETED.
        message: The message that entered the history, or a tool's result.
        todos: The list of TODOS_CHANGED and, final, of the terminal events.
        code: The stable code of a failure; how an ask was settled.
        error: A sentence about it, the reason of a cancel, or "".
    """

    type: AgentEventType
    name: str = ""
    payload: Mapping[str, Any] = _NOTHING
    session_id: str = ""
    run_id: str = ""
    path: str = ""
    seq: int = 0
    time: float = 0.0
    delta: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    response: AssistantMessage | None = None
    message: Message | None = None
    todos: TodoWriteResult | None = None
    code: str = ""
    error: str = ""


class AskUserEvent(AgentEvent, gc=False):
    """The CUSTOM event `ask_user`: a question is open. `payload` is the documented one, `ask` the whole ask."""

    ask: Ask | None = None


def ask_payload(session_id: str, ask: Ask) -> dict[str, Any]:
    """Return the documented flat payload of an ask: its first question."""
    question = ask.questions[0]
    return {
        "session_id": session_id,
        "tool_call_id": ask.tool_call_id,
        "question": question.question,
        "options": [option.label for option in question.options],
        "allow_multiple": question.multiple,
        "response_event": RESPONSE_EVENT,
    }


def to_agent_event(session_id: str, event: ev.Event) -> AgentEvent:
    """Return the flat view of an event."""
    kind = type(event)
    make = AskUserEvent if kind is ev.AskOpened else AgentEvent
    view = make(_TYPES[kind], "", _NOTHING, session_id, event.run, event.path, event.seq, event.time)
    fill = _FILL.get(kind)
    if fill is not None:
        fill(view, event)
    return view


def _todos(todos: TodoList | None) -> TodoWriteResult | None:
    return result(todos) if todos is not None else None


def _model_completed(view: AgentEvent, event: ev.ModelCompleted) -> None:
    view.response = view.message = event.message
    view.tool_calls = event.message.tool_calls


def _delta(view: AgentEvent, event: ev.TextStreamed | ev.ReasoningStreamed) -> None:
    view.delta = event.text


def _message(view: AgentEvent, event: ev.MessageAdded | ev.SteeringQueued) -> None:
    view.message = event.message


def _input(view: AgentEvent, event: ev.RunStarted | ev.RunQueued) -> None:
    view.message = event.input


def _call(view: AgentEvent, tool_call_id: str, name: str) -> None:
    view.tool_calls = (ToolCall(tool_call_id, name),)


def _tool_started(view: AgentEvent, event: ev.ToolStarted) -> None:
    _call(view, event.tool_call_id, event.name)


def _tool_progress(view: AgentEvent, event: ev.ToolProgress) -> None:
    _call(view, event.tool_call_id, "")
    view.payload = {"value": event.payload}


def _tool_result(view: AgentEvent, event: ev.ToolCompleted | ev.ToolSkipped) -> None:
    view.message = event.result
    _call(view, event.result.tool_call_id, event.result.name)


def _tool_failed(view: AgentEvent, event: ev.ToolFailed) -> None:
    _call(view, event.result.tool_call_id, event.result.name)
    view.message, view.code, view.error = event.result, event.code, event.result.content


def _tool_call_delta(view: AgentEvent, event: ev.ToolCallStreamed) -> None:
    view.delta = event.arguments
    view.tool_calls = (ToolCall("", event.name),)


def _ask_opened(view: AskUserEvent, event: ev.AskOpened) -> None:
    view.name = "ask_user"
    _call(view, event.ask.tool_call_id, "ask_user")
    view.payload = ask_payload(view.session_id, event.ask)
    view.ask = event.ask


def _ask_settled(view: AgentEvent, event: ev.AskSettled) -> None:
    view.tool_calls = (ToolCall(event.tool_call_id, "ask_user"),)
    view.code, view.error = event.outcome, event.note
    view.payload = event.payload or {"tool_call_id": event.tool_call_id}


def _custom(view: AgentEvent, event: ev.Custom) -> None:
    view.name, view.payload = event.name, event.payload


def _state_changed(view: AgentEvent, event: ev.StateChanged) -> None:
    view.payload = {"key": event.key, "value": event.value}


def _state_damaged(view: AgentEvent, event: ev.StateDamaged) -> None:
    view.error, view.payload = event.message, {"key": event.key, "raw": event.raw}


def _board_changed(view: AgentEvent, event: ev.BoardChanged) -> None:
    view.payload = {"board": event.board, "change": event.change}


def _cancel_requested(view: AgentEvent, event: ev.CancelRequested) -> None:
    view.error = event.reason


def _todos_changed(view: AgentEvent, event: ev.TodosChanged | ev.RunCompleted) -> None:
    view.todos = _todos(event.todos)


def _run_failed(view: AgentEvent, event: ev.RunFailed) -> None:
    view.todos, view.code, view.error = _todos(event.todos), event.code, event.message


def _run_cancelled(view: AgentEvent, event: ev.RunCancelled) -> None:
    view.todos, view.code, view.error = _todos(event.todos), Code.RUN_CANCELLED, event.reason


def _compaction_completed(view: AgentEvent, event: ev.CompactionCompleted) -> None:
    view.error, view.payload = event.error, {"applied": event.applied}


def _draft(view: AgentEvent, event: ev.Draft) -> None:
    view.payload = {"ask": event.ask, **event.payload}


_FILL: dict[type[ev.Event], Callable[[Any, Any], None]] = {
    ev.MessageAdded: _message,
    ev.StateChanged: _state_changed,
    ev.StateDamaged: _state_damaged,
    ev.BoardChanged: _board_changed,
    ev.Custom: _custom,
    ev.RunQueued: _input,
    ev.RunStarted: _input,
    ev.CancelRequested: _cancel_requested,
    ev.RunCompleted: _todos_changed,
    ev.RunFailed: _run_failed,
    ev.RunCancelled: _run_cancelled,
    ev.ModelCompleted: _model_completed,
    ev.TextStreamed: _delta,
    ev.ReasoningStreamed: _delta,
    ev.CompactionTextStreamed: _delta,
    ev.CompactionReasoningStreamed: _delta,
    ev.ToolCallStreamed: _tool_call_delta,
    ev.ToolStarted: _tool_started,
    ev.ToolCompleted: _tool_result,
    ev.ToolFailed: _tool_failed,
    ev.ToolSkipped: _tool_result,
    ev.ToolProgress: _tool_progress,
    ev.AskOpened: _ask_opened,
    ev.AskSettled: _ask_settled,
    ev.TodosChanged: _todos_changed,
    ev.SteeringQueued: _message,
    ev.SteeringStarted: _message,
    ev.SteeringInterrupted: _message,
    ev.CompactionCompleted: _compaction_completed,
    ev.Draft: _draft,
}

_TYPES: dict[type[ev.Event], AgentEventType] = {
    kind: AgentEventType(str(kind.__struct_config__.tag))
    for kind in (*ev.DurableEvent.__args__, *ev.EphemeralEvent.__args__)
    if kind is not ev.AskOpened
}
_TYPES[ev.AskOpened] = AgentEventType.CUSTOM
