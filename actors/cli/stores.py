"""Which store a command uses, where it is if nobody says so, and what opening it refuses in one line."""

import os
import sqlite3
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from actors.cli.codes import FAILED, USAGE, CommandFailed
from actors.stores.connecting import in_words
from actors.stores.lock import InUse, StoreLock
from actors.stores.reading import Reader
from actors.stores.schema import NotAStore
from actors.stores.writing import Writer

#: In place of a file: nothing is kept.
MEMORY = "memory"


def data_folder() -> Path:
    """Return the folder for this user's data: `$XDG_DATA_HOME/trio-actors`, or the system's usual place."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "trio-actors"
    base = os.environ.get("XDG_DATA_HOME", "")
    # A relative path there is to be ignored, says the convention.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share") / "trio-actors"


def store_path(name: str) -> Path:
    """Return the file of a store; without a name the one of `actors serve`."""
    return Path(name) if name else data_folder() / "sessions.db"


def made_private(name: str) -> Path:
    """Return the file of a store that is to be opened or made. A new one can be read by its owner only.

    Raises:
        CommandFailed: Its folder is not there, or it cannot be made.
    """
    path = store_path(name)
    try:
        if not name:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.parent.is_dir():
            raise CommandFailed(f"store {path}: there is no folder {path.parent}", USAGE)
        if not path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError as error:
        raise CommandFailed(f"store {path}: {error.strerror}", USAGE) from None
    except ValueError as error:  # a name that no file can have
        raise CommandFailed(f"store: {error}", USAGE) from None
    return path


@contextmanager
def reading(name: str) -> Generator[Reader]:
    """Yield something to read a store with, also while a server has it.

    Raises:
        CommandFailed: It is not there, it is no store, or it cannot be read.
    """
    path = store_path(name)
    _check_there(path)
    try:
        reader = Reader(path)
        try:
            yield reader
        finally:
            reader.close()
    except NotAStore as error:
        raise CommandFailed(str(error), USAGE) from None
    except sqlite3.Error as error:
        raise CommandFailed(in_words(str(path), error)) from None


def count_waiting(reader: Reader) -> int:
    """Return how many sessions have a run that is not through."""
    count, after = 0, ""
    while page := reader.sessions(after=after, limit=500):
        count += sum([session.status != "idle" and not session.damage for session in page])
        after = page[-1].id
    return count


@contextmanager
def owning(name: str, *, new: bool = False) -> Generator[Writer]:
    """Yield something to write a store with. Nobody else has it meanwhile.

    Args:
        name: Of the store.
        new: It may be one that does not exist yet.

    Raises:
        CommandFailed: It is not there, a server has it, it is no store, or it cannot be written.
    """
    path = made_private(name) if new else store_path(name)
    _check_there(path)
    try:
        with StoreLock(path.with_name(path.name + ".lock")):
            writer = Writer(path)
            try:
                yield writer
            finally:
                writer.close()
    except InUse as error:
        raise CommandFailed(f"store {path} is in use by {error}; stop that server, then try again", USAGE) from None
    except NotAStore as error:
        raise CommandFailed(str(error), USAGE) from None
    except (sqlite3.Error, OSError) as error:
        raise CommandFailed(in_words(str(path), error), FAILED) from None


def _check_there(path: Path) -> None:
    try:
        there = path.is_file()
    except (OSError, ValueError):
        there = False
    if not there:
        raise CommandFailed(f"there is no store {path}; `actors serve` makes one", USAGE)
