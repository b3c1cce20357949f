"""How a store's file is opened, and what SQLite's errors mean for whoever runs it."""

import sqlite3
from pathlib import Path

#: Seconds to wait for another program that holds the file for a moment.
BUSY_S = 5.0

_WORDS: tuple[tuple[str, str], ...] = (
    ("full", "the disk is full; make room, then start again"),
    ("No space left", "the disk is full; make room, then start again"),  # of the archive, which is not SQLite's
    ("readonly", "it may only be read; give this user the right to write the file and its folder, then start again"),
    ("locked", "another program keeps it locked; close that program, then start again"),
    ("disk I/O error", "the disk reported an error; check the disk, then start again"),
    ("Input/output error", "the disk reported an error; check the disk, then start again"),
    ("malformed", "the file is damaged; put a backup in its place, then start again"),
    ("unable to open", "it cannot be opened; check that its folder exists and may be written"),
)


def connect(path: str) -> sqlite3.Connection:
    """Open a file to read and write it; transactions begin and end where they are told to.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    return open_file(path)


def connect_readonly(path: str) -> sqlite3.Connection:
    """Open a file that exists, to read it only, also while somebody writes it.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    uri = f"{Path(path).absolute().as_uri()}?mode=ro"
    return open_file(uri, uri=True)


def open_file(target: str, *, uri: bool = False) -> sqlite3.Connection:
    """Open a file in the one way in which a store opens any.

    Args:
        target: Its path, or with `uri` an URI with options.
        uri: Whether it is one.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    return sqlite3.connect(target, uri=uri, timeout=BUSY_S, isolation_level=None, check_same_thread=False)


def in_words(path: str, error: Exception) -> str:
    """Say what happened to a store, and what to do about it."""
    text = str(error)
    for part, words in _WORDS:
        if part in text:
            return f"store {path}: {words} ({text})"
    return f"store {path}: {type(error).__name__}: {text}"
