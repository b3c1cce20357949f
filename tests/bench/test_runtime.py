"""What the benches of `runtime/*` put beside what, and which goals they have."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bench import runtime
from bench.harness import PeerFigure, Row

BENCHES: dict[str, Callable[..., list[Row]]] = {
    "runtime/tell": runtime.tell,
    "runtime/send": runtime.send,
    "runtime/ask": runtime.ask,
    "runtime/fanout": runtime.fanout,
    "runtime/spawn": runtime.spawn,
    "runtime/idle": runtime.idle,
    "runtime/stop": runtime.stop,
}
# What `bench.peers` can be asked for.
LOADS = {"tell", "send", "ask", "ask64", "fanout", "spawn", "idle", "stop"}


def goals(name: str) -> list[tuple[float, bool, str, bool]]:
    rows = BENCHES[name](quick=False)
    return [(goal.value, goal.at_most, goal.of, goal.scales) for row in rows if (goal := row.goal) is not None]


@pytest.mark.parametrize("name", BENCHES)
def test_every_row_carries_its_bench_and_has_a_goal(name: str) -> None:
    for row in BENCHES[name](quick=False):
        assert row.bench == name
        assert row.goal is not None


@pytest.mark.parametrize(
    ("name", "least"),
    [("runtime/tell", 7), ("runtime/send", 1.2), ("runtime/fanout", 1.4)],
)
def test_a_rate_is_bounded_by_its_ratio_to_raw_trio(name: str, least: float) -> None:
    assert goals(name) == [(least, False, "ratio", True)]


def test_spawns_are_put_beside_tasks_that_start_together_and_beside_those_that_start_in_turn() -> None:
    assert goals("runtime/spawn") == [(1.1, False, "ratio", True)] * 2
    together, in_turn = runtime.spawn(quick=False)
    assert ("start_soon" in together.against, "nursery.start" in in_turn.against) == (True, True)


def test_asks_have_a_goal_for_one_asker_and_one_for_64() -> None:
    assert goals("runtime/ask") == [(2.3, False, "ratio", True), (5, False, "ratio", True)]
    assert [row.case for row in runtime.ask(quick=False)] == ["one asker", "64 askers"]


def test_an_idle_actor_is_bounded_in_kilobytes_at_a_hundred_thousand() -> None:
    assert goals("runtime/idle") == [(4.6, True, "value", False)]
    assert [row.n for row in runtime.idle(quick=False)] == [100_000]


def test_stopping_is_bounded_at_three_sizes_and_linear_and_never_holds_the_loop() -> None:
    assert goals("runtime/stop") == [
        *[(1.3, True, "ratio", True)] * 3,
        (1.5, True, "ratio", True),
        (50, True, "value", False),
    ]
    rows = runtime.stop(quick=False)
    assert [row.n for row in rows] == [1_000, 10_000, 100_000, 10_000, 100_000]
    assert [row.worst for row in rows] == [False, False, False, False, True]


def test_only_tell_has_to_lead_its_peers() -> None:
    assert [row.bench for bench in BENCHES.values() for row in bench(quick=False) if row.lead] == ["runtime/tell"]


@pytest.mark.parametrize("name", BENCHES)
def test_quick_is_smaller_and_its_cases_say_so(name: str) -> None:
    for quick, full in zip(BENCHES[name](quick=True), BENCHES[name](quick=False), strict=False):
        assert quick.n < full.n
        assert quick.n == quick.samples


def test_every_load_is_asked_of_the_peers_in_the_size_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, int]] = []

    def measure(load: str, n: int, repeats: int, *, actors: int = 1) -> list[PeerFigure]:
        asked.append((load, n, actors))
        return []

    monkeypatch.setattr(runtime, "measure_peers", measure)
    for bench in BENCHES.values():
        for row in bench(quick=False):
            before = len(asked)
            assert row.peers() == ([] if len(asked) > before else ())
            assert all(n == row.n for _, n, _ in asked[before:])
    assert {load for load, _, _ in asked} == LOADS
    assert [actors for load, _, actors in asked if load == "fanout"] == [1_000]


def test_what_peers_hold_in_memory_is_told_in_the_unit_of_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = [PeerFigure(name="a", value=22_432.0), PeerFigure(name="b", note="not installed")]

    def measure(*_: Any, **__: Any) -> Sequence[PeerFigure]:
        return figures

    monkeypatch.setattr(runtime, "measure_peers", measure)
    (row,) = runtime.idle(quick=True)
    assert [peer.value for peer in row.peers()] == [22.432, None]
