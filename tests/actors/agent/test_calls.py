import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    AgentEventType,
    AgentExtension,
    AgentRunContext,
    AskUserExtension,
    AssistantMessage,
    TodoWriteExtension,
    ToolCall,
    ToolMessage,
    ToolResult,
    tool,
)
from actors.agent.extension import CallTool
from actors.models.scripted import call, say
from protocol import decisions
from protocol.limits import Limits
from tests.faults.stores import SlowStore
from tests.scenarios.staging import ask, kinds, staged, until, until_asked, write

T = AgentEventType


@tool
async def echo(text: str) -> str:
    await trio.lowlevel.checkpoint()
    return text


async def _results(script: list[Any], **options: Any) -> list[ToolMessage]:
    async with staged(script, **options) as agent:
        await agent.run("go")
        return [m for m in agent.session().history if isinstance(m, ToolMessage)]


def _error(message: ToolMessage) -> dict[str, Any]:
    assert message.outcome == "failed"
    error: dict[str, Any] = json.loads(message.content)["error"]
    return error


async def test_results_enter_the_history_in_call_order_whatever_ends_first(autojump_clock: MockClock) -> None:
    @tool
    async def sleep(s: int) -> str:
        await trio.sleep(s)
        return f"slept {s}"

    turn = [call("sleep", {"s": s}, id=f"c{s}") for s in (3, 1, 2)]
    async with staged([turn, say("done")], tools=[sleep]) as agent, agent.stream("go") as events:
        ended = [e.tool_calls[0].id async for e in events if e.type is T.TOOL_COMPLETED]
        assert ended == ["c1", "c2", "c3"], "each result is shown when it is there"
        results = [m for m in agent.session().history if isinstance(m, ToolMessage)]
        assert [m.content for m in results] == ["slept 3", "slept 1", "slept 2"]


async def test_a_single_call_runs_in_the_runs_own_task(autojump_clock: MockClock) -> None:
    names: list[str] = []

    @tool
    async def where() -> str:
        names.append(trio.lowlevel.current_task().name)
        return "there"

    await _results([call("where"), [call("where"), call("where")], say("done")], tools=[where])
    assert names[0] == "r2" and names[1] == names[2] != "r2"


async def test_inline_tools_run_first_in_call_order(autojump_clock: MockClock) -> None:
    turn = [call("echo", {"text": "a"}, id="c1"), write("ip", id="c2"), write("ci", id="c3")]
    async with staged([turn, say("done")], tools=[echo]) as agent, agent.stream("go") as events:
        started = [e.tool_calls[0].id async for e in events if e.type is T.TOOL_STARTED]
    assert started == ["c2", "c3", "c1"]


async def test_calls_that_cannot_run_say_why_and_never_start(autojump_clock: MockClock) -> None:
    turn = [call("nobody", id="c1"), call("echo", "[1]", id="c2"), call("echo", {"text": 7}, id="c3")]
    async with staged([turn, say("done")], tools=[echo], extensions=[]) as agent, agent.stream("go") as events:
        seen = await kinds(events)
        results = [m for m in agent.session().history if isinstance(m, ToolMessage)]
    unknown, invalid, misfit = map(_error, results)
    assert unknown == {"code": "tool.unknown", "message": "there is no tool 'nobody'; known: echo"}
    assert invalid["code"] == "call.invalid"
    assert misfit["code"] == "tool.invalid_args" and misfit["details"][0]["path"] == "text"
    assert seen.count("tool_started") == 1


async def test_without_any_tool_the_list_of_known_ones_is_none(autojump_clock: MockClock) -> None:
    (result,) = await _results([call("nobody"), say("done")], extensions=[])
    assert _error(result)["message"] == "there is no tool 'nobody'; known: none"


