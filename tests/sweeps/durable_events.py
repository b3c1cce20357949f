"""Scenarios of answers that find their session out of memory: it comes back for them."""

from collections.abc import Awaitable, Callable

import trio

from actors import Agent, AgentRunConfig, ExternalEvent, RuleViolation
from actors.testing.sweep import Stage, scenario
from protocol import events as ev
from tests.sweeps.durable import Lives, excuse, lives
from tests.sweeps.meddling import SESSION


def answer(tool_call_id: str) -> ExternalEvent:
    return ExternalEvent("ask_user_response", {"tool_call_id": tool_call_id, "answer": "this"})


async def _away(one: Lives) -> None:
    """Let the session be out of memory, in the middle of what it does."""
    await trio.sleep(0.5)
    one.shut()
    await trio.sleep(0.1)


async def _try(call: Callable[[], Awaitable[object]]) -> None:
    try:
        await call()
    except RuleViolation as error:
        excuse(error)


@scenario(
    faults=["cancel", "request", "session", "error", "session,request", "session+3:session"], errors_in="*events for*"
)
async def answer_for_a_session_that_is_away(stage: Stage) -> None:
    """An event that nobody accepts brings it back, then somebody who waits for it, then one who only wakes it."""
    async with lives(stage) as one, one.serve() as agent:
        handle = agent.session(SESSION)
        await _try(lambda: handle.prompt("go", command="p1"))
        await _away(one)
        accepted = agent.emit_external_event(answer("q1"), config=AgentRunConfig(session_id=SESSION))
        assert accepted == [] or stage.struck
        await _away(one)
        await _try(lambda: handle.emit(answer("q1"), command="e1"))
        await _away(one)
        await _try(handle.wake)
        await _see_the_end(stage, agent)


async def _see_the_end(stage: Stage, agent: Agent) -> None:
    handle = agent.session(SESSION)
    for _ in range(6):
        await _try(lambda: handle.prompt("go", command="p1"))
        await _try(handle.wait_idle)
        await trio.sleep(10)
    log = await agent.store.read(SESSION, after=0, limit=1_000)
    settled = [event for event in log if isinstance(event, ev.AskSettled) and event.tool_call_id == "q1"]
    assert len(settled) == 1 or (not settled and stage.struck), "the question has not its one outcome"
    assert stage.struck or settled[0].outcome == "answered"
    assert not agent.late, "an event waits for ever"
