"""What the scenarios share: turns of a scripted model, and short ways to say what a consumer does."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from actors import (
    Agent,
    AgentEvent,
    AgentEventType,
    AskUserExtension,
    Model,
    ScriptedModel,
    TodoWriteExtension,
    open_agent,
)
from actors.agent.stream import RunStream
from actors.models.scripted import Call, call
from actors.runtime import System, open_system
from tests.faults.invariants import check_agent, check_session

DEADLOCK_S = 1_000_000.0
STATUSES = {"p": "pending", "i": "in_progress", "c": "completed"}
ITEMS = ("read", "write", "test")


def todos(statuses: str, *contents: str) -> dict[str, Any]:
    """Return the arguments of `todo_write` for statuses such as `cip`."""
    texts = contents or ITEMS[: len(statuses)]
    return {
        "todos": [{"content": text, "status": STATUSES[letter]} for text, letter in zip(texts, statuses, strict=True)]
    }


def write(statuses: str, *contents: str, id: str | None = None) -> Call:
    """A `todo_write` call."""
    return call("todo_write", todos(statuses, *contents), id=id)


def ask(id: str, question: str = "Which database?", options: Sequence[str] = ("Postgres", "SQLite")) -> Call:
    """An `ask_user` call."""
    return call("ask_user", {"question": question, "options": list(options)}, id=id)


async def kinds(events: RunStream) -> list[str]:
    """Consume a stream and return the types of its durable events."""
    return [event.type.value async for event in events if event.seq]


async def until(events: RunStream, type_: AgentEventType, name: str = "") -> AgentEvent:
    """Consume a stream up to an event; `name` is a custom event's, or the tool's."""
    async for event in events:
        names = (event.name, *(made.name for made in event.tool_calls))
        if event.type is type_ and (not name or name in names):
            return event
    raise AssertionError(f"the run ended without {type_} {name}")


async def until_asked(events: RunStream, count: int = 1) -> list[str]:
    """Consume a stream until so many asks are open, and return the ids of their calls."""
    found: list[str] = []
    while len(found) < count:
        event = await until(events, AgentEventType.CUSTOM, "ask_user")
        found.append(str(event.payload["tool_call_id"]))
    return found


@asynccontextmanager
async def staged(turns: Sequence[Any] | Model, **options: Any) -> AsyncGenerator[Agent]:
    """Open an agent with both extensions over a script, and check at its end that nothing is left.

    Args:
        turns: The script, or a model.
        options: For `open_agent`; `extensions` replaces the two.
    """
    options.setdefault("extensions", [TodoWriteExtension(), AskUserExtension()])
    model = ScriptedModel(turns) if isinstance(turns, Sequence) else turns
    # With a virtual clock this is the deadlock detector: when every task waits, the clock jumps to it.
    with trio.fail_after(DEADLOCK_S):
        async with open_system() as system:
            async with open_agent(model, system=system, **options) as agent:
                yield agent
                for session in sessions(agent):
                    if not session.state.root:
                        check_session(session)
            check_agent(agent)
            check_system(system)


def sessions(agent: Agent) -> list[Any]:
    """The sessions an agent has open."""
    return [agent.find(info.session) for info in agent.open_sessions(limit=100_000)[0]]


def check_system(system: System) -> None:
    """Check that no actor and no name is left."""
    assert len(system.registry) == 0, f"names are left: {list(system.registry)}"
    assert system.statistics().actors == 0
    assert system.statistics().supervisors == 0
