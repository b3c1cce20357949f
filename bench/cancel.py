"""`cancel/*`: sessions with a todo list and an open question, cancelled all, one, at random, or with the whole system.

Beside them, in the same run: trio alone with as many tasks, nurseries and scopes for each session (counted from the
task tree, see `bench.shape`), asyncio with as many tasks, and zett-agent where it is installed.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from bench import bare_sessions, churn, sessions
from bench.harness import Goal, Peer, PeerFigure, Row
from bench.memory import available_bytes, bytes_per_session
from bench.peers.measure import SESSION_PACKAGES, measure_peers
from bench.peers.sizes import order
from bench.shape import TaskShape

#: What a size may take while it is measured: the sessions, and what their ends leave to the garbage collector.
BYTES_PER_SESSION = 40_000
CANCELS = 100_000
_ENDS = "one cancel around them all, which ends the sessions too"


class _Runs:
    """Runs of one load, whose times and holds of the loop belong to different rows.

    Args:
        run: Makes one, and returns both.
    """

    def __init__(self, run: Callable[[], tuple[float, float]]) -> None:
        self._run = run
        self._times: list[float] = []
        self._holds: list[float] = []

    def make(self) -> float:
        """Make a run and return its time."""
        took, held = self._run()
        self._times.append(took)
        self._holds.append(held)
        return took

    def time(self) -> float:
        """Return the time of a run that was made and not yet asked for its time, or else of a new one."""
        return self._times.pop(0) if self._times else self._run()[0]

    def held(self) -> float:
        """Return how long the loop was held in a run that was made and not yet asked, or else in a new one."""
        return self._holds.pop(0) if self._holds else self._run()[1]


def cancel_all(*, quick: bool) -> list[Row]:
    """The runs of all sessions cancelled, in slices and by their handles, and how long that holds the loop."""
    shape = sessions.session_shape()
    sizes, left_out = _sizes((50, 200) if quick else (100, 1_000, 10_000, 100_000))
    runs = {n: (_Runs(partial(sessions.cancel_all, n)), _Runs(partial(bare_sessions.cancel_all, n, shape)))
            for n in sizes}  # fmt: skip
    small, large = sizes[-2 if quick else 1], sizes[-1]
    handled = sizes[-1] if quick else sizes[2]
    return [
        *(
            Row(
                bench="cancel/all", case=f"{n} pending", n=n, unit="us per session", samples=n,
                repeats=_repeats(n, quick), measure=ours.make,
                against=f"bare trio: {shape.describe()}; each cancelled by its own scope, in slices of 64",
                refer=bare.make, goal=Goal(value=1.3, at_most=True, of="ratio"), peer=_published(n, 380),
                note=_join("cancelled in slices of 64, until every run and its task have ended", left_out),
                peers=partial(_beside_all, n, quick=quick),
            )
            for n, (ours, bare) in runs.items()
        ),
        Row(
            bench="cancel/all", case=f"{handled} by handle", n=handled, unit="us per session", samples=handled,
            repeats=_repeats(handled, quick), measure=lambda: sessions.cancel_all(handled, by_handle=True)[0],
            against="bare trio: the same shape; each cancelled by its own scope, a checkpoint before the next",
            refer=lambda: bare_sessions.cancel_all(handled, shape, at_a_time=1)[0],
            goal=Goal(value=1.3, at_most=True, of="ratio"),
            note="one await handle.cancel() after the other; peers as above",
        ),
        Row(
            bench="cancel/all", case=f"{large} against {small}", n=large, unit="us per session", samples=large,
            repeats=_repeats(large, quick), measure=runs[large][0].time,
            against=f"{small} sessions, cancelled in the same way", refer=runs[small][0].time,
            goal=Goal(value=1.5, at_most=True, of="ratio"), note="it has to be linear; of the same runs as above",
        ),
        Row(
            bench="cancel/all", case=f"loop held by {large}", n=large, unit="ms", samples=large,
            repeats=_repeats(large, quick), measure=runs[large][0].held,
            against="bare trio: the same for the scopes of as many sessions", refer=runs[large][1].held,
            goal=Goal(value=50, at_most=True, scales=False), worst=True,
            note="longest turn of the loop in any repeat, pauses of the garbage collector included",
        ),
    ]  # fmt: skip


def cancel_one(*, quick: bool) -> list[Row]:
    """One session cancelled among many that wait."""
    shape = sessions.session_shape()
    small, large = (20, 200) if quick else (100, 10_000)
    samples = 30 if quick else 1_000
    runs = {n: _Runs(partial(_cancel_one, n, samples)) for n in (small, large)}
    return [
        *(
            Row(
                bench="cancel/one", case=f"among {n} pending", n=n, unit="us (p50)", samples=samples,
                repeats=2 if quick else 3, measure=ours.make,
                against=f"bare trio: {shape.describe()}; a checkpoint, a cancel, until it has unwound",
                refer=partial(bare_sessions.cancel_one_us, n, order(n, samples), shape),
                goal=Goal(value=60, at_most=True), peer=_published(n, 534),
                note="await handle.cancel(), await handle.wait_idle()", peers=_peers("cancel_one", n, quick=quick),
            )
            for n, ours in runs.items()
        ),
        Row(
            bench="cancel/one", case=f"{large} against {small}", n=large, unit="us (p50)", samples=samples,
            repeats=2 if quick else 3, measure=runs[large].time,
            against=f"one among {small}, cancelled in the same way", refer=runs[small].time,
            goal=Goal(value=1.3, at_most=True, of="ratio"), note="it has to be flat; of the same runs as above",
        ),
    ]  # fmt: skip


def setup(*, quick: bool) -> list[Row]:
    """Sessions from their first prompt to their open question."""
    shape = sessions.session_shape()
    return [
        Row(
            bench="cancel/setup", case=f"{n} sessions", n=n, unit="us per session", samples=n,
            repeats=_repeats(n, quick), measure=partial(sessions.setup_us, n),
            against=f"bare trio: {shape.describe()}; started", refer=partial(bare_sessions.setup_us, n, shape),
            goal=Goal(value=150, at_most=True), peer=_published(n, 3_400),
            note="10,000 at 150 us take 1.5 s; the garbage collector is as Python sets it",
            peers=_peers("cancel_setup", n, quick=quick),
        )
        for n in ((100,) if quick else (1_000, 10_000))
    ]  # fmt: skip


def memory(*, quick: bool) -> list[Row]:
    """What a session with its todo list and its open question holds in memory."""
    shape = sessions.session_shape()
    sizes, left_out = _sizes((300,) if quick else (1_000, 10_000, 100_000))
    return [
        Row(
            bench="cancel/memory", case=f"{n} pending", n=n, unit="kB per session", samples=n,
            repeats=1 if quick or n > 10_000 else 3, measure=partial(_kilobytes, "pending", n),
            against=f"bare trio: {shape.describe()}",
            refer=partial(_kilobytes, "shape", n, shape),
            goal=Goal(value=14, at_most=True, scales=False), peer=_published(n, 63),
            note=_join("growth of a new process; 1 kB is 1,000 bytes", left_out),
            # What a second repeat needs is there already, in the same process: it has one.
            peers=partial(_memory_beside, n),
        )
        for n in sizes
    ]  # fmt: skip


def cancel_random(*, quick: bool, cancels: int | None = None) -> list[Row]:
    """Sessions cancelled at random while answers race, and nothing may be left of it."""
    n = 50 if quick else 500
    wanted = cancels if cancels is not None else 2_000 if quick else CANCELS
    shape = sessions.session_shape()
    return [
        Row(
            bench="cancel/random", case=f"{wanted} cancels", n=n, unit="cancels/s", samples=wanted, repeats=1,
            measure=partial(churn.cancels_per_second, n, wanted),
            against=f"bare trio: {shape.describe()}; cancelled one after the other and started again",
            refer=partial(bare_sessions.cancels_per_second, n, min(wanted, 10_000), shape),
            note=f"{n} sessions, cancelled by handle, by leaving a stream, by closing; answers and prompts in the same "
            "turn of the loop. Tasks, asks, runs, names, timers, descriptors and objects are back where they were, "
            "every run has one end, every session took a next prompt: else this bench fails",
        )
    ]  # fmt: skip


def end(*, quick: bool) -> list[Row]:
    """The whole system ended while sessions wait."""
    shape = sessions.session_shape()
    sizes, left_out = _sizes((50, 200) if quick else (1_000, 10_000, 100_000))
    runs = {n: (_Runs(partial(sessions.end, n)), _Runs(partial(bare_sessions.end, n, shape))) for n in sizes}
    large = sizes[-1]
    return [
        *(
            Row(
                bench="cancel/end", case=f"{n} pending", n=n, unit="us per session", samples=n,
                repeats=_repeats(n, quick), measure=ours.make,
                against=f"bare trio: {shape.describe()}; {_ENDS}", refer=bare.make,
                note=_join("from the end of the agent's block until its system has closed", left_out),
                peers=partial(_beside_end, n, quick=quick),
            )
            for n, (ours, bare) in runs.items()
        ),
        Row(
            bench="cancel/end", case=f"loop held by {large}", n=large, unit="ms", samples=large,
            repeats=_repeats(large, quick), measure=runs[large][0].held,
            against="bare trio: the same for one cancel around as many, which marks all at once",
            refer=runs[large][1].held, goal=Goal(value=50, at_most=True, scales=False), worst=True,
            note="longest turn of the loop in any repeat, pauses of the garbage collector included",
        ),
    ]  # fmt: skip


# ---- what stands beside


def _beside_all(n: int, *, quick: bool) -> list[PeerFigure]:
    at_once = bare_sessions.end(n, sessions.session_shape())[0]
    return [PeerFigure(name="bare trio", value=at_once, note=_ENDS), *_peers("cancel_all", n, quick=quick)()]


def _beside_end(n: int, *, quick: bool) -> list[PeerFigure]:
    in_slices = bare_sessions.end(n, sessions.session_shape(), in_slices=True)[0]
    note = "each session by its own scope, in slices of 64"
    return [PeerFigure(name="bare trio", value=in_slices, note=note), *_peers("cancel_end", n, quick=quick)()]


def _peers(load: str, n: int, *, quick: bool) -> Callable[[], Sequence[PeerFigure]]:
    return partial(_measure, load, n, 1 if quick else 3)


def _measure(load: str, n: int, repeats: int) -> list[PeerFigure]:
    return measure_peers(load, n, repeats, actors=n, packages=SESSION_PACKAGES)


def _published(n: int, value: float) -> Peer | None:
    return Peer("asyncio peer", value) if n == 10_000 else None


def _cancel_one(n: int, samples: int) -> tuple[float, float]:
    return sessions.cancel_one_us(n, order(n, samples)), 0.0


def _kilobytes(kind: str, n: int, shape: TaskShape | None = None) -> float:
    return bytes_per_session(kind, n, shape) / 1_000


def _memory_beside(n: int) -> list[PeerFigure]:
    return [_in_kilobytes(peer) for peer in _measure("cancel_memory", n, 1)]


def _in_kilobytes(peer: PeerFigure) -> PeerFigure:
    return peer if peer.value is None else replace(peer, value=peer.value / 1_000)


# ---- sizes


def _sizes(wanted: Sequence[int]) -> tuple[list[int], str]:
    """Return the sizes that there is memory for, at least the two smallest, and which were left out and why."""
    there = available_bytes()
    if there is None:
        return list(wanted), ""
    fitting = [n for place, n in enumerate(wanted) if place < 2 or n * BYTES_PER_SESSION <= there]
    said = f"GB of memory, {there / 1e9:.1f} GB are there"
    left_out = [n for n in wanted if n not in fitting]
    notes = [f"{n:,} sessions left out: that takes {n * BYTES_PER_SESSION / 1e9:.1f} {said}" for n in left_out]
    return fitting, "; ".join(notes)


def _join(note: str, left_out: str) -> str:
    return f"{note}; {left_out}" if left_out else note


def _repeats(n: int, quick: bool) -> int:
    return 2 if quick or n > 10_000 else 3 if n > 1_000 else 5
