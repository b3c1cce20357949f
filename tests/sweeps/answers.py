"""Scenarios of a run without tools: a plain answer, and models that misbehave."""

from collections.abc import AsyncIterator

import trio

from actors import AgentExtension, AgentRunContext, ModelEvent, ModelRequest
from actors.agent.extension import CallNext
from actors.models.scripted import cut, fail, pause, say, stall, think
from actors.testing.sweep import Stage, scenario
from protocol.chat import Stop, TextDelta
from protocol.errors import Code, ModelError
from protocol.limits import Limits
from tests.sweeps.script import script
from tests.sweeps.stage_agent import TOGETHER, USUAL, acting


@scenario(faults=[*USUAL, *TOGETHER], errors_in="r*")
async def plain_answer(stage: Stage) -> None:
    """A prompt, an answer in pieces with a pause in it, another prompt."""
    async with acting(stage, [[think("hm"), say("hello ", chunks=2), pause(1), say("world")]]) as agent:
        await agent.perform()


@scenario(faults=["cancel", "request", "stop", "leave", "error"], errors_in="r*")
async def long_answer(stage: Stage) -> None:
    """More pieces than are handed over without a yield, by the model and to the caller."""
    async with acting(stage, [say("x" * 70, chunks=70)]) as agent:
        await agent.perform()


@scenario(faults=USUAL, errors_in="r*")
async def model_that_raises(stage: Stage) -> None:
    """The model fails in the middle of its message, with an error of the kind that models have."""
    async with acting(
        stage, [[say("hm"), pause(1), fail(ModelError("overloaded"))]], allowed=[Code.MODEL_FAILED]
    ) as agent:
        await agent.perform(expected="run_failed")


@scenario(faults=USUAL, errors_in="r*")
async def model_that_is_cut_off(stage: Stage) -> None:
    """The stream ends before the message does."""
    async with acting(stage, [[say("hm"), pause(1), cut()]], allowed=[Code.MODEL_TRUNCATED]) as agent:
        await agent.perform(expected="run_failed")


@scenario(faults=[*USUAL, "request+1:cancel"], errors_in="r*")
async def model_that_hangs(stage: Stage) -> None:
    """The model says nothing more, until somebody has had enough of it."""
    async with acting(stage, [[say("hm"), stall()]]) as agent:
        agent.nursery.start_soon(agent.cancel_after, 5)
        await agent.perform(expected="run_cancelled")


class SlowToClose:
    """A model whose stream has cleanup that waits: first unshielded, then shielded."""

    def __init__(self, *words: str) -> None:
        self.open = 0
        self._words = words
        self._then = script([say("unused")])

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        return self._then.stream(request) if getattr(request.messages[-1], "content", "") == "again" else self._slow()

    def check(self) -> None:
        """Check that every stream was closed."""
        assert not self.open, "a stream of the model was not closed"

    async def _slow(self) -> AsyncIterator[ModelEvent]:
        self.open += 1
        try:
            for word in self._words:
                yield TextDelta(word)
            await trio.sleep(1)
            yield Stop("stop")
        finally:
            try:
                await trio.sleep(1)
            finally:
                try:
                    with trio.move_on_after(1, shield=True):
                        await trio.sleep(0.5)
                finally:
                    self.open -= 1


@scenario(faults=[*USUAL, "request+1:cancel", "request+2:cancel"], errors_in="r*")
async def model_that_is_slow_to_close(stage: Stage) -> None:
    """However the run ends, the cleanup of the model's stream has run, in the run's own task."""
    model = SlowToClose("hello")
    stage.afterwards(model.check)
    async with acting(stage, model) as agent:
        await agent.perform()


class Passing(AgentExtension):
    """Passes the model's stream on, and waits when that is closed."""

    async def on_model_request(
        self, context: AgentRunContext, request: ModelRequest, call_next: CallNext
    ) -> AsyncIterator[ModelEvent]:
        try:
            async for event in call_next(request):
                yield event
        finally:
            with trio.move_on_after(1, shield=True):
                await trio.lowlevel.checkpoint()


@scenario(faults=[*USUAL, "request+1:request", "request+1:cancel", "request+2:cancel"], errors_in="r*")
async def model_that_is_left_early(stage: Stage) -> None:
    """The message grows too long, its caller is slow: the stream is closed between two pieces, and what wraps it."""
    model = SlowToClose("hello", "world", "and all the others")
    stage.afterwards(model.check)
    limits = Limits(max_text_chars=12, stream_high_water=1)
    async with acting(stage, model, extensions=[Passing()], limits=limits, allowed=[Code.MODEL_INVALID]) as agent:
        await agent.perform(expected="run_failed")
