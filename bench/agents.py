"""`agent/*`: runs through `agent.stream`, every event consumed.

The todo and ask extensions are installed, the model is scripted and never waits, the log is in memory. Each repeat
opens its own agent, so that no history is longer than one repeat makes it.
"""

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial

import trio

from actors import AgentEventType, AskUserExtension, ScriptedModel, TodoWriteExtension, open_agent
from actors.models.scripted import Turn, call, say
from bench import bare
from bench.harness import Goal, Peer, Row

ONE_TURN: Sequence[Turn] = [say("Markdown is a good choice.")]
TODO_WRITE: Sequence[Turn] = [
    call(
        "todo_write",
        {
            "todos": [
                {"content": "Choose a format", "status": "in_progress"},
                {"content": "Write the outline", "status": "pending"},
                {"content": "Write the text", "status": "pending"},
            ]
        },
    ),
    say("The plan is made."),
]
PROMPT = "Help me choose a format"


def one_turn(*, quick: bool) -> list[Row]:
    """A run of one model call and no tool."""
    return _rows("agent/one_turn", ONE_TURN, quick=quick, goal=12_000, peer=214)


def todo_write(*, quick: bool) -> list[Row]:
    """A run of two model calls, with a todo write between them."""
    return _rows("agent/todo_write", TODO_WRITE, quick=quick, goal=8_000, peer=475)


def _rows(name: str, script: Sequence[Turn], *, quick: bool, goal: float, peer: float) -> list[Row]:
    n = 200 if quick else 4_000
    turns = count_events(script)
    rows: list[Row] = []
    for new_session in (False, True):
        stays = ", and a parked task with its nursery stays for each" if new_session else ""
        note = "the sessions stay open while it is measured" if new_session else "one session, its history grows"
        rows.append(
            Row(
                bench=name,
                case="new session per run" if new_session else "session reused",
                n=n,
                unit="runs/s",
                samples=n,
                repeats=3 if quick else 7,
                measure=partial(runs_per_second, script, n, new_session=new_session),
                against=f"bare trio: a task per run, {sum(turns)} events through a memory channel{stays}",
                refer=partial(bare.runs_per_second, n, turns, new_session=new_session),
                goal=None if new_session else Goal(value=goal, at_most=False),
                peer=Peer("asyncio peer", peer),
                note=note,
            )
        )
    return rows


def runs_per_second(script: Sequence[Turn], n: int, *, new_session: bool) -> float:
    """Make `n` runs, one after the other, and return how many there were in a second."""

    async def run() -> float:
        async with open_agent(
            ScriptedModel(script, repeat=True), extensions=[TodoWriteExtension(), AskUserExtension()]
        ) as agent:
            await agent.run(PROMPT, session_id="warm-up")
            name: Callable[[int], str] = "s-{}".format if new_session else (lambda _: "s-0")
            # What earlier repeats left behind is theirs. Thresholds stay as they are.
            gc.collect()
            before = time.perf_counter()
            for number in range(n):
                async with agent.stream(PROMPT, session_id=name(number)) as events:
                    async for _ in events:
                        pass
            return n / (time.perf_counter() - before)

    return trio.run(run)


def count_events(script: Sequence[Turn]) -> tuple[int, ...]:
    """Return how many events one run of a script has, by turn: what the reference has to hand over too."""

    async def run() -> tuple[int, ...]:
        turns: list[int] = []
        before_first = 0
        async with open_agent(
            ScriptedModel(script, repeat=True), extensions=[TodoWriteExtension(), AskUserExtension()]
        ) as agent:
            async with agent.stream(PROMPT) as events:
                async for event in events:
                    if event.type is AgentEventType.MODEL_STARTED:
                        turns.append(0)
                    if turns:
                        turns[-1] += 1
                    else:
                        before_first += 1
        return (before_first + turns[0], *turns[1:])

    return trio.run(run)
