"""`cancel/random`: sessions that are cancelled at random while answers race, and what must be left of that: nothing.

A few tasks share the sessions, each has its own. A session is cancelled by its handle, by leaving a stream, or by being
closed; in the same turn of the loop it may be answered, and prompted again. `bench.books` reads what came of it.
"""

import gc
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import cast

import trio
import trio.testing

from actors import Agent, AgentRunConfig, ExternalEvent, SessionHandle
from actors.agent.run import LiveRun
from actors.agent.session import Session
from actors.runtime import System, open_system
from actors.testing import conserving, seeded
from bench.books import Books, Violation
from bench.sessions import PROMPT, REASON, open_pending_agent
from protocol.asks import AskOutcome
from protocol.errors import Code, RuleViolation
from protocol.history import Status

_WORKERS = 16
_MOST_RECORDS = 1_500
_WITHIN_S = 60.0
_PATIENCE = 20_000
#: What a command may be told while the session is being closed beside it.
_EXPECTED = {Code.SESSION_CLOSED, Code.SESSION_BUSY, Code.ASK_SETTLED, Code.ASK_UNKNOWN, Code.RUN_UNKNOWN}
_DESCRIPTORS = next((path for path in (Path("/proc/self/fd"), Path("/dev/fd")) if path.is_dir()), None)


def cancels_per_second(n: int, cancels: int, *, seed: int = 0) -> float:
    """Cancel `cancels` runs of `n` sessions at random, and return how many there were in a second.

    Args:
        n: Sessions, at least 1.
        cancels: Counted are runs whose log says that they were cancelled.
        seed: What is chosen, and the order in which trio runs tasks, follow from it.

    Raises:
        Violation: Something is left that should have ended, a session is stuck, or a log breaks a rule of `Books`.
    """
    before = _count_objects()
    try:
        with seeded(seed), conserving():
            took = trio.run(_run, n, cancels, seed)
        _compare(before, _count_objects(), "when everything had ended")
    except Exception as error:  # whatever it is, the figure is worth nothing
        raise Violation(f"seed {seed}: {_reason(error)}") from error
    return cancels / took


async def _run(n: int, cancels: int, seed: int) -> float:
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with open_system() as system, open_pending_agent(system) as agent:
        before = _count_in(system, agent)
        churn = _Churn(agent, n, random.Random(seed))
        start = time.perf_counter()
        await churn.cancel_until(cancels)
        took = time.perf_counter() - start
        await churn.finish()
        await trio.testing.wait_all_tasks_blocked()
        _compare(before, _count_in(system, agent), "when every session was closed")
    left = trio.lowlevel.current_statistics().tasks_living - tasks
    _compare({"tasks": 0}, {"tasks": left}, "when the agent had ended")
    return took


