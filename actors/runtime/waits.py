"""Who waits for whom: finds an ask that could never be answered, before it is sent.

It decides whether a wait closes a cycle, and the path that is named then. It must not know mailboxes or replies. Only
the task that runs an actor's body counts: while that waits, the actor takes no message. Other tasks of an actor may
wait for anybody.
"""

from collections.abc import Callable
from typing import Protocol

from trio.lowlevel import Task, current_task

from actors.runtime.errors import AskCycle


class Wait(Protocol):
    """One wait for another actor: for its answer, for room in its mailbox, for its start or its end."""

    @property
    def active(self) -> bool:
        """False once it is over, even if the task that waited has not run since."""
        ...


class Until:
    """A wait for the start or the end of another actor."""

    __slots__ = ("_goes_on",)

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self._goes_on = goes_on

    @property
    def active(self) -> bool:
        """False once it is over."""
        return self._goes_on()


class Waiter(Protocol):
    """An actor, as far as this module sees it."""

    name: str
    waits_for: "Waiter | None"
    wait: Wait | None
    receives_elsewhere: bool  # its messages are taken by another task than the one that runs its body


#: Whose body a task runs. Not per system: a cycle may go through two of them. An entry lives as long as its task.
bodies: dict[Task, Waiter] = {}


def enter(waiter: Waiter) -> None:
    """The task that calls this runs the body of `waiter` from now on."""
    bodies[current_task()] = waiter


def leave() -> None:
    """The task that calls this runs no body any more."""
    bodies.pop(current_task(), None)


def check(waiter: Waiter, target: Waiter) -> None:
    """See whether a body may wait for `target`.

    Raises:
        AskCycle: `target` waits, perhaps through others, for the one that would wait for it.
    """
    if waiter.receives_elsewhere or (waiter is not target and target.waits_for is None):
        return
    path = [waiter.name]
    seen: Waiter | None = target
    while seen is not None:
        path.append(seen.name)
        if seen is waiter:
            raise AskCycle(tuple(path))
        seen = waited_for(seen)


def waited_for(waiter: Waiter) -> Waiter | None:
    """Return whom a body waits for now; None also if another task of the actor takes its messages meanwhile."""
    if waiter.wait is None or not waiter.wait.active or waiter.receives_elsewhere:
        return None
    return waiter.waits_for


def begin(waiter: Waiter, target: Waiter, wait: Wait) -> None:
    """Note that a body waits, after `check`."""
    waiter.waits_for = target
    waiter.wait = wait


def end(waiter: Waiter) -> None:
    """Note that it waits no more."""
    waiter.waits_for = None
    waiter.wait = None
