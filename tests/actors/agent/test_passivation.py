"""When sessions are let go of. What that means for those who use them is in the scenarios."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.agent.passivation import Passivation
from actors.runtime import open_system


class Fake:
    """A session that is at rest or not."""

    def __init__(self, *, at_rest: bool = True) -> None:
        self.at_rest = at_rest
        self.quiet = 0


async def test_a_session_is_let_go_of_between_its_time_and_a_quarter_more(autojump_clock: MockClock) -> None:
    went: list[float] = []
    fake: Any = Fake()
    async with open_system() as system:
        looking = Passivation(system, 60.0, lambda: [fake], lambda _: went.append(trio.current_time()))
        await trio.sleep(7)
        fake.quiet = 0  # it was used
        used = trio.current_time()
        await trio.sleep(100)
        assert 60 <= went[0] - used <= 75
        looking.stop()
        count = len(went)
        await trio.sleep(1_000)
        assert len(went) == count


async def test_a_session_that_was_busy_once_begins_anew(autojump_clock: MockClock) -> None:
    went: list[Any] = []
    busy: Any = Fake(at_rest=False)
    async with open_system() as system:
        looking = Passivation(system, 60.0, lambda: [busy], went.append)
        await trio.sleep(500)
        assert went == [] and busy.quiet == 0
        busy.at_rest = True
        await trio.sleep(59)
        assert went == []
        await trio.sleep(17)
        assert went == [busy]
        looking.stop()


async def test_many_are_looked_at_in_slices(autojump_clock: MockClock) -> None:
    went: list[float] = []
    many: list[Any] = [Fake() for _ in range(2_100)]
    async with open_system() as system:
        looking = Passivation(system, 4.0, lambda: many, lambda _: went.append(trio.current_time()))
        await trio.sleep(5.5)
        assert [went.count(time) for time in sorted(set(went))] == [1_024, 1_024, 52]
        looking.stop()


@pytest.mark.parametrize("idle_s", [0, -1.0, float("nan")])
async def test_a_time_that_is_none_is_refused(idle_s: float) -> None:
    async with open_system() as system:
        with pytest.raises(ValueError, match=r"^a session leaves memory after more than 0 s, not "):
            Passivation(system, idle_s, list, lambda _: None)
