"""One play of a scenario: seeded, in virtual time, with the faults of one case; and what must hold after any of them.

It decides what is wrong in every trio program: it does not end, it raises what nobody injected, it leaves tasks,
descriptors, actors, names or timers, or an error that could only be printed. What a scenario adds are its own checks.
"""

import gc
import inspect
import os
import sys
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast

import trio
from trio.testing import MockClock

import actors.testing
from actors.testing.checkpoints import Checkpoints, Moment
from actors.testing.conservation import conserving
from actors.testing.running import limited
from actors.testing.scheduler import seeded
from actors.testing.sweep.case import CANCEL, ERROR, Case
from actors.testing.sweep.reach import Reach
from actors.testing.sweep.scenario import LIMIT_S, Scenario
from actors.testing.sweep.stage import InjectedError, Stage

_BELOW = (os.path.dirname(trio.__file__), os.path.dirname(actors.testing.__file__))


@dataclass(slots=True)
class Played:
    """What was seen in one play.

    Attributes:
        moments: How many there were.
        checkpoints: How many of them were checkpoints: a cancel could be delivered right there.
        failable: At which of them the fault `error` would have struck.
        possible_after: By name, at how many moments a fault was not possible yet.
        possible_until: By name, the last moment at which one that was withdrawn was possible.
        where: The stack of the task whose moment was struck, the outermost first.
        task: Its name.
        missed: The moment came, and nothing of the case was possible any more; or it did not come.
    """

    moments: int = 0
    checkpoints: int = 0
    failable: list[int] = field(default_factory=list[int])
    possible_after: dict[str, int] = field(default_factory=dict[str, int])
    possible_until: dict[str, int] = field(default_factory=dict[str, int])
    where: list[str] = field(default_factory=list[str])
    task: str = ""
    missed: bool = False


class Wrong(AssertionError):
    """Something does not hold after a play.

    Attributes:
        played: What was seen until then.
    """

    def __init__(self, text: str, played: Played) -> None:
        super().__init__(text)
        self.played = played


def play(scenario: Scenario, case: Case | None, *, seed: int = 0, reach: Reach | None = None) -> Played:
    """Play a scenario once. Not from within a running trio.

    Args:
        scenario: What to play.
        case: What happens to it; None for nothing.
        seed: Of the scheduler and of the module `random`.
        reach: Is told of every moment.

    Raises:
        Wrong: Something does not hold; its cause is what was raised.
    """
    player = _Player(scenario, case, reach)
    clock = MockClock(autojump_threshold=0)
    before = _descriptors()
    try:
        with _nothing_ignored() as ignored, seeded(seed), conserving():
            trio.run(limited, scenario.name, player.run, LIMIT_S, nullcontext(), clock=clock)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: ASYNC103 - trio has ended
        raise Wrong(_one_line(error), player.played) from error  # noqa: ASYNC104
    if ignored:
        raise Wrong(f"could only be printed: {ignored[0]}", player.played)
    left = _descriptors() - before
    if left > 0:
        raise Wrong(f"{left} descriptors are left open", player.played)
    return player.played


class _Player:
    """Plays, and strikes when it is time."""

    def __init__(self, scenario: Scenario, case: Case | None, reach: Reach | None) -> None:
        self.played = Played()
        self._scenario = scenario
        self._case = case
        self._reach = reach
        self._stage = Stage()
        self._scope = trio.CancelScope()
        self._struck_at = 0

    async def run(self) -> None:
        stage, played = self._stage, self.played
        checkpoints = Checkpoints(self._reached, every_step=True)
        before = trio.lowlevel.current_statistics().tasks_living
        checkpoints.start()
        try:
            with self._scope:
                await self._scenario.play(stage)
        except BaseException as error:  # noqa: ASYNC103 - raised again where it is not what was injected
            if stage.error is None or not _is_only(error, stage.error):
                raise
        finally:
            checkpoints.stop()
            played.possible_after = stage.possible_after
            played.possible_until = stage.possible_until
            played.missed = self._case is not None and not self._struck_at
        for check in stage.checks:
            result = check()
            if inspect.isawaitable(result):
                await result
        if stage.raised is not None:
            raise AssertionError(f"the fault itself met {stage.raised!r}") from stage.raised
        after = trio.lowlevel.current_statistics().tasks_living
        if after != before:
            raise AssertionError(f"{after - before} tasks are left")

    def _reached(self, moment: Moment) -> None:
        played, case, stage = self.played, self._case, self._stage
        played.moments = stage.moments = played.moments + 1
        if moment.cancellable:
            played.checkpoints += 1
            if case is None and fnmatchcase(moment.task.name, self._scenario.errors_in):
                played.failable.append(played.moments)
        if self._reach is not None:
            self._reach.add(moment)
        if case is None:
            return
        if played.moments == case.moment and stage.can(case.pattern):
            self._struck_at = played.moments
            played.task = moment.task.name
            played.where = [*_where(moment)]
            self._strike(case.pattern.first, moment)
        elif self._struck_at and played.moments == self._struck_at + case.pattern.later:
            self._strike(case.pattern.second, moment)

    def _strike(self, names: tuple[str, ...], moment: Moment) -> None:
        stage = self._stage
        for name in names:
            if name == CANCEL:
                stage.struck.append(CANCEL)
                self._scope.cancel(reason=f"swept at moment {self.played.moments}")
            elif name == ERROR:
                if moment.cancellable:
                    stage.struck.append(ERROR)
                    stage.error = InjectedError(f"swept at moment {self.played.moments}")
                    moment.fail(stage.error)
            else:
                stage.strike(name)


def _where(moment: Moment) -> Iterator[str]:
    for code, line in moment.frames():
        if not code.co_filename.startswith(_BELOW):
            yield f"{code.co_filename}:{line}, in {code.co_name}"


def _is_only(error: BaseException, injected: InjectedError) -> bool:
    """Return whether this is the injected error, maybe in groups."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_only(member, injected) for member in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return error is injected


def _one_line(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    said = str(error).splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


@contextmanager
def _nothing_ignored() -> Generator[list[str]]:
    """Collect what could only be printed: exceptions in finalizers and callbacks, coroutines that nobody awaited."""
    ignored: list[str] = []

    def note(args: Any) -> None:
        ignored.append(f"{args.exc_value!r} in {args.object!r}")

    hook, sys.unraisablehook = sys.unraisablehook, note
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", ResourceWarning)
            warnings.filterwarnings("always", message="coroutine .* was never awaited", category=RuntimeWarning)
            yield ignored
            gc.collect(1)  # what this play has left is young
        ignored += [str(warning.message) for warning in warned]
    finally:
        sys.unraisablehook = hook


def _descriptors() -> int:
    for directory in ("/proc/self/fd", "/dev/fd"):
        if os.path.isdir(directory):
            return len(os.listdir(directory))
    return 0
