"""Whole runs over real sockets: two clients, cancels at every point, clients that vanish and come back."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from actors import Agent, AgentExtension, AgentRunContext, ChecklistModel, Gateway, ScriptedModel, tool
from actors.models.scripted import call, say, stall
from protocol import events as ev
from protocol.asks import AskOutcome
from protocol.todos import TodoStatus
from tests.faults.invariants import check_log
from tests.scenarios.staging import ask
from tests.scenarios.wire import BareClient, Seat, bare_client, seat, served, wait_until

CHECKLIST = """\
- Read the notes
- Which channel?
  - stable
  - beta
- Which platforms?
  - [ ] Linux
  - [ ] macOS
- Publish
"""


@tool
async def wait() -> str:
    """Wait until cancelled."""
    await trio.sleep_forever()
    return "never"


@asynccontextmanager
async def two_seats(gateway: Gateway) -> AsyncGenerator[tuple[Seat, Seat]]:
    async with seat(gateway, "s") as a, seat(gateway, "s") as b:
        assert gateway.connections == 2
        yield a, b


def _same_log(agent: Agent, a: Seat, b: Seat) -> None:
    """Check that both have taken the same records, without a gap, and that they are those of the session's log."""
    session = agent.find("s")
    assert session is not None
    assert a.log == b.log == [(session.state.log_id, event.seq) for event in session.log[a.log[0][1] - 1 :]]
    durable = [event for event in a.seen if event.seq]
    assert durable == [event for event in b.seen if event.seq] == list(session.log)[-len(durable) :]
    assert [seq for _, seq in a.log] == list(range(a.log[0][1], a.log[-1][1] + 1))
    check_log(session.log)


async def test_a_checklist_is_answered_out_of_order_by_two_clients() -> None:
    async with served(ChecklistModel()) as (agent, gateway), two_seats(gateway) as (a, b):
        run = (await a.call("prompt", text=CHECKLIST))["run"]
        channel, platforms = await a.until_asked(2)
        assert await b.until_asked(2) == [channel, platforms]

        await b.call("answer", ask=platforms, answer=["Linux", "macOS"])
        for one in (a, b):
            assert (await one.until(ev.AskSettled)).tool_call_id == platforms
        assert await a.refused_answer(platforms, "Linux") == ("ask.settled", "answered")
        await a.call("answer", ask=channel, answer="beta")
        assert await b.refused_answer(channel, "stable") == ("ask.settled", "answered")

        for one in (a, b):
            await one.until(ev.RunCompleted)
            lists = [event.todos for event in one.of(run) if isinstance(event, ev.TodosChanged) and event.todos]
            done = [sum(item.status is TodoStatus.COMPLETED for item in each.items) for each in lists]
            assert done == [0, 1, 2, 3, 4]
            last = [event for event in one.seen if isinstance(event, ev.ModelCompleted)][-1].message
            assert last.content == (
                "## Summary\n\n4 steps done.\n\n1. Read the notes\n2. Which channel? — **beta**\n"
                "3. Which platforms? — **Linux, macOS**\n4. Publish\n"
            )
        _same_log(agent, a, b)
        texts = [[(e.message, e.offset, e.text) for e in one.seen if isinstance(e, ev.TextStreamed)] for one in (a, b)]
        assert texts[0] == texts[1] != []


CANCELS: dict[str, tuple[list[Any], type[ev.Event]]] = {
    "mid-model": ([[say("Let me th"), stall()]], ev.TextStreamed),
    "mid-model-after-a-call": ([[say("a"), call("wait", id="w1"), stall()]], ev.ToolCallStreamed),
    "mid-tool": ([call("wait", id="w1")], ev.ToolStarted),
    "mid-ask": ([ask("q1")], ev.AskOpened),
    "mid-tool-and-ask": ([[call("wait", id="w1"), ask("q1")]], ev.ToolStarted),
}


@pytest.mark.parametrize("where", CANCELS)
@pytest.mark.parametrize("who", ["asker", "other"])
async def test_a_cancel_ends_the_run_once_and_the_session_goes_on(where: str, who: str) -> None:
    turns, point = CANCELS[where]
    async with served([*turns, say("fine")], tools=[wait]) as (agent, gateway), two_seats(gateway) as (a, b):
        run = (await a.call("prompt", text="go"))["run"]
        for one in (a, b):
            await one.until(point)
        canceller, other = (a, b) if who == "asker" else (b, a)
        reply = await canceller.call("cancel", reason="enough")
        assert reply["run"] == run
        if "ask" in where:
            assert await other.refused_answer("q1", "Postgres") == ("ask.settled", "cancelled")

        await _goes_on(agent, a, b, run)

        settled = [event.outcome for event in a.seen if isinstance(event, ev.AskSettled)]
        assert settled == ([AskOutcome.CANCELLED] if "ask" in where else [])
        if "ask" in where:
            assert await other.refused_answer("q1", "Postgres") == ("ask.settled", "cancelled"), "also much later"


