import pytest
import trio
from trio.testing import MockClock

from actors.agent.grace import CancelGrace
from actors.runtime import open_system


class Run:
    """Stands for a run: notes when it was given up."""

    def __init__(self) -> None:
        self.given_up_at: float | None = None

    def give_up(self) -> None:
        self.given_up_at = trio.current_time()


async def test_a_run_is_given_up_when_its_grace_is_over(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        grace, first, second = CancelGrace(system, 5.0), Run(), Run()
        began = trio.current_time()
        grace.watch(first)  # type: ignore[arg-type]
        await trio.sleep(2)
        grace.watch(second)  # type: ignore[arg-type]
        await trio.sleep(10)
        assert first.given_up_at == pytest.approx(began + 5)
        assert second.given_up_at == pytest.approx(began + 7)


async def test_a_run_that_ends_in_time_is_left_alone_and_no_deadline_stays(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        grace, run, other = CancelGrace(system, 5.0), Run(), Run()
        grace.watch(run)  # type: ignore[arg-type]
        grace.watch(other)  # type: ignore[arg-type]
        grace.ended(run)  # type: ignore[arg-type]
        assert len(system.wheel) == 1
        grace.ended(other)  # type: ignore[arg-type]
        grace.ended(run)  # type: ignore[arg-type]
        assert len(system.wheel) == 0
        await trio.sleep(20)
        assert run.given_up_at is None and other.given_up_at is None


async def test_a_second_cancel_does_not_lengthen_the_grace(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        grace, run = CancelGrace(system, 5.0), Run()
        began = trio.current_time()
        grace.watch(run)  # type: ignore[arg-type]
        await trio.sleep(3)
        grace.watch(run)  # type: ignore[arg-type]
        await trio.sleep(10)
        assert run.given_up_at == pytest.approx(began + 5)
