from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors import (
    AgentEvent,
    AgentEventType,
    AgentExtension,
    AgentRunContext,
    RuleViolation,
    SystemMessage,
    TodoWriteExtension,
    UserMessage,
    tool,
)
from actors.agent.context import MessagesView
from actors.models.scripted import call, say
from protocol.asks import Question
from protocol.chat import AssistantMessage, Message, ToolCall
from protocol.errors import LocalProtocolError
from protocol.limits import Limits
from tests.scenarios.staging import staged, write

T = AgentEventType


def _in(hook: str, do: Callable[[AgentRunContext], Awaitable[None]]) -> AgentExtension:
    """An extension that does `do` in one hook."""

    async def run(self: Any, context: AgentRunContext, *_: Any) -> None:
        await do(context)

    kind: Any = type("Doing", (AgentExtension,), {hook: run})
    made: AgentExtension = kind()
    return made


def test_a_view_of_messages_does_not_grow_with_them() -> None:
    messages: list[Message] = [UserMessage("a"), UserMessage("b")]
    view = MessagesView(messages)
    messages.append(UserMessage("c"))
    assert len(view) == 2 and [m.content for m in view] == ["a", "b"]
    assert view[-1].content == "b" and [m.content for m in view[:5]] == ["a", "b"]
    with pytest.raises(IndexError, match=r"^message 2 of 2$"):
        view[2]
    with pytest.raises(IndexError):
        view[-3]


