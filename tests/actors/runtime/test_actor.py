import contextvars
import gc
import weakref
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import ActorGone, Ctx, DownKind, Ref, open_system
from actors.testing.scheduler import fail_wait

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def idle(ctx: Ctx[int]) -> None:
    async for _ in ctx:
        pass


async def test_spawn_returns_when_the_actor_is_ready(autojump_clock: MockClock) -> None:
    async def slow(ctx: Ctx[int]) -> None:
        await trio.sleep(3)
        ctx.ready()
        await trio.sleep(3)

    async with open_system() as system:
        ref = await system.spawn(slow)
        assert trio.current_time() == pytest.approx(3)
        assert (await ref.join()).kind is DownKind.RETURNED
        assert trio.current_time() == pytest.approx(6)


async def test_spawn_of_a_body_that_returns_at_once_gives_its_ref() -> None:
    async def job(ctx: Ctx[int], results: list[int]) -> None:
        results.append(1)

    results: list[int] = []
    async with open_system() as system:
        ref = await system.spawn(job, results)
        assert (results, ref.alive) == ([1], False)
        assert (await ref.join()).reason == "returned"


async def test_what_a_start_raises_reaches_the_spawner_unwrapped_and_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = OSError("no disk")

    async def broken(ctx: Ctx[int]) -> None:
        ctx.self.tell(1)
        async with trio.open_nursery():
            raise error

    async with open_system() as system:
        with pytest.raises(OSError, match=r"^no disk\n") as caught:
            await system.spawn(broken, name="b")
        assert caught.value is error
        assert error.__notes__ == ["in actor 'b', while starting"]
        assert system.statistics().returned == 1
        assert (system.statistics().actors, system.tree().children) == (0, ())
    assert caplog.records == []


async def test_a_cancelled_spawner_ends_as_cancelled_and_the_name_is_free_a19(autojump_clock: MockClock) -> None:
    async def quiet(ctx: Ctx[int]) -> None:
        with suppress(trio.Cancelled):
            await trio.sleep(1)
            ctx.ready()
            await ctx.receive()

    async with open_system() as system:
        with trio.move_on_after(0.5) as scope:
            await system.spawn(quiet, name="S1")
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(0.5)
        assert system.registry.lookup("S1") is None
        await system.spawn(idle, name="S1")


async def test_the_spawner_waits_a_bounded_time_for_a_start_that_does_not_let_go(autojump_clock: MockClock) -> None:
    async def stubborn(ctx: Ctx[int]) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(10)

    async with open_system(grace_s=2.0) as system:
        with trio.move_on_after(1) as scope:
            await system.spawn(stubborn, name="S1")
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(3)
        assert system.tree().children[0].state == "stopping"


async def test_an_actor_stopped_before_it_is_ready_is_gone_for_its_spawner() -> None:
    async with open_system() as system:

        async def spawn() -> None:
            with pytest.raises(ActorGone, match=r"^actor 'S1' is gone: never mind$"):
                await system.spawn(starting, name="S1")

        refs: list[Ref[int]] = []

        async def starting(ctx: Ctx[int]) -> None:
            refs.append(ctx.self)
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(spawn)
            await wait_all_tasks_blocked()
            assert system.tree().children[0].state == "starting"
            refs[0].stop("never mind")


async def test_a_crash_ends_the_actor_with_its_one_error_and_leaves_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def deep(ctx: Ctx[str]) -> None:
        async for _ in ctx:
            async with trio.open_nursery(), trio.open_nursery():
                raise ValueError("deep down")

    async with open_system() as system:
        sibling = await system.spawn(idle)
        ref = await system.spawn(deep, name="d")
        ref.tell("secret")
        down = await ref.join()
        assert (down.reason, down.kind, type(down.error)) == ("crashed", DownKind.CRASHED, ValueError)
        assert down.error is not None
        assert down.error.__notes__ == ["in actor 'd', while handling str"]
        assert sibling.alive
        with pytest.raises(ActorGone, match=r"^actor 'd' is gone: crashed$") as caught:
            await ref.send("x")
        assert caught.value.__cause__ is down.error
    assert [record.message for record in caplog.records] == [
        "actor 'd' crashed while handling str: ValueError; ended, restarts: 0"
    ]
    assert "secret" not in caplog.text


async def test_two_errors_stay_a_group() -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def body(ctx: Ctx[int]) -> None:
        async for _ in ctx:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail, ValueError())
                nursery.start_soon(fail, KeyError())

    async with open_system() as system:
        ref = await system.spawn(body)
        ref.tell(1)
        error = (await ref.join()).error
        assert isinstance(error, ExceptionGroup)
        assert {type(each) for each in error.exceptions} == {ValueError, KeyError}


