"""What the model says in a simulation, its tools, and an extension that watches how runs end.

A turn follows from the text of the last user message and the turn's number alone, so it needs no state.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import trio

from actors import (
    AgentExtension,
    AgentRunContext,
    AskUserExtension,
    AssistantMessage,
    ModelError,
    ModelRequest,
    RunCancelledEvent,
    TodoWriteExtension,
    ToolError,
    UserMessage,
    tool,
)
from actors.agent.session import Session
from actors.models.scripted import Call, Step, call, cut, fail, pause, say

MAX_TURNS = 5
CHECK = "is all well?"
CHECKED = "all is well"


@tool
async def work(seconds: float) -> str:
    """Take a while."""
    await trio.sleep(seconds)
    return "worked"


@tool(inline=True)
def glance() -> str:
    """Take no time."""
    return "glanced"


@tool
async def fall_over(politely: bool) -> str:
    """Fail."""
    await trio.lowlevel.checkpoint()
    raise ToolError("no") if politely else ValueError("no")


@tool
async def clean_up(seconds: float) -> str:
    """Work for long, and take long to stop."""
    try:
        await trio.sleep(40)
    finally:
        with trio.move_on_after(seconds, shield=True):
            await trio.sleep_forever()
    return "cleaned"


@tool
async def hang() -> str:
    """Never return."""
    await trio.sleep_forever()


@tool
async def swallow(seconds: float) -> str:
    """Take a while, and one cancel for a signal."""
    try:
        await trio.sleep(seconds)
    except trio.Cancelled:  # noqa: ASYNC103 - the fault that this tool plays
        return "swallowed"  # noqa: ASYNC104
    return "had nothing to swallow"


@tool
async def stray() -> str:
    """Raise a `Cancelled` that nobody sent."""
    caught: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            caught.append(error)
            raise
    raise caught[0]


TOOLS = (work, glance, fall_over, clean_up, hang, swallow, stray)


def turn(request: ModelRequest) -> Step | Sequence[Step]:
    """The model."""
    last = next(m for m in reversed(request.messages) if isinstance(m, UserMessage))
    if last.content == CHECK:
        return say(CHECKED)
    draw = random.Random(f"{last.content} {request.turn}")
    if request.turn >= MAX_TURNS - 1 and draw.random() < 0.7:
        return say("enough", chunks=2)
    (make,) = draw.choices(_MAKERS, _WEIGHTS)
    return make(draw, request.turn)


Draw = random.Random


def _text(draw: Draw, number: int) -> Sequence[Step]:
    return [say("here is ", chunks=3), pause(draw.choice((0, 0, 1, 5))), say("your answer", chunks=3)]


def _siblings(draw: Draw) -> list[Call]:
    made = [call("work", {"seconds": draw.choice((0.5, 1.0, 5.0, 20.0))}) for _ in range(draw.randrange(3))]
    return [*made, *([call("glance")] if draw.random() < 0.3 else [])]


def _plan(draw: Draw, number: int) -> Sequence[Step]:
    done = draw.choice((number - 1, number - 1, number))
    states = ["completed"] * done + ["in_progress"] + ["pending"] * 5
    items = [{"content": text, "status": state} for text, state in zip("abc", states, strict=False)]
    return [say("first "), call("todo_write", {"todos": items}), *_siblings(draw)]


def _asks(draw: Draw, number: int) -> Sequence[Step]:
    count = draw.choice((1, 1, 2, 3))
    asks = [call("ask_user", {"question": f"Which {n}?"}, id=f"q{number}-{n}") for n in range(count)]
    return [*asks, *_siblings(draw)]


def _odd_tool(draw: Draw, number: int) -> Sequence[Step]:
    made = draw.choice(
        (
            call("fall_over", {"politely": draw.random() < 0.5}),
            call("clean_up", {"seconds": draw.choice((0.5, 3.0, 7.0))}),
            call("hang"),
            call("swallow", {"seconds": draw.choice((5.0, 60.0))}),
            call("stray"),
            call("nobody", {"seconds": 1}),
            call("work", '{"seconds": '),
            call("ask_user", {"question": " "}),
        )
    )
    calls = [made, *_siblings(draw)]
    draw.shuffle(calls)
    return calls


def _odd_model(draw: Draw, number: int) -> Sequence[Step]:
    end = draw.choice((fail(ModelError("overloaded")), cut(), fail(RuntimeError("a bug")), pause(90)))
    return [say("well ", chunks=2), pause(draw.choice((0, 2))), end]


_CHOICES: dict[Callable[[Draw, int], Sequence[Step]], int] = {_text: 2, _plan: 3, _asks: 6, _odd_tool: 4, _odd_model: 1}
_MAKERS, _WEIGHTS = list(_CHOICES), list(_CHOICES.values())


class Witness(AgentExtension):
    """Is told of the end of each run, and sometimes raises then, or takes longer than it may.

    Attributes:
        told: How often, of which run, what.
    """

    def __init__(self, draw: random.Random) -> None:
        self.told: Counter[tuple[Session, str, str]] = Counter()
        self._draw = draw

    async def on_event(self, context: AgentRunContext, event: object) -> None:
        if isinstance(event, RunCancelledEvent):
            await self._hear(context, "cancelled")

    async def on_error(self, context: AgentRunContext, error: BaseException) -> None:
        await self._hear(context, "failed")

    async def on_success(self, context: AgentRunContext, result: AssistantMessage) -> None:
        self.told[context.session, context.run_id, "completed"] += 1

    async def _hear(self, context: AgentRunContext, what: str) -> None:
        self.told[context.session, context.run_id, what] += 1
        match self._draw.randrange(12):
            case 0:
                await trio.sleep_forever()
            case 1:
                raise PlannedError("in its cleanup")
            case 2:
                await trio.sleep(1)
            case _:
                pass


class PlannedError(Exception):
    """What a hook raises."""


def make_extensions(witness: Witness) -> list[AgentExtension]:
    return [TodoWriteExtension(), AskUserExtension(), witness]
