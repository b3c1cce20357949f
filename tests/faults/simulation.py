"""A seeded simulation: an hour of virtual time, 20 sessions, 5 clients, and everything that can go wrong at random.

`python -m tests.faults.simulation --seeds 2000` plays many; a seed that finds something is printed with the command
that plays it again. One seed always plays the same: the clock is virtual, the scheduler seeded, and every choice is
drawn from one source.
"""

import argparse
import gc
import io
import logging
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from typing import Any

import trio
from trio.testing import MockClock

from actors.testing import run
from protocol import events as ev
from tests.faults.invariants import check_answers
from tests.faults.simulation_checks import check_snapshots
from tests.faults.simulation_client import Client
from tests.faults.simulation_host import HOUR_S, LIMIT_S, How, make_trouble, serve
from tests.faults.simulation_script import PlannedError
from tests.faults.simulation_store import PlannedFault
from tests.faults.simulation_trace import Found, Trace
from tests.faults.simulation_world import CLIENTS, SESSIONS, World


def simulate(seed: int) -> Trace:
    """Play one hour and return what happened.

    Raises:
        Found: An invariant does not hold; names the seed.
    """
    descriptors = _descriptors()
    with _listening() as said:
        try:
            trace = run(_hour, seed, seed=seed, limit_s=LIMIT_S)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever it is, and it is no longer on its way to any scope
            raise _found(seed, _worst(error)) from error  # noqa: ASYNC104
    if said:
        raise _found(seed, said[0])
    if _descriptors() != descriptors:
        raise _found(seed, f"{_descriptors() - descriptors} descriptors are left")
    return trace


def _found(seed: int, what: object) -> Found:
    text = str(what) if isinstance(what, AssertionError) else what if isinstance(what, str) else repr(what)
    text = " ".join(text.split())  # one line: it is what is printed of many
    return Found(f"seed {seed}: {text}; to repeat: python -m tests.faults.simulation --first {seed} --seeds 1")


def _worst(error: BaseException) -> BaseException:
    """Return the error that says most: what was found comes before what followed from it."""
    leaves = [error]
    while any(isinstance(leaf, BaseExceptionGroup) for leaf in leaves):
        leaves = [inner for leaf in leaves for inner in getattr(leaf, "exceptions", (leaf,))]
    return min(leaves, key=lambda leaf: (not isinstance(leaf, AssertionError), isinstance(leaf, trio.Cancelled)))


# ---- the hour


async def _hour(seed: int) -> Trace:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    world = World(seed, clock)
    before = trio.lowlevel.current_statistics().tasks_living
    with world.recorder.scope:
        async with trio.open_nursery() as keeping:
            keeping.start_soon(world.store.keep)
            await _serve_the_hour(world)
            keeping.cancel_scope.cancel()
    if world.recorder.first:
        raise Found(world.recorder.first)
    after = trio.lowlevel.current_statistics().tasks_living
    assert after == before, f"{after - before} tasks are left"
    _check_end(world)
    return world.recorder.trace(seed)


async def _serve_the_hour(world: World) -> None:
    draw = world.draw
    async with trio.open_nursery() as people:
        gone = trio.Event()
        scope = trio.CancelScope()
        people.start_soon(_people, world, scope, gone)
        ends = sorted(draw.uniform(60, HOUR_S - 60) for _ in range(draw.randrange(1, 3)))
        for end in ends:
            how: How = draw.choice(("closed", "cancelled", "killed"))
            await serve(world, how, end)
            await trio.sleep(draw.choice((0, 0, 5, 30)))

        async def stop() -> None:
            scope.cancel(reason="the hour is over")
            await gone.wait()
            world.store.disarm()

        await serve(world, "closed", HOUR_S, stop=stop)


async def _people(world: World, scope: trio.CancelScope, gone: trio.Event) -> None:
    with scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make_trouble, world)
            for number in range(CLIENTS):
                sessions = world.draw.sample(SESSIONS, world.draw.randrange(3, 9))
                nursery.start_soon(Client(world, f"client{number}", sessions).run)
    gone.set()


def _check_end(world: World) -> None:
    assert world.waiting == 0, f"{world.waiting} calls were never replied to"
    world.ledger.check()
    recorder, ledger = world.recorder, world.ledger
    for session_id in SESSIONS:
        log = world.store.logs[session_id].events
        check_answers(log, ledger.acknowledged[session_id], ledger.refused[session_id])
        check_snapshots(log, (shown for shown in world.snapshots if shown.session == session_id))
        for event in log:
            recorder.event("log", session_id, event)
            recorder.counts.update(_kinds(event))
    recorder.count("snapshots", len(world.snapshots))
    recorder.count("store failures", world.store.failures)


def _kinds(event: ev.Event) -> Iterator[str]:
    yield type(event).__name__
    if isinstance(event, ev.RunCancelled) and event.stuck:
        yield "RunCancelled with a straggler"
    elif isinstance(event, ev.RunFailed):
        yield f"RunFailed {event.code}"
    elif isinstance(event, ev.AskSettled):
        yield f"AskSettled {event.outcome}"
    elif isinstance(event, ev.ToolFailed):
        yield f"ToolFailed {event.code}"


# ---- what must not be said


@contextmanager
def _listening() -> Generator[list[str]]:
    """Note what is ignored, written to stderr, or logged with a traceback that is not planned."""
    said: list[str] = []
    handler = _Ear(said)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda ignored: said.append(f"ignored {ignored.exc_value!r} in {ignored.object!r}")
    logging.getLogger().addHandler(handler)
    errors = io.StringIO()
    try:
        with redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("error")
            yield said
            gc.collect(1)
    finally:
        sys.unraisablehook = hook
        logging.getLogger().removeHandler(handler)
    if errors.getvalue():
        said.append(f"on stderr: {errors.getvalue()}")


class _Ear(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        error: Any = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, PlannedFault | PlannedError):
            self._said.append(f"logged with a traceback: {record.getMessage()}: {error!r}")


def _descriptors() -> int:
    return len(os.listdir("/dev/fd"))


# ---- many


def play(seed: int) -> Trace | str:
    """Play one seed; return what was found in words, for another process."""
    try:
        return simulate(seed)
    except Found as found:
        return "".join(traceback.format_exception(found))


def play_many(first: int, seeds: int, processes: int = 1) -> int:
    """Play many seeds and say how it goes.

    Returns:
        How many of them found something.
    """
    began, found = time.monotonic(), 0
    counts: Counter[str] = Counter()
    every = max(seeds // 20, 1)
    chosen = range(first, first + seeds)
    with ExitStack() as stack:
        results: Iterator[Trace | str] = map(play, chosen)
        if processes > 1:
            results = stack.enter_context(multiprocessing.get_context("spawn").Pool(processes)).imap(play, chosen)
        for number, result in enumerate(results, 1):
            if isinstance(result, str):
                found += 1
                print(result if seeds == 1 else result.rstrip().splitlines()[-1], flush=True)
            else:
                counts.update(result.counts)
            if number % every == 0:
                print(f"{number} of {seeds} after {time.monotonic() - began:.0f} s, {found} found", flush=True)
    print("\n".join(f"{count:>9} {what}" for what, count in sorted(counts.items())))
    print(f"{seeds} seeds from {first} on in {time.monotonic() - began:.0f} s: {found} found something")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.simulation", description="Play simulations.")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1, help="how many at a time")
    options = parser.parse_args(arguments)
    return 1 if play_many(options.first, options.seeds, options.processes) else 0


if __name__ == "__main__":
    sys.exit(main())
