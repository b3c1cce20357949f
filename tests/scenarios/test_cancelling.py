"""Cancelling as users of agents have met it: what was done, what is said to have been done, and what still works."""

import gc
import json
import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import AgentEventType, AskUserExtension, RunCancelled, TodoWriteExtension, ToolMessage, tool
from actors.models.scripted import call, say
from protocol import events as ev
from tests.scenarios.staging import ask, kinds, staged, until, until_asked, write

T = AgentEventType


async def test_the_next_tool_starts_only_after_the_cancelled_one_has_unwound_a03(autojump_clock: MockClock) -> None:
    lock = trio.Lock()
    said: list[str] = []

    @tool
    async def locked(name: str) -> str:
        async with lock:
            said.append(f"{name} in")
            try:
                await trio.sleep(1)
            finally:
                with trio.move_on_after(2, shield=True):
                    await trio.sleep(0.2)
                said.append(f"{name} out")
        return name

    script = [call("locked", {"name": "a"}), call("locked", {"name": "b"}), say("done")]
    async with staged(script, tools=[locked]) as agent:
        async with agent.stream("go") as events:
            await until(events, T.TOOL_STARTED)
            await trio.sleep(0.05)
        assert (await agent.run("again")).content == "done"
    assert said == ["a in", "a out", "b in", "b out"]


@pytest.mark.parametrize("how", ["break", "raise", "cancelled"])
async def test_a_consumer_may_leave_in_any_way_and_nothing_is_ignored_a04(autojump_clock: MockClock, how: str) -> None:
    async with staged([[say("a", chunks=1), ask("q1")], say("next")]) as agent:

        async def consume(scope: trio.CancelScope) -> None:
            async with agent.stream("go") as events:
                async for _ in events:
                    if how == "break":
                        break
                    if how == "raise":
                        raise LookupError
                    scope.cancel()

        with trio.CancelScope() as scope:
            try:
                await consume(scope)
            except LookupError:
                assert how == "raise"
        assert scope.cancelled_caught == (how == "cancelled")
        gc.collect()
        assert agent.session().status == "idle"
        assert type(agent.find(agent.session_id).log[-1]) is ev.RunCancelled  # type: ignore[union-attr]


async def test_no_model_is_called_once_a_cancel_is_acknowledged_a10(autojump_clock: MockClock) -> None:
    @tool
    async def sleep(s: int) -> str:
        await trio.sleep(s)
        return "slept"

    async with staged([call("sleep", {"s": 10}, id="c1"), say("never")], tools=[sleep]) as agent:
        async with agent.stream("go") as events:
            await until(events, T.TOOL_STARTED)
            await trio.sleep(1)
            await agent.session().cancel()
            with pytest.raises(RunCancelled):
                await events.final()
        await trio.sleep(60)
        assert len(agent.model.requests) == 1  # type: ignore[attr-defined]
        (result,) = [m for m in agent.session().history if isinstance(m, ToolMessage)]
        assert result.outcome == "interrupted"


