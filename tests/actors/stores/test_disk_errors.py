"""Each call of a scenario fails once: no commit is told that is none, the words are clear, and it opens again."""

# pyright: reportPrivateUsage=false

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from actors.runtime import InlineThreads
from actors.stores import connecting
from tests.actors.stores.keeping import Writing, custom, sqlite_store
from tests.faults.apsw_connection import ApswConnection
from tests.faults.disk import Disk
from tests.faults.power_cut import ARCHIVE, STORE, World
from tests.faults.vfs import Call, Fault, FaultyVFS, never

SCRIPTS = (("append", "snapshot", "trim", "blob"), ("append", "delete", "load", "append"))
WORDS = {
    Fault.EIO: ("the disk reported an error; check the disk, then start again",
                "it cannot be opened; check that its folder exists and may be written"),
    Fault.ENOSPC: ("the disk is full; make room, then start again",),
    Fault.SHORT: ("the disk is full; make room, then start again",),
}  # fmt: skip
#: By the fault: the calls that it can happen to.
CAN = {Fault.EIO: None, Fault.ENOSPC: ("write", "truncate", "sync"), Fault.SHORT: ("write",)}


class Nth:
    """The n-th of some calls fails, and no other."""

    def __init__(self, n: int, fault: Fault, of: Callable[[Call], bool]) -> None:
        self.fault = fault
        self.left = n
        self.struck: Call | None = None
        self._of = of

    def __call__(self, call: Call) -> Fault | None:
        self.left -= self._of(call)
        if self.left or self.struck:
            return None
        self.struck = call
        return self.fault


def scenario(folder: Path) -> World:
    world = World(folder, 1, sessions=len(SCRIPTS))
    for session, script in zip(world.sessions, SCRIPTS, strict=True):
        session.script = list(script)
    return world


def play(folder: Path, nth: Nth) -> World:
    """Play the scenario with one error, go on with what is there, and take a look at what a power cut leaves."""
    world = scenario(folder)
    world.live(nth, len(SCRIPTS[0]))
    for text in world.said:
        assert any(words in text for words in WORDS[nth.fault]), text
    # In the system's memory there may be more than on the disk: what a sync that failed was to keep.
    world.said.clear()
    for session in world.sessions:
        session.script = ["append"]
    world.live(never, 1)
    assert world.said == []
    world.cut()
    return world


@pytest.mark.parametrize("fault", CAN, ids=lambda fault: fault.value)
def test_an_error_at_any_call_makes_no_false_commit_and_nothing_is_lost(tmp_path: Path, fault: Fault) -> None:
    operations = CAN[fault]

    def of(call: Call) -> bool:
        return operations is None or call.operation in operations

    struck: dict[str, int] = {}
    for n in range(1, 2_000):
        nth = Nth(n, fault, of)
        play(tmp_path / "world", nth)
        shutil.rmtree(tmp_path / "world")
        if nth.struck is None:
            break
        struck[nth.struck.operation] = struck.get(nth.struck.operation, 0) + 1
    if operations is None:
        assert {"open", "read", "write", "sync", "truncate", "delete", "lock", "access", "size"} <= struck.keys()
    assert struck["write"] > 50


def test_the_scenario_has_everything_in_it(tmp_path: Path) -> None:
    files: set[tuple[str, str]] = set()

    def note(call: Call) -> None:
        files.add((call.operation, call.file))

    world = scenario(tmp_path)
    world.live(note, len(SCRIPTS[0]))
    assert {"append", "blob", "snapshot", "trim", "delete", "load", "acknowledged"} <= world.result.counts.keys()
    assert {("sync", ARCHIVE), ("sync", STORE), ("sync", STORE + "-wal"), ("sync", STORE + "-journal"),
            ("delete", STORE + "-wal"), ("truncate", STORE + "-wal")} <= files  # fmt: skip


async def test_a_sync_that_has_failed_once_is_never_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system forgets what it could not write: the next sync would succeed, with nothing on the disk."""
    armed = False

    def strikes(call: Call) -> Fault | None:
        nonlocal armed
        if not armed or call.operation != "sync":
            return None
        armed = False
        return Fault.EIO

    vfs = FaultyVFS("fails once", Disk(), strikes, Random(1))

    def open_file(target: str, *, uri: bool = False) -> ApswConnection:
        return ApswConnection(target, vfs=vfs.name, uri=uri)

    monkeypatch.setattr(connecting, "open_file", open_file)
    async with sqlite_store(tmp_path / STORE, threads=InlineThreads()) as store:
        session, other = Writing(store, "a").begin(), Writing(store, "b").begin()
        await session.wait_kept()
        await other.wait_kept()
        armed = True
        session.append(*custom(0))
        why = await session.wait_failed()
        assert "the disk reported an error; check the disk, then start again (disk I/O error)" in why
        assert session.heads == [1]
        calls = vfs.calls
        other.append(*custom(0))
        assert other.errors == [why]
        assert vfs.calls == calls
    vfs.unregister()
