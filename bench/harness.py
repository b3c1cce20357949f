"""Rows, repeats and the line that is printed. It knows no agents and reads no clock: a row brings its own measures.

Decides how repeats become one figure (the median), how a goal follows the speed of the machine, and what a line says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from msgspec import Struct

# The checkpoint, in microseconds, of the machine on which absolute goals were stated.
STATED_CHECKPOINT_US = 3.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound on a value.

    Attributes:
        value: The bound, as stated for `STATED_CHECKPOINT_US`.
        at_most: The value must not be over it (times, bytes); else not under it (rates).
        scales: It follows the speed of the machine; bytes do not.
    """

    value: float
    at_most: bool
    scales: bool = True

    def here(self, checkpoint_us: float) -> float:
        """Return the bound on a machine with this checkpoint: twice as slow halves a rate and doubles a time."""
        if not self.scales:
            return self.value
        slowness = checkpoint_us / STATED_CHECKPOINT_US
        return self.value * slowness if self.at_most else self.value / slowness

    def met(self, value: float, checkpoint_us: float) -> bool:
        """Say whether `value` keeps the bound on a machine with this checkpoint."""
        bound = self.here(checkpoint_us)
        return value <= bound if self.at_most else value >= bound


class Peer(Struct, frozen=True):
    """A published figure of somebody else, for orientation. It was not measured in this run and is in no ratio."""

    name: str
    value: float
    measured_here: bool = False


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


class Line(Struct, frozen=True, kw_only=True):
    """One line of output, in this order.

    Attributes:
        value: The median of the repeats.
        reference: The median of what `against` says, measured in the same run.
        ratio: `value / reference`.
        goal: As stated for a checkpoint of 3.5 us, or None.
        ok: Whether `value` keeps `goal_here`; None without a goal.
        goal_here: The goal for this run's checkpoint.
        checkpoint_us: Microseconds of a trio checkpoint, the median of one taken before each repeat.
        spread: The lowest and the highest repeat.
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
    value, reference, checkpoint = median(values), median(references), median(checkpoints)
    goal = row.goal
    return Line(
        bench=row.bench,
        n=row.n,
        value=round(value, 3),
        unit=row.unit,
        against=row.against,
        reference=round(reference, 3),
        ratio=round(value / reference, 3),
        goal=goal.value if goal is not None else None,
        ok=goal.met(value, checkpoint) if goal is not None else None,
        case=row.case,
        goal_here=round(goal.here(checkpoint), 3) if goal is not None else None,
        checkpoint_us=round(checkpoint, 3),
        samples=row.samples,
        repeats=row.repeats,
        spread=(round(min(values), 3), round(max(values), 3)),
        peer=row.peer,
        note=row.note,
    )
