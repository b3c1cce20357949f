"""The command line: what may be typed, and what it says about itself."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

DEFAULT_PORT = 8765
LEVELS = ("debug", "info", "warning", "error")

_DESCRIPTION = "Run agent sessions: from a file, as a server, or on a running server."
_RUN = """\
Run a task written in Markdown and show its list, its questions and its answer.

Each list item is a step; a step that ends in "?" is a question, the items nested below it are its options.
Ctrl-C cancels the run; a second Ctrl-C ends at once.

Without a terminal the output is plain lines, and questions are answered from --answers or not at all.
"""
_RUN_CODES = """\
exit codes:
  0    the run completed
  1    the run failed; the reason is on stderr
  2    wrong arguments, or a file that cannot be used
  3    a question was asked that nobody could answer
  130  the run was cancelled
  141  whoever read the output went away
"""
_SERVE = """\
Serve sessions over a websocket until SIGTERM or Ctrl-C; clients are then told to come back (close code 1012).

Sessions are kept in a file, with runs that are not through and questions that
are open: they are there again when the server is. One server has a store at a
time; `actors sessions` looks into it meanwhile.

It listens on this machine only, unless --host says otherwise, which needs --token-file. Whoever has the token can do
everything. Beyond this machine put TLS in front: the token and all else travel in the clear.
"""
_ATTACH = """\
Watch a session of a running server, answer its questions, and talk to it.

A line typed while nothing runs starts a run, while something runs it steers; /cancel cancels the run. Ctrl-C or Ctrl-D
detaches, which is no failure (exit code 0); the session goes on without you.

Without a terminal it only watches: the output is plain lines, what is piped into it is not read, and questions are
answered from --answers or by others.
"""
_SESSIONS = """\
Look into a store of sessions, and look after it.

list, show, export, doctor and backup only read, also while a server has the
store. delete, import and doctor --repair need it for themselves: stop the
server first.
"""
_SESSIONS_CODES = """\
exit codes:
  0    done
  1    something of the store is damaged, or it cannot be read or written
  2    wrong arguments, no such store, session or file, or a server has the store
