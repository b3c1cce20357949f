"""Faults at exact moments: the n-th checkpoint of a scenario fails, or is cancelled.

It decides what a fault does. What counts as a checkpoint is in `actors.testing.checkpoints`. It must not know actors.
Under one scheduler seed and a virtual clock the n-th checkpoint is always the same one.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Literal, Self, TypeVarTuple

import trio

from actors.testing.checkpoints import Checkpoints, Moment
from actors.testing.running import run

Ts = TypeVarTuple("Ts")

#: What happens at a checkpoint: an error is raised there, everything is cancelled, or a function is called.
Act = BaseException | type[BaseException] | Literal["cancel"] | Callable[[], object]


class Fault:
    """Counts checkpoints from its block's start, and strikes at one of them. Made by `inject` and `count_checkpoints`.

    Use it once: as a block (`with fault:`) in a running test, or as `run(..., fault=fault)`.

    Attributes:
        struck: The name of the task that it struck, or None.
        cancelled: True if its block was left because of its cancel.
    """

    def __init__(self, n: int | None, act: Act | None, tasks: str) -> None:
        self.struck: str | None = None
        self.cancelled = False
        self._n = n
        self._act = act
        self._checkpoints = Checkpoints(self._reached, tasks=tasks)
        self._scope = trio.CancelScope()
        self._raised: Exception | None = None

    def __repr__(self) -> str:
        at = "counting" if self._n is None else f"{self._act!r} at checkpoint {self._n}"
        return f"<Fault {at}, {self.count} so far>"

    @property
    def count(self) -> int:
        """The checkpoints so far."""
        return self._checkpoints.count

    def __enter__(self) -> Self:
        self._scope.__enter__()
        self._checkpoints.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._checkpoints.stop()
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

    def _reached(self, moment: Moment) -> None:
        if self.count == self._n:
            self.struck = moment.task.name
            try:
                self._strike(moment)
            except Exception as error:  # trio would only log it, and go on without this fault
                self._raised = error

    def _strike(self, moment: Moment) -> None:
        act = self._act
        if isinstance(act, BaseException):
            moment.fail(act)
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
