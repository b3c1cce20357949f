"""Calls that are interrupted, refused or cut off: one result each, of its own kind, and nobody else's is touched."""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    Agent,
    AgentEventType,
    AgentExtension,
    AgentRunContext,
    AskUserExtension,
    RunCancelled,
    RunFailed,
    ScriptedModel,
    ToolCall,
    ToolError,
    ToolMessage,
    tool,
)
from actors.models.scripted import Step, call, cut, say, stall
from protocol.asks import Question
from protocol.chat import AssistantMessage, ToolCallDelta
from tests.faults.invariants import check_history
from tests.scenarios.staging import ask, kinds, staged, until, until_asked, write

T = AgentEventType


def _results(agent: Agent, session_id: str | None = None) -> dict[str, ToolMessage]:
    return {m.tool_call_id: m for m in agent.session(session_id).history if isinstance(m, ToolMessage)}


@pytest.mark.parametrize("how", ["raises", "is cancelled by itself"])
async def test_the_end_of_a_sibling_takes_neither_list_nor_open_question_f21(
    autojump_clock: MockClock, how: str
) -> None:
    @tool
    async def boom() -> str:
        await trio.sleep(1)
        if how == "raises":
            raise OSError("boom")
        caught: list[trio.Cancelled] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                caught.append(error)
                raise
        raise caught[0]

    turn = [write("cip", id="c1"), ask("c2"), call("boom", id="c3")]
    async with staged([write("ipp", id="c0"), turn, say("done")], tools=[boom]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
            await until(events, T.TOOL_FAILED, "boom")
            todos = agent.session().todos
            assert todos is not None and todos.in_progress_index == 1
            assert agent.session().status == "waiting"
            await agent.session().answer("c2", "Postgres")
            assert (await events.final()).content == "done"
        outcomes = [m.outcome for m in _results(agent).values()]
        assert outcomes == ["completed", "completed", "completed", "failed"]


# ---- a stream that breaks off; a history that is cut

CUTS: dict[str, list[Step]] = {
    "name only": [ToolCallDelta(0, "c1", "effect")],
    "half of the arguments": [ToolCallDelta(0, "c1", "effect", '{"n": ')],
    "no finish": [ToolCallDelta(0, "c1", "effect", '{"n": 1}')],
    "the second incomplete": [ToolCallDelta(0, "c1", "effect", '{"n": 1}'), ToolCallDelta(1, "c2", "effect", '{"n"')],
}


@pytest.mark.parametrize("end", ["cut", "cancel"])
@pytest.mark.parametrize("where", CUTS)
async def test_no_call_of_a_message_that_was_not_finished_is_run_f06(
    autojump_clock: MockClock, where: str, end: str
) -> None:
    ran: list[int] = []

    @tool
    async def effect(n: int) -> str:
        ran.append(n)
        return "done"

    model = ScriptedModel([[say("a"), *CUTS[where], cut() if end == "cut" else stall()], say("fine")])
    async with staged(model, tools=[effect]) as agent:
        async with agent.stream("go") as events:
            if end == "cancel":
                for _ in range(len(CUTS[where])):
                    await until(events, T.TOOL_CALL_DELTA)
                await agent.session().cancel("stop")
            with pytest.raises(RunFailed if end == "cut" else RunCancelled) as failed:
                await events.final()
        assert str(failed.value).startswith("model.truncated: " if end == "cut" else "stop")
        assert (await agent.run("again")).content == "fine"
        assert ran == []
        assert not [m for m in agent.session().history if isinstance(m, AssistantMessage) and m.tool_calls]
        assert len(model.requests[-1].messages) == 2, "the retry starts clean"


async def test_a_history_cut_anywhere_around_an_interrupted_call_keeps_calls_with_their_results_f24(
    autojump_clock: MockClock,
) -> None:
    """Two cuts in a row at every position, as a compaction would make them."""
    cuts = [(first, second) for first in range(7) for second in range(7)]
    at = [(0, 0)]

    @tool
    async def sleep() -> str:
        await trio.sleep(60)
        return "slept"

    class Cutting(AgentExtension):
        async def before_turn(self, context: AgentRunContext) -> None:
            if context.input_message.content == "cut":
                for start in at[0]:
                    context.replace_messages(list(context.messages)[start:], reason="too long")

    turn = [call("sleep", id=""), call("sleep", id="")]
    for at[0] in cuts:
        model = ScriptedModel([turn, say("fine"), turn, say("fine")])
        async with staged(model, tools=[sleep], extensions=[Cutting()]) as agent:
            for prompt in ("go", "cut"):
                async with agent.stream(prompt) as events:
                    if prompt == "go":
                        await until(events, T.TOOL_STARTED)
                        await agent.session().cancel()
                    else:
                        await events.final()
            check_history(model.requests[-1].messages)
            check_history(agent.session().history)
async def test_what_a_tool_returns_from_inside_a_block_that_breaks_is_its_failure_and_is_stored_so_a27(
    autojump_clock: MockClock,
) -> None:
    """The value is lost in trio, so nobody may be shown it: the one result is the heartbeat's error."""

    @tool
    async def asks_and_beats(fails: bool) -> str:
        async with trio.open_nursery() as nursery:

            async def beat() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    if fails:
                        raise OSError("heartbeat")

            nursery.start_soon(beat)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            return "yes"

    turn = [call("asks_and_beats", {"fails": True}, id="c1"), call("asks_and_beats", {"fails": False}, id="c2")]
    for turns in ([turn, say("done")], [turn[0], turn[1], say("done")]):
        async with staged(turns, tools=[asks_and_beats]) as agent:
            async with agent.stream("go") as events:
                shown = {
                    event.tool_calls[0].id: event.message.content  # type: ignore[union-attr]
                    async for event in events
                    if event.type in (T.TOOL_COMPLETED, T.TOOL_FAILED)
                }
                assert (await events.final()).content == "done"
            stored = {m.tool_call_id: m for m in agent.session().history if isinstance(m, ToolMessage)}
            assert (stored["c1"].outcome, stored["c2"].outcome) == ("failed", "completed")
            assert "OSError: heartbeat" in stored["c1"].content and "yes" not in stored["c1"].content
            assert stored["c2"].content == "yes"
            assert shown == {key: message.content for key, message in stored.items()}


async def test_interrupted_and_refused_are_told_apart_by_kind_event_and_words_a29(autojump_clock: MockClock) -> None:
    written: list[int] = []

    @tool
    async def write_files() -> str:
        for number in range(1, 4):
            written.append(number)
            await trio.sleep(1)
        return "wrote 3"

    class Permission(AskUserExtension):
        async def before_tool(self, context: AgentRunContext, call: ToolCall) -> None:
            if call.id == "c2":
                context.open_ask(call.id, (Question("p1", "May it write?"),), answers_call=False)

        async def on_tool_call(self, context: AgentRunContext, call: ToolCall, call_next: Any) -> Any:
            asks = context.session.state.asks or {}
            if call.id in asks and asks[call.id].outcome != "answered":
                raise ToolError("the user refused it; nothing was run", code="call.denied")
            return await call_next(call)

    turns = [call("write_files", id="c1"), call("write_files", id="c2"), say("done")]
    async with staged(turns, tools=[write_files], extensions=[Permission()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            await until(events, T.TOOL_STARTED)
            await trio.sleep(0.5)
            await agent.session("s").cancel("stop")
            with pytest.raises(RunCancelled, match="stop"):
                await events.final()
        assert written == [1]
        async with agent.stream("again", session_id="s") as events:
            await until_asked(events)
            await agent.session("s").decline("c2", note="not on Fridays")
            assert (await kinds(events))[-1] == "run_completed"
        assert written == [1], "what was refused has not run"
        interrupted, refused = [m for m in agent.session("s").history if isinstance(m, ToolMessage)]
        assert (interrupted.outcome, refused.outcome) == ("interrupted", "failed")
        said = [json.loads(m.content)["error"] for m in (interrupted, refused)]
        assert [error["code"] for error in said] == ["call.interrupted", "call.denied"]
        assert "may have had effects" in said[0]["message"] and "nothing was run" in said[1]["message"]
