from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    AgentEventType,
    AgentExtension,
    AgentRunContext,
    AskUserExtension,
    AssistantMessage,
    ModelEvent,
    RunCancelled,
    RunCancelledEvent,
    RunFailed,
    ScriptedModel,
    TodoWriteExtension,
    ToolMessage,
    UserMessage,
    open_agent,
    tool,
)
from actors.agent.extension import HOOKS, MessageAppended, PhaseTransition
from actors.models.scripted import call, fail, pause, say, stall
from protocol import decisions
from protocol import events as ev
from protocol.chat import TextDelta
from protocol.errors import Code, ModelError, RuleViolation, ToolError
from protocol.limits import Limits
from tests.faults.invariants import check_session
from tests.faults.stores import SlowStore
from tests.scenarios.staging import ask, kinds, staged, until, until_asked, write

T = AgentEventType


def _recording(said: list[str]) -> AgentExtension:
    """An extension that notes each hook but `on_event`, `accept` and the wrappers."""

    def note(name: str) -> Any:
        async def hook(self: Any, *args: Any) -> None:
            said.append(name)

        return hook

    plain = set(HOOKS) - {"on_event", "accept", "on_model_request", "on_tool_call", "on_compact"}
    kind: Any = type("Recording", (AgentExtension,), {name: note(name) for name in plain})
    made: AgentExtension = kind()
    return made


async def test_hooks_are_called_in_their_documented_order(autojump_clock: MockClock) -> None:
    said: list[str] = []
    async with staged([write("ip"), say("x")], extensions=[_recording(said), TodoWriteExtension()]) as agent:
        await agent.run("go")
    assert said == [
        "on_tool", "on_state", "on_message", "before_run",
        "before_turn", "before_model", "after_model", "before_tool", "after_tool", "after_turn",
        "before_turn", "before_model", "after_model", "after_turn",
        "after_run", "on_success",
    ]  # fmt: skip


async def test_a_failed_run_is_told_to_on_error_only(autojump_clock: MockClock) -> None:
    said: list[str] = []
    async with staged([fail(ModelError("down"))], extensions=[_recording(said)]) as agent:
        with pytest.raises(RunFailed):
            await agent.run("go")
    assert said[-1] == "on_error" and "after_turn" not in said and "on_success" not in said


async def test_a_cancelled_run_is_told_to_on_event_only(autojump_clock: MockClock) -> None:
    said: list[str] = []
    events_: list[object] = []

    class Told(AgentExtension):
        async def on_event(self, context: Any, event: object) -> None:
            events_.append(event)

    async with staged([ask("q1")], extensions=[_recording(said), Told(), AskUserExtension()]) as agent:
        async with agent.stream("go") as events:
            await until_asked(events)
            await agent.session().cancel("enough")
            await kinds(events)
    assert events_[-1] == RunCancelledEvent("r2", "enough")
    assert "on_error" not in said and "after_turn" not in said


