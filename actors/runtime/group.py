"""Restart of a group: which children are stopped because one of them crashed, and in which order they come back.

Pure: no tasks, no clock. It is told what happened to whom and answers with the next step; the supervisor carries it
out. What follows from a further crash in the middle of it is the same question asked again.

A restart stops what is affected, last started first, one after the other; then waits until its backoff has passed;
then starts what is down, first started first, each once the one before is ready (one_for_all and rest_for_one as in
OTP's `supervisor`).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

StrategyName = Literal["one_for_one", "one_for_all", "rest_for_one"]


class Strategy(StrEnum):
    """Whom a crash concerns."""

    ONE_FOR_ONE = "one_for_one"  # the one that crashed
    ONE_FOR_ALL = "one_for_all"  # all children
    REST_FOR_ONE = "rest_for_one"  # the one that crashed, and those started after it


class Phase(StrEnum):
    """Where a child of a group is."""

    JOINING = "joining"  # its first start is under way; whoever spawned it waits for that
    UP = "up"
    STOPPING = "stopping"
    DOWN = "down"  # waits for its next start
    STARTING = "starting"


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this child; it says `down` if it waits for its next start then, `left` if it has ended."""

    name: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start this child again; it says `ready`, `crashed` or `left`."""

    name: str


class Group:
    """The children of one supervisor, in the order of their start, and the restart that is under way."""

    __slots__ = ("_overrun", "_phases", "_restarting", "_strategy", "_waiting")

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._phases: dict[str, Phase] = {}
        self._restarting: set[str] = set()  # affected by a crash and not yet started again
        self._overrun: set[str] = set()
        self._waiting = False

    @property
    def restarting(self) -> bool:
        """True from a crash until everything that it concerned is ready again, or gone."""
        return bool(self._restarting) or any(phase is Phase.STARTING for phase in self._phases.values())

    def stopping(self, name: str) -> bool:
        """Return whether a child is being stopped."""
        return self._phases.get(name) is Phase.STOPPING

    def joined(self, name: str) -> None:
        """A child is being started for the first time, after all others."""
        self._phases[name] = Phase.JOINING

    def ready(self, name: str) -> None:
        """A child has started. Said by one that is being stopped, it comes too late."""
        if self._phases[name] in (Phase.JOINING, Phase.STARTING):
            self._phases[name] = Phase.UP

    def down(self, name: str) -> None:
        """A child that was stopped waits for its next start."""
        self._phases[name] = Phase.DOWN
        self._overrun.discard(name)

    def left(self, name: str) -> None:
        """A child has ended for good."""
        self._phases.pop(name, None)
        self._restarting.discard(name)
        self._overrun.discard(name)

    def crashed(self, name: str) -> None:
        """A child has ended and shall be up: it, and all that its crash concerns, start again after a backoff."""
        names = list(self._phases)
        first = 0 if self._strategy is Strategy.ONE_FOR_ALL else names.index(name)
        self._restarting.update(names[first:])
        self.down(name)
        self._waiting = True

    def backoff_over(self) -> None:
        """The backoff of the latest crash has passed."""
        self._waiting = False

    def overran(self, name: str) -> None:
        """A child that is being stopped does not end within its grace: the others are stopped meanwhile."""
        self._overrun.add(name)

    def next_step(self) -> Stop | Start | None:
        """Return what to do now, or None while something has to happen first. Ask again until it is None."""
        return self._next_stop() if self._restarting else self._next_start()

    def _next_stop(self) -> Stop | Start | None:
        held_up = False
        for name in reversed(self._phases):
            if name not in self._restarting:
                continue
            phase = self._phases[name]
            if phase is Phase.STOPPING:
                if name not in self._overrun:
                    return None
                held_up = True
            elif phase is not Phase.DOWN:
                self._phases[name] = Phase.STOPPING
                return Stop(name)
        if held_up or self._waiting:
            return None
        self._restarting.clear()
        return self._next_start()

    def _next_start(self) -> Start | None:
        for name, phase in self._phases.items():
            if phase is Phase.STARTING:
                return None
            if phase is Phase.DOWN:
                self._phases[name] = Phase.STARTING
                return Start(name)
        return None
