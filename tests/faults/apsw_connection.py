"""A connection of apsw that looks like one of `sqlite3`, as far as the store can tell.

It decides nothing: statements go through, errors become those of `sqlite3` with their texts. Two things differ between
the two and are levelled here. apsw raises whatever its door to the disk has raised, also where SQLite itself goes on: a
commit that is on the disk is one, though the checkpoint behind it failed, and a connection that is closed is closed.
"""

# What apsw says of bytes has a name that Python 3.11 does not have.
# pyright: reportUnknownMemberType=false

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import apsw

_ERRORS: dict[type[apsw.Error], tuple[type[sqlite3.Error], str]] = {
    apsw.IOError: (sqlite3.OperationalError, "disk I/O error"),
    apsw.FullError: (sqlite3.OperationalError, "database or disk is full"),
    apsw.CantOpenError: (sqlite3.OperationalError, "unable to open database file"),
    apsw.BusyError: (sqlite3.OperationalError, "database is locked"),
    apsw.ReadOnlyError: (sqlite3.OperationalError, "attempt to write a readonly database"),
    apsw.CorruptError: (sqlite3.DatabaseError, "database disk image is malformed"),
    apsw.NotADBError: (sqlite3.DatabaseError, "file is not a database"),
}


@contextmanager
def _as_sqlite3() -> Generator[None]:
    try:
        yield
    except apsw.ConstraintError as error:
        raise sqlite3.IntegrityError(str(error)) from error
    except apsw.Error as error:
        kind, text = _ERRORS.get(type(error), (sqlite3.OperationalError, str(error)))
        raise kind(text) from error


class ApswCursor:
    """What a statement has returned."""

    def __init__(self, inner: apsw.Cursor | None, rowcount: int, lastrowid: int) -> None:
        self._inner = inner
        self.rowcount = rowcount
        self.lastrowid = lastrowid

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def __del__(self) -> None:
        self.close()

    def fetchone(self) -> tuple[Any, ...] | None:
        if self._inner is None:
            return None
        with _as_sqlite3():
            return next(self._inner, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self)

    def close(self) -> None:
        if self._inner is not None:
            with suppress(apsw.Error):  # whoever leaves a statement half-way hears no more of it
                self._inner.close()


class ApswConnection:
    """Takes the place of what `actors.stores.connecting.open_file` returns."""

    def __init__(
        self, target: str, *, vfs: str, uri: bool = False, rewrite: Callable[[str], str] = lambda sql: sql
    ) -> None:
        """Open a file.

        Args:
            target: Its path, or an URI.
            vfs: The name of the door to the disk.
            uri: Whether `target` is one.
            rewrite: Changes statements before they are executed, for controls.
        """
        self._rewrite = rewrite
        self._committed = False
        self._checkpoint_pages = 1_000  # what SQLite begins with
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | (apsw.SQLITE_OPEN_URI if uri else 0)
        with _as_sqlite3():
            self.inner = apsw.Connection(target, flags=flags, vfs=vfs)
            self.inner.set_wal_hook(self._after_commit)

    @property
    def in_transaction(self) -> bool:
        return self.inner.in_transaction

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> ApswCursor:
        statement = self._rewrite(statement)
        name, _, value = statement.partition(" = ")
        if name == "PRAGMA wal_autocheckpoint":  # SQLite would put its own function where `_after_commit` is
            self._checkpoint_pages = int(value)
            return ApswCursor(None, -1, 0)
        before = self.inner.total_changes()
        self._committed = False
        cursor: apsw.Cursor | None = None
        with _as_sqlite3():
            try:
                cursor = self.inner.execute(statement, tuple(parameters))
            except apsw.Error:
                if not self._committed:
                    raise
        return ApswCursor(cursor, self.inner.total_changes() - before, self.inner.last_insert_rowid())

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> ApswCursor:
        before = self.inner.total_changes()
        with _as_sqlite3():
            self.inner.executemany(statement, [tuple(row) for row in parameters])
        return ApswCursor(None, self.inner.total_changes() - before, self.inner.last_insert_rowid())

    def executescript(self, script: str) -> ApswCursor:
        return self.execute(script)

    def rollback(self) -> None:
        if self.in_transaction:
            self.execute("ROLLBACK")

    def backup(self, target: "ApswConnection") -> None:
        with _as_sqlite3(), target.inner.backup("main", self.inner, "main") as backup:
            backup.step()

    def close(self) -> None:
        with suppress(apsw.Error):  # it is closed all the same
            self.inner.close()

    def _after_commit(self, connection: apsw.Connection, database: str, pages: int) -> int:
        """Do what SQLite does by itself: move the log into the file, and leave it where it is if that fails."""
        self._committed = True
        if pages >= self._checkpoint_pages:
            with suppress(apsw.Error):
                connection.wal_checkpoint(database, apsw.SQLITE_CHECKPOINT_PASSIVE)
        return apsw.SQLITE_OK
