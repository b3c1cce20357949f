"""Events that come from outside the run: from the same thread, from another one, through a channel."""

import threading

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import AgentEventType, AgentRunConfig, AskUserExtension, ExternalEvent, RunCancelled, open_agent
from actors.models.scripted import ScriptedModel, say
from tests.scenarios.staging import ask, staged, until, until_asked

ANSWER = {"tool_call_id": "q1", "answer": "Postgres"}


def _event(**payload: object) -> ExternalEvent:
    return ExternalEvent("ask_user_response", payload)


MALFORMED = [
    ExternalEvent("something_else", ANSWER),
    _event(),
    _event(answer="x"),
    _event(tool_call_id="", answer="x"),
    _event(tool_call_id="   ", answer="x"),
    _event(tool_call_id=7, answer="x"),
    _event(tool_call_id=None, answer="x"),
    _event(tool_call_id=["q1"], answer="x"),
    _event(tool_call_id="q9", answer="x"),
    _event(tool_call_id="q1", answer=" "),
    _event(tool_call_id="q1", answer=None),
    _event(tool_call_id="q1", answer=[]),
    _event(tool_call_id="q1", answer=float("nan")),
    _event(tool_call_id="q1", answer="\ud800"),
    _event(tool_call_id="q1", answer=object()),
]


async def test_events_that_answer_nothing_are_accepted_by_nobody_and_change_nothing(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        head = agent.session().seq
        for event in MALFORMED:
            assert agent.emit_external_event(event) == [], event
        assert agent.session().seq == head
        assert agent.emit_external_event(_event(**ANSWER)) == ["AskUserExtension"]
        assert agent.emit_external_event(_event(**ANSWER)) == [], "a duplicate"
        await events.final()
        assert agent.emit_external_event(_event(**ANSWER)) == [], "stale"


async def test_an_event_for_another_session_is_accepted_by_nobody_b44(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent, agent.stream("go", session_id="s1") as events:
        await until_asked(events)
        await agent.open("s2")
        for session_id in ("s2", "unknown", None):
            assert agent.emit_external_event(_event(**ANSWER), config=AgentRunConfig(session_id=session_id)) == []
        assert agent.emit_external_event(_event(**ANSWER)) == []
        config = AgentRunConfig(session_id="s1")
        assert agent.emit_external_event(_event(**ANSWER), config=config) == ["AskUserExtension"]
        await events.final()


async def test_an_event_after_the_cancel_is_accepted_by_nobody(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        await agent.session().cancel()
        assert agent.emit_external_event(_event(**ANSWER)) == []
        with pytest.raises(RunCancelled):
            await events.final()


async def test_a_payload_reaches_the_model_whole_and_later_changes_do_not(autojump_clock: MockClock) -> None:
    payload = {**ANSWER, "extra": {"deep": [1, 2]}}
    async with staged([ask("q1"), say("done")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        assert agent.emit_external_event(ExternalEvent("ask_user_response", payload))
        payload["extra"]["deep"].append(3)  # type: ignore[index]
        await events.final()
        result = agent.session().history[2]
        assert result.content == '{"tool_call_id":"q1","answer":"Postgres","extra":{"deep":[1,2]}}'


async def test_a_thread_answers_and_is_told_who_took_it() -> None:
    accepted: list[list[str]] = []
    with trio.fail_after(20):
        async with open_agent(ScriptedModel([ask("q1"), say("done")]), extensions=[AskUserExtension()]) as agent:
            async with agent.stream("go") as events:
                await until_asked(events)
                thread = threading.Thread(target=lambda: accepted.append(agent.emit_external_event(_event(**ANSWER))))
                thread.start()
                assert (await events.final()).content == "done"
            await trio.to_thread.run_sync(thread.join)
    assert accepted == [["AskUserExtension"]]


async def test_a_trio_worker_thread_answers_too() -> None:
    with trio.fail_after(20):
        async with open_agent(ScriptedModel([ask("q1"), say("done")]), extensions=[AskUserExtension()]) as agent:
            async with agent.stream("go") as events:
                await until_asked(events)
                taken = await trio.to_thread.run_sync(agent.emit_external_event, _event(**ANSWER))
                assert taken == ["AskUserExtension"]
                assert (await events.final()).content == "done"


async def test_a_memory_channel_feeds_a_session_until_it_ends(autojump_clock: MockClock) -> None:
    send, receive = trio.open_memory_channel[ExternalEvent](0)
    async with staged([ask("q1"), ask("q2"), say("done")]) as agent:
        await agent.attach(receive, session_id="s")
        async with agent.stream("go", session_id="s") as events:
            await until_asked(events)
            await send.send(ExternalEvent("noise"))
            await send.send(_event(**ANSWER))
            await until_asked(events)
            await send.send(_event(tool_call_id="q2", answer="b"))
            assert (await events.final()).content == "done"
        await send.aclose()
        await wait_all_tasks_blocked()


async def test_the_pump_of_a_channel_ends_with_its_session(autojump_clock: MockClock) -> None:
    send, receive = trio.open_memory_channel[ExternalEvent](0)
    async with staged([say("done")]) as agent:
        await agent.attach(receive, session_id="s")
        await agent.session("s").close()
        with pytest.raises(trio.BrokenResourceError):
            await send.send(ExternalEvent("noise"))


async def test_something_odd_in_a_channel_does_not_end_the_pump(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    send, receive = trio.open_memory_channel[object](0)
    with caplog.at_level(60):
        async with staged([ask("q1"), say("done")]) as agent:
            await agent.attach(receive)  # type: ignore[arg-type]
            async with agent.stream("go") as events:
                await until_asked(events)
                await send.send(object())
                await send.send(_event(**ANSWER))
                assert (await events.final()).content == "done"


async def test_a_command_is_carried_out_once(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("one"), say("two")]) as agent:
        handle = agent.session("s")
        first = await handle.prompt("go", command="p1")
        assert await handle.prompt("go", command="p1") == first
        await wait_all_tasks_blocked()
        answered = await handle.answer("q1", "Postgres", command="a1")
        assert await handle.answer("q1", "SQLite", command="a1") == answered
        assert (await handle.prompt("go", command="p1")) == first
        await handle.wait_idle()
        cancelled = await handle.cancel(command="k1")
        await handle.prompt("again", command="p2")
        assert await handle.cancel(command="k1") == cancelled, "a repeat cancels no later run"
        await handle.wait_idle()
        assert [m.content for m in handle.history if m.__class__.__name__ == "AssistantMessage"][-1] == "two"


async def test_the_answer_is_shown_to_the_caller_as_an_event(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        agent.emit_external_event(_event(**ANSWER))
        settled = await until(events, AgentEventType.ASK_SETTLED)
        assert settled.code == "answered" and settled.payload == ANSWER


async def test_a_channel_that_its_owner_closes_ends_the_pump_and_not_the_session(autojump_clock: MockClock) -> None:
    send, receive = trio.open_memory_channel[ExternalEvent](0)
    async with staged([say("done")]) as agent:
        await agent.attach(receive, session_id="s")
        await wait_all_tasks_blocked()
        receive.close()
        await wait_all_tasks_blocked()
        assert (await agent.run("go", session_id="s")).content == "done"
    send.close()
