"""Actors on trio, and on them a runtime for agent sessions.

The public names are loaded when they are first used, so that `import actors.runtime` alone stays small.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.agent.agent import Agent, open_agent
    from actors.agent.context import AgentRunContext
    from actors.agent.extension import AgentExtension, AgentRunConfig, ExternalEvent, RunCancelledEvent
    from actors.agent.handle import SessionHandle
    from actors.agent.memory import MemoryStore
    from actors.agent.ports import Model
    from actors.agent.stream import RunStream
    from actors.agent.tools import Tool, tool
    from actors.agent.view import AgentEvent, AgentEventType, AskUserEvent
    from actors.extensions.ask_user import AskUserExtension
    from actors.extensions.external import ExternalEventExtension
    from actors.extensions.todo import TodoWriteExtension
    from actors.gateway import Gateway, open_gateway
    from actors.models.checklist import ChecklistModel
    from actors.models.scripted import ScriptedModel
    from protocol.chat import (
        AssistantMessage,
        ModelEvent,
        ModelRequest,
        SystemMessage,
        ToolCall,
        ToolMessage,
        ToolResult,
        UserMessage,
    )
    from protocol.errors import ModelError, RuleViolation, RunCancelled, RunFailed, ToolError
    from protocol.limits import Limits, Retention
    from protocol.todos import TodoItem, TodoWriteResult

__version__ = "0.1.0"

_WHERE = {
    "Agent": "actors.agent.agent",
    "AgentEvent": "actors.agent.view",
    "AgentEventType": "actors.agent.view",
    "AgentExtension": "actors.agent.extension",
    "AgentRunConfig": "actors.agent.extension",
    "AgentRunContext": "actors.agent.context",
    "AskUserEvent": "actors.agent.view",
    "AskUserExtension": "actors.extensions.ask_user",
    "AssistantMessage": "protocol.chat",
    "ChecklistModel": "actors.models.checklist",
    "ExternalEvent": "actors.agent.extension",
    "ExternalEventExtension": "actors.extensions.external",
    "Gateway": "actors.gateway",
    "Limits": "protocol.limits",
    "Retention": "protocol.limits",
    "MemoryStore": "actors.agent.memory",
    "Model": "actors.agent.ports",
    "ModelError": "protocol.errors",
    "ModelEvent": "protocol.chat",
    "ModelRequest": "protocol.chat",
    "RuleViolation": "protocol.errors",
    "RunCancelled": "protocol.errors",
    "RunCancelledEvent": "actors.agent.extension",
    "RunFailed": "protocol.errors",
    "RunStream": "actors.agent.stream",
    "ScriptedModel": "actors.models.scripted",
    "SessionHandle": "actors.agent.handle",
    "SystemMessage": "protocol.chat",
    "TodoItem": "protocol.todos",
    "TodoWriteExtension": "actors.extensions.todo",
    "TodoWriteResult": "protocol.todos",
    "Tool": "actors.agent.tools",
    "ToolCall": "protocol.chat",
    "ToolError": "protocol.errors",
    "ToolMessage": "protocol.chat",
    "ToolResult": "protocol.chat",
    "UserMessage": "protocol.chat",
    "open_agent": "actors.agent.agent",
    "open_gateway": "actors.gateway",
    "tool": "actors.agent.tools",
}

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentEventType",
    "AgentExtension",
    "AgentRunConfig",
    "AgentRunContext",
    "AskUserEvent",
    "AskUserExtension",
    "AssistantMessage",
    "ChecklistModel",
    "ExternalEvent",
    "ExternalEventExtension",
    "Gateway",
    "Limits",
    "MemoryStore",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelRequest",
    "Retention",
    "RuleViolation",
    "RunCancelled",
    "RunCancelledEvent",
    "RunFailed",
    "RunStream",
    "ScriptedModel",
    "SessionHandle",
    "SystemMessage",
    "TodoItem",
    "TodoWriteExtension",
    "TodoWriteResult",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolMessage",
    "ToolResult",
    "UserMessage",
    "__version__",
    "open_agent",
    "open_gateway",
    "tool",
]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'actors' has no attribute {name!r}")
    value = getattr(import_module(where), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
