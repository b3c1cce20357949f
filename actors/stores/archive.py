"""Where trimmed records go: a file of JSON lines that is only ever added to. Blocking.

A line is `{"session", "log_id", "record"}`. It is on the disk before the store forgets the record, so a crash between
the two leaves a record in both, and later twice in the archive: `log_id` and the record's `seq` tell them apart.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Raw, Struct


class _Line(Struct):
    session: str
    log_id: str
    record: Raw


def archive(path: Path, session: str, log_id: str, bodies: Iterable[bytes]) -> None:
    """Add records to an archive and return when they are on the disk.

    Args:
        path: The archive; made where it does not exist.
        bodies: The records as they are stored, each a JSON object.

    Raises:
        OSError: It cannot be written.
    """
    with path.open("ab") as file:
        for body in bodies:
            # Not read: a damaged record goes there as it is, and on a line of its own all the same.
            line = msgspec.json.encode(_Line(session, log_id, Raw(body)))
            file.write(line.replace(b"\n", b" ") + b"\n")
        file.flush()
        os.fsync(file.fileno())
