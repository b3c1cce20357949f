"""The loads of `cancel/*` on sessions of the library: each has a todo list of three and waits at one open question.

Nobody consumes their events: a session is prompted and left alone. `bench.bare_sessions` does the same with trio alone.
"""

import gc
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from statistics import median

import trio
import trio.testing

from actors import Agent, AskUserExtension, ScriptedModel, SessionHandle, TodoWriteExtension, open_agent
from actors.models.scripted import Turn, call, say
from actors.runtime import System
from bench.agents import TODO_WRITE
from bench.loop import LongestHold
from bench.shape import TaskShape, read_shape
from protocol.limits import Limits

SCRIPT: Sequence[Turn] = [
    TODO_WRITE[0],
    call("ask_user", {"question": "Which format do you want?", "options": ["Markdown", "PDF", "HTML"]}),
    say("Markdown it is."),
]
PROMPT = "Help me choose a format"
REASON = "it is measured"


def open_pending_agent(system: System | None = None) -> AbstractAsyncContextManager[Agent]:
    """Open an agent whose every run writes a todo list, then asks, and is over once that is answered."""
    extensions = [TodoWriteExtension(), AskUserExtension()]
    limits = Limits(max_sessions=1_000_000)  # as many as are wanted, and those that were made to warm up
    return open_agent(ScriptedModel(SCRIPT, repeat=True), extensions=extensions, system=system, limits=limits)


async def put_pending(agent: Agent, n: int, *, first: int = 0) -> list[SessionHandle]:
    """Open the sessions `s-<first>` and the `n - 1` behind it, start a run in each, and return when all of them wait.

    Raises:
        RuntimeError: A session does not wait at its question with its todo list.
    """
    handles = [agent.session(f"s-{number}") for number in range(first, first + n)]
    for handle in handles:
        await handle.prompt(PROMPT)
    await trio.testing.wait_all_tasks_blocked()
    for handle in (handles[0], handles[-1]):
        if len(handle.asks) != 1 or handle.todos is None:
            raise RuntimeError(f"session {handle.id} was to wait at a question with a todo list, and does not")
    return handles


@cache
def session_shape() -> TaskShape:
    """Return the tasks, nurseries and scopes of such a session, read from trio's tree."""

    async def run() -> TaskShape:
        async with open_pending_agent() as agent:
            (handle,) = await put_pending(agent, 1)
            session = agent.find(handle.id)
            assert session is not None
            assert session.nursery is not None
            return read_shape(session.nursery.parent_task, session.lives[0].scope)

    return trio.run(run)


def setup_us(n: int) -> float:
    """Return how many microseconds each of `n` sessions takes from its first prompt until all of them wait."""

    async def run() -> float:
        async with open_pending_agent() as agent:
            gc.collect()
            before = time.perf_counter()
            await put_pending(agent, n)
            return (time.perf_counter() - before) / n * 1e6

    return trio.run(run)


def cancel_all(n: int, *, by_handle: bool = False) -> tuple[float, float]:
    """Cancel the run of each of `n` sessions: in slices, or one after the other by its handle.

    Returns:
        Microseconds per session until all runs have ended, and the longest hold of the loop meanwhile, in milliseconds.

    Raises:
        RuntimeError: A run is left, or its task.
    """

    async def run() -> tuple[float, float]:
        hold = LongestHold()
        async with open_pending_agent() as agent:
            handles = await put_pending(agent, n)
            tasks = trio.lowlevel.current_statistics().tasks_living
            gc.collect()
            hold.start()
            before = time.perf_counter()
            if by_handle:
                for handle in handles:
                    await handle.cancel(REASON)
            else:
                await agent.cancel_all(REASON)
            await _wait_all_idle(agent, handles)
            await _wait_unwound(tasks - n)
            took = time.perf_counter() - before
            hold.stop()
            ended = tasks - trio.lowlevel.current_statistics().tasks_living
            if agent.active_runs or ended != n:
                raise RuntimeError(f"of {n} runs that were cancelled {agent.active_runs} go on; {ended} tasks ended")
        return took / n * 1e6, hold.longest_s * 1e3

    return trio.run(run)


async def _wait_all_idle(agent: Agent, handles: Sequence[SessionHandle]) -> None:
    for number, handle in enumerate(handles, 1):
        session = agent.find(handle.id)
        assert session is not None
        await session.wait_idle()  # noqa: ASYNC910 - a checkpoint only where it waits
        if not number % 500:
            await trio.lowlevel.checkpoint()


async def _wait_unwound(tasks: int) -> None:
    """Wait until no more than `tasks` live. A run that only waited for answers has ended a moment before its task."""
    for _ in range(1_000):
        if trio.lowlevel.current_statistics().tasks_living <= tasks:
            return
        await trio.lowlevel.checkpoint()


def end(n: int) -> tuple[float, float]:
    """Leave the block of an agent, and so of its actor system, while `n` sessions wait.

    Returns:
        Microseconds per session until everything has ended, and the longest hold of the loop, in milliseconds.

    Raises:
        RuntimeError: Tasks are left.
    """

    async def run() -> tuple[float, float]:
        hold = LongestHold()
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with open_pending_agent() as agent:
            await put_pending(agent, n)
            gc.collect()
            hold.start()
            before = time.perf_counter()
        took = time.perf_counter() - before
        hold.stop()
        left = trio.lowlevel.current_statistics().tasks_living - tasks
        if left:
            raise RuntimeError(f"{left} tasks are left of {n} sessions whose agent has ended")
        return took / n * 1e6, hold.longest_s * 1e3

    return trio.run(run)


def cancel_one_us(n: int, order: Sequence[int]) -> float:
    """Return the p50, in microseconds, from the cancel of one of `n` sessions until its run and its task have ended.

    Each is prompted again before another is cancelled, so that `n` stay pending.
    """

    async def run() -> float:
        latencies: list[float] = []
        async with open_pending_agent() as agent:
            handles = await put_pending(agent, n)
            gc.collect()
            for number in order:
                handle = handles[number]
                tasks = trio.lowlevel.current_statistics().tasks_living
                before = time.perf_counter()
                await handle.cancel(REASON)
                await handle.wait_idle()
                await _wait_unwound(tasks - 1)
                latencies.append(time.perf_counter() - before)
                await handle.prompt(PROMPT)
                await trio.testing.wait_all_tasks_blocked()
        return median(latencies) * 1e6

    return trio.run(run)
