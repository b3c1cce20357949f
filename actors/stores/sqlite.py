"""`SqliteStore`: every session's log in one file, on the disk before anything of it leaves the process.

It decides what of the port becomes which write, and what a reader is told of damage. What is written together and when
is decided in `commits`, how the file looks in `writing` and `reading`.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct

from actors.agent.ports import CommitSink, StoredSession, StoreError
from actors.runtime import System
from actors.stores.commits import Item
from actors.stores.connecting import in_words
from actors.stores.files import Files
from actors.stores.opened import OpenedStore, nothing
from actors.stores.reading import Reader
from actors.stores.records import Append, Blob, Damaged, Delete, Refused, Snapshot, Trim
from protocol.blobs import Texts, blob_name, take_out
from protocol.errors import Code, LocalProtocolError, RuleViolation
from protocol.events import Event
from protocol.history import State
from protocol.limits import DEFAULT_LIMITS, Limits
from protocol.stored import decode_record, decode_state, encode_record, encode_state


class SqliteLog(Struct, frozen=True):
    """A log as `load` returns it; see `StoredLog`."""

    log_id: str
    first: int
    snapshot: State | None
    events: Sequence[Event]


class SqliteStore:
    """Keeps logs in a SQLite file: write-ahead log, a commit returns when it is on the disk.

    It needs `open`, and lives until `aclose` or until its system ends. After an error of the disk it writes nothing
    more, and every session is told why; what was committed is there when it is opened again.
    """

    def __init__(
        self, path: str | Path, *, archive: str | Path | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        """Name the files; nothing is opened yet.

        Args:
            path: The store, in a folder that exists; made where it does not exist. Beside it are `-wal` and `-shm`,
                which belong to it, and `.lock`.
            archive: A file of JSON lines that gets the records that are trimmed; without one they are gone.
            limits: A text of more than `blob_bytes` is kept beside the records and snapshots that have it, once.

        Raises:
            ValueError: `:memory:` or "" is no file.
        """
        if str(path) in (":memory:", "", "."):
            raise ValueError(f"a store is a file, not {str(path)!r}; MemoryStore keeps logs in memory")
        self._path = Path(path)
        self._archive = None if archive is None else Path(archive)
        self._most = limits.blob_bytes
        self._opened: OpenedStore | None = None
        self._new: dict[str, str] = {}

    async def open(self, system: System) -> None:
        """Open the file and start the actor that writes. A checkpoint.

        Raises:
            StoreError: Another process has it, it is no store, or the disk says no. The text says what to do.
        """
        if self._opened is not None:
            raise StoreError(f"store {self._path} was opened before; make another one")
        files = await system.threads.run_sync(partial(Files, self._path, archive=self._archive))
        opened = OpenedStore(str(self._path), files, system.threads)
        try:
            opened.ref = await system.spawn(opened.body, name=f"store {self._path}", mailbox_size=1)
        except BaseException:
            files.close()  # no checkpoint: nothing was written, so there is nothing to be moved
            raise
        self._opened = opened

    def create(self, session_id: str, log_id: str) -> None:
        """Begin a log. It is in the file with its first records.

        Raises:
            RuleViolation: `store.failed` - it was begun already.
        """
        if session_id in self._new:
            raise RuleViolation(Code.STORE_FAILED, f"session {session_id!r} has a log already")
        self._new[session_id] = log_id

    async def load(self, session_id: str) -> SqliteLog | None:
        """Return a session's log once all that was taken is on the disk. A checkpoint.

        Raises:
            StoreError: `store.damaged` - something of it cannot be read: it is not opened again until that is
                repaired. `store.failed` - the store has failed or is closed.
        """
        opened = self._now_open()
        self._new.pop(session_id, None)  # begun by somebody who never wrote a record
        await opened.commits.wait_written()
        if opened.commits.failed is not None:
            raise opened.commits.failed
        return await opened.read(_load, session_id)

    async def read(self, session_id: str, *, after: int, limit: int) -> Sequence[Event]:
        """Return at most `limit` committed records behind `after`. A checkpoint.

        Raises:
            StoreError: `store.damaged` - one of them cannot be read, or is not kept any more; `store.failed`.
        """
        return await self._now_open().read(_read, session_id, after, limit)

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        summary: Callable[[], tuple[str, int]] | None = getattr(sink, "summary", None)
        status, asks = ("idle", 0) if summary is None else summary()
        new = self._new.pop(session_id, "")
        make = partial(_make_append, session_id, tuple(events), status, asks, new, self._most)
        done = partial(sink.commit, events[-1].seq)
        self._now_open().commits.put(Item(session_id, make, done, sink.store_failed, len(events)))

    def save_snapshot(self, session_id: str, state: State) -> None:
        """Keep a copy of the state, behind what was appended. If that fails, the log is all there is to load."""
        self._put(session_id, partial(_make_snapshot, session_id, state.seq, encode_state(state), self._most))

    def trim(self, session_id: str, first: int, *, before: float | None = None) -> None:
        """Move the records before `first` to the archive, as far as a snapshot covers them. The last record stays."""
        self._put(session_id, partial(Trim, session_id, first, before))

    def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep bytes, before what is appended later."""
        name = blob_name(data)
        self._put(session_id, partial(Blob, session_id, name, data))
        return name

    async def get_blob(self, session_id: str, name: str) -> bytes | None:
        """Return bytes by their name, or None. A checkpoint.

        Raises:
            StoreError: `store.damaged` - they are not what was put; `store.failed`.
        """
        opened = self._now_open()
        await opened.commits.wait_written()
        return await opened.read(Reader.blob, session_id, name)

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> Sequence[StoredSession]:
        """Return at most `limit` sessions behind `after`, in the order of their ids. A checkpoint.

        Raises:
            StoreError: `store.failed`.
        """
        return await self._now_open().read(_list, after, limit)

    async def delete(self, session_id: str) -> bool:
        """Forget a session and everything of it; False if there is none. A checkpoint; a cancel waits for the commit.

        Raises:
            StoreError: `store.failed`.
        """
        opened = self._now_open()
        self._new.pop(session_id, None)
        through = trio.Event()
        outcome: list[bool | StoreError] = []

        def tell(what: bool | StoreError) -> None:
            outcome.append(what)
            through.set()

        def done() -> None:
            tell(session_id in opened.commits.deleted)

        opened.commits.put(Item(session_id, partial(Delete, session_id), done, tell))
        with trio.CancelScope(shield=True):  # cancelled never means: perhaps deleted
            await through.wait()
        (result,) = outcome
        if isinstance(result, StoreError):
            raise result
        return result

    async def release(self, session_id: str) -> None:
        """The session was closed; its log stays. Not a checkpoint."""
        self._new.pop(session_id, None)

    async def backup(self, path: str | Path) -> None:
        """Copy the store, as it is at one moment, into a new file, while it is in use. A checkpoint.

        Raises:
            StoreError: There is a file already, or it cannot be written.
        """
        opened = self._now_open()
        await opened.commits.wait_written()
        try:
            await opened.run(_backup, self._path, Path(path))
        except FileExistsError:
            raise StoreError(f"{path} exists already; a backup overwrites nothing") from None
        except (sqlite3.Error, OSError) as error:
            raise StoreError(in_words(str(path), error)) from None

    async def aclose(self) -> None:
        """Write what waits and let go of the file. A checkpoint if it was open. Idempotent."""
        if self._opened is not None:
            self._opened.ref.drain()
            await self._opened.ref.join()

    def _put(self, session_id: str, make: Callable[[], Snapshot | Trim | Blob]) -> None:
        self._now_open().commits.put(Item(session_id, make, nothing, nothing))

    def _now_open(self) -> OpenedStore:
        if self._opened is None:
            raise StoreError(f"store {self._path} is not open")
        return self._opened


