"""The table for a person."""

import msgspec
import pytest

from bench import table
from bench.harness import Line, Peer, PeerFigure

LINE = Line(
    bench="ask/roundtrip",
    n=10_000,
    value=185.052,
    unit="us (p50)",
    against="bare trio",
    reference=32.551,
    ratio=5.685,
    goal=40,
    ok=False,
    case="10000 pending",
    goal_here=131.074,
    checkpoint_us=11.469,
    samples=2_000,
    repeats=5,
    spread=(182.8, 1_850.0),
    peer=Peer("asyncio peer", 143),
    note="in the loop's own thread",
)


def test_a_row_stands_below_its_head() -> None:
    assert table.head() == (
        "bench              case                        value unit          reference  ratio    goal here"
    )
    assert table.row(LINE) == (
        "ask/roundtrip      10000 pending                 185 us (p50)           32.6   5.68          131 MISSED"
    )


def test_a_row_without_a_goal_judges_nothing() -> None:
    free = msgspec.structs.replace(LINE, goal=None, goal_here=None, ok=None)
    assert table.row(free).endswith("5.68            -")


def test_a_goal_that_is_met_says_ok() -> None:
    assert table.row(msgspec.structs.replace(LINE, ok=True)).endswith("131 ok")


def test_the_legend_says_what_was_compared_and_that_a_peer_was_measured_elsewhere() -> None:
    assert table.legend(LINE) == (
        "    5 repeats: 183 to 1,850; checkpoint 11.47 us; asyncio peer, measured elsewhere: 143; "
        "in the loop's own thread\n    reference: bare trio"
    )
    plain = msgspec.structs.replace(LINE, peer=None, note="")
    assert table.legend(plain) == "    5 repeats: 183 to 1,850; checkpoint 11.47 us\n    reference: bare trio"


@pytest.mark.parametrize(("at_most", "text"), [(True, "<= 1.30x ok"), (False, ">= 1.30x ok")])
def test_a_goal_of_the_ratio_says_so_and_on_which_side_it_is(at_most: bool, text: str) -> None:
    line = msgspec.structs.replace(LINE, goal_here=1.3, goal_of="ratio", goal_at_most=at_most, ok=True)
    assert table.row(line).endswith(text)


def test_the_legend_says_of_each_peer_what_it_took_or_why_not() -> None:
    peers = (
        PeerFigure(name="pykka", version="4.5.0", value=239_000.0, note="threads", ratio=4.6, ahead=True),
        PeerFigure(name="casty", version="0.30.2", value=2.0, ratio=0.5, ahead=False),
        PeerFigure(name="everything-is-an-actor", note="not installed: needs Python >= 3.12, this is 3.11"),
        PeerFigure(name="nothing to compare", value=1.0),
    )
    assert table.legend(msgspec.structs.replace(LINE, peers=peers)).splitlines()[2] == (
        "    peers: pykka 4.5.0 239,000, ours is 4.60x that (threads); "
        "casty 0.30.2 2.00, ours is 0.50x that, AHEAD OF OURS; "
        "everything-is-an-actor not measured (not installed: needs Python >= 3.12, this is 3.11); "
        "nothing to compare 1.00"
    )


@pytest.mark.parametrize(
    ("value", "text"), [(12_345.6, "12,346"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.0, "0.00")]
)
def test_a_number_has_the_digits_that_mean_something(value: float, text: str) -> None:
    assert table.number(value) == text
