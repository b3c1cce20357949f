"""`TodoWriteExtension`: what the model may write, what it reads back, and how long the list lives."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import trio

from actors.agent.agent import Agent, open_agent
from actors.agent.tools import tool
from actors.agent.view import AgentEvent, AgentEventType
from actors.extensions.todo import TodoWriteExtension
from actors.models.scripted import Call, ScriptedModel, call, say, stall
from protocol.chat import CallOutcome, ToolMessage
from protocol.errors import ModelError, RuleViolation
from protocol.todos import TodoItem, TodoStatus, TodoWriteResult

STATUS = {"p": "pending", "i": "in_progress", "c": "completed"}
NAMES = ("read", "write", "test", "ship")


def items(statuses: str, names: Sequence[str] = NAMES) -> list[dict[str, Any]]:
    return [
        {"content": name, "status": STATUS.get(status, status)} for name, status in zip(names, statuses, strict=False)
    ]


def write(todos: object) -> Call:
    return call("todo_write", {"todos": todos})


async def results(extension: TodoWriteExtension, turns: Sequence[Any]) -> list[tuple[AgentEvent, str]]:
    """Play the turns; return each tool result and how the list stood when its turn was over."""
    seen: list[tuple[AgentEvent, str]] = []
    async with open_agent(ScriptedModel([*turns, say("done")]), extensions=[extension]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if event.type in (AgentEventType.TOOL_COMPLETED, AgentEventType.TOOL_FAILED):
                    seen.append((event, picture(extension.todos(event.session_id))))
            assert (await events.final()).content == "done"
    return seen


def picture(todos: TodoWriteResult | None) -> str:
    return "".join(item.status[0] for item in todos.todos) if todos is not None else ""


def error(event: AgentEvent) -> dict[str, Any]:
    assert isinstance(event.message, ToolMessage)
    assert event.message.outcome is CallOutcome.FAILED
    body: dict[str, Any] = json.loads(event.message.content)["error"]
    assert body["code"] == event.code
    return body


# ---- arguments


BAD_ARGUMENTS: list[tuple[object, str, str]] = [
    ({}, "todos", "missing"),
    ({"todos": []}, "todos", "too_short"),
    ({"todos": None}, "todos", "list_type"),
    ({"todos": json.dumps(items("ip"))}, "todos", "list_type"),
    ({"todos": "[{'content': 'a', 'status': 'pending'}]"}, "todos", "list_type"),
    ({"todos": "[{'content': __import__('os').getcwd(), 'status': 'pending'}]"}, "todos", "list_type"),
    ({"todos": "a, b, c"}, "todos", "list_type"),
    ({"todos": {"content": "a", "status": "pending"}}, "todos", "list_type"),
    ({"todos": {"0": {"content": "a"}}}, "todos", "list_type"),
    ({"todos": [["a", "pending"]]}, "todos[0]", "model_type"),
    ({"todos": ['{"content":"a","status":"pending"}']}, "todos[0]", "model_type"),
    ({"todos": [*items("i"), 7]}, "todos[1]", "model_type"),
    ({"todos": items("i", ["a"]) * 101}, "todos", "too_long"),
    ({"todos": items("i"), "note": 1}, "note", "extra_forbidden"),
    ({"todos": [{**items("i")[0], "priority": "high"}]}, "todos[0].priority", "extra_forbidden"),
    ({"todos": [{**items("i")[0], "__class__": "x"}]}, "todos[0].__class__", "extra_forbidden"),
    ({"todos": [{"content": "a"}]}, "todos[0].status", "missing"),
    ({"todos": [{"status": "in_progress"}]}, "todos[0].content", "missing"),
    ({"todos": items("i", [""])}, "todos[0].content", "string_too_short"),
    ({"todos": items("i", [" \t\u00a0 "])}, "todos[0].content", "string_too_short"),
    ({"todos": items("i", ["a" * 4_001])}, "todos[0].content", "string_too_long"),
    ({"todos": [{"content": 7, "status": "in_progress"}]}, "todos[0].content", "string_type"),
    ({"todos": [{"content": None, "status": "in_progress"}]}, "todos[0].content", "string_type"),
    ({"todos": items("ip", ["a", "\u200b"])}, "todos[1].content", "blank"),
]


@pytest.mark.parametrize(("arguments", "path", "code"), BAD_ARGUMENTS)
async def test_arguments_that_do_not_fit_fail_the_call_with_the_path_c01_c02_c25_c27_c28(
    arguments: dict[str, Any], path: str, code: str
) -> None:
    first, second = await results(TodoWriteExtension(), [write(items("ip")), call("todo_write", arguments)])
    assert (first[0].type, first[1]) == (AgentEventType.TOOL_COMPLETED, "ip")
    body = error(second[0])
    assert body["code"] == "tool.invalid_args"
    assert [(detail["path"], detail["code"]) for detail in body["details"]] == [(path, code)]
    assert second[1] == "ip"
    assert "pydantic" not in second[0].error


@pytest.mark.parametrize(
    "status",
    ["IN_PROGRESS", "In Progress", "in-progress", "active", "doing", "done", "complete", "todo", "cancelled", "", 1],
)
async def test_the_documented_words_are_the_only_ones_and_are_named_c18(status: object) -> None:
    ((event, _),) = await results(TodoWriteExtension(), [write([{"content": "a", "status": status}])])
    (detail,) = error(event)["details"]
    assert detail["path"] == "todos[0].status"
    assert "'pending', 'in_progress' or 'completed'" in detail["message"]


@pytest.mark.parametrize("text", ['{"todos":', "", "[]", '"text"', '{"todos":[],"todos":[]}'])
async def test_a_call_that_is_no_json_object_does_not_reach_the_list_f03(text: str) -> None:
    seen = await results(TodoWriteExtension(), [write(items("ip")), call("todo_write", text)])
    assert error(seen[1][0])["code"] == "call.invalid"
    assert seen[1][1] == "ip"


@pytest.mark.parametrize("count", [1, 100])
async def test_a_list_has_up_to_100_items(count: int) -> None:
    names = [f"item {number}" for number in range(count)]
    ((event, stands),) = await results(TodoWriteExtension(), [write(items("i" + "p" * (count - 1), names))])
    assert (event.type, len(stands)) == (AgentEventType.TOOL_COMPLETED, count)


async def test_content_has_up_to_4000_characters_after_trimming_and_is_stored_trimmed() -> None:
    extension = TodoWriteExtension()
    turns = [write(items("i", ["  read\n"])), write(items("c", ["read "])), write(items("c", ["a" * 4_000]))]
    first, second, third = await results(extension, turns)
    assert json.loads(first[0].message.content)["todos"][0]["content"] == "read"  # type: ignore[union-attr]
    assert (second[0].type, second[1]) == (AgentEventType.TOOL_COMPLETED, "c")
    assert error(third[0])["details"][0]["code"] == "content"


@pytest.mark.parametrize("max_todos", [0, -1])
def test_a_list_has_room_for_one_item_at_least(max_todos: int) -> None:
    with pytest.raises(ValueError, match=f"^a list has room for at least one item, not {max_todos}$"):
        TodoWriteExtension(max_todos=max_todos)


async def test_the_room_of_a_list_can_be_set() -> None:
    extension = TodoWriteExtension(max_todos=2)
    assert extension.tool.definition.parameters["properties"]["todos"]["maxItems"] == 2
    seen = await results(extension, [write(items("ipp")), write(items("ip"))])
    assert error(seen[0][0])["details"][0]["code"] == "too_long"
    assert seen[1][1] == "ip"


def test_the_schema_says_what_is_checked_c28() -> None:
    schema = TodoWriteExtension().tool.definition.parameters
    todos = schema["properties"]["todos"]
    assert (schema["required"], schema["additionalProperties"]) == (["todos"], False)
    assert (todos["minItems"], todos["maxItems"]) == (1, 100)
    assert todos["items"]["additionalProperties"] is False
    assert todos["items"]["properties"]["status"]["enum"] == ["pending", "in_progress", "completed"]
    assert todos["items"]["properties"]["content"]["maxLength"] == 4_000


# ---- the policy, through the tool


POLICY: list[tuple[list[str], str]] = [
    (["pp"], "shape"),
    (["pi"], "shape"),
    (["ii"], "shape"),
    (["ic"], "shape"),
    (["cip"], "first_write"),
    (["ccc"], "first_write"),
    (["ip", "ip"], ""),
    (["ip", "ci"], ""),
    (["ip", "cp"], "shape"),
    (["ipp", "ici"], "shape"),
    (["ip", "ci", "pp"], "shape"),
    (["ipp", "cci"], "several_completed"),
    (["ip", "ci", "ip"], "reopened"),
    (["ip", "ipp"], "length"),
    (["ip", "i"], "length"),
    (["i", "c", "c"], ""),
    (["i", "c", "i"], "final"),
    (["i", "c", "ip"], "length"),
]


@pytest.mark.parametrize(("writes", "rule"), POLICY, ids=lambda value: "-".join(value) or "accepted")
@pytest.mark.parametrize("one_turn", [False, True])
async def test_the_last_write_is_judged_by_the_list_before_it(writes: list[str], rule: str, one_turn: bool) -> None:
    calls = [write(items(statuses)) for statuses in writes]
    seen = await results(TodoWriteExtension(), [calls] if one_turn else calls)
    assert all(event.type is AgentEventType.TOOL_COMPLETED for event, _ in seen[:-1])
    event, stands = seen[-1]
    if rule:
        body = error(event)
        assert (body["code"], body["details"][0]["code"]) == ("todo.refused", rule)
        assert stands == (writes[-2] if len(writes) > 1 else "")
    else:
        assert (event.type, stands) == (AgentEventType.TOOL_COMPLETED, writes[-1])


async def test_the_result_is_the_documented_json_c07() -> None:
    seen = await results(TodoWriteExtension(), [write(items("ip")), write(items("ci")), write(items("cc"))])
    found = [json.loads(event.message.content) for event, _ in seen]  # type: ignore[union-attr]
    assert found == [
        {
            "todos": items("ip"), "in_progress_index": 0, "in_progress": items("ip")[0], "completed": False,
            "revision": 1,
        },
        {
            "todos": items("ci"), "in_progress_index": 1, "in_progress": items("ci")[1], "completed": False,
            "revision": 2,
        },
        {"todos": items("cc"), "in_progress_index": None, "in_progress": None, "completed": True, "revision": 3},
    ]  # fmt: skip


async def test_two_writes_in_one_message_are_judged_in_call_order_c11() -> None:
    seen = await results(TodoWriteExtension(), [[write(items("ipp")), write(items("cip"))]])
    assert [event.type for event, _ in seen] == [AgentEventType.TOOL_COMPLETED] * 2
    assert seen[-1][1] == "cip"


async def test_where_it_is_wanted_only_one_item_advances_in_a_turn() -> None:
    extension = TodoWriteExtension(one_advance_per_turn=True)
    turns = [write(items("ipp")), [write(items("cip")), write(items("cip")), write(items("cci"))], write(items("cci"))]
    seen = await results(extension, turns)
    assert error(seen[3][0])["details"][0]["code"] == "one_advance_per_turn"
    assert [stands for _, stands in seen] == ["ipp", "cip", "cip", "cip", "cci"]


async def test_a_refused_write_records_no_list() -> None:
    extension = TodoWriteExtension()
    changed = 0
    async with open_agent(ScriptedModel([write(items("pp")), say("done")]), extensions=[extension]) as agent:
        async with agent.stream("go") as events:
            async for event in events:
                changed += event.type is AgentEventType.TODOS_CHANGED
    assert changed == 0


# ---- how long it lives


async def play(extension: TodoWriteExtension, model: ScriptedModel) -> list[AgentEvent]:
    async with open_agent(model, extensions=[extension]) as agent:
        async with agent.stream("go", session_id="s") as events:
            seen = [event async for event in events]
        assert extension.todos("s") is None
        async with agent.stream("again", session_id="s") as events:
            seen += [event async for event in events]
    return seen


@pytest.mark.parametrize("end", ["run_completed", "run_failed"])
async def test_a_list_ends_with_its_run_and_the_terminal_event_carries_it(end: str) -> None:
    def last(_: object) -> Any:
        if end == "run_failed":
            raise ModelError("down")
        return say("done")

    model = ScriptedModel([write(items("ip")), last, write(items("ip")), say("done")])
    seen = await play(TodoWriteExtension(), model)
    ends = [event for event in seen if event.type in (AgentEventType.RUN_COMPLETED, AgentEventType.RUN_FAILED)]
    assert [event.type for event in ends] == [end, "run_completed"]
    assert [picture(event.todos) for event in ends] == ["ip", "ip"]


async def test_a_list_ends_with_a_run_that_is_cancelled_c12() -> None:
    extension = TodoWriteExtension()
    async with open_agent(ScriptedModel([write(items("ip")), stall()]), extensions=[extension]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if event.type is AgentEventType.TOOL_COMPLETED:
                    assert picture(extension.todos("s")) == "ip"
                    await agent.session("s").cancel("enough")
                last = event
        assert (last.type, picture(last.todos), last.error) == (AgentEventType.RUN_CANCELLED, "ip", "enough")
        assert extension.todos("s") is None


async def test_lists_of_sessions_and_of_agents_sharing_the_extension_are_their_own_c06() -> None:
    extension = TodoWriteExtension()

    async def until_written(agent: Agent, session: str, expected: str) -> None:
        async with agent.stream("go", session_id=session) as events:
            async for event in events:
                if event.type is AgentEventType.TOOL_COMPLETED:
                    assert picture(extension.todos(session)) == expected
                    written[session].set()
                    for other in written.values():
                        await other.wait()
                    assert picture(extension.todos(session)) == expected

    written = {session: trio.Event() for session in ("s1", "s2", "s3")}
    one = ScriptedModel([write(items("ip")), say("done")], repeat=True)
    other = ScriptedModel([write(items("ippp")), say("done")])
    async with open_agent(one, extensions=[extension], name="one") as first:
        async with open_agent(other, extensions=[extension], name="other") as second:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(until_written, first, "s1", "ip")
                nursery.start_soon(until_written, first, "s2", "ip")
                nursery.start_soon(until_written, second, "s3", "ippp")


async def test_a_cleared_list_begins_anew_and_no_other_is_touched() -> None:
    extension = TodoWriteExtension()
    cleared: list[str] = []

    @tool(inline=True)
    def clear() -> str:
        extension.clear("nobody's")
        cleared.append(picture(extension.todos("s")))
        extension.clear("s")
        cleared.append(picture(extension.todos("s")))
        extension.clear("s")
        return "cleared"

    turns = [write(items("ip")), call("clear"), write(items("ippp")), say("done")]
    async with open_agent(ScriptedModel(turns), tools=[clear], extensions=[extension]) as agent:
        async with agent.stream("go", session_id="s") as events:
            seen = [event async for event in events]
    assert cleared == ["ip", ""]
    changes = [event.todos for event in seen if event.type is AgentEventType.TODOS_CHANGED]
    assert [picture(todos) for todos in changes] == ["ip", "", "ippp"]
    assert [todos.revision for todos in changes if todos is not None] == [1, 2]


@pytest.mark.parametrize("session_id", ["", " ", "a b", 7, None, "x" * 129])
def test_a_session_is_named_properly(session_id: Any) -> None:
    extension = TodoWriteExtension()
    with pytest.raises(RuleViolation, match=r"^session\.invalid: "):
        extension.todos(session_id)
    with pytest.raises(RuleViolation, match=r"^session\.invalid: "):
        extension.clear(session_id)


async def test_a_session_that_is_not_there_or_idle_has_no_list() -> None:
    extension = TodoWriteExtension()
    assert extension.todos("s") is None
    async with open_agent(ScriptedModel([say("done")]), extensions=[extension]) as agent:
        assert extension.todos("s") is None
        await agent.run("go", session_id="s")
        assert extension.todos("s") is None
        extension.clear("s")


async def test_what_is_seen_is_a_value_that_does_not_change() -> None:
    extension = TodoWriteExtension()
    seen: list[TodoWriteResult] = []
    async with open_agent(
        ScriptedModel([write(items("ip")), write(items("ci")), say("done")]), extensions=[extension]
    ) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if event.type is AgentEventType.TOOL_COMPLETED:
                    found = extension.todos("s")
                    assert found is not None
                    seen.append(found)
    assert [picture(todos) for todos in seen] == ["ip", "ci"]
    assert seen[0].in_progress == TodoItem("read", TodoStatus.IN_PROGRESS)
    with pytest.raises(AttributeError, match="immutable type"):
        seen[0].completed = True  # type: ignore[misc]


async def test_the_instance_is_pending_while_a_run_uses_it() -> None:
    extension = TodoWriteExtension()
    assert not extension.pending
    async with open_agent(ScriptedModel([write(items("i")), say("done")]), extensions=[extension]) as agent:
        assert not extension.pending
        async with agent.stream("go") as events:
            async for event in events:
                if event.type is AgentEventType.TOOL_COMPLETED:
                    assert extension.pending
        assert not extension.pending


async def test_the_list_is_in_the_log_so_that_compaction_cannot_lose_it_c04_c06() -> None:
    extension = TodoWriteExtension()
    async with open_agent(ScriptedModel([write(items("ip")), say("done")]), extensions=[extension]) as agent:
        await agent.run("go", session_id="s")
        session = agent.find("s")
        assert session is not None
        changed = [msgspec.to_builtins(event)["type"] for event in session.log]
    assert changed.count("todos_changed") == 1
