"""The scripted model plays its turns and tells what was asked of it."""

from typing import Any

import pytest
import trio
import trio.testing

from actors.models.scripted import ScriptedModel, call, cut, fail, pause, say, stall, think
from protocol.chat import ModelEvent, ModelRequest, ReasoningDelta, Stop, TextDelta, ToolCallDelta, UserMessage
from protocol.errors import ModelError


def request(turn: int = 1) -> ModelRequest:
    return ModelRequest(messages=[UserMessage("hi")], turn=turn)


async def play(model: ScriptedModel, turn: int = 1) -> list[ModelEvent]:
    return [event async for event in model.stream(request(turn))]


async def test_turns_are_played_in_order_with_the_stop_that_fits() -> None:
    model = ScriptedModel([[think("hm"), say("abcde", chunks=2), call("t", {"a": 1}, id="c1"), call("u")], say("end")])
    assert await play(model) == [
        ReasoningDelta("hm"),
        TextDelta("abc"),
        TextDelta("de"),
        ToolCallDelta(0, "c1", "t", '{"a": 1}'),
        ToolCallDelta(1, None, "u", "{}"),
        Stop("tool_calls"),
    ]
    assert await play(model) == [TextDelta("end"), Stop("stop")]


async def test_after_the_scripts_end_the_model_fails() -> None:
    model = ScriptedModel([say("a")])
    await play(model)
    with pytest.raises(ModelError, match=r"^script has no turn 2$"):
        await play(model)


async def test_raw_events_and_raw_arguments_are_played_as_they_are() -> None:
    raw: list[Any] = [TextDelta("x"), Stop("length")]
    model = ScriptedModel([raw, call("t", '{"a', chunks=3), say("")])
    assert await play(model) == raw
    assert await play(model) == [
        ToolCallDelta(0, None, "t", "{"), ToolCallDelta(0, arguments='"'), ToolCallDelta(0, arguments="a"),
        Stop("tool_calls"),
    ]  # fmt: skip
    assert await play(model) == [TextDelta(""), Stop("stop")]


async def test_a_cut_ends_the_stream_without_a_stop() -> None:
    assert await play(ScriptedModel([[say("half"), cut(), say("never")]])) == [TextDelta("half")]


async def test_a_failure_is_raised_where_it_stands() -> None:
    error = ConnectionError("gone")
    model = ScriptedModel([[say("half"), fail(error)]])
    seen: list[ModelEvent] = []
    with pytest.raises(ConnectionError) as caught:
        async for event in model.stream(request()):
            seen.append(event)
    assert caught.value is error
    assert seen == [TextDelta("half")]
    assert (model.active, model.closed) == (0, 1)


async def test_a_pause_waits_on_trios_clock(autojump_clock: trio.testing.MockClock) -> None:
    started = trio.current_time()
    await play(ScriptedModel([[say("a"), pause(30), say("b")]]))
    assert trio.current_time() - started == 30


async def test_a_stall_waits_until_it_is_cancelled() -> None:
    model = ScriptedModel([[say("a"), stall()]])
    with trio.CancelScope() as scope:
        stream = model.stream(request())
        async for _ in stream:
            assert (model.active, model.closed) == (1, 0)
            scope.cancel()
    assert scope.cancelled_caught
    assert (model.active, model.closed) == (0, 1)


async def test_a_function_makes_the_turn_of_the_request() -> None:
    model = ScriptedModel([lambda request: [say(str(len(request.messages)))]])
    assert await play(model) == [TextDelta("1"), Stop("stop")]
    assert [seen.turn for seen in model.requests] == [1]


async def test_a_repeated_script_is_placed_by_the_turn_so_sessions_may_share_it() -> None:
    model = ScriptedModel([call("t"), say("b")], repeat=True)
    first, again, second = await play(model, 1), await play(model, 1), await play(model, 2)
    assert first == again == await play(model, 3)
    assert second == [TextDelta("b"), Stop("stop")]
    assert all(one is two for one, two in zip(first, again, strict=True))
    assert model.requests == []
    recording = ScriptedModel([say("a")], repeat=True, record=True)
    await play(recording)
    assert len(recording.requests) == 1


def test_scripts_that_cannot_be_played_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^a script that repeats has at least one turn$"):
        ScriptedModel([], repeat=True)
    with pytest.raises(ValueError, match=r"^a text is streamed in at least 1 piece, not 0$"):
        say("a", chunks=0)
    with pytest.raises(TypeError, match=r"^a script is made of model events and of say\(\), .*, not str$"):
        ScriptedModel(["text"])  # type: ignore[list-item]
