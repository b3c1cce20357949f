"""The power goes while sessions write to a store, again and again; `python -m tests.faults.power_cut` counts.

A world is one folder, and lives in it: a store is opened, sessions load, write, snapshot, trim, delete, and at one call
of SQLite everything is out. Mostly it is the power, and what is left is what the disk had; sometimes it is only the
process, and the next life has what the system still had in memory. What is left after a cut is opened with the SQLite
of Python, and must be what the sessions were told of. The same seed cuts at the same calls.
"""

# pyright: reportPrivateUsage=false

import argparse
import errno
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

import trio

from actors.agent.ports import StoreError
from actors.runtime import open_system
from actors.stores import SqliteStore, connecting, writing
from actors.stores.reading import Reader
from actors.testing import run
from tests.faults.apsw_connection import ApswConnection
from tests.faults.disk import Disk, Write
from tests.faults.power_cut_sessions import Lost, Session, read_archive
from tests.faults.vfs import Call, Fault, FaultyVFS

STORE, ARCHIVE = "s.db", "old.jsonl"
_SESSIONS, _LIVES = 5, 6
_SKIPPED = (STORE + "-shm", STORE + ".lock")  # memory of processes, and theirs alone


@dataclass(slots=True)
class Result:
    """What a world has come to.

    Attributes:
        cuts: How often the power went.
        lost: How many of these took something that was acknowledged.
        wrong: What else was found.
        counts: What has happened in it.
    """

    cuts: int = 0
    lost: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])


class World:
    """One folder with a store and another one with its archive, on disks that are told what is synced.

    Attributes:
        said: What went wrong, as it was told.
    """

    def __init__(self, folder: Path, seed: int, *, sessions: int = _SESSIONS, synchronous: str = "FULL") -> None:
        self.rng = Random(seed)
        self.folder = folder
        self.place = folder / "0"
        self.disk, self.archive_disk = Disk(), Disk()
        self.result = Result()
        self.said: list[str] = []
        self.sessions = [Session(f"s{number}", self.result.counts) for number in range(sessions)]
        self.synchronous = synchronous
        self._seed = seed
        self._number = 0
        (self.place / "archive").mkdir(parents=True)

    def live(self, strikes: Callable[[Call], Fault | None], steps: int) -> FaultyVFS:
        """Let the sessions write until they are through, or everything is out. Return the door, which is closed."""
        self._number += 1
        vfs = FaultyVFS(f"world {id(self)} {self._number}", self.disk, strikes, self.rng)
        try:
            with self._patched(vfs):
                run(partial(self._life, steps), seed=self._seed + self._number)
        finally:
            vfs.unregister()
        return vfs

    async def _life(self, steps: int) -> None:
        async with open_system(name="life") as system:
            store = SqliteStore(self.place / STORE, archive=self.place / "archive" / ARCHIVE)
            try:
                await store.open(system)
            except StoreError as error:
                self.result.counts["not opened"] += 1
                self.said.append(str(error))
                return
            async with trio.open_nursery() as nursery:
                for session in self.sessions:
                    nursery.start_soon(session.live, store, self.rng, steps)
            await store.aclose()
            self.said += [text for session in self.sessions for text in session.said]

    def cut(self) -> None:
        """Let the power go, keep what the disks have, and look at a copy of it."""
        self.result.cuts += 1
        left = self.folder / str(self.result.cuts)
        (left / "archive").mkdir(parents=True)
        for disk, folder in ((self.disk, left), (self.archive_disk, left / "archive")):
            for name, data in disk.survive(self.rng).items():
                (folder / name).write_bytes(data)
        shutil.rmtree(self.place)
        self.place = left
        self.disk, self.archive_disk = Disk(), Disk()
        for disk, folder in ((self.disk, left), (self.archive_disk, left / "archive")):
            for file in folder.iterdir():
                if file.is_file():
                    disk.put(file.name, file.read_bytes())
        self.check()

    def check(self) -> None:
        """Look at a copy of what there is.

        Raises:
            Lost: Something is not there.
            AssertionError: Something is there in part, or is something else.
            StoreError: It cannot be opened, or a session cannot be loaded.
        """
        copy = self.folder / "copy"
        shutil.copytree(self.place, copy, ignore=shutil.ignore_patterns(*_SKIPPED))
        try:
            run(self._look, copy, seed=0)
        finally:
            shutil.rmtree(copy)

    async def _look(self, copy: Path) -> None:
        archived = read_archive(copy / "archive" / ARCHIVE)
        async with open_system(name="look") as system:
            store = SqliteStore(copy / STORE)
            await store.open(system)
            for session in self.sessions:
                await session.check(store, archived)
            await store.aclose()
        reader = Reader(copy / STORE)
        try:
            assert reader.integrity() == []
        finally:
            reader.close()

    @contextmanager
    def _patched(self, vfs: FaultyVFS) -> Generator[None]:
        def open_file(target: str, *, uri: bool = False) -> ApswConnection:
            return ApswConnection(target, vfs=vfs.name, uri=uri, rewrite=self._rewrite)

        with (
            patch.object(connecting, "open_file", open_file),
            patch.object(os, "fsync", partial(self._fsync, vfs)),
            patch.object(logging.getLogger("actors.store"), "disabled", True),  # it says every failure
            # A hundred checkpoints for each that there would be, and the log is cut back after most of them.
            patch.object(writing, "_CHECKPOINT_PAGES", 30),
            patch.object(writing, "_WAL_BYTES", 50_000),
        ):
            yield

    def _rewrite(self, statement: str) -> str:
        return statement.replace("synchronous = FULL", f"synchronous = {self.synchronous}")

    def _fsync(self, vfs: FaultyVFS, file: int) -> None:
        """Take a sync of the archive, or of its folder: it is written past SQLite, onto the same disk."""
        folder = self.place / "archive"
        fault = Fault.OUT if vfs.out else vfs.step("sync", ARCHIVE)
        if fault is not None:
            self._note_archive()
            number = errno.ENOSPC if fault is Fault.ENOSPC else errno.EIO
            raise OSError(number, os.strerror(number))
        if os.path.samestat(os.fstat(file), folder.stat()):
            self._note_archive()
            self.archive_disk.sync_names()
        else:
            assert os.path.samestat(os.fstat(file), (folder / ARCHIVE).stat())
            self._note_archive()
            self.archive_disk.open(ARCHIVE).sync()

    def _note_archive(self) -> None:
        """Have what was added to the archive on its disk, not synced."""
        path = self.place / "archive" / ARCHIVE
        if path.exists():
            content = self.archive_disk.open(ARCHIVE)
            known = len(content.synced) + sum(len(w.data) for w in content.pending if isinstance(w, Write))
            content.pending.append(Write(known, path.read_bytes()[known:]))


