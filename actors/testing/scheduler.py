"""What the kit takes from trio that trio does not promise: the order of tasks, and whether a task waits and for what.

It decides nothing; it must not know tests, systems or actors. Everything private is in this file, and
`tests/actors/testing/test_scheduler.py` fails when a release of trio changes any of it. The order of tasks goes through
the hook that trio made for Hypothesis: `_ALLOW_DETERMINISTIC_SCHEDULING`, which has each batch of tasks put into the
order of their birth before it is shuffled, and `_r`, which shuffles it.
"""

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from types import FunctionType
from typing import Any, NoReturn

import outcome
import trio
from trio.lowlevel import Task, cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled, current_task

from actors.runtime.messages import QuickMessages

# By name: to a type checker these are not there, or constants.
_runner: Any = import_module("trio._core._run")
_look: Any = checkpoint_if_cancelled
_messages: Any = QuickMessages

_YIELD = cancel_shielded_checkpoint.__code__
_CHECKPOINT = checkpoint.__code__

#: The code of the loop that takes one step of each task that is ready.
STEPS = _runner.unrolled_run.__code__


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Make the order in which trio runs tasks follow from `seed`, for the length of the block.

    It is one generator for the whole process: use it around `trio.run`, and in one thread at a time. The functions of
    the module `random` are seeded too, as jitter comes from there. Both go on afterwards as if nothing had been.
    """
    order: random.Random = _runner._r
    before = (_runner._ALLOW_DETERMINISTIC_SCHEDULING, order.getstate(), random.getstate())
    _runner._ALLOW_DETERMINISTIC_SCHEDULING = True
    order.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        _runner._ALLOW_DETERMINISTIC_SCHEDULING = before[0]
        order.setstate(before[1])
        random.setstate(before[2])


def is_trios_own(task: Task) -> bool:
    """Return whether a task is trio's own or a system task: not the main task, and not below it. No checkpoint."""
    root = trio.lowlevel.current_root_task()
    assert root is not None  # a task is there, so its root is
    while (nursery := task.parent_nursery) is not None:
        task = nursery.parent_task
        if task is root:
            # The root has opened three, one in the other; the innermost is for the main task alone.
            return nursery is not root.child_nurseries[-1]
    return True


def at_checkpoint(task: Task) -> bool:
    """Return whether a cancel could end the wait that a task has just begun. From `after_task_step` only."""
    waiting: Any = task
    if waiting._abort_func is not None:
        return True
    if waiting._next_send_fn is None:
        return False  # it refused to be interrupted: a thread, say
    # It runs again at once: it was cancelled, or it has only let others run. Many functions do the latter after their
    # work, so that they are a checkpoint without having waited; there they can neither be cancelled nor fail.
    codes = [frame.f_code for frame, _ in task.iter_await_frames()]
    if _YIELD not in codes:
        return True
    return codes[codes.index(_YIELD) - 1] is _CHECKPOINT


def fail_wait(task: Task, error: BaseException) -> None:
    """Let the wait that a task has just begun raise `error`. From `after_task_step`, where `at_checkpoint` is true."""

    def raise_error() -> NoReturn:
        raise error

    waiting: Any = task
    if waiting._abort_func is not None:
        # As a cancel is delivered: the wait is taken out of whatever queue it stands in.
        waiting._attempt_abort(raise_error)
    else:
        waiting._next_send = outcome.Error(error)


_watchers: list[Callable[[Task], object]] = []
_LOOK = _look.__code__
_NEXT = _messages.__anext__


def watch_looks(watcher: Callable[[Task], object]) -> None:
    """Call `watcher(task)` wherever a task is about to look whether it is cancelled, in `checkpoint_if_cancelled`.

    What it raises is raised there. The loop over an actor's messages looks in a way of its own, and counts.
    """
    if not _watchers:
        # Its code is exchanged: by now, everybody has the function itself under a name of their own.
        _runner.actors_testing_looks = _looks
        _runner.actors_testing_look = FunctionType(_LOOK, _look.__globals__, "checkpoint_if_cancelled")
        _look.__code__ = _watched_look.__code__
        _messages.__anext__ = _watched_next
    _watchers.append(watcher)


def unwatch_looks(watcher: Callable[[Task], object]) -> None:
    """Take back one `watch_looks`."""
    _watchers.remove(watcher)
    if not _watchers:
        _look.__code__ = _LOOK
        _messages.__anext__ = _NEXT
        del _runner.actors_testing_looks, _runner.actors_testing_look


def _looks() -> None:
    task = current_task()
    for watcher in tuple(_watchers):
        watcher(task)


async def _watched_look() -> None:
    # Runs as trio's function, so these are names of trio's module.
    actors_testing_looks()  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    await actors_testing_look()  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


async def _watched_next(messages: "QuickMessages[Any]") -> Any:
    _looks()
    return await _NEXT(messages)


def take_shields_off(task: Task) -> None:
    """Let a cancel from outside reach a task through every shield around it. No checkpoint."""
    inside: Any = task
    status = inside._cancel_status
    while status is not None:
        status._scope.shield = False
        status = status._parent
