"""What the benches of `store/*` put beside what, and which goals they have."""

from collections.abc import Callable

import msgspec
import pytest

from bench import store
from bench.harness import Row

BENCHES: dict[str, Callable[..., list[Row]]] = {
    "store/append_grouped": store.append_grouped,
    "store/latency": store.latency,
    "store/reload": store.reload,
    "store/open": store.reopen,
}


@pytest.mark.parametrize("name", BENCHES)
def test_every_row_measures_something_beside_bare_sqlite(name: str) -> None:
    for row in BENCHES[name](quick=True):
        assert row.bench == name
        assert row.goal is not None
        assert row.against.startswith("bare sqlite3: ")
        assert row.measure() > 0
        assert row.refer() > 0


def test_the_goals_are_those_that_were_stated() -> None:
    goals = [
        (row.goal.value, row.goal.at_most, row.goal.of)
        for rows in BENCHES.values()
        for row in rows(quick=False)
        if row.goal is not None
    ]
    assert goals == [
        (25_000, False, "value"), (20, False, "ratio"), (3.0, True, "value"), (15.0, True, "value"),
        (30, True, "value"), (250, True, "value"),
    ]  # fmt: skip


def test_a_record_has_300_bytes() -> None:
    assert 295 <= len(msgspec.json.encode(store.record(1_000))) <= 305


def test_a_percentile_is_in_milliseconds() -> None:
    times = [number / 1_000 for number in range(1, 101)]
    assert store._percentile(times, 50) == pytest.approx(50.5)
    assert store._percentile(times, 99) == pytest.approx(100.0)
