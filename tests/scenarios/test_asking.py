"""Questions to people as users of agents have met them: several at once, odd answers, odd options, late replies."""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    Agent,
    AgentEventType,
    AgentExtension,
    AgentRunConfig,
    AgentRunContext,
    AskUserExtension,
    ExternalEvent,
    RuleViolation,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    tool,
)
from actors.models.scripted import call, say
from protocol import events as ev
from protocol.errors import Code
from tests.scenarios.staging import ask, kinds, staged, until, until_asked, write

T = AgentEventType


def _results(agent: Agent, session_id: str | None = None) -> dict[str, ToolMessage]:
    return {m.tool_call_id: m for m in agent.session(session_id).history if isinstance(m, ToolMessage)}


async def test_three_questions_with_the_same_words_are_told_apart_b12_b14(autojump_clock: MockClock) -> None:
    async with staged([[ask(""), ask(""), ask("")], say("done")]) as agent, agent.stream("go") as events:
        ids = await until_asked(events, 3)
        assert len(set(ids)) == 3
        assert [record.tool_call_id for record in agent.session().asks] == ids, "all are listed, in call order"
        for number, tool_call_id in enumerate(reversed(ids)):
            await agent.session().answer(tool_call_id, f"answer {number}")
        await events.final()
        answers = [json.loads(_results(agent)[i].content)["answer"] for i in ids]
        assert answers == ["answer 2", "answer 1", "answer 0"]


