"""`ExternalEventExtension`: what it takes, what it leaves, and what a call becomes of each outcome."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.agent.agent import Agent, open_agent
from actors.agent.context import AgentRunContext
from actors.agent.extension import AgentRunConfig, ExternalEvent
from actors.agent.tools import Tool, tool
from actors.agent.view import AgentEvent, AgentEventType
from actors.extensions.external import ExternalEventExtension
from actors.models.scripted import ScriptedModel, call, say
from protocol import decisions
from protocol.asks import AskOutcome, Question
from protocol.chat import ToolCall, ToolMessage, ToolResult
from protocol.errors import Code

CONFIG = AgentRunConfig(session_id="s")


class Wait(ExternalEventExtension):
    """Puts a question for every `wait` call; what comes in is the call's result."""

    response_event = "it_happened"

    def __init__(self, *, opens: bool = True) -> None:
        self.opens = opens

        @tool(inline=True)
        def wait() -> str:
            """Wait for something to happen."""
            return ""

        self.tool = Tool(wait.definition, wait._arguments, self._outcome, inline=True)

    def _outcome(self, context: AgentRunContext, call: ToolCall, _: object) -> ToolResult:
        return self.outcome(context, call)

    async def on_tool(self, context: AgentRunContext) -> None:
        context.register_tool(self.tool)

    async def before_tool(self, context: AgentRunContext, call: ToolCall) -> None:
        if self.opens:
            context.open_ask(call.id, (Question("q1", "Did it happen?"),))


def happened(agent: Agent, payload: Mapping[str, Any], *, name: str = "it_happened", session: str = "s") -> list[str]:
    return agent.emit_external_event(ExternalEvent(name, payload), config=AgentRunConfig(session_id=session))


def is_question(event: AgentEvent) -> bool:
    return event.type is AgentEventType.CUSTOM


# ---- what is taken and what is left


