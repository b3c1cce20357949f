"""`python -m bench.memory KIND N`: how much a process grows by N sessions that wait for an answer, or by N idle actors.

A process of its own, so that what other benches left in the allocator distorts nothing. Prints one number: bytes for
each. KIND is `ask` (sessions of the library), `bare` (two parked trio tasks in the shape of one), `actor` or `task` (a
trio task that waits at a memory channel of its own, as an actor does at its mailbox).
"""

import gc
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import trio

from bench import bare, raw

KINDS = ("ask", "bare", "actor", "task")
_ROOT = Path(__file__).resolve().parent.parent
_STATM = Path("/proc/self/statm")


def bytes_per_session(kind: str, n: int) -> float:
    """Measure in a new process and return bytes for each of `n` sessions.

    Raises:
        RuntimeError: The process failed; what it said went to stderr.
    """
    command = [sys.executable, "-m", "bench.memory", kind, str(n)]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the process that measures {n} sessions ({kind}) ended with {done.returncode}")
    return float(done.stdout)


def resident_bytes() -> int:
    """Return what this process holds in memory; where the system has no /proc, the most it ever held."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def growth_per_session(prepare: Callable[[int], Awaitable[None]], n: int) -> float:
    """Return bytes for each of `n` sessions that `prepare(n)` adds and leaves behind."""
    await prepare(max(1, n // 100))  # what is made once is not a session's
    gc.collect()
    before = resident_bytes()
    await prepare(n)
    gc.collect()
    return (resident_bytes() - before) / n


async def _measure(kind: str, n: int) -> float:
    if kind in ("bare", "task"):
        ends: list[trio.MemorySendChannel[raw.Message]] = []
        async with trio.open_nursery() as nursery:
            park = bare.park_sessions if kind == "bare" else partial(raw.park_tasks, ends=ends)
            growth = await growth_per_session(lambda more: park(more, nursery), n)
            nursery.cancel_scope.cancel()
        return growth
    # Not at the top: the bare processes are measured without the library.
    if kind == "actor":
        from actors.runtime import open_system
        from bench.ours import spawn_idle

        async with open_system() as system:
            return _leave(await growth_per_session(partial(spawn_idle, system=system, refs=[]), n))
    from bench.asks import open_asking_agent, put_asks

    async with open_asking_agent() as agent:
        return _leave(await growth_per_session(lambda more: put_asks(agent, more), n))


def _leave(growth: float) -> NoReturn:
    # Closing 10,000 sessions in order takes longer than setting them up, and this process has nothing else to do.
    print(growth, flush=True)
    os._exit(0)


def main(argv: Sequence[str]) -> int:
    """Measure, print, return the exit code."""
    if len(argv) != 2 or argv[0] not in KINDS or not argv[1].isdigit() or argv[1] == "0":
        print(f"bench.memory: takes a kind ({', '.join(KINDS)}) and how many sessions", file=sys.stderr)
        return 2
    print(trio.run(_measure, argv[0], int(argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
