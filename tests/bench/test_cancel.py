"""What the benches of `cancel/*` put beside what, and which goals they have."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bench import cancel
from bench.cancel import _Runs  # pyright: ignore[reportPrivateUsage]
from bench.harness import PeerFigure, Row, run_row

BENCHES: dict[str, Callable[..., list[Row]]] = {
    "cancel/all": cancel.cancel_all,
    "cancel/one": cancel.cancel_one,
    "cancel/setup": cancel.setup,
    "cancel/memory": cancel.memory,
    "cancel/random": cancel.cancel_random,
    "cancel/end": cancel.end,
}


@pytest.fixture(autouse=True)
def plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel, "available_bytes", lambda: 10**12)


@pytest.fixture
def no_peers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    asked: list[tuple[str, int, int]] = []

    def measure(load: str, n: int, repeats: int, *, actors: int, packages: Any) -> list[PeerFigure]:
        asked.append((load, n, actors))
        return [PeerFigure(name="asyncio", value=4_000.0)]

    monkeypatch.setattr(cancel, "measure_peers", measure)
    return asked


def goals(name: str) -> list[tuple[float, bool, str, bool] | None]:
    rows = BENCHES[name](quick=False)
    return [(goal.value, goal.at_most, goal.of, goal.scales) if (goal := row.goal) else None for row in rows]


@pytest.mark.parametrize("name", BENCHES)
def test_every_row_carries_its_bench(name: str) -> None:
    assert {row.bench for row in BENCHES[name](quick=False)} == {name}


def test_cancelling_all_is_bounded_at_each_size_and_linear_and_never_holds_the_loop() -> None:
    assert goals("cancel/all") == [
        *[(1.3, True, "ratio", True)] * 5,
        (1.5, True, "ratio", True),
        (50, True, "value", False),
    ]
    rows = cancel.cancel_all(quick=False)
    assert [row.case for row in rows] == [
        "100 pending", "1000 pending", "10000 pending", "100000 pending", "10000 by handle",
        "100000 against 1000", "loop held by 100000",
    ]  # fmt: skip
    assert [row.worst for row in rows] == [*[False] * 6, True]


def test_cancelling_one_is_bounded_and_flat() -> None:
    assert goals("cancel/one") == [*[(60, True, "value", True)] * 2, (1.3, True, "ratio", True)]
    assert [row.n for row in cancel.cancel_one(quick=False)] == [100, 10_000, 10_000]


def test_setup_and_memory_are_bounded_and_random_cancels_fail_instead() -> None:
    assert goals("cancel/setup") == [(150, True, "value", True)] * 2
    assert goals("cancel/memory") == [(14, True, "value", False)] * 3
    assert goals("cancel/random") == [None]
    assert goals("cancel/end") == [*[None] * 3, (50, True, "value", False)]


@pytest.mark.parametrize("name", BENCHES)
def test_the_shape_that_was_counted_is_printed(name: str) -> None:
    counted = "2 tasks, 1 nursery and 2 cancel scopes (those of nurseries included) per session"
    assert counted in BENCHES[name](quick=False)[0].against


def test_the_number_of_random_cancels_can_be_chosen() -> None:
    assert [row.samples for row in cancel.cancel_random(quick=False, cancels=1_000_000)] == [1_000_000]
    assert [row.samples for row in cancel.cancel_random(quick=True)] == [2_000]
    assert [row.samples for row in cancel.cancel_random(quick=False)] == [100_000]


def test_a_size_that_does_not_fit_into_memory_is_left_out_and_the_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel, "available_bytes", lambda: 2_100_000_000)
    rows = cancel.cancel_all(quick=False)
    assert max(row.n for row in rows) == 10_000
    said = "100,000 sessions left out: that takes 4.0 GB of memory, 2.1 GB are there"
    assert rows[0].note == f"cancelled in slices of 64, until every run and its task have ended; {said}"
    assert said in cancel.memory(quick=False)[0].note
    assert said in cancel.end(quick=False)[0].note


def test_where_nobody_says_how_much_memory_there_is_every_size_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel, "available_bytes", lambda: None)
    assert [row.n for row in cancel.memory(quick=False)] == [1_000, 10_000, 100_000]


def test_time_and_hold_of_a_run_go_to_different_rows() -> None:
    made = iter([(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)])
    runs = _Runs(lambda: next(made))
    assert [runs.make(), runs.make()] == [1.0, 2.0]
    assert [runs.time(), runs.time()] == [1.0, 2.0]
    assert [runs.held(), runs.held(), runs.held()] == [10.0, 20.0, 30.0]


@pytest.mark.parametrize("name", [name for name in BENCHES if name not in ("cancel/random", "cancel/memory")])
def test_every_row_is_measured(name: str, no_peers: list[tuple[str, int, int]]) -> None:
    for row in BENCHES[name](quick=True):
        line = run_row(row, lambda: 3.5)
        assert (line.value > 0, line.reference > 0) == (True, True)


def test_random_cancels_are_measured() -> None:
    (row,) = cancel.cancel_random(quick=True, cancels=60)
    assert (row.refer() > 0, row.measure() > 0) == (True, True)


def test_memory_is_measured_and_peers_are_in_its_unit(no_peers: list[tuple[str, int, int]]) -> None:
    (row,) = cancel.memory(quick=True)
    assert 3 < row.refer() < row.measure() < 100
    assert [peer.value for peer in row.peers()] == [4.0]
    assert no_peers == [("cancel_memory", 300, 300)]


def test_bare_trio_stands_beside_in_its_other_way_too(no_peers: list[tuple[str, int, int]]) -> None:
    for bench, load in ((cancel.cancel_all, "cancel_all"), (cancel.end, "cancel_end")):
        row = bench(quick=True)[0]
        peers: Sequence[PeerFigure] = row.peers()
        assert [peer.name for peer in peers] == ["bare trio", "asyncio"]
        assert no_peers.pop() == (load, row.n, row.n)
