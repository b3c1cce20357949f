"""One run from its start to its end, in every way it can be stopped, under virtual time."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    AgentEventType,
    AgentRunConfig,
    RuleViolation,
    RunCancelled,
    RunFailed,
    ScriptedModel,
    TodoWriteExtension,
    open_agent,
    tool,
)
from actors.models.scripted import call, say, stall
from actors.runtime import open_system
from protocol.errors import Code
from tests.scenarios.staging import ask, check_system, kinds, staged, until, until_asked, write

T = AgentEventType


async def test_two_asks_answered_out_of_order_reach_their_own_calls(autojump_clock: MockClock) -> None:
    async with staged([[ask("q1"), ask("q2")], say("done")]) as agent, agent.stream("go") as events:
        assert await until_asked(events, 2) == ["q1", "q2"]
        handle = agent.session()
        await handle.answer("q2", "SQLite")
        await handle.answer("q1", "Postgres")
        assert (await events.final()).content == "done"
        results = [m.content for m in handle.history if m.__class__.__name__ == "ToolMessage"]
        assert results == [
            '{"tool_call_id":"q1","answer":"Postgres"}',
            '{"tool_call_id":"q2","answer":"SQLite"}',
        ]


async def test_the_events_of_a_plain_run_come_in_their_order(autojump_clock: MockClock) -> None:
    async with staged([say("hello", chunks=2)]) as agent, agent.stream("go") as events:
        seen = [event.type.value async for event in events]
    assert seen == [
        "run_started", "message_added", "model_started", "content_started", "text_delta", "text_delta",
        "content_completed", "model_completed", "run_completed",
    ]  # fmt: skip


async def test_a_cancel_while_the_model_stalls_ends_the_run_at_once(autojump_clock: MockClock) -> None:
    async with staged([[say("a"), stall()]]) as agent:
        async with agent.stream("go") as events:
            await until(events, T.TEXT_DELTA)
            await agent.session().cancel("enough")
            with pytest.raises(RunCancelled, match=r"enough"):
                await events.final()
        assert agent.model.active == 0 and agent.model.closed == 1  # type: ignore[attr-defined]


async def test_a_cancel_while_a_tool_works_records_it_as_interrupted(autojump_clock: MockClock) -> None:
    @tool
    async def sleep() -> str:
        await trio.sleep(10)
        return "slept"

    async with staged([call("sleep", id="c1"), say("never")], tools=[sleep]) as agent:
        async with agent.stream("go") as events:
            await until(events, T.TOOL_STARTED)
            await agent.session().cancel()
            assert await kinds(events) == ["cancel_requested", "tool_failed", "run_cancelled"]
        last = agent.session().history[-1]
        assert last.outcome == "interrupted"  # type: ignore[union-attr]


async def test_a_cancel_while_an_ask_is_open_closes_it_and_late_answers_are_refused(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("never")]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
            await agent.session().cancel()
            with pytest.raises(RuleViolation, match=r"^ask\.settled: ask 'q1' is cancelled$"):
                await agent.session().answer("q1", "Postgres")
            assert await kinds(events) == ["cancel_requested", "ask_settled", "tool_skipped", "run_cancelled"]
        with pytest.raises(RuleViolation, match=r"^ask\.settled: ask 'q1' is cancelled$"):
            await agent.session().answer("q1", "Postgres")


async def test_a_cancel_before_the_first_step_calls_no_model_a25(autojump_clock: MockClock) -> None:
    async with staged([say("never")]) as agent:
        async with agent.stream("go") as events:
            assert agent.find(agent.session_id) is not None
            agent.find(agent.session_id).cancel_run(events.run_id, "at once")  # type: ignore[union-attr]
            with pytest.raises(RunCancelled):
                await events.final()
        assert agent.model.requests == []  # type: ignore[attr-defined]


async def test_a_cancel_by_whoever_sees_the_run_start_calls_no_model_a25(autojump_clock: MockClock) -> None:
    class Spoiler:
        def offer(self, event: object) -> bool:
            if type(event).__name__ == "RunStarted":
                assert session is not None
                session.cancel_run(event.run, "seen")  # type: ignore[attr-defined]
            return True

        def closed(self, code: Code, seq: int) -> None: ...

    async with staged([say("never")]) as agent:
        session = await agent.open("s")
        spoiler = Spoiler()
        session.attach(spoiler)
        await agent.session("s").prompt("go")
        await agent.session("s").wait_idle()
        session.detach(spoiler)
        assert type(session.log[-1]).__name__ == "RunCancelled"
        assert agent.model.requests == []  # type: ignore[attr-defined]


async def test_a_second_cancel_is_no_event(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
            first = await agent.session().cancel("one")
            second = await agent.session().cancel("two")
            assert second.seq >= first.seq
            seen = await kinds(events)
        assert seen.count("cancel_requested") == 1 and seen[-1] == "run_cancelled"


async def test_leaving_the_stream_early_cancels_the_run_and_waits_for_its_end(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("never")]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
        session = agent.find(agent.session_id)
        assert session is not None and not session.state.root
        assert type(session.log[-1]).__name__ == "RunCancelled"


async def test_breaking_out_and_prompting_again_at_once_works(autojump_clock: MockClock) -> None:
    async with staged([say("first"), say("second")], max_turns=1) as agent:
        async with agent.stream("go") as events:
            async for event in events:
                if event.type is T.MODEL_COMPLETED:
                    break
        assert (await agent.run("again")).content == "second"


async def test_a_consumer_that_raises_gets_its_own_error_and_the_run_is_cancelled(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("second")]) as agent:
        with pytest.raises(ValueError, match="mine"):
            async with agent.stream("go") as events:
                await until_asked(events)
                raise ValueError("mine")
        assert agent.session().status == "idle"


async def test_a_slow_consumer_sees_every_step_of_the_list_and_none_after_the_end(autojump_clock: MockClock) -> None:
    todo = TodoWriteExtension()
    script = [write("ipp"), write("cip"), write("cci"), write("ccc"), say("done")]
    seen: list[tuple[str, int | None]] = []
    async with staged(script, extensions=[todo]) as agent:
        async with agent.stream("go") as events:
            async for event in events:
                await trio.sleep(1)
                if event.type is T.TOOL_COMPLETED:
                    result = todo.todos(event.session_id)
                    assert result is not None
                    seen.append((event.type.value, result.in_progress_index))
                if event.type is T.RUN_COMPLETED:
                    assert todo.todos(event.session_id) is None
                    assert event.todos is not None and event.todos.completed
    assert seen == [("tool_completed", 0), ("tool_completed", 1), ("tool_completed", 2), ("tool_completed", None)]


async def test_a_queued_run_starts_when_the_first_has_ended(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("one"), say("two")]) as agent:
        async with trio.open_nursery() as nursery:
            async with agent.stream("first") as first:
                await until_asked(first)
                second = agent.stream("second", when_busy="queue")

                async def behind() -> None:
                    async with second as events:
                        assert (await events.final()).content == "two"

                nursery.start_soon(behind)
                await wait_all_tasks_blocked()
                await agent.session().answer("q1", "Postgres")
                assert (await first.final()).content == "one"


async def test_a_queued_run_that_is_left_leaves_nothing(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("one")]) as agent, agent.stream("first") as first:
        await until_asked(first)
        async with agent.stream("second", when_busy="queue") as second:
            pass
        assert second.run_id
        await agent.session().answer("q1", "Postgres")
        assert (await first.final()).content == "one"
        assert not agent.find(agent.session_id).callers  # type: ignore[union-attr]


async def test_a_queued_run_that_is_cancelled_by_whoever_sees_it_ends_for_its_caller(autojump_clock: MockClock) -> None:
    class Spoiler:
        def offer(self, event: object) -> bool:
            if type(event).__name__ == "RunQueued":
                assert session is not None
                session.cancel_run(event.run, "seen")  # type: ignore[attr-defined]
            return True

        def closed(self, code: Code, seq: int) -> None: ...

    async with staged([ask("q1"), say("one")]) as agent, agent.stream("first") as first:
        await until_asked(first)
        session = agent.find(agent.session_id)
        assert session is not None
        spoiler = Spoiler()
        session.attach(spoiler)
        with trio.fail_after(60):
            async with agent.stream("second", when_busy="queue") as second:
                with pytest.raises(RunCancelled):
                    await second.final()
        session.detach(spoiler)


async def test_a_busy_session_refuses_and_forgets_the_stream_that_was_refused(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("one")]) as agent, agent.stream("first") as first:
        await until_asked(first)
        with pytest.raises(RuleViolation, match=r"^session\.busy: run r2 is active; cancel it, steer it, or queue"):
            async with agent.stream("second"):
                raise AssertionError("never entered")
        await agent.session().answer("q1", "Postgres")
        await first.final()


async def test_a_steered_run_answers_the_message_before_it_ends(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("one"), say("two")]) as agent, agent.stream("first") as first:
        await until_asked(first)
        await agent.session().steer("and the cache?")
        await agent.session().answer("q1", "Postgres")
        seen = await kinds(first)
    assert seen == [
        "steering_queued", "ask_settled", "tool_started", "tool_completed", "steering_started", "model_completed",
        "steering_completed", "run_completed",
    ]  # fmt: skip


async def test_a_message_steered_while_the_final_answer_is_read_is_answered_too(autojump_clock: MockClock) -> None:
    async with staged([say("one"), say("two")]) as agent, agent.stream("first") as first:
        await until(first, T.MODEL_COMPLETED)
        await agent.session().steer("and the cache?")
        assert (await first.final()).content == "two"


async def test_a_run_without_an_answer_fails_after_max_turns(autojump_clock: MockClock) -> None:
    async with staged([write("ip"), write("ip"), write("ip")]) as agent:
        with pytest.raises(RunFailed, match=r"^run\.max_turns: no final answer after 2 model calls$"):
            await agent.run("go", config=AgentRunConfig(max_turns=2))


async def test_the_end_of_the_block_cancels_what_runs(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        ended: list[str] = []

        async with staged([ask("q1")]) as agent:

            async def caller() -> None:
                with pytest.raises(RunCancelled, match="the agent is being closed"):
                    await agent.run("go")
                ended.append("caller")

            nursery.start_soon(caller)
            await wait_all_tasks_blocked()
    assert ended == ["caller"]


async def test_a_cancel_around_the_agent_ends_everything_in_it(autojump_clock: MockClock) -> None:
    logs = []
    with trio.CancelScope() as outer:
        async with staged([ask("q1")]) as agent, agent.stream("go") as events:
            await until_asked(events)
            session = agent.find(agent.session_id)
            assert session is not None
            logs.append(session.log)
            outer.cancel()
            await trio.sleep_forever()
    assert outer.cancelled_caught
    assert type(logs[0][-1]).__name__ == "RunCancelled"


async def test_two_agents_of_one_name_may_follow_each_other_in_one_system(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        for _ in range(2):
            async with staged([say("a")], name="twin") as agent:
                assert (await agent.run("go")).content == "a"
    async with open_system() as system:
        for _ in range(2):
            async with open_agent(ScriptedModel([say("a")]), name="twin", system=system) as agent:
                assert (await agent.run("go")).content == "a"
            check_system(system)
