"""Which store a command uses, where it is if nobody says so, and what opening it refuses in one line."""

import os
import sqlite3
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from actors.agent.ports import StoredSession, StoreError
from actors.cli.codes import FAILED, USAGE, CommandFailed
from actors.stores.connecting import in_words
from actors.stores.files import StoreInUse
from actors.stores.lock import InUse, StoreLock
from actors.stores.reading import Reader
from actors.stores.records import Damaged, Loaded
from actors.stores.schema import NotAStore
from actors.stores.writing import Writer

#: In place of a file: nothing is kept.
MEMORY = "memory"
_PAGE = 500


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
        CommandFailed: Its folder is not there, it cannot be made, or what is there is something else.
    """
    path = store_path(name)
    try:
        if not name:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.parent.is_dir():
            raise CommandFailed(f"store {path}: there is no folder {path.parent}", USAGE)
        if not path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        elif not path.is_file():
            raise CommandFailed(f"store {path} is a folder, or something else that is no file", USAGE)
        elif path.stat().st_size:
            _check_kind(path)
    except OSError as error:
        raise CommandFailed(f"store {path}: {error.strerror}", USAGE) from None
    except ValueError as error:  # a name that no file can have
        raise CommandFailed(f"store: {error}", USAGE) from None
    return path


def _check_kind(path: Path) -> None:
    """Refuse a file of something else before anything is made beside it."""
    with suppress(sqlite3.Error):  # whoever opens it finds that, too, and says it
        try:
            Reader(path).close()
        except NotAStore as error:
            raise CommandFailed(str(error), USAGE) from None


def not_opened(error: StoreError) -> CommandFailed:
    """Return how a command ends whose agent could not open its store."""
    return CommandFailed(error.message, USAGE if isinstance(error, StoreInUse) else FAILED)


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


def load(reader: Reader, session: str, *, from_snapshot: bool = True) -> Loaded:
    """Return a session of a store.

    Args:
        session: Its id.
        from_snapshot: False leaves the snapshot aside and returns all records that are kept.

    Raises:
        CommandFailed: There is none, or something of it cannot be read.
    """
    try:
        loaded = reader.load(session, from_snapshot=from_snapshot)
    except Damaged as damaged:
        raise CommandFailed(f"session {session!r} is damaged: {damaged}") from None
    if loaded is None:
        raise CommandFailed(f"there is no session {session!r}; see `actors sessions list`", USAGE)
    return loaded


def all_sessions(reader: Reader) -> Iterator[StoredSession]:
    """Yield the sessions of a store by their ids, a page at a time."""
    after = ""
    while page := reader.sessions(after=after, limit=_PAGE):
        yield from page
        after = page[-1].id


def count_waiting(reader: Reader) -> int:
    """Return how many sessions have a run that is not through."""
    return sum(session.status != "idle" and not session.damage for session in all_sessions(reader))


def counted(count: int, noun: str) -> str:
    """Return `1 record`, `2 records`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


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
        there, is_file = path.exists(), path.is_file()
    except (OSError, ValueError):
        there = is_file = False
    if there and not is_file:
        raise CommandFailed(f"store {path} is a folder, or something else that is no file", USAGE)
    if not there:
        raise CommandFailed(f"there is no store {path}; `actors serve` makes one", USAGE)
