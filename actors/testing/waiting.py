"""What every task waits for, in words: for a run that does not end.

It decides what is worth a line: the code of the program, not how trio and the runtime wait. It must not know why
nothing goes on.
"""

import contextlib
import os
from collections.abc import Iterator
from inspect import CORO_CREATED, getcoroutinestate

import trio
from trio.lowlevel import Task

from actors import runtime
from actors.testing.scheduler import is_trios_own

#: More tasks than this are counted, not listed.
_MAX_LINES = 50
_RUNTIME = os.path.dirname(runtime.__file__)
_BELOW = (os.path.dirname(trio.__file__), _RUNTIME, os.path.dirname(__file__), contextlib.__file__)


def who_waits() -> list[str]:
    """Return one line for each task of the program: its name, and the innermost line of code where it waits."""
    lines = [line for task in program_tasks() for line in _line(task)]
    more = len(lines) - _MAX_LINES
    return [*lines[:_MAX_LINES], f"  and {more} more tasks"] if more > 0 else lines


def program_tasks() -> list[Task]:
    """Return every task that is not trio's own. No checkpoint."""
    root = trio.lowlevel.current_root_task()
    assert root is not None  # somebody called this
    found: list[Task] = []
    open_ = [root]
    while open_:
        task = open_.pop()
        if not is_trios_own(task):
            found.append(task)
        for nursery in task.child_nurseries:
            open_.extend(sorted(nursery.child_tasks, key=lambda child: child.name, reverse=True))
    return found


def _line(task: Task) -> Iterator[str]:
    where = "in trio"
    if getcoroutinestate(task.coro) == CORO_CREATED:
        where = "not started"
    else:
        for frame, line in task.iter_await_frames():
            file = frame.f_code.co_filename
            if not file.startswith(_BELOW):
                where = f"{file}:{line}, in {frame.f_code.co_name}"
            elif where == "in trio" and file.startswith(_RUNTIME):
                where = ""  # a task of the runtime's own, unless there is more
    if where:
        yield f"  {task.name}: {where}"
