"""Start, cleanup and end: nothing hangs, nothing is left behind, and no error is lost on the way."""

import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import (
    Backoff,
    Crash,
    Ctx,
    Down,
    NotAccepting,
    Ref,
    Replies,
    System,
    open_system,
)
from actors.testing import every_checkpoint, inject, run, seeds

AT_ONCE = Backoff(first_s=0.0, jitter=0.0)


@dataclass
class Get(Replies[str]):
    pass


@dataclass
class Boom:
    pass


async def idle(ctx: Ctx[Any]) -> None:
    async for _ in ctx:
        pass


# R10: an actor's tasks have ended before anybody acts on its end.


async def slow_to_end(log: list[str], name: str) -> None:
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        log.append(f"{name} has ended")


async def spawning(ctx: Ctx[Any], log: list[str]) -> None:
    for name in ("one", "two"):
        ctx.spawn(slow_to_end, log, name, result=lambda _: None)
    await fails_after_a_second(ctx, log)


async def in_own_nursery(ctx: Ctx[Any], log: list[str]) -> None:
    for name in ("one", "two"):
        ctx.nursery.start_soon(slow_to_end, log, name)
    await fails_after_a_second(ctx, log)


async def in_a_nursery(ctx: Ctx[Any], log: list[str]) -> None:
    async with trio.open_nursery() as nursery:
        for name in ("one", "two"):
            nursery.start_soon(slow_to_end, log, name)
        await fails_after_a_second(ctx, log)


async def task_fails(ctx: Ctx[Any], log: list[str]) -> None:
    async def fail() -> None:
        await trio.sleep(1)
        raise ValueError("task")

    for name in ("one", "two"):
        ctx.spawn(slow_to_end, log, name, result=lambda _: None)
    ctx.spawn(fail, result=lambda _: None)
    log.append("start")
    await idle(ctx)


async def fails_after_a_second(ctx: Ctx[Any], log: list[str]) -> None:
    log.append("start")
    ctx.ready()
    await trio.sleep(1)
    raise ValueError("body")


@pytest.mark.parametrize("body", [spawning, in_own_nursery, in_a_nursery, task_fails])
@pytest.mark.parametrize("restart", ["temporary", "transient"])
@seeds(20)
async def test_the_tasks_of_a_crashed_actor_have_finished_before_its_supervisor_acts_r10(
    body: Callable[[Ctx[Any], list[str]], Awaitable[None]], restart: Any
) -> None:
    log: list[str] = []

    def crashed(crash: Crash) -> None:
        log.append("the supervisor is told")

    async def watching(ctx: Ctx[Down], ref: Ref[Any]) -> None:
        ctx.watch(ref)
        async for _ in ctx:
            log.append("the watcher is told")

    async with open_system(on_crash=crashed) as system:
        supervisor = await system.supervise(name="s", restart=restart, intensity=(1, 10.0), backoff=AT_ONCE)
        ref = await supervisor.spawn(body, log, own_nursery=body is in_own_nursery)
        await system.spawn(watching, ref)
        await ref.join()
        await wait_all_tasks_blocked()
    once = ["start", "one has ended", "two has ended", "the supervisor is told"]
    starts = 2 if restart == "transient" else 1
    in_order = [sorted(part) for part in _parts(log)]
    assert in_order == [sorted(once)] * starts
    assert all(part[-1] == "the supervisor is told" for part in _parts(log))
    assert log[-1] == "the watcher is told"


def _parts(log: list[str]) -> list[list[str]]:
    parts: list[list[str]] = []
    for entry in log:
        if entry == "start":
            parts.append([])
        if entry != "the watcher is told":
            parts[-1].append(entry)
    return parts


# R11: a fault at every await of an actor's life.


class Injected(Exception):
    pass


async def whole_life(ctx: Ctx[Any], starts: list[int]) -> None:
    starts.append(1)
    ctx.on_stop(trio.sleep, 0.1, within=1.0)
    await trio.sleep(0.1)  # its start
    await trio.sleep(0.1)
    ctx.ready()
    try:
        async for message in ctx:
            if isinstance(message, Boom):
                raise ValueError("boom")
            message.reply.send("here")
    finally:
        with trio.move_on_after(1, shield=True):  # its end, and what is to be done before a restart
            await trio.sleep(0.1)
            await trio.sleep(0.1)


