"""An older layout becomes today's in one step or not at all; anything else is left as it is."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.stores import schema
from actors.stores.connecting import connect
from actors.stores.schema import APPLICATION_ID, NotAStore, check, prepare


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = connect(str(tmp_path / "s.db"))
    yield made
    made.close()


def tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_a_new_file_gets_all_steps_and_is_marked(connection: sqlite3.Connection) -> None:
    prepare(connection, "s.db")
    assert tables(connection) >= {"sessions", "events", "snapshots", "blobs"}
    assert check(connection, "s.db") == schema.VERSION
    prepare(connection, "s.db")  # nothing is left to be done


def test_an_older_layout_gets_the_steps_that_it_lacks_and_keeps_its_rows(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(connection, "s.db")
    connection.execute("INSERT INTO blobs VALUES (1, 'a', 'b', 0)")
    later = (*schema.STEPS, "ALTER TABLE blobs ADD COLUMN kind TEXT NOT NULL DEFAULT 'x';")
    monkeypatch.setattr(schema, "STEPS", later)
    monkeypatch.setattr(schema, "VERSION", len(later))
    prepare(connection, "s.db")
    assert connection.execute("SELECT * FROM blobs").fetchall() == [(1, "a", "b", 0, "x")]
    assert check(connection, "s.db") == len(later)


def test_a_step_that_fails_leaves_the_older_layout(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(connection, "s.db")
    version = schema.VERSION
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, "CREATE TABLE more (x); CREATE TABLE more (x);"))
    monkeypatch.setattr(schema, "VERSION", version + 1)
    with pytest.raises(sqlite3.OperationalError, match=r"^table more already exists$"):
        prepare(connection, "s.db")
    assert not connection.in_transaction
    assert "more" not in tables(connection)
    assert check(connection, "s.db") == version


def test_an_empty_file_is_no_store_to_who_only_reads(connection: sqlite3.Connection) -> None:
    with pytest.raises(NotAStore, match=r"^s\.db is empty, it is no store yet$"):
        check(connection, "s.db")
    assert check(connection, "s.db", new=True) == 0


def test_a_layout_without_a_number_is_refused(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    with pytest.raises(NotAStore, match=r"^s\.db has layout 0; this version knows layouts up to 1$"):
        prepare(connection, "s.db")
