"""Faults that were found by trying to break a system, each as a test of its kind."""

import logging
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import Backoff, Crash, Ctx, Down, DownKind, Ref, Replies, Supervisor, System, open_system

AT_ONCE = Backoff(first_s=0.1, jitter=0.0)


@dataclass(frozen=True)
class NotFound(Exception):
    key: str


class Get(Replies[int]):
    pass


async def raises(ctx: Ctx[Any]) -> None:
    async for message in ctx:
        if isinstance(message, BaseException):
            raise message


async def stray() -> trio.Cancelled:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            return cancelled
    raise AssertionError


async def test_an_error_that_takes_no_notes_is_a_crash_like_any_other(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        supervisor = await system.supervise(name="s", restart="permanent", backoff=AT_ONCE)
        ref, other = await supervisor.spawn(raises), await supervisor.spawn(raises)
        ref.tell(NotFound("k"))
        await trio.sleep(1)
        assert (ref.alive, other.alive, system.statistics().restarts) == (True, True, 1)


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all"])
async def test_a_hook_may_close_its_supervisor(strategy: Any, autojump_clock: MockClock) -> None:
    closing: list[Supervisor] = []
    async with open_system() as system:
        supervisor = await system.supervise(
            name="s", strategy=strategy, restart="permanent", backoff=AT_ONCE, on_crash=lambda _: closing[0].close()
        )
        closing.append(supervisor)
        ref, other = await supervisor.spawn(raises), await supervisor.spawn(raises)
        ref.tell(ValueError("x"))
        await trio.sleep(1)
        assert (ref.alive, other.alive) == (False, True)
        other.drain()
        with trio.fail_after(5):
            await supervisor.join()


async def test_a_member_of_a_group_that_is_stopped_as_its_supervisor_closes_ends(autojump_clock: MockClock) -> None:
    async def slow_to_end(ctx: Ctx[Any]) -> None:
        try:
            await raises(ctx)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    async with open_system() as system:
        supervisor = await system.supervise(name="s", strategy="one_for_all", restart="permanent", backoff=AT_ONCE)
        ref, slow = await supervisor.spawn(raises), await supervisor.spawn(slow_to_end)
        ref.tell(ValueError("x"))
        await trio.sleep(1)
        supervisor.close()
        with trio.fail_after(5):
            await supervisor.join()
        assert (await slow.join()).kind is DownKind.STOPPED


async def test_a_closed_member_does_not_hold_up_the_restart_of_its_group(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", strategy="one_for_all", restart="permanent", backoff=AT_ONCE)
        ref = await top.spawn(raises)
        low = await top.supervise(name="low")
        child = await low.spawn(raises)
        low.close()
        ref.tell(ValueError("x"))
        await trio.sleep(5)
        assert (ref.alive, child.alive, low.ended) == (True, False, True)
        assert system.tree().children[0].children[0].state == "running"


@pytest.mark.parametrize("how", ["body", "group", "hook"])
@pytest.mark.parametrize("own_nursery", [False, True])
async def test_a_cancelled_of_nobody_is_a_crash_wherever_it_comes_from(
    how: str, own_nursery: bool, autojump_clock: MockClock
) -> None:
    foreign = await stray()

    async def hook() -> None:
        raise foreign

    async def body(ctx: Ctx[Any]) -> None:
        if how == "hook":
            ctx.on_stop(hook)
        async for message in ctx:
            if how == "body":
                raise foreign
            if how == "group":
                raise BaseExceptionGroup("group", [foreign])
            raise ValueError(message)

    async with open_system() as system:
        supervisor = await system.supervise(name="s", restart="permanent", backoff=AT_ONCE)
        ref, other = await supervisor.spawn(body, own_nursery=own_nursery), await supervisor.spawn(raises)
        ref.tell("go")
        await trio.sleep(1)
        assert (ref.alive, other.alive, system.statistics().restarts) == (True, True, 1)


async def test_ticks_do_not_keep_a_slow_actor_from_draining(autojump_clock: MockClock) -> None:
    async def body(ctx: Ctx[str]) -> None:
        ctx.every(1.0, "tick")
        async for _ in ctx:
            await trio.sleep(1.2)

    async with open_system() as system:
        ref = await system.spawn(body)
        await trio.sleep(3)
        ref.drain()
        with trio.fail_after(5):
            assert (await ref.join()).kind is DownKind.DRAINED


async def test_a_start_below_a_group_that_spawns_into_it_does_not_wait_for_itself(autojump_clock: MockClock) -> None:
    errors: list[str] = []

    async def member(ctx: Ctx[Any], top: Supervisor) -> None:
        try:
            await top.spawn(raises)
        except RuntimeError as error:
            errors.append(str(error))
        await raises(ctx)

    async with open_system() as system:
        top = await system.supervise(name="top", strategy="one_for_all", restart="permanent", backoff=AT_ONCE)
        ref = await top.spawn(raises)
        inner = await top.supervise(name="inner", restart="permanent")
        await inner.spawn(member, top, name="m")
        ref.tell(ValueError("x"))
        await trio.sleep(5)
        assert ref.alive
    assert errors == ["actor 'top/inner/m' spawns a sibling before it is ready, while its group is restarted"]


async def test_the_grace_of_an_earlier_stop_is_not_counted_for_a_later_one(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def slow_to_end(ctx: Ctx[Any]) -> None:
        try:
            await raises(ctx)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    async with open_system() as system:
        supervisor = await system.supervise(name="s", strategy="one_for_all", restart="permanent", backoff=AT_ONCE)
        ref = await supervisor.spawn(raises)
        await supervisor.spawn(slow_to_end)
        ref.tell(ValueError("first"))  # the stop of the other one takes from 0 to 2
        await trio.sleep(4)
        ref.tell(ValueError("second"))  # and from 4 to 6
        await trio.sleep(4)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == []


async def test_a_cancelled_spawn_is_cancelled_also_if_its_child_asks_back(autojump_clock: MockClock) -> None:
    ended: list[bool] = []

    async def child(ctx: Ctx[Any], parent: Ref[Any]) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(1, shield=True):
                await parent.ask(Get())

    async def parent(ctx: Ctx[Any]) -> None:
        ctx.ready()
        with trio.move_on_after(1) as scope:
            await ctx.system.spawn(child, ctx.self)
        ended.append(scope.cancelled_caught)

    async with open_system() as system:
        assert (await (await system.spawn(parent)).join()).error is None
    assert ended == [True]


async def test_nothing_is_started_again_below_a_supervisor_that_stops(autojump_clock: MockClock) -> None:
    crashes: list[Crash] = []

    async def slow_to_end(ctx: Ctx[Any]) -> None:
        try:
            await raises(ctx)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)

    async with open_system(on_crash=crashes.append) as system:
        outer = await system.supervise(name="outer", restart="permanent", backoff=AT_ONCE)
        inner = await outer.supervise(name="inner", restart="permanent", intensity=(0, 1.0), budget="supervisor")
        ref = await inner.spawn(raises)
        await system.spawn(slow_to_end)
        await wait_all_tasks_blocked()
        system.stop()  # the last one started takes its time
        ref.tell(ValueError("x"))
        await trio.sleep(2)
    assert [(type(crash.error), crash.restart_in_s) for crash in crashes] == [(ValueError, None)]


async def test_a_log_filter_that_raises_ends_nobody(autojump_clock: MockClock) -> None:
    class Raising(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise OSError("log")

    async def hook() -> None:
        raise ValueError("hook")

    async def body(ctx: Ctx[Any]) -> None:
        ctx.on_stop(hook)
        await raises(ctx)

    log = logging.getLogger("actors.runtime")
    raising = Raising()
    log.addFilter(raising)
    try:
        async with open_system() as system:
            supervisor = await system.supervise(name="s", restart="permanent", backoff=AT_ONCE)
            ref = await supervisor.spawn(body)
            ref.tell(ValueError("x"))
            await trio.sleep(1)
            assert ref.alive
    finally:
        log.removeFilter(raising)


async def test_the_error_of_a_task_that_the_actor_cancelled_long_ago_is_not_its_end(autojump_clock: MockClock) -> None:
    async def work() -> int:
        try:
            raise ValueError("long ago")
        finally:
            await trio.sleep(10)

    async def body(ctx: Ctx[Any]) -> None:
        task = ctx.spawn(work, result=str)
        await trio.sleep(1)
        task.cancel()
        await raises(ctx)

    downs: list[Down] = []
    async with open_system(on_down=downs.append) as system:
        ref = await system.spawn(body)
        await trio.sleep(100)
        ref.stop()
    assert [down.error for down in downs] == [None]


@pytest.mark.parametrize("grace_s", [float("nan"), -1.0, 0.0, float("inf")])
async def test_a_system_has_a_grace_that_can_be_waited_for(grace_s: float, system: System) -> None:
    with pytest.raises(ValueError, match=rf"^grace_s must be above 0 s and finite, not {grace_s}$"):
        async with open_system(grace_s=grace_s):
            raise AssertionError
