"""A model that plays a script: for tests, examples and benchmarks.

A script is a list of turns, a turn is one step or a list of steps. The stop is added where the turn has none:
`tool_calls` after a call, else `stop`. Turns are compiled once, so that playing one costs little more than its events.

    ScriptedModel([call("search", {"query": "trio"}), [say("Found it."), pause(0.5), say(" Done.")]])
"""

import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import trio

from protocol.chat import ModelEvent, ModelRequest, ReasoningDelta, Stop, TextDelta, ToolCallDelta
from protocol.errors import ModelError


@dataclass(frozen=True, slots=True)
class Say:
    """Text, already in pieces."""

    pieces: tuple[str, ...]
    thought: bool


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call, its arguments already in pieces. Its index is its place in the turn."""

    name: str
    pieces: tuple[str, ...]
    id: str | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait `seconds`, which may be infinite."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise `error`."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Cut:
    """End the stream here, without a stop."""


Step = ModelEvent | Say | Call | Pause | Fail | Cut
Turn = Step | Sequence[Step] | Callable[[ModelRequest], Step | Sequence[Step]]
_STEPS: tuple[type, ...] = get_args(Step)
_Compiled = tuple["ModelEvent | Pause | Fail", ...]


def say(text: str, *, chunks: int = 1) -> Say:
    """Stream `text` in at most `chunks` pieces of about equal length."""
    return Say(_cut_up(text, chunks), thought=False)


def think(text: str, *, chunks: int = 1) -> Say:
    """Stream `text` as reasoning."""
    return Say(_cut_up(text, chunks), thought=True)


def call(
    name: str, arguments: Mapping[str, Any] | str | None = None, *, id: str | None = None, chunks: int = 1
) -> Call:
    """Call a tool.

    Args:
        name: The tool's name, sent as it is.
        arguments: An object, or a text that is sent as it is (to play a model that writes bad JSON); None is `{}`.
        id: The provider's id; None leaves it out, so that one is minted.
        chunks: In how many pieces the arguments come, at most.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments or {}), ensure_ascii=False)
    return Call(name, _cut_up(text, chunks), id)


def pause(seconds: float) -> Pause:
    """Wait, on trio's clock."""
    return Pause(seconds)


def stall() -> Pause:
    """Wait until cancelled."""
    return Pause(math.inf)


def fail(error: Exception) -> Fail:
    """Raise `error` at this point of the stream."""
    return Fail(error)


def cut() -> Cut:
    """End the stream at this point, before the message is complete."""
    return Cut()


class ScriptedModel:
    """Plays one turn of its script per model call.

    Attributes:
        requests: The requests seen, oldest first; empty where `record` is off.
        active: Streams that are being read.
        closed: Streams that were read and have been closed, whichever way they ended.
    """

    def __init__(self, turns: Sequence[Turn], *, repeat: bool = False, record: bool | None = None) -> None:
        """Compile the script.

        Args:
            turns: At least one with `repeat`. A function is called with the request and returns the turn.
            repeat: Start again at the script's beginning with each run, and after the script's end. Calls are then
                placed by the request's `turn`, so any number of sessions may share the model.
            record: Keep `requests`; by default only without `repeat`, because they hold whole conversations.

        Raises:
            ValueError: `repeat` without a turn.
        """
        if repeat and not turns:
            raise ValueError("a script that repeats has at least one turn")
        self.requests: list[ModelRequest] = []
        self.active = 0
        self.closed = 0
        self._repeat = repeat
        self._record = not repeat if record is None else record
        self._position = 0
        self._turns: list[_Compiled | Callable[[ModelRequest], Step | Sequence[Step]]] = [
            turn if callable(turn) else _compile(turn) for turn in turns
        ]

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream the next turn. A checkpoint only where the script pauses or stalls.

        Raises:
            ModelError: The script has no such turn, or says so (`fail`).
        """
        if self._record:
            self.requests.append(request)
        if self._repeat:
            number = (request.turn - 1) % len(self._turns)
        else:
            number = self._position
            self._position += 1
        if number >= len(self._turns):
            return self._play((Fail(ModelError(f"script has no turn {number + 1}")),))
        turn = self._turns[number]
        return self._play(_compile(turn(request)) if callable(turn) else turn)

    async def _play(self, steps: _Compiled) -> AsyncIterator[ModelEvent]:
        self.active += 1
        try:
            for step in steps:
                kind = type(step)
                if kind is Pause:
                    await trio.sleep(cast("Pause", step).seconds)
                elif kind is Fail:
                    raise cast("Fail", step).error
                else:
                    yield cast("ModelEvent", step)
        finally:
            self.active -= 1
            self.closed += 1


def _compile(turn: Step | Sequence[Step]) -> _Compiled:
    """Turn steps into events. What comes after a cut or a failure would never be reached, so it needs no stop."""
    compiled: list[ModelEvent | Pause | Fail] = []
    index = 0
    for step in turn if isinstance(turn, Sequence) else [turn]:
        if not isinstance(step, _STEPS):
            names = "say(), think(), call(), pause(), stall(), fail(), cut()"
            raise TypeError(f"a script is made of model events and of {names}, not {type(step).__name__}")
        match step:
            case Say():
                kind = ReasoningDelta if step.thought else TextDelta
                compiled.extend(kind(piece) for piece in step.pieces)
            case Call():
                compiled.append(ToolCallDelta(index, step.id, step.name, step.pieces[0]))
                compiled.extend(ToolCallDelta(index, arguments=piece) for piece in step.pieces[1:])
                index += 1
            case Cut():
                return tuple(compiled)
            case _:
                compiled.append(step)
    if not any(isinstance(step, Stop) for step in compiled):
        has_call = any(isinstance(step, ToolCallDelta) for step in compiled)
        compiled.append(Stop("tool_calls" if has_call else "stop"))
    return tuple(compiled)


def _cut_up(text: str, chunks: int) -> tuple[str, ...]:
    if chunks < 1:
        raise ValueError(f"a text is streamed in at least 1 piece, not {chunks}")
    size = max(1, -(-len(text) // chunks))
    return tuple(text[start : start + size] for start in range(0, len(text), size)) or ("",)
