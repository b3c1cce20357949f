"""What is written to a store's file: everything of one batch in one transaction. Blocking; for a worker thread.

It decides that a log in the file has no gap, and no record that two writers believe to be theirs. It must not know
trio, or what records mean. Whoever writes holds the store's lock.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from actors.agent.memory import misplaced
from actors.stores import schema
from actors.stores.archive import archive
from actors.stores.connecting import connect
from actors.stores.records import Append, Blob, Delete, Quarantine, Refused, Snapshot, Trim, Write, checksum
from protocol.blobs import Texts, names_in, put_back
from protocol.errors import LocalProtocolError
from protocol.stored import record_time

#: Pages of the write-ahead log, of 4 kB, after which a commit moves it into the file: 16 MB, 50 ms of recovery.
_CHECKPOINT_PAGES = 4_000
#: A log that has grown beyond is cut back to this after it was moved.
_WAL_BYTES = 16_777_216
#: Sessions whose number in the file is remembered.
_IDS_KEPT = 100_000
_UPDATE = "UPDATE sessions SET head = ?, updated = ?, status = ?, asks = ? WHERE id = ? AND head = ?"


class _Misplaced(Exception):
    """The log of one of many sessions is not where it should be."""


class _Head(NamedTuple):
    """Where the log of a session ends, in the order that the statement takes it."""

    head: int
    updated: float
    status: str
    asks: int
    key: int
    after: int


_Update = Callable[[sqlite3.Connection, dict[str, _Head]], None]


def _update_together(connection: sqlite3.Connection, heads: dict[str, _Head]) -> None:
    if connection.executemany(_UPDATE, heads.values()).rowcount != len(heads):
        raise _Misplaced


def _update_each(connection: sqlite3.Connection, heads: dict[str, _Head]) -> None:
    for name, head in heads.items():
        if connection.execute(_UPDATE, head).rowcount != 1:
            raise Refused(name, misplaced(name, head.after))


class Writer:
    """The one connection that writes. Not to be used by two threads at a time."""

    def __init__(self, path: str | Path, *, archive: Path | None = None) -> None:
        """Open a store to write it: make it, or bring it to this layout.

        Args:
            path: Its file.
            archive: Gets the records that are trimmed.

        Raises:
            NotAStore: It is another program's file, or of a later layout.
            sqlite3.Error: It cannot be opened or written.
        """
        self._ids: dict[str, int] = {}
        self._archive = archive
        self._connection = connect(str(path))
        try:
            # First of all, and before anything is written: another program's file is left as it is.
            schema.check(self._connection, str(path), new=True)
            execute = self._connection.execute
            execute("PRAGMA journal_mode = WAL")
            # A commit returns when it is on the disk. With NORMAL a power cut takes acknowledged records with it.
            execute("PRAGMA synchronous = FULL")
            # On macOS a sync alone leaves it in the memory of the drive; elsewhere this changes nothing.
            execute("PRAGMA fullfsync = ON")
            execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
            schema.prepare(self._connection, str(path))
            self._settle()
        except BaseException:
            self._connection.close()
            raise

    def _settle(self) -> None:
        """Have on the disk whatever can be read, before anybody reads it or writes behind it.

        A process that was killed, or a sync that failed, leaves a commit in the log that is in the system's memory
        only. A power cut would take it from those who were shown it, and with it all that is committed behind it: a
        log is good up to its first gap. So the log is moved into the file, and begins anew.
        """
        busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("database is locked")

    def close(self) -> None:
        """Move the write-ahead log into the file and let go of it. Idempotent."""
        self._connection.close()

    def write(self, batch: Sequence[Write]) -> frozenset[str]:
        """Write everything in one transaction. When this returns, it is on the disk; if it raises, it is not.

        Returns:
            The sessions that were there and were deleted.

        Raises:
            Refused: Something of one session cannot be written, so nothing was; without it the others may go on.
            OSError: The archive cannot be written.
            sqlite3.Error: The file cannot be written. After an error of the commit itself only the file knows.
        """
        try:
            return self._transact(batch, _update_together)
        except _Misplaced:
            # Rare, and not to be told from the rows: one by one it shows whose log is not where it should be.
            return self._transact(batch, _update_each)

    def _transact(self, batch: Sequence[Write], update: "_Update") -> frozenset[str]:
        deleted: set[str] = set()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            appends: list[Append] = []
            for write in batch:
                if isinstance(write, Append):
                    appends.append(write)
                    continue
                self._append(appends, update)  # what is written about records comes after them
                appends = []
                self._write_other(write, deleted)
            self._append(appends, update)
            self._connection.execute("COMMIT")
        except BaseException:
            self._ids.clear()  # some of them may be of sessions that are not there after all
            with suppress(sqlite3.Error):  # the first error is the one to be told
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            raise
        if len(self._ids) > _IDS_KEPT:
            self._ids.clear()
        return frozenset(deleted)

    def _append(self, appends: Sequence[Append], update: "_Update") -> None:
        """Write the records of many sessions: two statements for all of them, they are half of what a record costs."""
        if not appends:
            return
        heads: dict[str, _Head] = {}
        rows: list[tuple[int, int, int, bytes]] = []
        for write in appends:
            if write.log_id:
                self._create(write)
            key = self._id(write.session)
            before = heads.get(write.session)
            if before is not None and write.after != before.head:
                raise Refused(write.session, misplaced(write.session, write.after))
            head = write.after + len(write.bodies)
            after = write.after if before is None else before.after
            heads[write.session] = _Head(head, write.now, write.status, write.asks, key, after)
            for seq, body in enumerate(write.bodies, write.after + 1):
                rows.append((key, seq, checksum(key, seq, body), body))
            if write.texts:
                self._keep(key, write.texts)
        update(self._connection, heads)
        self._connection.executemany("INSERT INTO events (session, seq, crc, body) VALUES (?, ?, ?, ?)", rows)

    def _keep(self, key: int, texts: Texts) -> None:
        rows = [(key, name, data) for name, data in texts.items()]
        self._connection.executemany(
            "INSERT OR IGNORE INTO blobs (session, hash, data, part) VALUES (?, ?, ?, 1)", rows
        )

    def _create(self, write: Append) -> None:
        try:
            cursor = self._connection.execute(
                "INSERT INTO sessions (name, log_id, head, first, created, updated) VALUES (?, ?, ?, ?, ?, ?)",
                (write.session, write.log_id, write.after, write.after + 1, write.now, write.now),
            )
        except sqlite3.IntegrityError:
            raise Refused(write.session, f"session {write.session!r} has a log already") from None
        assert cursor.lastrowid is not None
        self._ids[write.session] = cursor.lastrowid

    def _write_other(self, write: Snapshot | Blob | Trim | Delete | Quarantine, deleted: set[str]) -> None:
        execute = self._connection.execute
        match write:
            case Snapshot(session=session, seq=seq, body=body, texts=texts):
                key = self._id(session)
                if execute("SELECT 1 FROM sessions WHERE id = ? AND head >= ?", (key, seq)).fetchone() is None:
                    raise Refused(session, f"session {session!r} has no record {seq} for its snapshot")
                row = (key, seq, checksum(key, seq, body), body)
                execute("INSERT OR REPLACE INTO snapshots (session, seq, crc, body) VALUES (?, ?, ?, ?)", row)
                self._keep(key, texts)
            case Blob(session=session, name=name, data=data):
                row_ = (self._id(session), name, data)
                # Asked for by name: from here on it does not go with the records that have it.
                execute(
                    "INSERT INTO blobs (session, hash, data) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET part = 0", row_
                )
            case Trim():
                self._trim(write)
            case Delete(session=session):
                if self._delete(session):
                    deleted.add(session)
            case Quarantine(session=session, why=why):
                execute("UPDATE sessions SET damage = ? WHERE name = ?", (why, session))

    def _trim(self, write: Trim) -> None:
        key = self._id(write.session)
        row = self._connection.execute(
            "SELECT min(?, snapshots.seq + 1, head), first, log_id FROM sessions "
            "JOIN snapshots ON session = id WHERE id = ?",
            (write.first, key),
        ).fetchone()
        if row is None or row[0] <= row[1]:
            return
        first, oldest, log_id = row
        if write.before is not None:
            first = self._first_since(key, first, write.before)
            if first <= oldest:
                return
        if self._archive is not None:
            query = "SELECT body FROM events WHERE session = ? AND seq < ? ORDER BY seq"
            # Closed, also by an error, which would otherwise keep it, and with it this connection, for as long as it
            # is held by somebody itself.
            with closing(self._connection.execute(query, (key, first))) as bodies:
                archive(self._archive, write.session, log_id, (self._whole(key, body) for (body,) in bodies))
        self._connection.execute("DELETE FROM events WHERE session = ? AND seq < ?", (key, first))
        self._connection.execute("UPDATE sessions SET first = ? WHERE id = ?", (first, key))
        self._forget_texts(key)

    def _first_since(self, key: int, end: int, before: float) -> int:
        """Return the first record before `end` that is not older than `before`, else `end`."""
        rows = self._connection.execute(
            "SELECT seq, body FROM events WHERE session = ? AND seq < ? ORDER BY seq", (key, end)
        )
        for seq, body in rows:
            time = record_time(body)
            if time is None or time >= before:
                return int(seq)
        return end

    def _whole(self, key: int, body: bytes) -> bytes:
        """Return a record with its large texts; one that is damaged as it is."""
        try:
            return put_back(body, partial(self._text, key))
        except LocalProtocolError:
            return body

    def _text(self, key: int, name: str) -> bytes | None:
        row = self._connection.execute("SELECT data FROM blobs WHERE session = ? AND hash = ?", (key, name)).fetchone()
        return None if row is None else row[0]

    def _forget_texts(self, key: int) -> None:
        """Delete the texts that no record and no snapshot has any more."""
        execute = self._connection.execute
        texts = {name for (name,) in execute("SELECT hash FROM blobs WHERE session = ? AND part = 1", (key,))}
        if not texts:
            return
        kept = execute(
            "SELECT body FROM events WHERE session = ? UNION ALL SELECT body FROM snapshots WHERE session = ?",
            (key, key),
        )
        for (body,) in kept:
            try:
                texts -= names_in(body)
            except LocalProtocolError:
                return  # who knows what it needs
        self._connection.executemany(
            "DELETE FROM blobs WHERE session = ? AND hash = ?", [(key, name) for name in texts]
        )

    def _delete(self, session: str) -> bool:
        self._ids.pop(session, None)
        row = self._connection.execute("SELECT id FROM sessions WHERE name = ?", (session,)).fetchone()
        if row is None:
            return False
        for table in ("events", "snapshots", "blobs"):
            self._connection.execute(f"DELETE FROM {table} WHERE session = ?", row)
        self._connection.execute("DELETE FROM sessions WHERE id = ?", row)
        return True

    def _id(self, session: str) -> int:
        key = self._ids.get(session)
        if key is None:
            row = self._connection.execute("SELECT id FROM sessions WHERE name = ?", (session,)).fetchone()
            if row is None:
                raise Refused(session, f"session {session!r} has no log in the store")
            key = self._ids[session] = int(row[0])
        return key
