"""The host of a simulation: it serves for an hour of virtual time, and is closed, cancelled or killed now and then.

Beside the clients, who speak to it from outside, there are callers and readers in its own process, and faults.
"""

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal

import trio

from actors import (
    AgentEventType,
    AgentRunConfig,
    ExternalEvent,
    Limits,
    RuleViolation,
    RunCancelled,
    RunFailed,
    ScriptedModel,
    open_agent,
)
from actors.agent.agent import Agent
from actors.agent.ports import TrioClock
from actors.agent.session import Session
from actors.agent.stream import RunStream
from actors.runtime import System, open_system
from protocol import events as ev
from protocol.asks import RESPONSE_EVENT
from protocol.decisions import WhenBusy
from protocol.errors import Code
from tests.faults.invariants import check_agent, check_log, check_session
from tests.faults.simulation_checks import check_told
from tests.faults.simulation_script import CHECK, CHECKED, MAX_TURNS, TOOLS, make_extensions, turn
from tests.faults.simulation_store import FAULTS
from tests.faults.simulation_trace import Found
from tests.faults.simulation_world import SESSIONS, World

HOUR_S = 3600.0
CALLERS = 3
LIMITS = Limits(mailbox_size=3, max_queued_runs=2, max_queued_steers=3, max_turns=MAX_TURNS)
#: A deadlock ends here.
LIMIT_S = 10 * HOUR_S
_ENDS = (AgentEventType.RUN_COMPLETED, AgentEventType.RUN_FAILED, AgentEventType.RUN_CANCELLED)

_WHEN_BUSY: tuple[WhenBusy, ...] = ("reject", "queue", "steer")

How = Literal["closed", "cancelled", "killed"]


