"""The sweep: play a scenario once to count its moments, then once for every moment and every pattern of faults.

It decides which cases there are, and what a finding says: enough to play it again, alone.
"""

import gc
import logging
import pkgutil
import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import cast

from actors.testing.sweep.case import CANCEL, ERROR, Case, Pattern, read_pattern
from actors.testing.sweep.playing import Played, Wrong, play
from actors.testing.sweep.reach import Reach
from actors.testing.sweep.scenario import Play, Scenario, scenario


@dataclass(frozen=True, slots=True)
class Finding:
    """A case after which something does not hold.

    Attributes:
        scenario: `module:name`.
        case: None where it did not hold undisturbed.
        seed: Of the scheduler.
        text: What does not hold, in one line.
        task: Which task the moment was of.
        where: Where that task stood, the outermost frame first: `file:line, in function`.
        details: The traceback of what was raised.
    """

    scenario: str
    case: Case | None
    seed: int
    text: str
    task: str
    where: tuple[str, ...]
    details: str

    @property
    def command(self) -> str:
        """What plays it again."""
        case = "" if self.case is None else f" --case {self.case}"
        return f"{Path(sys.executable).name} -m actors.testing.sweep {self.scenario} --seed {self.seed}{case}"

    def __str__(self) -> str:
        lines = [f"{self.scenario}, {self.case or 'undisturbed'}, seed {self.seed}: {self.text}"]
        if self.where:
            lines += [f"  struck was {self.task}, at", *(f"    {line}" for line in self.where)]
        return "\n".join([*lines, f"  again: {self.command}"])


@dataclass(frozen=True, slots=True)
class Report:
    """What a sweep did and found.

    Attributes:
        scenario: `module:name`.
        moments: Of the undisturbed plays, all seeds together.
        checkpoints: Those of them at which a cancel could be delivered.
        plays: How many cases were played.
        findings: For each pattern and seed the first moment at which something breaks.
    """

    scenario: str
    moments: int = 0
    checkpoints: int = 0
    plays: int = 0
    findings: tuple[Finding, ...] = ()

    def check(self) -> "Report":
        """Return this report if everything held.

        Raises:
            AssertionError: Something did not; with every finding, and the traceback of the first.
        """
        if self.findings:
            raise AssertionError("\n".join([*map(str, self.findings), self.findings[0].details]))
        return self

    def __str__(self) -> str:
        found = f"{len(self.findings)} broken" if self.findings else "all held"
        return f"{self.scenario}: {self.checkpoints} checkpoints, {self.plays} plays, {found}"


@dataclass(slots=True)
class _Job:
    """One pattern under one seed."""

    scenario: str
    pattern: str
    seed: int
    moments: list[int]
    roots: tuple[Path, ...] | None


@dataclass(slots=True)
class _Done:
    plays: int = 0
    finding: Finding | None = None
    lines: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])


def sweep(
    what: Scenario | Play,
    *,
    faults: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    stride: int = 1,
    reach: Reach | None = None,
    processes: int = 1,
    pool: Executor | None = None,
) -> Report:
    """Play a scenario with each pattern of faults at each of its moments, and check after every play what must hold.

    A pattern is left at the first moment at which something breaks. Not from within a running trio.

    Args:
        what: The scenario, or just its function.
        faults: Patterns in the place of those that the scenario has.
        seeds: Of the scheduler, in the place of those that the scenario has.
        stride: Every how many moments; 1 is every one.
        reach: Is told of every moment.
        processes: How many at a time. With more than one the scenario must be importable under its name.
        pool: Where they are, from `open_pool`: several sweeps may use the same.

    Raises:
        ValueError: The scenario does not offer a fault that is asked for.
    """
    swept = what if isinstance(what, Scenario) else scenario(what)
    report = Report(swept.name)
    jobs: list[_Job] = []
    for seed in swept.seeds if seeds is None else seeds:
        try:
            played = play(swept, None, seed=seed, reach=reach)
        except Wrong as wrong:
            found = finding(swept, None, seed, wrong)
            report = replace(report, plays=report.plays + 1, findings=(*report.findings, found))
            continue
        report = replace(
            report,
            moments=report.moments + played.moments,
            checkpoints=report.checkpoints + played.checkpoints,
            plays=report.plays + 1,
        )
        possible = tuple(played.possible_after)
        patterns = swept.patterns(possible)
        if faults is not None:
            patterns = scenario(faults=faults)(swept.play).patterns(possible)
        roots = None if reach is None else reach.roots
        for number, pattern in enumerate(patterns):
            moments = _moments(pattern, played)[(number + seed) % stride :: stride]
            jobs.append(_Job(swept.name, str(pattern), seed, moments, roots))
    for done in _run_all(swept, jobs, processes, pool):
        report = replace(
            report,
            plays=report.plays + done.plays,
            findings=report.findings if done.finding is None else (*report.findings, done.finding),
        )
        if reach is not None:
            reach.lines |= done.lines
    return report


