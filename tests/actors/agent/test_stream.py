from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import AgentEventType, RuleViolation, RunCancelled, RunFailed, tool
from actors.agent.memory import MemoryStore
from actors.models.scripted import call, fail, pause, say, stall
from protocol import events as ev
from protocol.errors import Code, ModelError
from protocol.limits import Limits
from tests.faults.stores import SlowStore
from tests.scenarios.staging import ask, staged, until, until_asked, write

T = AgentEventType


async def test_a_stream_is_a_scope_and_says_so(autojump_clock: MockClock) -> None:
    async with staged([say("x")]) as agent:
        with pytest.raises(RuntimeError, match=r"^a run's stream is a scope; write\n    async with agent\.stream"):
            async for _ in agent.stream("go"):
                pass


async def test_a_stream_is_entered_once(autojump_clock: MockClock) -> None:
    async with staged([say("x")]) as agent:
        stream = agent.stream("go")
        async with stream as events:
            assert (events.session_id, events.run_id) == (agent.session_id, "r2")
            await events.final()
        with pytest.raises(RuntimeError, match=r"^this stream was entered already; call agent\.stream"):
            async with stream:
                pass


async def test_final_returns_the_last_answer_also_after_the_events_were_read(autojump_clock: MockClock) -> None:
    async with staged([write("ip"), say("done")]) as agent, agent.stream("go") as events:
        async for _ in events:
            pass
        assert (await events.final()).content == "done"
        with pytest.raises(StopAsyncIteration):
            await events.__anext__()


async def test_final_raises_what_the_run_ended_with(autojump_clock: MockClock) -> None:
    async with staged([fail(ModelError("down")), stall()]) as agent:
        async with agent.stream("go") as events:
            with pytest.raises(RunFailed, match=r"^model\.failed: down$") as failed:
                await events.final()
            assert failed.value.code == "model.failed"
        async with agent.stream("go") as events:
            await agent.session().cancel("enough")
            with pytest.raises(RunCancelled, match="enough"):
                await events.final()


async def test_events_of_other_runs_are_not_the_callers(autojump_clock: MockClock) -> None:
    async with staged([say("one"), say("two")]) as agent:
        await agent.run("first")
        async with agent.stream("second") as events:
            assert {event.run_id async for event in events} == {events.run_id}


async def test_a_long_buffer_is_given_back_while_it_is_read(autojump_clock: MockClock) -> None:
    text = "x" * 200
    async with staged([say(text, chunks=200)]) as agent, agent.stream("go") as events:
        await wait_all_tasks_blocked()
        seen = ""
        async for event in events:
            seen += event.delta
            assert len(events._buffer) - events._position <= 210
        assert seen == text and len(events._buffer) <= 1


async def test_reading_lets_others_run_at_least_every_32nd_event(autojump_clock: MockClock) -> None:
    ticks: list[int] = []
    async with staged([say("x" * 300, chunks=300)]) as agent, trio.open_nursery() as nursery:

        async def tick() -> None:
            while True:
                ticks.append(0)
                await trio.lowlevel.checkpoint()

        async with agent.stream("go") as events:
            await wait_all_tasks_blocked()
            nursery.start_soon(tick)
            await events.final()
        assert len(ticks) >= 300 // 32
        nursery.cancel_scope.cancel()


async def test_the_run_waits_before_its_next_turn_until_everything_was_taken(autojump_clock: MockClock) -> None:
    async with staged([write("ip"), say("done")]) as agent, agent.stream("go") as events:
        await wait_all_tasks_blocked()
        assert len(agent.model.requests) == 1  # type: ignore[attr-defined]
        await until(events, T.TOOL_COMPLETED)
        await wait_all_tasks_blocked()
        assert len(agent.model.requests) == 1, "the event was taken and is still being dealt with"  # type: ignore[attr-defined]
        await events.final()


async def test_many_parallel_tools_wait_for_room_together_and_all_go_on(autojump_clock: MockClock) -> None:
    @tool
    async def fetch() -> str:
        await trio.lowlevel.checkpoint()
        return "ok"

    calls = [call("fetch") for _ in range(50)]
    async with staged([calls, say("done")], tools=[fetch], limits=Limits(stream_high_water=8)) as agent:
        async with agent.stream("go") as events:
            await wait_all_tasks_blocked()
            assert (await events.final()).content == "done"


async def test_a_reader_of_a_queued_run_takes_and_leaves_only_its_own(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("one"), say("two")]) as agent, agent.stream("first") as first:
        await until_asked(first)
        async with agent.stream("second", when_busy="queue") as second:
            assert second.run_id != first.run_id
            await agent.session().answer("q1", "x")
            await first.final()
            assert [e.type.value async for e in second if e.seq] == [
                "run_queued", "run_started", "message_added", "model_completed", "run_completed",
            ]  # fmt: skip