def _make_append(
    session_id: str, events: Sequence[Event], status: str, asks: int, log_id: str, most: int
) -> Append:
    texts: Texts = {}
    try:
        bodies = [take_out(encode_record(event), larger_than=most, texts=texts) for event in events]
    except LocalProtocolError as error:
        raise Refused(session_id, f"session {session_id!r}: {error}") from None
    return Append(session_id, events[0].seq - 1, bodies, events[-1].time, status, asks, log_id, texts)


def _make_snapshot(session_id: str, seq: int, body: bytes, most: int) -> Snapshot:
    texts: Texts = {}
    return Snapshot(session_id, seq, take_out(body, larger_than=most, texts=texts), texts)


def _load(reader: Reader, session_id: str) -> SqliteLog | None:
    loaded = reader.load(session_id)
    if loaded is None:
        return None
    snapshot = None if loaded.snapshot is None else decode_state(loaded.snapshot)
    if loaded.snapshot is not None and snapshot is None:
        if loaded.first > 1:
            what = f"the snapshot of session {session_id!r} is of another version, and its older records were trimmed"
            raise Damaged(session_id, what, lasting=False)
        loaded = reader.load(session_id, from_snapshot=False) or loaded
    return SqliteLog(loaded.log_id, loaded.first, snapshot, _decode(session_id, loaded.bodies))


def _read(reader: Reader, session_id: str, after: int, limit: int) -> list[Event]:
    return _decode(session_id, reader.read(session_id, after=after, limit=limit))


def _decode(session_id: str, bodies: Sequence[bytes]) -> list[Event]:
    try:
        return [decode_record(body) for body in bodies]
    except LocalProtocolError as error:  # perhaps a later version can read it, so this is not for good
        raise Damaged(session_id, f"session {session_id!r}: {error}", lasting=False) from None


def _list(reader: Reader, after: str, limit: int) -> Sequence[StoredSession]:
    return reader.sessions(after=after, limit=limit)


def _backup(path: Path, target: Path) -> None:
    reader = Reader(path)
    try:
        reader.backup(target)
    finally:
        reader.close()
