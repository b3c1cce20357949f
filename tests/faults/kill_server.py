"""A real server is killed at random moments while scripted clients work with it over real websockets.

`python -m tests.faults.kill_server --cycles 1000 --clients 100 --seed 1` plays many and says in one line what was
found. After every hundred cycles all runs are brought to their end, everything is checked, and a new store is begun.
What is drawn follows from the seed; where exactly a kill strikes does not.
"""

import argparse
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import trio

from actors.runtime import open_system
from actors.stores import SqliteStore
from protocol import events as ev
from tests.faults.kill_checks import check_session
from tests.faults.kill_client import Client
from tests.faults.kill_process import Launcher, LifeProcess, open_launcher
from tests.faults.kill_script import read_effects
from tests.faults.kill_server_program import Life
from tests.faults.kill_town import Town
from tests.faults.kill_view import Findings

TOKEN = "kill-" + "x" * 40
WINDOW_S = 0.3
CYCLES_PER_STORE = 100
COLD_EVERY = 10
#: Far above what any life takes: it ends what would hang.
GUARD_S = 90.0


@dataclass
class Score:
    """What was played and what was found.

    Attributes:
        counts: Of what happened, so that a test can see that there was something to find.
        reopen_ms: From the moment a life begins to open its store until its first attach is answered; and the part of
            it until it is ready to be connected to.
    """

    findings: Findings = field(default_factory=Findings)
    counts: Counter[str] = field(default_factory=Counter[str])
    reopen_ms: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    def percentile(self, part: float) -> float:
        """Return how long reopening takes at most in this part of all lives, in milliseconds."""
        ordered = sorted(self.reopen_ms)
        return ordered[min(int(len(ordered) * part), len(ordered) - 1)][0] if ordered else 0.0

    def line(self) -> str:
        """Return all of it in one line."""
        found, counts = self.findings.counts, self.counts
        return (
            f"{counts['cycles']} cycles, {counts['acknowledged']} acknowledged, {found['lost']} lost, "
            f"{found['duplicated']} duplicated, {found['gap']} gaps, {found['tool twice']} tools twice, "
            f"{found['wrong']} otherwise wrong; reopen p50 {self.percentile(0.5):.0f} ms, "
            f"p99 {self.percentile(0.99):.0f} ms"
        )


class Siege:
    """One store, its server in life after life, and its clients."""

    def __init__(self, folder: Path, launcher: Launcher, score: Score, *, clients: int, draw: random.Random) -> None:
        self.town = Town(TOKEN, score.findings)
        self.sessions = [f"s{number}" for number in range(clients)]
        self.life = Life(str(folder / "store.sqlite"), str(folder / "effects"), TOKEN, port=free_port())
        self._launcher = launcher
        self._score = score
        self._draw = draw
        self.clients = [
            Client(self.town, f"c{number}", self._watched(number), draw.randrange(2**32), pace=clients)
            for number in range(clients)
        ]

    def _watched(self, number: int) -> list[str]:
        """Every second client watches, and answers, its neighbour's session too."""
        own, other = self.sessions[number], self.sessions[number - 1]
        return [own, other] if number % 2 and other != own else [own]

    async def cycle(self, *, cold: bool) -> None:
        """Be one life that is killed at a random moment. A checkpoint."""
        process = await self._start(cold=cold)
        score, draw = self._score, self._draw
        score.counts["cycles"] += 1
        score.counts["cold starts"] += cold
        way = draw.random()
        if way < 0.06:
            await trio.sleep(draw.uniform(0, 0.03))  # while it opens
            await self._kill(process)
            return
        await self._wait_ready(process)
        async with trio.open_nursery() as nursery:
            self._let_in(nursery)
            (count,) = draw.choices((0, 3, 8, 20, 100), (4, 2, 4, 2, 1))
            with trio.fail_after(GUARD_S):  # sometimes all are at the door, sometimes many are at work
                await self.town.wait_attached(min(count, len(self.clients)))
            await trio.sleep(draw.uniform(0, WINDOW_S))
            if way < 0.16:
                score.counts["terms"] += 1
                self.town.over = True
                process.kill(signal.SIGTERM)
                await trio.sleep(draw.choice((0.0, 0.01, 0.05, 2.5)))  # the last of them sees it end in order
            await self._kill(process)

    async def _kill(self, process: LifeProcess) -> None:
        self.town.end_life()
        process.kill()
        with trio.fail_after(GUARD_S):
            await process.ended.wait()
        self._score.counts["ended in order" if process.status == 0 else "killed"] += 1
        self._note_reopen(process)

    async def end(self) -> None:
        """Bring all runs to their end, close the server in order, and check everything. A checkpoint."""
        process = await self._start(cold=False)
        await self._wait_ready(process)
        self.town.finishing = True
        with trio.fail_after(GUARD_S):
            async with trio.open_nursery() as nursery:
                self._let_in(nursery)
            await trio.lowlevel.checkpoint()
        process.kill(signal.SIGTERM)
        with trio.fail_after(GUARD_S):
            await process.ended.wait()
        self._note_reopen(process)
        if process.status != 0:
            self._score.findings.add("wrong", f"a server that was told to end ended with {process.status}")
        await self.check()

    async def check(self) -> None:
        """Compare what is kept with what clients saw and what tools noted. The server is gone. A checkpoint."""
        effects, counts = read_effects(self.life.effects), self._score.counts
        views = [view for client in self.clients for view in client.views.values()]
        for view in views:
            counts.update({f"attached {mode}": count for mode, count in view.modes.items()})
        counts.update(self.town.cut_off)
        for command in self.town.commands:
            counts["acknowledged"] += command.ack is not None
            counts[f"{command.method} {'acknowledged' if command.ack else 'refused'}"] += 1
        async with open_system(name="checks") as system:
            store = SqliteStore(self.life.store)
            await store.open(system)
            for session in self.sessions:
                log = await store.read(session, after=0, limit=10_000_000)
                counts.update(type(event).__name__ for event in log)
                counts.update(f"AskSettled {e.outcome}" for e in log if isinstance(e, ev.AskSettled))
                counts.update(f"ToolFailed {e.code}" for e in log if isinstance(e, ev.ToolFailed))
                seen = [view for view in views if view.session == session]
                check_session(session, log, seen, self.town.commands, effects, self._score.findings)
            await store.aclose()

    # ---- one life

    async def _start(self, *, cold: bool) -> LifeProcess:
        life = msgspec.structs.replace(self.life, seed=self._draw.randrange(2**32))
        process = await self._launcher.start(life, cold=cold)
        self.town.new_life(f"ws://127.0.0.1:{life.port}/ws")
        return process

    async def _wait_ready(self, process: LifeProcess) -> None:
        with trio.fail_after(GUARD_S):
            await process.ready.wait()
        if not process.port:
            raise RuntimeError(f"the server did not come up: it ended with {process.status}; see its errors")

    def _let_in(self, nursery: trio.Nursery) -> None:
        clients = list(self.clients)
        self._draw.shuffle(clients)
        for place, client in enumerate(clients):
            nursery.start_soon(partial(client.live, first=place == 0))

    def _note_reopen(self, process: LifeProcess) -> None:
        if self.town.answered_ns:
            moments = (self.town.answered_ns, process.ready_ns)
            answered_ms, ready_ms = ((moment - process.opening_ns) / 1e6 for moment in moments)
            self._score.reopen_ms.append((answered_ms, ready_ms))
            self.town.answered_ns = 0


