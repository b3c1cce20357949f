"""How a store's file is laid out, and how an older layout becomes this one. Blocking; knows no sessions.

`user_version` is the layout's number. A file of a newer one is refused by its number, never touched.
"""

import sqlite3
from contextlib import suppress

#: One step for each layout: the statements that make it of the one before. The rows of `events` lie in the order in
#: which they came (so not `WITHOUT ROWID`): a thousand sessions that write one record each touch a hundred pages
#: instead of a thousand, which is five times as fast, and a session's own rows are read half as fast again.
STEPS: tuple[str, ...] = (
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        log_id TEXT NOT NULL,
        head INTEGER NOT NULL,
        first INTEGER NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        status TEXT NOT NULL DEFAULT 'idle',
        asks INTEGER NOT NULL DEFAULT 0,
        damage TEXT
    );
    CREATE TABLE events (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (session, seq)
    );
    CREATE TABLE snapshots (
        session INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        body BLOB NOT NULL
    );
    CREATE TABLE blobs (
        session INTEGER NOT NULL,
        hash TEXT NOT NULL,
        data BLOB NOT NULL,
        part INTEGER NOT NULL DEFAULT 0, -- nothing but a text of records and snapshots: it goes with the last of them
        PRIMARY KEY (session, hash)
    );
    """,
)
VERSION = len(STEPS)
#: "trio actors" in four bytes: tells a store from any other file that SQLite can open.
APPLICATION_ID = 0x7AC70125


class NotAStore(Exception):
    """The file is something else, or of a later version."""


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Bring a store to this layout, a new file included, in one transaction.

    Raises:
        NotAStore: It is another program's file, or a newer layout.
        sqlite3.Error: It cannot be read or written.
    """
    version = check(connection, path, new=True)
    if version == VERSION:
        return
    statements = "".join(STEPS[version:])
    try:
        connection.executescript(
            f"BEGIN IMMEDIATE; {statements} PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {VERSION}; COMMIT;"
        )
    except BaseException:
        with suppress(sqlite3.Error):  # the first error is the one to be told
            connection.rollback()
        raise


def check(connection: sqlite3.Connection, path: str, *, new: bool = False) -> int:
    """Return the layout of a store; 0 for a file with nothing in it, where that is allowed.

    Raises:
        NotAStore: It is another program's file, a newer layout, or there is nothing in it and `new` is not set.
        sqlite3.Error: It cannot be read.
    """
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise NotAStore(f"{path} is a file of another program") from None
        raise
    if version == 0 and application == 0 and tables == 0:
        if new:
            return 0
        raise NotAStore(f"{path} is empty, it is no store yet")
    if application != APPLICATION_ID:
        raise NotAStore(f"{path} is a database of another program")
    if not 1 <= version <= VERSION:
        raise NotAStore(f"{path} has layout {version}; this version knows layouts up to {VERSION}")
    return int(version)
