"""`actors sessions export | import | backup`: sessions out of a store and into one. Nothing is overwritten."""

import io
import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from actors.agent.ports import StoreError
from actors.cli.arguments import Options
from actors.cli.codes import COMPLETED, FAILED, USAGE, CommandFailed
from actors.cli.files import STDIN
from actors.cli.stores import all_sessions, counted, load, owning, reading, store_path
from actors.client.text import clean, one_line
from actors.stores.connecting import in_words
from actors.stores.jsonl import export_session, read_session
from actors.stores.reading import Reader
from actors.stores.records import Refused, Write


def export(options: Options) -> int:
    """Write sessions as JSON lines. Of all, those that are damaged are left out, and said to be.

    Raises:
        CommandFailed: There is no such session, one that was named is damaged, or the file cannot be written.
    """
    if bool(options.sessions) is options.all:
        raise CommandFailed("name the sessions to export, or give --all", USAGE)
    with reading(options.store) as reader:
        names = [session.id for session in all_sessions(reader)] if options.all else options.sessions
        names = list(dict.fromkeys(names))
        for name in options.sessions:
            load(reader, name)
        if not options.output:
            return _export_into(reader, names, sys.stdout.buffer, skip=options.all)[0]
        with _new_file(options.output) as file:
            try:
                code, sessions, records = _export_into(reader, names, file, skip=options.all)
            except BaseException:
                Path(options.output).unlink()  # half an export is none, and must not be taken for one
                raise
    print(f"exported {counted(sessions, 'session')}, {counted(records, 'record')} to {options.output}", file=sys.stderr)
    return code


def _export_into(reader: Reader, names: Sequence[str], file: BinaryIO, *, skip: bool) -> tuple[int, int, int]:
    code, sessions, records = COMPLETED, 0, 0
    for name in names:
        lines = io.BytesIO()  # one that turns out to be damaged leaves nothing behind
        try:
            count = export_session(reader, name, lines)
        except sqlite3.OperationalError:
            raise  # of the disk, or of a lock, and so of all of them
        except (StoreError, sqlite3.DatabaseError) as error:
            why = one_line(error.message if isinstance(error, StoreError) else str(error), 400)
            if not skip:
                raise CommandFailed(f"session {name!r} was not exported: {why}") from None
            print(f"actors: session {name!r} is left out: {why}", file=sys.stderr)
            code = FAILED
            continue
        file.write(lines.getbuffer())
        sessions, records = sessions + 1, records + count
    file.flush()
    return code, sessions, records


def _new_file(name: str) -> BinaryIO:
    """Return a new file that only its owner can read, as the store is."""
    try:
        return os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        raise CommandFailed(f"{name} exists already; it is not overwritten", USAGE) from None
    except (OSError, ValueError) as error:
        raise CommandFailed(f"cannot write {name}: {getattr(error, 'strerror', None) or error}", USAGE) from None


def import_(options: Options) -> int:
    """Read what `export` wrote into a store, which is made where there is none: all of it, or nothing.

    Raises:
        CommandFailed: The file cannot be read or is broken in some line, or the store has a session of that name.
    """
    shown = "standard input" if options.file == STDIN else options.file
    try:
        data = sys.stdin.buffer.read() if options.file == STDIN else Path(options.file).read_bytes()
    except (OSError, ValueError) as error:
        raise CommandFailed(f"cannot read {shown}: {getattr(error, 'strerror', None) or error}", USAGE) from None
    names: list[str] = []
    writes: list[Write] = []
    for begin, lines in _exports(data):
        try:
            name, of_session = read_session(io.BytesIO(lines), first_line=begin)
        except StoreError as error:
            raise CommandFailed(f"{shown}: {error.message}; nothing was imported", USAGE) from None
        names.append(name)
        writes += of_session
    with owning(options.store, new=True) as writer:
        try:
            writer.write(writes)
        except Refused as refused:
            raise CommandFailed(f"{shown}: {refused}; nothing was imported", USAGE) from None
    print(f"imported {', '.join(map(clean, names))}")
    return COMPLETED


def _exports(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Split what several exports wrote one after the other: number of the first line, and the lines."""
    lines = data.splitlines(keepends=True)
    heads = [number for number, line in enumerate(lines) if line.startswith(b'{"export"')]
    if not heads or heads[0] != 0:
        heads.insert(0, 0)
    for begin, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        yield begin + 1, b"".join(lines[begin:end])


def backup(options: Options) -> int:
    """Copy a store as it is at one moment.

    Raises:
        CommandFailed: The copy cannot be written, or there is such a file.
    """
    with reading(options.store) as reader:
        try:
            reader.backup(options.output)
        except FileExistsError:
            raise CommandFailed(f"{options.output} exists already; it is not overwritten", USAGE) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise CommandFailed(f"cannot write {options.output}: {why}", USAGE) from None
        except sqlite3.Error as error:
            raise CommandFailed(f"no backup was made: {in_words(options.output, error)}") from None
    print(f"{store_path(options.store)} is copied to {options.output}")
    return COMPLETED