def free_port() -> int:
    """Return a port that is free, and below those that the system gives to clients: so it stays free between lives."""
    draw = random.SystemRandom()
    while True:
        port = draw.randrange(20_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


async def play(
    folder: Path, *, cycles: int, clients: int, seed: int, hasty_s: float = 0.0, careless: bool = False,
    tell: bool = False,
) -> Score:  # fmt: skip
    """Play so many cycles, and return what was found.

    Args:
        folder: An empty one, for the stores.
        cycles: How often the server is killed.
        clients: How many clients it has, each with a session of its own.
        seed: What is drawn follows from it.
        hasty_s, careless: Faults that must be found; see `kill_server_program.Life`.
        tell: Print how it goes.
    """
    score, draw, began = Score(), random.Random(seed), time.monotonic()
    errors = folder / "errors"
    async with open_launcher(errors) as launcher:
        while score.counts["cycles"] < cycles:
            place = folder / f"store {score.counts['cycles']}"
            place.mkdir()
            siege = Siege(place, launcher, score, clients=clients, draw=draw)
            siege.life = msgspec.structs.replace(siege.life, hasty_s=hasty_s, careless=careless)
            for _ in range(min(CYCLES_PER_STORE, cycles - score.counts["cycles"])):
                await siege.cycle(cold=score.counts["cycles"] % COLD_EVERY == COLD_EVERY - 1)
                if hasty_s and score.findings.counts:
                    return score  # what such a store leaves may never come to its end
            await siege.end()
            if tell:
                print(f"after {time.monotonic() - began:.0f} s: {score.line()}", flush=True)
    said = errors.read_text(encoding="utf-8", errors="replace")
    if said:
        score.findings.add("wrong", f"the server wrote to stderr: {said[-4_000:]}")
    return score


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kill_server", description="Kill a server.")
    parser.add_argument("--cycles", type=int, default=1000, help="how often")
    parser.add_argument("--clients", type=int, default=100, help="how many work with it")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn follows from it")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        played = partial(play, cycles=options.cycles, clients=options.clients, seed=options.seed, tell=True)
        score = trio.run(played, Path(folder))
    print("\n".join(f"{count:>9} {what}" for what, count in sorted(score.counts.items())))
    print("\n".join(score.findings.texts))
    slowest = [f"{whole:.0f} ({ready:.0f} until it was ready)" for whole, ready in sorted(score.reopen_ms)[-3:]]
    print(f"slowest to reopen, in ms: {', '.join(slowest)}")
    print(score.line())
    return 1 if score.findings.counts else 0


if __name__ == "__main__":
    sys.exit(main())