async def _goes_on(agent: Agent, a: Seat, b: Seat, run: str) -> None:
    """Check that the run ended once, cancelled, with nothing of it after; and that another one completes."""
    await a.call("prompt", text="again", when_busy="queue")
    for one in (a, b):
        await one.until(ev.RunCompleted)
        *_, last = of = one.of(run)
        assert [event for event in of if isinstance(event, ev.RUN_ENDS)] == [last]
        assert isinstance(last, ev.RunCancelled)
        messages = [event.message.content for event in one.seen if isinstance(event, ev.ModelCompleted)]
        assert messages[-1] == "fine"
    _same_log(agent, a, b)


async def test_a_cancel_after_an_answer_leaves_the_answer() -> None:
    async with served([ask("q1"), stall(), say("fine")]) as (agent, gateway), two_seats(gateway) as (a, b):
        run = (await a.call("prompt", text="go"))["run"]
        await b.until_asked(1)
        await b.call("answer", ask="q1", answer="Postgres")
        await a.until(ev.ModelStarted, lambda event: event.turn == 2)
        await a.call("cancel")
        assert await a.refused_answer("q1", "SQLite") == ("ask.settled", "answered")
        await _goes_on(agent, a, b, run)


async def test_cancelling_twice_is_acknowledged_twice_and_ends_once() -> None:
    async with served([ask("q1"), say("fine")]) as (agent, gateway), two_seats(gateway) as (a, b):
        run = (await a.call("prompt", text="go"))["run"]
        await b.until_asked(1)
        replies: list[Any] = []

        async def cancel(one: Seat) -> None:
            replies.append(await one.call("cancel", run=run))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel, a)
            nursery.start_soon(cancel, b)
        await a.until(ev.RunCancelled)
        assert [reply["run"] for reply in replies] == [run, run]
        assert (await b.call("cancel"))["seq"] > 0, "and once more when nothing runs"
        await _goes_on(agent, a, b, run)
        assert len([event for event in a.seen if isinstance(event, ev.CancelRequested)]) == 1


IN_ONE_GO = (("session/prompt", {"session": "s", "text": "go"}), ("session/cancel", {"session": "s"}))


async def _in_one_go(client: BareClient) -> tuple[str, dict[str, Any]]:
    """Prompt and cancel in one segment; return the run of the prompt, and what the cancel was answered."""
    await client.send(*IN_ONE_GO)
    prompted = (await client.until(lambda message: message.get("id") == 1))["result"]
    return prompted["run"], (await client.until(lambda message: message.get("id") == 2))["result"]


async def test_a_cancel_in_one_go_with_its_prompt_comes_before_the_first_step() -> None:
    class Preparing(AgentExtension):
        hold = True

        async def before_run(self, context: AgentRunContext) -> None:
            if self.hold:
                await trio.sleep_forever()

    model, preparing = ScriptedModel([say("fine")]), Preparing()
    async with served(model, extensions=[preparing]) as (agent, gateway), two_seats(gateway) as (a, b):
        async with bare_client(gateway) as client:
            run, cancelled = await _in_one_go(client)
        assert cancelled["run"] == run
        for one in (a, b):
            await one.until(ev.RunCancelled)
        assert model.requests == [], "the model was never called"
        preparing.hold = False
        await _goes_on(agent, a, b, run)


async def test_a_cancel_in_one_go_with_the_prompt_of_a_short_run_ends_it_once_either_way() -> None:
    """The run goes on between the two calls: it may be over when the cancel is read, which is acknowledged then too."""
    async with served(ScriptedModel([say("fine")], repeat=True)) as (agent, gateway), two_seats(gateway) as (a, b):
        async with bare_client(gateway) as client:
            runs = []
            for _ in range(30):
                run, cancelled = await _in_one_go(client)
                assert cancelled["seq"] > 0 and cancelled.get("run", run) == run
                await agent.session("s").wait_idle()
                runs.append(run)
        assert len(set(runs)) == 30
        for one in (a, b):
            ends = [await one.until(ev.Event, lambda event: isinstance(event, ev.RUN_ENDS)) for _ in runs]
            assert [event.run for event in ends] == runs
        _same_log(agent, a, b)


