"""How a run goes on after its actor or its process has ended: what is done again, what is not, and who decides."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    Agent,
    AgentExtension,
    AgentRunContext,
    AskUserExtension,
    RuleViolation,
    ScriptedModel,
    TodoWriteExtension,
    open_agent,
    tool,
)
from actors.agent import serving
from actors.agent.session import Session
from actors.models.scripted import Call, call, say, stall
from protocol import commands as cmd
from protocol import events as ev
from protocol.asks import Question
from protocol.chat import ToolMessage
from protocol.errors import Code
from protocol.limits import Limits
from tests.faults.invariants import check_log
from tests.scenarios.lives import KINDS, Disk, life
from tests.scenarios.staging import ask, write


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return Disk(request.param, tmp_path)


async def begin(agent: Agent) -> None:
    """Start a run in the session s, and let it come as far as it does by itself."""
    await agent.session("s").prompt("go", command="p1")
    await wait_all_tasks_blocked()


async def go_on(agent: Agent) -> Session:
    """Address the session s, and let its run come as far as it does by itself."""
    session = await agent.open("s")
    await wait_all_tasks_blocked()
    return session


def results(agent: Agent) -> dict[str, ToolMessage]:
    return {m.tool_call_id: m for m in agent.session("s").history if isinstance(m, ToolMessage)}


def kinds(session: Session) -> list[str]:
    return [type(event).__name__ for event in session.log]


async def test_a_question_is_open_again_under_its_id_and_its_answer_is_used_b06_b07(
    autojump_clock: MockClock, disk: Disk
) -> None:
    async with life(disk, [ask("q1")], dies=True) as agent:
        await begin(agent)
        (before,) = agent.session("s").asks
    async with life(disk, [ask("q2"), say("done")]) as agent:
        session = await go_on(agent)
        assert agent.session("s").asks == (before,) and agent.session("s").status == "waiting"
        assert (await agent.session("s").prompt("go", command="p1")).run == "r2", "the prompt is not carried out again"
        await agent.session("s").answer("q1", "Postgres")
        await wait_all_tasks_blocked()
        assert [one.tool_call_id for one in agent.session("s").asks] == ["q2"]
        with pytest.raises(RuleViolation, match=r"^ask\.settled: ask 'q1' is answered$"):
            await agent.session("s").answer("q1", "SQLite")
        await agent.session("s").answer("q2", "yes")
        await agent.session("s").wait_idle()
        assert json.loads(results(agent)["q1"].content)["answer"] == "Postgres"
        assert session.state.messages[-1] == agent.session("s").history[-1] and not session.state.root


async def test_whoever_watches_after_a_restart_is_shown_one_ordered_log_d10(
    autojump_clock: MockClock, disk: Disk
) -> None:
    async with life(disk, [ask("q1")], dies=True) as agent:
        await begin(agent)
        head = agent.session("s").seq
    async with life(disk, [say("done")]) as agent:
        session = await go_on(agent)
        assert [event.seq for event in session.log] == list(range(1, head + 2))
        assert session.log[-1] == ev.RunResumed(seq=head + 1, time=session.log[-1].time, run="r2")
        await agent.session("s").cancel()


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_what_was_decided_before_a_restart_is_not_decided_again_b43(
    answer: str, autojump_clock: MockClock, disk: Disk
) -> None:
    effects: list[str] = []

    @tool
    async def effect(name: str) -> str:
        """Have an effect."""
        effects.append(name)
        return f"{name} done"

    def branch(request: Any) -> Call:
        said = json.loads(request.messages[-1].content)["answer"]
        return call("effect", {"name": "B" if said == "yes" else "C"})

    async with life(disk, [call("effect", {"name": "A"}), ask("q1")], dies=True, tools=[effect]) as agent:
        await begin(agent)
    async with life(disk, [branch, say("done")], tools=[effect]) as agent:
        await go_on(agent)
        await agent.session("s").answer("q1", answer)
        await agent.session("s").wait_idle()
    assert effects == ["A", "B" if answer == "yes" else "C"]


async def test_the_list_of_a_run_comes_back_with_the_run_and_no_later_run_has_it_c06_c26(
    autojump_clock: MockClock, disk: Disk
) -> None:
    async with life(disk, [write("ip"), ask("q1")], dies=True) as agent:
        await begin(agent)
    extension = TodoWriteExtension()
    async with life(disk, [say("done"), stall()], extensions=[extension, AskUserExtension()]) as agent:
        assert extension.todos("s") is None, "nobody has addressed it yet"
        await go_on(agent)
        found = extension.todos("s")
        assert found is not None
        assert [(item.content, item.status) for item in found.todos] == [("read", "in_progress"), ("write", "pending")]
        await agent.session("s").answer("q1", "x")
        await agent.session("s").wait_idle()
        assert extension.todos("s") is None
        await agent.session("s").prompt("again")
        await wait_all_tasks_blocked()
        assert extension.todos("s") is None


async def test_a_message_that_was_being_streamed_is_asked_for_again(autojump_clock: MockClock, disk: Disk) -> None:
    async with life(disk, [[*[say("half")], stall()]], dies=True) as agent:
        await begin(agent)
    async with life(disk, [say("whole")]) as agent:
        await go_on(agent)
        await agent.session("s").wait_idle()
        assert agent.session("s").history[-1].content == "whole"


class Hooks(AgentExtension):
    """Notes which hooks were called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    async def on_tool(self, context: AgentRunContext) -> None:
        self.called.append("on_tool")

    async def on_state(self, context: AgentRunContext) -> None:
        self.called.append("on_state")

    async def on_message(self, context: AgentRunContext) -> None:
        self.called.append("on_message")

    async def before_run(self, context: AgentRunContext) -> None:
        self.called.append("before_run")

    async def before_tool(self, context: AgentRunContext, call: Any) -> None:
        self.called.append("before_tool")

    async def after_turn(self, context: AgentRunContext, result: Any) -> None:
        self.called.append(f"after_turn {len(result.tool_calls)}")

    async def after_run(self, context: AgentRunContext, result: Any) -> None:
        self.called.append(f"after_run {result.content}")


