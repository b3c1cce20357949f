"""An actor with a nursery of its own: what runs in there belongs to it and ends with it."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import ActorGone, Backoff, Ctx, DownKind, open_system


async def serve(ctx: Ctx[str], log: list[str]) -> None:
    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            log.append("child ended")

    ctx.nursery.start_soon(child)
    async for message in ctx:
        log.append(message)
        if message == "crash":
            raise LookupError("a bug")
    log.append("body ended")


async def test_its_tasks_are_cancelled_when_its_body_has_ended_and_its_end_is_told_last() -> None:
    log: list[str] = []
    async with open_system() as system:
        ref = await system.spawn(serve, log, own_nursery=True, on_end=lambda: log.append("told"))
        ref.tell("hello")
        ref.drain()
        assert (await ref.join()).kind is DownKind.DRAINED
    assert log == ["hello", "body ended", "child ended", "told"]


async def test_stop_cancels_body_and_tasks_with_its_reason() -> None:
    log: list[str] = []
    async with open_system() as system:
        ref = await system.spawn(serve, log, own_nursery=True)
        await wait_all_tasks_blocked()
        ref.stop("enough")
        down = await ref.join()
        assert (down.kind, down.reason) == (DownKind.STOPPED, "enough")
    assert log == ["child ended"]


async def test_a_crash_of_its_body_ends_its_tasks_and_is_one_plain_error(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    async with open_system() as system:
        other = await system.spawn(serve, [], own_nursery=True)
        ref = await system.spawn(serve, log, own_nursery=True, name="x")
        ref.tell("crash")
        down = await ref.join()
        assert down.kind is DownKind.CRASHED
        assert isinstance(down.error, LookupError)
        assert other.alive
    assert log == ["crash", "child ended"]


async def test_an_error_of_one_of_its_tasks_is_its_crash_and_each_start_has_a_nursery_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    starts: list[trio.Nursery] = []

    async def fragile(ctx: Ctx[str]) -> None:
        async def fail() -> None:
            raise OSError("disk")

        starts.append(ctx.nursery)
        ctx.ready()
        ctx.nursery.start_soon(fail)
        await trio.sleep_forever()

    async with open_system() as system:
        supervisor = await system.supervise(
            name="sup", restart="permanent", intensity=(2, 10.0), backoff=Backoff(first_s=0.0)
        )
        ref = await supervisor.spawn(fragile, own_nursery=True)
        down = await ref.join()
        assert (down.kind, str(down.error)) == (DownKind.CRASHED, "disk")
        supervisor.stop()
    assert len(set(starts)) == 3


async def test_a_cancel_from_outside_goes_on_and_takes_the_errors_off(caplog: pytest.LogCaptureFixture) -> None:
    async def noisy(ctx: Ctx[str]) -> None:
        async def complain() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise OSError("disk")

        ctx.nursery.start_soon(complain)
        ctx.ready()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        async with open_system() as system:
            ref = await system.spawn(noisy, own_nursery=True)
            await wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert str((await ref.join()).error) == "disk"


async def test_one_that_is_stopped_before_it_began_does_not_run() -> None:
    ran: list[int] = []

    async def body(ctx: Ctx[str]) -> None:
        ran.append(1)

    async with open_system() as system:
        supervisor = await system.supervise(name="sup")

        class StopAtOnce(trio.abc.Instrument):
            def task_spawned(self, task: trio.lowlevel.Task) -> None:
                supervisor.stop("no")

        instrument = StopAtOnce()
        trio.lowlevel.add_instrument(instrument)
        try:
            with pytest.raises(ActorGone, match="no"):
                await supervisor.spawn(body, name="x", own_nursery=True)
        finally:
            trio.lowlevel.remove_instrument(instrument)
    assert ran == []


async def test_an_actor_without_one_says_how_to_get_one() -> None:
    seen: list[str] = []

    async def body(ctx: Ctx[str]) -> None:
        try:
            _ = ctx.nursery
        except RuntimeError as error:
            seen.append(str(error))

    async with open_system() as system:
        await system.spawn(body, name="plain")
    assert seen == ["actor 'plain' has no nursery; spawn it with own_nursery=True"]
