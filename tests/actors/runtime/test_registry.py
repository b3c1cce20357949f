from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import Ctx, NameTaken, Ref, Registry, System, open_system


async def idle(ctx: Ctx[int]) -> None:
    async for _ in ctx:
        pass


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[System, Registry], None]:
    async with open_system() as system:
        yield system, system.registry


async def test_a_name_leads_to_its_actor_until_it_ends() -> None:
    async with opened() as (system, registry):
        one = await system.spawn(idle, name="one")
        two = await system.spawn(idle, name="two")
        assert registry.lookup("one") is one
        assert registry.lookup("three") is None
        assert (list(registry), len(registry), "two" in registry) == (["one", "two"], 2, True)
        two.stop()
        await two.join()
        assert (list(registry), registry.lookup("two")) == (["one"], None)


async def test_a_name_is_unique_among_actors_and_supervisors() -> None:
    async with opened() as (system, _):
        await system.spawn(idle, name="a")
        await system.supervise(name="s")
        for taken in ("a", "s"):
            with pytest.raises(NameTaken, match=rf"^name '{taken}' is taken by an actor that has not ended"):
                await system.spawn(idle, name=taken)
            with pytest.raises(NameTaken):
                await system.supervise(name=taken)
        assert system.statistics().started == 1


async def test_an_actor_that_starts_holds_its_name_and_is_not_found_yet() -> None:
    go = trio.Event()

    async def slow(ctx: Ctx[int]) -> None:
        await go.wait()
        await idle(ctx)

    async with opened() as (system, registry), trio.open_nursery() as nursery:
        nursery.start_soon(lambda: system.spawn(slow, name="slow"))
        await wait_all_tasks_blocked()
        assert registry.lookup("slow") is None
        with pytest.raises(NameTaken):
            await system.spawn(idle, name="slow")
        go.set()
        await wait_all_tasks_blocked()
        assert registry.lookup("slow") is not None


async def test_a_failed_start_leaves_no_name_e18() -> None:
    async def broken(ctx: Ctx[int]) -> None:
        raise OSError("no disk")

    async with opened() as (system, registry):
        for _ in range(2):
            with pytest.raises(OSError, match=r"^no disk\n"):
                await system.spawn(broken, name="S1")
            assert registry.lookup("S1") is None
        ref = await system.spawn(idle, name="S1")
        assert registry.lookup("S1") is ref


async def test_a_name_is_free_when_the_end_can_be_seen_and_old_handles_stay_old_e19() -> None:
    got: list[tuple[int, int]] = []

    async def numbered(ctx: Ctx[int], cycle: int) -> None:
        async for n in ctx:
            got.append((cycle, n))

    async with opened() as (system, registry):
        old: Ref[int] | None = None
        for cycle in range(1000):
            ref = await system.spawn(numbered, cycle, name="S1")
            assert registry.lookup("S1") is ref
            assert ref.tell(cycle)
            if old is not None:
                assert not old.tell(-1)
            ref.drain()
            await ref.join()
            assert registry.lookup("S1") is None
            old = ref
        assert got == [(cycle, cycle) for cycle in range(1000)]
        assert len(registry) == 0
        assert registry._reserved == set()


async def test_actors_without_a_name_get_one() -> None:
    async with opened() as (system, registry):
        refs = [await system.spawn(idle) for _ in range(2)]
        assert [ref.name for ref in refs] == ["idle-1", "idle-2"]
        assert registry.lookup("idle-2") is refs[1]