@pytest.mark.parametrize(
    ("name", "session", "payload"),
    [
        ("ask_user_response", "s", {"tool_call_id": "w", "answer": "x"}),
        ("it_happened ", "s", {"tool_call_id": "w", "answer": "x"}),
        ("it_happened", "other", {"tool_call_id": "w", "answer": "x"}),
        ("it_happened", "s", {}),
        ("it_happened", "s", {"answer": "x"}),
        ("it_happened", "s", {"tool_call_id": None}),
        ("it_happened", "s", {"tool_call_id": 7}),
        ("it_happened", "s", {"tool_call_id": ""}),
        ("it_happened", "s", {"tool_call_id": " "}),
        ("it_happened", "s", {"tool_call_id": ["w"]}),
        ("it_happened", "s", {"tool_call_id": "W"}),
        ("it_happened", "s", {"tool_call_id": "unknown"}),
        ("it_happened", "s", {"tool_call_id": "w", "answer": ""}),
        ("it_happened", "s", {"tool_call_id": "w", "answer": math.nan}),
        ("it_happened", "s", {"tool_call_id": "w", "more": object()}),
        ("it_happened", "s", {"tool_call_id": "w", "more": "x" * 300_000}),
    ],
)
async def test_what_names_no_open_ask_or_does_not_fit_is_left_and_the_ask_stays_open(
    name: str, session: str, payload: dict[str, Any]
) -> None:
    async with open_agent(ScriptedModel([call("wait", id="w"), say("done")]), extensions=[Wait()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    before = dict(payload)
                    assert happened(agent, payload, name=name, session=session) == []
                    assert payload == before
                    assert [ask.tool_call_id for ask in agent.session("s").asks] == ["w"]
                    assert happened(agent, {"tool_call_id": "w", "answer": "x"}) == ["Wait"]
            assert (await events.final()).content == "done"


async def test_an_ask_is_taken_once_b24() -> None:
    late: list[list[str]] = []
    async with open_agent(ScriptedModel([call("wait", id="w"), say("done")]), extensions=[Wait()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    assert happened(agent, {"tool_call_id": "w", "answer": "first"}) == ["Wait"]
                    late.append(happened(agent, {"tool_call_id": "w", "answer": "second"}))
                elif event.type is AgentEventType.TOOL_COMPLETED:
                    assert json.loads(event.message.content)["answer"] == "first"  # type: ignore[union-attr]
                    late.append(happened(agent, {"tool_call_id": "w", "answer": "third"}))
        late.append(happened(agent, {"tool_call_id": "w", "answer": "fourth"}))
    assert late == [[], [], []]


async def test_without_a_session_the_agents_own_is_meant() -> None:
    async with open_agent(ScriptedModel([call("wait", id="w"), say("done")]), extensions=[Wait()]) as agent:
        async with agent.stream("go") as events:
            async for event in events:
                if is_question(event):
                    reply = ExternalEvent("it_happened", {"tool_call_id": "w", "answer": "x"})
                    assert agent.emit_external_event(reply) == ["Wait"]
            assert (await events.final()).content == "done"


async def test_an_instance_that_no_agent_uses_takes_nothing() -> None:
    extension = Wait()
    event = ExternalEvent("it_happened", {"tool_call_id": "w", "answer": "x"})
    assert not extension.accept(None, event)
    async with open_agent(ScriptedModel([]), extensions=[extension]):
        assert not extension.accept(CONFIG, event)
    assert not extension.accept(CONFIG, event)


async def test_two_instances_need_two_names_and_the_first_that_takes_it_has_it() -> None:
    class Second(Wait):
        async def on_tool(self, context: AgentRunContext) -> None:
            """The first one has registered the tool."""

        async def before_tool(self, context: AgentRunContext, call: ToolCall) -> None:
            """The first one puts the question."""

    extensions = [Wait(), Second()]
    async with open_agent(ScriptedModel([call("wait", id="w"), say("done")]), extensions=extensions) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    assert happened(agent, {"tool_call_id": "w", "answer": "x"}) == ["Wait"]


async def test_of_agents_that_share_the_instance_the_one_that_emits_gets_the_answer_b44() -> None:
    shared = Wait()
    answers: dict[str, str] = {}

    async def one(agent: Agent) -> None:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if event.type is AgentEventType.TOOL_COMPLETED:
                    answers[agent.name] = json.loads(event.message.content)["answer"]  # type: ignore[union-attr]

    def script() -> ScriptedModel:
        return ScriptedModel([call("wait"), say("done")])

    async with open_agent(script(), extensions=[shared], name="one") as first:
        async with open_agent(script(), extensions=[shared], name="two") as second:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, first)
                nursery.start_soon(one, second)
                await wait_all_tasks_blocked()
                for agent in (second, first):
                    (ask,) = agent.session("s").asks
                    assert happened(agent, {"tool_call_id": ask.tool_call_id, "answer": agent.name}) == ["Wait"]
    assert answers == {"one": "one", "two": "two"}


async def test_called_directly_whichever_agent_has_the_ask_answers_it() -> None:
    shared = Wait()
    async with open_agent(ScriptedModel([]), extensions=[shared], name="idle"):
        model = ScriptedModel([call("wait", id="w"), say("done")])
        async with open_agent(model, extensions=[shared], name="busy") as busy:
            async with busy.stream("go", session_id="s") as events:
                async for event in events:
                    if is_question(event):
                        reply = ExternalEvent("it_happened", {"tool_call_id": "w", "answer": "x"})
                        assert shared.accept(CONFIG, reply)
                        assert not shared.accept(CONFIG, reply)


# ---- what the call becomes


TEXTS = {
    AskOutcome.DECLINED: "the user declined to answer",
    AskOutcome.TIMED_OUT: "nobody answered in time",
    AskOutcome.NO_RESPONDER: "nobody is there who could answer",
    AskOutcome.CANCELLED: "the question was withdrawn",
}


async def result_of(outcome: AskOutcome, note: str = "") -> AgentEvent:
    async with open_agent(ScriptedModel([call("wait", id="w"), say("done")]), extensions=[Wait()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    session = agent.find("s")
                    assert session is not None
                    session.append(decisions.settle_ask(session.state, "w", outcome, note=note))
                elif event.type in (AgentEventType.TOOL_FAILED, AgentEventType.TOOL_COMPLETED):
                    return event
    raise AssertionError("the call has no result")


@pytest.mark.parametrize("outcome", list(TEXTS))
@pytest.mark.parametrize("note", ["", "later"])
async def test_a_call_whose_ask_was_not_answered_fails_with_its_kind_b20_b36(outcome: AskOutcome, note: str) -> None:
    event = await result_of(outcome, note)
    text = TEXTS[outcome] + (f": {note}" if note else "")
    assert (event.type, event.code) == (AgentEventType.TOOL_FAILED, f"ask.{outcome}")
    assert json.loads(event.error) == {"error": {"code": f"ask.{outcome}", "message": text}}
    assert Code(event.code)


async def test_a_call_whose_question_was_never_put_says_so() -> None:
    async with open_agent(ScriptedModel([call("wait"), say("done")]), extensions=[Wait(opens=False)]) as agent:
        async with agent.stream("go") as events:
            failed = [event async for event in events if event.type is AgentEventType.TOOL_FAILED]
    assert [event.code for event in failed] == ["ask.unknown"]
    assert json.loads(failed[0].error)["error"]["message"] == "wait was called without its question being put"


async def test_the_data_of_the_result_is_the_payload() -> None:
    seen: list[object] = []

    class Look(Wait):
        async def after_tool(self, context: Any, call: Any, result: ToolResult, error: Any) -> None:
            seen.append(result.data)

    async with open_agent(ScriptedModel([call("wait", id="w"), say("done")]), extensions=[Look()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    happened(agent, {"tool_call_id": "w", "answer": "x"})
        last = agent.session("s").history[-2]
    assert seen == [{"tool_call_id": "w", "answer": "x"}]
    assert isinstance(last, ToolMessage)
