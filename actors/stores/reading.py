"""What is read from a store's file. Blocking; for a worker thread.

It decides that nothing damaged is ever handed out: each record has a checksum over its session, its seq and its bytes.
It must not know trio, or what records mean. It may be used while somebody else writes.
"""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actors.agent.memory import blob_name, trimmed
from actors.agent.ports import StoredSession
from actors.stores import schema
from actors.stores.connecting import connect_readonly
from actors.stores.records import Damaged, Loaded, checksum


class Reader:
    """One connection that only reads. Not to be used by two threads at a time."""

    def __init__(self, path: str | Path) -> None:
        """Open a store that exists.

        Raises:
            NotAStore: It is another program's file, an empty one, or of a later layout.
            sqlite3.Error: It cannot be opened.
        """
        self._connection = connect_readonly(str(path))
        try:
            schema.check(self._connection, str(path))
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        self._connection.close()

    def load(self, session: str, *, from_snapshot: bool = True) -> Loaded | None:
        """Return a session: its snapshot, and the records behind it.

        Args:
            session: Its name.
            from_snapshot: False leaves the snapshot aside and returns all records that are kept.

        Raises:
            Damaged: Something of it cannot be read, or it was put into quarantine before.
            sqlite3.Error: The file cannot be read.
        """
        with self._one_moment():
            row = self._connection.execute(
                "SELECT id, log_id, head, first, damage FROM sessions WHERE name = ?", (session,)
            ).fetchone()
            if row is None:
                return None
            key, log_id, head, first, damage = row
            if damage is not None:
                raise Damaged(session, damage, lasting=False)
            seq, body = self._snapshot(session, key) if from_snapshot else (first - 1, None)
            if body is None and from_snapshot:
                seq = first - 1
            if not first - 1 <= seq <= head:
                raise Damaged(session, f"the snapshot of record {seq} is not one of records {first} to {head}")
            return Loaded(log_id, first, seq, body, self._records(session, key, after=seq, head=head))

    def read(self, session: str, *, after: int, limit: int) -> list[bytes]:
        """Return at most `limit` records behind `after`; none if there is no such session.

        Raises:
            Damaged: One of them cannot be read, or is not kept any more.
            sqlite3.Error: The file cannot be read.
        """
        with self._one_moment():
            row = self._connection.execute("SELECT id, head, first FROM sessions WHERE name = ?", (session,)).fetchone()
            if row is None:
                return []
            key, head, first = row
            if after + 1 < first:
                raise Damaged(session, trimmed(session, after + 1, first), lasting=False)
            if after >= head:
                return []
            return self._records(session, key, after=after, head=head, until=min(head, after + limit))

    def blob(self, session: str, name: str) -> bytes | None:
        """Return a blob.

        Raises:
            Damaged: Its bytes are not those that were written.
            sqlite3.Error: The file cannot be read.
        """
        row = self._connection.execute(
            "SELECT data FROM blobs JOIN sessions ON id = session WHERE name = ? AND hash = ?", (session, name)
        ).fetchone()
        if row is None:
            return None
        if blob_name(row[0]) != name:
            raise Damaged(session, f"blob {name} of session {session!r} is not what was written")
        data: bytes = row[0]
        return data

    def blob_names(self, session: str) -> list[str]:
        """Return the names of a session's blobs.

        Raises:
            sqlite3.Error: The file cannot be read.
        """
        rows = self._connection.execute(
            "SELECT hash FROM blobs JOIN sessions ON id = session WHERE name = ? ORDER BY hash", (session,)
        )
        return [str(name) for (name,) in rows]

    def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[StoredSession]:
        """Return at most `limit` sessions in the order of their names, from behind `after`.

        Raises:
            sqlite3.Error: The file cannot be read.
        """
        rows = self._connection.execute(
            "SELECT name, log_id, head, created, updated, status, asks, coalesce(damage, '') FROM sessions "
            "WHERE name > ? ORDER BY name LIMIT ?",
            (after, limit),
        )
        return [StoredSession(*row) for row in rows]

    def integrity(self) -> list[str]:
        """Return what SQLite itself finds wrong with the file; it reads all of it."""
        found = [str(row[0]) for row in self._connection.execute("PRAGMA integrity_check")]
        return [] if found == ["ok"] else found

    def backup(self, path: str | Path) -> None:
        """Copy the whole store as it is at one moment, also while it is written.

        Raises:
            FileExistsError: There is a file already.
            sqlite3.Error: It cannot be written.
        """
        with Path(path).open("xb"):
            pass  # made here, so that nothing is overwritten
        try:
            target = sqlite3.connect(str(path))
            try:
                self._connection.backup(target)
            finally:
                target.close()
        except BaseException:
            Path(path).unlink()  # half a backup is none, and must not be taken for one
            raise

    @contextmanager
    def _one_moment(self) -> Generator[None]:
        """See the file as it is at one moment: somebody else may append, or trim, between two statements."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")

    def _snapshot(self, session: str, key: int) -> tuple[int, bytes | None]:
        row = self._connection.execute("SELECT seq, crc, body FROM snapshots WHERE session = ?", (key,)).fetchone()
        if row is None:
            return 0, None
        seq, crc, body = row
        if checksum(key, seq, body) != crc:
            raise Damaged(session, f"the snapshot of session {session!r} at record {seq} is not what was written")
        return seq, body

    def _records(self, session: str, key: int, *, after: int, head: int, until: int | None = None) -> list[bytes]:
        bodies: list[bytes] = []
        query = "SELECT seq, crc, body FROM events WHERE session = ? AND seq > ? "
        # To the end of what is there, where all are wanted: a record behind the head is not to be overlooked.
        bound: tuple[Any, ...] = (key, after) if until is None else (key, after, until)
        rows = self._connection.execute(query + ("" if until is None else "AND seq <= ? ") + "ORDER BY seq", bound)
        expected = after
        for seq, crc, body in rows:
            expected += 1
            if seq != expected:
                raise Damaged(session, f"record {expected} of session {session!r} is missing")
            if checksum(key, seq, body) != crc:
                raise Damaged(session, f"record {seq} of session {session!r} is not what was written")
            bodies.append(body)
        last = head if until is None else until
        if expected < last:
            raise Damaged(session, f"record {expected + 1} of session {session!r} is missing")
        if expected > last:
            raise Damaged(session, f"session {session!r} has a record {last + 1} behind its end")
        return bodies
