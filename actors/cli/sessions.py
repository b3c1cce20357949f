"""`actors sessions`: what is in a store, in and out of it, and whether all of it can be read."""

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from actors.agent.ports import StoredSession, StoreError
from actors.cli.arguments import Options
from actors.cli.codes import COMPLETED, FAILED, USAGE, CommandFailed
from actors.cli.files import STDIN
from actors.cli.stores import owning, reading, store_path
from actors.client.render import plain, signs
from actors.client.text import clean, one_line
from actors.client.view import View
from actors.stores.checking import check_store
from actors.stores.jsonl import export_session, import_session
from actors.stores.reading import Reader
from actors.stores.records import Damaged, Delete, Loaded, Quarantine
from protocol.snapshot import snapshot
from protocol.stored import decode_record, decode_state

_PAGE = 500


def sessions(options: Options) -> int:
    """Do what `actors sessions ACTION` says, and return the exit code.

    Raises:
        CommandFailed: It could not be done; the text says why.
    """
    return _ACTIONS[options.action](options)


# ---- looking


def _list(options: Options) -> int:
    with reading(options.store) as reader:
        rows: list[StoredSession] = []
        more = False
        for session in _all(reader):
            if options.status in ("", _status(session)):
                if len(rows) == options.limit:
                    more = True
                    break
                rows.append(session)
    if options.json:
        for session in rows:
            print(msgspec.json.encode(_as_json(session)).decode())
    elif rows:
        _print_table([("SESSION", "STATUS", "ASKS", "RECORDS", "LAST CHANGE"), *map(_row, rows)])
        for session in rows:
            if session.damage:
                print(f"{clean(session.id)}: {one_line(session.damage, 400)}")
    else:
        print("no sessions" if not options.status else f"no sessions that are {options.status}")
    if more:
        print(f"there are more than {options.limit}; see --limit", file=sys.stderr)
    return COMPLETED


def _all(reader: Reader) -> Iterator[StoredSession]:
    after = ""
    while page := reader.sessions(after=after, limit=_PAGE):
        yield from page
        after = page[-1].id


def _status(session: StoredSession) -> str:
    return "damaged" if session.damage else session.status


def _as_json(session: StoredSession) -> dict[str, object]:
    return {
        "session": session.id, "log_id": session.log_id, "status": _status(session), "open_asks": session.asks,
        "records": session.seq, "created": session.created, "updated": session.updated, "damage": session.damage,
    }  # fmt: skip


def _row(session: StoredSession) -> tuple[str, ...]:
    changed = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(session.updated))
    return clean(session.id), _status(session), str(session.asks or "-"), str(session.seq), changed


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip())


def _show(options: Options) -> int:
    with reading(options.store) as reader:
        bodies, view = _records(reader, options.session), View()
        if options.json:
            for body in bodies:
                print(body.decode())
            return COMPLETED
        marks = signs(sys.stdout.encoding or "ascii")
        loaded = _load(reader, options.session)
        events = [decode_record(body) for body in bodies]
        if loaded.first > 1 and loaded.snapshot is not None:
            state = decode_state(loaded.snapshot)
            print(f"(records before {loaded.first} are not kept)")
            if state is not None:
                for block in view.restore(msgspec.to_builtins(snapshot(state))):
                    print(plain(block, marks))
                events = [event for event in events if event.seq > state.seq]
        for event in events:
            for block in view.apply(event):
                print(plain(block, marks))
        for ask in view.asks.values():
            for question in ask.questions:
                options_of = ", ".join([one_line(option.label, 60) for option in question.options])
                print(f"? {one_line(question.question)}{f' [{options_of}]' if options_of else ''} (open)")
        print(f"({view.status}, {events[-1].seq if events else loaded.first - 1} records)")
    return COMPLETED


def _load(reader: Reader, session: str) -> Loaded:
    try:
        loaded = reader.load(session)
    except Damaged as damaged:
        raise CommandFailed(f"session {session!r} is damaged: {damaged}") from None
    if loaded is None:
        raise CommandFailed(f"there is no session {session!r}; see `actors sessions list`", USAGE)
    return loaded


def _records(reader: Reader, session: str) -> list[bytes]:
    loaded = _load(reader, session)
    whole = reader.load(session, from_snapshot=False)
    return list(loaded.bodies if whole is None else whole.bodies)


# ---- out and in


