import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import ChildTask, Ctx, Down, Ref, System, Timer, open_system
from actors.runtime.messages import BURST


async def test_a_body_knows_its_name_its_handle_and_its_system() -> None:
    seen: list[object] = []

    async def body(ctx: Ctx[int]) -> None:
        seen.extend([ctx.name, ctx.self, ctx.system])
        ctx.ready("port 80")
        ctx.ready("ignored")
        async for _ in ctx:
            pass

    async with open_system() as system:
        ref = await system.spawn(body, name="a")
        assert seen == ["a", ref, system]
        assert ref.started_with == "port 80"


async def test_the_loop_ends_after_drain_when_everything_is_handled() -> None:
    got: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        async for n in ctx:
            got.append(n)
        got.append(-1)

    async with open_system() as system:
        ref = await system.spawn(body)
        for n in range(3):
            ref.tell(n)
        ref.drain()
        assert not ref.tell(4)
        await ref.join()
        idle = await system.spawn(body)
        idle.drain()
        await idle.join()
    assert got == [0, 1, 2, -1, -1]


@pytest.mark.parametrize("busy", [False, True])
async def test_stop_raises_cancelled_before_the_next_message(busy: bool) -> None:
    got: list[object] = []

    async def body(ctx: Ctx[int]) -> None:
        try:
            async for n in ctx:
                got.append(n)
                ctx.self.stop("enough")
        except trio.Cancelled as cancelled:
            got.append("enough" in str(cancelled) or "done" in str(cancelled))
            raise

    async with open_system() as system:
        ref = await system.spawn(body)
        if busy:
            for n in range(20):
                ref.tell(n)
        else:
            ref.stop("done")
        await ref.join()
    assert got == ([0, True] if busy else [True])


async def test_others_run_at_least_every_32_messages() -> None:
    got: list[int] = []
    seen: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        async for n in ctx:
            got.append(n)

    async def ticker() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            seen.append(len(got))

    async with open_system() as system:
        ref = await system.spawn(body, mailbox_size=1000)
        for n in range(1000):
            ref.tell(n)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticker)
            ref.drain()
            await ref.join()
            nursery.cancel_scope.cancel()
    assert len(got) == 1000
    steps = [after - before for before, after in pairwise(seen)]
    # Twice, as trio shuffles who runs first in each round; without giving way it is 1000 at once.
    assert max(steps) <= 2 * BURST
    # More rounds than needed would be the price of a checkpoint for each message.
    assert len(seen) <= 1000 / BURST + 8


async def test_receive_and_receive_nowait() -> None:
    got: list[object] = []

    async def body(ctx: Ctx[int]) -> None:
        with pytest.raises(trio.WouldBlock):
            ctx.receive_nowait()  # it makes the actor ready too
        got.append(await ctx.receive())
        got.append(ctx.receive_nowait())
        with pytest.raises(trio.EndOfChannel):
            await ctx.receive()
        with pytest.raises(trio.EndOfChannel):
            ctx.receive_nowait()

    async with open_system() as system:
        ref = await system.spawn(body)
        await wait_all_tasks_blocked()
        ref.tell(1)
        ref.tell(2)
        ref.drain()
        assert (await ref.join()).error is None
    assert got == [1, 2]


