"""What a scenario has of the sweep that plays it: it says what can happen to it, and what must hold afterwards."""

from collections.abc import Awaitable, Callable

from actors.testing.sweep.case import CANCEL, ERROR, Pattern

Check = Callable[[], object]


class InjectedError(Exception):
    """What the fault `error` raises in the task that waits."""


class Stage:
    """The sweep, as a scenario sees it. Each play has its own.

    Attributes:
        struck: The names of the faults that have happened so far, in order.
        error: What was raised by the fault `error`, or None.
    """

    def __init__(self) -> None:
        self.struck: list[str] = []
        self.error: InjectedError | None = None
        self.faults: dict[str, Callable[[], object]] = {}
        #: By name, at how many moments before it a fault was first possible.
        self.possible_after: dict[str, int] = {}
        #: By name, the last moment at which one that was withdrawn was possible.
        self.possible_until: dict[str, int] = {}
        self.checks: list[Check] = []
        self.raised: Exception | None = None
        self.moments = 0

    def fault(self, name: str, act: Callable[[], object]) -> None:
        """From here on, this can happen; another `act` of the same name takes the place of the first.

        Args:
            name: Letters, digits, `_` and `-`; `cancel` and `error` are there without being asked for.
            act: Synchronous. Called at most twice, while everything stands still, maybe within a task of the scenario.
                If it raises, that is found.

        Raises:
            ValueError: The name is taken.
        """
        if name in (CANCEL, ERROR):
            raise ValueError(f"every scenario has the fault {name!r} already")
        self.faults[name] = act
        self.possible_after.setdefault(name, self.moments)
        self.possible_until.pop(name, None)

    def withdraw(self, name: str) -> None:
        """From here on, this can happen no more. Does nothing if it could not."""
        if self.faults.pop(name, None) is not None:
            self.possible_until[name] = self.moments

    def afterwards(self, check: Callable[[], object] | Callable[[], Awaitable[object]]) -> None:
        """When the scenario has ended, however it did, call this, and await what it returns if that can be awaited.

        What it raises is found. The checks are called in the order in which they were given, none of them cancelled.
        """
        self.checks.append(check)

    def can(self, pattern: Pattern) -> bool:
        """Return whether something of the pattern's first tick can happen now."""
        return any(name in (CANCEL, ERROR) or name in self.faults for name in pattern.first)

    def strike(self, name: str) -> None:
        """Let it happen, if it can."""
        act = self.faults.get(name)
        if act is None:
            return
        self.struck.append(name)
        try:
            act()
        except Exception as error:
            self.raised = self.raised or error
