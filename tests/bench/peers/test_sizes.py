"""How a process is seen to grow."""

import pytest

from bench import memory
from bench.peers import sizes
from bench.peers.sizes import Growth


def test_growth_is_that_between_start_and_stop_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([1_000_000, 4_000_000])
    monkeypatch.setattr(memory, "resident_bytes", lambda: next(sizes))
    growth = Growth(300)
    growth.start()
    assert growth.stop() == 10_000


@pytest.mark.parametrize(("n", "before"), [(5, 1), (300, 3), (10_000, 100)])
def test_some_are_made_first_as_what_the_first_bring_along_is_not_theirs(n: int, before: int) -> None:
    assert Growth(n).before == before


def test_sessions_are_cancelled_scattered_and_each_once_where_there_are_enough() -> None:
    order = sizes.order(500, 100)
    assert len(set(order)) == 100
    assert order != sorted(order)
    assert order == sizes.order(500, 100)
    assert sizes.order(2, 5) == [0, 1, 0, 1, 0]
    assert len(sizes.order(10_000)) == sizes.CANCELS
