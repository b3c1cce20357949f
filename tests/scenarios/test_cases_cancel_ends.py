"""What is recorded and shown when a run ends early, as users of other runtimes have missed it."""

import contextlib
import gc
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    AgentExtension,
    AgentRunContext,
    AskUserExtension,
    ExternalEvent,
    RuleViolation,
    RunCancelledEvent,
    ScriptedModel,
    open_agent,
    tool,
)
from actors.agent.memory import MemoryLog, MemoryStore
from actors.models.scripted import call, pause, say
from actors.runtime import open_system
from protocol import commands as cmd
from protocol import events as ev
from protocol.errors import Code
from protocol.limits import Limits
from tests.faults.stores import SlowStore
from tests.scenarios.staging import ask, kinds, staged


class Watcher:
    """A reader that keeps the records it was offered."""

    def __init__(self) -> None:
        self.seen: list[ev.Event] = []
        self._more = trio.Event()

    def offer(self, event: ev.Event) -> bool:
        if event.seq:
            self.seen.append(event)
            self._more.set()
        return True

    async def wait(self, kind: type[ev.Event]) -> None:
        """Wait until a record of this kind was seen."""
        while not any(isinstance(event, kind) for event in self.seen):
            self._more = trio.Event()
            await self._more.wait()

    def closed(self, code: Code, seq: int) -> None: ...


class Absorbing(MemoryStore):
    """Loads for a virtual second, and returns quietly when it is cancelled."""

    async def load(self, session_id: str) -> MemoryLog | None:
        with contextlib.suppress(trio.Cancelled):
            await trio.sleep(1)
        return await super().load(session_id)


async def test_a_start_that_absorbs_the_cancel_of_its_spawner_ends_as_cancelled_a19(autojump_clock: MockClock) -> None:
    async with staged([say("fine")], store=Absorbing()) as agent:
        began = trio.current_time()
        with trio.move_on_after(0.5) as scope:
            await agent.run("go", session_id="S1")
        assert scope.cancelled_caught and trio.current_time() - began == pytest.approx(0.5)
        assert agent.find("S1") is None and agent.ref("S1") is None
        assert (await agent.run("again", session_id="S1")).content == "fine"


