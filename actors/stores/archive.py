"""Where trimmed records go: a file of JSON lines that is only ever added to. Blocking.

A line is `{"session", "log_id", "record"}`. It is on the disk before the store forgets the record, so a crash between
the two leaves a record in both, and later twice in the archive: `log_id` and the record's `seq` tell them apart.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

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
        bodies: The records, each a JSON object with its large texts.

    Raises:
        OSError: It cannot be written.
    """
    with path.open("a+b") as file:
        if _ends_within_a_line(file):
            file.write(b"\n")  # a write that was cut off is a line that is none, and must not take the next one with it
        for body in bodies:
            # Not read: a damaged record goes there as it is, and on a line of its own all the same.
            line = msgspec.json.encode(_Line(session, log_id, Raw(body)))
            file.write(line.replace(b"\n", b" ") + b"\n")
        file.flush()
        os.fsync(file.fileno())
    # Each time, for whoever made the file may have been killed before he came to this: without it a power cut takes
    # the name of a new file, and all that is in it.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _ends_within_a_line(file: BinaryIO) -> bool:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return False
    file.seek(size - 1)
    return file.read(1) != b"\n"