async def test_a_queued_run_is_cancelled_before_it_starts() -> None:
    async with served([ask("q1"), say("fine")]) as (agent, gateway), two_seats(gateway) as (a, b):
        await a.call("prompt", text="go")
        await b.until_asked(1)
        run = (await b.call("prompt", text="then this", when_busy="queue"))["run"]
        await a.call("cancel", run=run)
        await b.call("answer", ask="q1", answer="Postgres")
        await a.until(ev.RunCompleted)
        await b.until(ev.RunCompleted)
        kinds = [type(event) for event in a.of(run)]
        assert ev.RunStarted not in kinds
        assert kinds[0] is ev.RunQueued and kinds[-1] is ev.RunCancelled and kinds.count(ev.RunCancelled) == 1
        _same_log(agent, a, b)


async def test_a_question_outlives_the_client_that_vanished_and_another_answers() -> None:
    async with served([ask("q1"), say("done")]) as (agent, gateway):
        async with bare_client(gateway) as client:
            await client.call("session/open", session="s")
            await client.call("session/attach", session="s")
            await client.call("session/prompt", session="s", text="go")
            await client.until_event("ask_opened")
            client.vanish()
            await wait_until(lambda: not gateway.connections)
        assert [one.tool_call_id for one in agent.session("s").asks] == ["q1"]
        assert agent.session("s").status == "waiting"
        async with seat(gateway, "s") as other:
            snapshot = other.attachment.snapshot
            assert other.attachment.mode == "snapshot" and snapshot is not None
            assert [one["tool_call_id"] for one in snapshot["asks"]] == ["q1"]
            await other.call("answer", ask="q1", answer="Postgres")
            settled = await other.until(ev.AskSettled)
            assert (settled.outcome, settled.payload) == ("answered", {"tool_call_id": "q1", "answer": "Postgres"})
            await other.until(ev.RunCompleted)


async def test_an_answer_whose_sender_vanished_at_once_counts_or_leaves_the_question_open() -> None:
    """The reset may overtake the answer. Either way the question has one outcome and the run completes."""
    async with served([ask("q1"), say("done")]) as (agent, gateway), seat(gateway, "s") as watcher:
        await watcher.call("prompt", text="go")
        await watcher.until_asked(1)
        async with bare_client(gateway) as client:
            await client.call("session/attach", session="s")
            await client.send(("session/answer", {"session": "s", "ask": "q1", "answer": "Postgres"}))
            client.vanish()
            await wait_until(lambda: gateway.connections == 1)
        if agent.session("s").asks:
            await watcher.call("answer", ask="q1", answer="Postgres")
        await watcher.until(ev.RunCompleted)
        settled = [event.outcome for event in watcher.seen if isinstance(event, ev.AskSettled)]
        assert settled == [AskOutcome.ANSWERED]


async def test_the_only_client_vanishes_and_gets_exactly_the_tail_when_it_is_back() -> None:
    gate = trio.Event()

    @tool
    async def work() -> str:
        await gate.wait()
        return "worked"

    async with served([[say("working"), call("work")], say("done")], tools=[work]) as (agent, gateway):
        async with bare_client(gateway) as client:
            await client.call("session/open", session="s")
            log_id = (await client.call("session/attach", session="s"))["log_id"]
            await client.call("session/prompt", session="s", text="go")
            cursor = (await client.until_event("tool_started"))["seq"]
            client.vanish()
            await wait_until(lambda: not gateway.connections)
        gate.set()  # the run goes on to its end while nobody watches
        await agent.session("s").wait_idle()
        session = agent.find("s")
        assert session is not None
        log = list(session.log)
        assert isinstance(log[-1], ev.RunCompleted) and cursor < log[-1].seq

        for known in (cursor, *range(1, len(log) + 1)):
            async with seat(gateway, "s", log_id=log_id, cursor=known) as back:
                assert (back.attachment.mode, back.attachment.snapshot) == ("tail", None)
                # What is behind the tail would be here before the answer to the next call.
                await back.call("state")
                tail: list[ev.Event] = []
                while True:
                    try:
                        tail.append(back.attachment.receive_nowait())
                    except trio.WouldBlock:
                        break
                assert tail == log[known:]
                assert (back.attachment.log_id, back.attachment.cursor) == (log_id, log[-1].seq)
