"""Races of supervision, each under many orders of the scheduler: what may differ is who was first, never the books."""

from dataclasses import dataclass
from typing import Any

import trio
from trio.lowlevel import checkpoint

from actors.runtime import ActorGone, Backoff, Ctx, Down, DownKind, Ref, Replies, open_system
from actors.testing import check_conservation, seeds

AT_ONCE = Backoff(first_s=0.0, jitter=0.0)
MANY = (1000, 1.0)


@dataclass
class Add(Replies[int]):
    n: int


async def counter(ctx: Ctx[Any]) -> None:
    total = 0
    async for message in ctx:
        match message:
            case Add(n):
                total += n
                await checkpoint()
                message.reply.send(total)
            case "crash":
                raise ValueError(ctx.name)
            case _:
                await checkpoint()


async def ask(ref: Ref[Any], outcomes: list[str]) -> None:
    try:
        await ref.ask(Add(1), within=60)
        outcomes.append("answer")
    except ActorGone:
        outcomes.append("gone")


@seeds(200)
async def test_asks_that_race_with_a_stop_end_once_each() -> None:
    outcomes: list[str] = []
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent", backoff=AT_ONCE)
        ref = await sup.spawn(counter)
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(ask, ref, outcomes)
            await checkpoint()
            nursery.start_soon(trio.sleep, 0)
            ref.stop("enough")
        assert len(outcomes) == 6
        assert (await ref.join()).kind is DownKind.STOPPED
        books = ref.statistics()
        assert books.sent == 6
        check_conservation(system)


@seeds(200)
async def test_asks_that_race_with_crashes_are_answered_or_gone_and_tells_are_kept() -> None:
    outcomes: list[str] = []
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", intensity=MANY, backoff=AT_ONCE)
        ref = await sup.spawn(counter)

        async def crash() -> None:
            ref.tell("crash")
            await checkpoint()
            ref.tell(1)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask, ref, outcomes)
                nursery.start_soon(crash)
        ref.drain()
        down = await ref.join()
        assert (down.kind, down.handled + ref.statistics().returned) == (DownKind.DRAINED, 12)
        assert outcomes.count("answer") + outcomes.count("gone") == 4
        assert system.statistics().restarts == 4
        assert len(outcomes) == 4


@seeds(200)
async def test_a_watch_that_races_with_the_end_tells_it_once() -> None:
    told: list[Down] = []

    async def watcher(ctx: Ctx[Any], other: Ref[Any]) -> None:
        ctx.ready()
        await checkpoint()
        ctx.watch(other)
        async for message in ctx:
            told.append(message)

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="temporary")
        ref = await sup.spawn(counter)
        for _ in range(3):
            await system.spawn(watcher, ref)
        async with trio.open_nursery() as nursery:

            async def end(how: Any) -> None:
                await checkpoint()
                how()

            for how in (lambda: ref.tell("crash"), lambda: ref.stop(), lambda: ref.drain()):
                nursery.start_soon(end, how)
        down = await ref.join()
        await trio.sleep(1)
        assert told == [down] * 3


@seeds(200)
async def test_a_drain_that_races_with_a_crash_loses_nothing() -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", intensity=MANY, backoff=AT_ONCE)
        ref = await sup.spawn(counter)
        accepted = 0

        async def tell(message: object) -> None:
            nonlocal accepted
            await checkpoint()
            accepted += ref.tell(message)

        async with trio.open_nursery() as nursery:
            for message in (1, "crash", 2, "crash", 3):
                nursery.start_soon(tell, message)
            await checkpoint()
            ref.drain()
        down = await ref.join()
        assert (down.kind, down.handled) == (DownKind.DRAINED, accepted)


@seeds(200)
async def test_the_ordered_stop_is_in_reverse_whoever_else_ends_meanwhile() -> None:
    ends: list[str] = []
    async with open_system(on_down=lambda down: ends.append(down.name)) as system:
        sup = await system.supervise(name="sup", restart="transient", backoff=AT_ONCE)
        refs: list[Ref[Any]] = [await sup.spawn(counter, name=name) for name in "abcde"]
        refs[1].tell("crash")
        refs[3].tell("crash")
        await checkpoint()
        sup.stop()
        await sup.join()
    assert "".join(ends) in ("edcba", "decba", "bedca", "dbeca", "bdeca", "debca")
    assert ends.index("e") < ends.index("c") < ends.index("a")


@seeds(200)
async def test_a_group_that_crashes_all_over_comes_back_whole() -> None:
    trace: list[str] = []

    async def member(ctx: Ctx[Any]) -> None:
        trace.append("+" + ctx.name)
        try:
            await counter(ctx)
        finally:
            trace.append("-" + ctx.name)

    async with open_system() as system:
        sup = await system.supervise(
            name="sup", strategy="one_for_all", restart="permanent", intensity=MANY, backoff=AT_ONCE
        )
        refs: list[Ref[Any]] = [await sup.spawn(member, name=name) for name in "abc"]
        async with trio.open_nursery() as nursery:

            async def crash(ref: Ref[Any]) -> None:
                await checkpoint()
                ref.tell("crash")
                ref.tell(1)

            for ref in refs:
                nursery.start_soon(crash, ref)
        await trio.sleep(1)
        assert [await ref.ask(Add(2)) for ref in refs] == [2, 2, 2]
        assert [ref.statistics().handled for ref in refs] == [3, 3, 3]
        assert trace[-3:] == ["+a", "+b", "+c"]
        up: set[str] = set()
        for each in trace:  # no two lives of one child overlap
            assert (each[1:] in up) is (each[0] == "-")
            up ^= {each[1:]}