async def serve(
    world: World, how: How, until_s: float, *, stop: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Be the host for a while; at its end nothing of it is left and each run has its end in the log.

    Args:
        how: It ends.
        until_s: When.
        stop: Let the clients leave, and nothing go wrong any more: it is the last host.
    """
    world.recorder.count(f"hosts {how}")
    world.store.revive()
    with trio.CancelScope() as scope:
        async with open_system() as system:
            async with _open_agent(world, system) as agent:
                async with trio.open_nursery() as nursery:
                    world.up(agent, nursery)
                    for number in range(CALLERS):
                        nursery.start_soon(_call, world, agent, f"caller{number}")
                    nursery.start_soon(_watch, world, agent)
                    nursery.start_soon(_feed, world, agent)
                    await trio.sleep_until(until_s)
                    if how == "killed":
                        world.store.die()
                    if how != "closed":
                        scope.cancel(reason=f"the host is {how}")
                        await trio.sleep_forever()
                    if stop is not None:
                        await stop()
                    nursery.cancel_scope.cancel(reason=f"the host is {how}")
                if stop is not None:
                    await _settle(world, agent)
            check_agent(agent)
    world.down()
    _check_logs(world, killed=how == "killed")


def _open_agent(world: World, system: System) -> AbstractAsyncContextManager[Agent]:
    return open_agent(
        ScriptedModel([turn], repeat=True),
        tools=TOOLS,
        extensions=make_extensions(world.witness),
        store=world.store,
        limits=LIMITS,
        clock=TrioClock(1_700_000_000.0),
        system=system,
        resume="never",
    )


def _check_logs(world: World, *, killed: bool) -> None:
    world.store.flush()
    for session_id, kept in world.store.logs.items():
        if kept.events:
            check_log(kept.events, over=not killed and not world.store.broken(session_id))
    sessions = {sink: first for sink, first in world.store.firsts.items() if isinstance(sink, Session)}
    world.recorder.count("ends that extensions were told of", check_told(sessions, world.witness.told))
    world.store.firsts.clear()
    world.witness.told.clear()


# ---- those in the host's own process


async def _call(world: World, agent: Agent, name: str) -> None:
    """Start a run now and then and follow it, until bored."""
    draw = world.draw
    while True:
        await trio.sleep(draw.expovariate(1 / 300))
        session_id, when_busy = draw.choice(SESSIONS), draw.choice(_WHEN_BUSY)
        stream = agent.stream(
            f"please {name} {draw.randrange(10**9)}", session_id=session_id, when_busy=when_busy
        )
        patience_s = draw.choice((math.inf, draw.randrange(30)))
        try:
            with trio.move_on_after(patience_s) as patience:
                async with stream as events:
                    await _follow(world, agent, name, events, draw.choice((1, 5, 20, 1000)))
        except (RuleViolation, RunFailed) as error:
            world.recorder.note(name, session_id, error.code)
            if error.code not in (Code.SESSION_BUSY, Code.SESSION_CLOSED, Code.STORE_FAILED):
                raise
            continue
        world.recorder.note(name, session_id, "left", patience.cancelled_caught)
        session = stream._session  # pyright: ignore[reportPrivateUsage]
        if session is not None and session.closed is None and when_busy != "steer":
            if stream.run_id in session.state.runs:
                await trio.sleep(0.01)  # the clock has jumped over the grace of the run and that of its caller at once
            goes_on = session.closed is None and stream.run_id in session.state.runs
            assert not goes_on, f"{name} has left {stream.run_id} of {session_id}, and it goes on"
        world.look(session_id)


async def _follow(world: World, agent: Agent, name: str, events: RunStream, most: int) -> None:
    ended = False
    async for event in events:
        world.recorder.note(name, event.session_id, event.seq, event.type, event.name)
        assert not ended, f"{name} saw {event.type} after the end of its run"
        ended = event.type in _ENDS
        if event.type is AgentEventType.CUSTOM and event.name == "ask_user" and world.draw.random() < 0.7:
            await trio.sleep(world.draw.choice((0, 1, 5)))
            emit_answer(world, agent, event.session_id, str(event.payload["tool_call_id"]), name)
        most -= 1
        if not most:
            world.recorder.count("streams left early")
            return
    assert ended, f"{name} saw no end of its run"


def emit_answer(world: World, agent: Agent, session_id: str, call: str, name: str) -> None:
    """Answer from inside the process, in one synchronous step, and note what becomes of it."""
    text = f"{name} says {world.draw.randrange(10**9)}"
    event = ExternalEvent(RESPONSE_EVENT, {"tool_call_id": call, "answer": text})
    session = agent.find(session_id)
    accepted = agent.emit_external_event(event, config=AgentRunConfig(session_id=session_id))
    world.recorder.note(name, session_id, call, *accepted)
    if accepted and session is not None:
        session.leave(world.ledger.acknowledged[session_id].append, (call, text))
        world.recorder.count("answers of callers accepted")
    elif session is not None and session.closed is None:
        world.ledger.refused[session_id].append((call, text))
        world.recorder.count("answers of callers refused")


class _Hasty:
    """A reader that answers some questions within their delivery."""

    def __init__(self, world: World, agent: Agent, session_id: str) -> None:
        self._world, self._agent, self._session_id = world, agent, session_id

    def offer(self, event: ev.Event) -> bool:
        if isinstance(event, ev.AskOpened):
            self._world.check_ask(self._session_id, event)
            if self._world.draw.random() < 0.4:
                self._world.recorder.count("answers within the delivery")
                emit_answer(self._world, self._agent, self._session_id, event.ask.tool_call_id, "hasty")
        return True

    def closed(self, code: Code, seq: int) -> None: ...


async def _watch(world: World, agent: Agent) -> None:
    """Be a hasty reader of one session after the other."""
    while True:
        session_id = world.draw.choice(SESSIONS)
        session = agent.find(session_id)
        if session is None:
            await trio.sleep(5)
            continue
        reader = _Hasty(world, agent, session_id)
        session.attach(reader)
        try:
            await trio.sleep(world.draw.randrange(60, 300))
        finally:
            session.detach(reader)


async def _feed(world: World, agent: Agent) -> None:
    """Feed one session after the other from a channel, with answers to whatever it asks then."""
    while True:
        session_id = world.draw.choice(SESSIONS)
        send, receive = trio.open_memory_channel[ExternalEvent](2)
        try:
            await agent.attach(receive, session_id=session_id)
            for _ in range(world.draw.randrange(4)):
                await trio.sleep(world.draw.randrange(60))
                for ask in agent.session(session_id).asks:
                    answer = {"tool_call_id": ask.tool_call_id, "answer": "fed"}
                    await send.send(ExternalEvent(RESPONSE_EVENT, answer))
                    world.recorder.count("answers fed")
        except (RuleViolation, trio.BrokenResourceError) as error:
            world.recorder.note("feed", session_id, type(error).__name__)
            await trio.sleep(1)
        finally:
            send.close()


async def make_trouble(world: World) -> None:
    """Let the store fail, be slow and be good again; let the clock jump."""
    draw, store = world.draw, world.store
    while True:
        await trio.sleep(draw.expovariate(1 / 70))
        match draw.randrange(5):
            case 0 | 1:
                store.arm(draw.choice(SESSIONS), draw.choice(FAULTS))
            case 2:
                store.delay_s = draw.choice((0.0, 0.001, 0.5, 3.0))
            case _:
                seconds = draw.choice((0.5, 5.0, 15.0, 60.0))
                world.recorder.count("clock jumps")
                world.clock.jump(seconds)


# ---- the end


async def _settle(world: World, agent: Agent) -> None:
    """Whatever was done to them, all sessions take the next prompt; then some are busy while the agent is closed."""
    async with trio.open_nursery() as nursery:
        for session_id in SESSIONS:
            nursery.start_soon(_check_session, world, agent, session_id)
    for session_id in SESSIONS[::2]:
        await agent.session(session_id).prompt(f"please end {world.draw.randrange(10**9)}")
    await trio.sleep(world.draw.choice((0, 0, 1, 10)))


async def _check_session(world: World, agent: Agent, session_id: str) -> None:
    handle = agent.session(session_id)
    session = await agent.open(session_id)
    while session.state.root:
        await handle.cancel("the hour is over")
        await trio.sleep(1)  # what is queued starts then
    try:
        answer = await agent.run(CHECK, session_id=session_id)
    except (RunCancelled, RunFailed, RuleViolation) as error:
        raise Found(f"session {session_id} does not take the next prompt: {error}") from error
    assert answer.content == CHECKED
    await session.wait_kept()
    assert session.closed is None and session is agent.find(session_id)
    assert handle.todos is None, f"a todo list is left: {handle.todos}"
    check_session(session)
    world.recorder.count("sessions that took the next prompt")