def _moments(pattern: Pattern, played: Played) -> list[int]:
    """Return at which moments something of the pattern's first tick can happen."""
    if pattern.first == (ERROR,):
        return played.failable
    every = played.moments
    spans = [
        (0, every)
        if name in (CANCEL, ERROR)
        else (played.possible_after[name], min(every, played.possible_until.get(name, every)))
        for name in pattern.first
    ]
    return list(range(min(after for after, _ in spans) + 1, max(until for _, until in spans) + 1))


def _run_all(swept: Scenario, jobs: list[_Job], processes: int, pool: Executor | None) -> Iterator[_Done]:
    if processes == 1 and pool is None:
        with _frozen():
            for job in jobs:
                yield _run(job, swept)
        return
    find(swept.name)  # here, where one can read why it cannot be imported
    if pool is not None:
        yield from pool.map(_run_elsewhere, jobs)
        return
    with open_pool(processes) as own:
        yield from own.map(_run_elsewhere, jobs)


def open_pool(processes: int) -> Executor:
    """Return so many processes for `sweep(..., pool=pool)`, as quiet as this one. Use it as a block."""
    level = logging.root.manager.disable
    return ProcessPoolExecutor(processes, get_context("spawn"), initializer=logging.disable, initargs=(level,))


def _run_elsewhere(job: _Job) -> _Done:
    with _frozen():
        return _run(job, find(job.scenario))


def _run(job: _Job, swept: Scenario) -> _Done:
    done = _Done()
    reach = None if job.roots is None else Reach(job.roots)
    pattern = read_pattern(job.pattern)
    for moment in job.moments:
        case = pattern.at(moment)
        done.plays += 1
        try:
            played = play(swept, case, seed=job.seed, reach=reach)
            if played.missed and played.moments < moment:
                raise Wrong(f"moment {moment} did not come: the same play is another one each time", played)
        except Wrong as wrong:
            done.finding = finding(swept, case, job.seed, wrong)
            break
    if reach is not None:
        done.lines = reach.lines
    return done


def finding(swept: Scenario, case: Case | None, seed: int, wrong: Wrong) -> Finding:
    """Return what there is to say about a play after which something does not hold."""
    details = "".join(traceback.format_exception(wrong.__cause__ or wrong))
    return Finding(swept.name, case, seed, str(wrong), wrong.played.task, tuple(wrong.played.where), details)


@contextmanager
def _frozen() -> Generator[None]:
    """What is there now is left out of the collections after each play: they look at what that play has left."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def find(name: str) -> Scenario:
    """Import `module:name`.

    Raises:
        LookupError: There is no such module, or no such scenario in it.
    """
    module, _, attribute = name.partition(":")
    try:
        found: object = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"there is no scenario {name!r}: {error}") from error
    if isinstance(found, Scenario):
        return found
    if callable(found):
        return scenario(cast(Play, found))
    raise LookupError(f"{name!r} is {type(found).__name__}, no scenario")


def scenarios_in(module: str) -> list[Scenario]:
    """Return what `@scenario` made in a module, in the order of the source; in a package, in each of its modules.

    Modules whose name begins with `test_` are left out: they are tests, and need pytest.

    Raises:
        LookupError: There is no such module, or nothing in it.
    """
    found = _scenarios_of(module)
    if not found:
        raise LookupError(f"nothing in {module!r} is made with @scenario")
    return found


def _scenarios_of(module: str) -> list[Scenario]:
    try:
        imported = import_module(module)
    except ImportError as error:
        raise LookupError(f"there is no module {module!r}: {error}") from error
    values = vars(imported).values()
    found = [value for value in values if isinstance(value, Scenario) and value.play.__module__ == module]
    for inner in pkgutil.iter_modules(getattr(imported, "__path__", ())):
        if not inner.name.startswith("test_"):
            found += _scenarios_of(f"{module}.{inner.name}")
    return found
