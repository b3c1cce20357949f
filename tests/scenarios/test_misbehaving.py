"""Tools, models and stores that misbehave: what becomes of the run, and that the session goes on."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    AgentEventType,
    ExternalEvent,
    ModelEvent,
    ModelRequest,
    RuleViolation,
    RunCancelled,
    RunFailed,
    tool,
)
from actors.models.scripted import Step, call, cut, fail, say
from protocol.chat import Stop, TextDelta
from protocol.errors import Code, ModelError
from tests.faults.stores import FailingStore, SlowStore
from tests.scenarios.staging import ask, kinds, staged, until, until_asked, write

T = AgentEventType


async def test_a_tool_that_swallows_its_cancel_is_named_and_fenced_and_the_session_goes_on_a12(
    autojump_clock: MockClock,
) -> None:
    release = trio.Event()
    raised: list[BaseException] = []

    @tool
    async def deaf() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except trio.Cancelled as error:
                raised.append(error)
                with trio.CancelScope(shield=True):
                    await release.wait()
        return "late"

    async with staged([call("deaf", id="c1"), say("next")], tools=[deaf]) as agent:
        async with agent.stream("go") as events:
            await until(events, T.TOOL_STARTED)
            await agent.session().cancel("stop")
            began = trio.current_time()
            with pytest.raises(RunCancelled):
                await events.final()
            assert trio.current_time() - began == pytest.approx(agent.limits.cancel_grace_s)
        session = agent.find(agent.session_id)
        assert session is not None
        assert session.log[-1].stuck == ("deaf",)  # type: ignore[attr-defined]
        assert (await agent.run("again")).content == "next"
        head = session.state.seq
        release.set()
        await wait_all_tasks_blocked()
        assert session.state.seq == head, "the straggler wrote into the log"
        assert raised


FAILURES: list[tuple[str, BaseException, str]] = [
    ("plain", ValueError("disk full"), '{"error":{"code":"tool.failed","message":"ValueError: disk full"}}'),
    ("empty", ValueError(), '{"error":{"code":"tool.failed","message":"ValueError"}}'),
    ("group", ExceptionGroup("g", [OSError("a")]), '{"error":{"code":"tool.failed","message":"OSError: a"}}'),
    ("exit", SystemExit(3), "SystemExit"),
    ("generator exit", GeneratorExit(), "GeneratorExit"),
    ("mixed", BaseExceptionGroup("g", [OSError("a"), SystemExit(1)]), "OSError, SystemExit"),
]


@pytest.mark.parametrize(("error", "text"), [case[1:] for case in FAILURES], ids=[case[0] for case in FAILURES])
async def test_whatever_a_tool_raises_is_its_result_and_the_run_goes_on(
    autojump_clock: MockClock, error: BaseException, text: str
) -> None:
    @tool
    async def boom() -> str:
        raise error

    async with staged([[call("boom", id="c1"), write("ip")], say("done")], tools=[boom]) as agent:
        assert (await agent.run("go")).content == "done"
        failed, written = agent.session().history[2:4]
        assert text in failed.content and failed.outcome == "failed"  # type: ignore[union-attr]
        assert written.outcome == "completed"  # type: ignore[union-attr]


async def _foreign() -> trio.Cancelled:
    """A `Cancelled` of a scope that is none of the run's."""
    caught: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            caught.append(error)
            raise
    return caught[0]


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_cancelled_that_nobody_sent_is_a_failed_result(autojump_clock: MockClock, parallel: bool) -> None:
    @tool
    async def boom() -> str:
        raise await _foreign()

    calls = [call("boom", id="c1"), *([call("boom", id="c2")] if parallel else [])]
    async with staged([calls, say("done")], tools=[boom]) as agent:
        assert (await agent.run("go")).content == "done"
        assert "Cancelled" in agent.session().history[2].content


async def test_a_tool_error_beside_a_cancel_ends_as_cancelled_with_the_error_as_detail_a18(
    autojump_clock: MockClock,
) -> None:
    @tool
    async def messy() -> str:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("disk full")

    async with staged([[call("messy", id="c1"), call("messy", id="c2")]], tools=[messy]) as agent:
        async with agent.stream("go") as events:
            await until(events, T.TOOL_STARTED)
            await wait_all_tasks_blocked()
            await agent.session().cancel("stop")
            assert (await kinds(events))[-1] == "run_cancelled"
        session = agent.find(agent.session_id)
        assert session is not None
        contents = [m.content for m in session.state.messages[2:]]
        assert all("disk full" in content for content in contents), contents
        assert session.log[-1].reason == "stop"  # type: ignore[attr-defined]


