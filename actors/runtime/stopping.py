"""Ordered stop: children end in the reverse order of their start, one after the other.

It decides who is stopped next, and when one that does not end is passed over. Whoever started later may use who
started earlier, so each finds everything it was built on until it has ended (R25). There is no task for it: the end
of one child stops the next.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from actors.runtime import log
from actors.runtime.ref import DownKind
from actors.runtime.wheel import Wheel


class Stoppable(Protocol):
    """A child, as far as this module sees it."""

    #: It has children, and names those that do not end.
    names_its_own: ClassVar[bool]

    @property
    def path(self) -> str: ...

    @property
    def ended(self) -> bool: ...

    def stop(self, reason: str, kind: DownKind) -> None: ...

    def grace_s(self) -> float: ...


class StopChain:
    """One stop of a supervisor's children. The end of one is reported with `child_ended`."""

    __slots__ = ("_current", "_deadline", "_due_at", "_kind", "_left", "_reason", "_wheel")

    def __init__(self, wheel: Wheel, children: Sequence[Stoppable], reason: str, kind: DownKind) -> None:
        self._wheel = wheel
        self._left = list(children)
        self._reason = reason
        self._kind = kind
        self._current: Stoppable | None = None
        self._deadline = 0.0
        self._due_at: float | None = None  # of the one entry that this has on the wheel
        self._next()

    @property
    def active(self) -> bool:
        """True while a child is being stopped."""
        return self._current is not None

    def child_ended(self, child: Stoppable) -> None:
        """A child has ended, the one that is being stopped or another."""
        if child is self._current:
            self._next()

    def due(self) -> None:
        """The time of an earlier child, or of this one, has run out."""
        self._due_at = None
        child = self._current
        if child is None:
            return
        if self._wheel.now() < self._deadline:
            self._arm()
            return
        if not child.names_its_own:
            # trio cannot end a task that does not let itself be cancelled: say who it is, and go on with the others.
            text = "actor %r has not ended %g s after it was stopped; the next is stopped"
            log.warning(text, child.path, child.grace_s())
        self._next()

    def _next(self) -> None:
        self._current = None
        while self._left:
            child = self._left.pop()
            if child.ended:
                continue
            self._current = child
            self._deadline = self._wheel.now() + child.grace_s()
            self._arm()
            child.stop(self._reason, self._kind)
            return

    def _arm(self) -> None:
        # One entry serves all children: each step of a long chain would leave its own on the wheel.
        if self._due_at is None or self._deadline < self._due_at:
            self._due_at = self._deadline
            self._wheel.add(self, self._deadline)
