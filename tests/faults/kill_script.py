"""What the model of a server that is killed says, and what its tools do: read from the prompt, so any life goes on.

A prompt is a label and a plan, `c3.17 ta|o|gs`: turns with a letter for each call, then an answer. t - a todo list, a -
a question, o - a tool that must not run twice, g - the same behind a guard, s and b - tools that may run again, in the
event loop and in a thread.
"""

import os
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import trio

from actors import AgentRunContext, ScriptedModel, tool
from actors.agent.tools import Tool
from actors.models.scripted import Call, call, pause, say
from protocol.chat import AssistantMessage, ModelRequest, UserMessage

LETTERS = "taogsb"
#: The tools that must not run twice for a call.
ONCE = ("once", "guarded")
#: All that note what they do.
ACTING = (*ONCE, "safely", "blocking")
_NAMES = {"o": "once", "g": "guarded", "s": "safely", "b": "blocking"}
_STATUSES = ("in_progress", "pending", "pending"), ("completed", "in_progress", "pending")
_PAUSES_S = (0.0, 0.001, 0.004)


def draw_plan(draw: random.Random) -> str:
    """Return a plan; three of four have a question."""
    turns = ["".join(draw.choices(LETTERS, (2, 3, 3, 1, 2, 1), k=draw.choice((1, 1, 2, 3))))
             for _ in range(draw.choice((1, 1, 2, 3)))]  # fmt: skip
    return "|".join(turns)


def make_model() -> ScriptedModel:
    """Return a model that knows nothing of lives: what it says follows from the messages alone."""
    return ScriptedModel([_turn], repeat=True)


def _turn(request: ModelRequest) -> Sequence[Any]:
    label, plan, said = "", "", 0
    for message in request.messages:
        if isinstance(message, UserMessage):
            first, _, rest = message.content.partition(" ")
            if set(rest) <= set(LETTERS + "|"):  # else it is a word of steering, within the same plan
                label, plan, said = first, rest, 0
        elif isinstance(message, AssistantMessage):
            said += 1
    turns = plan.split("|")
    draw = random.Random(f"{label} {said}")
    if said >= len(turns):
        return [say(f"{label} is"), pause(draw.choice(_PAUSES_S)), say(" done")]
    calls = [_call(letter, f"{label}.{said}.{place}", said) for place, letter in enumerate(turns[said])]
    return [say("Well,"), pause(draw.choice(_PAUSES_S)), say(" then."), *calls]


def _call(letter: str, name: str, turn: int) -> Call:
    if letter == "t":
        items = [{"content": f"item {n}", "status": status} for n, status in enumerate(_STATUSES[turn > 0])]
        return call("todo_write", {"todos": items}, id=name)
    if letter == "a":
        return call("ask_user", {"question": f"What about {name}?", "options": ["this", "that"]}, id=name)
    return call(_NAMES[letter], {"name": name}, id=name)


def make_tools(effects: str, *, careless: bool = False) -> list[Tool]:
    """Return the tools; before and after they do what they do they append a line to the file `effects`.

    Args:
        effects: Its path.
        careless: Say of all of them that they may run again, which is not true.
    """
    file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    note = partial(_note, file)

    async def act(context: AgentRunContext, name: str) -> str:
        key = context.idempotency_key
        note(key, "begin")
        await trio.sleep(random.choice((0, 0.001, 0.005, 0.02)))
        note(key, "end")
        return f"did {name}"

    @tool
    async def once(context: AgentRunContext, name: str) -> str:
        """Do what must not be done twice."""
        return await act(context, name)

    @tool
    async def guarded(context: AgentRunContext, name: str) -> str:
        """Do what must not be done twice, behind a guard."""
        return await act(context, name)

    @tool(retry="safe")
    async def safely(context: AgentRunContext, name: str) -> str:
        """Do what may be done again."""
        return await act(context, name)

    @tool(retry="safe")
    def blocking(context: AgentRunContext, name: str) -> str:
        """Do what may be done again, from a thread."""
        note(context.idempotency_key, "begin")
        note(context.idempotency_key, "end")
        return f"did {name}"

    if careless:
        once.retry = guarded.retry = "safe"
    return [once, guarded, safely, blocking]


def _note(file: int, key: str, what: str) -> None:
    os.write(file, f"{what} {os.getpid()} {key}\n".encode())


def read_effects(effects: str) -> dict[str, dict[str, list[str]]]:
    """Return what happened, `begin` and `end` in order, by log id and call id."""
    found: dict[str, dict[str, list[str]]] = {}
    if os.path.exists(effects):
        with open(effects, encoding="utf-8") as lines:
            for line in lines:
                what, _, key = line.rstrip("\n").split(" ", 2)
                log_id, _, call_id = key.partition("/")
                found.setdefault(log_id, {}).setdefault(call_id, []).append(what)
    return found