@pytest.mark.parametrize("in_nursery", [False, True])
async def test_an_error_in_the_cleanup_of_a_stopped_actor_is_recorded_and_not_fatal_e17(
    in_nursery: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def finaliser() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cleanup")

    async def body(ctx: Ctx[int]) -> None:
        if not in_nursery:
            ctx.ready()
            await finaliser()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(finaliser)
            await ctx.receive()

    async with open_system() as system:
        sibling = await system.spawn(idle)
        ref = await system.spawn(body, name="b")
        ref.stop("enough")
        down = await ref.join()
        assert (down.reason, down.kind, str(down.error)) == ("enough", DownKind.STOPPED, "cleanup")
        assert sibling.alive
    assert [record.message for record in caplog.records] == [
        "actor 'b' crashed while handling no message: ValueError; ended, restarts: 0"
    ]


async def test_a_cancel_from_outside_reaches_every_actor_and_its_error_is_kept() -> None:
    refs: list[Ref[int]] = []

    async def body(ctx: Ctx[int]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(failing)
            await idle(ctx)

    async def failing() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cleanup")

    with trio.CancelScope() as scope:
        async with open_system() as system:
            refs.append(await system.spawn(idle))
            refs.append(await system.spawn(body))
            await wait_all_tasks_blocked()
            scope.cancel()
    downs = [await ref.join() for ref in refs]
    assert scope.cancelled_caught
    assert [down.kind for down in downs] == [DownKind.CANCELLED] * 2
    assert [down.reason for down in downs] == ["the block of system 'system' was cancelled"] * 2
    assert str(downs[1].error) == "cleanup"


async def test_a_cancelled_of_another_scope_is_a_crash_and_not_the_end_of_all() -> None:
    kept: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            kept.append(cancelled)
            raise

    async def body(ctx: Ctx[int]) -> None:
        async for _ in ctx:
            raise kept[0]

    async with open_system() as system:
        sibling = await system.spawn(idle)
        ref = await system.spawn(body)
        ref.tell(1)
        down = await ref.join()
        assert str(down.error) == "the body let out a Cancelled of a scope that is not around it"
        assert down.kind is DownKind.CRASHED
        assert sibling.alive


async def test_a_body_that_was_stopped_before_it_ran_does_not_run() -> None:
    ran: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        ran.append(1)

    with trio.CancelScope() as scope:
        async with open_system() as system:
            scope.cancel()
            await system.spawn(body)
    assert scope.cancelled_caught
    assert ran == []


async def test_an_actor_starts_in_the_context_of_its_system_and_not_of_its_spawner() -> None:
    seen: list[str] = []

    async def body(ctx: Ctx[int]) -> None:
        seen.append(variable.get())

    variable.set("system")
    async with open_system() as system:
        variable.set("request 7")
        await system.spawn(body)
    assert seen == ["system"]


async def test_stop_while_messages_are_queued_returns_them() -> None:
    async def slow(ctx: Ctx[int]) -> None:
        async for _ in ctx:
            await trio.sleep_forever()

    async with open_system() as system:
        ref = await system.spawn(slow)
        for n in range(6):
            ref.tell(n)
        ref.stop()
        await ref.join()
        now = ref.statistics()
        assert (now.accepted, now.handled, now.returned, now.current_buffer_used) == (6, 1, 5, 0)


async def test_a_handle_that_is_kept_does_not_keep_the_arguments() -> None:
    class State:
        pass

    async def body(ctx: Ctx[int], state: State) -> None:
        ctx.ready()

    state = State()
    watch = weakref.ref(state)
    async with open_system() as system:
        ref = await system.spawn(body, state)
        await ref.join()
        del state
        gc.collect()
        assert watch() is None
        assert not ref.alive


async def test_an_idle_actor_is_small() -> None:
    async with open_system() as system:
        ref = await system.spawn(idle)
        actor = ref._actor
        for thing in (ref, actor, actor.mailbox, actor.spec):
            assert not hasattr(thing, "__dict__")
        made_when_needed = (actor._done, actor._parts, actor._watchers, actor.mailbox.queue, actor.mailbox.lanes)
        assert made_when_needed == (None,) * 5


async def test_a_spawner_that_is_interrupted_leaves_no_actor() -> None:
    class Interrupted(BaseException):
        pass

    spawners: list[trio.lowlevel.Task] = []

    async def never_ready(ctx: Ctx[object]) -> None:
        await trio.sleep_forever()

    async with open_system() as system:

        async def spawn() -> None:
            spawners.append(trio.lowlevel.current_task())
            with pytest.raises(Interrupted):
                await system.spawn(never_ready, name="a")
            assert system.statistics().actors == 0
            await system.spawn(idle, name="a")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(spawn)
            await wait_all_tasks_blocked()
            fail_wait(spawners[0], Interrupted())
