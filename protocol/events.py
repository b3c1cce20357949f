"""Every event of a session, durable and ephemeral.

Envelope: `{type, seq, time, run?, path?, cause?}`. A durable event has its place in the log: `seq`, contiguous from 1.
An ephemeral one (`durable` is False) is never stored; its `base` is the seq of the last durable event before it.
Deciders make events without `seq` and `time`; the one writer stamps them, once, before anybody sees them. `cause` is
the id of the command that caused the event, so that deduplication is in the log itself.

Compatibility: fields are added with defaults, a new meaning is a new type, readers skip what they do not know.
"""

from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from protocol.asks import Ask, AskOutcome, Given
from protocol.chat import AssistantMessage, Message, ToolMessage, UserMessage
from protocol.todos import TodoList

LOG_FORMAT = 1


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """What all events have. Times are Unix seconds."""

    durable: ClassVar[bool] = True

    seq: int = 0
    time: float = 0.0
    run: str = ""
    path: str = ""
    cause: str = ""


class Ephemeral(Event, frozen=True, kw_only=True):
    """Shown while it happens, never stored."""

    durable: ClassVar[bool] = False

    base: int = 0


# ---- the session


class SessionOpened(Event, frozen=True, tag="session_opened"):
    """The first record of a log. `format` names how the log is written."""

    session_id: str
    log_id: str
    format: int = LOG_FORMAT


class MessageAdded(Event, frozen=True, tag="message_added"):
    """A system or user message entered the history, at `index` or at its end. `input`: the run began with it."""

    message: Message
    index: int | None = None
    input: bool = False


class HistoryReplaced(Event, frozen=True, tag="history_replaced"):
    """The history became `messages`."""

    messages: tuple[Message, ...]
    reason: str = ""


class StateChanged(Event, frozen=True, tag="state_changed"):
    """A key of the session's durable state; a None value removes it."""

    key: str
    value: Any = None


class StateDamaged(Event, frozen=True, tag="state_damaged"):
    """A stored value that could not be read was set aside, unchanged, as `raw`."""

    key: str
    message: str
    raw: Any = None


class BoardChanged(Event, frozen=True, tag="board_changed"):
    """One change of a task board; `change` is the difference, not the board."""

    board: str
    revision: int
    change: dict[str, Any]


class Custom(Event, frozen=True, tag="custom"):
    """What an extension tells the application."""

    name: str
    payload: dict[str, Any] = {}


# ---- runs


class RunQueued(Event, frozen=True, tag="run_queued"):
    """A run waits for the one before it. Its id is made of this record's seq."""

    input: UserMessage
    max_turns: int = 0


class RunStarted(Event, frozen=True, tag="run_started"):
    input: UserMessage
    max_turns: int = 0
    parent: str = ""


class RunResumed(Event, frozen=True, tag="run_resumed"):
    """The run goes on after its actor, or its process, had ended. What was streamed of its next message is void."""


class CancelRequested(Event, frozen=True, tag="cancel_requested"):
    """From here on the run can only end as cancelled. Its open asks are closed in the same step."""

    reason: str = ""


class RunCompleted(Event, frozen=True, tag="run_completed"):
    """The last event of a run. `message_id` names the final answer, `todos` is the list as it ended."""

    message_id: str = ""
    turns: int = 0
    todos: TodoList | None = None


class RunFailed(Event, frozen=True, tag="run_failed"):
    code: str
    message: str
    turns: int = 0
    todos: TodoList | None = None


class RunCancelled(Event, frozen=True, tag="run_cancelled"):
    """`stuck` names tools that outlived the cancel grace; `error` is what else went wrong while unwinding."""

    reason: str = ""
    turns: int = 0
    todos: TodoList | None = None
    stuck: tuple[str, ...] = ()
    error: str = ""


# ---- turns


class ModelCompleted(Event, frozen=True, tag="model_completed"):
    """The assistant's message is complete, normalised, and in the history."""

    message_id: str
    turn: int
    message: AssistantMessage


class ToolStarted(Event, frozen=True, tag="tool_started"):
    tool_call_id: str
    name: str


class ToolCompleted(Event, frozen=True, tag="tool_completed"):
    result: ToolMessage


class ToolFailed(Event, frozen=True, tag="tool_failed"):
    result: ToolMessage
    code: str = ""


class ToolSkipped(Event, frozen=True, tag="tool_skipped"):
    """The call was never started and had no effects."""

    result: ToolMessage


class AskOpened(Event, frozen=True, tag="ask_opened"):
    ask: Ask


class AskSettled(Event, frozen=True, tag="ask_settled"):
    """The one outcome of an ask. `payload` is the answer whole; `via` is the extension that took it, if one did."""

    ask: str
    tool_call_id: str
    outcome: AskOutcome
    payload: dict[str, Any] | None = None
    answers: dict[str, Given] = {}
    note: str = ""
    via: str = ""


