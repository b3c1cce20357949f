import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import FrozenInstanceError, replace

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime.reports import MAX_LOGGED_PER_S, Crash, Reports
from actors.runtime.wheel import Wheel

CRASH = Crash("a", "shop/a", ValueError("the order of Mr Smith"), "Order", 2, 0.25, gave_up=False)
BUDGET = "3 restarts in 10 s"
MORE = "%d more restarts of actors of 'shop' in one second are not written out"


@asynccontextmanager
async def reporting(hook: Callable[[Crash], None] | None = None) -> AsyncGenerator[Reports, None]:
    wheel = Wheel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wheel.run)
        await wait_all_tasks_blocked()
        yield Reports(wheel, "shop", hook)
        nursery.cancel_scope.cancel()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("crash", "text"),
    [
        (CRASH, "while handling Order: ValueError; restart 2 in 0.250 s"),
        (replace(CRASH, message_kind=None), "while handling no message: ValueError; restart 2 in 0.250 s"),
        (replace(CRASH, restart_in_s=0.0), "while handling Order: ValueError; restart 2 in 0.000 s"),
        (replace(CRASH, restart_in_s=None), "while handling Order: ValueError; ended, restarts: 2"),
        (
            replace(CRASH, restart_in_s=None, gave_up=True),
            "while handling Order: ValueError; given up after 3 restarts in 10 s",
        ),
    ],
)
async def test_a_crash_is_logged_once_with_what_was_decided(
    crash: Crash, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reporting() as reports:
        reports.crashed(crash, BUDGET)
    (record,) = caplog.records
    assert record.getMessage() == f"actor 'shop/a' crashed {text}"
    assert (record.name, record.levelno) == ("actors.runtime", logging.ERROR)
    assert record.exc_info is not None
    assert record.exc_info[1] is crash.error
    fields = (record.__dict__["actor"], record.__dict__["message_kind"], record.__dict__["restarts"])
    assert fields == ("shop/a", crash.message_kind, 2)


async def test_the_hook_is_told_each_crash_once_whether_it_is_logged_or_not(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Crash] = []
    crashes = [replace(CRASH, restarts=number) for number in range(MAX_LOGGED_PER_S + 5)]
    async with reporting(told.append) as reports:
        for crash in crashes:
            reports.crashed(crash, BUDGET)
    assert told == crashes
    assert len(caplog.records) == MAX_LOGGED_PER_S


def test_a_crash_cannot_be_changed_by_a_hook() -> None:
    with pytest.raises(FrozenInstanceError):
        CRASH.restarts = 3  # type: ignore[misc]


async def test_a_flood_is_counted_and_told_when_the_second_is_over_r14(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with reporting() as reports:
        await trio.sleep(5)
        for _ in range(MAX_LOGGED_PER_S):
            reports.crashed(CRASH, BUDGET)
        assert not reports.active  # all of them are written out
        for _ in range(7):
            reports.crashed(CRASH, BUDGET)
        assert reports.active
        await trio.sleep(0.99)
        assert len(caplog.records) == MAX_LOGGED_PER_S
        await trio.sleep(0.01)
        await wait_all_tasks_blocked()
        assert said(caplog)[MAX_LOGGED_PER_S:] == [MORE % 7]
        assert not reports.active
        await trio.sleep(100)
    assert len(caplog.records) == MAX_LOGGED_PER_S + 1


async def test_the_number_is_told_once_also_if_the_next_crash_comes_first(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with reporting() as reports:
        for _ in range(MAX_LOGGED_PER_S + 3):
            reports.crashed(CRASH, BUDGET)
        mock_clock.jump(1.0)  # both are due now, and the wheel has not run
        reports.crashed(CRASH, BUDGET)
        await wait_all_tasks_blocked()
        assert said(caplog)[MAX_LOGGED_PER_S] == MORE % 3
        assert said(caplog)[MAX_LOGGED_PER_S + 1].startswith("actor 'shop/a' crashed")
        assert len(caplog.records) == MAX_LOGGED_PER_S + 2
        # A new second has begun with that crash.
        for _ in range(MAX_LOGGED_PER_S):
            reports.crashed(CRASH, BUDGET)
        assert len(caplog.records) == 2 * MAX_LOGGED_PER_S + 1
        mock_clock.jump(1.0)
        await wait_all_tasks_blocked()
        assert said(caplog)[-1] == MORE % 1


async def test_the_second_begins_with_its_first_crash(mock_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with reporting() as reports:
        reports.crashed(CRASH, BUDGET)
        mock_clock.jump(0.75)
        for _ in range(MAX_LOGGED_PER_S):
            reports.crashed(CRASH, BUDGET)
        assert len(caplog.records) == MAX_LOGGED_PER_S
        mock_clock.jump(0.25)
        reports.crashed(CRASH, BUDGET)
        assert said(caplog)[MAX_LOGGED_PER_S] == MORE % 1
        assert len(caplog.records) == MAX_LOGGED_PER_S + 2


async def test_every_second_of_a_long_flood_is_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with reporting() as reports:
        for _ in range(300):
            for _ in range(10):
                reports.crashed(CRASH, BUDGET)
            await trio.sleep(0.125)
        await trio.sleep(10)
    lines = said(caplog)
    more = [int(line.split()[0]) for line in lines if "more restarts" in line]
    assert len(lines) - len(more) + sum(more) == 3000
    assert len(lines) - len(more) == MAX_LOGGED_PER_S * 38
    assert len(more) == 38


async def test_a_crash_that_is_the_end_is_written_out_in_any_flood_and_takes_no_place(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    last = replace(CRASH, restart_in_s=None)
    async with reporting() as reports:
        for _ in range(2 * MAX_LOGGED_PER_S):
            reports.crashed(last, BUDGET)
        assert len(caplog.records) == 2 * MAX_LOGGED_PER_S
        assert not reports.active
        for _ in range(MAX_LOGGED_PER_S + 1):
            reports.crashed(CRASH, BUDGET)
        assert len(caplog.records) == 3 * MAX_LOGGED_PER_S
        reports.crashed(last, BUDGET)
        assert len(caplog.records) == 3 * MAX_LOGGED_PER_S + 1


async def test_a_body_that_returned_and_runs_again_is_told_within_the_same_bounds(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "actors.runtime")
    told: list[Crash] = []
    async with reporting(told.append) as reports:
        reports.returned("shop/a", 3, 0.5)
        (record,) = caplog.records
        assert (record.getMessage(), record.levelno) == ("actor 'shop/a' returned; restart 3 in 0.500 s", logging.INFO)
        for _ in range(MAX_LOGGED_PER_S):
            reports.returned("shop/a", 3, 0.5)
        assert len(caplog.records) == MAX_LOGGED_PER_S
        mock_clock.jump(1.0)
        await wait_all_tasks_blocked()
        assert said(caplog)[-1] == MORE % 1
    assert told == []  # it is no crash


async def test_a_body_that_returned_too_often_is_told_to_log_and_hook(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Crash] = []
    async with reporting(told.append) as reports:
        for _ in range(MAX_LOGGED_PER_S + 1):
            reports.returned_too_often(CRASH, BUDGET)
    assert said(caplog) == ["actor 'shop/a' returned and is given up after 3 restarts in 10 s"] * (MAX_LOGGED_PER_S + 1)
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
    assert told == [CRASH] * (MAX_LOGGED_PER_S + 1)
    async with reporting() as reports:
        reports.returned_too_often(CRASH, BUDGET)  # there need be no hook


async def test_what_a_hook_raises_is_logged_and_the_next_crash_is_told_e17(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Crash] = []

    def hook(crash: Crash) -> None:
        told.append(crash)
        raise OSError("no pager")

    async with reporting(hook) as reports:
        reports.crashed(CRASH, BUDGET)
        reports.crashed(CRASH, BUDGET)
    assert told == [CRASH, CRASH]
    assert said(caplog)[1::2] == ["reporting the crash of actor 'shop/a' raised"] * 2
    assert caplog.records[1].exc_info is not None
    assert isinstance(caplog.records[1].exc_info[1], OSError)


async def test_a_log_filter_that_raises_reaches_nobody_and_the_hook_is_told_all_the_same_e17(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Crash] = []

    def refuse(_: logging.LogRecord) -> bool:
        raise RuntimeError("filter")

    logger = logging.getLogger("actors.runtime")
    async with reporting(told.append) as reports:
        logger.addFilter(refuse)
        try:
            for _ in range(MAX_LOGGED_PER_S + 1):
                reports.crashed(CRASH, BUDGET)
            await trio.sleep(2)  # the number cannot be logged either
        finally:
            logger.removeFilter(refuse)
    assert len(told) == MAX_LOGGED_PER_S + 1
    assert caplog.records == []


async def test_a_hook_may_end_the_process() -> None:
    def leave(_: Crash) -> None:
        raise SystemExit(1)

    async with reporting(leave) as reports:
        with pytest.raises(SystemExit):
            reports.crashed(CRASH, BUDGET)


async def test_a_handling_kind_is_all_that_is_said_of_a_message(caplog: pytest.LogCaptureFixture) -> None:
    async with reporting() as reports:
        reports.crashed(CRASH, BUDGET)
    assert "Mr Smith" not in caplog.records[0].getMessage()  # what the error says is in the traceback only
