"""Scenarios with extensions whose hooks wait: each of them is a place where something can happen."""

from collections.abc import AsyncIterator, Sequence

import trio

from actors import (
    AgentExtension,
    AgentRunContext,
    AssistantMessage,
    ModelEvent,
    ModelRequest,
    ToolCall,
    ToolResult,
    UserMessage,
)
from actors.agent.extension import CallNext, CallTool
from actors.agent.view import AgentEvent, AgentEventType
from actors.models.scripted import call, say
from actors.testing.sweep import Stage, scenario
from protocol.errors import Code
from tests.sweeps.meddling import SESSION
from tests.sweeps.stage_agent import USUAL, acting
from tests.sweeps.steering import steer
from tests.sweeps.tools import PLAN, fetch, todos

HOOKED = [*USUAL, "request+1:request", "request+2:request", "request+1:cancel", "request,stop"]


class EveryHook(AgentExtension):
    """Waits in every hook, a little or until it is cancelled.

    Args:
        name: Of this one.
        raises: The hook that raises, after its wait.
    """

    def __init__(self, name: str, raises: str = "") -> None:
        self.name = name
        self.raises = raises

    async def _wait(self, hook: str) -> None:
        await trio.lowlevel.checkpoint()
        if hook == self.raises:
            raise ValueError(hook)

    async def on_tool(self, context: AgentRunContext) -> None:
        await self._wait("on_tool")

    async def on_state(self, context: AgentRunContext) -> None:
        await self._wait("on_state")

    async def on_message(self, context: AgentRunContext) -> None:
        await self._wait("on_message")
        context.input_message = UserMessage(context.input_message.content)

    async def before_run(self, context: AgentRunContext) -> None:
        await self._wait("before_run")

    async def before_turn(self, context: AgentRunContext) -> None:
        await self._wait("before_turn")

    async def before_model(self, context: AgentRunContext, request: ModelRequest) -> None:
        await self._wait("before_model")

    async def on_model_request(
        self, context: AgentRunContext, request: ModelRequest, call_next: CallNext
    ) -> AsyncIterator[ModelEvent]:
        try:
            await self._wait("on_model_request")
            async for event in call_next(request):
                yield event
        finally:
            with trio.move_on_after(1, shield=True):
                await trio.lowlevel.checkpoint()

    async def after_model(self, context: AgentRunContext, response: AssistantMessage) -> None:
        await self._wait("after_model")

    async def before_tool(self, context: AgentRunContext, call: ToolCall) -> None:
        await self._wait("before_tool")

    async def on_tool_call(self, context: AgentRunContext, call: ToolCall, call_next: CallTool) -> ToolResult:
        await self._wait("on_tool_call")
        return await super().on_tool_call(context, call, call_next)

    async def after_tool(
        self, context: AgentRunContext, call: ToolCall, result: ToolResult, error: BaseException | None
    ) -> None:
        await self._wait("after_tool")

    async def after_turn(self, context: AgentRunContext, result: AssistantMessage) -> None:
        await self._wait("after_turn")

    async def after_run(self, context: AgentRunContext, result: AssistantMessage) -> None:
        await self._wait("after_run")
        context.emit("after_run", {"by": self.name})  # its caller gets it before the run is over

    async def on_success(self, context: AgentRunContext, result: AssistantMessage) -> None:
        await self._wait("on_success")

    async def on_error(self, context: AgentRunContext, error: BaseException) -> None:
        await self._wait("on_error")

    async def on_event(self, context: AgentRunContext, event: object) -> None:
        await self._wait("on_event")


class SlowAtTheEnd(AgentExtension):
    """Is told of each end of a run, and hangs: longer than it may."""

    async def on_error(self, context: AgentRunContext, error: BaseException) -> None:
        await trio.sleep_forever()

    async def on_event(self, context: AgentRunContext, event: object) -> None:
        if type(event).__name__ == "RunCancelledEvent":
            await trio.sleep_forever()


class Condense(AgentExtension):
    """Replaces the history before each turn but the first, and keeps something in the state."""

    async def before_turn(self, context: AgentRunContext) -> None:
        await trio.lowlevel.checkpoint()
        if context.record.turn:
            last: Sequence[object] = context.messages[-1:]
            kept = [UserMessage(f"so far {len(context.messages)}"), context.input_message]
            context.replace_messages(kept, reason=f"shorter than {len(last)}")
            await trio.lowlevel.checkpoint()
            context.set_state("turn", context.record.turn)


@scenario(faults=HOOKED, errors_in="r*")
async def every_hook_waits(stage: Stage) -> None:
    """Two extensions with a checkpoint in each hook, around a call of each kind."""
    turns = [
        [call("todo_write", todos("ipp"), id="t1"), call("fetch", {"n": 1}, id="f1"), call("none", id="n1")],
        say("done"),
    ]
    async with acting(stage, turns, tools=[fetch], extensions=[EveryHook("one"), PLAN]) as agent:
        await agent.perform()


@scenario(faults=[*USUAL, "steer", "steer+1:steer", "steer,request"], errors_in="r*")
async def steering_that_hooks_see(stage: Stage) -> None:
    """What a run is steered with goes through hooks that wait: one message after the other."""
    turns = [call("fetch", {"n": 1}, id="f1"), say("hm"), say("done")]
    async with acting(stage, turns, tools=[fetch], extensions=[EveryHook("one")]) as agent:
        stage.fault("steer", lambda: steer(agent, "swept"))

        def look(event: AgentEvent) -> None:
            if event.type is AgentEventType.TOOL_STARTED:
                steer(agent, "first")
                steer(agent, "second")

        agent.look = look
        await agent.perform()


@scenario(faults=HOOKED, errors_in="r*")
async def wrappers_of_a_failing_run(stage: Stage) -> None:
    """Two that wrap each other; the inner one raises when all seems well, and both are told of it."""
    extensions = [EveryHook("outer"), EveryHook("inner", raises="on_success"), SlowAtTheEnd()]
    async with acting(stage, [say("done")], extensions=extensions, allowed=[Code.EXTENSION_FAILED]) as agent:
        await agent.watch()
        await agent.consume(expected="run_failed")
        extensions[1].raises = ""  # type: ignore[attr-defined]
        await agent.again()


@scenario(faults=["cancel", "request", "session", "stop", "close", "error", "request+1:request"], errors_in="r*")
async def history_replaced(stage: Stage) -> None:
    """A hook replaces the history in the middle of the run; the results of the next turn stand behind it."""
    turns = [
        [call("fetch", {"n": 1}, id="f1"), call("fetch", {"n": 2}, id="f2")],
        call("fetch", {"n": 1}, id="f3"),
        say("done"),
    ]
    async with acting(stage, turns, tools=[fetch], extensions=[Condense()]) as agent:
        await agent.watch()
        await agent.consume()
        if agent.undisturbed:
            assert "f1" not in agent.results() and agent.session is not None
            assert (agent.session.state.state or {}) == {"turn": 2}, agent.session.state.state
        await agent.again()
        assert agent.agent.session(SESSION).todos is None