async def test_before_tool_is_asked_in_call_order_and_may_fail_its_call(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    class Guard(AgentExtension):
        async def before_tool(self, context: AgentRunContext, call: ToolCall) -> None:
            asked.append(call.id)
            if call.id == "c2":
                raise PermissionError("not you")
            if call.id == "c3":
                raise SystemExit

    class Second(AgentExtension):
        async def before_tool(self, context: AgentRunContext, call: ToolCall) -> None:
            asked.append(f"second {call.id}")

    turn = [call("echo", {"text": "x"}, id=f"c{n}") for n in (1, 2, 3)]
    one, two, three = await _results([turn, say("done")], tools=[echo], extensions=[Guard(), Second()])
    assert asked == ["c1", "second c1", "c2", "c3"]
    assert one.content == "x"
    assert _error(two) == {"code": "tool.failed", "message": "PermissionError: not you"}
    assert "Guard ended with SystemExit" in _error(three)["message"]


async def test_a_wrapper_may_change_the_call_and_the_history_keeps_what_the_model_said(
    autojump_clock: MockClock,
) -> None:
    class Loud(AgentExtension):
        async def on_tool_call(self, context: AgentRunContext, call: ToolCall, call_next: CallTool) -> ToolResult:
            call.arguments["text"] = call.arguments["text"].upper()
            result = await call_next(call)
            return ToolResult(result.content + "!")

    script = [call("echo", {"text": "hi"}, id="c1"), say("done")]
    async with staged(script, tools=[echo], extensions=[Loud()]) as agent:
        await agent.run("go")
        said, result = agent.session().history[1:3]
        assert said.tool_calls[0].arguments == {"text": "hi"}  # type: ignore[union-attr]
        assert result.content == "HI!"


async def test_a_wrapper_also_wraps_inline_tools(autojump_clock: MockClock) -> None:
    class Counting(AgentExtension):
        calls = 0

        async def on_tool_call(self, context: AgentRunContext, call: ToolCall, call_next: CallTool) -> ToolResult:
            type(self).calls += 1
            return await call_next(call)

    (result,) = await _results([write("ip"), say("done")], extensions=[Counting(), TodoWriteExtension()])
    assert result.success and Counting.calls == 1


async def test_a_wrapper_that_returns_no_result_fails_the_call(autojump_clock: MockClock) -> None:
    class Wrong(AgentExtension):
        async def on_tool_call(self, context: AgentRunContext, call: ToolCall, call_next: CallTool) -> Any:
            return "text"

    (result,) = await _results([call("echo", {"text": "x"}), say("d")], tools=[echo], extensions=[Wrong()])
    assert "echo was wrapped into str, which is no ToolResult" in _error(result)["message"]


async def test_after_tool_sees_the_original_error_and_changes_what_is_stored(autojump_clock: MockClock) -> None:
    seen: list[tuple[str, BaseException | None]] = []

    class Editor(AgentExtension):
        async def after_tool(
            self, context: AgentRunContext, call: ToolCall, result: ToolResult, error: BaseException | None
        ) -> None:
            seen.append((call.id, error))
            result.content = f"edited {call.id}"

    @tool
    async def boom() -> str:
        raise LookupError("gone")

    turn = [call("echo", {"text": "x"}, id="c1"), call("boom", id="c2")]
    one, two = await _results([turn, say("done")], tools=[echo, boom], extensions=[Editor()])
    assert (one.content, one.outcome, two.content, two.outcome) == ("edited c1", "completed", "edited c2", "failed")
    assert sorted((i, type(e).__name__) for i, e in seen) == [("c1", "NoneType"), ("c2", "LookupError")]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError("no"), "Refusing refused the result of echo: PermissionError: no"),
        (SystemExit(), "Refusing refused the result of echo: RuntimeError: it ended with SystemExit, though nobody "
                       "cancelled or stopped it"),
    ],
)  # fmt: skip
async def test_after_tool_that_raises_keeps_the_result_out(
    autojump_clock: MockClock, error: BaseException, text: str
) -> None:
    class Refusing(AgentExtension):
        async def after_tool(
            self, context: AgentRunContext, call: ToolCall, result: ToolResult, error_: BaseException | None
        ) -> None:
            raise error

    (result,) = await _results([call("echo", {"text": "x"}), say("d")], tools=[echo], extensions=[Refusing()])
    assert _error(result) == {"code": "extension.failed", "message": text}


async def test_a_result_that_cannot_be_kept_is_an_error_that_says_it_ran(autojump_clock: MockClock) -> None:
    @tool
    async def much() -> str:
        return "x" * 5_000

    @tool
    async def odd() -> ToolResult:
        return ToolResult("\ud800")

    @tool
    async def fits() -> str:
        return "x" * 1_500

    turn = [call("much"), call("odd"), call("fits")]
    options: dict[str, Any] = {"tools": [much, odd, fits], "limits": Limits(max_event_bytes=2_000)}
    large, unsendable, kept = await _results([turn, say("d")], **options)
    assert _error(large)["code"] == "event.too_large"
    assert _error(large)["message"].startswith("much ran, but its result cannot be kept: ")
    assert _error(unsendable)["code"] == "event.unsendable"
    assert kept.outcome == "completed"


async def test_an_unsuccessful_result_is_a_failed_one(autojump_clock: MockClock) -> None:
    @tool
    async def half() -> ToolResult:
        return ToolResult("not all", success=False)

    async with staged([call("half"), say("done")], tools=[half]) as agent, agent.stream("go") as events:
        failed = await until(events, T.TOOL_FAILED)
        assert failed.code == "tool.failed" and failed.error == "not all"
        await events.final()


