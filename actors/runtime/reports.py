"""What is said about a crash: to the log, and to the hook of the supervisor.

It decides that each crash is told once, that a flood of restarts is counted rather than written out, and that nothing a
hook or a log filter raises reaches a supervisor. It must not know how actors are restarted.
"""

import contextlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from actors.runtime.wheel import Wheel

logger = logging.getLogger("actors.runtime")

#: Restarts of one supervisor's children that are written out in any second; what goes beyond is logged as a number.
#: What ends for good is always written out.
MAX_LOGGED_PER_S = 20


@dataclass(frozen=True, slots=True)
class Crash:
    """One crash of an actor, or of a supervisor that gave up, with what was decided.

    Attributes:
        name: The actor's name.
        path: The same under its supervisors' names.
        error: What its body raised, unwrapped.
        message_kind: The type name of the message it had in hand, or None. Never what is in it.
        restarts: How often it has been restarted, with the restart that follows if there is one.
        restart_in_s: Seconds until that restart, or None: it has ended.
        gave_up: True if it has ended because the restarts are used up.
    """

    name: str
    path: str
    error: BaseException
    message_kind: str | None
    restarts: int
    restart_in_s: float | None
    gave_up: bool


class Reports:
    """Tells the crashes of one supervisor's children."""

    __slots__ = ("_hook", "_logged", "_more", "_since", "_wheel", "_whose")

    def __init__(self, wheel: Wheel, whose: str, hook: Callable[[Crash], None] | None) -> None:
        self._wheel = wheel
        self._whose = whose
        self._hook = hook
        self._since = -math.inf
        self._logged = 0
        self._more = 0

    def crashed(self, crash: Crash, budget: str) -> None:
        """Tell a crash, once. Never raises.

        Args:
            crash: What happened, and what was decided.
            budget: The restarts that are allowed, in words.
        """
        if crash.restart_in_s is None or self._may_log():
            self._guarded(lambda: _log(crash, budget), crash.path)
        if self._hook is not None:
            hook = self._hook
            self._guarded(lambda: hook(crash), crash.path)

    def returned(self, path: str, restarts: int, restart_in_s: float) -> None:
        """Tell that a body has returned and will run again. Never raises."""
        if self._may_log():
            text = "actor %r returned; restart %d in %.3f s"
            self._guarded(lambda: logger.info(text, path, restarts, restart_in_s), path)

    def returned_too_often(self, crash: Crash, budget: str) -> None:
        """Tell that a body has returned, and will not run again as its restarts are used up. Never raises."""
        text = "actor %r returned and is given up after %s"
        self._guarded(lambda: logger.error(text, crash.path, budget), crash.path)
        if self._hook is not None:
            hook = self._hook
            self._guarded(lambda: hook(crash), crash.path)

    def _may_log(self) -> bool:
        now = self._wheel.now()
        if now - self._since >= 1:
            self.flush()
            self._since, self._logged = now, 0
        if self._logged < MAX_LOGGED_PER_S:
            self._logged += 1
            return True
        self._more += 1
        if self._more == 1:  # if nothing else happens, the number is told all the same
            self._wheel.add(self, self._since + 1)
        return False

    @property
    def active(self) -> bool:
        """True while restarts are counted that the log does not have."""
        return self._more > 0

    def due(self) -> None:
        """The second is over."""
        self.flush()

    def flush(self) -> None:
        """Tell how many were not written out. Never raises."""
        more, self._more = self._more, 0
        if more:
            text = "%d more restarts of actors of %r in one second are not written out"
            self._guarded(lambda: logger.error(text, more, self._whose), self._whose)

    def _guarded(self, tell: Callable[[], object], path: str) -> None:
        try:
            tell()
        except Exception:
            # A hook, or a log filter of the host: recorded where possible, never the end of a supervisor.
            with contextlib.suppress(Exception):
                logger.exception("reporting the crash of actor %r raised", path)


def _log(crash: Crash, budget: str) -> None:
    if crash.restart_in_s is not None:
        then = f"restart {crash.restarts} in {crash.restart_in_s:.3f} s"
    else:
        then = f"given up after {budget}" if crash.gave_up else f"ended, restarts: {crash.restarts}"
    fields = {"actor": crash.path, "message_kind": crash.message_kind, "restarts": crash.restarts}
    logger.error(
        "actor %r crashed while handling %s: %s; %s",
        crash.path,
        crash.message_kind or "no message",
        type(crash.error).__name__,
        then,
        exc_info=crash.error,
        extra=fields,
    )
