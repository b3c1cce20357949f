"""Scenarios in which somebody speaks while a run is active: it is steered, or the next one waits behind it."""

import trio

from actors import AgentRunConfig, RuleViolation, RunCancelled, RunFailed
from actors.agent.view import AgentEvent, AgentEventType
from actors.models.scripted import call, pause, say
from actors.testing.sweep import Stage, scenario
from protocol import decisions
from protocol.chat import UserMessage
from protocol.errors import Code
from protocol.limits import Limits
from tests.sweeps.meddling import SESSION
from tests.sweeps.stage_agent import USUAL, Acting, acting
from tests.sweeps.tools import fetch


def steer(agent: Acting, text: str) -> None:
    """Say something to the run that is active, if one is."""
    session = agent.session
    if session is None:
        return
    try:
        ack = session.act("", decisions.steer, UserMessage(text))
    except RuleViolation as error:
        if error.code is not Code.SESSION_IDLE:
            raise
    else:
        agent.acknowledge(session, ack.seq)


@scenario(
    faults=[*USUAL, "request+1:request", "steer", "steer,request", "request,steer", "steer+1:steer", "steer,stop"],
    errors_in="r*",
)
async def steering_mid_tool(stage: Stage) -> None:
    """While tools run, and at every other moment, somebody steers."""
    turns = [[call("fetch", {"n": 2}, id="f1"), call("fetch", {"n": 3}, id="f2")], [say("hm"), pause(1)], say("done")]
    async with acting(stage, turns, tools=[fetch]) as agent:

        async def steer_by_handle() -> None:
            await trio.sleep(1)
            try:
                await agent.agent.session(SESSION).steer("look here")
            except RuleViolation as error:
                if agent.undisturbed or error.code is not Code.SESSION_IDLE:
                    agent.excuse(error)

        stage.fault("steer", lambda: steer(agent, "swept"))
        agent.nursery.start_soon(steer_by_handle)
        await agent.watch()
        await agent.consume()
        if agent.ended == "run_completed" and agent.session is not None and not stage.struck:
            assert any(
                getattr(message, "content", "") == "look here" for message in agent.agent.session(SESSION).history
            )
        await agent.again()


@scenario(faults=[*USUAL, "steer", "request+1:request"], errors_in="r*")
async def steering_at_the_end(stage: Stage) -> None:
    """The caller steers by a stream of its own when it reads the answer: the run goes on, whoever of the two leaves."""
    async with acting(stage, [say("one"), say("two")]) as agent:

        async def also() -> None:
            try:
                async with agent.agent.stream("and then?", session_id=SESSION, when_busy="steer") as events:
                    async for event in events:
                        if event.type is AgentEventType.MODEL_COMPLETED:
                            break
            except (RuleViolation, RunFailed) as error:
                if agent.undisturbed or error.code is not Code.SESSION_BUSY:  # the run was being cancelled
                    agent.excuse(error)

        def look(event: AgentEvent) -> None:
            if event.type is AgentEventType.MODEL_COMPLETED and event.response and event.response.content == "one":
                agent.nursery.start_soon(also, name="another caller")

        agent.look = look
        stage.fault("steer", lambda: steer(agent, "swept"))
        await agent.perform(when_busy="queue")


@scenario(faults=[*USUAL, "request+1:request", "request,session", "request,stop", "stop,request"], errors_in="r*")
async def queue_of_runs(stage: Stage) -> None:
    """Two more prompts wait behind a run, one with a caller and one without; each has its end."""
    async with acting(stage, [[say("hm"), pause(5)]]) as agent:

        async def wait_behind(caller: bool) -> None:
            await trio.sleep(1)
            try:
                if caller:
                    config = AgentRunConfig(session_id=SESSION, max_turns=2)
                    async with agent.agent.stream("again", config=config, when_busy="queue") as events:
                        await events.final()
                else:
                    await agent.agent.session(SESSION).prompt("again", when_busy="queue")
            except RunCancelled:
                assert not agent.undisturbed
            except (RuleViolation, RunFailed) as error:
                agent.excuse(error)

        agent.nursery.start_soon(wait_behind, True, name="a caller that waits")
        agent.nursery.start_soon(wait_behind, False, name="somebody who does not wait")
        await agent.watch()
        await agent.consume()
        await agent.agent.session(SESSION).wait_idle()
        await agent.again(when_busy="queue")


@scenario(faults=[*USUAL, "request+1:request"], errors_in="r*")
async def caller_that_is_slow(stage: Stage) -> None:
    """The run waits for its caller: for room before it goes on, and for all to be taken before the next turn."""
    turns = [[say("x" * 6, chunks=6), call("fetch", {"n": 0}, id="a"), call("fetch", {"n": 0}, id="b")], say("done")]
    async with acting(stage, turns, tools=[fetch], limits=Limits(stream_high_water=2)) as agent:
        await agent.watch()
        try:
            async with agent.agent.stream("go", session_id=SESSION) as events:
                async for _ in events:
                    await trio.sleep(0.1)
        except (RuleViolation, RunFailed) as error:
            agent.excuse(error)
        await agent.again()
