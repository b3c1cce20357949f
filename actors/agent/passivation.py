"""Which sessions leave memory because nobody uses them, and when. They come back from the store when addressed.

One alarm for all: it looks at every session four times in `idle_s`, and lets go of those that were idle each time.
It must not know how a session ends or comes back.
"""

from collections.abc import Callable, Iterable

from actors.agent.session import Session
from actors.runtime import Alarm, System

_LOOKS = 4
#: How many sessions are looked at before others run, and after how many seconds the next ones are.
_SLICE = 1_024
_SLICE_S = 0.001


class Passivation:
    """Finds the sessions that were idle for `idle_s` to 1.25 times `idle_s`."""

    __slots__ = ("_alarm", "_idle_s", "_let_go", "_rest", "_sessions", "_system")

    def __init__(
        self,
        system: System,
        idle_s: float,
        sessions: Callable[[], Iterable[Session]],
        let_go: Callable[[Session], object],
    ) -> None:
        """Begin to look.

        Args:
            system: Has the alarm.
            idle_s: Seconds, above 0.
            sessions: Returns those that are open.
            let_go: Called with each that is to leave memory. Synchronous.

        Raises:
            ValueError: `idle_s` is not above 0.
        """
        if not idle_s > 0:
            raise ValueError(f"a session leaves memory after more than 0 s, not {idle_s}")
        self._system = system
        self._idle_s = idle_s
        self._sessions = sessions
        self._let_go = let_go
        self._rest: list[Session] = []
        self._alarm = self._again()

    def stop(self) -> None:
        """Look no more. Idempotent."""
        self._alarm.cancel()

    def _again(self) -> Alarm:
        return self._system.call_later(_SLICE_S if self._rest else self._idle_s / _LOOKS, self._look)

    def _look(self) -> None:
        if not self._rest:
            self._rest = list(self._sessions())
        some, self._rest = self._rest[:_SLICE], self._rest[_SLICE:]
        self._alarm = self._again()
        for session in some:
            session.quiet = session.quiet + 1 if session.at_rest else 0
            # The first look may have come right after its last use.
            if session.quiet > _LOOKS:
                self._let_go(session)
