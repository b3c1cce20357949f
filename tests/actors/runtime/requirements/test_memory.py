"""What is left behind, and what many actors weigh: counted in objects, blocks, bytes and calls, never in time."""

import cProfile
import gc
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import AskTimeout, Ctx, Down, NameTaken, Ref, Replies, Supervisor, System, open_system

#: The least that an entry, object or slot kept for each of so many messages would add, against what a run may add.
SLACK = 1500


@dataclass(slots=True)
class Hold(Replies[int]):
    pass


@dataclass
class Release:
    pass


async def idle(ctx: Ctx[Any]) -> None:
    async for _ in ctx:
        pass


async def ignores(ctx: Ctx[Hold | Release]) -> None:
    async for _ in ctx:
        pass


async def answers_late(ctx: Ctx[Hold | Release]) -> None:
    kept: list[Hold] = []
    async for message in ctx:
        if isinstance(message, Hold):
            kept.append(message)
            continue
        for held in kept:
            assert not held.reply.send(1)
            assert not held.reply.send(2)
        kept.clear()


async def stalled(ctx: Ctx[Hold | Release]) -> None:
    ctx.ready()
    await trio.sleep_forever()


@contextmanager
def keeping_nothing() -> Generator[None]:
    """See that the block leaves no objects behind, neither those that the collector sees nor others."""
    gc.collect()
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    yield
    gc.collect()
    assert len(gc.get_objects()) - objects < SLACK
    assert sys.getallocatedblocks() - blocks < SLACK


async def many_time_out(ref: Ref[Hold | Release], asks: int) -> None:
    async def asker() -> None:
        for _ in range(asks // 100):
            try:
                await ref.ask(Hold(), within=0.001)
            except AskTimeout:
                pass
            else:
                raise AssertionError("it was answered")

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(asker)


@pytest.mark.parametrize(("body", "asks"), [(ignores, 100_000), (stalled, 20_000)])
async def test_a_hundred_thousand_asks_that_time_out_leave_nothing_r3_e01(system: System, body: Any, asks: int) -> None:
    """Of an actor that loses them; and fewer, but far more than the slack, of one whose mailbox is full of them."""
    ref: Ref[Hold | Release] = await system.spawn(body)
    await many_time_out(ref, 2000)
    with keeping_nothing():
        await many_time_out(ref, asks)
        await trio.sleep(1)
    assert system.tree().children[0].asks == 0
    assert len(system.wheel) == 0
    assert system.statistics().late_replies == 0


async def test_late_replies_are_counted_once_each_and_nothing_is_kept_r3_e01(system: System) -> None:
    ref = await system.spawn(answers_late)
    await many_time_out(ref, 2000)
    ref.tell(Release())
    await wait_all_tasks_blocked()
    with keeping_nothing():
        await many_time_out(ref, 20_000)
        ref.tell(Release())
        await wait_all_tasks_blocked()
    assert system.statistics().late_replies == 22_000
    assert system.tree().children[0].asks == 0


@dataclass
class Question(Replies[int]):
    asker: Ref[Any]


@pytest.mark.parametrize(("askers", "asks"), [(1, 20_000), (2000, 10)])
async def test_watching_every_asker_leaves_no_watch_and_tells_the_watched_one_e02(
    system: System, askers: int, asks: int
) -> None:
    """20,000 asks: what is kept for each would be seen as well as with 100,000, in a fifth of the time."""
    told: list[Down] = []

    async def watches(ctx: Ctx[Question | Down]) -> None:
        async for message in ctx:
            if isinstance(message, Down):
                told.append(message)
            else:
                ctx.watch(message.asker)
                message.reply.send(1)

    async def asks_and_ends(ctx: Ctx[Any]) -> None:
        ctx.ready()
        for _ in range(asks):
            await watching.ask(Question(ctx.self))

    watching = await system.spawn(watches)
    ended = [await system.spawn(asks_and_ends) for _ in range(askers)]
    for ref in ended:
        await ref.join()
    await wait_all_tasks_blocked()
    assert {down.ref for down in told} == set(ended)
    assert len(told) == askers  # one each, however often it was watched
    actor = watching.for_runtime()
    assert actor.parts.watching == {}


async def test_ten_thousand_short_sessions_leave_no_timer_and_no_dead_letter_e24(system: System) -> None:
    async def session(ctx: Ctx[str]) -> None:
        ctx.after(5.0, "nobody has answered")
        ctx.every(5.0, "still nobody")
        ctx.ready()
        await trio.sleep(0.01)

    for _ in range(100):
        refs = [await system.spawn(session) for _ in range(100)]
        for ref in refs:
            await ref.join()
    assert len(system.wheel) == 0
    began = trio.current_time()
    await trio.sleep(10)
    assert system.dead_letters.count == 0
    assert trio.current_time() - began == 10


# R23: ten thousand of them.


async def test_an_idle_actor_weighs_at_most_five_kilobytes_r23() -> None:
    actors = 2000  # with 10,000 it is the same figure, in five times the time
    async with open_system() as system:
        await system.spawn(idle, name="warm")
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for n in range(actors):
                await system.spawn(idle, name=f"s {n}")
            await wait_all_tasks_blocked()
            gc.collect()
            used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
    assert used / actors <= 5000


async def calls_to_stop(actors: int, dynamic: bool) -> float:
    """Return how many calls the stop of one of so many named actors costs."""
    async with open_system() as system:
        owner: System | Supervisor = system
        if dynamic:
            owner = await system.supervise(name="sessions", max_children=actors)
        refs = [await owner.spawn(idle, name=f"s {n}") for n in range(actors)]
        await wait_all_tasks_blocked()
        profile = cProfile.Profile()
        with profile:
            owner.stop()
            for ref in refs:
                await ref.join()
    return sum(entry.callcount for entry in profile.getstats()) / actors


@pytest.mark.parametrize("dynamic", [False, True])
async def test_stopping_one_of_many_named_actors_costs_what_one_of_few_does_r23(dynamic: bool) -> None:
    """3,000 against 300: what one stop does for each of the others grows tenfold, as with 10,000 against 1,000."""
    few, many = await calls_to_stop(300, dynamic), await calls_to_stop(3000, dynamic)
    assert many <= 1.5 * few


@asynccontextmanager
async def a_thousand(system: System) -> AsyncGenerator[list[Ref[Any]]]:
    refs = [await system.spawn(idle, name=f"s {n}") for n in range(1000)]
    assert len(system.registry) == 1000
    yield refs
    for ref in refs:
        ref.stop()
    for ref in refs:
        await ref.join()


async def test_probe_a_thousand_named_actors_leave_no_name_r23(system: System) -> None:
    for _ in range(3):
        async with a_thousand(system):
            with pytest.raises(NameTaken):
                await system.spawn(idle, name="s 999")
        assert len(system.registry) == 0
    with keeping_nothing():
        async with a_thousand(system):
            pass
    assert system.statistics().actors == 0
