"""Clients that leave, vanish and come back while questions are open and tools run, over real sockets."""

import logging
from typing import Any

import pytest
import trio

from actors import ToolMessage, tool
from actors.client.connection import Refused
from actors.models.scripted import call, say, stall
from protocol import events as ev
from protocol.asks import AskOutcome
from tests.faults.invariants import check_history
from tests.scenarios.staging import ask, write
from tests.scenarios.wire import Seat, bare_client, seat, served, wait_until


async def test_clients_may_leave_in_any_order_and_be_told_to_by_any_task_a05() -> None:
    """The first one leaves first, told by a task that has not attached it; the turn behind it is as ever."""
    async with served([ask("q1"), say("done")]) as (agent, gateway):
        async with seat(gateway, "s") as first, seat(gateway, "s") as second, trio.open_nursery() as nursery:

            async def leave(one: Seat) -> None:
                await one.attachment.detach()
                await one.connection.close()

            async with trio.open_nursery() as other:
                other.start_soon(leave, first)
            await wait_until(lambda: gateway.connections == 1)
            await second.call("prompt", text="go")
            assert await second.until_asked(1) == ["q1"]
            nursery.start_soon(leave, second)
            await wait_until(lambda: not gateway.connections)
            assert trio.current_effective_deadline() > trio.current_time(), "nothing of theirs cancels this task"
            await agent.session("s").answer("q1", "Postgres")
            await agent.session("s").wait_idle()
        assert agent.session("s").history[-1].content == "done"
        async with seat(gateway, "s") as back:
            assert back.attachment.snapshot is not None and back.attachment.snapshot["status"] == "idle"


async def test_a_client_that_vanishes_in_the_middle_is_the_reason_and_is_sent_no_goodbye_a14(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = trio.Event()

    def rest(_: object) -> Any:
        return say("the rest")

    @tool
    async def wait() -> str:
        await gate.wait()
        return "waited"

    with caplog.at_level(logging.INFO):
        async with served([[say("Let me "), call("wait")], rest], tools=[wait]) as (agent, gateway):
            async with seat(gateway, "s") as watcher:
                async with bare_client(gateway) as client:
                    await client.call("session/open", session="s")
                    await client.call("session/attach", session="s")
                    await client.call("session/prompt", session="s", text="go")
                    await client.until_event("text_delta")
                    client.vanish()
                    await wait_until(lambda: gateway.connections == 1)
                closed = [record for record in caplog.records if "closed:" in record.getMessage()]
                assert len(closed) == 1 and "closed: 1006" in closed[0].getMessage(), closed
                gate.set()
                end = await watcher.until(ev.Event, lambda event: isinstance(event, ev.RUN_ENDS))
                assert isinstance(end, ev.RunCompleted), "who is gone ends no run"
            assert agent.session("s").history[-1].content == "the rest"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "closed:" in line]) == 2, "each link ends once"


async def test_a_cancel_for_nobody_is_not_found_and_makes_nothing_a25() -> None:
    async with served([say("done")]) as (agent, gateway), seat(gateway, "s") as client:
        for session, run, code in (("nobody", "", "session.unknown"), ("s", "r999", "run.unknown")):
            with pytest.raises(Refused) as refused:
                await client.connection.call("session/cancel", session=session, **({"run": run} if run else {}))
            assert refused.value.code == code
        assert (await client.call("cancel"))["seq"] == agent.session("s").seq, "nothing runs: acknowledged, no event"
        assert agent.find("nobody") is None


async def test_a_dismissed_question_is_seen_by_nobody_again_and_the_run_goes_on_b10() -> None:
    async with served([ask("q1"), say("without it"), stall()]) as (agent, gateway):
        async with seat(gateway, "s") as a:
            await a.call("prompt", text="go")
            await a.until_asked(1)
            await a.call("answer", ask="q1", outcome="declined")
            assert (await a.until(ev.AskSettled)).outcome == AskOutcome.DECLINED
            await a.until(ev.RunCompleted)
            log_id, cursor = a.attachment.log_id, a.attachment.cursor
        async with seat(gateway, "s", log_id=log_id, cursor=cursor) as back, seat(gateway, "s") as b:
            assert b.attachment.snapshot is not None and not b.attachment.snapshot.get("asks")
            assert back.attachment.mode == "tail"
            assert (await b.call("state"))["snapshot"].get("asks", []) == []
            with pytest.raises(trio.WouldBlock):
                back.attachment.receive_nowait()
            assert await b.refused_answer("q1", "Postgres") == ("ask.settled", "declined")
        (result,) = [m for m in agent.session("s").history if isinstance(m, ToolMessage)]
        assert result.outcome == "failed" and '"ask.declined"' in result.content
        assert agent.session("s").history[-1].content == "without it"


async def test_who_closes_the_dialog_late_or_was_away_learns_of_the_answer_and_changes_nothing_b24() -> None:
    async with served([ask("q1"), say("done")]) as (agent, gateway):
        async with seat(gateway, "s") as a, seat(gateway, "s") as b:
            async with bare_client(gateway) as c:
                await c.call("session/attach", session="s")
                await a.call("prompt", text="go")
                opened = await c.until_event("ask_opened")
                c.vanish()
                await wait_until(lambda: gateway.connections == 2)
            await a.until_asked(1)
            await a.call("answer", ask="q1", answer=["Postgres"])
            assert (await b.until(ev.AskSettled)).outcome == AskOutcome.ANSWERED
            with pytest.raises(Refused) as refused:
                await b.call("answer", ask="q1", outcome="declined")
            assert (refused.value.code, refused.value.details[0].code) == ("ask.settled", "answered")
            await a.until(ev.RunCompleted)
            async with seat(gateway, "s", log_id=a.attachment.log_id, cursor=opened["seq"]) as back:
                settled = await back.until(ev.AskSettled)
                assert (settled.tool_call_id, settled.outcome) == ("q1", AskOutcome.ANSWERED)
        (result,) = [m for m in agent.session("s").history if isinstance(m, ToolMessage)]
        assert '"answer":["Postgres"]' in result.content


@pytest.mark.parametrize("during", ["todo_write", "ask_user", "sleep"])
async def test_a_client_that_is_lost_interrupts_no_call_f07(during: str) -> None:
    """Its run goes on without it; each call has its one result, and the next prompt finds a whole history."""
    gate = trio.Event()

    @tool
    async def sleep() -> str:
        await gate.wait()
        return "slept"

    turn = [write("ip", id="t1"), ask("q1"), call("sleep", id="s1")]
    point = {"todo_write": "todos_changed", "ask_user": "ask_opened", "sleep": "tool_started"}[during]
    async with served([turn, say("done"), say("fine")], tools=[sleep]) as (agent, gateway):
        async with bare_client(gateway) as client:
            await client.call("session/open", session="s")
            await client.call("session/attach", session="s")
            await client.call("session/prompt", session="s", text="go")
            await client.until_event(point)
            client.vanish()
            await wait_until(lambda: not gateway.connections)
        async with seat(gateway, "s") as other:
            await wait_until(lambda: agent.session("s").asks)
            gate.set()
            await other.call("answer", ask="q1", answer=["Postgres"])
            await agent.session("s").wait_idle()
            await other.call("prompt", text="again")
            await agent.session("s").wait_idle()
        history = agent.session("s").history
        check_history(history)
        results = [(m.tool_call_id, m.outcome) for m in history if isinstance(m, ToolMessage)]
        assert results == [("t1", "completed"), ("q1", "completed"), ("s1", "completed")]
        assert history[-1].content == "fine"
        check_history(agent.model.requests[-1].messages)  # type: ignore[attr-defined]
