"""What an incarnation orders as it ends, or after it has ended, outlives it in no way."""

import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import Ctx, Ref, Replies, System, open_system


class Get(Replies[int]):
    pass


async def idle(ctx: Ctx[Any]) -> None:
    async for _ in ctx:
        pass


async def shielded() -> int:
    with trio.CancelScope(shield=True):
        await trio.sleep(2)
    return 5


async def test_a_cancelled_task_that_ends_well_all_the_same_sends_nothing(autojump_clock: MockClock) -> None:
    got: list[str] = []

    async def body(ctx: Ctx[str]) -> None:
        task = ctx.spawn(shielded, result=str)
        await trio.sleep(1)
        task.cancel()
        async for message in ctx:
            got.append(message)

    async with open_system() as system:
        await system.spawn(body)
        await trio.sleep(10)
    assert got == []


async def test_a_result_of_an_earlier_incarnation_does_not_reach_the_next(autojump_clock: MockClock) -> None:
    got: list[str] = []
    starts: list[int] = []

    async def body(ctx: Ctx[str]) -> None:
        if not starts:
            ctx.spawn(shielded, result=str)
        starts.append(1)
        async for message in ctx:
            got.append(message)
            if message == "crash":
                raise ValueError

    async with open_system() as system:
        supervisor = await system.supervise(name="s", restart="permanent")
        ref = await supervisor.spawn(body)
        ref.tell("crash")
        await trio.sleep(10)
    assert (got, len(starts)) == (["crash"], 2)


@pytest.mark.parametrize("what", ["every", "watch", "spawn"])
@pytest.mark.parametrize("how", ["hook", "task"])
async def test_what_is_ordered_in_cleanup_ends_with_it_e02_e24(what: str, how: str, autojump_clock: MockClock) -> None:
    ended: list[float] = []

    async def job() -> None:
        try:
            await trio.sleep(50)
        finally:
            ended.append(trio.current_time())

    async def body(ctx: Ctx[Any], other: Ref[Any]) -> None:
        async def order() -> None:
            if what == "every":
                ctx.every(1, "tick")
            elif what == "watch":
                ctx.watch(other)
            else:
                ctx.spawn(job, result=str)

        async def task() -> None:
            try:
                await trio.sleep_forever()
            finally:
                await order()

        if how == "hook":
            ctx.on_stop(order)
        else:
            ctx.spawn(task, result=str)
        await idle(ctx)

    async with open_system() as system:
        other = await system.spawn(idle)
        ref = await system.spawn(body, other)
        await wait_all_tasks_blocked()
        ref.stop()
        await ref.join()
        at, before = trio.current_time(), ref.statistics()
        await trio.sleep(10)
        assert ref.statistics() == before
        assert len(system.wheel) == 0
        assert not other.for_runtime()._watchers
        assert ended == ([] if what != "spawn" or not ended else [at])


async def test_a_ctx_that_is_kept_orders_nothing_after_the_end(autojump_clock: MockClock) -> None:
    kept: list[Ctx[Any]] = []

    async def body(ctx: Ctx[Any]) -> None:
        kept.append(ctx)

    async with open_system() as system:
        ref = await system.spawn(body)
        await ref.join()
        before = ref.statistics()
        assert not kept[0].every(1, "tick").active
        assert not kept[0].after(1, "tick").active
        kept[0].spawn(trio.sleep, 1, result=str)
        kept[0].watch(ref)
        await trio.sleep(10)
        assert ref.statistics() == before
        assert len(system.wheel) == 0


async def test_only_the_message_in_hand_can_be_put_aside_and_once(system: System) -> None:
    async def body(ctx: Ctx[str]) -> None:
        async for message in ctx:
            text = r"^actor 'w' can put aside the message it received last, and only once$"
            with pytest.raises(ValueError, match=text):
                ctx.stash("another")
            ctx.stash(message)
            ctx.stash(message)

    ref = await system.spawn(body, name="w")
    ref.tell("one")
    down = await ref.join()
    assert type(down.error) is ValueError
    assert (ref.statistics().handled, ref.statistics().returned) == (0, 1)


async def test_an_ask_within_no_number_is_refused_and_leaves_nothing(system: System) -> None:
    ref = await system.spawn(idle)
    message = Get()
    with pytest.raises(ValueError, match=r"^an ask may take a number of seconds, not nan$"):
        await ref.ask(message, within=math.nan)
    assert ref.for_runtime().asks == {}
    with pytest.raises(trio.TooSlowError):
        await ref.ask(message, within=1.0)


async def test_an_ask_of_what_is_no_request_says_what_it_takes(system: System) -> None:
    ref: Ref[Any] = await system.spawn(idle)
    text = r"^an ask takes a request, whose class derives from Replies\[\.\.\.\], not a str$"
    with pytest.raises(TypeError, match=text):
        await ref.ask("x")  # type: ignore[arg-type]
    assert ref.for_runtime().asks == {}


async def test_spawn_says_what_is_wrong_with_what_it_is_given(system: System) -> None:
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (idle(None), {}, r"^spawn takes the async function and its arguments, spawn\(f, a\), not a call of it, "),
        (3, {}, r"^spawn takes an async function, not 3$"),
        (idle, {"name": ""}, r"^the name of an actor or supervisor is a text that is not empty, not ''$"),
        (idle, {"name": 3}, r"^the name of an actor or supervisor is a text that is not empty, not 3$"),
        (idle, {"stop_grace_s": -1}, r"^stop_grace_s must be above 0 s, not -1$"),
        (idle, {"overflow": "drop"}, r"^overflow must be 'wait', 'reject', 'drop_oldest' or latest\(key\), not "),
    ]
    for body, options, text in wrong:
        with pytest.raises((TypeError, ValueError), match=text):
            await system.spawn(body, **options)
    with pytest.raises(TypeError, match=r"^intensity is a pair, restarts and seconds, not 3$"):
        await system.supervise(name="s", intensity=3)  # type: ignore[arg-type]
    assert len(system.registry) == 0
    await system.supervise(name="s")
