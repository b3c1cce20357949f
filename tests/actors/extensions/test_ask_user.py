"""`AskUserExtension`: which questions are put, how they are seen, and what the model reads of the answer."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.agent.agent import Agent, open_agent
from actors.agent.extension import AgentExtension, AgentRunConfig, ExternalEvent
from actors.agent.tools import tool
from actors.agent.view import AgentEvent, AgentEventType, AskUserEvent
from actors.extensions.ask_user import AskUserExtension
from actors.models.scripted import Call, ScriptedModel, call, say
from protocol.asks import AskOutcome, Option
from protocol.chat import CallOutcome, ToolMessage
from protocol.errors import RunCancelled
from protocol.history import Status
from protocol.limits import Limits

CONFIG = AgentRunConfig(session_id="s")


def ask(question: object = "Which?", options: object = None, *, id: str | None = None, **more: object) -> Call:
    arguments = {"question": question, **({"options": options} if options is not None else {}), **more}
    return call("ask_user", arguments, id=id)


def reply(agent: Agent, tool_call_id: object, answer: object = "yes", **more: object) -> list[str]:
    payload = {"tool_call_id": tool_call_id, "answer": answer, **more}
    return agent.emit_external_event(ExternalEvent("ask_user_response", payload), config=CONFIG)


def is_question(event: AgentEvent) -> bool:
    return event.type is AgentEventType.CUSTOM and event.name == "ask_user"


async def play(
    *calls: Call,
    on_event: Callable[[Agent, AgentEvent], object] | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> list[AgentEvent]:
    """Play one turn of calls and a final answer, and return every event."""
    extensions = options.pop("extensions", None) or [AskUserExtension(limits=limits or Limits())]
    seen: list[AgentEvent] = []
    model = ScriptedModel([list(calls), say("done")])
    async with open_agent(model, extensions=extensions, **options) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                seen.append(event)
                if on_event is not None:
                    on_event(agent, event)
    return seen


def answer_each(agent: Agent, event: AgentEvent) -> None:
    if is_question(event):
        assert reply(agent, event.payload["tool_call_id"]) == ["AskUserExtension"]


def tool_results(events: list[AgentEvent]) -> list[ToolMessage]:
    return [event.message for event in events if isinstance(event.message, ToolMessage)]


# ---- which questions are put


BAD_ARGUMENTS: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({}, [("question", "missing")]),
    ({"question": 7}, [("question", "string_type")]),
    ({"question": None}, [("question", "string_type")]),
    ({"question": ""}, [("question", "blank")]),
    ({"question": " \u200b"}, [("question", "blank")]),
    ({"question": "q" * 4_001}, [("question", "too_long")]),
    ({"question": "?", "options": "x"}, [("options", "list_type")]),
    ({"question": "?", "options": list(map(str, range(21)))}, [("options", "too_many")]),
    ({"question": "?", "options": ["x" * 501]}, [("options[0]", "too_long")]),
    ({"question": "?", "options": ["a", " a"]}, [("options[1]", "duplicate")]),
    ({"question": "?", "allow_multiple": "yes", "options": ["a"]}, [("allow_multiple", "bool_type")]),
    ({"question": "?", "allow_multiple": True}, [("allow_multiple", "no_options")]),
    ({"question": "?", "allow_multiple": True, "options": []}, [("allow_multiple", "no_options")]),
    ({"question": "?", "default": "a"}, [("default", "extra_forbidden")]),
    (
        {"question": "?", "options": ["   ", "", "A", "A ", "a", "\u200b"]},
        [("options[0]", "blank"), ("options[1]", "blank"), ("options[3]", "duplicate"), ("options[5]", "blank")],
    ),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD_ARGUMENTS)
async def test_a_question_that_cannot_be_put_fails_its_call_and_is_shown_to_nobody_b31_f19(
    arguments: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    events = await play(call("ask_user", arguments))
    assert not any(is_question(event) for event in events)
    (failed,) = [event for event in events if event.type is AgentEventType.TOOL_FAILED]
    assert failed.code == "tool.invalid_args"
    details = json.loads(failed.error)["error"]["details"]
    assert [(detail["path"], detail["code"]) for detail in details] == expected
    assert events[-1].type is AgentEventType.RUN_COMPLETED


async def test_limits_of_questions_can_be_set() -> None:
    events = await play(ask("long?"), limits=Limits(max_question_chars=4))
    (failed,) = [event for event in events if event.type is AgentEventType.TOOL_FAILED]
    assert "the question is over 4 characters" in failed.error


async def test_options_may_have_descriptions() -> None:
    options = ["Plain text", {"label": "Markdown", "description": "with headings"}]
    events = await play(ask("Which?", options, allow_multiple=True), on_event=answer_each)
    (question,) = [event for event in events if is_question(event)]
    assert isinstance(question, AskUserEvent)
    assert question.ask is not None
    assert question.ask.questions[0].options == (Option("Plain text"), Option("Markdown", "with headings"))
    assert question.ask.questions[0].multiple
    assert question.payload["options"] == ["Plain text", "Markdown"]


# ---- how they are seen


async def test_the_payload_is_the_documented_one() -> None:
    events = await play(ask("Which format?", ["Markdown", "Plain text"], id="call-7"), on_event=answer_each)
    (question,) = [event for event in events if is_question(event)]
    assert question.payload == {
        "session_id": "s",
        "tool_call_id": "call-7",
        "question": "Which format?",
        "options": ["Markdown", "Plain text"],
        "allow_multiple": False,
        "response_event": "ask_user_response",
    }
    assert [made.id for made in question.tool_calls] == ["call-7"]


async def test_the_tool_starts_only_once_its_answer_is_there() -> None:
    events = await play(ask(id="q"), on_event=answer_each)
    kinds = [event.type for event in events if event.tool_calls and event.tool_calls[0].id == "q"]
    assert kinds == [
        AgentEventType.MODEL_COMPLETED, AgentEventType.CUSTOM, AgentEventType.ASK_SETTLED, AgentEventType.TOOL_STARTED,
        AgentEventType.TOOL_COMPLETED,
    ]  # fmt: skip


async def test_a_reply_inside_the_event_handler_is_never_too_early_b15() -> None:
    events = await play(ask(id="q1"), ask(id="q2"), on_event=answer_each)
    assert [message.outcome for message in tool_results(events)] == [CallOutcome.COMPLETED] * 2


async def test_all_questions_of_a_turn_are_open_at_once_in_call_order_b12_b14_b41() -> None:
    seen: list[list[str]] = []

    def look(agent: Agent, event: AgentEvent) -> None:
        if is_question(event) and len(questions) < 3:
            questions.append(event.payload["tool_call_id"])
            if len(questions) == 3:
                seen.append([question.tool_call_id for question in agent.session("s").asks])
                for call_id in reversed(questions):
                    assert reply(agent, call_id, f"for {call_id}") == ["AskUserExtension"]

    questions: list[str] = []
    events = await play(ask("same?"), ask("same?"), ask("same?"), on_event=look)
    assert len(set(questions)) == 3
    assert seen == [questions]
    answers = {message.tool_call_id: json.loads(message.content)["answer"] for message in tool_results(events)}
    assert answers == {call_id: f"for {call_id}" for call_id in questions}


@pytest.mark.parametrize("provider_ids", [("q", "q"), (None, None), ("", "")])
async def test_calls_with_one_id_or_none_get_their_own_answers_b12(provider_ids: tuple[str | None, str | None]) -> None:
    def answer(agent: Agent, event: AgentEvent) -> None:
        if is_question(event):
            reply(agent, event.payload["tool_call_id"], event.payload["question"].upper())

    events = await play(ask("first", id=provider_ids[0]), ask("second", id=provider_ids[1]), on_event=answer)
    history = tool_results(events)
    assert len({message.tool_call_id for message in history}) == 2
    assert sorted(json.loads(message.content)["answer"] for message in history) == ["FIRST", "SECOND"]


async def test_a_question_holds_up_no_other_tool_b08_f21() -> None:
    order: list[str] = []

    @tool
    async def other() -> str:
        order.append("other ran")
        return "x"

    @tool
    async def boom() -> str:
        raise OSError("disk full")

    def look(agent: Agent, event: AgentEvent) -> None:
        if event.type in (AgentEventType.TOOL_COMPLETED, AgentEventType.TOOL_FAILED):
            order.append(event.tool_calls[0].name)
            if set(order) >= {"other", "boom"} and agent.session("s").asks:
                order.append("answered")
                reply(agent, "q")

    events = await play(ask(id="q"), call("other"), call("boom"), on_event=look, tools=[other, boom])
    assert order.index("answered") > max(order.index("other"), order.index("boom"))
    assert order[-1] == "ask_user"
    assert [message.outcome for message in tool_results(events)].count(CallOutcome.FAILED) == 1


async def test_a_session_with_a_question_waits_and_is_not_idle_b03() -> None:
    def look(agent: Agent, event: AgentEvent) -> None:
        if is_question(event):
            assert agent.session("s").status is Status.WAITING
            reply(agent, event.payload["tool_call_id"])
            assert agent.session("s").status is Status.RUNNING

    await play(ask(), on_event=look)


# ---- what the model reads


@pytest.mark.parametrize(
    "payload",
    [
        {"answer": "Markdown"},
        {"answer": ["Markdown", "Plain text"], "note": {"why": [1, 2.5, None]}},
        {"answer": "e\u0301t\u00e9 \U0001f950"},
        {"choice": 3},
        {"answer": False},
        {"parts": [{"type": "text", "text": "a"}], "answer": "kept"},
    ],
)
async def test_the_payload_reaches_the_model_unchanged_b32(payload: dict[str, Any]) -> None:
    def answer(agent: Agent, event: AgentEvent) -> None:
        if is_question(event):
            whole.update({"tool_call_id": event.payload["tool_call_id"], **payload})
            given = ExternalEvent("ask_user_response", dict(whole))
            assert agent.emit_external_event(given, config=CONFIG) == ["AskUserExtension"]

    whole: dict[str, Any] = {}
    events = await play(ask("?", ["Markdown", "Plain text"], allow_multiple=True), on_event=answer)
    (message,) = tool_results(events)
    assert json.loads(message.content) == whole
    assert json.dumps(json.loads(message.content), sort_keys=False) == json.dumps(whole)


async def test_what_the_ui_does_with_its_payload_afterwards_changes_nothing() -> None:
    def answer(agent: Agent, event: AgentEvent) -> None:
        if is_question(event):
            payload: dict[str, Any] = {"tool_call_id": event.payload["tool_call_id"], "answer": ["a"]}
            agent.emit_external_event(ExternalEvent("ask_user_response", payload), config=CONFIG)
            payload["answer"].append("b")

    (message,) = tool_results(await play(ask(), on_event=answer))
    assert json.loads(message.content)["answer"] == ["a"]


@pytest.mark.parametrize(
    "word", ["null", "Null", "undefined", "NaN", "false", "0", "__dismissed__", "None", "{}", " Postgres "]
)
async def test_any_word_is_an_answer_b35_b36(word: str) -> None:
    def answer(agent: Agent, event: AgentEvent) -> None:
        if is_question(event):
            assert reply(agent, event.payload["tool_call_id"], word) == ["AskUserExtension"]

    (message,) = tool_results(await play(ask(), on_event=answer))
    assert (message.outcome, json.loads(message.content)["answer"]) == (CallOutcome.COMPLETED, word)


@pytest.mark.parametrize("value", [["   "], [], [""], None, ["\u00a0"], {}, ["a", "b"]], ids=ascii)
async def test_an_answer_of_nothing_or_of_too_much_leaves_the_question_open_b35(value: object) -> None:
    def answer(agent: Agent, event: AgentEvent) -> None:
        if is_question(event):
            assert reply(agent, event.payload["tool_call_id"], value) == []
            assert len(agent.session("s").asks) == 1
            assert reply(agent, event.payload["tool_call_id"], "yes") == ["AskUserExtension"]

    (message,) = tool_results(await play(ask("?", ["a", "b"]), on_event=answer))
    assert json.loads(message.content)["answer"] == "yes"


async def test_a_person_can_decline_and_the_model_is_told_b10() -> None:
    async with open_agent(ScriptedModel([ask(id="q"), say("done")]), extensions=[AskUserExtension()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    await agent.session("s").decline("q", note="not now")
                if event.type is AgentEventType.TOOL_FAILED:
                    assert event.code == "ask.declined"
                    assert json.loads(event.error) == {
                        "error": {"code": "ask.declined", "message": "the user declined to answer: not now"}
                    }
            assert (await events.final()).content == "done"


# ---- cancelling


async def test_a_cancel_closes_the_question_and_a_late_answer_is_not_taken_b21() -> None:
    outcomes: list[str] = []
    async with open_agent(ScriptedModel([ask(id="q")]), extensions=[AskUserExtension()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    await agent.session("s").cancel("enough")
                    assert agent.session("s").asks == ()
                    assert reply(agent, "q") == []
                if event.type is AgentEventType.ASK_SETTLED:
                    outcomes.append(event.code)
            with pytest.raises(RunCancelled, match=r"^enough$"):
                await events.final()
        assert reply(agent, "q") == []
        assert outcomes == [AskOutcome.CANCELLED]
        last = agent.session("s").history[-1]
        assert isinstance(last, ToolMessage)
        assert last.outcome is CallOutcome.SKIPPED


async def test_an_answer_before_the_cancel_is_kept_b11_b21() -> None:
    async with open_agent(ScriptedModel([ask(id="q")]), extensions=[AskUserExtension()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    assert reply(agent, "q", "Postgres") == ["AskUserExtension"]
                    await agent.session("s").cancel()
        last = agent.session("s").history[-1]
        assert isinstance(last, ToolMessage)
        assert json.loads(last.content) == {"tool_call_id": "q", "answer": "Postgres"}


async def test_leaving_the_stream_closes_the_question() -> None:
    async with open_agent(ScriptedModel([ask(id="q"), say("done")]), extensions=[AskUserExtension()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    break
        assert agent.session("s").asks == ()
        assert agent.session("s").status is Status.IDLE
        assert reply(agent, "q") == []


# ---- with others


async def test_a_question_that_another_extension_forbids_is_withdrawn_b27() -> None:
    class Policy(AgentExtension):
        priority = 200

        async def before_tool(self, context: Any, call: Any) -> None:
            raise PermissionError("no questions")

    def look(agent: Agent, event: AgentEvent) -> None:
        if event.type is AgentEventType.TOOL_FAILED:
            assert agent.session("s").asks == ()
            assert reply(agent, "q") == []

    events = await play(ask(id="q"), on_event=look, extensions=[AskUserExtension(), Policy()])
    kinds = [event.type for event in events]
    assert kinds.index(AgentEventType.ASK_SETTLED) < kinds.index(AgentEventType.TOOL_FAILED)
    assert kinds[-1] is AgentEventType.RUN_COMPLETED


async def test_a_tool_of_that_name_that_is_not_ours_asks_nobody() -> None:
    class Other(AgentExtension):
        priority = 200

        async def on_tool(self, context: Any) -> None:
            context.tools["ask_user"] = ask_user

    @tool
    async def ask_user(question: str) -> str:
        return f"answered {question} itself"

    events = await play(ask("Q"), extensions=[AskUserExtension(), Other()])
    assert not any(is_question(event) for event in events)
    assert [message.content for message in tool_results(events)] == ["answered Q itself"]


async def test_a_removed_tool_asks_nobody() -> None:
    class Remove(AgentExtension):
        priority = 200

        async def on_tool(self, context: Any) -> None:
            del context.tools["ask_user"]

    events = await play(ask(), extensions=[AskUserExtension(), Remove()])
    assert not any(is_question(event) for event in events)
    (failed,) = [event for event in events if event.type is AgentEventType.TOOL_FAILED]
    assert failed.code == "tool.unknown"


async def test_steering_does_not_take_the_question_away_b28() -> None:
    async with open_agent(ScriptedModel([ask(id="q"), say("a"), say("b")]), extensions=[AskUserExtension()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    await agent.session("s").steer("rather this")
                    assert len(agent.session("s").asks) == 1
                    assert reply(agent, "q") == ["AskUserExtension"]
            assert (await events.final()).content in {"a", "b"}


async def test_an_answer_may_come_from_another_thread() -> None:
    def answer() -> list[str]:
        return reply(agent, "q")

    async with open_agent(ScriptedModel([ask(id="q"), say("done")]), extensions=[AskUserExtension()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            async for event in events:
                if is_question(event):
                    assert await trio.to_thread.run_sync(answer) == ["AskUserExtension"]
            assert (await events.final()).content == "done"


async def test_the_questions_of_two_sessions_do_not_know_each_other_b26_b44() -> None:
    model = ScriptedModel([ask(), say("done")], repeat=True)
    answered: list[str] = []

    async def one(session: str) -> None:
        async with agent.stream("go", session_id=session) as events:
            async for event in events:
                if event.type is AgentEventType.TOOL_COMPLETED:
                    answered.append(f"{session} {event.message.content}")  # type: ignore[union-attr]

    async with open_agent(model, extensions=[AskUserExtension()]) as agent:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "s1")
            nursery.start_soon(one, "s2")
            await wait_all_tasks_blocked()
            (first,), (second,) = agent.session("s1").asks, agent.session("s2").asks
            for session, question in (("s2", second), ("s1", first)):
                event = ExternalEvent("ask_user_response", {"tool_call_id": question.tool_call_id, "answer": session})
                assert agent.emit_external_event(event, config=AgentRunConfig(session_id=session)) != []
    assert len(answered) == 2
    for line in answered:
        session, content = line.split(" ", 1)
        assert json.loads(content)["answer"] == session