async def spawn_crash_restart_stop(downs: list[Down]) -> None:
    """The same whichever await of `w` fails: `spawn` says so, or watcher and name tell its end."""
    starts: list[int] = []

    async def watching(ctx: Ctx[Down], ref: Ref[Any]) -> None:
        ctx.watch(ref)
        async for down in ctx:
            downs.append(down)

    async with open_system() as system:
        supervisor = await system.supervise(name="s", restart="transient", intensity=(1, 1e6), backoff=AT_ONCE)
        raised: Injected | None = None
        try:
            ref = await supervisor.spawn(whole_life, starts, name="w")
        except Injected as error:
            raised = error
        if raised is not None:
            assert (type(raised), raised.__cause__) == (Injected, None)
            assert len(starts) <= 1  # it failed in its body, or right before
        else:
            await system.spawn(watching, ref)
            ref.tell(Boom())
            with trio.move_on_after(50):
                await ref.join()
            ref.stop()
            with trio.fail_after(50):
                assert (await ref.join()).ref is ref
            await wait_all_tasks_blocked()
            assert [down.ref for down in downs] == [ref]
        assert system.registry.lookup("w") is None
        assert supervisor.children == ()
        again = await supervisor.spawn(idle, name="w")
        assert system.registry.lookup("w") is again


def test_an_error_at_any_await_of_a_life_leaves_no_hang_no_name_and_no_watcher_untold_r11() -> None:
    at = every_checkpoint(spawn_crash_restart_stop, [], tasks="actor s/w")
    assert len(at) >= 10
    came_out: list[Injected] = []
    for n in at:
        try:
            run(spawn_crash_restart_stop, [], seed=0, fault=inject(n, Injected, tasks="actor s/w"))
        except Injected as error:
            came_out.append(error)
    # The runtime's own waits, before a life and between two: no actor can fail there.
    assert came_out
    for own in came_out:
        assert "whole_life" not in {frame.name for frame in traceback.extract_tb(own.__traceback__)}


def test_a_cancel_at_any_moment_of_a_life_leaves_nothing_r11() -> None:
    for n in every_checkpoint(spawn_crash_restart_stop, []):
        run(spawn_crash_restart_stop, [], seed=0, fault=inject(n, "cancel"))


async def test_a_spawn_that_is_cancelled_leaves_no_actor_r11(system: System) -> None:
    async def never_ready(ctx: Ctx[int]) -> None:
        await trio.sleep_forever()

    with trio.move_on_after(1) as scope:
        await system.spawn(never_ready, name="w")
    assert scope.cancelled_caught
    assert (trio.current_time(), system.statistics().actors) == (1, 0)
    assert await system.spawn(idle, name="w")


@pytest.mark.parametrize("when", ["stopping", "stopped"])
async def test_a_spawn_into_a_supervisor_that_closes_ends_at_once_r11(system: System, when: str) -> None:
    async def never_ready(ctx: Ctx[int]) -> None:
        await trio.sleep_forever()

    errors: list[Exception] = []
    supervisor = await system.supervise(name="s")

    async def spawn() -> None:
        try:
            await supervisor.spawn(never_ready, name="w")
        except Exception as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        if when == "stopped":
            supervisor.stop()
            await supervisor.join()
        nursery.start_soon(spawn)
        await wait_all_tasks_blocked()
        supervisor.stop("closing")
    assert [type(error).__name__ for error in errors] == [{"stopped": "NotAccepting", "stopping": "ActorGone"}[when]]
    assert not isinstance(errors[0], NotAccepting) or str(errors[0]) == "'s' is closing and starts no more actors"
    assert trio.current_time() == 0


@pytest.mark.scheduler_seeds(5)
async def test_probe_a_failing_start_raises_from_spawn_unwrapped_r11(system: System) -> None:
    error = OSError("no disk")

    async def broken(ctx: Ctx[int]) -> None:
        async with trio.open_nursery() as outer:
            async with trio.open_nursery() as inner:
                inner.start_soon(fail)
                outer.start_soon(trio.sleep_forever)

    async def fail() -> None:
        raise error

    with pytest.raises(OSError) as caught:
        await system.spawn(broken, name="w")
    assert caught.value is error
    assert system.registry.lookup("w") is None


Cancel = Callable[[System, Ref[Any], trio.CancelScope], None]


@pytest.mark.parametrize(
    "cancel",
    [lambda _, ref, __: ref.stop(), lambda system, _, __: system.stop(), lambda _, __, scope: scope.cancel()],
    ids=["ref", "system", "outside"],
)
@seeds(5)
async def test_probe_the_cleanup_hook_runs_on_a_cancel_with_its_deadline(cancel: Cancel) -> None:
    cleaned: list[str] = []

    async def clean(seconds: float) -> None:
        await trio.sleep(seconds)
        cleaned.append(f"{seconds:g} s")

    async def body(ctx: Ctx[int]) -> None:
        ctx.on_stop(clean, 100.0, within=3.0)
        ctx.on_stop(clean, 2.0, within=3.0)
        await idle(ctx)

    async def use(scope: trio.CancelScope) -> None:
        with scope:
            async with open_system() as system:
                ref = await system.spawn(body)
                await wait_all_tasks_blocked()
                cancel(system, ref, scope)
                await ref.join()

    began = trio.current_time()
    await use(trio.CancelScope())
    assert cleaned == ["2 s"]
    assert trio.current_time() - began == pytest.approx(5)