class _Churn:
    def __init__(self, agent: Agent, n: int, chance: random.Random) -> None:
        self._agent = agent
        self._handles = [agent.session(f"s-{number}") for number in range(n)]
        self._chance = chance
        self._books: dict[str, Books] = {}
        self._cancelled = 0

    async def cancel_until(self, cancels: int) -> None:
        """Go on until so many runs were cancelled. What the sessions are at then is left to `finish`."""

        async def work(handles: list[SessionHandle]) -> None:
            while self._cancelled < cancels:
                handle = self._chance.choice(handles)
                with trio.move_on_after(_WITHIN_S) as scope:
                    await self._cancel(handle)
                if scope.cancelled_caught:
                    raise Violation(f"session {handle.id} is stuck: {handle.status} for {_WITHIN_S:g} s")

        async with trio.open_nursery() as nursery:
            for first in range(min(_WORKERS, len(self._handles))):
                nursery.start_soon(work, self._handles[first::_WORKERS])

    async def finish(self) -> None:
        """Let every session complete one more run, then close it."""
        for handle in self._handles:
            with trio.move_on_after(_WITHIN_S) as scope:
                await handle.cancel(REASON)
                await handle.wait_idle()
                self._read(handle)
                ask = await self._wait_ask(handle)
                books = self._books[handle.id]
                completed = books.completed
                await handle.answer(ask, "Markdown")
                await handle.wait_idle()
                self._read(handle)
                if books.completed != completed + 1:
                    raise Violation(f"session {handle.id} does not complete its next run")
                await handle.close()
                self._read(handle)
            if scope.cancelled_caught:
                raise Violation(f"session {handle.id} does not take its next prompt within {_WITHIN_S:g} s")
        for handle in self._handles:
            if await self._agent.store.load(handle.id) is not None:
                raise Violation(f"session {handle.id} was closed, and its log is kept")

    # ---- one cancel

    async def _cancel(self, handle: SessionHandle) -> None:
        ask = await self._wait_ask(handle)
        chance = self._chance
        by = chance.random()
        if by < 0.06 or len(self._books[handle.id].session.log) > _MOST_RECORDS:
            racers: list[Callable[[], Awaitable[object]]] = [handle.close]
        elif by < 0.4:
            racers = [partial(self._leave_stream, handle), partial(self._cancel_by_handle, handle)]
        else:
            racers = [partial(self._cancel_by_handle, handle)]
        if chance.random() < 0.6:
            racers.append(partial(self._answer, handle, ask))
        if chance.random() < 0.5:
            racers.append(partial(handle.prompt, PROMPT, when_busy="queue"))
        async with trio.open_nursery() as nursery:
            for racer in racers:
                # Most in the same turn of the loop, some a few turns later.
                nursery.start_soon(self._race, racer, max(0, chance.randrange(-6, 4)))
        self._read(handle)

    async def _race(self, command: Callable[[], Awaitable[object]], turns: int) -> None:
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        try:
            await command()
        except RuleViolation as refused:
            if refused.code not in _EXPECTED:
                raise
            await trio.lowlevel.checkpoint()

    async def _cancel_by_handle(self, handle: SessionHandle) -> None:
        session = self._agent.find(handle.id)
        ack = await handle.cancel(REASON)
        books = self._books.get(handle.id)
        # A session that was closed meanwhile may have been made anew: then this was another run.
        if ack.run and books is not None and books.session is session is self._agent.find(handle.id):
            self._read(handle)
            if books.session.state.root == ack.run:
                books.promised.add(ack.run)

    async def _leave_stream(self, handle: SessionHandle) -> None:
        """Read some events of a run, or none, and leave: because there were enough, or cancelled at any other time."""
        events_wanted, turns = self._chance.randrange(16), self._chance.randrange(2, 24)

        async def read() -> None:
            left = events_wanted
            async with self._agent.stream(PROMPT, session_id=handle.id, when_busy="queue") as events:
                async for event in events:
                    left -= 1
                    if left <= 0 or event.name == "ask_user":
                        break

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._race, read, 0)
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    async def _answer(self, handle: SessionHandle, ask: str) -> None:
        await trio.lowlevel.checkpoint()
        books = self._books.get(handle.id)
        if books is None or books.session is not self._agent.find(handle.id):
            return  # closed beside this; one that was made anew may have an ask of the same name
        event = ExternalEvent("ask_user_response", {"tool_call_id": ask, "answer": "Markdown"})
        taken = bool(self._agent.emit_external_event(event, config=AgentRunConfig(session_id=handle.id)))
        self._read(handle)
        if taken != (books.outcomes.get(ask) is AskOutcome.ANSWERED):
            told = "taken" if taken else "refused"
            raise Violation(f"session {handle.id}: the answer to {ask} was {told}, and the log says otherwise")

    # ---- what came of it

    async def _wait_ask(self, handle: SessionHandle) -> str:
        """Return the `tool_call_id` of the session's open ask; prompt it where it has no run."""
        for _ in range(_PATIENCE):
            self._read(handle)
            asks = handle.asks
            if asks:
                return asks[0].tool_call_id
            if handle.status is Status.IDLE:
                await handle.prompt(PROMPT, when_busy="queue")
            else:
                await trio.lowlevel.checkpoint()
        raise Violation(f"session {handle.id} is stuck: {handle.status} for {_PATIENCE:,} turns of the loop")

    def _read(self, handle: SessionHandle) -> None:
        session, books = self._agent.find(handle.id), self._books.get(handle.id)
        if books is not None and books.session is not session:
            self._cancelled += books.close()
            del self._books[handle.id]
            books = None
        if books is None and session is not None:
            books = self._books[handle.id] = Books(session)
        if books is not None:
            self._cancelled += books.read()


def _count_in(system: System, agent: Agent) -> Mapping[str, int]:
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "runs": agent.active_runs,
        "sessions": len(agent.open_sessions()[0]),
        "actors": system.statistics().actors,
        "names": len(system.registry),
        "timers": len(system.wheel),
    }


def _count_objects() -> Mapping[str, int]:
    gc.collect()
    objects: list[type] = [type(found) for found in gc.get_objects()]
    return {
        "descriptors": len(os.listdir(_DESCRIPTORS)) if _DESCRIPTORS is not None else 0,
        "session objects": objects.count(Session),
        "run objects": objects.count(LiveRun),
    }


def _compare(before: Mapping[str, int], after: Mapping[str, int], when: str) -> None:
    """Make sure that no count is higher than before. What earlier benches have left may go meanwhile."""
    left = [f"{after[what] - count} {what}" for what, count in before.items() if after[what] > count]
    if left:
        raise Violation(f"{', '.join(left)} left {when}")


def _reason(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    text = str(error)
    return text if isinstance(error, Violation | AssertionError) else f"{type(error).__name__}: {text}"
