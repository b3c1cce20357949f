"""The tasks of one session as a tree: read from trio's own tree, and described, so that it can be built without them.

It decides what counts as part of a session: its task, what that task has entered, and the tasks in its nurseries. It
must not import the library, nor know what the tasks do.
"""

from collections.abc import Iterator

import trio
from msgspec import Struct
from trio._core._run import CancelStatus


class Entered(Struct, frozen=True, array_like=True):
    """A cancel scope that a task is in.

    Attributes:
        tasks: Those in the nursery that it is the scope of; None where it is a scope and no more.
        cancelled: It is the one that a cancel of the session's run cancels.
    """

    tasks: "tuple[TaskShape, ...] | None" = None
    cancelled: bool = False


class TaskShape(Struct, frozen=True, array_like=True):
    """A task: the scopes that it is in, from the outermost to the innermost."""

    entered: tuple[Entered, ...] = ()

    @property
    def tasks(self) -> int:
        """How many tasks there are, this one included."""
        return 1 + sum(task.tasks for task in self._children())

    @property
    def nurseries(self) -> int:
        """How many nurseries there are."""
        return sum(layer.tasks is not None for layer in self.entered) + sum(
            task.nurseries for task in self._children()
        )

    @property
    def scopes(self) -> int:
        """How many cancel scopes there are, those of the nurseries included."""
        return len(self.entered) + sum(task.scopes for task in self._children())

    @property
    def cancellable(self) -> bool:
        """Whether one of the scopes is that of a run."""
        return any(layer.cancelled for layer in self.entered) or any(task.cancellable for task in self._children())

    def describe(self) -> str:
        """Return the counts in words."""
        nurseries = f"{self.nurseries} {'nursery' if self.nurseries == 1 else 'nurseries'}"
        tasks = f"{self.tasks} {'task' if self.tasks == 1 else 'tasks'}"
        return f"{tasks}, {nurseries} and {self.scopes} cancel scopes (those of nurseries included) per session"

    def _children(self) -> Iterator["TaskShape"]:
        for layer in self.entered:
            yield from layer.tasks or ()


def read_shape(task: trio.lowlevel.Task, cancelled: trio.CancelScope) -> TaskShape:
    """Return the shape of a task that runs now, with all that is in its nurseries.

    Args:
        task: Not the main task.
        cancelled: The scope that is to be marked.

    trio has no public way to say which scopes a task is in: this takes the chain that it keeps itself.
    """
    assert task.parent_nursery is not None
    outside = task.parent_nursery._cancel_status  # pyright: ignore[reportPrivateUsage]
    nurseries = {nursery.cancel_scope: nursery for nursery in task.child_nurseries}
    layers: list[Entered] = []
    status: CancelStatus | None = task._cancel_status  # pyright: ignore[reportPrivateUsage]
    while status is not None and status is not outside:
        scope = status._scope  # pyright: ignore[reportPrivateUsage]
        nursery = nurseries.get(scope)
        tasks = None
        if nursery is not None:
            tasks = tuple(read_shape(child, cancelled) for child in nursery.child_tasks)
        layers.append(Entered(tasks, scope is cancelled))
        status = status.parent
    return TaskShape(tuple(reversed(layers)))
