"""How repeats become a line. The measures are lists of numbers: nothing here takes time."""

from collections.abc import Callable, Iterable, Sequence

import msgspec
import pytest

from bench.harness import Goal, Line, Peer, PeerFigure, Row, run_row


def replay(values: Iterable[float], calls: list[str] | None = None, name: str = "") -> Callable[[], float]:
    left = iter(values)

    def measure() -> float:
        if calls is not None:
            calls.append(name)
        return next(left)

    return measure


def make_row(
    values: Iterable[float] = (100.0,),
    references: Iterable[float] = (50.0,),
    *,
    repeats: int = 1,
    goal: Goal | None = None,
    peers: Sequence[PeerFigure] = (),
    lead: bool = False,
    worst: bool = False,
) -> Row:
    return Row(
        bench="agent/one_turn",
        case="session reused",
        n=10,
        unit="runs/s",
        samples=10,
        repeats=repeats,
        measure=replay(values),
        against="bare trio",
        refer=replay(references),
        goal=goal,
        peers=lambda: peers,
        lead=lead,
        worst=worst,
    )


def test_a_line_carries_the_median_of_its_repeats() -> None:
    row = make_row([5.0, 100.0, 7.0], [2.0, 1.0, 40.0], repeats=3)
    line = run_row(row, replay([9.0, 3.5, 1.0]))
    assert (line.value, line.reference, line.ratio, line.checkpoint_us) == (7.0, 2.0, 3.5, 3.5)
    assert (line.repeats, line.spread) == (3, (5.0, 100.0))


def test_checkpoint_reference_and_value_take_turns() -> None:
    calls: list[str] = []
    row = make_row(repeats=2)
    row = Row(
        **{name: getattr(row, name) for name in Row.__slots__ if name not in ("measure", "refer")},
        measure=replay([1.0, 2.0], calls, "value"),
        refer=replay([1.0, 2.0], calls, "reference"),
    )
    run_row(row, replay([3.5, 3.5], calls, "checkpoint"))
    assert calls == ["checkpoint", "reference", "value"] * 2


def test_a_line_has_the_documented_keys_first_and_says_what_is_missing_with_null() -> None:
    line = run_row(make_row(), replay([3.5]))
    decoded = msgspec.json.decode(msgspec.json.encode(line))
    assert list(decoded)[:9] == ["bench", "n", "value", "unit", "against", "reference", "ratio", "goal", "ok"]
    assert decoded == {
        "bench": "agent/one_turn",
        "n": 10,
        "value": 100.0,
        "unit": "runs/s",
        "against": "bare trio",
        "reference": 50.0,
        "ratio": 2.0,
        "goal": None,
        "ok": None,
        "case": "session reused",
        "goal_here": None,
        "checkpoint_us": 3.5,
        "samples": 10,
        "repeats": 1,
        "spread": [100.0, 100.0],
        "peer": None,
        "note": "",
        "goal_of": None,
        "goal_at_most": None,
        "peers": [],
    }


def test_a_peers_figure_says_that_it_was_not_measured_here() -> None:
    assert msgspec.to_builtins(Peer("asyncio peer", 214.0)) == {
        "name": "asyncio peer",
        "value": 214.0,
        "measured_here": False,
    }


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (Goal(value=12_000, at_most=False), 6_000),
        (Goal(value=40, at_most=True), 80),
        (Goal(value=12, at_most=True, scales=False), 12),
    ],
    ids=["a rate halves", "a time doubles", "bytes stay"],
)
def test_a_goal_follows_a_machine_that_is_half_as_fast(goal: Goal, expected: float) -> None:
    assert goal.here(7.0) == expected
    assert goal.here(3.5) == goal.value


@pytest.mark.parametrize(
    ("at_most", "value", "met"),
    [(True, 80.0, True), (True, 80.1, False), (False, 80.0, True), (False, 79.9, False)],
)
def test_a_goal_is_met_at_its_bound_and_on_its_good_side(at_most: bool, value: float, met: bool) -> None:
    stated = 40.0 if at_most else 160.0
    assert Goal(value=stated, at_most=at_most).met(value, 7.0) is met


