"""`AskUserExtension`: the model's `ask_user` tool, which suspends until a person has answered.

The question is open before anybody can see it, all questions of a turn are open at once, and other tools of the turn
run meanwhile. An answer authorises nothing: it is text for the model.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from actors.agent.context import AgentRunContext
from actors.agent.tools import Tool
from actors.extensions.external import ExternalEventExtension
from protocol.asks import Option, Question, check_question
from protocol.chat import ToolCall, ToolResult
from protocol.errors import Code, ToolError
from protocol.limits import DEFAULT_LIMITS, Limits

DESCRIPTION = (
    "Ask the user a question and wait for the answer. Use it only when you cannot go on without knowing. Give options "
    "where the likely answers are known; the user may always answer in their own words."
)


class AskOption(BaseModel):
    """An option with a description."""

    model_config = ConfigDict(extra="forbid", strict=True)

    label: Annotated[str, Field(description="What is chosen.")]
    description: Annotated[str, Field(description="What choosing it means.")] = ""


class AskUserArguments(BaseModel):
    """The arguments of `ask_user`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    question: Annotated[str, Field(description="The question, complete in itself.")]
    options: Annotated[
        list[str | AskOption] | None, Field(description="Answers to choose from, all different.", max_length=1_000)
    ] = None
    allow_multiple: Annotated[bool, Field(description="Several options may be chosen.")] = False


class AskUserExtension(ExternalEventExtension):
    """Registers `ask_user`; see `ExternalEventExtension` for how an answer comes in.

    Args:
        limits: How long questions and options may be, and how many options there may be.
    """

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        # Inline: when the body runs the answer is on the record. Built once, its schema is costly.
        self.tool = Tool.from_model(
            "ask_user", DESCRIPTION, AskUserArguments, self._answer, inline=True, on_record=True
        )

    async def on_tool(self, context: AgentRunContext) -> None:
        """Register `ask_user` for this run."""
        context.register_tool(self.tool)

    async def before_tool(self, context: AgentRunContext, call: ToolCall) -> None:
        """Open the ask of an `ask_user` call, registered and shown in one step.

        Raises:
            ToolError: `tool.invalid_args` - nothing is shown, the call fails.
        """
        if call.name != self.tool.name or context.tool(call.name) is not self.tool:
            return
        arguments = self.tool.parse(call)
        assert isinstance(arguments, AskUserArguments)
        options = tuple(
            Option(option) if isinstance(option, str) else Option(option.label, option.description)
            for option in arguments.options or ()
        )
        wrong = check_question(
            arguments.question, options, multiple=arguments.allow_multiple, limits=self.limits
        )
        if wrong:
            raise ToolError("the question cannot be put", code=Code.TOOL_INVALID_ARGS, details=wrong)
        question = Question("q1", arguments.question, options=options, multiple=arguments.allow_multiple)
        context.open_ask(call.id, (question,))

    def _answer(self, context: AgentRunContext, call: ToolCall, arguments: AskUserArguments) -> ToolResult:
        return self.outcome(context, call)
