"""A session as JSON lines, out of one store and into another. Blocking; needs no event loop.

The first line is `{"export": 1, "session", "log_id", "first", "snapshot"?}`, where `snapshot` is the stored state if
older records were trimmed. Then come lines `{"blob": name, "data": base64}`, then the records, with their large texts.
It decides that only a log that folds is let in. It must not know how a file of a store looks.
"""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct

from actors.agent.ports import StoreError
from actors.stores.reading import Reader
from actors.stores.records import Append, Blob, Damaged, Loaded, Refused, Snapshot, Write
from actors.stores.writing import Writer
from protocol.blobs import Texts, blob_name, take_out
from protocol.errors import Code, LocalProtocolError
from protocol.events import Event
from protocol.history import State, fold
from protocol.limits import DEFAULT_LIMITS
from protocol.stored import decode_record, decode_state, encode_record

#: How these lines are written. A file of a later format is refused by its number.
FORMAT = 1


class _Head(Struct, omit_defaults=True):
    export: int
    session: str
    log_id: str
    first: int = 1
    snapshot: Raw = Raw(b"null")


class _Blob(Struct):
    blob: str
    data: bytes


_encode = msgspec.json.Encoder().encode


def export_session(reader: Reader, session: str, file: BinaryIO) -> int:
    """Write a session and everything of it as JSON lines, and return how many records they are.

    Args:
        reader: Of the store that has it; others may write to it meanwhile.
        session: Its name.
        file: Open to write bytes.

    Raises:
        StoreError: There is no such session, or something of it cannot be read; part of it may have been written.
        OSError, sqlite3.Error: The one file cannot be written, or the other not be read.
    """
    try:
        loaded = reader.load(session, from_snapshot=False)
        snapshot = _snapshot(reader, session, loaded) if loaded is not None and loaded.first > 1 else None
        if loaded is None or (loaded.first > 1 and snapshot is None):
            raise StoreError(f"session {session!r} is not in the store")
        head = _Head(FORMAT, session, loaded.log_id, loaded.first, snapshot or Raw(b"null"))
        file.write(_encode(head) + b"\n")
        for name in reader.blob_names(session):
            data = reader.blob(session, name)
            if data is not None:  # deleted since
                file.write(_encode(_Blob(name, data)) + b"\n")
        file.writelines(body + b"\n" for body in loaded.bodies)
    except Damaged as damaged:
        raise StoreError(str(damaged), code=Code.STORE_DAMAGED) from None
    return len(loaded.bodies)


def _snapshot(reader: Reader, session: str, records: Loaded) -> Raw | None:
    loaded = reader.load(session)
    if loaded is None or loaded.snapshot is None or loaded.first != records.first:
        return None
    return Raw(loaded.snapshot)


def import_session(writer: Writer, file: BinaryIO) -> str:
    """Read what `export_session` wrote into a store, all of it or nothing, and return the session's name.

    Args:
        writer: Of the store; nobody else may have it, see `actors.stores.lock`.
        file: Open to read bytes.

    Raises:
        StoreError: The lines are no session, there is a gap between them, they do not fold, or the store has a
            session of this name. The text names the line. Nothing was written.
        OSError, sqlite3.Error: The one file cannot be read, or the other not be written.
    """
    name, writes = read_session(file)
    try:
        writer.write(writes)
    except Refused as refused:
        raise StoreError(f"nothing was imported: {refused}") from None
    return name


def read_session(file: BinaryIO, *, first_line: int = 1) -> tuple[str, list[Write]]:
    """Read what `export_session` wrote; return the session's name, and what brings it into a store.

    Args:
        file: Open to read bytes.
        first_line: Number of the first of these lines in the whole that they are of, for the errors.

    Raises:
        StoreError: The lines are no session, there is a gap between them, or they do not fold.
        OSError: The file cannot be read.
    """
    lines = (line.strip() for line in file)
    try:
        head = msgspec.json.decode(next(lines, b""), type=_Head)
    except msgspec.MsgspecError as error:
        raise StoreError(f"line {first_line} does not begin an exported session: {error}") from None
    if head.export != FORMAT:
        raise StoreError(f"the export has format {head.export}; this version knows format {FORMAT}")
    blobs, events = _read(head, lines, first_line + 1)
    snapshot, state = _start(head, first_line)
    state = _check(head, state, events, first_line)
    texts: Texts = {}
    bodies = [take_out(encode_record(event), larger_than=DEFAULT_LIMITS.blob_bytes, texts=texts) for event in events]
    writes: list[Write] = [
        Append(
            head.session,
            head.first - 1,
            bodies,
            events[-1].time,
            state.status,
            len(state.open_asks()),
            log_id=head.log_id,
            texts=texts,
        ),
        *blobs,
    ]
    if snapshot is not None:
        writes.append(snapshot)
    return head.session, writes


def _read(head: _Head, lines: Iterator[bytes], first_line: int) -> tuple[list[Blob], Sequence[Event]]:
    blobs: list[Blob] = []
    events: list[Event] = []
    for number, line in enumerate(lines, first_line):
        if not line:
            continue
        try:
            if line.startswith(b'{"blob"'):
                blob = msgspec.json.decode(line, type=_Blob)
                if blob_name(blob.data) != blob.blob:
                    raise StoreError(f"line {number}: blob {blob.blob} is not what was exported")
                blobs.append(Blob(head.session, blob.blob, blob.data))
            else:
                events.append(decode_record(line))
        except (msgspec.MsgspecError, LocalProtocolError) as error:
            raise StoreError(f"line {number}: {error}") from None
    if not events:
        raise StoreError(f"the export of session {head.session!r} has no records")
    return blobs, events


def _start(head: _Head, first_line: int) -> tuple[Snapshot | None, State]:
    """Return the snapshot that the log goes on from, to be stored, and the state that the first record follows."""
    if head.first == 1:
        return None, State()
    body = bytes(head.snapshot)
    state = decode_state(body)
    if state is None or state.seq < head.first - 1:
        raise StoreError(f"line {first_line}: records before {head.first} are missing, and no snapshot covers them")
    texts: Texts = {}
    return Snapshot(
        head.session, state.seq, take_out(body, larger_than=DEFAULT_LIMITS.blob_bytes, texts=texts), texts
    ), state


def _check(head: _Head, state: State, events: Sequence[Event], first_line: int) -> State:
    """Return the state that the records lead to."""
    for seq, event in enumerate(events, head.first):
        if event.seq != seq:
            raise StoreError(f"session {head.session!r}: record {seq} is missing, record {event.seq} is in its place")
    if state.seq > events[-1].seq:
        raise StoreError(f"session {head.session!r}: the snapshot is of record {state.seq}, which is missing")
    try:
        folded = fold((event for event in events if event.seq > state.seq), state)
    except (LocalProtocolError, IndexError, KeyError) as error:
        raise StoreError(f"session {head.session!r} does not fold: {error}") from None
    if (folded.session_id, folded.log_id) != (head.session, head.log_id):
        raise StoreError(f"the records are of session {folded.session_id!r}, line {first_line} says {head.session!r}")
    return folded
