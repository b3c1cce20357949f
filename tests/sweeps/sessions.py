"""Scenarios of sessions: their actors fail, several open one, it is closed beside that, the agent is left."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from actors import AskUserExtension, ExternalEvent, RuleViolation
from actors.agent import directory
from actors.agent.serving import Acknowledged
from actors.models.scripted import call, pause, say, stall
from actors.testing.sweep import Stage, scenario
from protocol import commands as cmd
from protocol.errors import Code
from tests.faults.stores import SlowStore
from tests.sweeps.meddling import SESSION
from tests.sweeps.stage_agent import Acting, acting
from tests.sweeps.tools import fetch, swallow

CRASHED = [Code.SESSION_CRASHED, Code.SESSION_CLOSED]
ENDS = [
    "cancel",
    "request",
    "session",
    "stop",
    "close",
    "close+1:close",
    "close+2:cancel",
    "session,close",
    "stop,close",
]


async def send(agent: Acting, command: cmd.Params) -> object:
    """Put a command into the mailbox, and return the reply, or None where nobody is there."""
    replies: list[object] = []
    done = trio.Event()

    def reply(result: object) -> None:
        replies.append(result)
        done.set()

    try:
        await agent.agent.session(SESSION).submit(command, reply)
    except RuleViolation as error:
        if error.code is not Code.SESSION_UNKNOWN:
            agent.excuse(error)
        return None
    with trio.move_on_after(60) as scope:
        await done.wait()
    # One who was told that his command was taken waits for the reply: it must come, whatever it is.
    assert not scope.cancelled_caught, "a command was taken and never replied to"
    assert len(replies) == 1, f"a command was replied to {len(replies)} times"
    return replies[0]


@scenario(faults=[*ENDS, "error"], errors_in="actor *")
async def actor_that_fails(stage: Stage) -> None:
    """Commands come by the mailbox; the session's actor fails at any moment, and the session can be opened again."""
    turns = [[say("hm"), pause(1), call("fetch", {"n": 2}, id="f1")], say("done")]
    async with acting(stage, turns, tools=[fetch], allowed=CRASHED) as agent:
        await agent.watch()
        result = await send(agent, cmd.Prompt(SESSION, "go"))
        if isinstance(result, Acknowledged) and agent.session is not None and agent.undisturbed:
            agent.acknowledge(agent.session, result.seq)
        await trio.sleep(2)
        await send(agent, cmd.Steer(SESSION, "look here"))
        await send(agent, cmd.GetState(SESSION))
        await agent.agent.session(SESSION).wait_idle()
        await agent.again()


@scenario(faults=ENDS)
async def many_open_one(stage: Stage) -> None:
    """Several want the session at the same time, while it is closed and opened again: they all get the one."""
    async with acting(stage, [say("one")]) as agent:
        made: list[bool] = []

        async def open_it(delay_s: float) -> None:
            await trio.sleep(delay_s)
            try:
                _, new = await agent.agent.open_session(SESSION)
                made.append(new)
            except RuleViolation as error:
                agent.excuse(error)

        async with trio.open_nursery() as nursery:
            for delay_s in (0, 0, 1, 2, 2):
                nursery.start_soon(open_it, delay_s)
            await trio.sleep(1)
            await agent.agent.close_session(SESSION)
            nursery.start_soon(agent.agent.close_session, SESSION)
        if agent.undisturbed:
            assert made.count(True) == 2, f"{made.count(True)} of {len(made)} have made the session"
        await agent.perform()


@scenario(faults=ENDS)
async def closed_while_it_works(stage: Stage) -> None:
    """The session is closed in the middle of a run whose tool outlives its grace, and opened again."""
    async with acting(stage, [call("swallow", id="a")], tools=[swallow], allowed=[Code.SESSION_CLOSED]) as agent:

        async def close_it() -> None:
            await trio.sleep(5)
            await agent.agent.session(SESSION).close()

        agent.nursery.start_soon(close_it, name="whoever closes the session")
        await agent.perform(expected="run_cancelled")


@scenario(faults=["cancel", "request", "session", "stop", "close", "request+1:cancel"])
async def agent_left_in_the_middle(stage: Stage) -> None:
    """The block of the agent ends while one run works, another waits, a question is open and a channel is attached."""
    turns = [[call("ask_user", {"question": "Why?"}, id="q1"), call("fetch", {"n": 9}, id="f1")]]
    send_channel, receive_channel = trio.open_memory_channel[ExternalEvent](1)
    extensions = [AskUserExtension()]
    async with acting(stage, turns, tools=[fetch], extensions=extensions) as agent:
        agent.offer_answer("q1")
        handle = agent.agent.session(SESSION)
        await agent.watch()
        try:
            await agent.agent.attach(receive_channel, session_id=SESSION)
            await handle.prompt("go")
            await handle.prompt("again", when_busy="queue")
        except RuleViolation as error:
            agent.excuse(error)
        await trio.sleep(1)
        stage.withdraw("close")  # what is begun now is cut off by the scenario's own end
    send_channel.close()


@contextmanager
def small_slices() -> Iterator[None]:
    """Let an agent think that two sessions are too many to be cancelled at a time."""
    before, directory._SLICE = directory._SLICE, 2  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        directory._SLICE = before  # pyright: ignore[reportPrivateUsage]


async def open_several(agent: Acting) -> None:
    """Let runs of several sessions work."""
    for session_id in (SESSION, "s2", "s3", "s4", "s5"):
        try:
            await agent.agent.session(session_id).prompt("go")
        except RuleViolation as error:
            agent.excuse(error)


@scenario(faults=["cancel", "request", "session", "stop", "close", "request+1:cancel"])
async def agent_with_many_sessions_closed(stage: Stage) -> None:
    """An agent with more sessions than it cancels at a time is closed while their runs work."""
    with small_slices():
        async with acting(stage, [stall()], store=SlowStore(checkpoints=1)) as agent:
            await open_several(agent)
            await trio.sleep(1)
            stage.withdraw("close")


@scenario(faults=["cancel", "request", "session", "stop", "session+1:request"])
async def many_sessions_cancelled(stage: Stage) -> None:
    """All runs of an agent are cancelled at once, in slices; the sessions go on."""
    with small_slices():
        async with acting(stage, [stall()], store=SlowStore(checkpoints=1)) as agent:
            await open_several(agent)
            await trio.sleep(1)
            count = await agent.agent.cancel_all("enough")
            assert count == 5 or not agent.undisturbed, f"{count} runs were cancelled"
            await agent.again(when_busy="queue")
            for session_id in ("s2", "s3"):
                assert (await agent.agent.run("again", session_id=session_id)).content == "fine"


@scenario(faults=["cancel", "request", "session", "stop", "request,session", "error"], errors_in="actor *")
async def handle_over_a_slow_store(stage: Stage) -> None:
    """Commands by handle return when they are kept."""
    async with acting(stage, [stall()], store=SlowStore(checkpoints=2), allowed=CRASHED) as agent:
        handle = agent.agent.session(SESSION)
        try:
            ack = await handle.prompt("go", command="c1")
            same = await handle.prompt("go", command="c1")
            assert same == ack or not agent.undisturbed, "a command was carried out twice"
            await handle.steer("look here")
            ack = await handle.cancel("enough", command="c2")
        except RuleViolation as error:
            if agent.undisturbed or error.code not in (Code.SESSION_IDLE, Code.SESSION_BUSY):
                agent.excuse(error)
        try:
            await handle.cancel()
        except RuleViolation as error:
            agent.excuse(error)
        await handle.wait_idle()
        await agent.again(when_busy="queue")
