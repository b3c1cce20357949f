"""Cancels and timeouts beside cleanup that takes its time, as users of other runtimes have met them."""

import gc
import logging
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    AgentEventType,
    AgentExtension,
    AgentRunContext,
    AskUserExtension,
    ModelEvent,
    ModelRequest,
    RunCancelled,
    RunCancelledEvent,
    ToolCall,
    ToolMessage,
    ToolResult,
    tool,
)
from actors.agent.extension import CallTool
from actors.models.scripted import call, say
from protocol import events as ev
from protocol.chat import Stop, TextDelta
from protocol.limits import Limits
from tests.faults.stores import SlowStore
from tests.scenarios.staging import ask, kinds, staged, until, until_asked

T = AgentEventType


class Timeout(AgentExtension):
    """Gives every tool so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def on_tool_call(self, context: AgentRunContext, call: ToolCall, call_next: CallTool) -> ToolResult:
        with trio.fail_after(self.seconds):
            return await call_next(call)


@pytest.mark.parametrize("together", [False, True])
async def test_a_tool_that_timed_out_has_let_go_before_the_next_one_starts_a03(
    autojump_clock: MockClock, together: bool
) -> None:
    lock = trio.Lock()
    holders: list[str] = []
    said: list[tuple[str, float]] = []

    @tool
    async def locked(name: str, s: float) -> str:
        async with lock:
            assert not holders, "two hold the lock"
            holders.append(name)
            said.append((f"{name} in", trio.current_time()))
            try:
                await trio.sleep(s)
            finally:
                with trio.move_on_after(2, shield=True):
                    await trio.sleep(0.2)
                holders.remove(name)
                said.append((f"{name} out", trio.current_time()))
        return name

    slow, quick = call("locked", {"name": "slow", "s": 60}, id="c1"), call("locked", {"name": "quick", "s": 0}, id="c2")
    # Together, whichever has the lock first: the other never sees it half free.
    script = [[slow, quick], say("done")] if together else [slow, quick, say("done")]
    extensions = [Timeout(0.5 if together else 0.05)]
    async with staged(script, tools=[locked], extensions=extensions) as agent:
        began = trio.current_time()
        assert (await agent.run("go")).content == "done"
        results = {m.tool_call_id: m for m in agent.session().history if isinstance(m, ToolMessage)}
    assert results["c1"].outcome == "failed" and "TooSlowError" in results["c1"].content
    times = {word: time - began for word, time in said}
    if not together:
        assert [word for word, _ in said] == ["slow in", "slow out", "quick in", "quick out"]
        assert times["slow out"] == pytest.approx(0.25) == times["quick in"]
    assert not holders and not lock.locked()


class Five:
    """A model of five pieces, one a second, that says when its stream is closed."""

    def __init__(self) -> None:
        self.closed_at: list[float] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        try:
            for number in range(5):
                yield TextDelta(str(number))
                await trio.sleep(1)
            yield Stop()
        finally:
            self.closed_at.append(trio.current_time())


@pytest.mark.parametrize("how", ["break", "raise", "cancelled while it waits"])
async def test_what_feeds_a_stream_has_stopped_when_its_block_is_left_a04(autojump_clock: MockClock, how: str) -> None:
    """One of five events is taken; the model's stream, the run's task and its scope are gone with the block."""
    before = trio.lowlevel.current_statistics().tasks_living
    left_at: list[float] = []
    model = Five()
    async with staged(model) as agent:

        async def consume() -> None:
            try:
                async with agent.stream("go", session_id="s") as events:
                    await until(events, T.TEXT_DELTA)
                    if how == "break":
                        return
                    if how == "raise":
                        raise LookupError("mine")
                    await until(events, T.RUN_COMPLETED)
            finally:
                left_at.append(trio.current_time())
                session = agent.find("s")
                assert session is not None and session.nursery is not None
                assert not session.nursery.child_tasks and not session.lives
                assert isinstance(session.log[-1], ev.RunCancelled)

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                if how == "cancelled while it waits":
                    # From another task, while the consumer is parked between two pieces.
                    async def cancel() -> None:
                        await trio.sleep(1.5)
                        scope.cancel()

                    nursery.start_soon(cancel)
                if how == "raise":
                    with pytest.raises(LookupError, match="mine"):
                        await consume()
                else:
                    await consume()
        assert scope.cancelled_caught == (how == "cancelled while it waits")
        assert model.closed_at == left_at, "closed by the run itself, before the block was left"
        gc.collect()  # a generator that was only dropped would speak up here
    assert trio.lowlevel.current_statistics().tasks_living == before


@pytest.mark.parametrize(("needs_s", "takes_s"), [(5.0, 5.0), (60.0, 6.0)], ids=["in time", "too long"])
async def test_a_cancel_from_outside_waits_for_shielded_cleanup_without_spinning_and_within_its_deadline_a07(
    autojump_clock: MockClock, needs_s: float, takes_s: float
) -> None:
    class Slow(AgentExtension):
        async def on_event(self, context: AgentRunContext, event: object) -> None:
            if isinstance(event, RunCancelledEvent):
                await trio.sleep(needs_s)

    class Steps(trio.abc.Instrument):
        count = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.count += 1

    steps = Steps()
    limits = Limits(cleanup_s=6.0, cancel_grace_s=20.0, close_grace_s=20.0)
    with trio.CancelScope() as outer:
        async with staged([ask("q1")], extensions=[Slow(), AskUserExtension()], limits=limits) as agent:
            async with agent.stream("go") as events:
                await until_asked(events)
                began = trio.current_time()
                trio.lowlevel.add_instrument(steps)
                outer.cancel()
                await trio.sleep_forever()
    trio.lowlevel.remove_instrument(steps)
    assert outer.cancelled_caught
    assert trio.current_time() - began == pytest.approx(takes_s)
    assert steps.count < 60, "something spins while the cleanup is shielded"


async def test_the_last_words_of_a_cancelled_run_are_said_and_kept_before_its_end_a08(
    autojump_clock: MockClock,
) -> None:
    """Emit (and wait), persist (and wait), deregister: all three, though the session is cancelled meanwhile."""

    class Farewell(AgentExtension):
        async def on_event(self, context: AgentRunContext, event: object) -> None:
            if isinstance(event, RunCancelledEvent):
                await trio.sleep(0.5)
                context.emit("farewell", {"reason": event.reason})
                await trio.sleep(0.5)
                context.set_state("left", event.reason)

    store = SlowStore(delay_s=0.25)
    async with trio.open_nursery() as keeping:
        keeping.start_soon(store.keep)
        async with staged([ask("q1")], extensions=[Farewell(), AskUserExtension()], store=store) as agent:
            async with agent.stream("go", session_id="S1") as events:
                await until_asked(events)
                await agent.session("S1").cancel("enough")
                assert await kinds(events) == [
                    "cancel_requested", "ask_settled", "custom", "state_changed", "tool_skipped", "run_cancelled",
                ]  # fmt: skip
            kept = store.logs["S1"].events
            assert [type(event) for event in kept[-4:]] == [ev.Custom, ev.StateChanged, ev.ToolSkipped, ev.RunCancelled]
            assert agent.active_runs == 0 and agent.session("S1").asks == ()
        keeping.cancel_scope.cancel()


@pytest.mark.parametrize("cleanup", ["ends", "raises", "hangs"])
async def test_a_cleanup_that_is_cancelled_again_and_again_runs_once_and_its_error_is_told_a09(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, cleanup: str
) -> None:
    said: list[str] = []

    class Slow(AgentExtension):
        async def on_event(self, context: AgentRunContext, event: object) -> None:
            if isinstance(event, RunCancelledEvent):
                said.append("begins")
                await trio.sleep(1 if cleanup != "hangs" else 1_000)
                said.append("ends")
                if cleanup == "raises":
                    raise OSError("at its end")

    before = trio.lowlevel.current_statistics().tasks_living
    with caplog.at_level(logging.WARNING), trio.CancelScope() as system:
        async with staged([ask("q1")], extensions=[Slow(), AskUserExtension()]) as agent:
            async with agent.stream("go") as events:
                await until_asked(events)
                session = agent.find(agent.session_id)
                assert session is not None
                began = trio.current_time()
                for _ in range(3):  # at 0, 10 and 20 ms; at 30 ms all of it is shut down
                    await agent.session().cancel()
                    await trio.sleep(0.01)
                system.cancel()
                await trio.sleep_forever()
    assert trio.lowlevel.current_statistics().tasks_living == before, "something outlives the shutdown"
    assert trio.current_time() - began == pytest.approx(2.0 if cleanup == "hangs" else 1.0)
    assert said == (["begins"] if cleanup == "hangs" else ["begins", "ends"])
    assert session is not None and [type(event) for event in session.log].count(ev.CancelRequested) == 1
    assert isinstance(session.log[-1], ev.RunCancelled)
    told = [record.getMessage() for record in caplog.records]
    wanted = {"ends": [], "raises": ["OSError: at its end"], "hangs": ["Slow did not finish its cleanup in time"]}
    assert len(told) == len(wanted[cleanup]) and all(w in t for w, t in zip(wanted[cleanup], told, strict=True)), told


async def test_a_tool_that_swallows_everything_is_named_and_slows_nobody_down_a12(mock_clock: MockClock) -> None:
    """The loop never lets the clock jump by itself, so the test turns it, a hundredth of a second per round."""
    raised, rounds, stop = 0, 0, False

    @tool
    async def deaf() -> str:
        nonlocal raised
        while not stop:
            try:
                await trio.sleep_forever()
            except BaseException:  # noqa: ASYNC103 - what it is here to do
                raised += 1
                continue
        return "late"  # noqa: ASYNC104

    script = [call("deaf", id="c1"), ask("q1"), say("next"), say("first")]
    async with staged(script, tools=[deaf], limits=Limits(cancel_grace_s=1.0)) as agent:

        async def answer_in(session_id: str) -> int:
            """Answer the other session's question and return how many rounds of the scheduler its run took."""
            await agent.session(session_id).prompt("go")
            began = rounds
            while not agent.session(session_id).asks:
                await trio.lowlevel.checkpoint()
            await agent.session(session_id).answer("q1", "Postgres")
            await agent.session(session_id).wait_idle()
            return rounds - began

        async def turn_the_clock() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                mock_clock.jump(0.01)
                await trio.lowlevel.checkpoint()

        async with agent.stream("go", session_id="stuck") as events:
            await until(events, T.TOOL_STARTED)
            await wait_all_tasks_blocked()
            await agent.session("stuck").cancel("stop")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(turn_the_clock)
                while raised < 10:
                    await trio.lowlevel.checkpoint()
                assert await answer_in("other") < 30, "the other session is slowed down"
                began = trio.current_time()
                with pytest.raises(RunCancelled, match="stop"):
                    await events.final()
                assert trio.current_time() - began <= 1.1
                stop = True
                nursery.cancel_scope.cancel()
        session = agent.find("stuck")
        assert session is not None
        end = session.log[-1]
        assert isinstance(end, ev.RunCancelled) and end.stuck == ("deaf",)
        assert raised > 50, "it was no hot loop"
        await wait_all_tasks_blocked()
        assert session.log[-1] is end
