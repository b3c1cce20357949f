"""The power goes at any moment: what was acknowledged, or shown, is there afterwards, and nothing is there in part.

`CUTS=5000` cuts more often; `python -m tests.faults.power_cut` counts.
"""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from actors.stores import connecting
from actors.stores.reading import Reader
from actors.stores.records import Append
from actors.stores.writing import Writer
from tests.faults import power_cut
from tests.faults.apsw_connection import ApswConnection
from tests.faults.disk import Disk
from tests.faults.power_cut import STORE, World, main, play_many
from tests.faults.power_cut_sessions import Session
from tests.faults.vfs import Call, Fault, FaultyVFS, never

CUTS = int(os.environ.get("CUTS", "200"))
LOG = STORE + "-wal"


def test_nothing_that_was_acknowledged_is_lost_when_the_power_goes() -> None:
    result = play_many(CUTS, 1)
    assert (result.lost, result.wrong) == ([], [])
    assert result.cuts >= CUTS
    assert result.counts["acknowledged"] >= 10 * CUTS
    wanted = {"killed", "append", "blob", "snapshot", "trim", "delete", "load", "resumed", "not opened",
              "closed in order", "out at write", "out at sync", "out at read"}  # fmt: skip
    assert wanted <= result.counts.keys(), f"these never happened: {sorted(wanted - result.counts.keys())}"


def test_with_less_than_full_syncs_something_is_lost() -> None:
    """The control: the same cuts find what is not on the disk."""
    for seed in range(1, 1 + CUTS):
        result = power_cut.play(seed, synchronous="NORMAL")
        assert result.wrong == []
        if result.lost:
            return
    pytest.fail("nothing was lost")


def test_the_same_seed_cuts_at_the_same_calls() -> None:
    assert power_cut.play(3) == power_cut.play(3)


def test_the_command_says_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cuts", "3", "--seed", "5", "--control", "0"]) == 0
    full, normal = capsys.readouterr().out.splitlines()
    assert full.startswith("synchronous=FULL: ") and " cuts, 0 lost, 0 wrong, " in full
    assert normal.startswith("synchronous=NORMAL: 0 cuts, 0 lost, 0 wrong, 0 acknowledged, ")


# ---- what the cuts have found


@pytest.mark.parametrize("seed", range(8))
def test_what_a_load_has_shown_after_a_kill_is_on_the_disk(tmp_path: Path, seed: int) -> None:
    """The process that was killed had written a commit to the log, and did not come to sync it."""
    world = World(tmp_path, seed, sessions=1)
    (session,) = world.sessions
    session.script = ["append"]
    world.live(never, 1)
    acknowledged = session.given.kept
    session.script = ["append"]
    world.live(at_the_sync_of_a_commit(session, Fault.OUT), 1)
    assert session.given.kept == acknowledged
    session.script = ["load"]
    world.live(lambda call: Fault.OUT if session.given.kept > acknowledged else None, 1)
    assert session.given.kept > acknowledged  # shown, and at once the power goes
    world.cut()  # and looks that it is there


@pytest.mark.parametrize("seed", range(8))
def test_what_is_committed_behind_a_sync_that_failed_is_on_the_disk(tmp_path: Path, seed: int) -> None:
    """The system forgets what it could not write. A log that went on behind that would end there after a cut."""
    world = World(tmp_path, seed, sessions=1)
    (session,) = world.sessions
    session.script = ["append"]
    world.live(at_the_sync_of_a_commit(session, Fault.EIO), 1)
    assert session.given.kept == 0
    session.script = ["append"] * 5
    world.live(lambda call: Fault.OUT if session.given.kept > 6 else None, 5)
    assert session.given.kept > 6
    world.cut()


def at_the_sync_of_a_commit(session: Session, fault: Fault) -> Callable[[Call], Fault | None]:
    """Return what strikes where frames of a session's records are synced in the log; it does not outlive that."""
    written = 0
    struck = False

    def strikes(call: Call) -> Fault | None:
        nonlocal written, struck
        if struck:
            return Fault.OUT
        if call.file != LOG or session.state.seq == session.given.kept:
            return None
        written += call.operation == "write"
        struck = call.operation == "sync" and written > 1  # one is of the head of a new log, which is synced alone
        return fault if struck else None

    return strikes


# ---- is it the truth


@pytest.mark.parametrize(("synchronous", "syncs"), [("FULL", 1), ("NORMAL", 0)])
def test_a_commit_is_written_and_synced_as_by_the_sqlite_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synchronous: str, syncs: int
) -> None:
    def write(folder: str, calls: list[Call]) -> tuple[int, list[str]]:
        (tmp_path / folder).mkdir()
        writer = Writer(tmp_path / folder / STORE)
        writer.write([Append("s", 0, [b"x" * 300], 1.0, log_id="log")])
        calls.clear()
        for seq in range(1, 20):
            writer.write([Append(f"s{seq}", 0, [b"x" * 300] * (seq % 5 + 1), 1.0, log_id="log")])
        size = (tmp_path / folder / LOG).stat().st_size
        operations = [call.operation for call in calls if call.file == LOG]
        writer.close()
        return size, operations

    size, _ = write("python", [])
    calls: list[Call] = []
    vfs = FaultyVFS("as python", Disk(), lambda call: calls.append(call), Random(1))

    def open_file(target: str, *, uri: bool = False) -> ApswConnection:
        def rewrite(statement: str) -> str:
            return statement.replace("synchronous = FULL", f"synchronous = {synchronous}")

        return ApswConnection(target, vfs=vfs.name, uri=uri, rewrite=rewrite)

    monkeypatch.setattr(connecting, "open_file", open_file)
    same, operations = write("apsw", calls)
    vfs.unregister()
    assert same == size
    assert operations.count("sync") == 19 * syncs
    assert operations[-1] == ("sync" if syncs else "write")


def test_a_backup_that_was_made_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    vfs = FaultyVFS("backup", disk, never, Random(1))

    def open_file(target: str, *, uri: bool = False) -> ApswConnection:
        return ApswConnection(target, vfs=vfs.name, uri=uri)

    with monkeypatch.context() as patch:
        patch.setattr(connecting, "open_file", open_file)
        writer = Writer(tmp_path / STORE)
        writer.write([Append("s", 0, [b"x" * 300] * 100, 1.0, log_id="log")])
        reader = Reader(tmp_path / STORE)
        reader.backup(tmp_path / "backup.db")
        reader.close()
        writer.close()
    vfs.unregister()
    for seed in range(50):
        left = tmp_path / str(seed)
        left.mkdir()
        for name, data in disk.survive(Random(seed)).items():
            if name.startswith("backup"):
                (left / name).write_bytes(data)
        backup = Reader(left / "backup.db")
        loaded = backup.load("s")
        backup.close()
        assert loaded is not None
        assert len(loaded.bodies) == 100
