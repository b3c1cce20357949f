import inspect

import trio
from trio.testing import wait_all_tasks_blocked

from actors.testing.waiting import who_waits


async def forever() -> None:
    await trio.sleep_forever()


async def test_each_task_has_a_line_with_the_innermost_code_that_is_not_trios() -> None:
    line = inspect.getsourcelines(forever)[1] + 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(forever, name="one")
        await wait_all_tasks_blocked()
        assert f"  one: {__file__}:{line}, in forever" in who_waits()
        nursery.cancel_scope.cancel()


async def test_a_task_that_has_not_started_or_that_is_all_trios_says_so() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever, name="all trio's")
        nursery.start_soon(forever, name="fresh")
        assert "  fresh: not started" in who_waits()
        await wait_all_tasks_blocked()
        assert "  all trio's: in trio" in who_waits()
        nursery.cancel_scope.cancel()


async def test_trios_own_tasks_are_not_listed() -> None:
    assert not [line for line in who_waits() if "init" in line.split(":")[0] or "run_sync_soon" in line]


async def test_a_crowd_is_counted() -> None:
    already = len(who_waits())
    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(forever)
        await wait_all_tasks_blocked()
        lines = who_waits()
        assert len(lines) == 51
        assert lines[-1] == f"  and {150 + already} more tasks"
        nursery.cancel_scope.cancel()
