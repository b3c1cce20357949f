"""What a store holds open: the lock, one connection that writes, one that reads. Blocking; for a worker thread.

It decides that a store is opened whole or not at all, and says in words why not.
"""

import logging
import sqlite3
from contextlib import ExitStack
from pathlib import Path

from actors.agent.ports import StoreError
from actors.stores.connecting import in_words
from actors.stores.lock import InUse, StoreLock
from actors.stores.reading import Reader
from actors.stores.schema import NotAStore
from actors.stores.writing import Writer

logger = logging.getLogger("actors.store")


class StoreInUse(StoreError):
    """Another process has the store; the text says which."""


class Files:
    """Held from when it is made until `close`."""

    def __init__(self, path: Path, *, archive: Path | None = None) -> None:
        """Open a store, or make it.

        Raises:
            StoreError: Another process has it; it is no store; the disk says no. Nothing is left open.
        """
        self._path = str(path)
        with ExitStack() as stack:
            try:
                self._lock = stack.enter_context(StoreLock(path.with_name(path.name + ".lock")))
                self.writer = Writer(path, archive=archive)
                stack.callback(self.writer.close)
                self.reader = Reader(path)
            except InUse as error:
                raise StoreInUse(f"store {path} is in use by {error}; a store has one owner at a time") from None
            except NotAStore as error:
                raise StoreError(str(error)) from None
            except (sqlite3.Error, OSError) as error:
                raise StoreError(in_words(self._path, error)) from None
            stack.pop_all()

    def close(self) -> None:
        """Let go of everything. Never raises: what could not be moved from the log into the file is moved next time."""
        for close in (self.reader.close, self.writer.close):
            try:
                close()
            except sqlite3.Error as error:
                logger.warning("store %s was not closed in order: %s", self._path, error)
        self._lock.release()
