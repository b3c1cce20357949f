"""No error is lost, whatever cuts off the cleanup after it; and what happens again and again is told, as a number."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from actors.runtime import Backoff, Crash, Ctx, Down, System, open_system
from actors.testing import seeds

Body = Callable[[Ctx[Any], list[bool]], Awaitable[None]]


@dataclass
class Boom:
    pass


async def idle(ctx: Ctx[Any]) -> None:
    async for _ in ctx:
        raise ValueError("boom")


async def fail_and_clean_up(cleaned: list[bool]) -> None:
    try:
        raise ValueError("the real one")
    finally:
        await trio.sleep(10)  # python-trio/trio#455: its Cancelled takes the error's place
        cleaned.append(True)


async def in_finally(ctx: Ctx[Any], cleaned: list[bool]) -> None:
    ctx.ready()
    await fail_and_clean_up(cleaned)


async def in_finally_twice(ctx: Ctx[Any], cleaned: list[bool]) -> None:
    ctx.ready()
    try:
        await fail_and_clean_up(cleaned)
    finally:
        await trio.sleep(10)


async def in_a_nursery(ctx: Ctx[Any], cleaned: list[bool]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail_and_clean_up, cleaned)
        await idle(ctx)


async def in_a_task_of_it(ctx: Ctx[Any], cleaned: list[bool]) -> None:
    ctx.spawn(fail_and_clean_up, cleaned, result=lambda _: None)
    await idle(ctx)


async def on_stop(ctx: Ctx[Any], cleaned: list[bool]) -> None:
    async def clean() -> None:
        await trio.sleep(3)
        cleaned.append(True)

    ctx.on_stop(clean)
    ctx.ready()
    raise ValueError("the real one")


BODIES = [in_finally, in_finally_twice, in_a_nursery, in_a_task_of_it, on_stop]


@pytest.mark.parametrize("how", ["outer cancel", "stop"])
@pytest.mark.parametrize("body", BODIES)
@seeds(10)
async def test_the_real_error_survives_a_cancel_in_its_cleanup_r19(body: Body, how: str) -> None:
    downs: list[Down] = []
    cleaned: list[bool] = []
    after: list[bool] = []
    with trio.move_on_after(1 if how == "outer cancel" else 20) as scope:
        async with open_system(on_down=downs.append) as system:
            supervisor = await system.supervise(name="s", restart="transient")
            ref = await supervisor.spawn(body, cleaned)
            if how == "stop":
                await trio.sleep(1)
                ref.stop()
            await trio.sleep_forever()
        after.append(True)
    assert scope.cancelled_caught  # the Cancelled has reached its scope
    assert after == []
    assert [str(down.error) for down in downs] == ["the real one"]
    assert cleaned == [True] * (body is on_stop)


@pytest.mark.parametrize("body", BODIES)
@seeds(10)
async def test_the_real_error_survives_a_restart_of_its_group_r19(body: Body) -> None:
    """The supervisor cancels the cleanup itself, because another child has crashed: it hears of both."""
    crashes: list[Crash] = []
    cleaned: list[bool] = []

    async def fails_once(ctx: Ctx[Any]) -> None:
        await (idle(ctx) if crashes else body(ctx, cleaned))

    async with open_system(on_crash=crashes.append) as system:
        supervisor = await system.supervise(
            name="s", strategy="one_for_all", restart="transient", backoff=Backoff(first_s=1.0)
        )
        await supervisor.spawn(fails_once, name="a")
        sibling = await supervisor.spawn(idle, name="b")
        await trio.sleep(1)
        sibling.tell(Boom())
        await trio.sleep(20)
    assert sorted((crash.name, str(crash.error)) for crash in crashes) == [("a", "the real one"), ("b", "boom")]


@seeds(10)
async def test_the_error_of_whoever_stops_an_actor_is_not_the_actors_r19() -> None:
    """Python puts what the canceller is handling behind the Cancelled that it makes."""
    async with open_system() as system:
        stopped = await system.spawn(idle)
        closed = await system.spawn(idle)
        try:
            raise KeyError("somebody else's")
        except KeyError:
            stopped.stop()
            system.stop()
        assert ((await stopped.join()).error, (await closed.join()).error) == (None, None)


async def test_what_cleanup_raises_does_not_replace_the_real_error_r19(system: System) -> None:
    async def clean() -> None:
        raise KeyError("cleanup")

    async def body(ctx: Ctx[int]) -> None:
        ctx.on_stop(clean)
        ctx.ready()
        raise ValueError("the real one")

    error = (await (await system.spawn(body, name="w")).join()).error
    assert str(error) == "the real one"
    assert "on_stop 'clean' raised KeyError('cleanup')" in getattr(error, "__notes__", [])


# R14: a loop of restarts is seen, and no flood.


async def again_and_again(ctx: Ctx[Any], starts: list[float], crash: bool) -> None:
    starts.append(trio.current_time())
    ctx.ready()
    await trio.sleep(0.001)
    if crash:
        raise ValueError("again")


async def run_to_the_limit(system: System, starts: list[float], *, crash: bool) -> None:
    backoff = Backoff(first_s=0.0, jitter=0.0)
    supervisor = await system.supervise(name="s", restart="permanent", intensity=(99, 10.0), backoff=backoff)
    await (await supervisor.spawn(again_and_again, starts, crash, name="w")).join()
    await trio.sleep(2)
    assert len(starts) == 100


async def test_each_restart_is_logged_once_with_cause_and_count_and_a_flood_as_a_number_r14(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    await run_to_the_limit(system, [], crash=True)
    each = "actor 's/w' crashed while handling no message: ValueError; restart {} in 0.000 s"
    records = [record for record in caplog.records if record.name == "actors.runtime"]
    assert [record.getMessage() for record in records] == [
        *[each.format(n) for n in range(1, 21)],
        "actor 's/w' crashed while handling no message: ValueError; given up after 99 restarts in 10 s",
        "79 more restarts of actors of 's' in one second are not written out",
    ]
    assert all(record.levelno == logging.ERROR for record in records)
    assert all(record.exc_info and record.exc_info[0] is ValueError for record in records[:21])


async def test_a_body_that_returns_again_and_again_is_no_flood_in_the_log_either_r14(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="actors.runtime")
    await run_to_the_limit(system, [], crash=False)
    said = [record.getMessage() for record in caplog.records if record.name == "actors.runtime"]
    assert said[0] == "actor 's/w' returned; restart 1 in 0.000 s"
    assert "actor 's/w' returned and is given up after 99 restarts in 10 s" in said[-2:]
    assert len(said) <= 22
