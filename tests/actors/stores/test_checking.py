"""What a check of a store finds: each damaged session by its first fault, and the rest as it is."""

import sqlite3
from pathlib import Path

import pytest
import trio

from actors import ScriptedModel, open_agent
from actors.models.scripted import say
from actors.stores import SqliteStore
from actors.stores.checking import Report, check_store
from actors.stores.reading import Reader
from actors.stores.records import Loaded
from actors.stores.writing import Writer

NAMES = ("alpha", "beta", "gamma")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    async def fill() -> None:
        async with open_agent(ScriptedModel([say(name) for name in NAMES]), store=SqliteStore(tmp_path / "s")) as agent:
            for name in NAMES:
                await agent.run("Say it.", session_id=name)

    trio.run(fill)
    return tmp_path / "s"


def checked(path: Path) -> Report:
    reader = Reader(path)
    try:
        return check_store(reader)
    finally:
        reader.close()


def change(path: Path, statement: str) -> None:
    writer = Writer(path)
    writer._connection.execute(statement)
    writer.close()


def test_a_sound_store_is_counted(path: Path) -> None:
    report = checked(path)
    assert (report.sound, report.sessions, report.blobs, report.file, report.damaged) == (True, 3, 0, [], {})
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (report.records,)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE events SET crc = crc + 1 WHERE session = 2 AND seq = 3",
         "record 3 of session 'beta' is not what was written"),
        ("DELETE FROM events WHERE session = 2 AND seq = 2", "record 2 of session 'beta' is missing"),
        ("UPDATE sessions SET damage = 'bad' WHERE id = 2", "bad"),
        ("INSERT INTO snapshots VALUES (2, 3, 1, x'00')",
         "the snapshot of session 'beta' at record 3 is not what was written"),
        ("INSERT INTO blobs (session, hash, data) VALUES (2, 'h', x'00')",
         "blob h of session 'beta' is not what was written"),
    ],
)  # fmt: skip
def test_a_damaged_session_is_named_with_its_fault(path: Path, statement: str, fault: str) -> None:
    change(path, statement)
    report = checked(path)
    assert (report.sound, report.sessions, report.damaged) == (False, 3, {"beta": fault})


def test_records_that_do_not_fold_are_damage(path: Path) -> None:
    reader = Reader(path)
    beta = reader.load("beta")
    assert beta is not None
    load = reader.load

    def two_beginnings(session: str, *, from_snapshot: bool = True) -> Loaded | None:
        loaded = load(session, from_snapshot=from_snapshot)
        assert loaded is not None
        return Loaded(loaded.log_id, 1, 0, None, loaded.bodies[1:]) if session == "beta" else loaded

    reader.load = two_beginnings  # type: ignore[method-assign]
    report = check_store(reader)
    reader.close()
    assert list(report.damaged) == ["beta"]
    assert report.damaged["beta"].startswith("it does not fold: ")


def test_pages_that_cannot_be_read_concern_the_session_that_is_in_them(path: Path) -> None:
    report = with_error(path, sqlite3.DatabaseError("database disk image is malformed"))
    assert (report.sessions, report.damaged) == (
        3, {"beta": "pages of the file that it is in cannot be read: database disk image is malformed"},
    )  # fmt: skip


def test_sessions_are_looked_at_when_the_file_cannot_be_read_to_its_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def malformed(self: Reader) -> list[str]:
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(Reader, "integrity", malformed)
    report = checked(path)
    assert (report.file, report.sessions, report.damaged) == (["database disk image is malformed"], 3, {})

    def failing(self: Reader) -> list[str]:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Reader, "integrity", failing)
    with pytest.raises(sqlite3.OperationalError, match=r"^disk I/O error$"):
        checked(path)


def test_a_disk_that_fails_ends_the_check(path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match=r"^disk I/O error$"):
        with_error(path, sqlite3.OperationalError("disk I/O error"))


def with_error(path: Path, error: Exception) -> Report:
    reader = Reader(path)
    load = reader.load

    def failing(session: str, *, from_snapshot: bool = True) -> Loaded | None:
        if session == "beta":
            raise error
        return load(session, from_snapshot=from_snapshot)

    reader.load = failing  # type: ignore[method-assign]
    try:
        return check_store(reader)
    finally:
        reader.close()