async def test_a_stream_that_steers_sees_the_rest_of_the_active_run(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("one")]) as agent, agent.stream("first") as first:
        await until_asked(first)
        live = agent.find(agent.session_id).live(first.run_id)  # type: ignore[union-attr]
        async with agent.stream("more", when_busy="steer") as second:
            assert second.run_id == first.run_id
            assert live is not None and live.caller is first, "the run keeps to the pace of its own caller"
            await agent.session().answer("q1", "x")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first.final)
                assert (await second.final()).content == "one"


async def test_a_session_that_ends_before_its_run_says_why(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent, agent.stream("go", session_id="s") as events:
        await until_asked(events)
        session = agent.find("s")
        assert session is not None
        session.store_failed(OSError("disk"))
        with pytest.raises(RunFailed, match=r"^store\.failed: session 's' ended before its run did$"):
            await events.final()


async def test_a_store_that_fails_before_the_stream_has_joined_ends_it(autojump_clock: MockClock) -> None:
    store = SlowStore(delay_s=5.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        async with staged([say("x")], store=store) as agent, agent.stream("go", session_id="s") as events:
            session = agent.find("s")
            assert session is not None
            session.store_failed(OSError("disk"))
            with pytest.raises(RunFailed, match=r"^store\.failed: "):
                await events.final()
        nursery.cancel_scope.cancel()


async def test_leaving_gives_up_on_a_run_that_cannot_end_in_time(autojump_clock: MockClock) -> None:
    """Neither the run's terminal event nor the end of the session comes: the caller is let go all the same."""
    store = SlowStore(delay_s=1_000.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        limits = Limits(cancel_grace_s=1.0, close_grace_s=2.0)
        async with staged([say("x")], store=store, limits=limits) as agent:
            began = trio.current_time()
            async with agent.stream("go"):
                pass
            assert trio.current_time() - began == pytest.approx(3.0)
        nursery.cancel_scope.cancel()


async def test_the_first_code_of_an_end_counts() -> None:
    async with staged([say("x")]) as agent:
        events: Any = agent.stream("go")
        async with events:
            await events.final()
            end = events._end
            events.closed(Code.SESSION_CLOSED, 3)
            assert events._end is end and isinstance(end, ev.RunCompleted)


async def test_a_stream_that_is_refused_started_nothing(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        with pytest.raises(RuleViolation, match=r"^session\.busy: "):
            async with agent.stream("other"):
                pass
        assert agent.find(agent.session_id)._readers == [events]  # type: ignore[union-attr]


async def test_a_run_that_waits_for_its_caller_is_cancelled_by_the_caller_that_leaves(
    autojump_clock: MockClock,
) -> None:
    async with staged([say("one"), say("two")]) as agent:
        async with agent.stream("go") as events:
            await wait_all_tasks_blocked()
            live = agent.find(agent.session_id).live(events.run_id)  # type: ignore[union-attr]
            assert live is not None and live.caller is events and events._waiting
        assert not events._waiting
        assert (await agent.run("again")).content == "two"


async def test_a_reader_that_waits_is_woken_when_its_session_ends(autojump_clock: MockClock) -> None:
    async with (
        staged([ask("q1")]) as agent,
        agent.stream("go", session_id="s") as events,
        trio.open_nursery() as nursery,
    ):

        async def read() -> None:
            with pytest.raises(RunFailed, match=r"^session\.crashed: session 's' ended before its run did$"):
                await events.final()

        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        session.shut(RuleViolation(Code.SESSION_CRASHED))


async def test_a_second_reader_is_refused_and_the_first_goes_on(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent, agent.stream("go") as events:
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                assert (await events.final()).content == "done"

            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError, match=r"^another task is reading this stream$"):
                await events.__anext__()
            await agent.session().answer("q1", "x")


@pytest.mark.parametrize("delay_s", [0.0, 1.0])
async def test_a_task_that_still_reads_when_the_owner_leaves_is_woken(
    autojump_clock: MockClock, delay_s: float
) -> None:
    store = SlowStore(delay_s=delay_s) if delay_s else MemoryStore()
    async with (
        trio.open_nursery() as keeping,
        staged([ask("q1")], store=store) as agent,
        trio.open_nursery() as nursery,
    ):
        keeping.start_soon(store.keep if isinstance(store, SlowStore) else trio.lowlevel.checkpoint)
        async with agent.stream("go") as events:

            async def read() -> None:
                with pytest.raises((trio.ClosedResourceError, RunCancelled), match="left"):
                    await events.final()

            nursery.start_soon(read)
            await trio.sleep(30)
        assert agent.session().status == "idle"
        keeping.cancel_scope.cancel()


async def test_leaving_a_stream_that_only_steered_lets_the_run_go_on(autojump_clock: MockClock) -> None:
    async with staged([[say("half"), pause(5)], say("done")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()  # the model is at work
        async with agent.stream("faster", session_id="s", when_busy="steer"):
            pass
        assert agent.session("s").status == "running"
        await agent.session("s").wait_idle()
        assert [getattr(message, "content", "") for message in agent.session("s").history][-1] == "done"
