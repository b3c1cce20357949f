"""What a store's file is asked to keep, what it gives back, and the checksum that both sides agree on.

It must not know SQLite, or what the bytes of a record mean.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.blobs import Texts


class Refused(Exception):
    """Something of one session cannot be written: its log is not where the writer believes. Others may go on.

    Attributes:
        session: Its name.
    """

    def __init__(self, session: str, what: str) -> None:
        super().__init__(what)
        self.session = session


class Damaged(Exception):
    """Something of one session cannot be read. Other sessions are not concerned.

    Attributes:
        session: Its name.
        lasting: The bytes themselves are bad: no other version can read them either.
    """

    def __init__(self, session: str, what: str, *, lasting: bool = True) -> None:
        super().__init__(what)
        self.session = session
        self.lasting = lasting


@dataclass(slots=True)  # not frozen, which would make each one three times as slow to make
class Append:
    """Records to be written behind the record `after`; with `log_id`, of a log that is new. It does not change.

    Attributes:
        now: Time of the last of them, in Unix seconds.
        status: What the session does then, and `asks` how many questions are open: for lists.
        texts: What was taken out of them, see `protocol.blobs`.
    """

    session: str
    after: int
    bodies: Sequence[bytes]
    now: float
    status: str = "idle"
    asks: int = 0
    log_id: str = ""
    texts: Texts = field(default_factory=Texts)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session's state after the record `seq`, without `texts`. It takes the place of the one before."""

    session: str
    seq: int
    body: bytes
    texts: Texts = field(default_factory=Texts)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes under their hash."""

    session: str
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Trim:
    """Forget the records before `first`, as far as a snapshot covers them. The last record stays.

    Attributes:
        before: Only those that were recorded before this time, in Unix seconds.
    """

    session: str
    first: int
    before: float | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Forget a session and everything of it. There may be none."""

    session: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Keep a session from being opened, and say why; None lets it be opened again. There may be no such session."""

    session: str
    why: str | None


Write = Append | Snapshot | Blob | Trim | Delete | Quarantine


@dataclass(frozen=True, slots=True)
class Loaded:
    """A session as the file has it.

    Attributes:
        first: Seq of the oldest record that is kept.
        snapshot: Of the state after the record `snapshot_seq`, or None.
        bodies: The records after that one.
    """

    log_id: str
    first: int
    snapshot_seq: int
    snapshot: bytes | None
    bodies: Sequence[bytes]


def size_of(write: Write) -> int:
    """Return about how many bytes a write adds to the file."""
    match write:
        case Append():
            return sum(map(len, write.bodies)) + sum(map(len, write.texts.values()))
        case Snapshot():
            return len(write.body) + sum(map(len, write.texts.values()))
        case Blob():
            return len(write.data)
        case _:
            return 0


def checksum(session: int, seq: int, body: bytes) -> int:
    """Return the checksum of a record in its place: a whole record that came to another place does not fit either."""
    return zlib.crc32(body, zlib.crc32(b"%d/%d" % (session, seq)))
