"""Questions and calls that a crash, a shutdown, a reload or a cancel interrupts: both sides are told."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    Agent,
    AskUserExtension,
    RuleViolation,
    RunFailed,
    ScriptedModel,
    TodoWriteExtension,
    ToolMessage,
    open_agent,
    tool,
)
from actors.agent.memory import MemoryStore
from actors.models.scripted import call, fail, say, stall
from protocol import events as ev
from protocol.asks import AskOutcome
from protocol.errors import Code, ModelError
from tests.faults.invariants import check_history, check_log
from tests.scenarios.staging import ask, staged, write

BOTH = (AskUserExtension, TodoWriteExtension)


class Durable(MemoryStore):
    """A store that outlives its agent. A copy is what a crash leaves behind."""

    __slots__ = ()

    async def release(self, session_id: str) -> None: ...

    async def aclose(self) -> None: ...

    def copy(self) -> "Durable":
        copied = Durable()
        copied._ids = dict(self._ids)
        copied._logs = {key: list(log) for key, log in self._logs.items()}
        return copied


class Watcher:
    """A reader that keeps what it was offered, and calls back at the first record of a kind."""

    def __init__(self, found: Callable[[ev.Event], object] = lambda _: False) -> None:
        self.seen: list[ev.Event] = []
        self.ended: Code | None = None
        self._found = found

    def offer(self, event: ev.Event) -> bool:
        self.seen.append(event)
        self._found(event)
        return True

    def closed(self, code: Code, seq: int) -> None:
        self.ended = code

    def of(self, kind: type[ev.Event]) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]


def _results(agent: Agent) -> dict[str, ToolMessage]:
    return {m.tool_call_id: m for m in agent.session("S1").history if isinstance(m, ToolMessage)}


async def _until_asked(agent: Agent, watcher: Watcher | None = None) -> None:
    """Prompt session `S1` and wait until its question is open."""
    session = await agent.open("S1")
    if watcher is not None:
        session.attach(watcher)
    await agent.session("S1").prompt("go")
    await wait_all_tasks_blocked()
    assert len(agent.session("S1").asks) == 1


@pytest.mark.parametrize("reloaded", [BOTH, (TodoWriteExtension,)], ids=["same tools", "without the ask tool"])
async def test_a_reload_tells_client_and_model_that_the_question_was_withdrawn_and_why_b04(
    autojump_clock: MockClock, reloaded: tuple[type, ...]
) -> None:
    """What reloads is an agent of another configuration over the same store; the first one, which keeps no runs, is
    closed."""
    store, watcher, model = Durable(), Watcher(), ScriptedModel([say("without an answer")])
    extensions = [kind() for kind in BOTH]
    async with open_agent(ScriptedModel([ask("q1")]), store=store, extensions=extensions, resume="never") as first:
        await _until_asked(first, watcher)
    (settled,) = watcher.of(ev.AskSettled)
    assert (settled.tool_call_id, settled.outcome) == ("q1", AskOutcome.CANCELLED)
    assert watcher.of(ev.RunCancelled)[0].reason == "the agent is being closed"
    assert watcher.ended == "session.closed"

    async with open_agent(model, store=store, extensions=[kind() for kind in reloaded]) as second:
        await second.open("S1")
        assert second.session("S1").asks == () and second.session("S1").status == "idle"
        with pytest.raises(RuleViolation, match=r"^ask\.settled: ask 'q1' is cancelled$"):
            await second.session("S1").answer("q1", ["Postgres"])
        assert (await second.run("again", session_id="S1")).content == "without an answer"
        error = json.loads(_results(second)["q1"].content)["error"]
        assert error == {"code": "call.skipped", "message": "ask_user was not run: the run ended before it started."}
        check_history(model.requests[0].messages)
        assert any(isinstance(m, ToolMessage) and m.tool_call_id == "q1" for m in model.requests[0].messages)


async def test_a_change_of_the_configuration_leaves_the_open_question_and_takes_its_answer_b04(
    autojump_clock: MockClock,
) -> None:
    """The tool is taken out of the extension while its question waits: only later runs are without it."""

    class Reloadable(AskUserExtension):
        enabled = True

        async def on_tool(self, context: Any) -> None:
            if self.enabled:
                await super().on_tool(context)

    extension = Reloadable()
    async with staged([ask("q1"), say("done"), ask("q2"), say("fine")], extensions=[extension]) as agent:
        await _until_asked(agent)
        extension.enabled = False
        await agent.session("S1").answer("q1", ["Postgres"])
        await agent.session("S1").wait_idle()
        assert json.loads(_results(agent)["q1"].content)["answer"] == ["Postgres"]
        assert (await agent.run("again", session_id="S1")).content == "fine"
        assert json.loads(_results(agent)["q2"].content)["error"]["code"] == "tool.unknown"


async def test_after_a_crash_the_old_question_is_closed_and_the_next_one_is_the_only_one_b06_b07(
    autojump_clock: MockClock,
) -> None:
    store = Durable()
    async with open_agent(ScriptedModel([ask("q1")]), store=store, extensions=[AskUserExtension()]) as agent:
        await _until_asked(agent)
        left = store.copy()
    model = ScriptedModel([ask("q2"), say("done")])
    async with open_agent(model, store=left, extensions=[AskUserExtension()], resume="never") as agent:
        watcher = Watcher()
        session = await agent.open("S1")
        session.attach(watcher, after=0)
        assert agent.session("S1").asks == () and agent.open_sessions()[0][0].open_asks == 0
        assert [event.outcome for event in watcher.of(ev.AskSettled)] == ["cancelled"]
        assert [event.code for event in watcher.of(ev.RunFailed)] == ["session.crashed"]
        with pytest.raises(RuleViolation, match=r"^ask\.settled: ask 'q1' is cancelled$"):
            await agent.session("S1").answer("q1", ["SQLite"])

        await agent.session("S1").prompt("again")
        await wait_all_tasks_blocked()
        assert [one.tool_call_id for one in agent.session("S1").asks] == ["q2"]
        assert agent.open_sessions()[0][0].open_asks == 1
        assert [event.ask.tool_call_id for event in watcher.of(ev.AskOpened)] == ["q1", "q2"]
        await agent.session("S1").answer("q2", "yes")
        await agent.session("S1").wait_idle()
        session.detach(watcher)
        check_log(session.log)


@pytest.mark.parametrize("when", ["between effect and result", "after the result", "the next model call fails"])
async def test_an_effect_is_not_repeated_after_a_crash_or_a_failure_b39_b43(
    autojump_clock: MockClock, when: str
) -> None:
    """In the gap between effect and result nobody knows, and that is what is said."""
    effects: list[str] = []
    stores: list[Durable] = []
    store = Durable()

    @tool
    async def effect(name: str) -> str:
        effects.append(name)
        if when == "between effect and result":
            stores.append(store.copy())
        return f"{name} done"

    after = fail(ModelError("gone")) if "fails" in when else stall()
    turns = [call("effect", {"name": "A"}, id="c1"), [after]]
    async with open_agent(ScriptedModel(turns), store=store, tools=[effect]) as agent:
        await agent.session("S1").prompt("go")
        await wait_all_tasks_blocked()
        stores.append(store.copy())
    model = ScriptedModel([say("going on")])
    async with open_agent(model, store=stores[0], tools=[effect], resume="never") as agent:
        assert (await agent.run("again", session_id="S1")).content == "going on"
        result = _results(agent)["c1"]
        assert effects == ["A"]
        if when == "between effect and result":
            assert result.outcome == "interrupted" and "may have had effects" in result.content
        else:
            assert (result.outcome, result.content) == ("completed", "A done")
        check_history(model.requests[0].messages)


async def test_a_question_is_its_sessions_own_also_when_a_child_has_just_ended_b11(autojump_clock: MockClock) -> None:
    made: list[Agent] = []

    @tool
    async def spawn() -> str:
        return (await made[0].run("go", session_id="child")).content

    def play(request: Any) -> Any:
        return say("child: done") if request.session_id == "child" else ask("q1")

    model = ScriptedModel([[call("spawn", id="c1")], play, play, stall()])
    async with staged(model, tools=[spawn]) as agent:
        made.append(agent)
        await agent.session("S1").prompt("go")
        await wait_all_tasks_blocked()
        assert agent.session("child").status == "idle" and agent.session("child").asks == ()
        began = trio.current_time()
        await agent.session("S1").answer("q1", ["Postgres"])
        await wait_all_tasks_blocked()
        assert trio.current_time() == began and agent.session("S1").status == "running", "settled at once"
        await trio.sleep(1)
        await agent.session("S1").cancel("nothing moves")
        await agent.session("S1").wait_idle()
        result = _results(agent)["q1"]
        assert result.outcome == "completed" and json.loads(result.content)["answer"] == ["Postgres"]
        with pytest.raises(RuleViolation, match=r"^ask\.settled: ask 'q1' is answered$"):
            await agent.session("S1").decline("q1")


POINTS: dict[str, Callable[[ev.Event], bool]] = {
    "todo_write": lambda event: isinstance(event, ev.TodosChanged),
    "ask_user": lambda event: isinstance(event, ev.AskOpened),
    "sleep": lambda event: isinstance(event, ev.ToolStarted) and event.name == "sleep",
}


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside the others"])
@pytest.mark.parametrize("during", POINTS)
@pytest.mark.parametrize("how", ["cancel", "crash", "shutdown"])
async def test_an_interrupted_call_has_its_one_result_and_the_conversation_goes_on_f07(
    autojump_clock: MockClock, how: str, during: str, alone: bool
) -> None:
    @tool
    async def sleep() -> str:
        await trio.sleep(10)
        return "slept"

    store, stores = Durable(), list[Durable]()
    calls = {"todo_write": write("ip", id="t1"), "ask_user": ask("q1"), "sleep": call("sleep", id="s1")}
    turn = [calls[during]] if alone else list(calls.values())
    reached = trio.Event()

    def at(event: ev.Event) -> None:
        if not reached.is_set() and POINTS[during](event):
            reached.set()
            stores.append(store.copy())
            if how == "cancel":
                session.cancel_run(event.run, "")

    async def go_on(agent: Agent) -> None:
        assert (await agent.run("again", session_id="S1")).content == "fine"
        results = [m for m in agent.session("S1").history if isinstance(m, ToolMessage)]
        assert [m.tool_call_id for m in results] == [one.id for one in turn]
        assert all(m.content.strip() and (m.success or json.loads(m.content)["error"]["message"]) for m in results)
        check_history(agent.session("S1").history)
        found = agent.find("S1")
        assert found is not None
        check_log(found.log)
        ends = [event for event in found.log if isinstance(event, ev.RunFailed | ev.RunCancelled)]
        assert len(ends) == 1
        assert isinstance(ends[0], ev.RunCancelled) or ends[0].message, "the error that is shown says something"

    options: dict[str, Any] = {"tools": [sleep], "extensions": [kind() for kind in BOTH]}
    async with open_agent(ScriptedModel([turn, stall()]), store=store, **options) as agent:
        session = await agent.open("S1")
        session.attach(Watcher(at))
        await agent.session("S1").prompt("go")
        await reached.wait()
        if how == "cancel":
            await agent.session("S1").wait_idle()
            agent.model = ScriptedModel([say("fine")])
            await go_on(agent)
    if how != "cancel":
        left = stores[0] if how == "crash" else store
        async with open_agent(ScriptedModel([say("fine")]), store=left, resume="never", **options) as agent:
            await go_on(agent)


async def test_a_run_that_failed_says_why_also_where_the_error_has_no_words_f07(autojump_clock: MockClock) -> None:
    async with staged([fail(ValueError()), fail(ModelError("")), say("fine")]) as agent:
        for words in (r"^model\.failed: the model raised ValueError$", r"^model\.failed: \S"):
            with pytest.raises(RunFailed, match=words):
                await agent.run("go", session_id="S1")
        assert (await agent.run("go", session_id="S1")).content == "fine"
