"""What a checklist's conversation says about its progress: what was asked, called and written, and what came of it.

Reads only what follows the last user message, so nothing has to be remembered between two model calls.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from re import compile as pattern
from typing import Any, cast

from actors.models.checklist_steps import Step, StepKind
from protocol.chat import AssistantMessage, CallOutcome, ModelRequest, ToolMessage, UserMessage

LIST_TOOL = "todo_write"
ASK_TOOL = "ask_user"

_OWN_ID = pattern(r"(step|list)-(\d{1,9})")
_RETRIED = (CallOutcome.INTERRUPTED, CallOutcome.SKIPPED)


@dataclass(slots=True)
class Progress:
    """Where the work stands.

    Attributes:
        markdown: The last user message.
        tools: Names of the tools there are.
        acted: By the step's place, from 0: the result of its question or call.
        completed: How many steps the list has as completed.
        has_written: The list was written, or that was tried.
        one_at_a_time: Only one step may be completed in a turn.
        list_problem: Why the list was given up, or "".
    """

    markdown: str = ""
    tools: frozenset[str] = frozenset()
    acted: dict[int, ToolMessage | None] = field(default_factory=dict[int, "ToolMessage | None"])
    completed: int = 0
    has_written: bool = False
    one_at_a_time: bool = False
    list_problem: str = ""

    @property
    def has_list_tool(self) -> bool:
        return LIST_TOOL in self.tools

    @property
    def keeps_list(self) -> bool:
        return self.has_list_tool and not self.list_problem

    def can_act(self, step: Step) -> bool:
        """Say whether the step is more than a line to tick off: its question or tool call is possible."""
        if step.kind is StepKind.QUESTION:
            return ASK_TOOL in self.tools
        return step.kind is StepKind.TOOL and step.tool in self.tools

    def is_due(self, steps: Sequence[Step], place: int) -> bool:
        """Say whether the step at `place` has still to be asked or called."""
        return place < len(steps) and place not in self.acted and self.can_act(steps[place])


def read_progress(request: ModelRequest) -> Progress:
    """Return what has been done since the last user message."""
    start = next((i for i in reversed(range(len(request.messages))) if type(request.messages[i]) is UserMessage), None)
    progress = Progress(tools=frozenset(tool.name for tool in request.tools))
    if start is None:
        return progress
    progress.markdown = cast("UserMessage", request.messages[start]).content
    since = request.messages[start + 1 :]
    results = {message.tool_call_id: message for message in since if isinstance(message, ToolMessage)}
    for message in since:
        if isinstance(message, AssistantMessage):
            _read_turn(progress, message, results)
    return progress


def _read_turn(progress: Progress, message: AssistantMessage, results: dict[str, ToolMessage]) -> None:
    written = False
    for call in message.tool_calls:
        own = _OWN_ID.fullmatch(call.provider_id or call.id)
        if own is None:
            continue
        result, number = results.get(call.id), int(own[2])
        if own[1] == "step":
            progress.acted[number - 1] = result
        elif result is not None and result.success:
            progress.has_written = written = True
            progress.completed = max(progress.completed, number)
        elif result is not None and result.outcome not in _RETRIED:
            progress.has_written = True
            if written:  # the first was taken: the list takes one write a turn, the rest come later
                progress.one_at_a_time = True
            else:
                progress.list_problem = error_text(result)


def error_text(result: ToolMessage) -> str:
    """Return what a failed result says, on whatever shape it has."""
    error = json_object(result.content).get("error")
    text = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
    return text if isinstance(text, str) and text else str(result.outcome)


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object that `text` is, or an empty one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
