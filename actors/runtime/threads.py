"""Where blocking functions run: in worker threads, or, under a virtual clock, at once.

It decides which of the two a program gets that does not choose. It must not know what the functions do. A virtual clock
jumps as soon as every task waits, and it takes one that waits for a thread for a task like any other: every timeout
around the call would be over before the call is.
"""

import sys
from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Threads(Protocol):
    """Where blocking functions run."""

    async def run_sync(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call `call(*args)` and return what it returns, or raise what it raises. A checkpoint."""
        ...


class WorkerThreads:
    """trio's worker threads. A cancel waits for the thread, which nothing can interrupt."""

    async def run_sync(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call `call` in a worker thread. A checkpoint, also when cancelled before the thread was started."""
        return await trio.to_thread.run_sync(call, *args)


class InlineThreads:
    """No threads: the loop stands still for as long as a call takes. For tests."""

    async def run_sync(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Let other tasks run once, then call `call` here. A checkpoint: cancelled there, the call is not made."""
        await trio.lowlevel.checkpoint()
        return call(*args)


def default_threads() -> Threads:
    """Return `InlineThreads` if the running clock is a `trio.testing.MockClock`, else `WorkerThreads`. No checkpoint.

    Raises:
        RuntimeError: Not called from within `trio.run`.
    """
    clock = trio.lowlevel.current_clock()
    # Whoever runs a mock clock has imported this; a program that does not must not pay for it.
    testing = sys.modules.get("trio.testing")
    return InlineThreads() if testing is not None and isinstance(clock, testing.MockClock) else WorkerThreads()
