"""Extensions that raise, hang, wrap or share: what becomes of the run, and that nothing else suffers."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors import (
    AgentExtension,
    AgentRunContext,
    AskUserExtension,
    ExternalEvent,
    ModelEvent,
    ModelRequest,
    RunCancelledEvent,
    RunFailed,
    ScriptedModel,
    TodoWriteExtension,
    ToolCall,
    ToolResult,
    open_agent,
)
from actors.agent.extension import AgentRunConfig, CallNext, CallTool
from actors.models.scripted import Turn, say, stall
from protocol.chat import Stop, TextDelta
from protocol.limits import Limits
from tests.scenarios.staging import ask, staged, until_asked, write

FAILING_HOOKS = (
    "on_tool", "on_state", "on_message", "before_run", "before_turn", "before_model", "on_model_request",
    "after_model", "after_turn", "after_run", "on_success",
)  # fmt: skip


def _make(hooks: dict[str, Any]) -> AgentExtension:
    kind: Any = type("Raising", (AgentExtension,), hooks)
    made: AgentExtension = kind()
    return made


def _raising(hook: str, error: BaseException) -> AgentExtension:
    """An extension whose one hook raises."""
    if hook == "on_model_request":

        async def wrap(
            self: Any, context: AgentRunContext, request: ModelRequest, call_next: CallNext
        ) -> AsyncIterator[ModelEvent]:
            raise error
            yield

        return _make({hook: wrap})

    async def fail(self: Any, *args: Any) -> None:
        raise error

    return _make({hook: fail})


@pytest.mark.parametrize("hook", FAILING_HOOKS)
async def test_a_hook_that_raises_fails_its_run_and_the_next_session_is_untouched(
    autojump_clock: MockClock, hook: str
) -> None:
    told: list[str] = []

    class Told(AgentExtension):
        async def on_error(self, context: AgentRunContext, error: BaseException) -> None:
            told.append(f"{type(error).__name__}: {error}")

        async def on_event(self, context: AgentRunContext, event: object) -> None:
            assert not isinstance(event, RunCancelledEvent)

    extensions = [_raising(hook, OSError("no disk")), Told(), TodoWriteExtension()]
    async with staged([[write("ip")], say("done")], extensions=extensions) as agent:
        with pytest.raises(RunFailed) as failed:
            await agent.run("go")
        if hook == "on_model_request":  # the model's stream, as far as the run can see
            assert str(failed.value) == "model.failed: the model raised OSError: no disk"
        else:
            assert str(failed.value) == "extension.failed: OSError: no disk"
    assert len(told) == 1 and "no disk" in told[0]


@pytest.mark.parametrize("hook", [*FAILING_HOOKS, "before_tool", "on_tool_call", "after_tool"])
async def test_a_hook_that_exits_neither_ends_the_session_nor_the_program(autojump_clock: MockClock, hook: str) -> None:
    extensions = [_raising(hook, SystemExit(4)), TodoWriteExtension()]
    async with staged([[write("ip")], say("done")], extensions=extensions) as agent:
        with pytest.raises(RunFailed) if hook in FAILING_HOOKS else trio.CancelScope():
            await agent.run("go")
        assert agent.session().status == "idle"


async def test_hooks_of_tools_that_raise_fail_their_call_only(autojump_clock: MockClock) -> None:
    for hook, code in (("before_tool", "tool.failed"), ("on_tool_call", "tool.failed"), ("after_tool", "extension.f")):
        extensions = [_raising(hook, OSError("no disk")), TodoWriteExtension()]
        async with staged([write("ip"), say("done")], extensions=extensions) as agent:
            assert (await agent.run("go")).content == "done"
            result = agent.session().history[2]
            assert result.outcome == "failed" and code in result.content, hook  # type: ignore[union-attr]


async def test_cleanup_that_hangs_is_bounded_and_the_others_are_told(autojump_clock: MockClock) -> None:
    told: list[str] = []

    class Hanging(AgentExtension):
        async def on_error(self, context: AgentRunContext, error: BaseException) -> None:
            await trio.sleep_forever()

    class Odd(AgentExtension):
        async def on_error(self, context: AgentRunContext, error: BaseException) -> None:
            raise SystemExit(1)

    class Last(AgentExtension):
        async def on_error(self, context: AgentRunContext, error: BaseException) -> None:
            told.append(str(error))

    extensions = [_raising("before_run", ValueError("bad")), Hanging(), Odd(), Last()]
    async with staged([say("x")], extensions=extensions, limits=Limits(cleanup_s=3.0)) as agent:
        began = trio.current_time()
        with pytest.raises(RunFailed, match=r"^extension\.failed: ValueError: bad$"):
            await agent.run("go")
        assert trio.current_time() - began == pytest.approx(3.0)
    assert told == ["bad"]


async def test_farewells_of_a_cancelled_run_are_finished_a08(autojump_clock: MockClock) -> None:
    said: list[str] = []

    class Farewell(AgentExtension):
        async def on_event(self, context: AgentRunContext, event: object) -> None:
            if isinstance(event, RunCancelledEvent):
                said.append("begins")
                await trio.sleep(1)
                said.append(f"ends: {event.reason}")

    async with staged([ask("q1")], extensions=[Farewell(), AskUserExtension()]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
            await agent.session().cancel("enough")
            assert agent.session().status == "cancelling"
            await agent.session().cancel("again")
        assert said == ["begins", "ends: enough"]


async def test_cleanup_that_is_cancelled_three_times_runs_once_a09(autojump_clock: MockClock) -> None:
    said: list[str] = []

    class Slow(AgentExtension):
        async def on_event(self, context: AgentRunContext, event: object) -> None:
            if isinstance(event, RunCancelledEvent):
                await trio.sleep(1)
                said.append("done")
                raise OSError("at its end")

    with trio.CancelScope() as outer:
        async with staged([ask("q1")], extensions=[Slow(), AskUserExtension()]) as agent:
            async with agent.stream("go") as events:
                await until_asked(events)
                session = agent.find(agent.session_id)
                assert session is not None
                for _ in range(3):
                    await agent.session().cancel()
                    await trio.sleep(0.01)
                outer.cancel()
                await trio.sleep_forever()
    assert said == ["done"]
    assert session is not None
    assert [type(event).__name__ for event in session.log].count("CancelRequested") == 1
    assert type(session.log[-1]).__name__ == "RunCancelled"


async def test_a_shielded_cleanup_waits_without_spinning_a07(autojump_clock: MockClock) -> None:
    class Slow(AgentExtension):
        async def on_event(self, context: AgentRunContext, event: object) -> None:
            if isinstance(event, RunCancelledEvent):
                await trio.sleep(5)

    class Steps(trio.abc.Instrument):
        count = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.count += 1

    steps = Steps()
    async with staged([ask("q1")], extensions=[Slow(), AskUserExtension()], limits=Limits(cleanup_s=5.0)) as agent:
        trio.lowlevel.add_instrument(steps)
        async with agent.stream("go") as events:
            await until_asked(events)
        trio.lowlevel.remove_instrument(steps)
    assert steps.count < 60, "something spins while the cleanup is shielded"


async def test_accept_that_raises_does_not_hide_the_event(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(AgentExtension):
        priority = 1

        def accept(self, config: AgentRunConfig | None, event: ExternalEvent) -> bool:
            raise OSError("broken")

    class Other(AgentExtension):
        def accept(self, config: AgentRunConfig | None, event: ExternalEvent) -> bool:
            return event.name == "ping"

    async with staged([say("x")], extensions=[Broken(), Other()]) as agent:
        with caplog.at_level(logging.CRITICAL + 1):
            assert agent.emit_external_event(ExternalEvent("ping")) == ["Other"]
            assert agent.emit_external_event(ExternalEvent("pong")) == []


async def test_wrappers_nest_and_are_closed_innermost_first(autojump_clock: MockClock) -> None:
    said: list[str] = []

    class Wrapper(AgentExtension):
        def __init__(self, name: str) -> None:
            self.name = name

        async def on_model_request(
            self, context: AgentRunContext, request: ModelRequest, call_next: CallNext
        ) -> AsyncIterator[ModelEvent]:
            said.append(f"{self.name} opens")
            try:
                async for event in call_next(request):
                    yield event
            finally:
                said.append(f"{self.name} closes")

        async def on_tool_call(self, context: AgentRunContext, call: ToolCall, call_next: CallTool) -> ToolResult:
            said.append(f"{self.name} calls")
            return await call_next(call)

    extensions = [Wrapper("outer"), Wrapper("inner"), TodoWriteExtension()]
    async with staged([[say("a"), stall()]], extensions=extensions) as agent:
        async with agent.stream("go") as events:
            async for event in events:
                if event.delta:
                    break
        assert said == ["outer opens", "inner opens", "inner closes", "outer closes"]
        said.clear()
    async with staged([write("ip"), say("x")], extensions=extensions) as agent:
        await agent.run("go")
        assert [word for word in said if "calls" in word] == ["outer calls", "inner calls"]


async def test_a_plain_iterator_may_be_a_models_stream(autojump_clock: MockClock) -> None:
    class Plain:
        def __init__(self) -> None:
            self.pieces: list[ModelEvent] = [TextDelta("hi"), Stop()]

        def __aiter__(self) -> "Plain":
            return self

        async def __anext__(self) -> ModelEvent:
            if not self.pieces:
                raise StopAsyncIteration
            return self.pieces.pop(0)

    class Model:
        def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            return Plain()

    class Wrapper(AgentExtension):
        async def on_model_request(
            self, context: AgentRunContext, request: ModelRequest, call_next: CallNext
        ) -> AsyncIterator[ModelEvent]:
            async for event in call_next(request):
                yield event

    async with staged(Model(), extensions=[Wrapper()]) as agent:
        assert (await agent.run("go")).content == "hi"


async def test_one_extension_serves_two_agents_and_answers_the_one_that_emits(autojump_clock: MockClock) -> None:
    shared, todo = AskUserExtension(), TodoWriteExtension()
    script: list[Turn] = [[write("ip"), ask("q1")], say("done")]
    async with (
        open_agent(ScriptedModel(script), name="one", extensions=[shared, todo]) as one,
        open_agent(ScriptedModel(script), name="two", extensions=[shared, todo]) as two,
        one.stream("go", session_id="s") as first,
        two.stream("go", session_id="s") as second,
    ):
        await until_asked(first)
        await until_asked(second)
        assert shared.pending
        event = ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": "for two"})
        assert two.emit_external_event(event, config=AgentRunConfig(session_id="s")) == ["AskUserExtension"]
        assert (await second.final()).content == "done"
        assert [record.tool_call_id for record in one.session("s").asks] == ["q1"]
        assert todo.todos("s") is not None
        one.emit_external_event(event, config=AgentRunConfig(session_id="s"))
        await first.final()
    assert not shared.pending and shared._agents == ()


async def test_pending_is_true_while_a_run_is_active(autojump_clock: MockClock) -> None:
    extension = AskUserExtension()
    async with staged([ask("q1")], extensions=[extension]) as agent:
        assert not extension.pending
        async with agent.stream("go") as events:
            await until_asked(events)
            assert extension.pending
        assert not extension.pending
