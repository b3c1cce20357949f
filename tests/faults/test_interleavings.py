"""The same small thing under many orders of the scheduler."""

import json
import random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors import AskUserExtension, RuleViolation, ScriptedModel, ToolMessage, open_agent
from actors.models.scripted import call, say
from tests.faults.invariants import check_session


def _under(seed: int, main: Any, *args: Any) -> Any:
    """Run `main` with the scheduler seeded and the clock virtual."""
    runner: Any = trio._core._run
    runner._ALLOW_DETERMINISTIC_SCHEDULING = True
    runner._r.seed(seed)
    try:
        return trio.run(main, *args, clock=MockClock(autojump_threshold=0))
    finally:
        runner._ALLOW_DETERMINISTIC_SCHEDULING = False


_ASKS = [call("ask_user", {"question": "Which?"}, id=f"q{n}") for n in range(4)]
_ASK_USER = AskUserExtension()


async def _four_asks(seed: int) -> None:
    order = random.Random(seed)
    async with open_agent(ScriptedModel([_ASKS, say("done")]), extensions=[_ASK_USER]) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        async with trio.open_nursery() as nursery:

            async def answer(ask_id: str, delay_s: float) -> None:
                await trio.sleep(delay_s)
                await handle.answer(ask_id, f"for {ask_id}")

            while len(handle.asks) < 4:
                await trio.lowlevel.checkpoint()
            for record in reversed(handle.asks):
                nursery.start_soon(answer, record.tool_call_id, order.choice((0.0, 0.0, 0.001)))
        await handle.wait_idle()
        session = agent.find("s")
        assert session is not None
        check_session(session)
        results = [message for message in handle.history if isinstance(message, ToolMessage)]
        assert [message.tool_call_id for message in results] == ["q0", "q1", "q2", "q3"]
        for message in results:
            assert json.loads(message.content)["answer"] == f"for {message.tool_call_id}"


def test_each_call_gets_its_own_answer_in_every_order_b13() -> None:
    for seed in range(500):
        _under(seed, _four_asks, seed)


async def _cancel_beside(seed: int, ends: set[str]) -> None:
    order = random.Random(seed)
    async with open_agent(ScriptedModel([_ASKS[:1], say("done")]), extensions=[_ASK_USER]) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        while not handle.asks:
            await trio.lowlevel.checkpoint()
        acknowledged: list[str] = []
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                for _ in range(order.randrange(6)):
                    await trio.lowlevel.checkpoint()
                await handle.cancel()

            async def answer() -> None:
                for _ in range(order.randrange(6)):
                    await trio.lowlevel.checkpoint()
                try:
                    await handle.answer("q0", "yes")
                except RuleViolation as error:
                    if str(error) != "ask.settled: ask 'q0' is cancelled":
                        raise
                else:
                    acknowledged.append("yes")

            nursery.start_soon(cancel)
            nursery.start_soon(answer)
        await handle.wait_idle()
        session = agent.find("s")
        assert session is not None
        check_session(session)
        (result,) = [message for message in handle.history if isinstance(message, ToolMessage)]
        assert (json.loads(result.content).get("answer") == "yes") == bool(acknowledged)
        ends.add(f"{type(session.log[-1]).__name__} {bool(acknowledged)}")


@pytest.mark.parametrize("part", range(4))
def test_a_cancel_beside_an_answer_has_one_end_in_every_order_a24(part: int) -> None:
    ends: set[str] = set()
    for seed in range(part * 250, (part + 1) * 250):
        _under(seed, _cancel_beside, seed, ends)
    assert {"RunCancelled True", "RunCancelled False"} <= ends, f"the orders are not mixed: {ends}"
