"""What a writer leaves behind, finds when it opens, and does not keep from others."""

# pyright: reportPrivateUsage=false

import sqlite3
from pathlib import Path

import pytest

from actors.agent.ports import StoreError
from actors.stores import connecting
from actors.stores.reading import Reader
from actors.stores.records import Append, Damaged, Snapshot, Trim
from actors.stores.writing import Writer
from tests.actors.stores.keeping import sqlite_store


def filled(path: Path, *, archive: Path | None = None) -> Writer:
    writer = Writer(path, archive=archive)
    writer.write([Append("s", 0, [b"{}"] * 300, 1.0, log_id="log")])
    return writer


def log_is_free(writer: Writer) -> bool:
    busy, _, _ = writer._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def test_the_log_of_a_process_that_was_killed_is_in_the_file_when_a_store_is_open(tmp_path: Path) -> None:
    writer = filled(tmp_path / "s.db")
    for name in ("s.db", "s.db-wal"):  # as it is, with nobody who closes it
        (tmp_path / f"killed-{name}").write_bytes((tmp_path / name).read_bytes())
    writer.close()
    assert (tmp_path / "killed-s.db-wal").stat().st_size > 0
    again = Writer(tmp_path / "killed-s.db")
    assert (tmp_path / "killed-s.db-wal").stat().st_size == 0
    again.close()


async def test_a_program_that_reads_the_log_while_a_store_is_opened_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "BUSY_S", 0.0)
    writer = filled(tmp_path / "s.db")
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("BEGIN")
    assert other.execute("SELECT count(*) FROM events").fetchone() == (300,)
    writer.close()
    with pytest.raises(
        StoreError, match=r"s\.db: another program keeps it locked; close that program, then start again"
    ):
        async with sqlite_store(tmp_path / "s.db"):
            pass
    other.close()
    async with sqlite_store(tmp_path / "s.db") as store:
        assert [listed.seq for listed in await store.list_sessions()] == [300]


def test_the_error_of_a_read_does_not_hold_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that was left half-way would, as long as somebody has the error, and the log could only grow."""
    monkeypatch.setattr(connecting, "BUSY_S", 0.0)
    writer = filled(tmp_path / "s.db")
    writer._connection.execute("UPDATE events SET crc = 0 WHERE seq = 2")
    reader = Reader(tmp_path / "s.db")
    with pytest.raises(Damaged) as held:
        reader.load("s")
    assert log_is_free(writer)
    reader.close()
    writer.close()
    assert str(held.value) == "record 2 of session 's' is not what was written"
    assert not (tmp_path / "s.db-wal").exists()


def test_the_error_of_an_archive_does_not_hold_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "BUSY_S", 0.0)
    writer = filled(tmp_path / "s.db", archive=tmp_path / "nowhere" / "old.jsonl")
    writer.write([Snapshot("s", 300, b"state")])
    with pytest.raises(FileNotFoundError) as held:
        writer.write([Trim("s", 200)])
    writer.close()
    assert held.value.filename is not None
    again = Writer(tmp_path / "s.db")
    again.close()
    assert not (tmp_path / "s.db-wal").exists()


def test_a_sync_empties_the_drive_too(tmp_path: Path) -> None:
    """Where the system makes a difference: on macOS."""
    writer = Writer(tmp_path / "s.db")
    assert writer._connection.execute("PRAGMA fullfsync").fetchone() == (1,)
    writer.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "the disk is full; make room, then start again"),
        (OSError(5, "Input/output error"), "the disk reported an error; check the disk, then start again"),
    ],
)
def test_the_errors_of_an_archive_are_told_in_the_same_words(error: OSError, words: str) -> None:
    assert connecting.in_words("s.db", error) == f"store s.db: {words} ({error})"
