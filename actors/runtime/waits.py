"""Who waits for whom: finds an ask that could never be answered, before it is sent.

It decides whether a wait closes a cycle, and the path that is named then. It must not know mailboxes or replies. Only
the task that runs an actor's body counts: while that waits, the actor takes no message. Other tasks of an actor may
wait for anybody.
"""

from typing import Protocol

from trio.lowlevel import Task, current_task

from actors.runtime.errors import AskCycle


class Waiter(Protocol):
    """An actor, as far as this module sees it."""

    name: str
    waits_for: "Waiter | None"
    receives_elsewhere: bool  # its messages are taken by another task than the one that runs its body


#: Whose body a task runs. Not per system: a cycle may go through two of them. An entry lives as long as its task.
bodies: dict[Task, Waiter] = {}


def enter(waiter: Waiter) -> None:
    """The task that calls this runs the body of `waiter` from now on."""
    bodies[current_task()] = waiter


def leave() -> None:
    """The task that calls this runs no body any more."""
    bodies.pop(current_task(), None)


def begin(waiter: Waiter, target: Waiter) -> None:
    """Note that a body will wait for `target`; at the end of the wait, set `waiter.waits_for` to None.

    Raises:
        AskCycle: `target` waits, perhaps through others, for the one that would wait for it.
    """
    if (waiter is target or target.waits_for is not None) and not waiter.receives_elsewhere:
        _check(waiter, target)
    waiter.waits_for = target


def _check(waiter: Waiter, target: Waiter) -> None:
    path = [waiter.name]
    seen: Waiter | None = target
    while seen is not None:
        path.append(seen.name)
        if seen is waiter:
            raise AskCycle(tuple(path))
        if seen.receives_elsewhere:
            return
        seen = seen.waits_for
