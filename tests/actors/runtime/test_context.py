from itertools import pairwise

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import Ctx, Ref, open_system
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