async def test_a_run_that_goes_on_has_entered_and_is_set_up_again(autojump_clock: MockClock, disk: Disk) -> None:
    hooks = Hooks()
    async with life(disk, [ask("q1")], dies=True, extensions=[hooks, AskUserExtension()]) as agent:
        await begin(agent)
    assert hooks.called == ["on_tool", "on_state", "on_message", "before_run", "before_tool"]
    hooks.called.clear()
    async with life(disk, [say("done")], extensions=[hooks, AskUserExtension()]) as agent:
        await go_on(agent)
        await agent.session("s").answer("q1", "x")
        await agent.session("s").wait_idle()
        assert [m.content for m in agent.session("s").history if m.__class__.__name__ == "UserMessage"] == ["go"]
    assert hooks.called == ["on_tool", "on_state", "before_tool", "after_turn 1", "after_turn 0", "after_run done"]


class Turns(AgentExtension):
    """Notes each turn that has ended, with the results it had by then."""

    def __init__(self) -> None:
        self.ended: list[tuple[tuple[str, ...], int]] = []

    async def after_turn(self, context: AgentRunContext, result: Any) -> None:
        results = sum(isinstance(message, ToolMessage) for message in context.messages)
        self.ended.append((tuple(made.id for made in result.tool_calls), results))


@pytest.mark.parametrize("retry", ["never", "safe"])
async def test_a_turn_that_was_cut_off_ends_once_in_the_life_that_settles_it(
    retry: Any, autojump_clock: MockClock, disk: Disk
) -> None:
    """Also where nothing is left to be done in it, because what had started is interrupted."""
    @tool(retry=retry)
    async def slow() -> str:
        """Take a minute."""
        await trio.sleep(60)
        return "done"

    @tool
    async def quick() -> str:
        """Take no time."""
        return "done"

    first, second = Turns(), Turns()
    turns = [call("quick", id="c1"), [call("slow", id="c2"), call("quick", id="c3")]]
    tools = [slow, quick]
    async with life(disk, turns, dies=True, tools=tools, extensions=[first]) as agent:
        await begin(agent)
    assert first.ended == [(("c1",), 1)]
    async with life(disk, [say("fine")], tools=tools, extensions=[second]) as agent:
        await go_on(agent)
        await agent.session("s").wait_idle()
        assert results(agent)["c2"].outcome == ("completed" if retry == "safe" else "interrupted")
    assert second.ended == [(("c2", "c3"), 3), ((), 3)]