@tool
async def slow_to_stop() -> str:
    """Need a second to stop."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.move_on_after(5, shield=True):
            await trio.sleep(1)
    return "never"


class Saving(AgentExtension):
    """Saves for ten seconds at the end of a run, and needs one to stop."""

    async def after_run(self, context: AgentRunContext, result: object) -> None:
        try:
            await trio.sleep(10)
        finally:
            with trio.move_on_after(5, shield=True):
                await trio.sleep(1)


CANCELLED_DURING: dict[str, tuple[list[Any], type[ev.Event]]] = {
    "an ask": ([ask("q1")], ev.AskOpened),
    "a tool": ([call("slow_to_stop")], ev.ToolStarted),
    "an ask beside a tool": ([[call("slow_to_stop"), ask("q1")]], ev.ToolStarted),
    "a model call": ([[say("a"), pause(100)]], ev.MessageAdded),
    "the last save": ([say("done")], ev.ModelCompleted),
}


@pytest.mark.parametrize("store_s", [0.0, 0.07])
@pytest.mark.parametrize("during", CANCELLED_DURING)
async def test_status_and_stream_agree_at_every_poll_and_the_end_is_the_last_event_a23(
    autojump_clock: MockClock, during: str, store_s: float
) -> None:
    """The status comes from the session's mailbox as a client gets it: what it says, its stream has shown."""
    turns, point = CANCELLED_DURING[during]
    store = SlowStore(delay_s=store_s)
    watcher = Watcher()
    polled: list[tuple[int, str, list[ev.Event]]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        extensions = [Saving(), AskUserExtension()]
        async with staged(turns, tools=[slow_to_stop], extensions=extensions, store=store) as agent:
            session = await agent.open("S1")
            session.attach(watcher)
            handle = agent.session("S1")

            def note(result: Any) -> None:
                polled.append((result.snapshot.seq, str(result.snapshot.status), list(watcher.seen)))

            async def poll() -> None:
                while not any(isinstance(event, ev.RUN_ENDS) for event in watcher.seen):
                    await handle.submit(cmd.GetState(session="S1"), note)
                    await trio.sleep(0.05)
                await handle.submit(cmd.GetState(session="S1"), note)

            await handle.prompt("go")
            nursery.start_soon(poll)
            await watcher.wait(point)
            await trio.sleep(0.3)
            async with trio.open_nursery() as cancels:
                cancels.start_soon(handle.cancel)
                cancels.start_soon(handle.cancel)
            await handle.wait_idle()
            await trio.sleep(2)
            session.detach(watcher)
            ends = [event for event in watcher.seen if isinstance(event, ev.RUN_ENDS)]
            assert ends == [watcher.seen[-1]] and isinstance(ends[0], ev.RunCancelled)
            assert [type(event) for event in watcher.seen].count(ev.CancelRequested) == 1
        for seq, status, shown in polled:
            assert shown[-1].seq == seq, "the stream has shown all that the status knows, and no more"
            assert status in _statuses(shown), (status, shown[-1])
        order = list(dict.fromkeys(status for _, status, _ in polled))
        assert order[-1] == "idle" and "idle" not in order[:-1]
        if "tool" in during or "save" in during:
            assert order[-2:] == ["cancelling", "idle"], "its cleanup is seen"
        nursery.cancel_scope.cancel()


def _statuses(shown: list[ev.Event]) -> set[str]:
    """What a session may be called whose stream has shown this."""
    kinds_ = [type(event) for event in shown]
    if ev.RunStarted not in kinds_ or ev.RunCancelled in kinds_:
        return {"idle"}
    return {"cancelling"} if ev.CancelRequested in kinds_ else {"running", "waiting"}


async def test_a_cancel_between_spawn_and_first_checkpoint_starts_nothing_a25(autojump_clock: MockClock) -> None:
    """Also a hook of the run before its first step must not act: no tool set, no history, no model call."""
    acted: list[str] = []

    class Acting(AgentExtension):
        async def on_tool(self, context: AgentRunContext) -> None:
            acted.append("on_tool")

    @tool
    async def effect() -> str:
        acted.append("effect")
        return "done"

    async with staged([call("effect")], tools=[effect], extensions=[Acting()]) as agent:
        session = await agent.open("S1")
        await agent.session("S1").cancel("before it was asked for anything")  # nothing runs: acknowledged, no event
        assert [type(event) for event in session.log] == [ev.SessionOpened]
        async with agent.stream("go", session_id="S1") as events:
            session.cancel_run(events.run_id, "at once")  # its task is made, and has not had a step
            assert await kinds(events) == ["run_started", "cancel_requested", "run_cancelled"]
        assert acted == [] and agent.model.requests == []  # type: ignore[attr-defined]
        for unknown in ("r999", "R2", "x"):
            with pytest.raises(RuleViolation, match=rf"^run\.unknown: no run '{unknown}' is active or queued$"):
                await agent.session("S1").cancel(run=unknown)
        with pytest.raises(RuleViolation, match=r"^session\.unknown: there is no session 'nobody'$"):
            await agent.session("nobody").submit(cmd.Cancel(session="nobody"), lambda _: None)
        assert agent.find("nobody") is None, "looking for it has not made it"


async def test_the_end_of_a_session_leaves_no_task_of_whatever_was_going_on_in_it_a28(
    autojump_clock: MockClock,
) -> None:
    """A call of a second, its own helpers, a source of events, a queued run; all forgotten by us, then collected."""
    ended: list[str] = []

    @tool
    async def background(s: float) -> str:
        async def helper() -> None:
            try:
                await trio.sleep(s)
            finally:
                ended.append("helper")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(helper)
            nursery.start_soon(trio.sleep, s)
        return "finished"

    turn = [call("background", {"s": 1}, id="b1"), call("background", {"s": 1}, id="b2"), ask("q1")]
    async with staged([turn], tools=[background]) as agent:
        await agent.open("other")
        await wait_all_tasks_blocked()
        before = _tasks()
        _, receive = trio.open_memory_channel[ExternalEvent](1)
        await agent.attach(receive, session_id="s")
        del _, receive
        await agent.session("s").prompt("go")
        await agent.session("s").prompt("then", when_busy="queue")
        await trio.sleep(0.1)
        gc.collect()
        assert len(_tasks() - before) >= 8, "it is all going on"
        session = agent.find("s")
        assert session is not None
        await agent.session("s").close()
        assert _tasks() == before
        assert ended == ["helper", "helper"]
        assert [type(event) for event in session.log].count(ev.RunCancelled) == 2


def _tasks() -> set[trio.lowlevel.Task]:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found, open_ = set[trio.lowlevel.Task](), [root]
    while open_:
        task = open_.pop()
        found.add(task)
        open_.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
    return found


async def test_last_words_are_finished_also_where_the_session_is_torn_down_around_them_a08(
    autojump_clock: MockClock,
) -> None:
    """Closed with next to no grace, the session's scope is cancelled while the hook still waits."""
    said: list[str] = []

    class Farewell(AgentExtension):
        async def on_event(self, context: AgentRunContext, event: object) -> None:
            if isinstance(event, RunCancelledEvent):
                said.append("begins")
                await trio.sleep(1)
                said.append("ends")

    limits = Limits(close_grace_s=0.1, cleanup_s=2.0)
    async with open_system() as system:
        model, extensions = ScriptedModel([ask("q1")]), [Farewell(), AskUserExtension()]
        async with open_agent(model, extensions=extensions, limits=limits, system=system) as agent:
            await agent.session("S1").prompt("go")
            await wait_all_tasks_blocked()
            session = agent.find("S1")
            assert session is not None
            began = trio.current_time()
            await agent.session("S1").close()
            assert said == ["begins"] and trio.current_time() - began == pytest.approx(0.2)
            assert session.closed is not None and agent.find("S1") is None
            await trio.sleep(2)
            assert said == ["begins", "ends"]
