"""One owner per store: a lock on a file beside it. Blocking at no time.

The system takes it back when the process ends, however it ends. It must not know what the store is.
"""

import fcntl
import os
from pathlib import Path
from typing import Self


class InUse(Exception):
    """Another process has the store. The text says which."""


class StoreLock:
    """Held from when it is made until `release`."""

    def __init__(self, path: Path) -> None:
        """Take it at once, or not at all.

        Raises:
            InUse: Another process, or another store of this one, has it.
            OSError: The file cannot be made.
        """
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            raise InUse(f"process {owner}" if owner else "another process") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let others have it. The file stays: to remove it would let two of them have it at once. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
