"""Tools with connections, sessions and sub-agents of their own: what goes wrong in there stays in their call."""

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
    Model,
    ModelRequest,
    RunCancelledEvent,
    ScriptedModel,
    TodoWriteExtension,
    Tool,
    ToolCall,
    ToolError,
    ToolMessage,
    ToolResult,
    open_agent,
    tool,
)
from actors.agent.extension import CallTool
from actors.models.scripted import call, pause, say, stall
from tests.scenarios.staging import ask, kinds, staged, until, write

T = AgentEventType


def _results(agent: Agent, session_id: str | None = None) -> dict[str, ToolMessage]:
    return {m.tool_call_id: m for m in agent.session(session_id).history if isinstance(m, ToolMessage)}


class Connection:
    """A connection to a tool server: a task of its own in a block, and a goodbye that may fail in several ways."""

    def __init__(self, how: str) -> None:
        self.how = how

    async def __aenter__(self) -> "Connection":
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._serve)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._nursery.cancel_scope.cancel()
        await self._manager.__aexit__(*error)
        if self.how == "the goodbye raises":
            raise OSError("goodbye failed")

    async def _serve(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            if self.how == "its task raises":
                raise OSError("goodbye failed")


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
@pytest.mark.parametrize("how", ["its task raises", "the goodbye raises", "the handler raises", "all of it"])
async def test_a_helper_that_fails_in_its_cleanup_is_one_failed_result_of_the_parents_call_a06(
    autojump_clock: MockClock, how: str, beside: bool
) -> None:
    """A sub-agent with a tool connection, run by a tool, whose teardown fails while the parent's events are read."""

    @tool
    async def lookup() -> str:
        async with Connection("its task raises" if how == "all of it" else how):
            await trio.sleep(1)
            if how in ("the handler raises", "all of it"):
                raise OSError("goodbye failed")
        return "found"

    class Child(AgentExtension):
        async def on_event(self, context: AgentRunContext, event: object) -> None:
            if isinstance(event, RunCancelledEvent):
                raise OSError("the child's cleanup failed")

    @tool
    async def spawn() -> str:
        model = ScriptedModel([call("lookup"), [say("a"), stall()]])
        async with open_agent(model, name="child", tools=[lookup], extensions=[Child()]) as child:
            async with child.stream("go") as events:
                event = await until(events, T.TOOL_FAILED)
                # It leaves while the child goes on: the run is cancelled, and what is told of it raises as well.
                raise ToolError(f"the child failed: {event.message.content}")  # type: ignore[union-attr]

    turn = [call("spawn", id="p1"), *([write("ip", id="w1")] if beside else [])]
    async with staged([turn, [pause(0.5), say("go on")]], tools=[spawn]) as agent:
        async with agent.stream("go") as events:
            seen = await kinds(events)
            assert (await events.final()).content == "go on"
        results = _results(agent)
    assert seen.count("tool_failed") == 1 and seen[-1] == "run_completed"
    assert results["p1"].outcome == "failed" and "goodbye failed" in results["p1"].content
    assert not beside or results["w1"].outcome == "completed"


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["tool", "wrapper"])
@pytest.mark.parametrize("cancelled", [False, True], ids=["open", "cancelled"])
async def test_a_scope_that_a_tool_left_open_is_its_own_failure_and_cancels_nobody_a06(
    autojump_clock: MockClock, cancelled: bool, wrapped: bool, beside: bool
) -> None:
    """A connection that is torn down in another place than it was set up leaves its cancel behind in the task."""
    kept: list[trio.CancelScope] = []

    def leave_open() -> None:
        kept.append(trio.CancelScope())
        kept[-1].__enter__()
        if cancelled:
            kept[-1].cancel()

    @tool
    async def leaky() -> str:
        if not wrapped:
            leave_open()
        return "looks fine"

    class Wrapper(AgentExtension):
        async def on_tool_call(self, context: AgentRunContext, call: ToolCall, call_next: CallTool) -> ToolResult:
            result = await call_next(call)
            leave_open()
            return result

    turn = [call("leaky", id="p1"), *([call("leaky", id="p2")] if beside else [])]
    extensions = [Wrapper()] if wrapped else []
    async with staged([turn, [pause(0.5), say("go on")]], tools=[leaky], extensions=extensions) as agent:
        async with agent.stream("go") as events:
            assert (await events.final()).content == "go on"
        for result in _results(agent).values():
            assert result.outcome == "failed" and "RuntimeError: Cancel scope stack corrupted" in result.content


