"""The snapshot of a session as a client reads it: only what is shown, and what is not known is passed over. Pure."""

from typing import Any

import msgspec
from msgspec import Struct

from actors.client.blocks import Block, Prompted, Said
from protocol.asks import Ask
from protocol.chat import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from protocol.todos import TodoList

HISTORY_SHOWN = 20


class PartialText(Struct):
    message: str = ""
    text: str = ""


class CallState(Struct):
    call: ToolCall
    started: bool = False
    result: ToolMessage | None = None


class RunState(Struct):
    id: str
    calls: list[CallState] = []
    partial: PartialText | None = None


class Snapshot(Struct):
    seq: int = 0
    status: str = ""
    run: RunState | None = None
    messages: list[dict[str, Any]] = []
    asks: list[Ask] = []
    todos: TodoList | None = None


def said_before(raw: dict[str, Any]) -> list[Block]:
    try:
        message = msgspec.convert(raw, Message)
    except msgspec.ValidationError:
        return []  # a kind of message of a later version
    if isinstance(message, UserMessage):
        return [Prompted(message.content)]
    if isinstance(message, AssistantMessage) and message.content.strip():
        return [Said(message.content)]
    return []
