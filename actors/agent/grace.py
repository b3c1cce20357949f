"""The cancel grace: runs that are being cancelled and have not ended. One parked task per agent, no timer per run."""

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from actors.agent.run import LiveRun


class CancelGrace:
    """Gives up runs that do not end within `seconds` of their cancel.

    Every run has the same grace, so the order of cancels is the order of deadlines. Nothing is scheduled while no run
    is being cancelled, so a virtual clock is free to jump.
    """

    __slots__ = ("_due", "_scope", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[LiveRun, float] = {}
        self._scope: trio.CancelScope | None = None

    def watch(self, live: "LiveRun") -> None:
        """A run's cancel was requested now."""
        self._due.setdefault(live, trio.current_time() + self._seconds)
        self._reschedule()

    def ended(self, live: "LiveRun") -> None:
        """A run has ended; most were never watched."""
        if self._due.pop(live, None) is not None and not self._due:
            self._reschedule()

    def _reschedule(self) -> None:
        if self._scope is not None:
            deadline = next(iter(self._due.values()), float("inf"))
            if self._scope.deadline != deadline:
                self._scope.deadline = deadline

    async def keep(self) -> None:
        """Give up what is due, for ever. Run it in one task."""
        try:
            while True:
                deadline = next(iter(self._due.values()), float("inf"))
                with trio.CancelScope(deadline=deadline) as self._scope:
                    await trio.sleep_forever()
                now = trio.current_time()
                for live in [live for live, due in self._due.items() if due <= now]:
                    del self._due[live]
                    live.give_up()
        finally:
            self._scope = None
