"""The table for a person."""

import msgspec
import pytest

from bench import table
from bench.harness import Line, Peer

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


@pytest.mark.parametrize(
    ("value", "text"), [(12_345.6, "12,346"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.0, "0.00")]
)
def test_a_number_has_the_digits_that_mean_something(value: float, text: str) -> None:
    assert table.number(value) == text
