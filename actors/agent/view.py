"""`AgentEvent`, the flat in-process view of an event, and how a record looks in it. Pure."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, cast

from msgspec import Struct

from protocol import events as ev
from protocol.asks import RESPONSE_EVENT, Ask, AskOutcome
from protocol.chat import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
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


class AgentEvent(Struct, omit_defaults=True):
    """One thing that happened, flat: fields that an event has not are empty.

    Attributes:
        type: What happened.
        name: Of a CUSTOM event; of the tool in tool events.
        payload: Of a CUSTOM event, an ask's outcome, a tool's progress.
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
        code: The stable code of a failure.
        error: A sentence about it, the reason of a cancel, or "".
    """

    type: AgentEventType
    name: str = ""
    payload: dict[str, Any] = {}
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


class AskUserEvent(AgentEvent):
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
    make = _FIELDS.get(kind)
    fields = make(event) if make is not None else {}
    seq = event.seq
    if kind is ev.AskOpened:
        ask = cast("ev.AskOpened", event).ask
        return AskUserEvent(
            AgentEventType.CUSTOM,
            "ask_user",
            ask_payload(session_id, ask),
            session_id,
            event.run,
            event.path,
            seq,
            event.time,
            tool_calls=(ToolCall(ask.tool_call_id, "ask_user"),),
            ask=ask,
        )
    return AgentEvent(
        _TYPES[kind],
        session_id=session_id,
        run_id=event.run,
        path=event.path,
        seq=seq,
        time=event.time,
        **fields,
    )


def _todos(todos: TodoList | None) -> TodoWriteResult | None:
    return result(todos) if todos is not None else None


def _tool(result: ToolMessage) -> dict[str, Any]:
    return {"name": result.name, "message": result, "tool_calls": (ToolCall(result.tool_call_id, result.name),)}


def _settled(event: ev.AskSettled) -> dict[str, Any]:
    payload = event.payload if event.outcome is AskOutcome.ANSWERED else None
    return {
        "name": event.outcome,
        "payload": payload or {"tool_call_id": event.tool_call_id},
        "tool_calls": (ToolCall(event.tool_call_id, "ask_user"),),
        "error": event.note,
    }


def _model_completed(event: ev.ModelCompleted) -> dict[str, Any]:
    return {"response": event.message, "message": event.message, "tool_calls": event.message.tool_calls}


def _delta(event: ev.TextStreamed) -> dict[str, Any]:
    return {"delta": event.text}


def _steering(event: ev.SteeringQueued | ev.SteeringStarted | ev.SteeringInterrupted) -> dict[str, Any]:
    return {"message": event.message}


def _input(event: ev.RunStarted | ev.RunQueued) -> dict[str, UserMessage]:
    return {"message": event.input}


_FIELDS = cast(
    "dict[type[ev.Event], Callable[[ev.Event], dict[str, Any]]]",
    {
        ev.MessageAdded: lambda e: {"message": e.message},
        ev.StateChanged: lambda e: {"name": e.key, "payload": {"value": e.value}},
        ev.StateDamaged: lambda e: {"name": e.key, "error": e.message, "payload": {"raw": e.raw}},
        ev.BoardChanged: lambda e: {"name": e.board, "payload": e.change},
        ev.Custom: lambda e: {"name": e.name, "payload": e.payload},
        ev.RunQueued: _input,
        ev.RunStarted: _input,
        ev.CancelRequested: lambda e: {"error": e.reason},
        ev.RunCompleted: lambda e: {"todos": _todos(e.todos)},
        ev.RunFailed: lambda e: {"todos": _todos(e.todos), "code": e.code, "error": e.message},
        ev.RunCancelled: lambda e: {"todos": _todos(e.todos), "code": "run.cancelled", "error": e.reason},
        ev.ModelCompleted: _model_completed,
        ev.TextStreamed: _delta,
        ev.ReasoningStreamed: _delta,
        ev.CompactionTextStreamed: _delta,
        ev.CompactionReasoningStreamed: _delta,
        ev.ToolCallStreamed: lambda e: {"name": e.name, "delta": e.arguments},
        ev.ToolStarted: lambda e: {"name": e.name, "tool_calls": (ToolCall(e.tool_call_id, e.name),)},
        ev.ToolCompleted: lambda e: _tool(e.result),
        ev.ToolFailed: lambda e: {**_tool(e.result), "code": e.code, "error": e.result.content},
        ev.ToolSkipped: lambda e: _tool(e.result),
        ev.ToolProgress: lambda e: {"payload": {"value": e.payload}, "tool_calls": (ToolCall(e.tool_call_id, ""),)},
        ev.AskSettled: _settled,
        ev.TodosChanged: lambda e: {"todos": _todos(e.todos)},
        ev.SteeringQueued: _steering,
        ev.SteeringStarted: _steering,
        ev.SteeringInterrupted: _steering,
        ev.CompactionCompleted: lambda e: {"error": e.error, "payload": {"applied": e.applied}},
        ev.Draft: lambda e: {"name": e.ask, "payload": e.payload},
    },
)

_TYPES: dict[type[ev.Event], AgentEventType] = {
    kind: AgentEventType(str(kind.__struct_config__.tag))
    for kind in (*ev.DurableEvent.__args__, *ev.EphemeralEvent.__args__)
    if kind is not ev.AskOpened
}
