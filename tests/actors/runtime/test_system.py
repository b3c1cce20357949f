import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import Ctx, DownKind, Node, NotAccepting, Ref, Replies, SystemStatistics, open_system


class Get(Replies[int]):
    pass


class Boom:
    pass


async def idle(ctx: Ctx[object]) -> None:
    async for message in ctx:
        if isinstance(message, Boom):
            raise ValueError
        if message == "hang":
            await trio.sleep_forever()


async def test_nothing_outlives_the_block() -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    async with open_system(name="main") as system:
        refs = [await system.spawn(idle) for _ in range(5)]
        sup = await system.supervise(name="sup", restart="permanent")
        refs += [await sup.spawn(idle) for _ in range(5)]
        assert repr(system) == "<System 'main' of 10 actors>"
        refs[0].tell("hang")
    assert trio.lowlevel.current_statistics().tasks_living == before
    downs = [await ref.join() for ref in refs]
    assert {(down.reason, down.kind) for down in downs} == {("system 'main' closed", DownKind.STOPPED)}
    assert (len(system.registry), system.statistics().actors, system.statistics().supervisors) == (0, 0, 0)
    with pytest.raises(NotAccepting):
        await system.spawn(idle)
    with pytest.raises(NotAccepting, match=r"^'main' is closing and starts no more actors$"):
        await system.supervise(name="late")


async def test_an_error_of_the_block_comes_out_as_it_is() -> None:
    error = ValueError("mine")
    refs: list[Ref[object]] = []
    with pytest.raises(ValueError, match=r"^mine$") as caught:
        async with open_system() as system:
            refs.append(await system.spawn(idle))
            try:
                raise KeyError("context")
            except KeyError:
                raise error  # noqa: B904 - its context must survive
    assert caught.value is error
    assert isinstance(error.__context__, KeyError)
    assert error.__cause__ is None
    assert (await refs[0].join()).reason == "system 'system' failed"


async def test_an_error_that_ends_the_system_while_it_is_cancelled_comes_out_without_a_group() -> None:
    with pytest.raises(ValueError, match=r"^\nin actor 'sup/idle-1', while handling Boom\nsupervisor 'sup' gave up"):
        with trio.CancelScope() as scope:
            async with open_system() as system:
                sup = await system.supervise(name="sup", restart="permanent", intensity=(0, 1), budget="supervisor")
                (await sup.spawn(idle)).tell(Boom())
                try:
                    await trio.sleep_forever()
                finally:
                    scope.cancel()


async def test_an_alarm_of_a_system_that_has_ended_is_taken_back() -> None:
    async with open_system() as system:
        alarm = system.call_later(10, lambda: None)
        assert alarm.active
    assert (alarm.active, len(system.wheel)) == (False, 0)


async def test_a_group_that_the_block_raised_comes_out_as_it_is() -> None:
    with pytest.RaisesGroup(ValueError, KeyError):
        async with open_system():
            raise ExceptionGroup("both", [ValueError(), KeyError()])
    with pytest.RaisesGroup(ValueError):
        async with open_system():
            raise ExceptionGroup("one", [ValueError()])


async def test_a_cancel_around_the_block_cancels_every_actor() -> None:
    refs: list[Ref[object]] = []
    with trio.CancelScope() as scope:
        async with open_system() as system:
            for _ in range(20):
                refs.append(await system.spawn(idle))
            sup = await system.supervise(name="sup", restart="permanent")
            refs += [await system.spawn(idle), await sup.spawn(idle)]
            await wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert {(await ref.join()).kind for ref in refs} == {DownKind.CANCELLED}
    assert system.statistics().actors == 0


async def test_an_exit_that_ends_the_process_is_not_held_back() -> None:
    async def leave(ctx: Ctx[int]) -> None:
        ctx.ready()
        await trio.lowlevel.checkpoint()
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        async with open_system() as system:
            await system.spawn(leave)
            await trio.sleep_forever()


async def test_actors_that_do_not_end_are_named_after_the_grace_and_waited_for(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def stubborn(ctx: Ctx[int]) -> None:
        ctx.ready()
        with trio.CancelScope(shield=True):
            await trio.sleep(30)

    with trio.move_on_after(1):
        async with open_system(grace_s=2.0) as system:
            sup = await system.supervise(name="sup")
            await sup.spawn(stubborn, name="s")
            await system.spawn(idle)
            await trio.sleep_forever()
    assert trio.current_time() == pytest.approx(30)
    assert [record.message for record in caplog.records] == [
        "system 'system' still waits for sup/s, 2 s after its end",
        "actor 'sup/s' has not ended 5 s after it was stopped; the next is stopped",
    ]


async def test_the_watch_ends_with_the_last_actor(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async def slow_to_end(ctx: Ctx[int]) -> None:
        ctx.ready()
        with trio.CancelScope(shield=True):
            await trio.sleep(1)

    async with open_system(grace_s=100.0) as system:
        await system.spawn(slow_to_end)
    assert trio.current_time() == pytest.approx(1)
    assert caplog.records == []


async def test_the_tree_shows_what_lives_while_an_actor_hangs_r24(autojump_clock: MockClock) -> None:
    async with open_system(name="main") as system:
        one = await system.spawn(idle, name="one")
        sup = await system.supervise(name="sup")
        two = await sup.spawn(idle, name="two")
        one.tell("hang")
        await wait_all_tasks_blocked()
        one.tell("x")
        one.drain()
        await trio.sleep(3)
        two.stop()
        one_node = Node("one", "draining", depth=1, peak=1, handling="str", handling_s=pytest.approx(3.0))  # type: ignore[arg-type]
        sup_node = Node("sup", "supervising", children=(Node("two", "stopping"),))
        assert system.tree() == Node("main", "supervising", children=(one_node, sup_node))


async def test_an_open_ask_is_in_the_tree() -> None:
    async with open_system() as system:
        ref = await system.spawn(idle, name="one")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.ask, Get())
            await wait_all_tasks_blocked()
            assert system.tree().children[0].asks == 1
            nursery.cancel_scope.cancel()
        assert system.tree().children[0].asks == 0


async def test_statistics_count_what_happened(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient")
        ref = await sup.spawn(idle)
        ref.tell(Boom())
        await trio.sleep(1)
        other = await system.spawn(idle)
        other.tell("hang")
        other.tell("queued")
        other.stop()
        other.tell("rejected")
        await other.join()
        assert system.statistics() == SystemStatistics(
            actors=1,
            supervisors=1,
            started=2,
            ended=1,
            crashes=1,
            restarts=1,
            sent=4,
            accepted=3,
            rejected=1,
            handled=2,
            expired=0,
            dropped=0,
            returned=1,
            queued=0,
            late_replies=0,
        )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"restart": "always"}, "restart is one of temporary, transient, permanent, not 'always'"),
        ({"intensity": (-1, 1.0)}, "restart limit must be 0 or more, not -1"),
    ],
)
async def test_a_policy_out_of_range_takes_no_name(options: dict[str, object], text: str) -> None:
    async with open_system() as system:
        with pytest.raises(ValueError, match=f"^{text}$"):
            await system.supervise(name="sup", **options)  # type: ignore[arg-type]
        await system.supervise(name="sup")


async def test_stop_refuses_new_actors_and_ends_the_old_ones() -> None:
    async with open_system() as system:
        ref = await system.spawn(idle)
        sup = await system.supervise(name="sup")
        child = await sup.spawn(idle)
        system.stop()
        assert {(await each.join()).reason for each in (ref, child)} == {"system 'system' was stopped"}
        with pytest.raises(NotAccepting):
            await sup.spawn(idle)
