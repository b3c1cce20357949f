"""`runtime/*`: what messages, asks and actors cost, each beside the same in trio's own parts and in other libraries.

`bench.ours` is what is measured, `bench.raw` the reference: the same messages, the same `match`, the same sizes, in the
same process and in turn. Goals bound the ratio of the two, so they hold on any machine. The other libraries are
measured in processes of their own, after the repeats of a row.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from bench import ours, raw
from bench.harness import Goal, PeerFigure, Row
from bench.memory import bytes_per_session
from bench.peers.measure import measure_peers
from bench.peers.sizes import ASKERS, ROUNDS


def tell(*, quick: bool) -> list[Row]:
    """Messages told to one actor, and sent where its mailbox is full."""
    n = 5_000 if quick else 30_000
    return [
        Row(
            bench="runtime/tell", case="mailbox of 64", n=n, unit="messages/s", samples=n, repeats=_repeats(quick),
            measure=partial(ours.tells_per_second, n),
            against="raw trio: await send and await receive, memory channel of 64",
            refer=partial(raw.items_per_second, n),
            goal=Goal(value=7, at_most=False, of="ratio"),
            note="until the last is handled; must be ahead of every peer too",
            peers=_peers("tell", n, quick=quick), lead=True,
        )
    ]  # fmt: skip


def send(*, quick: bool) -> list[Row]:
    """Messages sent to one actor, each by `await ref.send`."""
    n = 5_000 if quick else 30_000
    return [
        Row(
            bench="runtime/send", case="mailbox of 64", n=n, unit="messages/s", samples=n, repeats=_repeats(quick),
            measure=partial(ours.sends_per_second, n),
            against="raw trio: await send and await receive, memory channel of 64",
            refer=partial(raw.items_per_second, n),
            goal=Goal(value=1.2, at_most=False, of="ratio"),
            note="until the last is handled",
            peers=_peers("send", n, quick=quick),
        )
    ]  # fmt: skip


def ask(*, quick: bool) -> list[Row]:
    """Asks with a deadline: one after the other, and 64 at a time."""
    n = 1_280 if quick else 6_400
    return [
        Row(
            bench="runtime/ask", case=case, n=n, unit="asks/s", samples=n, repeats=_repeats(quick),
            measure=partial(ours.asks_per_second, n, askers),
            against=f"raw trio: await send, one-shot memory channel and fail_after for each; {case}",
            refer=partial(raw.asks_per_second, n, askers),
            goal=Goal(value=goal, at_most=False, of="ratio"),
            note=f"ask(within={raw.ANSWER_WITHIN_S:g})",
            peers=_peers(load, n, quick=quick),
        )
        for askers, case, load, goal in ((1, "one asker", "ask", 2.3), (ASKERS, f"{ASKERS} askers", "ask64", 5))
    ]  # fmt: skip


def fanout(*, quick: bool) -> list[Row]:
    """Messages told to 1,000 actors in turn."""
    actors = 100 if quick else 1_000
    n = actors * ROUNDS
    return [
        Row(
            bench="runtime/fanout", case=f"{actors} actors", n=n, unit="messages/s", samples=n,
            repeats=_repeats(quick),
            measure=partial(ours.fanout_per_second, n, actors),
            against=f"raw trio: send_nowait to {actors} tasks with a memory channel each",
            refer=partial(raw.fanout_per_second, n, actors),
            goal=Goal(value=1.4, at_most=False, of="ratio"),
            note=f"until the last is handled; every sender but those with threads gives way each {raw.BURST}",
            peers=_peers("fanout", n, quick=quick, actors=actors),
        )
    ]  # fmt: skip


def spawn(*, quick: bool) -> list[Row]:
    """Actors spawned without waiting for them, and one after the other is ready."""
    n = 300 if quick else 10_000
    return [
        Row(
            bench="runtime/spawn", case=f"{n} actors", n=n, unit="actors/s", samples=n, repeats=_repeats(quick, full=5),
            measure=partial(ours.spawns_per_second, n, ready=False),
            against="raw trio: start_soon with a memory channel and a cancel scope each",
            refer=partial(raw.spawns_per_second, n),
            goal=Goal(value=1.1, at_most=False, of="ratio"),
            note="spawn_nowait: actors and raw tasks get ready together; until all wait",
            peers=_peers("spawn", n, quick=quick, actors=n),
        ),
        Row(
            bench="runtime/spawn", case=f"{n} actors, in turn", n=n, unit="actors/s", samples=n,
            repeats=_repeats(quick, full=5),
            measure=partial(ours.spawns_per_second, n, ready=True),
            against="raw trio: await nursery.start with a memory channel and a cancel scope each",
            refer=partial(raw.starts_per_second, n),
            goal=Goal(value=1.1, at_most=False, of="ratio"),
            note="spawn: both go on when the one before is ready; peers as above",
        ),
    ]  # fmt: skip


def idle(*, quick: bool) -> list[Row]:
    """What an actor that waits for messages holds in memory."""
    n = 1_000 if quick else 100_000
    return [
        Row(
            bench="runtime/idle", case=f"{n} actors", n=n, unit="kB per actor", samples=n, repeats=1 if quick else 3,
            measure=lambda: bytes_per_session("actor", n) / 1_000,
            against="raw trio: a task and a memory channel of 64 each",
            refer=lambda: bytes_per_session("task", n) / 1_000,
            goal=Goal(value=4.6, at_most=True, scales=False),
            note="growth of a new process; 1 kB is 1,000 bytes",
            # What a second repeat needs is there already, in the same process: it has one.
            peers=lambda: [_in_kilobytes(peer) for peer in measure_peers("idle", n, 1, actors=n)],
        )
    ]  # fmt: skip


def stop(*, quick: bool) -> list[Row]:
    """Idle named actors stopped by their supervisor, and how long that holds the loop."""
    sizes = (50, 500) if quick else (1_000, 10_000, 100_000)
    small, large = sizes[:2]
    return [
        *(_stop(n, quick=quick) for n in sizes),
        Row(
            bench="runtime/stop", case=f"{large} against {small}", n=large, unit="us per actor", samples=large,
            repeats=_repeats(quick, full=5),
            measure=lambda: ours.stop(large)[0],
            against=f"{small} actors, stopped in the same way",
            refer=lambda: ours.stop(small)[0],
            goal=Goal(value=1.5, at_most=True, of="ratio"),
            note="it has to be linear; ours alone, so without peers",
        ),
        _held(sizes[-1], quick=quick),
    ]  # fmt: skip


def _stop(n: int, *, quick: bool) -> Row:
    return Row(
        bench="runtime/stop", case=f"{n} actors", n=n, unit="us per actor", samples=n,
        repeats=3 if n > 10_000 else _repeats(quick, full=5),
        measure=lambda: ours.stop(n)[0],
        against="raw trio: one cancel around tasks with a memory channel and a cancel scope each",
        refer=lambda: raw.stop(n)[0],
        goal=Goal(value=1.3, at_most=True, of="ratio"),
        note="from stop() of their supervisor until its join() returns",
        peers=_peers("stop", n, quick=quick, actors=n),
    )  # fmt: skip


def _held(n: int, *, quick: bool) -> Row:
    return Row(
        bench="runtime/stop", case=f"loop held by {n}", n=n, unit="ms", samples=n, repeats=3 if quick else 2,
        measure=lambda: ours.stop(n)[1],
        against="raw trio: the same for one cancel around as many tasks, which marks all at once",
        refer=lambda: raw.stop(n)[1],
        goal=Goal(value=50, at_most=True, scales=False),
        note="longest turn of the loop in any repeat, pauses of the garbage collector included; peers have other loops",
        worst=True,
    )  # fmt: skip


def _repeats(quick: bool, *, full: int = 9) -> int:
    # Many short ones: what else the machine does then hits both sides, and the median of each leaves it out.
    return 3 if quick else full


def _peers(load: str, n: int, *, quick: bool, actors: int = 1) -> Callable[[], Sequence[PeerFigure]]:
    return partial(measure_peers, load, n, 1 if quick else 3, actors=actors)


def _in_kilobytes(peer: PeerFigure) -> PeerFigure:
    return peer if peer.value is None else replace(peer, value=peer.value / 1_000)