async def test_a_question_outlives_a_sibling_that_completes_b08(autojump_clock: MockClock) -> None:
    @tool
    async def background(ms: int) -> str:
        await trio.sleep(ms / 1000)
        return "finished"

    async with staged([[call("background", {"ms": 10}, id="b1"), ask("q1")], say("done")], tools=[background]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
            await until(events, T.TOOL_COMPLETED, "background")
            await trio.sleep(3_600)
            assert agent.session().status == "waiting"
            await agent.session().answer("q1", "Postgres")
            await events.final()
        assert json.loads(_results(agent)["q1"].content)["answer"] == "Postgres"


async def test_a_cancel_after_the_answer_never_rewrites_it_b11_b21(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("never")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        session = agent.find(agent.session_id)
        assert session is not None
        event = ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": "Postgres"})
        assert agent.emit_external_event(event)
        session.cancel_run(events.run_id, "late")
        assert (await kinds(events))[-1] == "run_cancelled"
        assert json.loads(_results(agent)["q1"].content)["answer"] == "Postgres"
        with pytest.raises(RuleViolation, match=r"^ask\.settled: ask 'q1' is answered$"):
            await agent.session().answer("q1", "SQLite")


async def test_a_cancel_before_the_answer_refuses_it_b21(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        session = agent.find(agent.session_id)
        assert session is not None
        session.cancel_run(events.run_id, "first")
        event = ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": "Postgres"})
        assert agent.emit_external_event(event) == []
        await kinds(events)
        assert _results(agent)["q1"].outcome == "skipped"


async def test_an_answer_within_the_delivery_of_the_question_is_never_refused_b15(autojump_clock: MockClock) -> None:
    taken: list[list[str]] = []

    class Client:
        def offer(self, event: ev.Event) -> bool:
            if isinstance(event, ev.AskOpened):
                answer = {"tool_call_id": event.ask.tool_call_id, "answer": "at once"}
                config = AgentRunConfig(session_id="s")
                taken.append(agent.emit_external_event(ExternalEvent("ask_user_response", answer), config=config))
            return True

        def closed(self, code: Code, seq: int) -> None: ...

    async with staged(ScriptedModel([[ask("", "a"), ask("", "b")], say("done")], repeat=True)) as agent:
        session = await agent.open("s")
        client = Client()
        session.attach(client)
        for _ in range(200):
            await agent.run("go", session_id="s")
        session.detach(client)
    assert taken == [["AskUserExtension"]] * 400


async def test_questions_whose_preparation_waits_are_both_registered_b16_b41(autojump_clock: MockClock) -> None:
    class Slow(AgentExtension):
        priority = 1

        async def before_tool(self, context: AgentRunContext, call: ToolCall) -> None:
            await trio.sleep(1)

    async with staged([[ask("k1"), ask("q1")], say("done")], extensions=[Slow(), AskUserExtension()]) as agent:
        async with agent.stream("go") as events:
            assert await until_asked(events, 2) == ["k1", "q1"]
            await agent.session().answer("q1", "b")
            await agent.session().answer("k1", "a")
            await events.final()
        assert [m.outcome for m in _results(agent).values()] == ["completed", "completed"]


async def test_who_comes_second_is_told_and_the_answer_stands_b24(autojump_clock: MockClock) -> None:
    class Client:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def offer(self, event: ev.Event) -> bool:
            if isinstance(event, ev.AskSettled):
                self.seen.append(event.outcome)
            return True

        def closed(self, code: Code, seq: int) -> None: ...

    clients = [Client(), Client()]
    async with staged([ask("q1"), say("done")]) as agent:
        session = await agent.open("s")
        for client in clients:
            session.attach(client)
        async with agent.stream("go", session_id="s") as events:
            await until_asked(events)
            await agent.session("s").answer("q1", "Postgres")
            await trio.sleep(1)
            with pytest.raises(RuleViolation, match=r"^ask\.settled: ask 'q1' is answered$") as refused:
                await agent.session("s").decline("q1")
            assert refused.value.details[0].code == "answered"
            await events.final()
        late = Client()
        session.attach(late, after=0)
        for client in (*clients, late):
            assert client.seen == ["answered"]
            session.detach(client)
        assert json.loads(_results(agent, "s")["q1"].content)["answer"] == "Postgres"


async def test_each_session_has_its_own_questions_b26(autojump_clock: MockClock) -> None:
    async with staged(ScriptedModel([ask("q1"), say("done")], repeat=True)) as agent:
        for name in ("s1", "s2"):
            await agent.session(name).prompt("go")
        await wait_all_tasks_blocked()
        await agent.session("s2").answer("q1", "SQLite")
        await agent.session("s2").wait_idle()
        assert [record.tool_call_id for record in agent.session("s1").asks] == ["q1"]
        await agent.session("s1").answer("q1", "Postgres")
        await agent.session("s1").wait_idle()
        assert json.loads(_results(agent, "s1")["q1"].content)["answer"] == "Postgres"


async def test_no_run_ends_while_its_question_is_open_b27(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None and not any(isinstance(event, ev.RUN_ENDS) for event in session.log)
        await agent.session("s").answer("q1", "Postgres")
        await agent.session("s").wait_idle()
        assert isinstance(session.log[-1], ev.RunCompleted)


async def test_options_that_cannot_be_told_apart_are_refused_by_index_b31(autojump_clock: MockClock) -> None:
    options = ["   ", "", "A", "A ", "a", "\u200b"]
    async with staged([ask("q1", options=options), say("done")]) as agent:
        await agent.run("go")
        error = json.loads(_results(agent)["q1"].content)["error"]
    assert [(d["path"], d["code"]) for d in error["details"]] == [
        ("options[0]", "blank"), ("options[1]", "blank"), ("options[3]", "duplicate"), ("options[5]", "blank"),
    ]  # fmt: skip


async def test_an_option_is_answered_code_point_for_code_point_b32(autojump_clock: MockClock) -> None:
    options = ["C++", "C", "C#", "été", "e\u0301te\u0301", "x" * 64 + "a", "x" * 64 + "b"]
    for option in options:
        async with staged([ask("q1", options=options), say("done")]) as agent, agent.stream("go") as events:
            await until_asked(events)
            await agent.session().answer("q1", option)
            await events.final()
            assert json.loads(_results(agent)["q1"].content)["answer"] == option


@pytest.mark.parametrize("value", [["   "], [], [""], None, ["\xa0"], "", "  \u200b "])
async def test_an_answer_that_says_nothing_leaves_the_question_open_b35(autojump_clock: MockClock, value: Any) -> None:
    async with staged([ask("q1"), say("done")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        with pytest.raises(RuleViolation, match=r"^ask\.invalid: "):
            await agent.session().answer("q1", value)
        assert agent.session().status == "waiting"
        await agent.session().answer("q1", [" Postgres "])
        await events.final()
        assert json.loads(_results(agent)["q1"].content)["answer"] == [" Postgres "], "verbatim"


SENTINELS = ["null", "Null", "undefined", "NaN", "false", "0", "__dismissed__", "None", "{}", "declined", "cancelled"]


@pytest.mark.parametrize("text", SENTINELS)
async def test_no_word_is_taken_for_an_outcome_b36(autojump_clock: MockClock, text: str) -> None:
    async with staged([ask("q1"), say("done")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        await agent.session().answer("q1", text)
        await events.final()
        result = _results(agent)["q1"]
        assert result.outcome == "completed" and json.loads(result.content)["answer"] == text


async def test_declined_is_an_outcome_of_its_own_b36(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        await agent.session().decline("q1", note="not my call")
        await events.final()
        result = _results(agent)["q1"]
        assert result.outcome == "failed"
        assert json.loads(result.content)["error"] == {
            "code": "ask.declined",
            "message": "the user declined to answer: not my call",
        }


async def test_a_question_that_is_open_has_no_result_until_its_answer_b45(autojump_clock: MockClock) -> None:
    @tool
    async def quick() -> str:
        return "quick"

    async with staged([[call("quick", id="c1"), ask("q1")], say("done")], tools=[quick]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
            await until(events, T.TOOL_COMPLETED, "quick")
            assert _results(agent) == {}, "the turn's results enter the history together"
            await agent.session().answer("q1", "real")
            await events.final()
        assert [m.tool_call_id for m in _results(agent).values()] == ["c1", "q1"]
        assert json.loads(_results(agent)["q1"].content)["answer"] == "real"


async def test_an_answer_for_another_kind_of_id_changes_nothing_f26(autojump_clock: MockClock) -> None:
    async with staged([[ask("c1"), ask("c2")], say("done")]) as agent, agent.stream("go", session_id="s1") as events:
        await until_asked(events, 2)
        await agent.session("s1").answer("c2", "b")
        await wait_all_tasks_blocked()
        head = agent.session("s1").seq
        for wrong, code in (("zzz", "ask.unknown"), ("c2", "ask.settled"), ("s2:c1", "ask.unknown")):
            with pytest.raises(RuleViolation, match=code):
                await agent.session("s1").answer(wrong, "x")
        config = AgentRunConfig(session_id="s1")
        event = ExternalEvent("ask_user_response", {"tool_call_id": 7, "answer": "x"})
        assert agent.emit_external_event(event, config=config) == []
        assert agent.session("s1").seq == head
        await agent.session("s1").answer("c1", "a")
        await events.final()


BAD_CALLS = [
    call("ask_user", "{}", id="c1"),
    call("todo_write", '{"todo": []}', id="c2"),
    call("ask_user", '{"question": 7, "options": "x"}', id="c3"),
    call("ask_user", "{not json", id="c4"),
    call("nobody", "{}", id="c5"),
]


async def test_calls_that_do_not_fit_are_results_and_the_actor_lives_f19(autojump_clock: MockClock) -> None:
    async with staged([BAD_CALLS, say("done")]) as agent:
        assert (await agent.run("go")).content == "done"
        results = _results(agent)
        codes = [json.loads(m.content)["error"]["code"] for m in results.values()]
        assert list(results) == ["c1", "c2", "c3", "c4", "c5"]
        assert codes == ["tool.invalid_args"] * 3 + ["call.invalid", "tool.unknown"]
        assert all("pydantic" not in m.content for m in results.values())


async def test_a_failing_sibling_without_words_has_id_name_and_text_f20(autojump_clock: MockClock) -> None:
    @tool
    async def boom() -> str:
        raise LookupError

    @tool
    async def fine() -> str:
        return "fine"

    turn = [call("fine", id="c1"), call("boom", id="c2"), call("fine", id="c3")]
    async with staged([turn, say("done")], tools=[boom, fine]) as agent:
        await agent.run("go")
        results = _results(agent)
        assert [(m.tool_call_id, m.name) for m in results.values()] == [("c1", "fine"), ("c2", "boom"), ("c3", "fine")]
        assert json.loads(results["c2"].content)["error"]["message"] == "LookupError"


async def test_a_failing_sibling_takes_nothing_from_the_others_f21(autojump_clock: MockClock) -> None:
    @tool
    async def boom() -> str:
        await trio.sleep(1)
        raise OSError("boom")

    async with staged([[write("ipp", id="c1"), ask("c2"), call("boom", id="c3")], say("done")], tools=[boom]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
            await until(events, T.TOOL_FAILED, "boom")
            assert agent.session().status == "waiting" and agent.session().todos is not None
            await agent.session().answer("c2", "Postgres")
            assert (await events.final()).content == "done"
        assert [m.outcome for m in _results(agent).values()] == ["completed", "completed", "failed"]