class TodosChanged(Event, frozen=True, tag="todos_changed"):
    """The run's list was written, or (None) forgotten."""

    todos: TodoList | None = None
    tool_call_id: str = ""


class SteeringQueued(Event, frozen=True, tag="steering_queued"):
    message: UserMessage


class SteeringStarted(Event, frozen=True, tag="steering_started"):
    """The steering message is in the history; the model sees it next."""

    message: UserMessage


class SteeringCompleted(Event, frozen=True, tag="steering_completed"):
    """The model has answered the steering message."""


class SteeringInterrupted(Event, frozen=True, tag="steering_interrupted"):
    """The run ended before the steering message was answered."""

    message: UserMessage


class CompactionStarted(Event, frozen=True, tag="compaction_started"):
    automatic: bool = False


class CompactionCompleted(Event, frozen=True, tag="compaction_completed"):
    """`applied` says whether the history was replaced (a `history_replaced` before this tells by what)."""

    applied: bool = False
    error: str = ""


# ---- what a later version wrote


class Unknown(Event, frozen=True, tag="unknown"):
    """A record of a type that this version does not know: it keeps its place in the log and changes nothing.

    Only a reader of stored logs makes it. On the wire it is what it was: the record as it was written.

    Attributes:
        kind: The type that it has.
        body: The record, as it was written.
    """

    kind: str
    body: str


# ---- ephemeral


class ModelStarted(Ephemeral, frozen=True, tag="model_started"):
    message_id: str
    turn: int


class ContentStarted(Ephemeral, frozen=True, tag="content_started"):
    message_id: str


class ContentCompleted(Ephemeral, frozen=True, tag="content_completed"):
    message_id: str


class ReasoningStarted(Ephemeral, frozen=True, tag="reasoning_started"):
    message_id: str


class ReasoningCompleted(Ephemeral, frozen=True, tag="reasoning_completed"):
    message_id: str


class TextStreamed(Ephemeral, frozen=True, tag="text_delta"):
    """A piece of text; `offset` counts the characters of the message before it."""

    message: str
    offset: int
    text: str


class ReasoningStreamed(Ephemeral, frozen=True, tag="reasoning_delta"):
    message: str
    offset: int
    text: str


class ToolCallStreamed(Ephemeral, frozen=True, tag="tool_call_delta"):
    """A piece of a tool call as it comes. Not validated, perhaps never complete: for display only."""

    message: str
    index: int | None = None
    name: str = ""
    arguments: str = ""


class ToolProgress(Ephemeral, frozen=True, tag="tool_progress"):
    tool_call_id: str
    payload: Any = None


class CompactionTextStreamed(Ephemeral, frozen=True, tag="compaction_text_delta"):
    text: str


class CompactionReasoningStreamed(Ephemeral, frozen=True, tag="compaction_reasoning_delta"):
    text: str


class Draft(Ephemeral, frozen=True, tag="draft"):
    """A partial answer that somebody is typing."""

    ask: str
    payload: dict[str, Any] = {}


RUN_ENDS = (RunCompleted, RunFailed, RunCancelled)

DurableEvent = (
    SessionOpened | MessageAdded | HistoryReplaced | StateChanged | StateDamaged | BoardChanged | Custom | RunQueued
    | RunStarted | RunResumed | CancelRequested | RunCompleted | RunFailed | RunCancelled | ModelCompleted | ToolStarted
    | ToolCompleted | ToolFailed | ToolSkipped | AskOpened | AskSettled | TodosChanged | SteeringQueued
    | SteeringStarted | SteeringCompleted | SteeringInterrupted | CompactionStarted | CompactionCompleted
)  # fmt: skip
EphemeralEvent = (
    ModelStarted | ContentStarted | ContentCompleted | ReasoningStarted | ReasoningCompleted | TextStreamed
    | ReasoningStreamed | ToolCallStreamed | ToolProgress | CompactionTextStreamed | CompactionReasoningStreamed | Draft
)  # fmt: skip

_decoder: msgspec.json.Decoder[DurableEvent | EphemeralEvent] = msgspec.json.Decoder(DurableEvent | EphemeralEvent)


def decode_event(data: bytes | str | msgspec.Raw) -> Event | None:
    """Return the event, or None for a type this version does not know: the reader skips it and advances.

    Raises:
        msgspec.MsgspecError: Not an event at all.
    """
    try:
        try:
            return _decoder.decode(data)
        except msgspec.ValidationError:
            head = msgspec.json.decode(data, type=_Head)
            if head.type in KNOWN_TYPES:
                raise
            return None
    except RecursionError:
        raise msgspec.DecodeError("the event is nested too deeply") from None


class _Head(Struct):
    type: str


KNOWN_TYPES: frozenset[str] = frozenset(
    str(kind.__struct_config__.tag) for kind in (*DurableEvent.__args__, *EphemeralEvent.__args__)
)
