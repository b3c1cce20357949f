"""`TodoWriteExtension`: the model's `todo_write` tool over the sequential policy of `protocol.todos`.

The list hangs on the run's record, so it is gone when the run is, however the run ends; the terminal event carries it.
"""

from typing import Annotated, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from actors.agent.context import AgentRunContext
from actors.agent.extension import AgentExtension
from actors.agent.tools import Tool
from protocol import todos as rules
from protocol.chat import ToolCall, ToolResult
from protocol.errors import Code, Detail, ToolError
from protocol.ids import check_session_id, is_blank
from protocol.limits import DEFAULT_LIMITS
from protocol.todos import TodoItem, TodoStatus, TodoWriteResult

DESCRIPTION = (
    "Plan and show progress. Submit the complete ordered list on every call. The first call starts the first item as "
    "in_progress and leaves the rest pending. Each later call repeats the list or completes exactly the item in "
    "progress, whereupon the next one is in_progress; content and order stay as they are."
)

_encode = msgspec.json.Encoder().encode
_STATUS = {status.value: status for status in TodoStatus}  # five times as fast as calling the enum


class TodoArgument(BaseModel):
    """One item of the list."""

    model_config = ConfigDict(extra="forbid", strict=True)

    content: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=DEFAULT_LIMITS.max_todo_chars),
        Field(description="What is to be done."),
    ]
    status: Annotated[Literal["pending", "in_progress", "completed"], Field(description="Its state.")]


class TodoWriteArguments(BaseModel):
    """The arguments of `todo_write`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    todos: list[TodoArgument]


def _arguments(max_todos: int) -> type[TodoWriteArguments]:
    """Make the argument model for a list of at most `max_todos` items."""
    bounded = Field(description="The whole list, in order.", min_length=1, max_length=max_todos)
    return create_model("TodoWriteArguments", __base__=TodoWriteArguments, todos=(list[TodoArgument], bounded))


class TodoWriteExtension(AgentExtension):
    """Registers `todo_write` and holds the model to sequential progress.

    Args:
        max_todos: Items a list may have, at least 1.
        one_advance_per_turn: Refuse to complete a second item in one turn. Off, writes of one turn are judged in call
            order, each against the list the one before left.
    """

    def __init__(self, *, max_todos: int = DEFAULT_LIMITS.max_todos, one_advance_per_turn: bool = False) -> None:
        if max_todos < 1:
            raise ValueError(f"a list has room for at least one item, not {max_todos}")
        self.one_advance_per_turn = one_advance_per_turn
        self.tool = Tool.from_model(
            "todo_write", DESCRIPTION, _arguments(max_todos), self._write, inline=True, on_record=True
        )

    async def on_tool(self, context: AgentRunContext) -> None:
        """Register `todo_write` for this run."""
        context.register_tool(self.tool)

    def todos(self, session_id: str) -> TodoWriteResult | None:
        """Return the latest validated list of the session's active run, if it has one. Never a checkpoint.

        Raises:
            RuleViolation: `session.invalid`.
        """
        check_session_id(session_id)
        for agent in self._agents:
            session = agent.find(session_id)
            run = session.state.run if session is not None else None
            if run is not None and run.todos is not None:
                return rules.result(run.todos)
        return None

    def clear(self, session_id: str) -> None:
        """Forget one session's list and no other's; the next write is a first write again. Never a checkpoint.

        Raises:
            RuleViolation: `session.invalid`.
        """
        check_session_id(session_id)
        for agent in self._agents:
            agent.clear_todos(session_id)

    def _write(self, context: AgentRunContext, call: ToolCall, arguments: TodoWriteArguments) -> ToolResult:
        items: list[TodoItem] = []
        for index, item in enumerate(arguments.todos):
            if is_blank(item.content):
                where = f"todos[{index}].content"
                detail = Detail(where, "blank", "the content is blank")
                raise ToolError("the content is blank", code=Code.TOOL_INVALID_ARGS, details=(detail,))
            given = call.arguments["todos"][index]["content"]
            # The message keeps what was given: where nothing was stripped from it, the list shares it.
            items.append(TodoItem(given if given == item.content else item.content, _STATUS[item.status]))
        record = context.record
        written = rules.write_sequential(
            record.todos,
            items,
            one_advance=self.one_advance_per_turn,
            advanced_this_turn=record.advanced_in == record.turn,
            revision=record.revision,
        )
        context.write_todos(written, call.id)
        result = rules.result(written)
        return ToolResult(_encode(result).decode(), data=result)
