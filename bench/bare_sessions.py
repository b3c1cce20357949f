"""The references of `cancel/*`: the tasks, nurseries and scopes of the library's sessions, from trio's own parts.

It must not import the library. Nothing here keeps a log, has a question that could be answered, or says how it ended.
"""

import gc
import random
import time
from collections.abc import Iterator, Sequence
from statistics import median

import trio
import trio.testing

from bench.loop import LongestHold
from bench.shape import TaskShape

#: How many are cancelled in one go, before the loop turns.
SLICE = 64
#: In place of the scopes of a task that has not had its first step.
_NOT_ENTERED = trio.CancelScope()


class Parked:
    """Sessions of one shape in a nursery.

    Attributes:
        living: How many have not been cancelled, or not unwound.
        scopes: What a cancel of each session's run cancels.
        outermost: What ends each session as a whole.
    """

    def __init__(self, shape: TaskShape, nursery: trio.Nursery) -> None:
        assert shape.cancellable, "a shape has a scope that is marked"
        self.shape = shape
        self.nursery = nursery
        self.living = 0
        self.scopes: list[trio.CancelScope] = []
        self.outermost: list[trio.CancelScope] = []

    def start(self) -> int:
        """Start one more and return its number."""
        number = len(self.scopes)
        self.scopes.append(_NOT_ENTERED)
        self.outermost.append(_NOT_ENTERED)
        self.living += 1
        self.nursery.start_soon(self._session, number, name=f"session {number}")
        return number

    async def start_many(self, n: int) -> None:
        """Start `n` more and return when all of them wait."""
        for started in range(n):
            self.start()
            if started % SLICE == SLICE - 1:
                await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()

    def again(self, number: int) -> None:
        """Start a session whose run was cancelled once more, in the same place."""
        self.outermost[number].cancel()
        self.scopes[number] = _NOT_ENTERED
        self.living += 1
        self.nursery.start_soon(self._session, number, name=f"session {number}")

    def can_be_cancelled(self, number: int) -> bool:
        """Say whether a session that was started has got as far as its run's scope."""
        return self.scopes[number] is not _NOT_ENTERED

    async def _session(self, number: int) -> None:
        await self._enter(self.shape, 0, number, whole=True)

    async def _enter(self, shape: TaskShape, depth: int, number: int, *, whole: bool = False) -> None:
        """Enter what is left of a task's scopes, then wait. `whole` is the session's own task."""
        if depth == len(shape.entered):
            await trio.Event().wait()
            return
        layer = shape.entered[depth]
        try:
            if layer.tasks is not None:
                async with trio.open_nursery() as nursery:
                    self._note(nursery.cancel_scope, number, run=layer.cancelled, whole=whole and not depth)
                    for task in layer.tasks:
                        nursery.start_soon(self._enter, task, 0, number)
                    await self._enter(shape, depth + 1, number)
            else:
                with trio.CancelScope() as scope:
                    self._note(scope, number, run=layer.cancelled, whole=whole and not depth)
                    await self._enter(shape, depth + 1, number)
        finally:
            if layer.cancelled:
                self.living -= 1

    def _note(self, scope: trio.CancelScope, number: int, *, run: bool, whole: bool) -> None:
        if run:
            self.scopes[number] = scope
        if whole:
            self.outermost[number] = scope


def setup_us(n: int, shape: TaskShape) -> float:
    """Return how many microseconds each of `n` sessions takes from its start until all of them wait."""

    async def run() -> float:
        async with trio.open_nursery() as nursery:
            gc.collect()
            before = time.perf_counter()
            await Parked(shape, nursery).start_many(n)
            took = time.perf_counter() - before
            nursery.cancel_scope.cancel()
        return took / n * 1e6

    return trio.run(run)


def cancel_all(n: int, shape: TaskShape, *, at_a_time: int = SLICE) -> tuple[float, float]:
    """Cancel the run of each session by its own scope, in slices.

    Returns:
        Microseconds per session until all have unwound, and the longest hold of the loop meanwhile, in milliseconds.
    """

    async def run() -> tuple[float, float]:
        hold = LongestHold()
        async with trio.open_nursery() as nursery:
            parked = Parked(shape, nursery)
            await parked.start_many(n)
            gc.collect()
            hold.start()
            before = time.perf_counter()
            for number, scope in enumerate(parked.scopes, 1):
                scope.cancel()
                if not number % at_a_time:
                    await trio.lowlevel.checkpoint()
            while parked.living:
                await trio.lowlevel.checkpoint()
            took = time.perf_counter() - before
            hold.stop()
            nursery.cancel_scope.cancel()
        return took / n * 1e6, hold.longest_s * 1e3

    return trio.run(run)


def end(n: int, shape: TaskShape, *, in_slices: bool = False) -> tuple[float, float]:
    """End all sessions as a whole: by one cancel around them all, or by the outermost scope of each, in slices.

    Returns:
        Microseconds per session until every task has ended, and the longest hold of the loop, in milliseconds.
    """

    async def run() -> tuple[float, float]:
        hold = LongestHold()
        async with trio.open_nursery() as nursery:
            parked = Parked(shape, nursery)
            await parked.start_many(n)
            gc.collect()
            hold.start()
            before = time.perf_counter()
            for number, scope in enumerate(parked.outermost if in_slices else (), 1):
                scope.cancel()
                if not number % SLICE:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        took = time.perf_counter() - before
        hold.stop()
        return took / n * 1e6, hold.longest_s * 1e3

    return trio.run(run)


def cancel_one_us(n: int, order: Sequence[int], shape: TaskShape) -> float:
    """Return the p50, in microseconds, from the cancel of one of `n` sessions until it has unwound."""

    async def run() -> float:
        latencies: list[float] = []
        async with trio.open_nursery() as nursery:
            parked = Parked(shape, nursery)
            await parked.start_many(n)
            gc.collect()
            for number in order:
                before = time.perf_counter()
                await trio.lowlevel.checkpoint()  # as the library's cancel has one
                parked.scopes[number].cancel()
                while parked.living == n:
                    await trio.lowlevel.checkpoint()
                latencies.append(time.perf_counter() - before)
                parked.again(number)
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        return median(latencies) * 1e6

    return trio.run(run)


def cancels_per_second(n: int, cancels: int, shape: TaskShape) -> float:
    """Return how many sessions per second are cancelled and started again, at random among `n` that wait."""

    async def run() -> float:
        chosen = _numbers(n)
        async with trio.open_nursery() as nursery:
            parked = Parked(shape, nursery)
            await parked.start_many(n)
            gc.collect()
            before = time.perf_counter()
            for _ in range(cancels):
                number = next(chosen)
                parked.scopes[number].cancel()
                while parked.living == n:
                    await trio.lowlevel.checkpoint()
                parked.again(number)
                while not parked.can_be_cancelled(number):
                    await trio.lowlevel.checkpoint()
            took = time.perf_counter() - before
            nursery.cancel_scope.cancel()
        return cancels / took

    return trio.run(run)


def _numbers(n: int) -> Iterator[int]:
    generator = random.Random(0)
    while True:
        yield generator.randrange(n)