async def test_a_tool_starts_only_when_its_start_is_kept(autojump_clock: MockClock) -> None:
    store = SlowStore(delay_s=1.0)
    kept: list[str] = []

    @tool
    async def effect() -> str:
        kept.append(type(store.logs["s"].events[-1]).__name__)
        return "done"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        async with staged([call("effect"), say("done")], tools=[effect], store=store) as agent:
            await agent.run("go", session_id="s")
        nursery.cancel_scope.cancel()
    assert kept == ["ToolStarted"]


@pytest.mark.parametrize("wrapped", [False, True])
async def test_what_is_all_on_the_record_starts_before_its_start_is_kept(
    wrapped: bool, autojump_clock: MockClock
) -> None:
    """An answer and the result that it is are kept together; with somebody around the tool, one after the other."""
    class Wrapper(AgentExtension):
        async def on_tool_call(self, context: AgentRunContext, call: ToolCall, call_next: CallTool) -> ToolResult:
            return await call_next(call)

    store = SlowStore(delay_s=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        async with staged(
            [ask("q1"), say("done")], store=store, extensions=[AskUserExtension(), *([Wrapper()] if wrapped else [])]
        ) as agent:
            await agent.session("s").prompt("go")
            await trio.sleep(60)
            session = agent.find("s")
            assert session is not None and session.committed == session.state.seq
            before = session.committed
            session.act("", decisions.answer, "q1", {"tool_call_id": "q1", "answer": "x"}, via="test")
            await wait_all_tasks_blocked()
            assert session.committed == before
            result = any(isinstance(message, ToolMessage) for message in session.state.messages)
            assert result != wrapped, "it has the result before the answer is kept"
            await agent.session("s").wait_idle()
        nursery.cancel_scope.cancel()


async def test_what_works_is_named_while_it_works(autojump_clock: MockClock) -> None:
    @tool
    async def slow() -> str:
        await trio.sleep(1)
        return "x"

    async with staged([call("slow", id="c1"), say("done")], tools=[slow]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        live = session.live(session.state.root)
        assert live is not None and live.working == {"c1": "slow"}
        await agent.session("s").wait_idle()
        assert live.working == {}


async def test_a_call_with_an_open_ask_waits_in_its_own_task(autojump_clock: MockClock) -> None:
    async with staged([[ask("q1"), call("echo", {"text": "x"}, id="c1")], say("done")], tools=[echo]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
            assert (await until(events, T.TOOL_COMPLETED)).tool_calls[0].id == "c1"
            await agent.session().answer("q1", "y")
            await events.final()


async def test_a_result_that_is_no_text_is_the_failure_of_its_call_alone_f21(autojump_clock: MockClock) -> None:
    @tool
    async def number() -> ToolResult:
        await trio.lowlevel.checkpoint()
        content: Any = 7
        return ToolResult(content)

    turn = [call("echo", {"text": "a"}), call("number"), call("echo", {"text": "b"})]
    first, second, third = await _results([turn, say("done")], tools=[echo, number])
    assert (first.content, third.content) == ("a", "b")
    assert _error(second)["code"] == "tool.failed"
    assert _error(second)["message"] == "number ran, but its result is int, not text"


async def test_what_a_tool_does_to_its_arguments_is_not_done_to_the_history_f04(autojump_clock: MockClock) -> None:
    @tool
    async def spoil(anything: dict[str, Any]) -> str:
        await trio.lowlevel.checkpoint()
        anything["deep"]["list"][0]["x"] = "spoilt"
        return "done"

    @tool(inline=True)
    def spoil_inline(anything: dict[str, Any]) -> str:
        anything["deep"]["list"][0]["x"] = "spoilt"
        return "done"

    arguments: dict[str, Any] = {"anything": {"deep": {"list": [{"x": 1}]}}}
    turn = [call("spoil", arguments), call("spoil_inline", arguments)]
    async with staged([turn, say("x")], tools=[spoil, spoil_inline]) as agent:
        await agent.run("go")
        made = agent.session().history[1]
        assert isinstance(made, AssistantMessage)
        for each in made.tool_calls:
            assert each.arguments == {"anything": {"deep": {"list": [{"x": 1}]}}}


async def test_a_wrapper_may_name_its_parameters_as_it_likes(autojump_clock: MockClock) -> None:
    class Wraps(AgentExtension):
        async def on_tool_call(self, run: AgentRunContext, what: ToolCall, go_on: CallTool) -> ToolResult:  # type: ignore[override]
            return await go_on(what)

    (result,) = await _results([call("echo", {"text": "a"}), say("x")], tools=[echo], extensions=[Wraps()])
    assert result.content == "a"
