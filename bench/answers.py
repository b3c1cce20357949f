"""`store/ask_overhead`: what it adds to a question and its answer that both are on the disk.

The same conversation over the store in memory and over a file; the difference is compared with one commit of bare
`sqlite3` in the same folder for temporary files.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import trio

from actors import (
    AgentEventType,
    AgentRunConfig,
    AskUserExtension,
    ExternalEvent,
    MemoryStore,
    ScriptedModel,
    open_agent,
)
from actors.agent.ports import SessionStore
from actors.stores import SqliteStore
from bench.asks import PROMPT, SCRIPT
from bench.harness import Goal, Row
from bench.store import awaited_commit_ms

#: From the answer to its result, and of the whole run; in milliseconds.
Times = tuple[float, float]


def ask_overhead(*, quick: bool) -> list[Row]:
    """A question that is opened, answered and used, with each step on the disk before anybody hears of it."""
    n = 10 if quick else 200
    return [
        Row(
            bench="store/ask_overhead", case=case, n=n, unit="ms", samples=n, repeats=1 if quick else 5,
            measure=partial(overhead_ms, n, part),
            against="bare sqlite3: p50 of one commit of one record, WAL, synchronous=FULL, awaited in a worker thread",
            refer=partial(awaited_commit_ms, n),
            goal=goal,
            note=f"{note}; p50 over SqliteStore less p50 over MemoryStore",
        )
        for part, case, goal, note in (
            (0, "answer to result", Goal(value=1.0, at_most=True, of="ratio"),
             "from emit_external_event to TOOL_COMPLETED at the run's own caller"),
            (1, "whole run", None, "from the prompt to the end: a question, its answer, a message"),
        )
    ]  # fmt: skip


def overhead_ms(n: int, part: int) -> float:
    """Return what the file adds to `n` runs at p50, in milliseconds."""
    memory = times_ms(lambda _: MemoryStore(), n)
    file = times_ms(lambda folder: SqliteStore(folder / "s.db"), n)
    return median(times[part] for times in file) - median(times[part] for times in memory)


def times_ms(store: Callable[[Path], SessionStore], n: int) -> list[Times]:
    """Return what `n` runs take, one after the other, each in a session of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return trio.run(_converse, store(Path(folder)), n)


async def _converse(store: SessionStore, n: int) -> list[Times]:
    times: list[Times] = []
    async with open_agent(ScriptedModel(SCRIPT, repeat=True), extensions=[AskUserExtension()], store=store) as agent:
        for number in range(n + 1):
            session_id = f"s-{number}"
            await agent.open_session(session_id)
            begun, answered, seen = time.perf_counter(), 0.0, 0.0
            async with agent.stream(PROMPT, session_id=session_id) as events:
                async for event in events:
                    if event.type is AgentEventType.CUSTOM and event.name == "ask_user":
                        payload = {"tool_call_id": event.payload["tool_call_id"], "answer": "Markdown"}
                        answered = time.perf_counter()
                        taken = agent.emit_external_event(
                            ExternalEvent("ask_user_response", payload), config=AgentRunConfig(session_id=session_id)
                        )
                        assert taken, f"nobody took the answer for {session_id}"
                    elif event.type is AgentEventType.TOOL_COMPLETED:
                        seen = time.perf_counter()
            if number:  # the first one starts threads and fills caches
                times.append(((seen - answered) * 1e3, (time.perf_counter() - begun) * 1e3))
    return times
