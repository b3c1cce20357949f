"""`python -m bench.memory KIND N [SHAPE]`: what N waiting sessions, or idle actors, add to a process.

A process of its own, so that what other benches left in the allocator distorts nothing. Prints one number: bytes for
each. KIND is `ask` (sessions of the library), `bare` (two parked trio tasks in the shape of one), `actor`, `task` (a
trio task that waits at a memory channel of its own, as an actor does at its mailbox), `pending` (sessions that have a
todo list too) or `shape` (parked trio tasks as SHAPE says, in JSON).
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

import msgspec
import trio

from bench import bare, bare_sessions, raw
from bench.shape import TaskShape

KINDS = ("ask", "bare", "actor", "task", "pending", "shape")
_BARE = ("bare", "task", "shape")
_ROOT = Path(__file__).resolve().parent.parent
_STATM = Path("/proc/self/statm")
_MEMINFO = Path("/proc/meminfo")


def bytes_per_session(kind: str, n: int, shape: TaskShape | None = None) -> float:
    """Measure in a new process and return bytes for each of `n` sessions.

    Args:
        kind: Of `KINDS`.
        n: How many, at least 1.
        shape: With the kind `shape`, and only with it.

    Raises:
        RuntimeError: The process failed; what it said went to stderr.
    """
    command = [sys.executable, "-m", "bench.memory", kind, str(n)]
    if shape is not None:
        command.append(msgspec.json.encode(shape).decode())
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the process that measures {n} sessions ({kind}) ended with {done.returncode}")
    return float(done.stdout)


def resident_bytes() -> int:
    """Return what this process holds in memory; where the system has no /proc, the most it ever held."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def available_bytes() -> int | None:
    """Return how much memory a new process could use without others being swapped out; None where nobody says."""
    if not _MEMINFO.exists():
        return None
    for line in _MEMINFO.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1_024
    return None


async def growth_per_session(prepare: Callable[[int], Awaitable[None]], n: int) -> float:
    """Return bytes for each of `n` sessions that `prepare(n)` adds and leaves behind."""
    await prepare(max(1, n // 100))  # what is made once is not a session's
    gc.collect()
    before = resident_bytes()
    await prepare(n)
    gc.collect()
    return (resident_bytes() - before) / n


async def _measure(kind: str, n: int, shape: TaskShape | None) -> float:
    if kind in _BARE:
        async with trio.open_nursery() as nursery:
            growth = await growth_per_session(_parking(kind, nursery, shape), n)
            nursery.cancel_scope.cancel()
        return growth
    # Not at the top: the bare processes are measured without the library.
    if kind == "actor":
        from actors.runtime import open_system
        from bench.ours import spawn_idle

        async with open_system() as system:
            return _leave(await growth_per_session(partial(spawn_idle, system=system, refs=[]), n))
    if kind == "pending":
        from bench.sessions import open_pending_agent, put_pending

        async with open_pending_agent() as agent:

            async def prepare(more: int) -> None:
                await put_pending(agent, more, first=agent.active_runs)

            return _leave(await growth_per_session(prepare, n))
    from bench.asks import open_asking_agent, put_asks

    async with open_asking_agent() as agent:
        return _leave(await growth_per_session(lambda more: put_asks(agent, more), n))


def _parking(kind: str, nursery: trio.Nursery, shape: TaskShape | None) -> Callable[[int], Awaitable[None]]:
    if shape is not None:
        return bare_sessions.Parked(shape, nursery).start_many
    if kind == "bare":
        return lambda more: bare.park_sessions(more, nursery)
    ends: list[trio.MemorySendChannel[raw.Message]] = []
    return lambda more: raw.park_tasks(more, nursery, ends)


def _leave(growth: float) -> NoReturn:
    # Closing 10,000 sessions in order takes longer than setting them up, and this process has nothing else to do.
    print(growth, flush=True)
    os._exit(0)


def main(argv: Sequence[str]) -> int:
    """Measure, print, return the exit code."""
    kind, n, shape = (*argv, "", "", "")[:3]
    if len(argv) > 3 or kind not in KINDS or not n.isdigit() or n == "0" or (kind == "shape") != bool(shape):
        kinds = ", ".join(KINDS)
        print(f"bench.memory: takes a kind ({kinds}), how many sessions, and with shape a shape", file=sys.stderr)
        return 2
    try:
        wanted = msgspec.json.decode(shape, type=TaskShape) if shape else None
    except msgspec.MsgspecError as error:
        print(f"bench.memory: {shape!r} is no shape: {error}", file=sys.stderr)
        return 2
    print(trio.run(_measure, kind, int(n), wanted))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
