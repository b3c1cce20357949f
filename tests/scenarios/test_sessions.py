"""Sessions from being opened to being closed: concurrency, crashes, many at once, and where their tasks live."""

import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import AgentEventType, AskUserExtension, RuleViolation, RunFailed, ScriptedModel, open_agent, tool
from actors.agent import serving
from actors.agent.memory import MemoryLog, MemoryStore
from actors.agent.session import Session
from actors.models.scripted import call, say
from actors.runtime import open_system
from protocol import commands as cmd
from protocol import events as ev
from protocol.chat import AssistantMessage
from protocol.errors import Code
from protocol.limits import Limits
from tests.faults.invariants import check_log
from tests.scenarios.staging import ask, staged, until, until_asked


class SlowToLoad(MemoryStore):
    """A memory store that takes a virtual second to load."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0

    async def load(self, session_id: str) -> MemoryLog | None:
        self.loads += 1
        await trio.sleep(1)
        return await super().load(session_id)


async def test_a_session_that_many_open_at_once_is_made_once(autojump_clock: MockClock) -> None:
    store = SlowToLoad()
    found: list[Session] = []
    async with staged([say("x")], store=store) as agent:

        async def opener() -> None:
            found.append(await agent.open("s"))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(opener)
        assert len(found) == 20 and len(set(map(id, found))) == 1
        assert store.loads == 1


async def test_an_opener_that_is_cancelled_leaves_the_session_to_the_next(autojump_clock: MockClock) -> None:
    store = SlowToLoad()
    async with staged([say("x")], store=store) as agent, trio.open_nursery() as nursery:

        async def opener() -> None:
            assert (await agent.open("s")).id == "s"

        with trio.move_on_after(0.5) as scope:
            await agent.open("s")
        assert scope.cancelled_caught
        nursery.start_soon(opener)
        assert (await agent.run("go", session_id="s")).content == "x"


async def test_closing_the_agent_while_a_session_is_opened_refuses_it(autojump_clock: MockClock) -> None:
    refused: list[str] = []
    async with trio.open_nursery() as nursery:
        async with staged([say("x")], store=SlowToLoad()) as agent:

            async def opener() -> None:
                try:
                    await agent.open("s")
                except RuleViolation as error:
                    refused.append(error.code)

            nursery.start_soon(opener)
            await wait_all_tasks_blocked()
    assert refused == ["session.closed"]


async def test_a_session_opened_again_while_it_is_closed_gets_a_log_of_its_own(autojump_clock: MockClock) -> None:
    class SlowToRelease(MemoryStore):
        async def release(self, session_id: str) -> None:
            await trio.sleep(1)
            await super().release(session_id)

    async with staged([ask("q1"), say("fine")], store=SlowToRelease()) as agent:
        async with agent.stream("go", session_id="s") as events:
            await until_asked(events)
            before = agent.session("s").log_id
            async with trio.open_nursery() as nursery:
                nursery.start_soon(agent.session("s").close)
                await wait_all_tasks_blocked()
                assert agent.find("s") is None, "it is shut, and its log not yet released"
                session = await agent.open("s")
                assert session.state.log_id != before
        assert (await agent.run("again", session_id="s")).content == "fine"


async def test_closing_twice_at_once_closes_once(autojump_clock: MockClock) -> None:
    async with staged([say("x")]) as agent:
        await agent.open("s")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.session("s").close)
            nursery.start_soon(agent.session("s").close)
        assert agent.find("s") is None
        await agent.session("s").close()


async def test_a_closed_agent_refuses_by_name() -> None:
    async with open_agent(ScriptedModel([]), name="gone") as agent:
        pass
    with pytest.raises(RuleViolation, match=r"^session\.closed: agent 'gone' is closed$"):
        await agent.run("go")


async def test_the_limit_of_open_sessions_is_named(autojump_clock: MockClock) -> None:
    async with staged([say("x")], limits=Limits(max_sessions=2)) as agent:
        await agent.open("a")
        await agent.open("b")
        with pytest.raises(RuleViolation, match=r"^session\.limit: agent 'agent' has 2 sessions open$"):
            await agent.open("c")
        await agent.session("a").close()
        await agent.open("c")


async def test_a_session_whose_actor_crashed_recovers_with_its_log(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run that was cut off has its end in the log, its calls their results, and the history is kept."""

    def boom(session: Session, request: serving.Request) -> None:
        raise LookupError("a bug")

    async with staged([ask("q1"), say("fine")], resume="never") as agent:
        async with trio.open_nursery() as nursery:

            async def caller() -> None:
                with pytest.raises(RunFailed, match=r"^session\.crashed: "):
                    await agent.run("go", session_id="s")

            nursery.start_soon(caller)
            await wait_all_tasks_blocked()
            queued = await agent.session("s").prompt("queued", when_busy="queue")
            with monkeypatch.context() as patched, caplog.at_level(60):
                patched.setattr(serving, "serve", boom)
                await agent.session("s").submit(cmd.GetState(session="s"), lambda _: None)
                await wait_all_tasks_blocked()
        assert agent.find("s") is None
        session = await agent.open("s")
        await session.wait_idle()
        check_log(session.log)
        ends = {event.run: event for event in session.log if isinstance(event, ev.RUN_ENDS)}
        (failed, completed) = ends.values()
        assert isinstance(failed, ev.RunFailed) and failed.code == Code.SESSION_CRASHED
        assert completed.run == queued.run, "what was queued runs after the crash"
        assert isinstance(session.state.messages[-1], AssistantMessage)


