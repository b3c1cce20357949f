"""After each scenario everything is as it was: no task, no file descriptor, no name, no object that raised unheard."""

import gc
import os
from collections.abc import AsyncIterator

import pytest
import trio


def _tasks() -> set[trio.lowlevel.Task]:
    """Every living task, by walking the tree from its root."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found: set[trio.lowlevel.Task] = set()
    open_ = [root]
    while open_:
        task = open_.pop()
        found.add(task)
        for nursery in task.child_nurseries:
            open_.extend(nursery.child_tasks)
    return found


def _descriptors() -> int | None:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """Compare tasks and descriptors before and after, and let the garbage collector speak."""
    before, descriptors = _tasks(), _descriptors()
    yield
    left = {task.name for task in _tasks() - before}
    assert not left, f"tasks are left: {left}"
    assert _descriptors() == descriptors, "file descriptors are left open"
    gc.collect()