def play(seed: int, *, synchronous: str = "FULL", lives: int = _LIVES) -> Result:
    """Live in one world, up to the first thing that is found there."""
    with tempfile.TemporaryDirectory(prefix="power-cut-") as folder:
        world = World(Path(folder), seed, synchronous=synchronous)
        rng, result = world.rng, world.result
        try:
            for life in range(lives):
                vfs = world.live(_fatal(rng), rng.choice((0, 10, 40, 40)))
                result.counts["calls"] += vfs.calls
                result.counts[f"out at {vfs.struck.operation}" if vfs.struck else "closed in order"] += 1
                if life < lives - 1 and rng.random() < 0.3:
                    result.counts["killed"] += 1
                else:
                    world.cut()
        except Lost as lost:
            result.lost.append(f"seed {seed}, cut {result.cuts}: {lost}")
        except Exception as error:
            result.wrong.append(f"seed {seed}, cut {result.cuts}: {error!r}")
    return result


def _fatal(rng: Random) -> Callable[[Call], Fault | None]:
    """Return where everything is out: at a call, or at the next sync behind it."""
    # Not only in the middle: a store is as easily hurt while it is made, opened or closed.
    at = rng.randint(1, rng.choice((80, 500, 1_500, 1_500)))
    operations = ("sync",) if rng.random() < 0.3 else ()

    def strikes(call: Call) -> Fault | None:
        return Fault.OUT if call.number >= at and (not operations or call.operation in operations) else None

    return strikes


def play_many(cuts: int, first: int, *, synchronous: str = "FULL") -> Result:
    """Live in as many worlds as these cuts take."""
    total, seed = Result(), first
    while total.cuts < cuts:
        result = play(seed, synchronous=synchronous)
        total.cuts += result.cuts
        total.lost += result.lost
        total.wrong += result.wrong
        total.counts += result.counts
        seed += 1
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.power_cut", description="Cut the power.")
    parser.add_argument("--cuts", type=int, default=200, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first world; each later one has the next")
    parser.add_argument("--control", type=int, default=200, help="how many with synchronous=NORMAL, which must lose")
    options = parser.parse_args(arguments)
    wanted = {"FULL": options.cuts, "NORMAL": options.control}
    results: dict[str, Result] = {}
    for synchronous, cuts in wanted.items():
        began = time.monotonic()
        result = results[synchronous] = play_many(cuts, options.seed, synchronous=synchronous)
        for found in (result.lost + result.wrong)[:10] if synchronous == "FULL" else ():
            print(found)
        print(
            f"synchronous={synchronous}: {result.cuts} cuts, {len(result.lost)} lost, {len(result.wrong)} wrong, "
            f"{result.counts['acknowledged']} acknowledged, {time.monotonic() - began:.0f} s",
            flush=True,
        )
    full, control = results["FULL"], results["NORMAL"]
    return 1 if full.lost or full.wrong or (options.control and not control.lost) else 0


if __name__ == "__main__":
    sys.exit(main())
