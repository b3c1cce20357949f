from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import AgentEventType, ModelEvent, ModelRequest, RunFailed
from actors.agent.generation import close_stream
from actors.agent.serving import take_snapshot
from actors.models.scripted import call, say, stall, think
from protocol.chat import ReasoningDelta, Stop, TextDelta
from protocol.errors import Code, LocalProtocolError, ModelError
from protocol.limits import Limits
from tests.scenarios.staging import staged, until

T = AgentEventType


async def test_pieces_are_shown_as_they_come_with_their_offsets(autojump_clock: MockClock) -> None:
    turn = [think("hmm ha", chunks=2), say("hello", chunks=2), call("nobody", {"a": 1}, chunks=2)]
    async with staged([turn, say("done")]) as agent, agent.stream("go") as events:
        seen = [(e.type.value, e.delta) async for e in events if not e.seq]
    assert seen[:10] == [
        ("model_started", ""), ("reasoning_started", ""), ("reasoning_delta", "hmm"), ("reasoning_delta", " ha"),
        ("content_started", ""), ("text_delta", "hel"), ("text_delta", "lo"), ("tool_call_delta", '{"a"'),
        ("tool_call_delta", ": 1}"), ("reasoning_completed", ""),
    ]  # fmt: skip


async def test_what_has_been_streamed_is_in_the_snapshot_of_who_comes_later(autojump_clock: MockClock) -> None:
    async with staged([[think("hm"), say("hello"), stall()]]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        run = take_snapshot(session).run
        partial = run.partial if run is not None else None
        assert partial is not None and (partial.text, partial.reasoning) == ("hello", "hm")
        live = session.live(session.state.root)
        assert live is not None
        counted = live.partial
        assert (counted.text_chars, counted.reasoning_chars) == (5, 2), "counted although nobody watches"
        await agent.session("s").cancel()
        await agent.session("s").wait_idle()


async def test_empty_pieces_are_not_shown(autojump_clock: MockClock) -> None:
    async with staged([[TextDelta(""), ReasoningDelta(""), TextDelta("a"), Stop()]]) as agent:
        async with agent.stream("go") as events:
            assert [e.delta async for e in events if e.type is T.TEXT_DELTA] == ["a"]


async def test_the_model_waits_while_its_callers_stream_is_full(autojump_clock: MockClock) -> None:
    made: list[int] = []

    class Chatty:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            for number in range(100):
                made.append(number)
                yield TextDelta("x")
            yield Stop()

    async with staged(Chatty(), limits=Limits(stream_high_water=16)) as agent, agent.stream("go") as events:
        await wait_all_tasks_blocked()
        assert len(made) < 20
        assert (await events.final()).content == "x" * 100


async def test_a_model_that_never_waits_lets_others_run(autojump_clock: MockClock) -> None:
    ticks: list[int] = []

    class Endless:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            while len(ticks) < 3:
                yield TextDelta("x")
            yield Stop()

    async def tick() -> None:
        for number in range(3):
            ticks.append(number)
            await trio.lowlevel.checkpoint()

    async with staged(Endless()) as agent, trio.open_nursery() as nursery:
        await agent.session("s").prompt("go")
        nursery.start_soon(tick)
        await agent.session("s").wait_idle()
    assert len(ticks) == 3


RAISING = [
    (ValueError("odd"), "model.failed: the model raised ValueError: odd"),
    (SystemExit(), "model.failed: the model ended with SystemExit, though nobody cancelled or stopped it"),
]


@pytest.mark.parametrize(("error", "text"), RAISING)
async def test_what_a_model_raises_fails_the_run_and_its_stream_is_closed(
    autojump_clock: MockClock, error: BaseException, text: str
) -> None:
    closed: list[bool] = []

    class Raising:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            try:
                yield TextDelta("a")
                raise error
            finally:
                closed.append(True)

    async with staged(Raising()) as agent:
        with pytest.raises(RunFailed) as failed:
            await agent.run("go")
        assert str(failed.value) == text
    assert closed == [True]


async def test_a_model_is_closed_where_its_message_is_refused(autojump_clock: MockClock) -> None:
    closed: list[bool] = []

    class Invalid:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            try:
                yield Stop()
                yield TextDelta("after the end")
            finally:
                closed.append(True)

    async with staged(Invalid()) as agent:
        with pytest.raises(RunFailed, match=r"^model\.invalid: "):
            await agent.run("go")
    assert closed == [True]


async def test_what_cannot_be_iterated_is_our_mistake_and_says_so() -> None:
    bad: Any = 7
    with pytest.raises(LocalProtocolError, match=r"^a model's stream is an async iterator, not int$"):
        await close_stream(bad)


async def test_a_cancel_reaches_the_model_and_nothing_of_the_message_is_recorded(autojump_clock: MockClock) -> None:
    async with staged([[say("half"), stall()]]) as agent:
        async with agent.stream("go") as events:
            await until(events, T.TEXT_DELTA)
        assert [m.content for m in agent.session().history] == ["go"]


async def test_a_message_without_text_shows_no_end_of_a_text(autojump_clock: MockClock) -> None:
    async with staged([call("nobody"), say("x")]) as agent, agent.stream("go") as events:
        seen = [event.type.value async for event in events if not event.seq]
    assert seen == [
        "model_started", "tool_call_delta", "model_started", "content_started", "text_delta", "content_completed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("x"), r"^model\.failed: the model raised KeyError: 'x'$"),
        (SystemExit(), r"^model\.failed: the model ended with SystemExit, though nobody"),
        (ModelError("no credit", code=Code.MODEL_INVALID), r"^model\.invalid: no credit$"),
    ],
)
async def test_a_model_that_raises_before_it_streams_fails_the_run_as_one_that_raises_later(
    error: BaseException, message: str, autojump_clock: MockClock
) -> None:
    class Refuses:
        def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            raise error

    async with staged(Refuses()) as agent:
        with pytest.raises(RunFailed, match=message):
            await agent.run("go")
