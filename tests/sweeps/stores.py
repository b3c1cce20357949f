"""Scenarios with stores that are slow, or fail: whatever was acknowledged is kept."""

from collections.abc import Callable

import trio

from actors.models.scripted import say
from actors.testing.sweep import Stage, scenario
from protocol.errors import Code
from tests.faults.stores import FailingStore, SlowStore
from tests.sweeps.asks import ASK, answer_both, question
from tests.sweeps.stage_agent import USUAL, acting
from tests.sweeps.tools import PLAN, PLANNED, fetch

TURNS = [PLANNED[0], [question("q1"), question("q2")], say("done")]
STORE = [
    "store", "store,request", "request,store", "store,answer", "answer,store", "store,leave", "store+1:request",
    "request+1:store", "store+2:cancel", "close,store", "store,stop",
]  # fmt: skip


async def _work(stage: Stage, store: SlowStore | FailingStore, allowed: list[Code]) -> None:
    async with acting(
        stage, TURNS, store=store, allowed=allowed, tools=[fetch], extensions=[PLAN, ASK]
    ) as agent:  # fmt: skip
        answer_both(agent, "q1", "q2")
        agent.offer_answer("q2")
        await agent.perform()


@scenario(
    faults=[*USUAL, "answer", "answer,request", "request,answer", "answer,session", "request+1:request"], errors_in="r*"
)
async def store_that_is_slow(stage: Stage) -> None:
    """Each batch is kept some turns of the scheduler later."""
    await _work(stage, SlowStore(checkpoints=2), [])


@scenario(
    faults=["cancel", "request", "session", "stop", "leave", "answer,request", "request,answer", "request+2:request"],
    errors_in="r*",
)
async def store_that_takes_time(stage: Stage) -> None:
    """Each batch is kept half a second later."""
    await _work(stage, SlowStore(checkpoints=0, delay_s=0.5), [])


@scenario(faults=STORE)
async def store_that_fails(stage: Stage) -> None:
    """From some moment on the next append fails, once."""
    store = FailingStore(-1)
    stage.fault("store", lambda: _fail_next(store))
    await _work(stage, store, [Code.STORE_FAILED])


@scenario(faults=STORE)
async def store_that_fails_later(stage: Stage) -> None:
    """The same, and it is reported some time after the append."""
    async with trio.open_nursery() as nursery:

        async def report(failed: Callable[[], None]) -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
                failed()

        store = FailingStore(-1, later=lambda failed: nursery.start_soon(report, failed))
        stage.fault("store", lambda: _fail_next(store))
        await _work(stage, store, [Code.STORE_FAILED])


def _fail_next(store: FailingStore) -> None:
    store.good = 0
