"""asyncio's own parts under the loads of `cancel/*`: as many tasks for each session as the library has, in task groups.

They hold no conversation, no todo list and no question: each task waits for a future.
"""

import asyncio
import gc
import time
from collections.abc import Sequence
from statistics import median

from bench.peers.sizes import BURST, TASKS_PER_SESSION, Growth, order


class Session:
    """One task with a group of its own, and in it all the others, of which the last stands for the run."""

    def __init__(self, outer: asyncio.TaskGroup) -> None:
        self.outer = outer.create_task(self._wait_with_others())
        self.run: asyncio.Task[None]

    async def _wait_with_others(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(TASKS_PER_SESSION - 1):
                self.run = group.create_task(_wait())
            await _wait()

    def again(self, outer: asyncio.TaskGroup) -> None:
        """Wait once more, where the run was cancelled."""
        self.outer.cancel()
        self.outer = outer.create_task(self._wait_with_others())


async def _wait() -> None:
    await asyncio.get_running_loop().create_future()


async def _start(outer: asyncio.TaskGroup, n: int) -> list[Session]:
    sessions: list[Session] = []
    for number in range(1, n + 1):
        sessions.append(Session(outer))
        if not number % BURST:
            await asyncio.sleep(0)
    await _settle()
    return sessions


async def _settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def setup(n: int) -> float:
    """Return the microseconds for each session until all of them wait."""

    async def run() -> float:
        async with asyncio.TaskGroup() as outer:
            gc.collect()
            before = time.perf_counter()
            sessions = await _start(outer, n)
            took = time.perf_counter() - before
            _end(sessions)
        return took / n * 1e6

    return asyncio.run(run())


def cancel_all(n: int) -> float:
    """Return the microseconds for each session until the runs of all have ended, cancelled in slices."""

    async def run() -> float:
        async with asyncio.TaskGroup() as outer:
            sessions = await _start(outer, n)
            gc.collect()
            before = time.perf_counter()
            for number, session in enumerate(sessions, 1):
                session.run.cancel()
                if not number % BURST:
                    await asyncio.sleep(0)
            await asyncio.wait([session.run for session in sessions])
            took = time.perf_counter() - before
            _end(sessions)
        return took / n * 1e6

    return asyncio.run(run())


def cancel_one(n: int) -> float:
    """Return the p50, in microseconds, until the run of one of `n` sessions has ended."""

    async def run() -> float:
        latencies: list[float] = []
        async with asyncio.TaskGroup() as outer:
            sessions = await _start(outer, n)
            gc.collect()
            for number in order(n):
                session = sessions[number]
                before = time.perf_counter()
                session.run.cancel()
                await asyncio.wait([session.run])
                latencies.append(time.perf_counter() - before)
                session.again(outer)
                await _settle()
            _end(sessions)
        return median(latencies) * 1e6

    return asyncio.run(run())


def end(n: int) -> float:
    """Return the microseconds for each session until all tasks have ended."""

    async def run() -> float:
        async with asyncio.TaskGroup() as outer:
            sessions = await _start(outer, n)
            gc.collect()
            before = time.perf_counter()
            _end(sessions)
        return (time.perf_counter() - before) / n * 1e6

    return asyncio.run(run())


def memory(n: int) -> float:
    """Return the bytes that each of `n` sessions adds to the process."""

    async def run() -> float:
        async with asyncio.TaskGroup() as outer:
            growth = Growth(n)
            sessions = await _start(outer, growth.before)
            growth.start()
            sessions += await _start(outer, n)
            grown = growth.stop()
            _end(sessions)
        return grown

    return asyncio.run(run())


def _end(sessions: Sequence[Session]) -> None:
    for session in sessions:
        session.outer.cancel()


LOADS = {
    "cancel_setup": setup,
    "cancel_all": cancel_all,
    "cancel_one": cancel_one,
    "cancel_end": end,
    "cancel_memory": memory,
}
