"""The command line of `python -m bench`: which benches are run, and where their lines go.

Lines of JSON go to stdout, or to the file that `--json` names; the table goes to stderr. A missed goal is told in the
line and is no failure: a machine that does something else meanwhile must not turn a build red.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NoReturn, TextIO

import msgspec

from bench import agents, answers, asks, bare, cancel, runtime, store, table
from bench.harness import Row, run_row

COMPLETED = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130

BENCHES: dict[str, Callable[..., list[Row]]] = {
    "agent/one_turn": agents.one_turn,
    "agent/todo_write": agents.todo_write,
    "ask/roundtrip": asks.roundtrip,
    "ask/memory": asks.memory,
    "runtime/tell": runtime.tell,
    "runtime/send": runtime.send,
    "runtime/ask": runtime.ask,
    "runtime/fanout": runtime.fanout,
    "runtime/spawn": runtime.spawn,
    "runtime/idle": runtime.idle,
    "runtime/stop": runtime.stop,
    "cancel/all": cancel.cancel_all,
    "cancel/one": cancel.cancel_one,
    "cancel/setup": cancel.setup,
    "cancel/memory": cancel.memory,
    "cancel/random": cancel.cancel_random,
    "cancel/end": cancel.end,
    "store/append_grouped": store.append_grouped,
    "store/latency": store.latency,
    "store/reload": store.reload,
    "store/open": store.reopen,
    "store/ask_overhead": answers.ask_overhead,
}
_RANDOM = "cancel/random"

_DESCRIPTION = """\
Measure what runs, questions and actors cost. Each line names what it was measured against, in the same run on this
machine; those of `runtime` and `cancel` say of each other library what it took, or why it was not measured.

Goals are ratios to that reference, or stated for a machine whose trio checkpoint takes 3.5 us and scaled to this one's.
"""
_CODES = """\
exit codes:
  0    measured, whatever the goals say
  1    a bench failed
  2    wrong arguments, or a file that cannot be written
  130  interrupted; what was measured until then is printed
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        self.exit(USAGE, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments say and return the exit code.

    Args:
        argv: The arguments; None takes those of the process.

    Raises:
        SystemExit: 0 after `--help`, 2 after a wrong argument.
    """
    parser = _make_parser()
    options = parser.parse_args(argv)
    if options.list:
        for name, rows in BENCHES.items():
            print(f"{name:<22}{(rows.__doc__ or '').strip()}")
        return COMPLETED
    try:
        names = choose(options.names)
        benches = _choose_cancels(names, options.cancels)
    except ValueError as error:
        parser.error(str(error))
    with ExitStack() as stack:
        output = sys.stdout
        if options.json is not None:
            try:
                output = stack.enter_context(open(options.json, "w", encoding="utf-8"))
            except OSError as error:
                parser.error(f"{options.json!r} cannot be written: {error.strerror}")
        try:
            measure(benches, quick=options.quick, output=output, display=sys.stderr)
        except KeyboardInterrupt:
            return INTERRUPTED
        except RuntimeError as error:
            print(f"{parser.prog}: {error}", file=sys.stderr)
            return FAILED
    return COMPLETED


def choose(wanted: Sequence[str]) -> list[str]:
    """Return the benches that are meant, each once, in the order of the list; without a name all of them.

    Args:
        wanted: Names, or groups of them (`agent`).

    Raises:
        ValueError: A name that is neither; says what there is.
    """
    for name in wanted:
        if not any(_is_meant(bench, name) for bench in BENCHES):
            raise ValueError(f"there is no bench {name!r}; there are {', '.join(BENCHES)}")
    return [bench for bench in BENCHES if not wanted or any(_is_meant(bench, name) for name in wanted)]


def measure(benches: Mapping[str, Callable[..., list[Row]]], *, quick: bool, output: TextIO, display: TextIO) -> None:
    """Run benches one after the other and write each line as soon as it is there.

    Args:
        benches: Those of `BENCHES` that are meant.
        quick: Small sizes, to see that everything works; the lines say which.
        output: Gets one JSON object per line.
        display: Gets the table.
    """
    checkpoint_us = partial(bare.checkpoint_us, 2_000 if quick else 20_000)
    print(table.head(), file=display, flush=True)
    for rows in benches.values():
        for row in rows(quick=quick):
            line = run_row(row, checkpoint_us)
            print(msgspec.json.encode(line).decode(), file=output, flush=True)
            print(table.row(line), table.legend(line), sep="\n", file=display, flush=True)


def _choose_cancels(names: Sequence[str], cancels: int | None) -> dict[str, Callable[..., list[Row]]]:
    benches = {name: BENCHES[name] for name in names}
    if cancels is not None:
        if cancels < 1:
            raise ValueError(f"--cancels takes at least 1, not {cancels}")
        if _RANDOM not in benches:
            raise ValueError(f"--cancels says how many {_RANDOM} makes, and that is not among {', '.join(names)}")
        benches[_RANDOM] = partial(benches[_RANDOM], cancels=cancels)
    return benches


def _is_meant(bench: str, name: str) -> bool:
    return name == bench or name == bench.partition("/")[0]


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="bench", description=_DESCRIPTION, epilog=_CODES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help="a bench or a group of them (agent); default all")
    parser.add_argument("--json", metavar="FILE", help="write the lines there instead of to stdout")
    parser.add_argument("--quick", action="store_true", help="small sizes: a smoke test; the figures mean little")
    parser.add_argument("--cancels", metavar="N", type=int, help="how many runs cancel/random cancels")
    parser.add_argument("--list", action="store_true", help="say which benches there are and measure nothing")
    return parser
