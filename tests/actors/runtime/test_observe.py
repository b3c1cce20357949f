import logging
from collections.abc import Callable

import pytest
import trio

from actors.runtime import Ctx, System, observe, open_system


async def idle(ctx: Ctx[object]) -> None:
    async for _ in ctx:
        pass


@pytest.fixture
def seen() -> list[str]:
    return []


def listen(seen: list[str], mark: str = "") -> Callable[[], None]:
    return observe.listen(
        on_open=lambda system: seen.append(f"{mark}open {system.name} {system.statistics().started}"),
        on_close=lambda system: seen.append(f"{mark}close {system.name} {system.statistics().actors}"),
    )


async def test_a_listener_is_told_of_each_system_when_it_opens_and_when_nothing_lives_in_it_any_more(
    seen: list[str],
) -> None:
    unlisten = listen(seen)
    async with open_system(name="outer") as system:
        await system.spawn(idle)
        async with open_system(name="inner") as inner:
            await inner.spawn(idle)
            assert seen == ["open outer 0", "open inner 0"]
        assert seen[2:] == ["close inner 0"]
    assert seen[3:] == ["close outer 0"]
    unlisten()


async def test_a_system_whose_block_raised_or_was_cancelled_is_closed_too(seen: list[str]) -> None:
    unlisten = listen(seen)
    with pytest.raises(ValueError, match=r"^mine$"):
        async with open_system(name="failed") as system:
            await system.spawn(idle)
            raise ValueError("mine")
    with trio.CancelScope() as scope:
        async with open_system(name="cancelled") as system:
            await system.spawn(idle)
            scope.cancel()
            await trio.sleep_forever()
    unlisten()
    assert seen == ["open failed 0", "close failed 0", "open cancelled 0", "close cancelled 0"]


async def test_one_that_has_stopped_listening_hears_nothing_more(seen: list[str]) -> None:
    first, second = listen(seen, "first "), listen(seen, "second ")
    async with open_system():
        first()
        first()
    second()
    async with open_system():
        pass
    assert seen == ["first open system 0", "second open system 0", "second close system 0"]


async def test_either_callback_may_be_left_out(seen: list[str]) -> None:
    ends = [
        observe.listen(on_open=lambda system: seen.append("open")),
        observe.listen(on_close=lambda system: seen.append("close")),
        observe.listen(),
    ]
    async with open_system():
        pass
    for end in ends:
        end()
    assert seen == ["open", "close"]


async def test_a_listener_that_raises_is_logged_and_disturbs_nobody(
    seen: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(system: System) -> None:
        raise ZeroDivisionError

    ends = [observe.listen(on_open=broken, on_close=broken), listen(seen)]
    with caplog.at_level(logging.ERROR, "actors.runtime"):
        async with open_system(name="mine") as system:
            await system.spawn(idle)
    for end in ends:
        end()
    assert seen == ["open mine 0", "close mine 0"]
    assert [record.message for record in caplog.records] == [
        "what listens to systems raised about <System 'mine' of 0 actors>"
    ] * 2


async def test_a_listener_may_start_and_stop_listening_while_it_is_told(seen: list[str]) -> None:
    ends: list[Callable[[], None]] = []

    def once(system: System) -> None:
        ends.pop()()
        ends.append(listen(seen))

    ends.append(observe.listen(on_open=once))
    async with open_system():
        assert seen == []
    ends.pop()()
    assert seen == ["close system 0"]