def test_a_line_judges_by_the_goal_for_this_machine() -> None:
    line = run_row(make_row([70.0], goal=Goal(value=40, at_most=True)), replay([7.0]))
    assert (line.goal, line.goal_here, line.ok) == (40, 80.0, True)


@pytest.mark.parametrize(
    ("at_most", "value", "ok"), [(False, 350.0, True), (False, 349.0, False), (True, 350.0, True), (True, 351.0, False)]
)
def test_a_goal_of_the_ratio_is_met_at_its_bound_on_any_machine(at_most: bool, value: float, ok: bool) -> None:
    goal = Goal(value=7, at_most=at_most, of="ratio")
    line = run_row(make_row([value], [50.0], goal=goal), replay([35.0]))
    assert (line.goal, line.goal_here, line.goal_of, line.goal_at_most, line.ok) == (7, 7, "ratio", at_most, ok)


def test_a_goal_of_the_ratio_is_judged_before_it_is_rounded() -> None:
    line = run_row(make_row([349.99], [50.0], goal=Goal(value=7, at_most=False, of="ratio")), replay([3.5]))
    assert (line.ratio, line.ok) == (7.0, False)


@pytest.mark.parametrize(("at_most", "value"), [(True, 9.0), (False, 5.0)])
def test_a_row_that_takes_the_worst_takes_what_its_goal_likes_least(at_most: bool, value: float) -> None:
    row = make_row([7.0, 9.0, 5.0], [1.0] * 3, repeats=3, goal=Goal(value=8, at_most=at_most), worst=True)
    line = run_row(row, replay([3.5] * 3))
    assert (line.value, line.ok) == (value, False)


def test_peers_are_measured_after_the_repeats_and_compared_with_the_value() -> None:
    figure = PeerFigure(name="pykka", version="4.5.0", value=40.0, note="threads")
    line = run_row(make_row([100.0], goal=Goal(value=1, at_most=False), peers=[figure]), replay([3.5]))
    assert msgspec.to_builtins(line.peers) == (
        {"name": "pykka", "version": "4.5.0", "value": 40.0, "note": "threads", "ratio": 2.5, "ahead": True},
    )


def test_a_peer_that_was_not_measured_stays_as_it_is() -> None:
    missing = PeerFigure(name="casty", note="not installed: pip install casty")
    line = run_row(make_row(goal=Goal(value=1, at_most=False), peers=[missing], lead=True), replay([3.5]))
    assert (line.peers, line.ok) == ((missing,), True)


@pytest.mark.parametrize(
    ("at_most", "peer", "ahead"),
    [(False, 99.0, True), (False, 100.0, False), (True, 101.0, True), (True, 100.0, False)],
)
def test_ahead_is_on_the_good_side_and_not_level(at_most: bool, peer: float, ahead: bool) -> None:
    goal = Goal(value=100, at_most=at_most)
    line = run_row(make_row([100.0], goal=goal, peers=[PeerFigure(name="pykka", value=peer)]), replay([3.5]))
    assert line.peers[0].ahead is ahead
    assert line.ok is True


def test_without_a_goal_nobody_is_ahead_as_nothing_says_which_side_is_good() -> None:
    line = run_row(make_row(peers=[PeerFigure(name="pykka", value=99.0)]), replay([3.5]))
    assert (line.peers[0].ratio, line.peers[0].ahead) == (1.01, None)


@pytest.mark.parametrize(("second", "ok"), [(99.0, True), (101.0, False)])
def test_a_row_that_has_to_lead_misses_its_goal_behind_any_peer(second: float, ok: bool) -> None:
    peers = [PeerFigure(name="pykka", value=50.0), PeerFigure(name="casty", value=second)]
    row = make_row([100.0], goal=Goal(value=1, at_most=False, of="ratio"), peers=peers, lead=True)
    assert run_row(row, replay([3.5])).ok is ok


def test_a_row_without_repeats_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^agent/one_turn is measured at least once, not 0 times$"):
        run_row(make_row(repeats=0), replay([]))


def test_lines_are_frozen() -> None:
    line = run_row(make_row(), replay([3.5]))
    assert isinstance(line, Line)
    with pytest.raises(AttributeError, match=r"^immutable type: 'Line'$"):
        line.value = 1.0  # type: ignore[misc]
