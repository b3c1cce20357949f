"""How sessions are opened: what the rest of it does is in `test_agent.py` and the scenarios."""

from pathlib import Path
from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import Agent, ScriptedModel, open_agent, tool
from actors.agent.handle import SessionHandle
from actors.agent.memory import MemoryLog, MemoryStore
from actors.agent.serving import Request, serve
from actors.models.scripted import call, say, stall
from actors.stores import SqliteStore
from protocol import commands as cmd
from protocol import events as ev
from protocol.errors import RuleViolation
from tests.faults.stores import SlowStore
from tests.scenarios.staging import staged


class Broken(MemoryStore):
    def __init__(self, *, load: bool) -> None:
        super().__init__()
        self.load_fails = load

    async def load(self, session_id: str) -> MemoryLog | None:
        if self.load_fails:
            raise OSError("no disk")
        return await super().load(session_id)

    def create(self, session_id: str, log_id: str) -> None:
        raise OSError("no disk")


@pytest.mark.parametrize("load", [True, False])
async def test_a_store_that_cannot_open_a_log_refuses_with_its_code(
    load: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = Broken(load=load)
    async with open_agent(ScriptedModel([]), store=store) as agent:
        for _ in range(2):  # and nothing is left that would be in the way of the next try
            with pytest.raises(RuleViolation, match=r"^store.failed: session 's' could not be loaded: OSError$"):
                await agent.open("s")
        assert agent.find("s") is None


async def test_a_session_that_comes_back_from_its_store_is_not_a_new_one(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    log_ids: set[str] = set()
    for is_new in (True, False, False):
        async with open_agent(ScriptedModel([]), store=SqliteStore(tmp_path / "s.db")) as agent:
            handle, created = await agent.open_session("s")
            assert created is is_new
            log_ids.add(handle.log_id)
    assert len(log_ids) == 1


async def test_a_session_is_named_to_nobody_before_its_log_is_kept(autojump_clock: MockClock) -> None:
    """Else a process that is killed takes back a log that a client was told of."""
    store = SlowStore(delay_s=5.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        async with open_agent(ScriptedModel([]), store=store) as agent:
            before = trio.current_time()
            handle, created = await agent.open_session("s")
            assert created and trio.current_time() == before + 5.0
            assert handle.committed == 1 and len(store.logs["s"].events) == 1
            again, created = await agent.open_session("s")
            assert not created and trio.current_time() == before + 5.0, "what is kept is waited for no more"
            assert again.id == "s" and agent.session("other").committed == 0
        nursery.cancel_scope.cancel()


async def test_no_id_of_a_session_collides_with_what_the_agent_runs_itself(autojump_clock: MockClock) -> None:
    async with staged([say("one"), say("two")]) as agent:
        for name in ("sessions", "all_sessions"):
            await agent.run("go", session_id=name)


async def _cleaning() -> str:
    """Clean up for half a second when it is cancelled."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(1, shield=True):
            await trio.sleep(0.5)
    return ""


@pytest.mark.parametrize("when_busy", ["reject", "queue"])
async def test_nothing_starts_in_a_session_that_is_being_closed(
    when_busy: Literal["reject", "queue"], autojump_clock: MockClock
) -> None:
    replies: list[Any] = []
    async with staged([call("work"), call("work")], tools=[tool(_cleaning, name="work")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.session("s").close)
            await trio.sleep(0.1)
            prompt = cmd.Prompt(session="s", text="again", when_busy=when_busy)
            await agent.session("s").submit(prompt, replies.append)
        assert trio.current_time() == began + 0.5
    expected = "session.busy: " if when_busy == "reject" else "session.closed: session 's' is being closed, nothing is"
    assert str(replies[0]).startswith(expected)


async def test_nothing_starts_in_an_agent_that_is_being_closed(autojump_clock: MockClock) -> None:
    async def prompt_again(handle: SessionHandle) -> None:
        await trio.sleep(0.1)
        with pytest.raises(RuleViolation, match=r"^session\.closed: session 's' is being closed, nothing is started"):
            await handle.prompt("again", when_busy="queue")

    async with trio.open_nursery() as nursery:
        async with staged([call("work"), call("work")], tools=[tool(_cleaning, name="work")]) as agent:
            await agent.session("s").prompt("go")
            await wait_all_tasks_blocked()
            nursery.start_soon(prompt_again, agent.session("s"))
            began = trio.current_time()
        assert trio.current_time() == began + 0.5


async def test_a_close_that_was_given_up_leaves_a_session_that_works(autojump_clock: MockClock) -> None:
    async with staged([call("work"), say("one")], tools=[tool(_cleaning, name="work")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        with trio.move_on_after(0.1):
            await agent.session("s").close()
        await agent.session("s").wait_idle()
        assert (await agent.run("again", session_id="s")).content == "one"


async def test_a_session_is_said_to_be_made_by_whom_it_was_made_for(autojump_clock: MockClock) -> None:
    made: list[bool] = []

    async def open_it() -> None:
        made.append((await agent.open_session("s"))[1])

    async with staged([]) as agent:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(open_it)
        assert sorted(made) == [False, False, True]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.close_session, "s")
            await wait_until_closing(agent)
            await open_it()
        assert made[-1] is True, "the one before was closed meanwhile"


async def wait_until_closing(agent: Agent) -> None:
    session = agent.find("s")
    while session is not None and not session.closing:  # noqa: ASYNC110 - there is no event for it
        await trio.lowlevel.checkpoint()


async def test_a_close_that_is_cancelled_before_it_began_leaves_a_working_session(autojump_clock: MockClock) -> None:
    """A close that came over the wire has stopped the session from starting anything; its closer may be cut off."""
    async with open_agent(ScriptedModel([say("done")])) as agent:
        session = await agent.open("s")
        serve(session, Request(cmd.Close(session="s"), lambda _: None))
        with pytest.raises(RuleViolation, match=r"^session.closed: "):
            await agent.session("s").prompt("go")
        with trio.CancelScope() as scope:
            scope.cancel()
            await agent.close_session("s")
        assert agent.find("s") is session
        assert (await agent.run("go", session_id="s")).content == "done"


async def test_all_runs_of_all_sessions_are_cancelled_queued_ones_too(autojump_clock: MockClock) -> None:
    async with open_agent(ScriptedModel([stall()], repeat=True)) as agent:
        for number in range(100):
            await agent.session(f"s{number}").prompt("go")
        await agent.session("s3").prompt("and then", when_busy="queue")
        await agent.open_session("idle")
        await wait_all_tasks_blocked()
        assert await agent.cancel_all("enough") == 101
        for number in range(100):
            await agent.session(f"s{number}").wait_idle()
        ends = {
            event.reason
            for number in range(100)
            if (session := agent.find(f"s{number}")) is not None
            for event in session.log
            if isinstance(event, ev.RunCancelled)
        }
        assert ends == {"enough"}
        assert agent.active_runs == 0
        session = agent.find("s3")
        assert session is not None
        assert sum(isinstance(event, ev.RunCancelled) for event in session.log) == 2
        assert await agent.cancel_all() == 0


class Steps(trio.abc.Instrument):
    """Sees how many runs are cancelled in one step of a task at most."""

    def __init__(self, agent: Agent) -> None:
        self.watched = agent.grace._due  # pyright: ignore[reportPrivateUsage]
        self.before = 0
        self.most = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.before = len(self.watched)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.most = max(self.most, len(self.watched) - self.before)


async def test_cancelling_all_never_holds_the_loop_for_long(autojump_clock: MockClock) -> None:
    async with open_agent(ScriptedModel([stall()], repeat=True)) as agent:
        for number in range(200):
            await agent.session(f"s{number}").prompt("go")
        await wait_all_tasks_blocked()
        steps = Steps(agent)
        trio.lowlevel.add_instrument(steps)
        await agent.cancel_all()
        trio.lowlevel.remove_instrument(steps)
        assert steps.most == 64


async def test_a_reason_that_cannot_be_kept_cancels_nothing(autojump_clock: MockClock) -> None:
    async with open_agent(ScriptedModel([stall()])) as agent:
        await agent.session("s").prompt("go")
        with pytest.raises(RuleViolation, match=r"^event.unsendable: the reason "):
            await agent.cancel_all("half a \ud800")
        assert agent.active_runs == 1