async def test_what_was_said_during_a_turn_that_was_cut_off_is_heard_at_its_end(
    autojump_clock: MockClock, disk: Disk
) -> None:
    @tool
    async def forever() -> str:
        """Take for ever."""
        return await trio.sleep_forever()

    async with life(disk, [call("forever", id="c1")], dies=True, tools=[forever]) as agent:
        await begin(agent)
        await agent.session("s").steer("be quick")
    async with life(disk, [say("quick"), say("not asked for")], tools=[forever]) as agent:
        await go_on(agent)
        await agent.session("s").wait_idle()
        assert [message.content for message in agent.session("s").history][-2:] == ["be quick", "quick"]


async def test_the_answer_that_was_there_is_the_result_of_a_run_that_only_had_to_end(
    autojump_clock: MockClock, disk: Disk
) -> None:
    class Slow(AgentExtension):
        async def after_run(self, context: AgentRunContext, result: Any) -> None:
            await trio.sleep(10)

    hooks = Hooks()
    async with life(disk, [say("done")], dies=True, extensions=[Slow()]) as agent:
        await agent.session("s").prompt("go")
        await trio.sleep(1)
    async with life(disk, [], extensions=[hooks]) as agent:
        await go_on(agent)
        await agent.session("s").wait_idle()
        assert hooks.called == ["on_tool", "on_state", "after_run done"]
        assert isinstance(agent.find("s").log[-1], ev.RunCompleted)  # type: ignore[union-attr]


async def test_an_extension_that_guards_a_call_does_not_let_it_through_without_its_question(
    autojump_clock: MockClock, disk: Disk
) -> None:
    """Another extension has put a question for the call: it is not taken for the guard's, whatever its answer."""
    class Guard(AgentExtension):
        def __init__(self, name: str, *, stalls: bool = False) -> None:
            self.name = name
            self.stalls = stalls

        async def before_tool(self, context: AgentRunContext, call: Any) -> None:
            if self.stalls:
                await trio.sleep_forever()
            context.open_ask(call.id, (Question("q1", f"{self.name} asks"),), answers_call=False)

    @tool
    async def act() -> str:
        """Act."""
        raise AssertionError("it was not allowed")

    async with life(
        disk, [call("act", id="c1")], dies=True, tools=[act], extensions=[Guard("one"), Guard("two", stalls=True)]
    ) as agent:  # fmt: skip
        await begin(agent)
        assert len(agent.session("s").asks) == 1
    async with life(disk, [say("done")], tools=[act], extensions=[Guard("one"), Guard("two")]) as agent:
        await go_on(agent)
        await agent.session("s").wait_idle()
        assert json.loads(results(agent)["c1"].content)["error"]["code"] == "ask.settled"


async def test_an_idempotency_key_is_asked_for_within_a_tool_only(autojump_clock: MockClock) -> None:
    class Curious(AgentExtension):
        async def before_run(self, context: AgentRunContext) -> None:
            assert context.idempotency_key

    async with open_agent(ScriptedModel([]), extensions=[Curious()]) as agent:
        with pytest.raises(Exception, match=r"an idempotency key belongs to a call, so only a tool has one"):
            await agent.run("go")


# ---- who decides


async def test_a_run_is_not_continued_where_nothing_is(autojump_clock: MockClock, disk: Disk) -> None:
    async with life(disk, [ask("q1")], dies=True) as agent:
        await begin(agent)
    async with life(disk, [say("fine")], resume="never") as agent:
        session = await go_on(agent)
        assert kinds(session)[-3:] == ["AskSettled", "ToolSkipped", "RunFailed"]
        assert (await agent.run("again", session_id="s")).content == "fine"


