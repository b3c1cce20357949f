"""`actors sessions`: what is in a store, whether all of it can be read, and what is to be forgotten."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import msgspec

from actors.agent.ports import StoredSession
from actors.cli.arguments import Options
from actors.cli.codes import COMPLETED, FAILED, USAGE, CommandFailed
from actors.cli.stores import all_sessions, counted, load, owning, reading
from actors.cli.transfers import backup, export, import_
from actors.client.blocks import Block, Mark, Noted
from actors.client.render import plain, signs
from actors.client.text import clean, one_line
from actors.client.view import View
from actors.stores.checking import check_store
from actors.stores.records import Delete, Loaded, Quarantine
from protocol.errors import LocalProtocolError
from protocol.snapshot import snapshot
from protocol.stored import decode_record, decode_state


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
        for session in all_sessions(reader):
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


def _status(session: StoredSession) -> str:
    return "damaged" if session.damage else session.status


def _as_json(session: StoredSession) -> dict[str, object]:
    return {
        "session": session.id, "log_id": session.log_id, "status": _status(session), "open_asks": session.asks,
        "records": session.seq, "created": _iso(session.created), "updated": _iso(session.updated),
        "damage": session.damage,
    }  # fmt: skip


def _row(session: StoredSession) -> tuple[str, ...]:
    return clean(session.id), _status(session), str(session.asks or "-"), str(session.seq), _local(session.updated)


def _local(seconds: float) -> str:
    """Return a time as the clock on the wall shows it here."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip())


def _show(options: Options) -> int:
    with reading(options.store) as reader:
        loaded = load(reader, options.session)
        whole = load(reader, options.session, from_snapshot=False)
    if options.json:
        for body in whole.bodies:
            print(body.decode())
        return COMPLETED
    view, marks = View(), signs(sys.stdout.encoding or "ascii")
    try:
        for block in _said(loaded, whole, view):
            print(plain(block, marks))
    except LocalProtocolError as error:
        raise CommandFailed(f"session {options.session!r} cannot be shown: {error}") from None
    for ask in view.asks.values():
        for question in ask.questions:
            choices = ", ".join([one_line(option.label, 60) for option in question.options])
            print(f"? {one_line(question.question)}{f' [{choices}]' if choices else ''} (open)")
    last = decode_record(whole.bodies[-1])
    print(f"({view.status}, {counted(last.seq, 'record')}, last change {_local(last.time)})")
    return COMPLETED


def _said(loaded: Loaded, whole: Loaded, view: View) -> Iterator[Block]:
    """Follow a session from its first record that is kept, as a client does. `view` is where it is then."""
    seen = 0
    if whole.first > 1 and loaded.snapshot is not None:
        yield Noted(Mark.INFO, f"records before {whole.first} are not kept")
        state = decode_state(loaded.snapshot)
        if state is not None:
            seen = state.seq
            yield from view.restore(msgspec.to_builtins(snapshot(state)))
    for body in whole.bodies:
        event = decode_record(body)
        if event.seq > seen:
            yield from view.apply(event)


# ---- looking after


def _delete(options: Options) -> int:
    names = list(dict.fromkeys(options.sessions))
    with reading(options.store) as reader:
        known = {session.id for session in all_sessions(reader)}
    for name in names:
        if name not in known:
            raise CommandFailed(f"there is no session {name!r}; nothing was deleted", USAGE)
    if not options.yes and not sys.stdin.isatty():
        raise CommandFailed("deleting is for good: say --yes", USAGE)
    with owning(options.store) as writer:  # before the question: whoever cannot delete is not asked
        if not options.yes and not _agreed(f"delete {', '.join(map(clean, names))} for good? [y/N] "):
            print("nothing was deleted")
            return COMPLETED
        writer.write([Delete(name) for name in names])
    print(f"deleted {', '.join(map(clean, names))}")
    return COMPLETED


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def _doctor(options: Options) -> int:
    with reading(options.store) as reader:
        report = check_store(reader)
    for fault in report.file:
        print(f"the file: {one_line(fault, 400)}")
    for session, fault in report.damaged.items():
        print(f"session {clean(session)}: {one_line(fault, 400)}")
    damaged = len(report.damaged)
    how = "all can be read" if not damaged else f"{counted(damaged, 'session')} cannot be read"
    print(f"{counted(report.sessions, 'session')}, {counted(report.records, 'record')}, "
          f"{counted(report.blobs, 'blob')}: {how}")  # fmt: skip
    if report.file:
        print("the file itself is damaged: stop its server, `actors sessions export --all` what can be read,\n"
              "`import` that into a new store, and look for the rest in a backup")  # fmt: skip
    elif damaged and not options.repair:
        print("`actors sessions doctor --repair` keeps what cannot be read from being opened; a backup may have it")
    if damaged and options.repair:
        with owning(options.store) as writer:
            writer.write([Quarantine(session, fault) for session, fault in report.damaged.items()])
        print("what cannot be read is kept as it is, and will not be opened; the rest is as before")
    return COMPLETED if report.sound else FAILED


_ACTIONS: dict[str, Callable[[Options], int]] = {
    "list": _list,
    "show": _show,
    "export": export,
    "import": import_,
    "delete": _delete,
    "doctor": _doctor,
    "backup": backup,
}
