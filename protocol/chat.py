"""What is said: messages, parts, tool calls, tool results, and the pieces in which a model streams them.

Messages are frozen and go into the log as they are. A `ToolCall` here is already normalised: its id is unique in its
session, its arguments are a JSON object. What could not be used keeps `{}` as arguments and says why in `invalid`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec import Struct


class TextPart(Struct, frozen=True, tag_field="type", tag="text", gc=False):
    text: str


class ImagePart(Struct, frozen=True, tag_field="type", tag="image", gc=False):
    """An image as a base64 data URL (`data:image/png;base64,...`)."""

    url: str


Part = TextPart | ImagePart


class ToolCall(Struct, frozen=True, omit_defaults=True, gc=False):
    """One call the model made.

    Attributes:
        id: Unique in the session: the provider's id where present and unused, else a minted one.
        name: The tool's name as the model wrote it.
        arguments: The JSON object of its arguments. Treat it as read-only; `dataclasses.replace`-like changes go
            through `msgspec.structs.replace`.
        provider_id: The provider's id where it could not be used as `id`.
        invalid: Why the call cannot be run, or "".
    """

    id: str
    name: str
    arguments: dict[str, Any] = {}
    provider_id: str = ""
    invalid: str = ""


class Usage(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="usage", gc=False):
    """Tokens of one model call, as the provider counts them."""

    input_tokens: int = 0
    output_tokens: int = 0


class CallOutcome(StrEnum):
    """How a tool call ended. Kinds, not strings in a text: a refusal and an interruption are told apart here."""

    COMPLETED = "completed"
    FAILED = "failed"
    DENIED = "denied"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"


class SystemMessage(Struct, frozen=True, tag_field="role", tag="system", gc=False):
    content: str


class UserMessage(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="user", gc=False):
    content: str
    parts: tuple[Part, ...] = ()


class AssistantMessage(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="assistant", gc=False):
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    stop: str = ""
    usage: Usage | None = None


class ToolMessage(Struct, frozen=True, omit_defaults=True, tag_field="role", tag="tool", gc=False):
    """The one result of one call. `content` is what the model reads, usually JSON."""

    tool_call_id: str
    name: str
    content: str
    outcome: CallOutcome = CallOutcome.COMPLETED

    @property
    def success(self) -> bool:
        return self.outcome is CallOutcome.COMPLETED


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage


def drop_orphans(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages without the results that do not follow the message that made their call.

    No model takes a history with such a result, so a session whose history was cut in between could not go on.
    """
    kept: list[Message] = []
    calls: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in calls:
                continue
            calls.remove(message.tool_call_id)
        else:
            calls = {call.id for call in message.tool_calls} if isinstance(message, AssistantMessage) else set()
        kept.append(message)
    return tuple(kept)


class ToolResult(Struct):
    """What a tool handed back, before it is stored. `after_tool` may change it in place.

    Attributes:
        content: What the model will read.
        success: False makes it a failed result; the run goes on.
        data: The value behind `content`, for application code; not stored.
    """

    content: str
    success: bool = True
    data: Any = None


class ToolDefinition(Struct, frozen=True, gc=False):
    """A tool as the model is told about it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]


# ---- what a model streams


class TextDelta(Struct, frozen=True, tag_field="type", tag="text_delta", gc=False):
    text: str


class ReasoningDelta(Struct, frozen=True, tag_field="type", tag="reasoning_delta", gc=False):
    text: str


class ToolCallDelta(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_call_delta", gc=False):
    """A piece of a tool call. The first non-empty `id` and `name` of an index win, `arguments` pieces are joined."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | None = None


class Stop(Struct, frozen=True, tag_field="type", tag="stop", gc=False):
    """The end of the message. A stream that ends without one was cut off.

    Attributes:
        reason: `stop`, `tool_calls`, or what the provider says (`length`, `content_filter`, ...).
    """

    reason: str = "stop"


ModelEvent = TextDelta | ReasoningDelta | ToolCallDelta | Usage | Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call: a shallow, frozen view. `dataclasses.replace` makes a changed one.

    Attributes:
        messages: The conversation so far, oldest first; every tool call in it has its result.
        tools: Local tools the model may call.
        server_tools: Provider-side tools, passed through as they are.
        session_id: Whose call this is.
        turn: Which model call of the run, from 1.
    """

    messages: Sequence[Message]
    tools: tuple[ToolDefinition, ...] = ()
    server_tools: tuple[Any, ...] = ()
    session_id: str = ""
    turn: int = 1