async def test_internal_events_tell_phases_and_messages(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    class Told(AgentExtension):
        async def on_event(self, context: Any, event: object) -> None:
            if isinstance(event, PhaseTransition):
                seen.append(f"{event.old} -> {event.new}")
            elif isinstance(event, MessageAppended):
                seen.append(event.message.content)

    async with staged([say("hello")], extensions=[Told()]) as agent:
        await agent.run("go")
    assert seen == [
        "created -> loading_context", "go", "loading_context -> ready", "ready -> generating", "generating -> ready",
        "hello", "ready -> completed",
    ]  # fmt: skip


CODES = [
    (ValueError("odd"), "extension.failed", "ValueError: odd"),
    (ToolError("mine", code="my.code"), "my.code", "mine"),
    (ModelError("down", code="model.down"), "model.down", "down"),
    (ExceptionGroup("g", [ValueError("odd")]), "extension.failed", "ValueError: odd"),
    (ExceptionGroup("g", [ValueError("a"), OSError("b")]), "extension.failed", "2 errors: ValueError: a; OSError: b"),
    (SystemExit(1), "extension.failed", "RuntimeError: a hook ended with SystemExit, though nobody cancelled or "
                                        "stopped it"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "code", "message"), CODES)
async def test_what_a_hook_raised_is_the_code_and_text_of_the_end(
    autojump_clock: MockClock, error: BaseException, code: str, message: str
) -> None:
    class Raising(AgentExtension):
        async def before_run(self, context: Any) -> None:
            raise error

    async with staged([say("x")], extensions=[Raising()]) as agent:
        with pytest.raises(RunFailed) as failed:
            await agent.run("go")
        assert (failed.value.code, failed.value.message) == (code, message)


async def test_what_is_raised_while_the_end_is_told_is_a_note_on_the_error(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    notes: list[list[str]] = []

    class First(AgentExtension):
        async def on_error(self, context: Any, error: BaseException) -> None:
            raise OSError("in cleanup")

    class Second(AgentExtension):
        async def on_error(self, context: Any, error: BaseException) -> None:
            raise SystemExit

    class Raising(AgentExtension):
        async def before_run(self, context: Any) -> None:
            notes.append(["raised"])
            raise ValueError("odd")

    async with staged([say("x")], extensions=[First(), Second(), Raising()]) as agent:
        with pytest.raises(RunFailed, match=r"^extension\.failed: ValueError: odd$"):
            await agent.run("go")
    told = [record.getMessage() for record in caplog.records if "told of the end" in record.getMessage()]
    assert len(told) == 2 and "First raised" in told[0] and "Second raised" in told[1]


async def test_an_error_beside_the_cancel_is_kept_as_its_detail_a18(autojump_clock: MockClock) -> None:
    class Messy(AgentExtension):
        async def before_run(self, context: Any) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise OSError("disk full")

    async with staged([say("x")], extensions=[Messy()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            await wait_all_tasks_blocked()
            await agent.session("s").cancel("stop")
            with pytest.raises(RunCancelled, match="stop"):
                await events.final()
        last: Any = agent.find("s").log[-1]  # type: ignore[union-attr]
        assert (last.reason, last.error) == ("stop", "OSError: disk full")


async def test_a_cancel_that_comes_while_the_last_hooks_run_wins(autojump_clock: MockClock) -> None:
    class Slow(AgentExtension):
        async def on_success(self, context: Any, result: AssistantMessage) -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    async with staged([say("x")], extensions=[Slow()]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        await agent.session("s").cancel("late")
        await agent.session("s").wait_idle()
        assert type(agent.find("s").log[-1]).__name__ == "RunCancelled"  # type: ignore[union-attr]


async def test_a_run_that_is_torn_down_with_its_session_is_cancelled(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None and session.nursery is not None
        session.nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        last: Any = session.log[-1]
        assert (type(last).__name__, last.reason) == ("RunCancelled", "the session was cancelled")


async def test_steering_is_answered_before_the_run_ends_and_renews_its_budget(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), ask("q2"), say("x")], max_turns=2) as agent, agent.stream("go") as events:
        await until_asked(events)
        await agent.session().steer("go on")
        await agent.session().answer("q1", "a")
        await until_asked(events)
        await agent.session().answer("q2", "b")
        seen = await kinds(events)
        assert seen[-1] == "run_completed" and seen.count("model_completed") == 1


async def test_steering_that_cannot_be_answered_is_said_to_be_interrupted(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent, agent.stream("go") as events:
        await until_asked(events)
        await agent.session().steer("faster")
        await agent.session().cancel()
        assert "steering_interrupted" in await kinds(events)


async def test_max_turns_ends_the_run_with_its_code(autojump_clock: MockClock) -> None:
    async with staged([write("ip")], max_turns=1) as agent:
        with pytest.raises(RunFailed, match=r"^run\.max_turns: no final answer after 1 model calls$"):
            await agent.run("go")


async def test_a_message_over_the_limit_is_not_recorded(autojump_clock: MockClock) -> None:
    async with staged([say("x" * 3_000)], limits=Limits(max_event_bytes=2_000)) as agent:
        with pytest.raises(RunFailed, match=r"^event\.too_large: "):
            await agent.run("go")
        assert len(agent.session().history) == 1


async def test_a_run_given_up_names_its_tools_or_what_else_hangs(autojump_clock: MockClock) -> None:
    release = trio.Event()

    async def hold() -> None:
        with trio.CancelScope(shield=True):
            await release.wait()

    @tool
    async def deaf() -> str:
        await hold()
        return "x"

    class Deaf(AgentExtension):
        async def before_run(self, context: Any) -> None:
            if context.session_id == "hook":
                await hold()

    async with staged([call("deaf"), call("deaf")], tools=[deaf], extensions=[Deaf()]) as agent:
        for session_id, stuck in (("tool", ("deaf",)), ("hook", ("a hook or the model",))):
            await agent.session(session_id).prompt("go")
            await wait_all_tasks_blocked()
            await agent.session(session_id).cancel()
            await agent.session(session_id).wait_idle()
            session = agent.find(session_id)
            assert session is not None and session.log[-1].stuck == stuck  # type: ignore[attr-defined]
            with pytest.raises(RuleViolation, match=r"^run\.settled: "):
                session.append([session.log[-1]], run="r2")
        release.set()
        await wait_all_tasks_blocked()


async def test_a_failed_run_waits_until_its_caller_has_seen_its_last_turn(autojump_clock: MockClock) -> None:
    class Failing(AgentExtension):
        async def after_turn(self, context: Any, result: AssistantMessage) -> None:
            raise OSError("no disk")

    async with staged([write("ip")], extensions=[Failing(), TodoWriteExtension()]) as agent:
        async with agent.stream("go") as events:
            await until(events, T.TOOL_COMPLETED)
            await wait_all_tasks_blocked()
            assert agent.session().todos is not None
            assert await kinds(events) == ["run_failed"]


async def test_a_run_whose_session_is_shut_records_nothing_more(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        head = session.state.seq
        session.shut(RuleViolation(Code.STORE_FAILED, "gone"))
        await wait_all_tasks_blocked()
        assert session.state.seq == head and agent.active_runs == 0


async def test_cleanup_that_hangs_is_cut_short_and_named(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging(AgentExtension):
        async def on_error(self, context: Any, error: BaseException) -> None:
            await trio.sleep_forever()

    async with staged([fail(ModelError("down"))], extensions=[Hanging()]) as agent:
        began = trio.current_time()
        with pytest.raises(RunFailed, match=r"^model\.failed: down$"):
            await agent.run("go")
        assert trio.current_time() - began == pytest.approx(agent.limits.cleanup_s)
    assert "Hanging did not finish its cleanup in time" in [record.getMessage() for record in caplog.records]


async def test_steering_while_the_answer_is_read_is_answered_in_the_same_run(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    class Told(AgentExtension):
        async def on_event(self, context: Any, event: object) -> None:
            if isinstance(event, MessageAppended):
                seen.append(event.message.content)

    async with staged([say("one"), say("two")], extensions=[Told()]) as agent, agent.stream("go") as events:
        await until(events, T.MODEL_COMPLETED)
        await agent.session().steer("more")
        assert (await events.final()).content == "two"
    assert seen == ["go", "one", "more", "two"]


async def test_steering_during_the_first_answer_enters_at_the_end_of_its_turn(autojump_clock: MockClock) -> None:
    async with staged([[say("one"), pause(5)], say("two")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        await agent.session("s").steer("more")
        await agent.session("s").wait_idle()
        assert [m.content for m in agent.session("s").history] == ["go", "one", "more", "two"]


async def test_an_input_that_a_hook_replaced_is_held_to_the_limit(autojump_clock: MockClock) -> None:
    class Replacing(AgentExtension):
        async def on_message(self, context: Any) -> None:
            context.input_message = UserMessage("x" * (3_000 if context.session_id == "large" else 3))

    async with staged([say("x")], extensions=[Replacing()], limits=Limits(max_event_bytes=2_000)) as agent:
        await agent.run("go", session_id="small")
        assert agent.session("small").history[0].content == "xxx"
        with pytest.raises(RunFailed, match=r"^event\.too_large: "):
            await agent.run("go", session_id="large")


async def test_a_wrapper_may_change_the_request_and_the_stream(autojump_clock: MockClock) -> None:
    closed: list[str] = []

    class Wrapping(AgentExtension):
        async def on_model_request(self, context: Any, request: Any, call_next: Any) -> AsyncIterator[ModelEvent]:
            try:
                async for event in call_next(replace(request, server_tools=(self.name,))):
                    yield TextDelta(event.text.upper()) if isinstance(event, TextDelta) else event
            finally:
                closed.append(self.name)

    second = Wrapping()
    second.name = "second"
    async with staged([say("hello")], extensions=[Wrapping(), second]) as agent:
        assert (await agent.run("go")).content == "HELLO"
        (request,) = agent.model.requests  # type: ignore[attr-defined]
        assert request.server_tools == ("second",), "the innermost comes last"
    assert closed == ["second", "Wrapping"]


async def test_what_a_hook_emits_belongs_to_the_run(autojump_clock: MockClock) -> None:
    class Emitting(AgentExtension):
        async def before_run(self, context: Any) -> None:
            context.emit("ping", {})

    async with staged([say("x")], extensions=[Emitting()]) as agent, agent.stream("go") as events:
        assert (await until(events, T.CUSTOM, "ping")).run_id == events.run_id
        await events.final()


async def test_a_tool_waits_while_its_callers_stream_is_full(autojump_clock: MockClock) -> None:
    ran: list[int] = []

    @tool
    async def note() -> str:
        ran.append(1)
        return "x"

    turn = [say("x" * 20, chunks=20), call("note")]
    async with staged([turn, say("y")], tools=[note], limits=Limits(stream_high_water=12)) as agent:
        async with agent.stream("go") as events:
            for _ in range(16):
                await events.__anext__()
            await wait_all_tasks_blocked()
            assert ran == []
            await events.final()
        assert ran == [1]


async def test_a_run_waits_for_the_commit_before_it_waits_for_its_caller(autojump_clock: MockClock) -> None:
    store = SlowStore(delay_s=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        async with staged([write("ip"), say("x")], store=store) as agent:
            assert (await agent.run("go")).content == "x"
        nursery.cancel_scope.cancel()


async def test_other_internal_events_do_not_end_the_run(autojump_clock: MockClock) -> None:
    class Failing(AgentExtension):
        async def on_event(self, context: Any, event: object) -> None:
            if isinstance(event, RunCancelledEvent):
                raise OSError("in cleanup")

    async with staged([[say("a"), stall()]], extensions=[Failing()]) as agent:
        async with agent.stream("go", session_id="s") as events:
            await until(events, T.TEXT_DELTA)
        last: Any = agent.find("s").log[-1]  # type: ignore[union-attr]
        assert (type(last).__name__, last.reason, last.error) == ("RunCancelled", "its caller left", "")


ASKS = [call("ask_user", {"question": f"{n}?"}, id=f"q{n}") for n in range(3)]


class Listening(AgentExtension):
    """Wants to know of cancels."""

    def __init__(self) -> None:
        self.told: list[object] = []

    async def on_event(self, context: AgentRunContext, event: object) -> None:
        if isinstance(event, RunCancelledEvent):
            await trio.lowlevel.checkpoint()
            self.told.append(event)


@pytest.mark.parametrize("asks", [1, 3])
async def test_a_run_that_only_waits_for_answers_ends_with_its_cancel(asks: int, autojump_clock: MockClock) -> None:
    extensions = [AskUserExtension()]
    async with open_agent(ScriptedModel([ASKS[:asks], say("fine")]), extensions=extensions) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        ack = session.cancel("", reason="enough")
        assert isinstance(session.log[-1], ev.RunCancelled)
        assert (session.log[ack.seq - 1], session.lives, agent.active_runs) == (session.log[-1], (), 0)
        assert len(agent.grace._due) == 0  # pyright: ignore[reportPrivateUsage]
        # And what is next works, before and after the tasks have noticed.
        await handle.prompt("and now")
        await handle.wait_idle()
        assert handle.history[-1].content == "fine"
        check_session(session)


@pytest.mark.parametrize("asks", [1, 3])
async def test_a_hook_that_wants_to_know_of_a_cancel_is_told_before_the_end(
    asks: int, autojump_clock: MockClock
) -> None:
    listening = Listening()
    extensions = [AskUserExtension(), listening]
    async with open_agent(ScriptedModel([ASKS[:asks]]), extensions=extensions) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        session.cancel("")
        assert not isinstance(session.log[-1], ev.RunCancelled)
        await handle.wait_idle()
        assert isinstance(session.log[-1], ev.RunCancelled)
        assert len(listening.told) == 1
        check_session(session)


async def test_a_run_with_a_tool_at_work_beside_its_questions_is_not_at_rest(autojump_clock: MockClock) -> None:
    cleaned = trio.Event()

    @tool
    async def work() -> str:
        """Take a while, also to end."""
        try:
            await trio.sleep(1000)
        finally:
            with trio.move_on_after(1, shield=True):
                await trio.sleep(0.5)
            cleaned.set()
        return "done"

    model = ScriptedModel([[ASKS[0], call("work", id="w")], say("fine")])
    async with open_agent(model, tools=[work], extensions=[AskUserExtension()]) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        session.cancel("")
        assert not isinstance(session.log[-1], ev.RunCancelled)
        await handle.wait_idle()
        assert cleaned.is_set()
        check_session(session)


async def test_an_answer_right_before_the_cancel_of_a_run_at_rest_is_used_b21(autojump_clock: MockClock) -> None:
    async with open_agent(ScriptedModel([ASKS[:1]]), extensions=[AskUserExtension()]) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        session.act("", decisions.answer, "q0", {"tool_call_id": "q0", "answer": "yes"})
        session.cancel("")
        (result,) = [message for message in handle.history if isinstance(message, ToolMessage)]
        assert '"yes"' in result.content
        assert isinstance(session.log[-1], ev.RunCancelled)
        await wait_all_tasks_blocked()
        check_session(session)


async def test_the_cancel_of_a_run_that_has_ended_names_that_run(autojump_clock: MockClock) -> None:
    model = ScriptedModel([say("fine"), stall()])
    async with open_agent(model) as agent:
        handle = agent.session("s")
        first = await handle.prompt("go")
        await handle.wait_idle()
        second = await handle.prompt("and now")
        assert (await handle.cancel(run=first.run)).run == first.run
        assert (await handle.cancel(run=second.run)).run == second.run
