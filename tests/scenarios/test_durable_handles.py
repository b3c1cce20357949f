"""What a handle says and does of a session that only the store has."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import Agent, ExternalEvent, RuleViolation, tool
from actors.models.scripted import call, say
from protocol import events as ev
from tests.scenarios.lives import Disk, life
from tests.scenarios.staging import ask


async def begin(agent: Agent) -> None:
    await agent.session("s").prompt("go")
    await wait_all_tasks_blocked()


def answer(text: str) -> ExternalEvent:
    return ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": text})


async def test_a_handle_says_nothing_of_a_session_until_it_is_addressed(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with life(Disk("sqlite", tmp_path), [ask("q1")], dies=True) as agent:
        await begin(agent)
        seq = agent.session("s").seq
    async with life(Disk("sqlite", tmp_path), []) as agent:
        handle = agent.session("s")
        assert (handle.status, handle.asks, list(handle.history), handle.seq) == ("idle", (), [], 0)
        assert await handle.wake() and not await agent.session("other").wake()
        assert handle.status == "waiting" and [one.tool_call_id for one in handle.asks] == ["q1"]
        assert handle.seq == seq + 1 and handle.history[-2].content == "go"
        assert agent.find("other") is None


async def test_an_event_for_a_session_finds_it_in_memory_and_is_carried_out_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with life(Disk("sqlite", tmp_path), [ask("q1")], dies=True) as agent:
        await begin(agent)
    async with life(Disk("sqlite", tmp_path), [say("done")]) as agent:
        handle = agent.session("s")
        assert await handle.emit(answer("yes"), command="e1") == ("AskUserExtension",)
        await handle.wait_idle()
    async with life(Disk("sqlite", tmp_path), []) as agent:
        handle = agent.session("s")
        assert await handle.emit(answer("no"), command="e1") == ("AskUserExtension",), "the first acknowledgement"
        assert await handle.emit(answer("no")) == ()
        assert '"answer":"yes"' in handle.history[-2].content
        with pytest.raises(RuleViolation, match=r"^event\.unsendable: a command's id"):
            await handle.emit(answer("no"), command="\ud800")


async def test_whoever_waits_for_a_session_waits_for_what_was_interrupted(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    @tool(retry="safe")
    async def work() -> str:
        """Work for a minute."""
        await trio.sleep(60)
        return "worked"

    async with life(Disk("sqlite", tmp_path), [call("work", id="c1")], dies=True, tools=[work]) as agent:
        await begin(agent)
    async with life(Disk("sqlite", tmp_path), [say("done")], tools=[work]) as agent:
        before = trio.current_time()
        await agent.session("nobody").wait_idle()
        assert agent.find("nobody") is None
        await agent.session("s").wait_idle()
        assert trio.current_time() == before + 60 and agent.session("s").history[-1].content == "done"
    await agent.session("s").wait_idle()  # nothing runs in an agent that is closed


async def test_a_session_that_is_closed_out_of_memory_does_not_go_on_later(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    effects: list[str] = []

    @tool(retry="safe")
    async def work() -> str:
        """Have an effect, and go on."""
        effects.append("x")
        return await trio.sleep_forever()

    async with life(Disk("sqlite", tmp_path), [call("work", id="c1")], dies=True, tools=[work]) as agent:
        await begin(agent)
    async with life(Disk("sqlite", tmp_path), [], tools=[work]) as agent:
        await agent.session("s").close()
        assert agent.find("s") is None
        await agent.session("nobody").close()
    async with life(Disk("sqlite", tmp_path), [], tools=[work]) as agent:
        assert await agent.session("s").wake()
        session = agent.find("s")
        assert session is not None and not session.state.root
        (end,) = [event for event in await agent.store.read("s", after=0, limit=100) if isinstance(event, ev.RUN_ENDS)]
        assert isinstance(end, ev.RunCancelled) and end.reason == "the session is being closed"
    assert effects == ["x"], "it was not even begun again"


async def test_a_session_that_cannot_be_read_can_be_closed(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with life(Disk("sqlite", tmp_path), [ask("q1")], dies=True) as agent:
        await begin(agent)
    data = bytearray((tmp_path / "sessions.sqlite").read_bytes())
    assert data.count(b"run_started") == 1
    data[data.find(b"run_started")] ^= 1
    (tmp_path / "sessions.sqlite").write_bytes(data)
    async with life(Disk("sqlite", tmp_path), []) as agent:
        with pytest.raises(RuleViolation, match=r"^store\.damaged: record 2 of session 's' is not what was written$"):
            await agent.session("s").wake()
        await agent.session("s").close()