async def test_a_person_continues_what_was_interrupted(autojump_clock: MockClock, disk: Disk) -> None:
    async with life(disk, [stall()], dies=True) as agent:
        await begin(agent)
    async with life(disk, [], dies=True, resume="ask") as agent:
        await go_on(agent)
        (before,) = agent.session("s").asks
        assert before.questions[0].question == "Continue what was interrupted?"
        assert agent.session("s").status == "waiting"
    async with life(disk, [say("done")], resume="ask") as agent:
        await go_on(agent)
        assert agent.session("s").asks == (before,), "another process asks the same, under the same id"
        await agent.session("s").answer(before.id, "continue")
        await agent.session("s").wait_idle()
        assert agent.session("s").history[-1].content == "done"


@pytest.mark.parametrize("how", ["stop", "decline", "cancel"])
async def test_a_person_stops_what_was_interrupted(how: str, autojump_clock: MockClock, disk: Disk) -> None:
    @tool
    async def forever() -> str:
        """Take for ever."""
        return await trio.sleep_forever()

    async with life(disk, [call("forever", id="c1")], dies=True, tools=[forever]) as agent:
        await begin(agent)
        await agent.session("s").prompt("next", when_busy="queue")
    async with life(disk, [say("fine")], tools=[forever], resume="ask") as agent:
        session = await go_on(agent)
        (one,) = agent.session("s").asks
        if how == "stop":
            await agent.session("s").answer(one.tool_call_id, "stop")
        elif how == "decline":
            await agent.session("s").decline(one.tool_call_id, note="not now")
        else:
            await agent.session("s").cancel("not now", run="r2")
        await agent.session("s").wait_idle()
        (end,) = [event for event in session.log if isinstance(event, ev.RunCancelled)]
        assert end.reason == ("it was interrupted, and was not to be continued" if how == "stop" else "not now")
        assert results(agent)["c1"].outcome == "interrupted"
        assert agent.session("s").history[-1].content == "fine", "what waited behind it is carried out"
        check_log(session.log)


# ---- a crash within a process that goes on


def broken(session: Session, request: serving.Request) -> None:
    raise LookupError("a bug")


async def crash(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the actor of the session s fail."""
    with monkeypatch.context() as patch:
        patch.setattr(serving, "serve", broken)
        await agent.session("s").submit(cmd.GetState(session="s"), lambda _: None)
        await wait_all_tasks_blocked()
    assert agent.find("s") is None


async def test_a_run_goes_on_after_its_actor_has_crashed_but_not_for_ever(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_agent(ScriptedModel([stall()], repeat=True), limits=Limits(max_resumes=2)) as agent:
        await begin(agent)
        for time in range(2):
            await crash(agent, monkeypatch)
            session = await go_on(agent)
            assert session.state.runs["r2"].resumed == time + 1
        await crash(agent, monkeypatch)
        session = await go_on(agent)
        (failed,) = [event for event in session.log if isinstance(event, ev.RunFailed)]
        assert failed.code == Code.SESSION_CRASHED
        check_log(session.log)


async def test_whoever_opens_a_session_and_is_cancelled_does_not_let_it_go_on(
    autojump_clock: MockClock, disk: Disk
) -> None:
    async with life(disk, [stall()], dies=True) as agent:
        await begin(agent)
    async with life(disk, [say("done")]) as agent:
        for checkpoints in range(1, 8):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:

                    async def stop(checkpoints: int = checkpoints, scope: trio.CancelScope = scope) -> None:
                        for _ in range(checkpoints):
                            await trio.lowlevel.checkpoint()
                        scope.cancel()

                    nursery.start_soon(stop)
                    await agent.open("s")
            if agent.find("s") is not None:
                break
        session = await go_on(agent)
        await agent.session("s").wait_idle()
        assert kinds(session).count("RunResumed") == 1 and "RunCancelled" not in kinds(session)
