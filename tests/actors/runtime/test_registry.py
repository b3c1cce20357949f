from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.lowlevel import Task
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from actors.runtime import Ctx, NameTaken, NotAccepting, Ref, Registry, System, open_system


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


class Woken(trio.abc.Instrument):
    """The names of the tasks that were woken, in that order; in which order they then run is trio's choice."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def task_scheduled(self, task: Task) -> None:
        self.names.append(task.name)


async def wait_into(found: dict[str, object], key: str, wait_for: Callable[[str], Awaitable[Ref[Any]]]) -> None:
    try:
        found[key] = await wait_for("late")
    except NotAccepting as error:
        found[key] = str(error)


async def test_a_name_that_is_there_is_not_waited_for() -> None:
    async with opened() as (system, registry):
        ref = await system.spawn(idle, name="one")
        with assert_checkpoints():
            assert await registry.wait_for("one") is ref
        with trio.CancelScope() as scope:
            scope.cancel()
            await registry.wait_for("one")
        assert scope.cancelled_caught


async def test_every_waiter_gets_the_actor_once_it_is_ready_in_the_order_of_arrival() -> None:
    go = trio.Event()

    async def slow(ctx: Ctx[int]) -> None:
        await go.wait()
        await idle(ctx)

    found: dict[str, object] = {}
    async with opened() as (system, registry), trio.open_nursery() as nursery:
        for key in "abcde":
            nursery.start_soon(wait_into, found, key, registry.wait_for, name=key)
            await wait_all_tasks_blocked()
        nursery.start_soon(lambda: system.spawn(slow, name="late"))
        await wait_all_tasks_blocked()
        assert found == {}
        woken = Woken()
        trio.lowlevel.add_instrument(woken)
        go.set()
        await wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(woken)
        assert [name for name in woken.names if len(name) == 1] == list("abcde")
        assert found == dict.fromkeys("abcde", registry.lookup("late"))
        assert registry._waiting == {}


async def test_another_name_wakes_nobody() -> None:
    found: dict[str, object] = {}
    async with opened() as (system, registry), trio.open_nursery() as nursery:
        nursery.start_soon(wait_into, found, "a", registry.wait_for)
        await wait_all_tasks_blocked()
        await system.spawn(idle, name="other")
        await wait_all_tasks_blocked()
        assert found == {}
        nursery.cancel_scope.cancel()


async def test_a_name_that_is_free_again_before_the_waiter_runs_still_leads_to_its_actor() -> None:
    found: dict[str, object] = {}
    async with opened() as (system, _), opened() as (other, _), trio.open_nursery() as nursery:
        first, second = [await each.spawn(idle, name="late") for each in (system, other)]
        registry = Registry()
        nursery.start_soon(wait_into, found, "a", registry.wait_for)
        await wait_all_tasks_blocked()
        registry.publish(first)
        registry.release("late")
        registry.publish(second)
        await wait_all_tasks_blocked()
        assert found == {"a": first}


async def test_an_actor_that_returns_at_once_is_found_by_who_waited_for_it() -> None:
    async def short(ctx: Ctx[int]) -> None:
        ctx.ready()

    found: dict[str, object] = {}
    async with opened() as (system, registry), trio.open_nursery() as nursery:
        nursery.start_soon(wait_into, found, "a", registry.wait_for)
        await wait_all_tasks_blocked()
        ref = await system.spawn(short, name="late")
        await wait_all_tasks_blocked()
        assert found == {"a": ref}
        assert registry.lookup("late") is None


async def test_a_cancelled_waiter_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    found: dict[str, object] = {}
    async with opened() as (_, registry), trio.open_nursery() as nursery:
        nursery.start_soon(wait_into, found, "a", registry.wait_for)
        with trio.move_on_after(1) as scope:
            await registry.wait_for("late")
        assert scope.cancelled_caught
        assert list(map(len, registry._waiting.values())) == [1]
        nursery.cancel_scope.cancel()
    assert (found, registry._waiting) == ({}, {})


async def test_a_cancel_that_comes_just_after_the_actor_does_not_lose_it() -> None:
    found: dict[str, object] = {}
    async with opened() as (system, _), trio.open_nursery() as nursery:
        registry = Registry()
        ref = await system.spawn(idle, name="late")
        nursery.start_soon(wait_into, found, "a", registry.wait_for)
        await wait_all_tasks_blocked()
        registry.publish(ref)
        nursery.cancel_scope.cancel()
    assert (found, registry._waiting) == ({"a": ref}, {})


async def test_who_waits_is_turned_away_when_the_system_closes(autojump_clock: MockClock) -> None:
    found: dict[str, object] = {}
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            async with open_system(name="main") as system:
                ref = await system.spawn(idle, name="one")
                for key in "abc":
                    nursery.start_soon(wait_into, found, key, system.registry.wait_for)
                await wait_all_tasks_blocked()
                system.stop()
                assert await system.registry.wait_for("one") is ref  # it has not ended yet
                with pytest.raises(NotAccepting):
                    await system.registry.wait_for("late")
                await wait_all_tasks_blocked()
                assert found == dict.fromkeys("abc", "'main' is closing and starts no more actors")
            with (
                assert_checkpoints(),
                pytest.raises(NotAccepting, match=r"^'main' is closing and starts no more actors$"),
            ):
                await system.registry.wait_for("one")


async def test_who_waits_is_turned_away_when_a_cancel_ends_the_system() -> None:
    found: dict[str, object] = {}
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with open_system() as system:
                nursery.start_soon(wait_into, found, "a", system.registry.wait_for)
                await wait_all_tasks_blocked()
                scope.cancel()
                await trio.sleep_forever()
        await wait_all_tasks_blocked()
        assert found == {"a": "'system' is closing and starts no more actors"}


_moves = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from("ab")),
        st.tuples(st.just("publish"), st.sampled_from("ab")),
        st.tuples(st.just("release"), st.sampled_from("ab")),
        st.tuples(st.just("cancel"), st.integers(0, 7)),
        st.tuples(st.sampled_from(["settle", "settle", "close"]), st.none()),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(_moves)
async def test_any_order_of_waits_cancels_and_names_ends_each_wait_once(moves: list[tuple[str, Any]]) -> None:
    """Each waiter gets the first actor of its name from its arrival on, unless it is cancelled before that."""
    async with opened() as (system, _), trio.open_nursery() as nursery:
        refs = {name: await system.spawn(idle, name=name) for name in "ab"}
        registry = Registry()
        scopes: list[trio.CancelScope] = []
        ended: dict[int, object] = {}
        expected: dict[int, object] = {}
        waiting: dict[int, str] = {}
        there: set[str] = set()
        closed = False

        async def wait(number: int, name: str) -> None:
            with scopes[number]:
                try:
                    ended[number] = await registry.wait_for(name)
                except NotAccepting:
                    ended[number] = "closed"
                return
            ended[number] = "cancelled"

        def end(outcome: object, numbers: list[int]) -> None:
            for number in numbers:
                del waiting[number]
                expected[number] = outcome

        for move, what in moves:
            match move:
                case "wait":
                    number = len(scopes)
                    scopes.append(trio.CancelScope())
                    nursery.start_soon(wait, number, what)
                    await wait_all_tasks_blocked()
                    waiting[number] = what
                    if what in there or closed:
                        end(refs[what] if what in there else "closed", [number])
                case "publish":
                    there.add(what)
                    registry.publish(refs[what])
                    end(refs[what], [number for number, name in waiting.items() if name == what])
                case "release":
                    there.discard(what)
                    registry.release(what)
                case "cancel":
                    if what < len(scopes):
                        scopes[what].cancel()
                        end("cancelled", [number for number in waiting if number == what])
                case "close":
                    closed = True
                    registry.close("main")
                    end("closed", list(waiting))
                case _:
                    await wait_all_tasks_blocked()
            assert sum(map(len, registry._waiting.values())) == len(waiting)
            assert set(registry._waiting) == set(waiting.values())
        await wait_all_tasks_blocked()
        assert ended == expected
        nursery.cancel_scope.cancel()
