"""The same shapes in bare trio: what is left of a cost when the library is taken away. And the checkpoint itself.

It must not import the library. No shape keeps a log, checks arguments or could be cancelled one by one.
"""

import time
from collections.abc import Sequence
from statistics import median

import trio
import trio.testing


def checkpoint_us(n: int = 20_000) -> float:
    """Return what one trio checkpoint costs now, in microseconds, of `n` of them with nothing else to run."""

    async def run() -> float:
        await trio.lowlevel.checkpoint()
        before = time.perf_counter()
        for _ in range(n):
            await trio.lowlevel.checkpoint()
        return (time.perf_counter() - before) / n * 1e6

    return trio.run(run)


def runs_per_second(n: int, turns: Sequence[int], *, new_session: bool) -> float:
    """Return how many tasks per second hand over their events through a memory channel, each consumed.

    Args:
        n: How many tasks, one after the other.
        turns: How many events each task sends in one go; a checkpoint between two goes.
        new_session: For each of them there is also a task that stays, parked in a nursery of its own.
    """

    async def run() -> float:
        async with trio.open_nursery() as nursery:
            before = time.perf_counter()
            for number in range(n):
                if new_session:
                    nursery.start_soon(_session, name=f"session {number}")
                send, receive = trio.open_memory_channel[int](sum(turns))
                nursery.start_soon(_send_events, send, turns, name=f"run {number}")
                async with receive:
                    async for _ in receive:
                        pass
            took = time.perf_counter() - before
            nursery.cancel_scope.cancel()
        return n / took

    return trio.run(run)


async def _session() -> None:
    async with trio.open_nursery():
        await trio.sleep_forever()


async def _send_events(send: trio.MemorySendChannel[int], turns: Sequence[int]) -> None:
    async with send:
        for number, events in enumerate(turns):
            if number:
                await trio.lowlevel.checkpoint()
            for event in range(events):
                send.send_nowait(event)


class _Pair:
    """A task that waits for an answer, and a task that waits for what the first one makes of it."""

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.results, self._receive = trio.open_memory_channel[float](1)
        self.seen = trio.Event()
        self.latency_s = 0.0

    async def wait_answer(self) -> None:
        while True:
            await self.answered.wait()
            self.answered = trio.Event()
            self.results.send_nowait(0.0)

    async def read(self, clock: list[float]) -> None:
        async for _ in self._receive:
            self.latency_s = time.perf_counter() - clock[0]
            self.seen.set()


def answer_us(order: Sequence[int], pending: int) -> float:
    """Return the p50 of: event set, its waiter wakes and sends into a channel, the reader has it. In microseconds.

    Args:
        order: Which of the pairs is answered, one after the other.
        pending: How many pairs wait.
    """

    async def run() -> float:
        pairs = [_Pair() for _ in range(pending)]
        clock = [0.0]
        latencies: list[float] = []
        async with trio.open_nursery() as nursery:
            for pair in pairs:
                nursery.start_soon(pair.wait_answer)
                nursery.start_soon(pair.read, clock)
            await trio.testing.wait_all_tasks_blocked()
            for place in order:
                pair = pairs[place]
                pair.seen = trio.Event()
                clock[0] = time.perf_counter()
                pair.answered.set()
                await pair.seen.wait()
                latencies.append(pair.latency_s)
            nursery.cancel_scope.cancel()
        return median(latencies) * 1e6

    return trio.run(run)


async def park_sessions(n: int, nursery: trio.Nursery) -> None:
    """Start `n` pairs of tasks: one with a nursery and a channel that it waits on, in that nursery one that waits."""
    for number in range(n):
        nursery.start_soon(_parked_session, name=f"session {number}")
    await trio.testing.wait_all_tasks_blocked()


async def _parked_session() -> None:
    send, receive = trio.open_memory_channel[int](1)
    async with send, receive, trio.open_nursery() as nursery:
        nursery.start_soon(trio.Event().wait)
        async for _ in receive:
            pass
