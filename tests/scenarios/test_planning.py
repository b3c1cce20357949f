"""Todo lists as users of agents have met them: odd shapes, several writes, words that almost fit."""

import json
from typing import Any

import pytest
from trio.testing import MockClock

from actors import (
    Agent,
    AgentEventType,
    AgentExtension,
    AgentRunContext,
    AskUserExtension,
    AssistantMessage,
    RunFailed,
    TodoWriteExtension,
    ToolMessage,
)
from actors.models.scripted import Call, call, fail, say
from protocol.errors import ModelError
from tests.scenarios.staging import ask, staged, until_asked, write

T = AgentEventType
SHAPES = [
    '{"todos":"[{\\"content\\":\\"a\\",\\"status\\":\\"pending\\"}]"}',
    '{"todos":["{\\"content\\":\\"a\\",\\"status\\":\\"pending\\"}"]}',
    '{"todos":[{"content":"a","status":"in_progress"},7]}',
    json.dumps({"todos": "[{'content': 'a', 'status': 'pending'}]"}),
    json.dumps({"todos": {"content": "a", "status": "pending"}}),
    json.dumps({"todos": "a, b, c"}),
    json.dumps({"todos": [["a", "pending"]]}),
    '{"todos":[]}',
    "{}",
    '{"todos":null}',
]


def _raw(text: str) -> Call:
    return call("todo_write", text)


async def _play(agent: Agent) -> list[dict[str, Any]]:
    """Run to the end and return the results of the calls, read as JSON."""
    await agent.run("go")
    return [json.loads(m.content) for m in agent.session().history if isinstance(m, ToolMessage)]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_list_of_another_shape_is_refused_each_time_alike_c01_c02_c27(
    autojump_clock: MockClock, shape: str
) -> None:
    script = [write("ipp"), _raw(shape), _raw(shape), ask("q1"), say("done")]
    async with staged(script) as agent, agent.stream("go") as events:
        await until_asked(events)
        todos = agent.session().todos
        assert todos is not None and todos.revision == 1 and len(todos.todos) == 3, "the list is untouched"
        await agent.session().answer("q1", "x")
        await events.final()
        results = [json.loads(m.content) for m in agent.session().history if isinstance(m, ToolMessage)]
        refused, again = results[1:3]
        assert refused == again
        assert refused["error"]["code"] == "tool.invalid_args"
        assert refused["error"]["details"][0]["path"].startswith("todos")


async def test_two_lists_never_have_the_same_acknowledgement_c07(autojump_clock: MockClock) -> None:
    async with staged([write("ip"), write("ip"), write("ci"), say("done")]) as agent:
        results = await _play(agent)
    assert [r["revision"] for r in results] == [1, 2, 3]
    assert len({json.dumps(r) for r in results}) == 3


async def test_writes_of_one_turn_are_applied_in_call_order_c11(autojump_clock: MockClock) -> None:
    turn = [write("ipp", id="c1"), ask("q1"), write("cip", id="c2"), write("cip", id="c3")]
    async with staged([turn, say("done")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        todos = agent.session().todos
        assert todos is not None and (todos.revision, todos.in_progress_index) == (3, 1)
        await agent.session().answer("q1", "x")
        await events.final()


async def test_two_conflicting_writes_of_one_turn_are_one_list_and_one_refusal_c11(autojump_clock: MockClock) -> None:
    async with staged([[write("ipp"), write("i")], say("done")]) as agent:
        first, second = await _play(agent)
    assert first["revision"] == 1
    assert second["error"]["code"] == "todo.refused" and second["error"]["details"][0]["code"] == "length"


@pytest.mark.parametrize("end", ["stop", "model", "tool"])
async def test_a_plan_that_was_not_finished_is_said_to_be_over_c13(autojump_clock: MockClock, end: str) -> None:
    last: Any = {"stop": say("done"), "model": fail(ModelError("down")), "tool": [call("nobody"), write("ip")]}[end]
    todo = TodoWriteExtension()
    async with staged([write("ip"), last], extensions=[todo], max_turns=2) as agent:
        async with agent.stream("go", session_id="s") as events:
            seen = [event async for event in events]
        terminal = seen[-1]
        assert terminal.type is (T.RUN_COMPLETED if end == "stop" else T.RUN_FAILED)
        assert terminal.todos is not None and not terminal.todos.completed
        assert todo.todos("s") is None and agent.session("s").status == "idle"


WORDS = [
    ("IN_PROGRESS", False), ("In Progress", False), ("in-progress", False), ("active", False), ("doing", False),
    ("done", False), ("complete", False), ("todo", False), ("cancelled", False), ("in_progress", True),
]  # fmt: skip


@pytest.mark.parametrize(("word", "accepted"), WORDS)
async def test_only_the_documented_words_are_a_status_and_the_refusal_lists_them_c18(
    autojump_clock: MockClock, word: str, accepted: bool
) -> None:
    async with staged([call("todo_write", {"todos": [{"content": "a", "status": word}]}), say("done")]) as agent:
        (result,) = await _play(agent)
    if accepted:
        assert result["in_progress_index"] == 0
    else:
        message = result["error"]["details"][0]["message"]
        assert all(status in message for status in ("pending", "in_progress", "completed")), message


async def test_a_failing_write_leaves_the_list_before_it_c26(autojump_clock: MockClock) -> None:
    async with staged([write("ipp"), _raw("{bad"), ask("q1"), say("done")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        todos = agent.session().todos
        assert todos is not None and [item.content for item in todos.todos] == ["read", "write", "test"]
        await agent.session().answer("q1", "x")
        await events.final()


async def test_a_cleared_list_stays_cleared_and_the_next_write_is_a_first_one_c26(autojump_clock: MockClock) -> None:
    todo = TodoWriteExtension()
    script = [write("ip"), ask("q1"), write("ipp"), say("done")]
    async with staged(script, extensions=[todo, AskUserExtension()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            await until_asked(events)
            todo.clear("s")
            assert todo.todos("s") is None
            await agent.session("s").answer("q1", "x")
            terminal = [event async for event in events][-1]
        assert terminal.todos is not None and len(terminal.todos.todos) == 3


async def test_keys_that_are_not_documented_reach_nothing_c28(autojump_clock: MockClock) -> None:
    odd = {"content": "a", "status": "in_progress", "priority": "high", "__class__": "x", "session": "S2", "meta": {}}
    async with staged([call("todo_write", {"todos": [odd]}), say("done")]) as agent:
        (result,) = await _play(agent)
        named = {detail["path"] for detail in result["error"]["details"]}
        assert named == {f"todos[0].{key}" for key in ("priority", "__class__", "session", "meta")}
        tool = TodoWriteExtension().tool
        properties = tool.definition.parameters["properties"]["todos"]["items"]["properties"]
        assert set(properties) == {"content", "status"}, "the instructions come from the schema"


async def test_a_run_that_fails_shows_its_last_list_before_it_ends_c13(autojump_clock: MockClock) -> None:
    """A slow reader sees at TOOL_COMPLETED the list of that turn, although the run is about to fail."""

    class Failing(AgentExtension):
        async def after_turn(self, context: AgentRunContext, result: AssistantMessage) -> None:
            raise OSError("no disk")

    todo = TodoWriteExtension()
    shown: list[bool] = []
    async with staged([write("ip")], extensions=[todo, Failing()]) as agent:
        with pytest.raises(RunFailed):
            async with agent.stream("go", session_id="s") as events:
                async for event in events:
                    if event.type is T.TOOL_COMPLETED:
                        shown.append(todo.todos("s") is not None)
                await events.final()
    assert shown == [True]
