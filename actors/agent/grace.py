"""The cancel grace: runs that are being cancelled and have not ended. Deadlines are the actor system's."""

from functools import partial
from typing import TYPE_CHECKING

from actors.runtime import Alarm, System

if TYPE_CHECKING:
    from actors.agent.run import LiveRun


class CancelGrace:
    """Gives up runs that do not end within `seconds` of their cancel."""

    __slots__ = ("_due", "_seconds", "_system")

    def __init__(self, system: System, seconds: float) -> None:
        self._system = system
        self._seconds = seconds
        self._due: dict[LiveRun, Alarm] = {}

    def watch(self, live: "LiveRun") -> None:
        """A run's cancel was requested now. A second request does not lengthen its grace."""
        if live not in self._due:
            self._due[live] = self._system.call_later(self._seconds, partial(self._over, live))

    def ended(self, live: "LiveRun") -> None:
        """A run has ended; most were never watched."""
        alarm = self._due.pop(live, None)
        if alarm is not None:
            alarm.cancel()

    def _over(self, live: "LiveRun") -> None:
        del self._due[live]
        live.give_up()