MODEL_FAILURES = [
    ("fails", fail(ModelError("no quota", code="model.quota")), "model.quota: no quota"),
    ("raises", fail(ValueError("odd")), "model.failed: the model raised ValueError: odd"),
    ("cut", cut(), "model.truncated: the model's stream ended without its end mark"),
]


@pytest.mark.parametrize(("step", "text"), [case[1:] for case in MODEL_FAILURES], ids=[c[0] for c in MODEL_FAILURES])
async def test_a_model_that_breaks_off_fails_the_run_and_the_next_prompt_works(
    autojump_clock: MockClock, step: Step, text: str
) -> None:
    async with staged([[say("a"), step], say("fine")]) as agent:
        with pytest.raises(RunFailed) as failed:
            await agent.run("go")
        assert str(failed.value) == text
        assert (await agent.run("again")).content == "fine"


@pytest.mark.parametrize("error", [SystemExit(2), None], ids=["exit", "foreign cancelled"])
async def test_a_model_that_raises_no_exception_fails_its_run_and_no_other(
    autojump_clock: MockClock, error: BaseException | None
) -> None:
    class Odd:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            if request.session_id == "odd":
                raise error or await _foreign()
            yield TextDelta("fine")
            await trio.sleep(1)
            yield Stop()

    async with staged(Odd()) as agent, trio.open_nursery() as nursery:

        async def good() -> None:
            assert (await agent.run("go", session_id="good")).content == "fine"

        nursery.start_soon(good)
        with pytest.raises(RunFailed, match=r"^model\.failed: "):
            await agent.run("go", session_id="odd")


async def test_the_session_recovers_after_its_store_failed(autojump_clock: MockClock) -> None:
    for good in range(14):
        store = FailingStore(good)
        turns = [[write("ip"), ask("q1")], say("done"), say("fine")]
        async with staged(turns, store=store, resume="never") as agent:
            with trio.fail_after(60):
                try:
                    async with agent.stream("go", session_id="s") as events:
                        await until_asked(events)
                        await agent.session("s").answer("q1", "Postgres")
                        await events.final()
                except (RuleViolation, RunFailed) as error:
                    # The caller may answer an ask that it still had to read when the store failed.
                    if error.code not in (Code.STORE_FAILED, Code.ASK_SETTLED):
                        raise
                if store.failures:
                    agent.model._position = 2  # type: ignore[attr-defined]
                    assert (await agent.run("again", session_id="s")).content == "fine"


async def test_nothing_is_seen_before_the_store_has_it(autojump_clock: MockClock) -> None:
    store = SlowStore(delay_s=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        async with staged([[write("ip"), ask("q1")], say("done")], store=store) as agent:
            async with agent.stream("go") as events:
                async for event in events:
                    if event.seq:
                        assert store.logs[event.session_id].events[-1].seq >= event.seq
                    if event.name == "ask_user" and event.type is T.CUSTOM:
                        ack = await agent.session().answer("q1", "Postgres")
                        assert store.logs[event.session_id].events[-1].seq >= ack.seq
        nursery.cancel_scope.cancel()


async def test_a_refused_stream_is_never_joined_by_a_slow_store(autojump_clock: MockClock) -> None:
    store = SlowStore(delay_s=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        async with staged([ask("q1"), say("done")], store=store) as agent:
            async with agent.stream("go") as events:
                await until_asked(events)
                await agent.session().prompt("x", when_busy="queue")
                with pytest.raises(RuleViolation):
                    async with agent.stream("second"):
                        raise AssertionError("never entered")
                agent.emit_external_event(ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": "a"}))
                with pytest.raises(RuleViolation):
                    async with agent.stream("third"):
                        raise AssertionError("never entered")
                await events.final()
            agent.model._turns.append(agent.model._turns[1])  # type: ignore[attr-defined]
            await agent.session().wait_idle()
            await trio.sleep(5)
        nursery.cancel_scope.cancel()