async def test_the_body_may_open_a_nursery_that_ends_with_it() -> None:
    ended: list[str] = []

    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("child")

    async def body(ctx: Ctx[int]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            async for _ in ctx:
                pass

    async with open_system() as system:
        ref: Ref[int] = await system.spawn(body)
        await wait_all_tasks_blocked()
        ref.stop()
        await ref.join()
        assert ended == ["child"]


async def test_a_second_task_of_the_actor_that_receives_is_refused() -> None:
    async def body(ctx: Ctx[int]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.receive)
            await wait_all_tasks_blocked()
            await ctx.receive()

    async with open_system() as system:
        ref: Ref[int] = await system.spawn(body)
        down = await ref.join()
        assert isinstance(down.error, trio.BusyResourceError)


def handling(system: System) -> tuple[str | None, float | None]:
    (node,) = system.tree().children
    return node.handling, node.handling_s


async def test_receive_shows_what_is_in_hand_and_how_old_it_is(autojump_clock: MockClock) -> None:
    async def body(ctx: Ctx[float]) -> None:
        for _ in range(3):
            await trio.sleep(await ctx.receive())

    async with open_system() as system:
        ref = await system.spawn(body)
        await trio.sleep(10)
        assert handling(system) == (None, None)
        ref.tell(5.0)
        ref.tell(7.0)
        await trio.sleep(4)
        assert handling(system) == ("float", 4)
        await trio.sleep(2)
        assert handling(system) == ("float", 1)
        await trio.sleep(20)
        assert handling(system) == (None, None)  # it waits for the next one


async def test_receive_nowait_does_so_too(autojump_clock: MockClock) -> None:
    async def body(ctx: Ctx[float]) -> None:
        ctx.ready()
        await trio.sleep(10)
        seconds = ctx.receive_nowait()
        await trio.sleep(seconds)

    async with open_system() as system:
        ref = await system.spawn(body)
        ref.tell(5.0)
        await trio.sleep(13)
        assert handling(system) == ("float", 3)


async def test_receive_lets_others_run_each_time() -> None:
    turns: list[int] = []
    seen: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        for _ in range(50):
            await ctx.receive()
            seen.append(len(turns))

    async def other() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            turns.append(len(turns))

    async with open_system() as system, trio.open_nursery() as nursery:
        ref = await system.spawn(body)
        for n in range(50):
            ref.tell(n)
        nursery.start_soon(other)
        await ref.join()
        nursery.cancel_scope.cancel()
    assert seen[-1] >= 45


@pytest.mark.parametrize("own", [False, True])
async def test_a_nursery_is_there_for_those_that_have_one(own: bool) -> None:
    seen: list[str] = []

    async def body(ctx: Ctx[int]) -> None:
        if own:
            ctx.nursery.start_soon(trio.sleep_forever)
            seen.append(type(ctx.nursery).__name__)
        else:
            with pytest.raises(RuntimeError) as caught:
                _ = ctx.nursery
            seen.append(str(caught.value))

    async with open_system() as system:
        ref = await system.spawn(body, name="a", own_nursery=own)
        assert (await ref.join()).error is None
    assert seen == ["Nursery" if own else "actor 'a' has no nursery; spawn it with own_nursery=True"]


# What a body orders comes back to it; how that ends is told in test_parts.py.


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (lambda ctx: ctx.after(-1, "x"), "a timer is due in 0 s or more, not in -1 s"),
        (lambda ctx: ctx.after(math.nan, "x"), "a timer is due in 0 s or more, not in nan s"),
        (lambda ctx: ctx.every(0, "x"), "the period of a timer is above 0 s and finite, not 0 s"),
        (lambda ctx: ctx.every(math.inf, "x"), "the period of a timer is above 0 s and finite, not inf s"),
        (lambda ctx: ctx.every(math.nan, "x"), "the period of a timer is above 0 s and finite, not nan s"),
        (lambda ctx: ctx.every(1, "x", first=-1), "a timer is first due in 0 s or more, not in -1 s"),
        (lambda ctx: ctx.every(1, "x", first=math.nan), "a timer is first due in 0 s or more, not in nan s"),
        (lambda ctx: ctx.on_stop(ctx.receive, within=0), "cleanup has a time above 0 s and finite, not 0 s"),
        (lambda ctx: ctx.on_stop(ctx.receive, within=math.inf), "cleanup has a time above 0 s and finite, not inf s"),
        (lambda ctx: ctx.on_stop(ctx.receive, within=math.nan), "cleanup has a time above 0 s and finite, not nan s"),
    ],
)
async def test_a_time_out_of_its_range_is_refused(order: Callable[[Any], object], text: str) -> None:
    raised: list[str] = []

    async def body(ctx: Ctx[Any]) -> None:
        with pytest.raises(ValueError) as caught:
            order(ctx)
        raised.append(str(caught.value))

    async with open_system() as system:
        await system.spawn(body)
        assert len(system.wheel) == 0
    assert raised == [text]


async def test_what_a_body_orders_comes_in_its_turn(autojump_clock: MockClock) -> None:
    got: list[tuple[float, object]] = []
    ordered: list[object] = []

    async def add(a: int, b: int) -> int:
        await trio.sleep(a)
        return a + b

    async def fail() -> int:
        raise OSError("no")

    async def bye() -> None:
        got.append((trio.current_time(), "bye"))

    async def body(ctx: Ctx[Any], other: Ref[Any]) -> None:
        ordered.extend([ctx.after(0.5, "after"), ctx.every(2, "every"), ctx.every(10, "at once", first=0)])
        ordered.append(ctx.spawn(add, 1, 2, result=lambda total: total, name="adding"))
        ordered.append(ctx.spawn(fail, result=str, error=repr))
        ctx.watch(other)
        ctx.watch(unwatched)
        ctx.unwatch(unwatched)
        ctx.on_stop(bye)
        async for message in ctx:
            if message == "after" and trio.current_time() < 2:
                ctx.stash(message)
            else:
                got.append((trio.current_time(), message))
            if message == "every":
                ctx.unstash()
                ctx.self.drain()
                for timer in ordered[:3]:
                    assert isinstance(timer, Timer)
                    timer.cancel()

    async with open_system() as system:
        other: Ref[Any] = await system.spawn(ignore)
        unwatched: Ref[Any] = await system.spawn(ignore)
        ref = await system.spawn(body, other)
        unwatched.stop()
        await trio.sleep(1.5)
        other.stop()
        await ref.join()
    assert [type(one) for one in ordered] == [Timer] * 3 + [ChildTask] * 2
    assert [one.name for one in ordered if isinstance(one, ChildTask)] == ["adding", "fail"]
    (at, down) = got.pop(3)
    assert at == 1.5
    assert isinstance(down, Down)
    assert down.ref is other
    assert sorted(got[:2], key=str) == [(0, "OSError('no')"), (0, "at once")]
    assert got[2:] == [(1, 3), (2, "every"), (2, "after"), (2, "bye")]


async def ignore(ctx: Ctx[Any]) -> None:
    async for _ in ctx:
        pass


async def test_a_full_stash_says_whose_it_is_and_the_message_stays_in_hand() -> None:
    async def body(ctx: Ctx[int]) -> None:
        async for message in ctx:
            ctx.stash(message)

    async with open_system() as system:
        ref = await system.spawn(body, name="a", mailbox_size=3)
        for n in range(4):
            await ref.send(n)
        down = await ref.join()
        assert str(down.error) == "the stash of actor 'a' is full: it holds 3; unstash them, or handle this message"
        assert (down.handled, ref.statistics().returned) == (1, 3)