async def test_the_context_says_whose_run_it_is(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def look(context: AgentRunContext) -> None:
        seen.append((context.session_id, context.run_id, str(context.phase), context.record.id))
        seen.append((context.session.id, context.todos, dict(context.state)))

    async with staged([say("x")], extensions=[_in("before_run", look)]) as agent:
        await agent.run("go", session_id="s")
    assert seen == [("s", "r2", "ready", "r2"), ("s", None, {})]


async def test_the_input_may_be_replaced_and_is_appended_once(autojump_clock: MockClock) -> None:
    async def replace(context: AgentRunContext) -> None:
        assert context.input_message == UserMessage("go") and len(context.messages) == 0
        context.input_message = UserMessage("went")

    async with staged([say("x")], extensions=[_in("on_message", replace)]) as agent:
        await agent.run("go")
        assert [m.content for m in agent.session().history] == ["went", "x"]


async def test_messages_are_added_and_replaced_as_records(autojump_clock: MockClock) -> None:
    views: list[Any] = []

    async def change(context: AgentRunContext) -> None:
        views.append(context.messages)
        context.add_message(SystemMessage("first"), 0)
        context.add_message(UserMessage("last"))
        views.append(context.messages)
        context.replace_messages([UserMessage("only")], reason="shorter")

    async with staged([say("x")], extensions=[_in("before_run", change)]) as agent:
        await agent.run("go")
        assert [m.content for m in agent.session().history] == ["only", "x"]
    assert [[m.content for m in view] for view in views] == [["go"], ["first", "go", "last"]]


async def test_state_outlives_the_run_and_must_be_json(autojump_clock: MockClock) -> None:
    async def count(context: AgentRunContext) -> None:
        context.set_state("runs", context.state.get("runs", 0) + 1)
        context.set_state("gone", 1)
        context.set_state("gone", None)
        with pytest.raises(RuleViolation, match=r"^event\.unsendable: "):
            context.set_state("odd", object())
        with pytest.raises(RuleViolation, match=r"^event\.too_large: "):
            context.set_state("large", "x" * 3_000)

    options: dict[str, Any] = {"extensions": [_in("before_run", count)], "limits": Limits(max_event_bytes=2_000)}
    async with staged([say("x"), say("y")], **options) as agent:
        await agent.run("go")
        await agent.run("go")
        session = agent.find(agent.session_id)
        assert session is not None and session.state.state == {"runs": 2}


async def test_custom_events_are_copied_recorded_and_shown(autojump_clock: MockClock) -> None:
    payload = {"n": [1]}

    async def emit(context: AgentRunContext) -> None:
        context.emit("ping", payload)
        payload["n"].append(2)
        context.emit(AgentEvent(T.CUSTOM, "pong", {"m": 1}))

    async with staged([say("x")], extensions=[_in("before_run", emit)]) as agent, agent.stream("go") as events:
        seen = [(e.name, e.payload, bool(e.seq)) async for e in events if e.type is T.CUSTOM]
    assert seen == [("ping", {"n": [1]}, True), ("pong", {"m": 1}, True)]


async def test_events_that_are_not_custom_or_not_json_are_refused(autojump_clock: MockClock) -> None:
    async def emit(context: AgentRunContext) -> None:
        with pytest.raises(LocalProtocolError, match=r"^an extension emits CUSTOM events, not run_completed$"):
            context.emit(AgentEvent(T.RUN_COMPLETED))
        with pytest.raises(LocalProtocolError, match=r"^a CUSTOM event needs a name$"):
            context.emit("  ", {})
        with pytest.raises(RuleViolation, match=r"^event\.unsendable: "):
            context.emit("ping", {"n": float("inf")})
        with pytest.raises(RuleViolation, match=r"^event\.too_large: "):
            context.emit("ping", {"n": "x" * 3_000})

    async with staged([say("x")], extensions=[_in("before_run", emit)], limits=Limits(max_event_bytes=2_000)) as agent:
        await agent.run("go")


async def test_a_tool_registered_twice_is_refused(autojump_clock: MockClock) -> None:
    @tool
    async def echo() -> str:
        return "x"

    async def register(context: AgentRunContext) -> None:
        context.register_tool(echo)
        with pytest.raises(ValueError, match=r"^run r2 has a tool 'echo' already$"):
            context.register_tool(echo)

    async with staged([call("echo"), say("x")], extensions=[_in("on_tool", register)]) as agent:
        await agent.run("go")
        assert agent.session().history[2].content == "x"
        assert "echo" not in agent.tools, "it belongs to the run"


async def test_a_slot_is_made_once_and_goes_with_the_run(autojump_clock: MockClock) -> None:
    made: list[object] = []

    async def use(context: AgentRunContext) -> None:
        slot = context.slot("mine", list[int])
        assert context.slot("mine", list[int]) is slot and slot == []
        assert context.slot("other", dict[str, int]) == {}
        slot.append(1)
        made.append(slot)

    async with staged([say("x"), say("y")], extensions=[_in("before_run", use)]) as agent:
        await agent.run("go")
        await agent.run("go")
    assert made[0] is not made[1]


async def test_the_request_is_a_frozen_view_rebuilt_for_each_hook(autojump_clock: MockClock) -> None:
    requests: list[Any] = []

    async def see(context: AgentRunContext) -> None:
        requests.append(context.request(1))
        assert context.server_tools == []
        context.server_tools = ({"type": "web"},)
        context.server_tools.append({"type": "code"})
        context.add_message(UserMessage("more"))

    async with staged([say("x")], extensions=[_in("before_model", see)]) as agent:
        await agent.run("go", session_id="s")
        (sent,) = agent.model.requests  # type: ignore[attr-defined]
    assert [m.content for m in requests[0].messages] == ["go"]
    assert [m.content for m in sent.messages] == ["go", "more"]
    assert (sent.session_id, sent.turn, sent.server_tools) == ("s", 1, ({"type": "web"}, {"type": "code"}))
    with pytest.raises(AttributeError):
        sent.turn = 2


async def test_asks_and_lists_are_put_through_the_record(autojump_clock: MockClock) -> None:
    class Asking(AgentExtension):
        async def before_tool(self, context: AgentRunContext, call: Any) -> None:
            context.open_ask(call.id, (Question("q1", "Sure?"),), answers_call=False)
            with pytest.raises(RuleViolation, match=r"^ask\.settled: "):
                context.open_ask(call.id, (Question("q1", "Sure?"),))
            with pytest.raises(RuleViolation, match=r"^call\.invalid: "):
                context.open_ask("zzz", (Question("q1", "Sure?"),))

    async with staged([write("ip", id="t1"), say("x")], extensions=[Asking(), TodoWriteExtension()]) as agent:
        async with agent.stream("go") as events:
            async for event in events:
                if event.name == "ask_user":
                    assert agent.session().todos is None, "the list is not written before the answer"
                    await agent.session().answer("t1", "yes")
        (written,) = [m for m in agent.session().history if m.__class__.__name__ == "ToolMessage"]
        assert "in_progress" in written.content, "a guard's answer is not the call's result"


async def test_after_the_end_of_the_run_every_change_is_refused(autojump_clock: MockClock) -> None:
    kept: list[AgentRunContext] = []

    async def keep(context: AgentRunContext) -> None:
        kept.append(context)

    async with staged([say("x")], extensions=[_in("before_run", keep)]) as agent:
        await agent.run("go", session_id="s")
        head = agent.session("s").seq
        (context,) = kept
        changes: list[Callable[[], object]] = [
            lambda: context.emit("late", {}),
            lambda: context.add_message(UserMessage("late")),
            lambda: context.replace_messages([]),
            lambda: context.set_state("late", 1),
            lambda: context.write_todos(None),
        ]
        for change in changes:
            with pytest.raises(RuleViolation, match=r"^run\.settled: run r2 of session 's' has ended$"):
                change()
        assert agent.session("s").seq == head


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda c: c.emit("a\ud800", {}), "the name of an event holds half a character (a lone surrogate) at 1"),
        (lambda c: c.set_state("\ud800", 1), "a key of the state holds half a character (a lone surrogate) at 0"),
        (lambda c: c.replace_messages([UserMessage("a"), UserMessage("\ud800")]), "cannot be written as JSON: "),
        (lambda c: c.replace_messages([], reason="\ud800"), "the reason holds half a character"),
        (
            lambda c: c.add_message(AssistantMessage("", (ToolCall("x", "pay", {"sum": float("nan")}),))),
            "the arguments of pay.sum is nan, which JSON cannot say",
        ),
    ],
)
async def test_what_could_not_be_sent_is_refused_before_it_is_recorded(
    do: Callable[[AgentRunContext], None], message: str, autojump_clock: MockClock
) -> None:
    refused: list[RuleViolation] = []

    async def attempt(context: AgentRunContext) -> None:
        before = context.session.state.seq
        with pytest.raises(RuleViolation) as raised:
            do(context)
        assert context.session.state.seq == before
        refused.append(raised.value)

    async with staged([say("one")], extensions=[_in("before_run", attempt)]) as agent:
        await agent.run("go")
    assert refused[0].code == "event.unsendable" and refused[0].message.startswith(message)


async def test_a_tool_in_a_worker_thread_may_change_its_run() -> None:
    @tool
    def work(context: AgentRunContext) -> str:
        """Work."""
        context.emit("progress", {"done": 1})
        context.set_state("half", True)
        context.add_message(SystemMessage("half of it is done"))
        return "all of it"

    async with staged([call("work"), say("one")], tools=[work]) as agent:
        with trio.fail_after(5):
            async with agent.stream("go") as events:
                seen = [event.type async for event in events if event.type in (T.CUSTOM, T.TOOL_COMPLETED)]
        assert seen == [T.CUSTOM, T.TOOL_COMPLETED]
        assert SystemMessage("half of it is done") in agent.session().history
