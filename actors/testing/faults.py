"""Faults at exact moments: the n-th checkpoint of a scenario fails, or is cancelled.

It decides what counts as a checkpoint: each time that a task gives way to trio's scheduler where a cancel could reach
it. Trio's own tasks do not count, nor does the yield of a function that had nothing to wait for and is done. It must
not know actors. Under one scheduler seed and a virtual clock the n-th checkpoint is always the same one.
"""

from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Literal, Self, TypeVarTuple

import trio
from trio.lowlevel import Task

from actors.testing.running import run
from actors.testing.scheduler import at_checkpoint, fail_wait, is_trios_own

Ts = TypeVarTuple("Ts")

#: What happens at a checkpoint: an error is raised there, everything is cancelled, or a function is called.
Act = BaseException | type[BaseException] | Literal["cancel"] | Callable[[], object]


class Fault(trio.abc.Instrument):
    """Counts checkpoints from its block's start, and strikes at one of them. Made by `inject` and `count_checkpoints`.

    Use it once: as a block (`with fault:`) in a running test, or as `run(..., fault=fault)`.

    Attributes:
        count: The checkpoints so far.
        struck: The name of the task that it struck, or None.
        cancelled: True if its block was left because of its cancel.
    """

    def __init__(self, n: int | None, act: Act | None, tasks: str) -> None:
        self.count = 0
        self.struck: str | None = None
        self.cancelled = False
        self._n = n
        self._act = act
        self._tasks = tasks
        self._scope = trio.CancelScope()
        self._exited: Task | None = None
        self._raised: Exception | None = None

    def __repr__(self) -> str:
        at = "counting" if self._n is None else f"{self._act!r} at checkpoint {self._n}"
        return f"<Fault {at}, {self.count} so far>"

    def __enter__(self) -> Self:
        self._scope.__enter__()
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        trio.lowlevel.remove_instrument(self)
        try:
            swallowed = bool(self._scope.__exit__(kind, error, traceback))
        finally:
            self.cancelled = self._scope.cancelled_caught
        if error is not None and not swallowed:
            return False
        if self._raised is not None:
            raise self._raised
        if self._n is not None and self.struck is None:
            raise AssertionError(f"checkpoint {self._n} was never reached: there were {self.count}")
        return swallowed

    def task_exited(self, task: Task) -> None:
        """For trio."""
        self._exited = task

    def after_task_step(self, task: Task) -> None:
        """For trio, which would only log what is raised in here, and go on without it."""
        exited, self._exited = self._exited, None
        try:
            if task is not exited and self._counts(task):
                self.count += 1
                if self.count == self._n:
                    self.struck = task.name
                    self._strike(task)
        except Exception as error:
            self._raised = self._raised or error

    def _counts(self, task: Task) -> bool:
        return fnmatchcase(task.name, self._tasks) and not is_trios_own(task) and at_checkpoint(task)

    def _strike(self, task: Task) -> None:
        act = self._act
        if isinstance(act, BaseException):
            fail_wait(task, act)
        elif callable(act):
            act()
        else:
            self._scope.cancel(reason=f"injected at checkpoint {self._n}")


def inject(n: int, act: Act, *, tasks: str = "*") -> Fault:
    """Let something happen at the n-th checkpoint of a block or a run.

    Args:
        n: 1 is the first.
        act: An error or its class: the wait there is ended and raises it. `"cancel"`: the block or run is cancelled, as
            if from outside. A function: it is called, while everything stands still; what it raises comes out of the
            block. To cancel something smaller, give its scope's `cancel`, or to stop an actor, its handle's `stop`.
        tasks: Counts only the tasks whose name is like this, with `*` and `?`: `"actor bank"` is one actor.

    Raises:
        ValueError: `n` is below 1, or `act` is another word than "cancel".
        AssertionError: From the block or the run: it has ended without having reached its n-th checkpoint.
    """
    if n < 1:
        raise ValueError(f"checkpoints count from 1, not {n}")
    made: Any = act
    if isinstance(act, type) and issubclass(act, BaseException):
        made = act(f"injected at checkpoint {n}")
    if isinstance(act, str) and act != "cancel":
        raise ValueError(f"{act!r} is no fault; one is an error, a function, or 'cancel'")
    return Fault(n, made, tasks)


def count_checkpoints(*, tasks: str = "*") -> Fault:
    """Return what counts the checkpoints of a block or a run, and does nothing else. Arguments as for `inject`."""
    return Fault(None, None, tasks)


def every_checkpoint(
    scenario: Callable[[*Ts], Awaitable[object]], *args: *Ts, seed: int = 0, tasks: str = "*"
) -> range:
    """Run a scenario undisturbed, and return the numbers of its checkpoints, to be given to `inject` one by one.

    Not from within a running trio. A run with the same seed, scenario and arguments is the same up to the fault.

    Args:
        scenario: An async function.
        args: Given to it.
        seed: Of the scheduler, for `run(..., seed=seed, fault=inject(n, ...))`.
        tasks: As for `inject`.

    Raises:
        Exception: What the scenario raised.
    """
    counting = count_checkpoints(tasks=tasks)
    run(scenario, *args, seed=seed, fault=counting)
    return range(1, counting.count + 1)