"""
_STORE = "where sessions are kept"
_ANSWERS = "JSON: an object of question text (or its place, from 1) to answer, or an array of answers in order; " \
           "an answer is a text, a list of texts, or null to decline"  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line, read. Fields of other commands have their defaults."""

    command: str
    log_level: str = "warning"
    file: str = ""
    answers: str = ""
    agent: str = ""
    max_turns: int | None = None
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token_file: str = ""
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    url: str = ""
    session: str = ""
    create: bool = False
    store: str = ""
    resume: str = "auto"
    idle: float | None = None
    action: str = ""
    sessions: tuple[str, ...] = ()
    status: str = ""
    limit: int = 100
    json: bool = False
    all: bool = False
    output: str = ""
    yes: bool = False
    repair: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line, and how it is written in another."""
        usage = " ".join(self.format_usage().split())
        self.exit(2, f"{self.prog}: {message}\n{usage}\n")


def parse(argv: Sequence[str] | None) -> Options:
    """Return the options of a command line.

    Raises:
        SystemExit: 0 after `--help` and `--version`, 2 after a wrong argument.
    """
    values = {key: value for key, value in vars(_parser().parse_args(argv)).items() if value is not None}
    for several in ("allow_host", "allow_origin", "sessions"):
        values[several] = tuple(values.get(several, ()))
    return Options(**values)


def _parser() -> argparse.ArgumentParser:
    from actors import __version__

    parser = _Parser(prog="actors", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"actors {__version__}")
    common = _Parser(add_help=False, allow_abbrev=False)
    common.add_argument("--log-level", choices=LEVELS, help="what is logged to stderr (warning)")
    agent = _Parser(add_help=False, allow_abbrev=False)
    agent.add_argument(
        "--agent", metavar="MODULE:NAME", help="your own agent: a callable that returns what open_agent(...) returns"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, summary: str, description: str, *parents: _Parser, epilog: str = "") -> _Parser:
        return commands.add_parser(
            name, help=summary, description=description, epilog=epilog, parents=[*parents, common],
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        )  # fmt: skip

    run = add("run", "run a task from a Markdown file", _RUN, agent, epilog=_RUN_CODES)
    run.add_argument("file", metavar="FILE", help="the Markdown file; - reads standard input")
    run.add_argument("--answers", metavar="FILE", help=_ANSWERS)
    run.add_argument("--max-turns", type=_positive, metavar="N", help="model calls before the run fails")
    run.add_argument("--store", metavar="FILE", help=f"{_STORE} (in memory, gone at the end)")
    run.add_argument(
        "--session", metavar="ID", help="the session's id; one of the store goes on where it was (a new one)"
    )

    serve = add("serve", "serve sessions over a websocket", _SERVE, agent)
    serve.add_argument("--host", help="the address to listen on (127.0.0.1)")
    serve.add_argument("--port", type=_port, help=f"the port; 0 takes a free one ({DEFAULT_PORT})")
    serve.add_argument("--token-file", metavar="FILE", help="where the token is; made if it does not exist")
    serve.add_argument("--allow-host", action="append", metavar="NAME", help="a name clients may use for this server")
    serve.add_argument("--allow-origin", action="append", metavar="URL", help="a web page's origin that may connect")

    serve.add_argument("--store", metavar="FILE", help=f"{_STORE}, or `memory` (a file of yours, which is printed)")
    serve.add_argument(
        "--resume", choices=("auto", "ask", "never"),
        help="runs that were interrupted: go on with them, ask whether to, or let them end as failed (auto)",
    )  # fmt: skip
    serve.add_argument(
        "--idle", type=_seconds, metavar="SECONDS", help="idle sessions leave memory after that, until they are needed"
    )

    attach = add("attach", "watch and use a session of a running server", _ATTACH)
    attach.add_argument("url", metavar="URL", help="ws://host:port")
    attach.add_argument("session", metavar="SESSION", help="the session's id")
    attach.add_argument("--token-file", metavar="FILE", help="where the token is; else the variable ACTORS_TOKEN")
    attach.add_argument("--answers", metavar="FILE", help=_ANSWERS)
    attach.add_argument("--create", action="store_true", default=None, help="make the session if there is none")
    sessions = add("sessions", "look into a store of sessions", _SESSIONS, epilog=_SESSIONS_CODES)
    _add_sessions(sessions, common)
    return parser


def _add_sessions(sessions: _Parser, common: _Parser) -> None:
    where = f"{_STORE} (the one of `actors serve`)"
    sessions.add_argument("--store", metavar="FILE", help=where)
    actions = sessions.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser)

    def add(name: str, summary: str) -> _Parser:
        action = actions.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", parents=[common], allow_abbrev=False
        )
        # Without a default of its own: it would take the place of one that was given before the action.
        action.add_argument("--store", metavar="FILE", default=argparse.SUPPRESS, help=where)
        return action

    which = add("list", "list the sessions, by their ids")
    which.add_argument("--status", choices=("idle", "running", "waiting", "cancelling", "damaged"), help="only those")
    which.add_argument("--limit", type=_positive, metavar="N", help="how many, at most (100)")
    which.add_argument("--json", action="store_true", default=None, help="one JSON object for each")

    one = add("show", "show what was said and done in a session")
    one.add_argument("session", metavar="SESSION", help="its id")
    one.add_argument("--json", action="store_true", default=None, help="its records, one JSON object for each")

    out = add("export", "write sessions as JSON lines, which import reads")
    out.add_argument("sessions", metavar="SESSION", nargs="*", help="their ids")
    out.add_argument("--all", action="store_true", default=None, help="every session of the store")
    out.add_argument("-o", "--output", metavar="FILE", help="a new file (standard output)")

    back = add("import", "read sessions that export wrote into a store")
    back.add_argument("file", metavar="FILE", help="the JSON lines; - reads standard input")

    gone = add("delete", "delete sessions, with everything of them")
    gone.add_argument("sessions", metavar="SESSION", nargs="+", help="their ids")
    gone.add_argument("--yes", action="store_true", default=None, help="do not ask")

    doctor = add("doctor", "check everything in a store")
    doctor.add_argument(
        "--repair", action="store_true", default=None, help="keep what cannot be read from being opened, and say why"
    )

    copy = add("backup", "copy a store into a new file, also while a server has it")
    copy.add_argument("output", metavar="FILE", help="the new file")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 is wanted, not {text!r}")
    return seconds


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"a number from 1 to 10000 is wanted, not {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port from 0 to 65535 is wanted, not {text!r}")
    return int(text)
