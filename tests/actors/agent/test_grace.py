from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.agent.grace import CancelGrace


class Run:
    """Stands for a run: notes when it was given up."""

    def __init__(self) -> None:
        self.given_up_at: float | None = None

    def give_up(self) -> None:
        self.given_up_at = trio.current_time()


async def _keep(grace: CancelGrace, nursery: trio.Nursery) -> None:
    nursery.start_soon(grace.keep)
    await wait_all_tasks_blocked()


async def test_a_run_is_given_up_when_its_grace_is_over(autojump_clock: MockClock) -> None:
    grace, first, second = CancelGrace(5.0), Run(), Run()
    async with trio.open_nursery() as nursery:
        await _keep(grace, nursery)
        began = trio.current_time()
        grace.watch(first)  # type: ignore[arg-type]
        await trio.sleep(2)
        grace.watch(second)  # type: ignore[arg-type]
        await trio.sleep(10)
        assert first.given_up_at == pytest.approx(began + 5)
        assert second.given_up_at == pytest.approx(began + 7)
        nursery.cancel_scope.cancel()


async def test_a_run_that_ends_in_time_is_left_alone_and_no_deadline_stays(autojump_clock: MockClock) -> None:
    grace, run, other = CancelGrace(5.0), Run(), Run()
    async with trio.open_nursery() as nursery:
        await _keep(grace, nursery)
        grace.watch(run)  # type: ignore[arg-type]
        grace.watch(other)  # type: ignore[arg-type]
        grace.ended(run)  # type: ignore[arg-type]
        assert trio.current_time() + 5 >= _deadline(grace)
        grace.ended(other)  # type: ignore[arg-type]
        assert _deadline(grace) == float("inf")
        grace.ended(run)  # type: ignore[arg-type]
        await trio.sleep(20)
        assert run.given_up_at is None and other.given_up_at is None
        nursery.cancel_scope.cancel()


async def test_a_second_cancel_does_not_lengthen_the_grace(autojump_clock: MockClock) -> None:
    grace, run = CancelGrace(5.0), Run()
    async with trio.open_nursery() as nursery:
        await _keep(grace, nursery)
        began = trio.current_time()
        grace.watch(run)  # type: ignore[arg-type]
        await trio.sleep(3)
        grace.watch(run)  # type: ignore[arg-type]
        await trio.sleep(10)
        assert run.given_up_at == pytest.approx(began + 5)
        nursery.cancel_scope.cancel()


async def test_runs_watched_before_the_task_runs_are_not_forgotten(autojump_clock: MockClock) -> None:
    grace, run = CancelGrace(5.0), Run()
    grace.watch(run)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        await _keep(grace, nursery)
        await trio.sleep(6)
        assert run.given_up_at is not None
        nursery.cancel_scope.cancel()


def _deadline(grace: Any) -> float:
    return float(grace._scope.deadline)