@pytest.mark.parametrize("cancelled", [False, True], ids=["open", "cancelled"])
async def test_a_block_that_a_tool_left_open_fails_its_call_and_the_session_goes_on_a06(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, cancelled: bool
) -> None:
    """Its tasks cannot be waited for in trio, so the session's actor starts anew from its log, behind the run's end."""
    kept: list[Any] = []

    @tool
    async def leaky() -> str:
        kept.append(manager := trio.open_nursery())
        nursery = await manager.__aenter__()
        nursery.start_soon(trio.sleep_forever)
        if cancelled:
            nursery.cancel_scope.cancel()
        return "looks fine"

    async with staged([call("leaky", id="p1"), [pause(0.5), say("go on")], say("fine")], tools=[leaky]) as agent:
        with caplog.at_level(60):
            async with agent.stream("go", session_id="s") as events:
                assert (await events.final()).content == "go on"
            await wait_all_tasks_blocked()
        assert (await agent.run("again", session_id="s")).content == "fine"
        assert _results(agent, "s")["p1"].outcome == "failed"


# ---- parallel helpers


def _spawning(made: list[Agent]) -> Tool:
    @tool
    async def spawn(child: str) -> str:
        """Run a session of the same agent."""
        return (await made[0].run("go", session_id=child)).content

    return spawn


def _by_session(plays: dict[str, list[Any]]) -> Model:
    """A model that plays another script in each session."""
    models = {session: ScriptedModel(turns) for session, turns in plays.items()}

    class Many:
        def stream(self, request: ModelRequest) -> Any:
            return models[request.session_id].stream(request)

    return Many()


async def test_a_cancel_of_one_child_leaves_its_siblings_alone_f23(autojump_clock: MockClock) -> None:
    made: list[Agent] = []
    turn = [call("spawn", {"child": f"S1/child{n}"}, id=f"c{n}") for n in (1, 2, 3)]
    children = {f"S1/child{n}": [[pause(n), say(f"answer {n}")]] for n in (1, 2, 3)}
    async with staged(_by_session({"S1": [turn, say("done")], **children}), tools=[_spawning(made)]) as agent:
        made.append(agent)
        async with agent.stream("go", session_id="S1") as events:
            await until(events, T.TOOL_STARTED)
            await trio.sleep(0.5)
            await agent.session("S1/child2").cancel("not this one")
            assert (await events.final()).content == "done"
        results = _results(agent, "S1")
        assert list(results) == ["c1", "c2", "c3"]
        assert (results["c1"].content, results["c3"].content) == ("answer 1", "answer 3")
        assert results["c2"].outcome == "failed" and "not this one" in results["c2"].content


async def test_a_question_below_the_root_is_answered_where_it_is_asked_and_closed_by_a_cancel_above_it_b29(
    autojump_clock: MockClock,
) -> None:
    made: list[Agent] = []
    plays = {
        "root": [call("spawn", {"child": "middle"}, id="c1"), say("root: done")] * 2,
        "middle": [call("spawn", {"child": "leaf"}, id="c2"), say("middle: done")] * 2,
        "leaf": [ask("q1"), say("leaf: done"), ask("q2")],
    }
    extensions = [AskUserExtension(), TodoWriteExtension()]
    async with staged(_by_session(plays), tools=[_spawning(made)], extensions=extensions) as agent:
        made.append(agent)
        async with agent.stream("go", session_id="root") as events:
            await until(events, T.TOOL_STARTED)
            await wait_all_tasks_blocked()
            assert [one.tool_call_id for one in agent.session("leaf").asks] == ["q1"]
            await agent.session("leaf").answer("q1", "Postgres")
            assert (await events.final()).content == "root: done"
        async with agent.stream("again", session_id="root") as events:
            await until(events, T.TOOL_STARTED)
            await wait_all_tasks_blocked()
            await agent.session("middle").cancel("enough")
            assert (await events.final()).content == "root: done", "the root goes on"
        assert agent.session("leaf").asks == () and agent.session("leaf").status == "idle"
        assert _results(agent, "leaf")["q2"].outcome == "skipped"
        assert "enough" in list(_results(agent, "root").values())[-1].content
