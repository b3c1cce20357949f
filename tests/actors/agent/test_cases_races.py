"""Cancels, deadlines and results that meet in one instant, in many orders of the scheduler."""

import json
import logging
import random
from collections import Counter

import pytest
import trio

from actors import (
    AgentEventType,
    RunCancelled,
    ScriptedModel,
    ToolMessage,
    open_agent,
    tool,
)
from actors.models.scripted import call, pause, say, stall
from actors.runtime import Ctx, open_system
from actors.testing import run
from protocol import events as ev
from protocol.errors import Code
from tests.faults.invariants import check_agent, check_session

SEEDS = 1_000


async def _some_steps(order: random.Random) -> None:
    """Go through the scheduler a few times: what is due in one instant is not all done in one pass."""
    for _ in range(order.randrange(6)):
        await trio.lowlevel.checkpoint()


class Client:
    """A reader that keeps the records it was offered."""

    def __init__(self) -> None:
        self.seen: list[ev.Event] = []

    def offer(self, event: ev.Event) -> bool:
        if event.seq:
            self.seen.append(event)
        return True

    def closed(self, code: Code, seq: int) -> None: ...

    @property
    def ends(self) -> list[str]:
        return [type(event).__name__ for event in self.seen if isinstance(event, ev.RUN_ENDS)]


# ---- receiving under a deadline


async def _poll_an_actor(size: int, how: str) -> None:
    received, sent = list[int](), list[int]()

    async def consumer(ctx: Ctx[int]) -> None:
        while True:
            with trio.CancelScope() as scopes[0]:
                if how == "deadline":
                    scopes[0].deadline = trio.current_time() + 0.1
                received.append(await ctx.receive())

    scopes = [trio.CancelScope()]
    async with open_system() as system:
        ref = await system.spawn(consumer, name="consumer", mailbox_size=size)
        for number in range(200):
            await trio.sleep(0.1)
            if how == "by hand":
                scopes[0].cancel()
            with trio.move_on_after(0.05):
                await ref.send(number)
                sent.append(number)
            if how == "by hand":
                scopes[0].cancel()
        await trio.sleep(1)
        ref.stop()
    assert received == sent and len(received) > 100


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("how", ["deadline", "by hand"])
def test_an_actor_that_receives_under_a_deadline_loses_no_message_a01(size: int, how: str) -> None:
    for seed in range(10):
        run(_poll_an_actor, size, how, seed=seed)


async def _poll_a_stream(how: str) -> None:
    script = [step for number in range(200) for step in (pause(0.1), say(f"{number} "))]
    texts, polls = list[str](), 0
    async with (
        open_agent(ScriptedModel([script])) as agent,
        agent.stream("go") as events,
        trio.open_nursery() as nursery,
    ):
        scope = trio.CancelScope()

        async def interrupt() -> None:
            while True:
                await trio.sleep(0.1)
                scope.cancel()

        if how == "by hand":
            nursery.start_soon(interrupt)
        over = False
        while not over:
            polls += 1
            scope = trio.CancelScope(deadline=trio.current_time() + 0.1 if how == "deadline" else float("inf"))
            with scope:
                event = await anext(events, None)
                over = event is None
                if event is not None and event.type is AgentEventType.TEXT_DELTA:
                    texts.append(event.delta)
        nursery.cancel_scope.cancel()
    assert "".join(texts).split() == [str(number) for number in range(200)]
    assert polls > 250, "the deadline never passed: nothing was tried"


@pytest.mark.parametrize("how", ["deadline", "by hand"])
def test_a_consumer_that_reads_under_a_deadline_loses_no_event_a01(how: str) -> None:
    for seed in range(10):
        run(_poll_a_stream, how, seed=seed)


# ---- a cancel beside the end of a tool


async def _cancel_beside_a_result(seed: int, ends: Counter[str]) -> None:
    """The tool is done at 1 s and the cancel comes at 1 s; two clients watch."""

    order = random.Random(seed)

    @tool
    async def work() -> str:
        await trio.sleep(1)
        await _some_steps(order)
        return "worked"

    clients = [Client(), Client()]
    async with open_agent(ScriptedModel([call("work", id="c1"), [pause(0), say("done")]]), tools=[work]) as agent:
        session = await agent.open("s")
        for client in clients:
            session.attach(client)
        handle = agent.session("s")
        await handle.prompt("go")

        async def cancel() -> None:
            await trio.sleep(1)
            await _some_steps(order)
            await handle.cancel("late")

        await cancel()
        await handle.wait_idle()
        for client in clients:
            session.detach(client)
        check_session(session)
        check_agent(agent)
        (result,) = [m for m in handle.history if isinstance(m, ToolMessage)]
        assert (result.outcome, result.content == "worked") in (("completed", True), ("interrupted", False))
        assert clients[0].seen == clients[1].seen == list(session.log[1:])
        (end,) = clients[0].ends
        acknowledged = any(isinstance(event, ev.CancelRequested) for event in session.log)
        assert (end == "RunCancelled") == acknowledged, "an acknowledged cancel is the end"
        ends[f"{end} {result.outcome}"] += 1


