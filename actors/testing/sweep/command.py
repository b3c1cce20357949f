"""The command line of `python -m actors.testing.sweep`: which scenarios are swept, or which case is played again."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

from actors.testing.sweep.case import read_case, read_pattern
from actors.testing.sweep.playing import Wrong, play
from actors.testing.sweep.reach import Reach, explain, read_reasons
from actors.testing.sweep.scenario import Scenario
from actors.testing.sweep.sweeping import find, finding, open_pool, scenarios_in, sweep

HELD = 0
BROKEN = 1
USAGE = 2
INTERRUPTED = 130

_DESCRIPTION = """\
Play each scenario once to count its moments, then once for every moment and every fault, and check what must hold.
"""
_CODES = """\
exit codes:
  0    everything held
  1    something is broken, or a line that awaits was not reached and nobody says why
  2    wrong arguments
  130  interrupted
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
    sys.path[:0] = [] if os.getcwd() in sys.path or "" in sys.path else [os.getcwd()]
    try:
        scenarios = [scenario for target in options.targets for scenario in _chosen(target)]
        reasons = read_reasons(Path(options.reasons).read_text("utf-8")) if options.reasons else []
        for text in options.fault or ():
            read_pattern(text)
    except (LookupError, ValueError) as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{options.reasons!r} cannot be read: {error.strerror}")
    if options.list:
        for one in scenarios:
            print(f"{one.name}  {(one.__doc__ or '').strip().splitlines()[0] if one.__doc__ else ''}".rstrip())
        return HELD
    try:
        if options.case is not None:
            return _play_again(parser, scenarios, options.case, options.seed or 0)
        logging.disable(logging.CRITICAL)  # thousands of planned failures are not worth a line each
        return _sweep(parser, scenarios, options, reasons)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        logging.disable(logging.NOTSET)


def _chosen(target: str) -> list[Scenario]:
    return [find(target)] if ":" in target else scenarios_in(target)


def _play_again(parser: argparse.ArgumentParser, scenarios: Sequence[Scenario], text: str, seed: int) -> int:
    if len(scenarios) != 1:
        parser.error(f"a case is of one scenario; these are {', '.join(one.name for one in scenarios)}")
    (only,) = scenarios
    try:
        case = read_case(text)
        undisturbed = play(only, None, seed=seed)
        unknown = case.pattern.names - {"cancel", "error", *undisturbed.possible_after}
        if unknown:
            known = ", ".join(("cancel", "error", *undisturbed.possible_after))
            parser.error(f"{only.name} has no fault {', '.join(sorted(unknown))}; it has {known}")
        if case.moment > undisturbed.moments:
            parser.error(f"{only.name} has {undisturbed.moments} moments under seed {seed}, so none is {case.moment}")
    except ValueError as error:
        parser.error(str(error))
    except Wrong as wrong:
        found = finding(only, None, seed, wrong)
        print(found, found.details, sep="\n", end="")
        return BROKEN
    try:
        played = play(only, case, seed=seed)
    except Wrong as wrong:
        found = finding(only, case, seed, wrong)
        print(found, found.details, sep="\n", end="")
        return BROKEN
    if played.missed:
        print(f"{only.name}, {case}, seed {seed}: nothing of it was possible there")
    else:
        print(f"{only.name}, {case}, seed {seed}: held; it struck {played.task}, at", *played.where, sep="\n    ")
    return HELD


def _sweep(
    parser: argparse.ArgumentParser,
    scenarios: Sequence[Scenario],
    options: argparse.Namespace,
    reasons: Sequence[tuple[str, str]],
) -> int:
    reach = Reach(options.reach) if options.reach else None
    pool = open_pool(options.processes) if options.processes > 1 else None
    with pool or nullcontext():
        code = _sweep_each(parser, scenarios, options, reach, pool)
    if reach is not None:
        code = max(code, _tell_reach(reach, reasons))
    return code


def _sweep_each(
    parser: argparse.ArgumentParser,
    scenarios: Sequence[Scenario],
    options: argparse.Namespace,
    reach: Reach | None,
    pool: Executor | None,
) -> int:
    code = HELD
    checkpoints = plays = broken = 0
    for one in scenarios:
        try:
            report = sweep(
                one,
                faults=options.fault,
                seeds=None if options.seed is None else (options.seed,),
                stride=options.stride,
                reach=reach,
                pool=pool,
            )
        except ValueError as error:
            parser.error(str(error))
        print(report, flush=True)
        checkpoints += report.checkpoints
        plays += report.plays
        broken += len(report.findings)
        for found in report.findings:
            code = BROKEN
            print(found, flush=True)
    print(f"{len(scenarios)} scenarios, {checkpoints} checkpoints, {plays} plays, {broken} broken")
    return code


def _tell_reach(reach: Reach, reasons: Sequence[tuple[str, str]]) -> int:
    unreached = reach.unreached()
    left, unused = explain(unreached, reasons)
    total, explained = reach.count(), len(unreached) - len(left)
    print(f"of {total} lines that await, {total - len(unreached)} were reached, {explained} have a reason")
    for place in left:
        print(f"  not reached: {place}")
    for pattern in unused:
        print(f"  nothing needs this reason: {pattern}")
    return BROKEN if left or unused else HELD


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="actors.testing.sweep", description=_DESCRIPTION, epilog=_CODES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("targets", nargs="+", metavar="SCENARIO", help="module:name, or a module or package for all in it")
    add("--case", metavar="CASE", help="play this one again, such as cancel@41, and say where it strikes")
    add("--seed", type=int, metavar="N", help="scheduler seed, instead of those of the scenario")
    add("--fault", action="append", metavar="PATTERN", help="such as request,cancel or request+3:cancel")
    add("--stride", type=_positive, default=1, metavar="N", help="every how many moments; default 1")
    add("--processes", type=_positive, default=1, metavar="N", help="how many at a time; default 1")
    add("--reach", action="append", metavar="PATH", help="list the lines below it that await and were not reached")
    add("--reasons", metavar="FILE", help="which of these need not be reached: lines of `file:function` and why")
    add("--list", action="store_true", help="say which scenarios there are and play nothing")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


_positive.__name__ = "positive number"  # as argparse names it
