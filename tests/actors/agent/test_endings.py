"""What ends: the actor of a session by a stop, by the end of its record, and a tool that does not."""

import contextlib

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    ExternalEvent,
    RuleViolation,
    RunCancelled,
    RunFailed,
    ScriptedModel,
    UserMessage,
    open_agent,
    tool,
)
from actors.agent.agent import Agent
from actors.models.scripted import call, say, stall
from actors.runtime import Crash, Down, DownKind, open_system
from protocol import events as ev
from protocol.errors import Code
from tests.faults.stores import FailingStore


async def run_and_note(agent: Agent, ended: list[object]) -> None:
    try:
        ended.append(await agent.run("go", session_id="s"))
    except (RunCancelled, RunFailed, RuleViolation) as error:
        ended.append(error)


async def test_a_session_whose_record_is_ended_is_stopped_and_has_not_crashed(autojump_clock: MockClock) -> None:
    crashes: list[Crash] = []
    downs: list[Down] = []
    async with open_system(on_crash=crashes.append, on_down=downs.append) as system:
        async with open_agent(ScriptedModel([stall()]), system=system) as agent, trio.open_nursery() as nursery:
            ended: list[object] = []
            nursery.start_soon(run_and_note, agent, ended)
            await wait_all_tasks_blocked()
            session = agent.find("s")
            assert session is not None
            session.shut(RuleViolation(Code.SESSION_CLOSED, "moved elsewhere"))
            await wait_all_tasks_blocked()
            assert [(down.kind, down.reason) for down in downs] == [
                (DownKind.STOPPED, "session.closed: moved elsewhere")
            ]
    assert not crashes
    assert str(ended[0]) == "session.closed: session 's' ended before its run did"


async def test_a_store_that_fails_is_no_crash_of_the_session_s_actor(autojump_clock: MockClock) -> None:
    crashes: list[Crash] = []
    async with open_system(on_crash=crashes.append) as system:
        async with open_agent(ScriptedModel([say("x")]), store=FailingStore(3), system=system) as agent:
            with pytest.raises(RunFailed, match=r"^store\.failed: "):
                await agent.run("go", session_id="s")
            await wait_all_tasks_blocked()
            assert agent.find("s") is None
    assert not crashes


@pytest.mark.parametrize("steps", range(1, 8))
async def test_a_prompt_beside_the_end_of_the_actor_is_refused_or_ends_a24(
    steps: int, autojump_clock: MockClock
) -> None:
    async with open_agent(ScriptedModel([stall()])) as agent, trio.open_nursery() as nursery:
        ended: list[object] = []
        nursery.start_soon(run_and_note, agent, ended)
        await wait_all_tasks_blocked()
        session, ref = agent.find("s"), agent.ref("s")
        assert session is not None and ref is not None
        ref.stop("enough")
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        with contextlib.suppress(RuleViolation):
            session.act("", agent.decide_prompt, UserMessage("again"), max_turns=1, when_busy="queue")
        await ref.join()
        assert agent.active_runs == 0
        ends = [event for event in session.log if isinstance(event, ev.RUN_ENDS)]
        begun = {event.run for event in session.log if isinstance(event, ev.RunStarted | ev.RunQueued)}
        assert all(isinstance(event, ev.RunCancelled) for event in ends)
        assert sorted(event.run for event in ends) == sorted(begun)


async def test_a_run_in_the_queue_ends_with_the_actor(autojump_clock: MockClock) -> None:
    async with open_agent(ScriptedModel([stall()])) as agent, trio.open_nursery() as nursery:
        ended: list[object] = []
        nursery.start_soon(run_and_note, agent, ended)
        await wait_all_tasks_blocked()
        queued = await agent.session("s").prompt("later", when_busy="queue")
        session, ref = agent.find("s"), agent.ref("s")
        assert session is not None and ref is not None
        ref.stop("enough")
        await ref.join()
        assert [event.run for event in session.log if isinstance(event, ev.RunCancelled)].count(queued.run) == 1
        assert not session.state.queue and not session.state.runs


async def test_a_record_that_ends_forgets_who_waits_for_a_run_in_its_queue(autojump_clock: MockClock) -> None:
    async with open_agent(ScriptedModel([stall()])) as agent:
        await agent.session("s").prompt("go")
        session = agent.find("s")
        assert session is not None
        with pytest.raises(RunFailed, match=r"^session\.closed: "):
            async with agent.stream("later", session_id="s", when_busy="queue") as events:
                assert list(session.callers or ()) == [events.run_id]
                session.shut(RuleViolation(Code.SESSION_CLOSED, "moved elsewhere"))
                assert session.callers is None
                await events.final()


async def test_nothing_is_attached_to_a_session_that_ends(autojump_clock: MockClock) -> None:
    @tool
    async def stubborn() -> str:
        """Take its time."""
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return "done"

    send, receive = trio.open_memory_channel[ExternalEvent](1)
    with send, receive:
        async with open_agent(ScriptedModel([call("stubborn")]), tools=[stubborn]) as agent:
            await agent.session("s").prompt("go")
            await wait_all_tasks_blocked()
            ref = agent.ref("s")
            assert ref is not None
            ref.stop("enough")
            await wait_all_tasks_blocked()
            with pytest.raises(
                RuleViolation, match=r"^session\.closed: session 's' is ending, nothing is started in it$"
            ):
                await agent.attach(receive, session_id="s")
            await ref.join()


async def test_tools_that_outlive_the_grace_are_counted(autojump_clock: MockClock) -> None:
    @tool
    async def stubborn() -> str:
        """Take its time."""
        with trio.CancelScope(shield=True):
            await trio.sleep(12)
        return "done"

    calls = [call("stubborn"), call("stubborn")]
    async with open_agent(ScriptedModel([calls, say("fine")]), tools=[stubborn]) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        await trio.sleep(1)
        await handle.cancel()
        assert agent.stuck_tools == 0
        await handle.wait_idle()
        assert agent.stuck_tools == 2
        assert (await agent.run("again", session_id="s")).content == "fine"
        assert agent.stuck_tools == 2


async def test_a_close_that_is_cancelled_does_not_reopen_a_session_that_ends(autojump_clock: MockClock) -> None:
    @tool
    async def stubborn() -> str:
        """Take its time."""
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return "done"

    async with open_agent(ScriptedModel([call("stubborn")]), tools=[stubborn]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        session, ref = agent.find("s"), agent.ref("s")
        assert session is not None and ref is not None
        ref.stop("enough")
        await wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await agent.close_session("s")
        with pytest.raises(RuleViolation, match=r"^session\.closed: session 's' is being closed"):
            session.act("", agent.decide_prompt, UserMessage("again"), max_turns=1, when_busy="queue")
        await ref.join()
