"""What is read from a store's file. Blocking; for a worker thread.

It decides that nothing damaged is ever handed out: each record has a checksum over its session, its seq and its bytes.
It must not know trio, or what records mean. It may be used while somebody else writes.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from actors.agent.memory import trimmed
from actors.agent.ports import StoredSession
from actors.stores import schema
from actors.stores.connecting import connect, connect_readonly
from actors.stores.records import Damaged, Loaded, checksum
from protocol.blobs import blob_name, is_parted, put_back
from protocol.errors import LocalProtocolError


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
        """Return the names of a session's blobs, but for large texts of its records.

        Raises:
            sqlite3.Error: The file cannot be read.
        """
        rows = self._connection.execute(
            "SELECT hash FROM blobs JOIN sessions ON id = session WHERE name = ? AND part = 0 ORDER BY hash", (session,)
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
        """Copy the whole store as it is at one moment, also while it is written. When this returns, it is on the disk.

        Raises:
            FileExistsError: There is a file already.
            OSError: The file cannot be made.
            sqlite3.Error: It cannot be written.
        """
        # Made here, so that nothing is overwritten, and nobody else can read what its owner alone could.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            target = connect(str(path))
            try:
                # With less, a power cut can bring back the journal that undoes all of it.
                target.execute("PRAGMA synchronous = EXTRA")
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
        return seq, self._whole(session, f"the snapshot at record {seq}", body)

    def _records(self, session: str, key: int, *, after: int, head: int, until: int | None = None) -> list[bytes]:
        bodies: list[bytes] = []
        query = "SELECT seq, crc, body FROM events WHERE session = ? AND seq > ? "
        # To the end of what is there, where all are wanted: a record behind the head is not to be overlooked.
        bound: tuple[Any, ...] = (key, after) if until is None else (key, after, until)
        query += "ORDER BY seq" if until is None else "AND seq <= ? ORDER BY seq"
        expected = after
        # All at once: a statement that is left half-way would see, and keep, the write-ahead log as it is now, for as
        # long as somebody holds the error that has ended it.
        for seq, crc, body in self._connection.execute(query, bound).fetchall():
            expected += 1
            if seq != expected:
                raise Damaged(session, f"record {expected} of session {session!r} is missing")
            if checksum(key, seq, body) != crc:
                raise Damaged(session, f"record {seq} of session {session!r} is not what was written")
            bodies.append(self._whole(session, f"record {seq}", body) if is_parted(body) else body)
        last = head if until is None else until
        if expected < last:
            raise Damaged(session, f"record {expected + 1} of session {session!r} is missing")
        if expected > last:
            raise Damaged(session, f"session {session!r} has a record {last + 1} behind its end")
        return bodies

    def _whole(self, session: str, what: str, body: bytes) -> bytes:
        """Return a record or a snapshot with its large texts."""
        try:
            return put_back(body, partial(self.blob, session))
        except LocalProtocolError as error:
            raise Damaged(session, f"{what} of session {session!r}: {error}") from None
