"""What every task waits for, in words: for a run that does not end.

It decides what is worth a line. It must not know why nothing goes on.
"""

import os
from collections.abc import Iterator

import trio
from trio.lowlevel import Task

from actors.testing.scheduler import is_trios_own

#: More tasks than this are counted, not listed.
_MAX_LINES = 50
_TRIO = os.path.dirname(trio.__file__)


def who_waits() -> list[str]:
    """Return one line for each task that is not trio's own: its name, and the line of code where it waits."""
    root = trio.lowlevel.current_root_task()
    assert root is not None  # somebody called this
    lines = [_line(task) for task in _below(root) if not is_trios_own(task)]
    more = len(lines) - _MAX_LINES
    return [*lines[:_MAX_LINES], f"  and {more} more tasks"] if more > 0 else lines


def _below(root: Task) -> Iterator[Task]:
    open_ = [root]
    while open_:
        task = open_.pop()
        yield task
        for nursery in task.child_nurseries:
            open_.extend(sorted(nursery.child_tasks, key=lambda child: child.name))


def _line(task: Task) -> str:
    where = "not started"
    for frame, line in task.iter_await_frames():
        file = frame.f_code.co_filename
        # The innermost line of the program: that trio's own functions wait in trio says nothing.
        if not file.startswith(_TRIO):
            where = f"{file}:{line}, in {frame.f_code.co_name}"
    return f"  {task.name}: {where}"