async def test_a_thousand_sessions_are_cancelled_and_leave_nothing(autojump_clock: MockClock) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    model = ScriptedModel([ask("q1")], repeat=True)
    async with open_system() as system:
        async with open_agent(model, extensions=[AskUserExtension()], system=system) as agent:
            for number in range(1_000):
                await agent.session(f"s{number}").prompt("go")
            await wait_all_tasks_blocked()
            assert sum(info.open_asks for info in agent.open_sessions(limit=2_000)[0]) == 1_000
            for number in range(1_000):
                await agent.session(f"s{number}").cancel()
            await wait_all_tasks_blocked()
            infos, more = agent.open_sessions(limit=2_000)
            assert not more and all(info.status == "idle" and not info.open_asks for info in infos)
            assert agent.active_runs == 0
            for number in range(1_000):
                await agent.session(f"s{number}").prompt("again")
            await wait_all_tasks_blocked()
        assert len(system.registry) == 0
    assert trio.lowlevel.current_statistics().tasks_living == before


async def test_each_ask_is_a_task_below_its_sessions_actor_a28(autojump_clock: MockClock) -> None:
    """Walk trio's own task tree: whoever waits for an ask is found under the nursery of its session."""
    async with staged(ScriptedModel([[ask("q1"), ask("q2")]], repeat=True)) as agent:
        for name in ("one", "two"):
            await agent.session(name).prompt("go")
        await wait_all_tasks_blocked()
        for name in ("one", "two"):
            session = agent.find(name)
            assert session is not None and session.nursery is not None
            below = _below(session.nursery)
            waiters = session._waiters
            assert sorted(waiters) == ["q1", "q2"]
            assert set(waiters.values()) <= below
            assert session.nursery.parent_task.name.endswith(f"/{name}")
            assert session.nursery.parent_task in _below(_root_nursery())


def _below(nursery: trio.Nursery) -> set[trio.lowlevel.Task]:
    found: set[trio.lowlevel.Task] = set()
    for task in nursery.child_tasks:
        found.add(task)
        for inner in task.child_nurseries:
            found |= _below(inner)
    return found


def _root_nursery() -> trio.Nursery:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return next(n for n in root.child_nurseries for t in n.child_tasks if "pytest" in t.name or "test" in t.name)


async def test_a_tool_that_never_ends_its_thread_is_given_up_after_the_grace() -> None:
    release = threading.Event()

    @tool
    def block() -> str:
        release.wait(10)
        return "late"

    limits = Limits(cancel_grace_s=0.05)
    with trio.fail_after(20):
        async with open_agent(ScriptedModel([call("block"), say("next")]), tools=[block], limits=limits) as agent:
            async with agent.stream("go") as events:
                await until(events, AgentEventType.TOOL_STARTED)
                await agent.session().cancel()
                async for event in events:
                    last = event
            assert last.type is AgentEventType.RUN_CANCELLED
            assert (await agent.run("again")).content == "next"
            release.set()


async def test_a_synchronous_tool_runs_in_a_thread_and_its_result_is_kept() -> None:
    names: list[str] = []

    @tool
    def where() -> str:
        names.append(threading.current_thread().name)
        return "there"

    with trio.fail_after(20):
        async with open_agent(ScriptedModel([[call("where"), call("where")], say("done")]), tools=[where]) as agent:
            assert (await agent.run("go")).content == "done"
    assert len(names) == 2 and threading.main_thread().name not in names


async def test_status_of_a_waiting_session_is_waiting_for_hours_b03(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        await wait_all_tasks_blocked()
        await trio.sleep(7_200)
        (info,), _ = agent.open_sessions()
        assert (info.status, info.open_asks) == ("waiting", 1)
        assert [record.tool_call_id for record in handle.asks] == ["q1"]
        await handle.answer("q1", "Postgres")
        await handle.wait_idle()
        assert handle.status == "idle"


async def test_a_closed_session_is_refused_and_a_reader_is_told(autojump_clock: MockClock) -> None:
    class Reader:
        codes: list[Any] = []

        def offer(self, event: ev.Event) -> bool:
            return True

        def closed(self, code: Code, seq: int) -> None:
            self.codes.append((code, seq))

    reader = Reader()
    async with staged([say("x")]) as agent:
        session = await agent.open("s")
        session.attach(reader)
        await agent.session("s").close()
        assert reader.codes == [("session.closed", session.state.seq)]
        with pytest.raises(RuleViolation, match=r"^session\.closed: session 's' is closed$"):
            session.append([ev.Custom("x")])