async def test_a_caller_that_is_gone_is_the_recorded_reason_and_no_error_hides_it_a14(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with staged([[say("a"), ask("q1")]]) as agent, agent.stream("go") as events:
            await until(events, T.TEXT_DELTA)
            session = agent.find(agent.session_id)
    assert session is not None
    last = session.log[-1]
    assert isinstance(last, ev.RunCancelled) and (last.reason, last.error) == ("its caller left", "")
    assert not caplog.records


async def test_status_and_stream_agree_at_every_poll_of_a_cancel_a23(autojump_clock: MockClock) -> None:
    @tool
    async def slow_to_stop() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(5, shield=True):
                await trio.sleep(1)
        return "never"

    polled: list[str] = []
    async with staged([call("slow_to_stop")], tools=[slow_to_stop]) as agent:
        async with agent.stream("go") as events, trio.open_nursery() as nursery:

            async def poll() -> None:
                while not polled or polled[-1] != "idle":
                    polled.append(str(agent.session().status))
                    await trio.sleep(0.1)

            nursery.start_soon(poll)
            await until(events, T.TOOL_STARTED)
            await trio.sleep(0.25)
            await agent.session().cancel()
            await agent.session().cancel()
            seen = await kinds(events)
    order = sorted(set(polled), key=polled.index)
    assert order == ["running", "cancelling", "idle"]
    assert seen == ["cancel_requested", "tool_failed", "run_cancelled"]


async def test_a_result_after_the_point_of_no_return_is_kept_a26(autojump_clock: MockClock) -> None:
    pushed: list[str] = []

    @tool
    async def push(branch: str) -> str:
        await trio.sleep(1)
        pushed.append(branch)
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return f"pushed {branch}"

    for wait_s, outcome, effects in ((0.5, "interrupted", []), (1.5, "completed", ["b"])):
        pushed.clear()
        async with staged([call("push", {"branch": "b"}, id="c1")], tools=[push]) as agent:
            async with agent.stream("go") as events:
                await until(events, T.TOOL_STARTED)
                await trio.sleep(wait_s)
                await agent.session().cancel()
                with pytest.raises(RunCancelled):
                    await events.final()
            (result,) = [m for m in agent.session().history if isinstance(m, ToolMessage)]
            assert (result.outcome, pushed) == (outcome, effects)
            if effects:
                assert result.content == "pushed b"


async def test_an_answer_is_recorded_although_a_sibling_breaks_the_block_a27(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent, agent.stream("go") as events:
        await until_asked(events)

        async def heartbeat() -> None:
            await wait_all_tasks_blocked()
            raise OSError("heartbeat")

        with pytest.raises(ExceptionGroup):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(heartbeat)
                await agent.session().answer("q1", "yes")
                await trio.sleep_forever()
        assert (await events.final()).content == "done"
        result = agent.session().history[2]
        assert json.loads(result.content)["answer"] == "yes"


async def test_interrupted_and_not_run_are_two_kinds_of_result_a29(autojump_clock: MockClock) -> None:
    written: list[int] = []

    @tool
    async def write_files() -> str:
        for number in range(3):
            written.append(number)
            await trio.sleep(1)
        return "wrote 3"

    async with staged([[call("write_files", id="c1"), ask("q1")]], tools=[write_files]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
            await trio.sleep(0.5)
            await agent.session().cancel()
            seen = {event.tool_calls[0].name: event.type.value async for event in events if event.message is not None}
        assert seen == {"write_files": "tool_failed", "ask_user": "tool_skipped"}
        interrupted, skipped = (json.loads(m.content)["error"] for m in agent.session().history[2:])
        assert interrupted["code"] == "call.interrupted" and "may have had effects" in interrupted["message"]
        assert skipped["code"] == "call.skipped" and "was not run" in skipped["message"]
    assert written == [0]


@pytest.mark.parametrize("when", ["todo", "ask", "sleep", "model"])
async def test_each_call_has_one_result_whenever_history_is_read_f07(autojump_clock: MockClock, when: str) -> None:
    @tool
    async def sleep() -> str:
        await trio.sleep(10)
        return "slept"

    first: list[Any] = [write("ip", id="t1"), ask("q1"), call("sleep", id="s1")]
    async with staged([first, say("fine")], tools=[sleep]) as agent:
        stop = {"todo": T.TODOS_CHANGED, "ask": T.CUSTOM, "sleep": T.TOOL_STARTED, "model": T.TEXT_DELTA}[when]
        async with agent.stream("go") as events:
            async for event in events:
                if event.type is stop or (when == "model" and event.type is T.TOOL_CALL_DELTA):
                    break
        messages = agent.session().history
        results = [m for m in messages if isinstance(m, ToolMessage)]
        assert [m.tool_call_id for m in results] == (["t1", "q1", "s1"] if results else [])
        assert all(m.content.strip() for m in results)
        agent.model._position = 1  # type: ignore[attr-defined]
        assert (await agent.run("again")).content == "fine"


async def test_a_cancelled_list_is_over_and_the_event_says_how_far_it_got_c12_c13(autojump_clock: MockClock) -> None:
    todo = TodoWriteExtension()
    async with staged([write("ipp"), write("cip"), ask("q1")], extensions=[todo, AskUserExtension()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            await until_asked(events)
            assert todo.todos("s") is not None
            await agent.session("s").cancel()
            last = [event async for event in events][-1]
        assert last.type is T.RUN_CANCELLED
        assert last.todos is not None and not last.todos.completed and last.todos.in_progress_index == 1
        assert todo.todos("s") is None, "nothing is shown as being worked on while nothing runs"