@pytest.mark.parametrize("part", range(4))
def test_a_cancel_beside_a_result_has_one_end_that_all_clients_see_a24(part: int) -> None:
    ends: Counter[str] = Counter()
    for seed in range(part * SEEDS // 4, (part + 1) * SEEDS // 4):
        run(_cancel_beside_a_result, seed, ends, seed=seed)
    wanted = {"RunCompleted completed", "RunCancelled completed", "RunCancelled interrupted"}
    assert set(ends) == wanted, f"the orders are not mixed: {ends}"


async def _late_result() -> None:
    """The tool outlives the cancel's grace and is `done` after the run was `cancelled`."""
    release = trio.Event()

    @tool
    async def work() -> str:
        with trio.CancelScope(shield=True):
            await release.wait()
        return "done"

    async with open_agent(ScriptedModel([call("work", id="c1"), say("next")]), tools=[work]) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        await trio.sleep(1)
        await handle.cancel()
        await handle.wait_idle()
        session = agent.find("s")
        assert session is not None
        head, end = session.state.seq, session.log[-1]
        assert isinstance(end, ev.RunCancelled) and end.stuck == ("work",)
        release.set()
        await trio.sleep(1)
        assert session.state.seq == head and handle.status == "idle"
        (result,) = [m for m in handle.history if isinstance(m, ToolMessage)]
        assert result.outcome == "interrupted"
        await handle.prompt("again")
        await handle.wait_idle()
        check_session(session)


def test_a_result_after_the_run_was_given_up_is_dropped_and_logged_a24(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="actors.run"):
        run(_late_result)
    told = [record.getMessage() for record in caplog.records]
    assert "session s run r2: still running after the cancel grace: ('work',)" in told
    assert "session s run r2: what outlived its end is over; nothing of it was kept" in told


# ---- a cancel beside an effect, and beside an error


async def _push(seed: int, at_s: float, ends: set[str]) -> None:
    pushed, order = list[str](), random.Random(seed)

    @tool
    async def push(branch: str) -> str:
        await trio.sleep(1)
        await _some_steps(order)
        pushed.append(branch)  # from here on there is no way back
        with trio.CancelScope(shield=True):
            await trio.sleep(0.5)
        return f"pushed {branch}"

    async with open_agent(ScriptedModel([call("push", {"branch": "b"}, id="c1")]), tools=[push]) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        await trio.sleep(at_s)
        await _some_steps(order)
        await handle.cancel("stop")
        await handle.wait_idle()
        (result,) = [m for m in handle.history if isinstance(m, ToolMessage)]
        assert (result.outcome == "completed") == bool(pushed), "what is recorded is what was done"
        assert (result.content == "pushed b") == bool(pushed)
        session = agent.find("s")
        assert session is not None and isinstance(session.log[-1], ev.RunCancelled)
        ends.add(result.outcome)


def test_a_cancel_at_the_point_of_no_return_agrees_with_what_was_done_a26() -> None:
    ends: set[str] = set()
    for seed in range(100):
        run(_push, seed, 1.0, ends, seed=seed)
    assert ends == {"completed", "interrupted"}, "it was always on the same side of the point"
    for at_s, outcome in ((0.999, "interrupted"), (1.001, "completed")):
        only: set[str] = set()
        for seed in range(10):
            run(_push, seed, at_s, only, seed=seed)
        assert only == {outcome}


async def _disk_full(seed: int, outcomes: set[str]) -> None:
    order = random.Random(seed)

    @tool
    async def write() -> str:
        await trio.sleep(1)
        await _some_steps(order)
        raise OSError("disk full")

    async with open_agent(ScriptedModel([[call("write"), call("write")], stall()]), tools=[write]) as agent:
        async with agent.stream("go", session_id="s") as events, trio.open_nursery() as nursery:

            async def cancel() -> None:
                await trio.sleep(1)
                await _some_steps(order)
                await agent.session("s").cancel("stop")

            nursery.start_soon(cancel)
            with pytest.raises(RunCancelled, match=r"^stop$"):
                await events.final()
        session = agent.find("s")
        assert session is not None
        for message in [m for m in session.state.messages if isinstance(m, ToolMessage)]:
            error = json.loads(message.content)["error"]
            wanted = {"failed": "OSError: disk full", "interrupted": "write was interrupted when the run ended"}
            assert error["message"].startswith(wanted[message.outcome])
            outcomes.add(message.outcome)


def test_a_tool_error_at_the_moment_of_a_cancel_is_a_detail_and_blamed_on_nobody_else_a18(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcomes: set[str] = set()
    with caplog.at_level(logging.DEBUG):
        for seed in range(200):
            run(_disk_full, seed, outcomes, seed=seed)
    assert outcomes == {"failed", "interrupted"}, "the orders are not mixed"
    lines = [record.getMessage() + str(record.exc_info or "") for record in caplog.records]
    assert lines
    assert not [line for line in lines if "Cancelled" in line]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
