"""The moments of a run at which something can happen to it: each wait, and each look for a cancel.

It decides what counts as a checkpoint: a wait that a cancel could end, and a look that finds nothing and goes on
without a wait (`trio.lowlevel.checkpoint_if_cancelled`, which most functions of trio begin with). What does not count:
trio's own tasks, and the yield of a function that had nothing to wait for and is done. It must not know what happens.
"""

import inspect
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from types import CodeType, FrameType
from typing import Protocol

import trio
from trio.lowlevel import Task

from actors.testing.scheduler import STEPS, at_checkpoint, fail_wait, is_trios_own, unwatch_looks, watch_looks

_HERE = (__file__, watch_looks.__code__.co_filename)


class Moment(Protocol):
    """One moment. While it is looked at, everything stands still.

    Attributes:
        task: Whose it is.
        cancellable: A cancel could be delivered to that task right here; else it has ended, or cannot be interrupted.
    """

    task: Task
    cancellable: bool

    def fail(self, error: BaseException) -> None:
        """Let what is awaited here raise `error`. Only where it is cancellable."""
        ...

    def frames(self) -> Iterator[tuple[CodeType, int]]:
        """Yield code and line of what awaits what, the outermost first."""
        ...


class _Wait:
    """After a step of a task: it waits, or has ended."""

    __slots__ = ("cancellable", "task")

    def __init__(self, task: Task, cancellable: bool) -> None:
        self.task = task
        self.cancellable = cancellable

    def fail(self, error: BaseException) -> None:
        fail_wait(self.task, error)

    def frames(self) -> Iterator[tuple[CodeType, int]]:
        for frame, line in self.task.iter_await_frames():
            yield frame.f_code, line


class _Look:
    """In the middle of a step: the task looks whether it is cancelled."""

    __slots__ = ("error", "task")
    cancellable = True

    def __init__(self, task: Task) -> None:
        self.task = task
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.error = error

    def frames(self) -> Iterator[tuple[CodeType, int]]:
        found: list[tuple[CodeType, int]] = []
        frame: FrameType | None = inspect.currentframe()
        while frame is not None and frame.f_code is not STEPS:
            if frame.f_code.co_filename not in _HERE:
                found.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        yield from reversed(found)


class Checkpoints(trio.abc.Instrument):
    """Calls `reached` at each moment, from `start` until `stop`. Both are called in a running trio.

    Attributes:
        count: The moments so far.
    """

    def __init__(self, reached: Callable[[Moment], object], *, tasks: str = "*", every_step: bool = False) -> None:
        """
        Args:
            reached: Gets each moment, once `count` has counted it. It must not raise.
            tasks: Only the moments of tasks whose name is like this, with `*` and `?`.
            every_step: Also those that are not cancellable: the ends of tasks, and waits that cannot be interrupted.
        """
        self.count = 0
        self._reached = reached
        self._tasks = tasks
        self._every_step = every_step
        self._exited: Task | None = None

    def start(self) -> None:
        """From here on."""
        trio.lowlevel.add_instrument(self)
        watch_looks(self._looks)

    def stop(self) -> None:
        """Up to here."""
        unwatch_looks(self._looks)
        trio.lowlevel.remove_instrument(self)

    def task_exited(self, task: Task) -> None:
        """For trio."""
        self._exited = task

    def after_task_step(self, task: Task) -> None:
        """For trio."""
        exited, self._exited = self._exited, None
        if self._is_meant(task):
            cancellable = task is not exited and at_checkpoint(task)
            if cancellable or self._every_step:
                self.count += 1
                self._reached(_Wait(task, cancellable))

    def _looks(self, task: Task) -> None:
        if self._is_meant(task):
            look = _Look(task)
            self.count += 1
            self._reached(look)
            if look.error is not None:
                raise look.error

    def _is_meant(self, task: Task) -> bool:
        return fnmatchcase(task.name, self._tasks) and not is_trios_own(task)
