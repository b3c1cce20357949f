"""Restart rules: whether an actor that has ended starts again, and when. No clock, no tasks; `now` is in seconds.

It must not know actors: it is given how one ended and when it was restarted before.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeVar

E = TypeVar("E", bound=StrEnum)

RestartName = Literal["temporary", "transient", "permanent"]
BudgetName = Literal["child", "supervisor"]


def word(kind: type[E], value: str, what: str) -> E:
    """Return the member of an enum that a word names.

    Raises:
        ValueError: None is; says which there are.
    """
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{what} is one of {', '.join(kind)}, not {value!r}") from None


class Restart(StrEnum):
    """Which ends are followed by a restart. `drain()` and `stop()` never are."""

    TEMPORARY = "temporary"  # none
    TRANSIENT = "transient"  # a crash
    PERMANENT = "permanent"  # a crash, and a body that returns


class Budget(StrEnum):
    """Whose restarts are counted together."""

    CHILD = "child"  # each child has its own
    SUPERVISOR = "supervisor"  # all children share one, as in OTP


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a crashed actor waits before its next start.

    Attributes:
        first_s: Seconds before the first restart, 0 or more.
        factor: Each further restart in the window waits this much longer, 1 or more.
        cap_s: The longest wait in seconds, before jitter.
        jitter: The wait varies by up to this share, 0 to 1, so that what crashed together does not start together.
        draw: Source of the jitter: a number in [0, 1).
    """

    first_s: float = 0.1
    factor: float = 2.0
    cap_s: float = 30.0
    jitter: float = 0.25
    draw: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        if self.first_s < 0 or self.cap_s < 0:
            raise ValueError(f"backoff times must be 0 s or more, not first_s={self.first_s}, cap_s={self.cap_s}")
        if self.factor < 1:
            raise ValueError(f"backoff factor must be 1 or more, not {self.factor}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"backoff jitter must be from 0 to 1, not {self.jitter}")

    def delay_s(self, attempt: int) -> float:
        """Return the seconds before restart number `attempt` (1 is the first) of the window."""
        # Capped as an exponent too: a float overflows at 2 ** 1024.
        grown = self.first_s * self.factor ** min(attempt - 1, 64)
        return max(0.0, min(self.cap_s, grown) * (1 + self.jitter * (2 * self.draw() - 1)))


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a child is restarted.

    Attributes:
        restart: Which ends are followed by a restart.
        limit: At most this many restarts in any `window_s` seconds, 0 or more; the next one is not made.
        window_s: Length of the window in seconds, above 0. For a child's own budget it counts the time the child was
            up: waiting does not earn new restarts, so that a long backoff cannot keep a crash loop alive for ever. For
            a supervisor's it counts all time, as OTP does.
        backoff: How long each restart waits.
        budget: Whose restarts are counted together.
    """

    restart: Restart = Restart.TEMPORARY
    limit: int = 3
    window_s: float = 10.0
    backoff: Backoff = Backoff()
    budget: Budget = Budget.CHILD

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError(f"restart limit must be 0 or more, not {self.limit}")
        if self.window_s <= 0:
            raise ValueError(f"restart window must be above 0 s, not {self.window_s}")

    def wants(self, own: Restart | None, *, crashed: bool) -> bool:
        """Return whether an end is followed by a restart.

        Args:
            own: What the child itself was spawned with; None means what the policy says.
            crashed: It was a crash.
        """
        restart = own or self.restart
        return restart is Restart.PERMANENT or (crashed and restart is Restart.TRANSIENT)

    def admit(self, earlier: tuple[float, ...], now: float) -> tuple[float, ...] | None:
        """Return the restarts in the window with one at `now` added, or None if the budget is used up.

        Args:
            earlier: The restarts before, in seconds: of the child's time up, or of the supervisor's clock.
            now: The same clock. A restart made exactly `window_s` ago has left the window.
        """
        recent = tuple(at for at in earlier if now - at < self.window_s)
        return (*recent, now) if len(recent) < self.limit else None
