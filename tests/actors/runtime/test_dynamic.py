"""Dynamic supervisors: many children that come and go, at most so many at a time, and that stop together."""

import logging
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.lowlevel import checkpoint
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import (
    ActorGone,
    Backoff,
    Ctx,
    DownKind,
    NotAccepting,
    TooManyChildren,
    open_system,
)
from actors.testing import run, seeds

AT_ONCE = Backoff(first_s=0.0, jitter=0.0)


async def idle(ctx: Ctx[str]) -> None:
    async for message in ctx:
        if message == "crash":
            raise ValueError(ctx.name)


async def ends_slowly(ctx: Ctx[str], seconds: float) -> None:
    try:
        await idle(ctx)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)


async def test_one_more_than_it_may_have_is_refused_and_its_name_stays_free(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        pool = await system.supervise(name="pool", max_children=2)
        first = await pool.spawn(idle, name="a")
        await pool.supervise(name="b")
        with pytest.raises(
            TooManyChildren,
            match=r"^'pool' has all the 2 children it may have; start one more when one has ended$",
        ) as caught:
            await pool.spawn(idle, name="c")
        assert (caught.value.name, caught.value.limit) == ("pool", 2)
        with pytest.raises(TooManyChildren):
            await pool.supervise(name="c")
        await system.spawn(idle, name="c")
        assert system.statistics().actors == 2
        first.stop()
        await first.join()
        await pool.spawn(idle, name="a")


async def test_a_child_that_is_on_its_way_up_has_its_place_and_leaves_it_if_it_fails(
    autojump_clock: MockClock,
) -> None:
    async def never_ready(ctx: Ctx[str]) -> None:
        await trio.sleep(5)
        raise OSError("no")

    async with open_system() as system:
        pool = await system.supervise(name="pool", max_children=1, restart="permanent")
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def first() -> None:
                with pytest.raises(OSError, match="no"):
                    await pool.spawn(never_ready)

            await wait_all_tasks_blocked()
            with pytest.raises(TooManyChildren):
                await pool.spawn(idle)
        await pool.spawn(idle)


async def test_a_child_keeps_its_place_through_its_restarts(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        pool = await system.supervise(
            name="pool", max_children=1, restart="transient", intensity=(1, 100.0), backoff=Backoff(10.0, jitter=0.0)
        )
        ref = await pool.spawn(idle, name="a")
        ref.tell("crash")
        await trio.sleep(5)
        with pytest.raises(TooManyChildren):
            await pool.spawn(idle)
        await trio.sleep(10)
        ref.tell("crash")
        await ref.join()
        await pool.spawn(idle, name="a")


async def test_its_children_stop_together_and_none_waits_for_another(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        pool = await system.supervise(name="pool", max_children=100)
        refs = [await pool.spawn(ends_slowly, 10.0) for _ in range(20)]
        pool.stop("enough")
        await pool.join()
        assert trio.current_time() == pytest.approx(10)
        assert {(down.reason, down.kind) for down in [await ref.join() for ref in refs]} == {
            ("enough", DownKind.STOPPED)
        }
        with pytest.raises(NotAccepting, match=r"^'pool' is closing and starts no more actors$"):
            await pool.spawn(idle)


async def test_it_is_one_of_its_parents_children_in_the_ordered_stop(autojump_clock: MockClock) -> None:
    downs: list[str] = []
    async with open_system(on_down=lambda down: downs.append(down.name)) as system:
        await system.spawn(idle, name="before")
        pool = await system.supervise(name="pool", max_children=9)
        for number in range(3):
            await pool.spawn(ends_slowly, 2.0, name=f"p{number}")
        await system.spawn(idle, name="after")
    assert (downs[0], set(downs[1:4]), downs[4]) == ("after", {"p0", "p1", "p2"}, "before")


async def test_a_stop_of_many_lets_others_run_in_between() -> None:
    async with open_system() as system:
        pool = await system.supervise(name="pool", max_children=1000)
        for _ in range(1000):
            await pool.spawn(idle)
        turns: list[int] = []
        ended = trio.Event()

        async def other() -> None:
            while not ended.is_set():
                turns.append(sum(ref.alive for ref in pool.children))
                await checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await checkpoint()
            pool.stop()
            await pool.join()
            ended.set()
        # 64 at a time: the others have a turn after each.
        assert len({count for count in turns if 0 < count < 1000}) >= 1000 // 64 - 1
        drops = [before - after for before, after in pairwise(turns)]
        assert max(drops) <= 3 * 64


async def test_a_closed_one_ends_with_its_last_child(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        pool = await system.supervise(name="pool", max_children=9)
        a, b = await pool.spawn(idle), await pool.spawn(idle)
        pool.close()
        with pytest.raises(NotAccepting):
            await pool.spawn(idle)
        a.drain()
        await a.join()
        assert (b.alive, pool.ended) == (True, False)
        b.drain()
        await pool.join()


@pytest.mark.parametrize("how", ["stop", "block"])
def test_a_closed_one_can_still_be_stopped(how: str) -> None:
    kinds: list[DownKind] = []

    async def scenario() -> None:
        async with open_system(on_down=lambda down: kinds.append(down.kind)) as system:
            pool = await system.supervise(name="pool", max_children=9)
            ref = await pool.spawn(idle)
            pool.close()
            await trio.sleep(1)
            assert ref.alive
            if how == "stop":
                pool.stop("enough")
                await pool.join()

    run(scenario, limit_s=1000)
    assert kinds == [DownKind.STOPPED]


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all"])
async def test_a_closed_one_starts_nobody_again_who_waits_for_it(strategy: Any, autojump_clock: MockClock) -> None:
    async with open_system() as system:
        sup = await system.supervise(
            name="sup", strategy=strategy, restart="permanent", backoff=Backoff(10.0, jitter=0.0)
        )
        ref = await sup.spawn(idle)
        ref.tell("crash")
        await trio.sleep(1)
        sup.close()
        with trio.fail_after(1000):
            await sup.join()
        assert trio.current_time() == pytest.approx(1)
        assert not ref.alive


async def test_with_a_shared_budget_it_gives_up_and_all_its_children_stop(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", restart="transient", backoff=Backoff(5.0, jitter=0.0))
        pool = await top.supervise(
            name="pool", max_children=9, restart="transient", intensity=(1, 10.0), budget="supervisor", backoff=AT_ONCE
        )
        refs = [await pool.spawn(ends_slowly, 1.0, name=f"p{number}") for number in range(3)]
        short = await pool.spawn(idle, name="short", restart="temporary")
        refs[0].tell("crash")
        await trio.sleep(2)
        refs[1].tell("crash")
        downs = [await ref.join() for ref in (refs[0], refs[2], short)]
        assert {(down.kind, down.reason) for down in downs} == {(DownKind.STOPPED, "supervisor 'top/pool' gave up")}
        await trio.sleep(20)
        assert sorted(ref.name for ref in pool.children) == ["p0", "p1", "p2"]
        assert pool.restarts == 1


async def test_when_its_parent_restarts_all_its_children_hear_why(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", strategy="one_for_all", restart="transient", backoff=AT_ONCE)
        first = await top.spawn(idle, name="first")
        pool = await top.supervise(name="pool", max_children=9, restart="permanent")
        ref = await pool.spawn(idle, name="p")
        first.tell("crash")
        down = await ref.join()
        assert (down.kind, down.reason) == (DownKind.STOPPED, "supervisor 'top' restarts its children")
        await trio.sleep(1)
        assert [child.name for child in pool.children] == ["p"]


async def test_one_child_that_does_not_end_is_named_and_holds_up_no_other(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    ends: list[tuple[str, float]] = []
    async with open_system(grace_s=5.0, on_down=lambda down: ends.append((down.name, trio.current_time()))) as system:
        pool = await system.supervise(name="pool", max_children=9)
        await pool.spawn(ends_slowly, 60.0, name="slow")
        await pool.spawn(idle, name="fast")
    assert ends == [("fast", 0.0), ("slow", 60.0)]
    assert [record.getMessage() for record in caplog.records] == [
        "system 'system' still waits for pool/slow, 5 s after its end"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_children": 0}, "max_children must be 1 or more, not 0"),
        (
            {"max_children": 1, "strategy": "one_for_all"},
            "a supervisor with max_children is one_for_one, not one_for_all",
        ),
        ({"stop_grace_s": 0}, "stop_grace_s must be above 0 s, not 0"),
        ({"stop_grace_s": float("nan")}, "stop_grace_s must be above 0 s, not nan"),
    ],
)
async def test_what_cannot_be_is_refused_and_leaves_the_name_free(options: dict[str, Any], message: str) -> None:
    async with open_system() as system:
        with pytest.raises(ValueError) as caught:
            await system.supervise(name="sup", **options)
        assert str(caught.value) == message
        await system.supervise(name="sup")


@seeds(40)
async def test_spawns_that_race_with_the_stop_start_or_are_refused_but_leave_nothing() -> None:
    async with open_system() as system:
        pool = await system.supervise(name="pool", max_children=5, restart="permanent", backoff=AT_ONCE)
        outcomes: list[str] = []

        async def one() -> None:
            try:
                ref = await pool.spawn(idle)
            except (TooManyChildren, NotAccepting, ActorGone) as error:
                outcomes.append(type(error).__name__)
            else:
                outcomes.append("started")
                ref.tell("crash")

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(one)
            await checkpoint()
            nursery.start_soon(trio.sleep, 0)
            pool.stop()
        await pool.join()
        assert len(outcomes) == 8
        assert pool.children == ()
