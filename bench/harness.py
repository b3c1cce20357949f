"""Rows, repeats and the line that is printed. It knows no agents and reads no clock: a row brings its own measures.

Decides how repeats become one figure (the median, or the worst), how a goal follows the speed of the machine, when a
goal is met, and what a line says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

# The checkpoint, in microseconds, of the machine on which absolute goals were stated.
STATED_CHECKPOINT_US = 3.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound on a value, or on its ratio to the reference.

    Attributes:
        value: The bound; of a value that scales, as stated for `STATED_CHECKPOINT_US`.
        at_most: The figure must not be over it (times, bytes); else not under it (rates).
        scales: It follows the speed of the machine; bytes do not.
        of: What it bounds. A ratio never scales: its reference was measured on this machine.
    """

    value: float
    at_most: bool
    scales: bool = True
    of: Literal["value", "ratio"] = "value"

    def here(self, checkpoint_us: float) -> float:
        """Return the bound on a machine with this checkpoint: twice as slow halves a rate and doubles a time."""
        if self.of == "ratio" or not self.scales:
            return self.value
        slowness = checkpoint_us / STATED_CHECKPOINT_US
        return self.value * slowness if self.at_most else self.value / slowness

    def met(self, figure: float, checkpoint_us: float) -> bool:
        """Say whether `figure`, a value or a ratio as `of` says, keeps the bound on a machine with this checkpoint."""
        bound = self.here(checkpoint_us)
        return figure <= bound if self.at_most else figure >= bound


class Peer(Struct, frozen=True):
    """A published figure of somebody else, for orientation. It was not measured in this run and is in no ratio."""

    name: str
    value: float
    measured_here: bool = False


class PeerFigure(Struct, frozen=True, kw_only=True):
    """What another library took for the same load in this run, or why there is no figure.

    Attributes:
        name: Of the package.
        version: The one that is installed, or None.
        value: The median of its repeats in the unit of the row, or None where it was not measured.
        note: Why it was not measured, or what is different about its load.
        ratio: The row's value divided by this one.
        ahead: Whether the row's value is better than this one; None without a figure, or a goal that says what is.
    """

    name: str
    version: str | None = None
    value: float | None = None
    note: str = ""
    ratio: float | None = None
    ahead: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line to be measured.

    Attributes:
        bench: The name it is chosen by.
        case: What tells the rows of one bench apart.
        n: Its size: runs in one repeat, or asks that are pending.
        unit: Of the value and of the reference.
        samples: How many runs, answers or sessions one repeat looks at.
        repeats: How often it is measured, at least 1.
        measure: One repeat; returns the value.
        against: What the reference is, in words.
        refer: One repeat of the reference, taken right before `measure`.
        goal: What the value has to be, if that was stated.
        peer: See `Peer`.
        note: What the value counts and what it leaves out, where that is not obvious.
        peers: Measures other libraries, once all repeats are through.
        lead: Its goal is met only if the value is also ahead of every peer that was measured.
        worst: The value is that of the worst repeat instead of the median, as its goal sees it.
    """

    bench: str
    case: str
    n: int
    unit: str
    samples: int
    repeats: int
    measure: Callable[[], float]
    against: str
    refer: Callable[[], float]
    goal: Goal | None = None
    peer: Peer | None = None
    note: str = ""
    peers: Callable[[], Sequence[PeerFigure]] = tuple
    lead: bool = False
    worst: bool = False


class Line(Struct, frozen=True, kw_only=True):
    """One line of output, in this order.

    Attributes:
        value: The median of the repeats, or the worst where `note` says so.
        reference: The median of what `against` says, measured in the same run.
        ratio: `value / reference`.
        goal: As stated for a checkpoint of 3.5 us, or None.
        ok: Whether `goal_of` keeps `goal_here`, and, where the row has to lead, every peer is behind; None without a
            goal.
        goal_here: The goal for this run's checkpoint; the same as `goal` for a ratio and for what does not scale.
        checkpoint_us: Microseconds of a trio checkpoint, the median of one taken before each repeat.
        spread: The lowest and the highest repeat.
        peer: A published figure.
        goal_of: `value` or `ratio`: what has to keep the goal; None without one.
        goal_at_most: It must not be over the goal; else not under it. None without one.
        peers: Other libraries, measured in this run or not, each with the reason.
    """

    bench: str
    n: int
    value: float
    unit: str
    against: str
    reference: float
    ratio: float
    goal: float | None
    ok: bool | None
    case: str
    goal_here: float | None
    checkpoint_us: float
    samples: int
    repeats: int
    spread: tuple[float, float]
    peer: Peer | None
    note: str
    goal_of: str | None = None
    goal_at_most: bool | None = None
    peers: tuple[PeerFigure, ...] = ()


def run_row(row: Row, checkpoint_us: Callable[[], float]) -> Line:
    """Measure a row and return its line.

    Checkpoint, reference and value take turns, so that a machine that gets slower meanwhile slows all three.

    Args:
        row: What to measure.
        checkpoint_us: Measures a trio checkpoint, in microseconds.

    Raises:
        ValueError: A row without a repeat.
    """
    if row.repeats < 1:
        raise ValueError(f"{row.bench} is measured at least once, not {row.repeats} times")
    checkpoints: list[float] = []
    references: list[float] = []
    values: list[float] = []
    for _ in range(row.repeats):
        checkpoints.append(checkpoint_us())
        references.append(row.refer())
        values.append(row.measure())
    return _line(row, values, median(references), median(checkpoints))


def _line(row: Row, values: Sequence[float], reference: float, checkpoint: float) -> Line:
    goal = row.goal
    worst = max if goal is not None and goal.at_most else min
    value = worst(values) if row.worst else median(values)
    ratio = value / reference
    peers = tuple(_compared(peer, value, goal) for peer in row.peers())
    ok: bool | None = None
    if goal is not None:
        ok = goal.met(ratio if goal.of == "ratio" else value, checkpoint)
        ok = ok and not (row.lead and any(peer.ahead is False for peer in peers))
    return Line(
        bench=row.bench,
        n=row.n,
        value=round(value, 3),
        unit=row.unit,
        against=row.against,
        reference=round(reference, 3),
        ratio=round(ratio, 3),
        goal=goal.value if goal is not None else None,
        ok=ok,
        case=row.case,
        goal_here=round(goal.here(checkpoint), 3) if goal is not None else None,
        checkpoint_us=round(checkpoint, 3),
        samples=row.samples,
        repeats=row.repeats,
        spread=(round(min(values), 3), round(max(values), 3)),
        peer=row.peer,
        note=row.note,
        goal_of=goal.of if goal is not None else None,
        goal_at_most=goal.at_most if goal is not None else None,
        peers=peers,
    )


def _compared(peer: PeerFigure, value: float, goal: Goal | None) -> PeerFigure:
    if peer.value is None:
        return peer
    ahead: bool | None = None
    if goal is not None:
        ahead = value < peer.value if goal.at_most else value > peer.value
    return replace(peer, value=round(peer.value, 3), ratio=round(value / peer.value, 3), ahead=ahead)