def _export(options: Options) -> int:
    if bool(options.sessions) is options.all:
        raise CommandFailed("name the sessions to export, or give --all", USAGE)
    with reading(options.store) as reader:
        names = [session.id for session in _all(reader)] if options.all else list(options.sessions)
        for name in options.sessions:
            _load(reader, name)
        if not options.output:
            _export_into(reader, names, sys.stdout.buffer)
            return COMPLETED
        with _new_file(options.output) as file:
            records = _export_into(reader, names, file)
    print(f"{len(names)} sessions, {records} records: {options.output}", file=sys.stderr)
    return COMPLETED


def _export_into(reader: Reader, names: Sequence[str], file: BinaryIO) -> int:
    records = 0
    for name in names:
        try:
            records += export_session(reader, name, file)
        except StoreError as error:
            raise CommandFailed(f"{error.message}; the others can be exported by their ids") from None
    file.flush()
    return records


def _new_file(name: str) -> BinaryIO:
    try:
        return Path(name).open("xb")
    except FileExistsError:
        raise CommandFailed(f"{name} exists already; it is not overwritten", USAGE) from None
    except (OSError, ValueError) as error:
        raise CommandFailed(f"cannot write {name}: {getattr(error, 'strerror', None) or error}", USAGE) from None


def _import(options: Options) -> int:
    try:
        data = sys.stdin.buffer.read() if options.file == STDIN else Path(options.file).read_bytes()
    except (OSError, ValueError) as error:
        raise CommandFailed(f"cannot read {options.file}: {getattr(error, 'strerror', None) or error}", USAGE) from None
    imported: list[str] = []
    with owning(options.store, new=True) as writer:
        for begin, lines in _exports(data):
            try:
                imported.append(import_session(writer, io.BytesIO(lines)))
            except StoreError as error:
                where = f", which begins in line {begin}" if begin > 1 else ""
                before = f"; imported before it: {', '.join(imported)}" if imported else ""
                raise CommandFailed(f"{options.file}{where}: {error.message}{before}", USAGE) from None
    print(f"imported {', '.join(map(clean, imported))}")
    return COMPLETED


def _exports(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Split what several exports wrote one after the other: number of the first line, and the lines."""
    lines = data.splitlines(keepends=True)
    heads = [number for number, line in enumerate(lines) if line.startswith(b'{"export"')]
    if not heads or heads[0] != 0:
        heads.insert(0, 0)
    for begin, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        yield begin + 1, b"".join(lines[begin:end])


def _delete(options: Options) -> int:
    with reading(options.store) as reader:
        known = {session.id for session in _all(reader)}
    for name in options.sessions:
        if name not in known:
            raise CommandFailed(f"there is no session {name!r}; nothing was deleted", USAGE)
    names = list(dict.fromkeys(options.sessions))
    if not options.yes:
        if not sys.stdin.isatty():
            raise CommandFailed("deleting is for good: say --yes", USAGE)
        if input(f"delete {', '.join(map(clean, names))} for good? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was deleted")
            return COMPLETED
    with owning(options.store) as writer:
        writer.write([Delete(name) for name in names])
    print(f"deleted {', '.join(map(clean, names))}")
    return COMPLETED


def _backup(options: Options) -> int:
    with reading(options.store) as reader:
        try:
            reader.backup(options.output)
        except FileExistsError:
            raise CommandFailed(f"{options.output} exists already; it is not overwritten", USAGE) from None
        except OSError as error:
            raise CommandFailed(f"cannot write {options.output}: {error.strerror}") from None
    Path(options.output).chmod(0o600)
    print(f"{store_path(options.store)} is copied to {options.output}")
    return COMPLETED


# ---- health


def _doctor(options: Options) -> int:
    with reading(options.store) as reader:
        report = check_store(reader)
    for fault in report.file:
        print(f"the file: {one_line(fault, 400)}")
    for session, fault in report.damaged.items():
        print(f"session {clean(session)}: {one_line(fault, 400)}")
    print(f"{report.sessions} sessions, {report.records} records, {report.blobs} blobs: "
          f"{'all can be read' if report.sound else f'{len(report.damaged)} sessions are damaged'}")  # fmt: skip
    if report.sound:
        return COMPLETED
    if options.repair and report.damaged:
        with owning(options.store) as writer:
            writer.write([Quarantine(session, fault) for session, fault in report.damaged.items()])
        print("they are kept as they are and not opened; the others are as before")
    elif report.damaged:
        print("`actors sessions doctor --repair` keeps them from being opened; a backup may have them")
    return FAILED


_ACTIONS: dict[str, Callable[[Options], int]] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "import": _import,
    "delete": _delete,
    "doctor": _doctor,
    "backup": _backup,
}
