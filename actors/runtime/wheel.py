"""Deadlines of one system: what is due, in one heap, for all of its asks, timers, restarts and graces.

It decides when something is due and calls it, nothing else; it must not know what. One task waits for the earliest
deadline; while there is none it is parked, so that a virtual clock is free to jump. A scope for each ask would cost as
much as the ask itself.
"""

import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import Protocol

import trio
from trio.lowlevel import checkpoint, enable_ki_protection

from actors.runtime import log

#: How many deadlines are served in a row before other tasks run.
_SLICE = 128
#: Entries that are not wanted any more are swept out when they are the larger part; below this it is not worth it.
_SWEEP_AT = 64


class Due(Protocol):
    """What waits for its time."""

    @property
    def active(self) -> bool:
        """False once it is not wanted any more: it is dropped then, at the latest when its time comes."""
        ...

    def due(self) -> None:
        """Its time has come. Synchronous; must not raise."""
        ...


class Alarm:
    """One call at a later time. Made by `system.call_later`."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call

    @property
    def active(self) -> bool:
        """True until it was called or taken back."""
        return self._call is not None

    def cancel(self) -> None:
        """Take it back. Idempotent, no checkpoint."""
        self._call = None

    def due(self) -> None:
        """Its time has come. Called by the wheel."""
        call, self._call = self._call, None
        if call is not None:
            call()


class Wheel:
    """The heap and the task that serves it."""

    __slots__ = ("_armed", "_heap", "_numbers", "_scope", "_sweep_at", "now", "stamp")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._numbers = itertools.count()
        self._sweep_at = _SWEEP_AT
        self._armed = math.inf
        self._scope: trio.CancelScope | None = None
        clock = trio.lowlevel.current_clock()
        #: The clock, in seconds, as `trio.current_time` reads it.
        self.now = clock.current_time
        #: The same for differences only, as it may begin elsewhere: each message that wakes an actor looks at it, and
        #: trio's own clock is this one with a number added.
        self.stamp = time.perf_counter if type(clock).__module__.startswith("trio._core") else clock.current_time

    def __len__(self) -> int:
        """Count the deadlines that are still wanted."""
        return sum(entry.active for _, _, entry in self._heap)

    def add(self, entry: Due, at: float) -> None:
        """Call `entry.due()` once it is `at`, in the order of deadlines, unless it is not active then. No checkpoint.

        Args:
            entry: What is due. To take it back, let its `active` become False.
            at: Seconds on trio's clock. What lies in the past is due at once; infinity never is.

        Raises:
            ValueError: `at` is no number.
        """
        if at != at:  # it has no place in an order: nothing behind it would ever be due
            raise ValueError(f"a deadline is a time in seconds, not {at}")
        heap = self._heap
        if len(heap) >= self._sweep_at:
            self._sweep()
            heap = self._heap
        heapq.heappush(heap, (at, next(self._numbers), entry))
        # An earlier wake-up that is not wanted any more is left as it is: to move it would cost each ask twice.
        if at < self._armed:
            self._armed = at
            if self._scope is not None:
                self._scope.deadline = at

    def close(self) -> None:
        """Take back every alarm: nobody serves this any more. No checkpoint."""
        for _, _, entry in self._heap:
            if isinstance(entry, Alarm):
                entry.cancel()

    async def run(self) -> None:
        """Serve for ever. One task runs it."""
        while True:
            self._armed = self._earliest()
            with trio.CancelScope(deadline=self._armed) as self._scope:
                await trio.sleep_forever()
            await self._serve()

    async def _serve(self) -> None:
        served = 0
        while self._heap and self._heap[0][0] <= self.now():
            self._pop()
            served += 1
            if served % _SLICE == 0:
                await checkpoint()

    @enable_ki_protection
    def _pop(self) -> None:
        _, _, entry = heapq.heappop(self._heap)
        if entry.active:
            try:
                entry.due()
            except Exception:  # a bug in here must not stop the clock of everybody else
                log.exception("what was due raised")

    def _earliest(self) -> float:
        heap = self._heap
        while heap and not heap[0][2].active:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def _sweep(self) -> None:
        self._heap = [item for item in self._heap if item[2].active]
        heapq.heapify(self._heap)
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._heap))
