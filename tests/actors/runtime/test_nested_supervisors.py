"""Supervisors under supervisors: what one cannot handle goes up, as the one error that it is (R20)."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.lowlevel import checkpoint
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import ActorGone, Backoff, Crash, Ctx, DownKind, Ref, Supervisor, open_system
from actors.testing import seeds

AT_ONCE = Backoff(first_s=0.0, jitter=0.0)


class Family:
    """Actors that write down what happens to them: `+a` for a start, `-a` for an end."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.start_s: dict[str, list[float]] = {}
        self.bad_starts: dict[str, list[int]] = {}
        self.starts: dict[str, int] = {}

    async def body(self, ctx: Ctx[str]) -> None:
        name = ctx.name
        number = self.starts[name] = self.starts.get(name, 0) + 1
        self.trace.append("+" + name)
        try:
            times = self.start_s.get(name)
            if times:
                await trio.sleep(times.pop(0))
            if number in self.bad_starts.get(name, ()):
                raise OSError(f"{name} does not start")
            ctx.ready()
            async for word in ctx:
                if word == "crash":
                    raise ValueError(name)
        finally:
            self.trace.append("-" + name)

    async def spawn(self, sup: Supervisor, names: str, **options: Any) -> dict[str, Ref[str]]:
        return {name: await sup.spawn(self.body, name=name, **options) for name in names}

    def since(self) -> str:
        trace, self.trace = self.trace, []
        return " ".join(trace)


@pytest.fixture
def family() -> Family:
    return Family()


async def tower(top: Any, names: str, **lowest: Any) -> Supervisor:
    """Supervisors one under the other, none of which restarts anything but the lowest."""
    for name in names[:-1]:
        top = await top.supervise(name=name)
    made = await top.supervise(name=names[-1], **({"strategy": "one_for_all", "restart": "permanent"} | lowest))
    assert isinstance(made, Supervisor)
    return made


@pytest.mark.parametrize("levels", ["x", "xy", "xyz"])
async def test_what_nobody_handles_comes_out_of_the_block_as_the_one_error_with_its_way_in_notes_r20(
    levels: str, autojump_clock: MockClock, family: Family
) -> None:
    crashes: list[Crash] = []
    with pytest.raises(ValueError, match=r"^b") as caught:
        async with open_system(name="sys", on_crash=crashes.append) as system:
            await family.spawn(await system.supervise(name="other"), "o")
            sup = await tower(system, levels, intensity=(0, 5.0))
            refs = await family.spawn(sup, "abc")
            family.since()
            refs["b"].tell("crash")
            await trio.sleep_forever()
    error = caught.value
    assert (type(error), error.args, error.__cause__) == (ValueError, ("b",), None)
    assert not isinstance(error.__context__, BaseExceptionGroup)
    paths = ["/".join(levels[:n]) for n in range(len(levels), 0, -1)]
    assert error.__notes__ == [
        f"in actor '{paths[0]}/b', while handling str",
        f"supervisor '{paths[0]}' gave up: 0 restarts in 5 s were used up",
        *(
            f"supervisor '{path}' gave up: '{child}' failed and is not restarted"
            for path, child in zip(paths[1:], reversed(levels), strict=False)
        ),
    ]
    assert family.since() == "-b -c -a -o"
    assert all(crash.error is error for crash in crashes)
    assert [crash.name for crash in crashes] == ["b", *reversed(levels)]
    assert (system.statistics().actors, system.statistics().supervisors) == (0, 0)


@pytest.mark.parametrize("levels", ["y", "yz", "xyz"])
async def test_a_parent_that_restarts_makes_the_whole_sub_tree_again_from_its_specs(
    levels: str, autojump_clock: MockClock, family: Family
) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", restart="transient", backoff=Backoff(first_s=10.0, jitter=0.0))
        sup = await tower(top, levels, intensity=(0, 5.0))
        refs = await family.spawn(sup, "abc")
        sibling = (await family.spawn(top, "s"))["s"]
        family.since()
        refs["b"].tell("crash")
        await wait_all_tasks_blocked()
        assert family.since() == "-b -c -a"
        assert [system.registry.lookup(name) for name in "abc"] == [None] * 3
        await trio.sleep(9.9)
        assert family.since() == ""
        await trio.sleep(0.2)
        assert family.since() == "+a +b +c"
        again = {name: system.registry.lookup(name) for name in "abc"}
        assert all(again[name] is not None and again[name] is not refs[name] for name in "abc")
        assert [ref.alive for ref in refs.values()] == [False] * 3  # fresh actors: the old ones have ended
        assert sibling.alive
        assert system.statistics().supervisors == 1 + len(levels)
    assert family.since() == "-s -c -b -a"


async def test_the_sub_tree_comes_back_with_everything_in_its_place(autojump_clock: MockClock, family: Family) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", strategy="one_for_all", restart="permanent", backoff=AT_ONCE)
        a = (await family.spawn(top, "a"))["a"]
        mid = await top.supervise(name="mid", restart="transient")
        await family.spawn(mid, "b")
        low = await mid.supervise(name="low", restart="transient", max_children=3)
        await family.spawn(low, "cd")
        await family.spawn(mid, "e")
        await family.spawn(mid, "t", restart="temporary")
        await family.spawn(top, "f")
        family.since()
        before = str(system.tree())
        for _ in range(3):
            a.tell("crash")
            await trio.sleep(1)
            trace = family.since().split()
            # Low is dynamic: its children stop together, in any order.
            assert [each for each in trace if each not in ("-c", "-d")] in (
                ["-a", "-f", "-t", "-e", "-b", "+a", "+b", "+c", "+d", "+e", "+f"],
                ["-a", "-f", "-e", "-b", "+a", "+b", "+c", "+d", "+e", "+f"],  # t is not made again
            )
            names = [line.split()[0] for line in str(system.tree()).splitlines()]
            assert names == [line.split()[0] for line in before.splitlines() if line.split()[0] != "t"]


async def test_a_restarted_supervisor_has_its_whole_budget_again(autojump_clock: MockClock, family: Family) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", restart="transient", intensity=(2, 1000.0), backoff=AT_ONCE)
        low = await top.supervise(
            name="low", restart="transient", intensity=(1, 1000.0), budget="supervisor", backoff=AT_ONCE
        )
        await family.spawn(low, "ab")
        family.since()
        for expected in ("-a +a", "-a -b +a +b", "-a +a", "-a -b +a +b", "-a +a"):
            system.registry.lookup("a").tell("crash")  # type: ignore[union-attr]
            await trio.sleep(1)
            assert family.since() == expected
        system.registry.lookup("a").tell("crash")  # type: ignore[union-attr]
        await trio.sleep(1)
        # With a budget for each of its children, top has lost this one, and no other notices.
        assert family.since() == "-a -b"
        assert (low.ended, top.ended) == (True, False)


async def test_a_restart_of_the_sub_tree_that_fails_counts_and_begins_again(
    autojump_clock: MockClock, family: Family
) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", restart="transient", backoff=AT_ONCE)
        low = await top.supervise(name="low", strategy="one_for_all", restart="transient", intensity=(0, 1.0))
        family.bad_starts = {"b": [2, 3]}
        refs = await family.spawn(low, "abc")
        family.since()
        refs["a"].tell("crash")
        await trio.sleep(1)
        assert family.since() == "-a -c -b +a +b -b -a +a +b -b -a +a +b +c"
        assert low.restarts == 3


async def test_a_sub_tree_that_does_not_start_holds_up_those_after_it(
    autojump_clock: MockClock, family: Family
) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", strategy="one_for_all", restart="transient", backoff=AT_ONCE)
        a = (await family.spawn(top, "a"))["a"]
        low = await top.supervise(name="low")
        await family.spawn(low, "b", restart="permanent")
        await family.spawn(top, "c")
        family.bad_starts = {"b": [2]}
        family.since()
        a.tell("crash")
        await trio.sleep(1)
        assert family.since() == "-a -c -b +a +b -b -a +a +b +c"


async def test_a_start_that_fails_deep_down_fails_the_start_that_is_under_way(
    autojump_clock: MockClock, family: Family
) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", strategy="one_for_all", restart="transient", backoff=AT_ONCE)
        a = (await family.spawn(top, "a"))["a"]
        mid = await top.supervise(name="mid")
        low = await mid.supervise(name="low")
        await family.spawn(low, "bc", restart="permanent")
        await family.spawn(mid, "d", restart="permanent")
        family.bad_starts = {"c": [2]}
        family.since()
        a.tell("crash")
        await trio.sleep(1)
        assert family.since() == "-a -d -c -b +a +b +c -c -b -a +a +b +c +d"
        assert system.registry.lookup("d") is not None


async def test_a_crash_above_during_the_restart_of_a_sub_tree_loses_nobody(
    autojump_clock: MockClock, family: Family
) -> None:
    async with open_system() as system:
        top = await system.supervise(
            name="top", strategy="one_for_all", restart="transient", intensity=(9, 1.0), backoff=AT_ONCE
        )
        a = (await family.spawn(top, "a"))["a"]
        low = await top.supervise(name="low", restart="transient")
        await family.spawn(low, "bcd")
        family.start_s = {"c": [10.0]}
        family.since()
        a.tell("crash")
        await trio.sleep(1)
        assert family.since() == "-a -d -c -b +a +b +c"
        a.tell("crash")  # c is on its way, d has not begun
        await trio.sleep(1)
        assert family.since() == "-a -c -b +a +b +c +d"


async def test_a_crash_within_during_the_restart_of_a_sub_tree_loses_nobody(
    autojump_clock: MockClock, family: Family
) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", restart="transient", intensity=(9, 1.0), backoff=AT_ONCE)
        low = await top.supervise(name="low", strategy="one_for_all", restart="transient", intensity=(0, 1.0))
        refs = await family.spawn(low, "abc")
        family.start_s = {"b": [10.0]}
        family.since()
        refs["c"].tell("crash")
        await trio.sleep(1)
        assert family.since() == "-c -b -a +a +b"
        system.registry.lookup("a").tell("crash")  # type: ignore[union-attr]
        await trio.sleep(1)
        assert family.since() == "-a -b +a +b +c"


@pytest.mark.parametrize("who", ["top", "mid", "low"])
@pytest.mark.parametrize("at", [0.0, 5.0, 12.0, 20.0])
async def test_a_stop_on_any_level_at_any_time_of_an_escalation_frees_all_names(
    who: str, at: float, autojump_clock: MockClock, family: Family
) -> None:
    async with open_system() as system:
        top = await system.supervise(name="top", restart="transient", backoff=Backoff(first_s=10.0, jitter=0.0))
        mid = await top.supervise(name="mid")
        low = await mid.supervise(name="low", strategy="one_for_all", restart="transient", intensity=(0, 1.0))
        refs = await family.spawn(low, "ab")
        family.start_s = {"a": [5.0]}
        refs["a"].tell("crash")
        await trio.sleep_until(at)
        target = {"top": top, "mid": mid, "low": low}[who]
        # Who was made again is another supervisor; the old handle is over then.
        target.stop("enough")
        if who != "low":
            await target.join()
            assert [system.registry.lookup(name) for name in "ab"] == [None, None]
            again = await system.supervise(name="low")
            await family.spawn(again, "ab")
            again.stop()
            await again.join()
        await trio.sleep(60)
    assert family.trace.count("+a") == family.trace.count("-a")
    assert family.trace.count("+b") == family.trace.count("-b")


@pytest.mark.parametrize("closing", ["system", "block"])
async def test_a_supervisor_that_gives_up_while_all_is_closing_raises_nothing_more(
    closing: str, autojump_clock: MockClock
) -> None:
    crashes: list[Crash] = []

    async def fails_to_end(ctx: Ctx[str]) -> None:
        try:
            await ctx.receive()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            raise ValueError("end")

    async with open_system(on_crash=crashes.append) as system:
        top = await system.supervise(name="top", strategy="one_for_all", restart="permanent", intensity=(0, 1.0))
        low = await top.supervise(name="low", strategy="one_for_all", restart="permanent", intensity=(0, 1.0))
        refs = [await low.spawn(fails_to_end, name=name) for name in "ab"]
        if closing == "system":
            system.stop()
            await trio.sleep(10)
    assert [(crash.name, crash.gave_up) for crash in crashes] == [("b", False), ("a", False)]
    assert [(await ref.join()).kind for ref in refs] == [DownKind.STOPPED] * 2


async def test_a_crash_in_a_sub_tree_while_a_later_sibling_is_stopped_goes_no_further(
    autojump_clock: MockClock, family: Family
) -> None:
    async def slow_to_end(ctx: Ctx[str]) -> None:
        try:
            await ctx.receive()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    async with open_system() as system:
        top = await system.supervise(name="top", strategy="one_for_all", restart="permanent")
        low = await top.supervise(name="low", strategy="one_for_all", restart="permanent", intensity=(0, 1.0))
        refs = await family.spawn(low, "ab")
        await top.spawn(slow_to_end, name="z")
        family.since()
        top.stop("enough")
        await trio.sleep(1)
        assert family.since() == ""  # z stops first
        refs["a"].tell("crash")
        await top.join()
        assert family.since() == "-a -b"
        assert low.ended


async def test_two_that_give_up_at_once_are_both_told(autojump_clock: MockClock, family: Family) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with open_system() as system:
            for name in "xy":
                sup = await system.supervise(name=name, strategy="one_for_all", restart="permanent", intensity=(0, 1.0))
                refs = await family.spawn(sup, {"x": "a", "y": "b"}[name])
                await checkpoint()
                refs.popitem()[1].tell("crash") if name == "y" else None
            system.registry.lookup("a").tell("crash")  # type: ignore[union-attr]
            await trio.sleep_forever()
    assert sorted(str(error) for error in caught.value.exceptions) == ["a", "b"]


@pytest.mark.parametrize("end", [lambda scope: scope.cancel(), lambda scope: None])
async def test_asks_to_a_sub_tree_that_gives_up_end_with_it(
    end: Callable[[trio.CancelScope], None], autojump_clock: MockClock
) -> None:
    from actors.runtime import Replies

    class Get(Replies[int]):
        pass

    results: list[object] = []

    async def holds(ctx: Ctx[object]) -> None:
        async for message in ctx:
            if message == "crash":
                raise ValueError("held")

    async with open_system() as system:
        top = await system.supervise(name="top", restart="transient", backoff=AT_ONCE)
        low = await top.supervise(name="low", strategy="one_for_all", restart="transient", intensity=(0, 1.0))
        refs = [await low.spawn(holds, name=name) for name in "ab"]

        async def ask(ref: Ref[Any]) -> None:
            try:
                await ref.ask(Get())
            except ActorGone as gone:
                results.append((gone.name, gone.reason))

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                for ref in refs:
                    nursery.start_soon(ask, ref)
                await wait_all_tasks_blocked()
                refs[0].tell("crash")
                await wait_all_tasks_blocked()
                end(scope)
        assert sorted(results, key=str) == [("a", "crashed"), ("b", "supervisor 'top/low' gave up")]


@seeds(30)
async def test_escalation_ends_the_same_in_any_order_of_the_scheduler() -> None:
    family = Family()
    async with open_system() as system:
        top = await system.supervise(name="top", strategy="rest_for_one", restart="transient", backoff=AT_ONCE)
        await family.spawn(top, "a")
        low = await top.supervise(name="low", strategy="one_for_all", restart="transient", intensity=(0, 1.0))
        refs = await family.spawn(low, "bcd")
        await family.spawn(top, "e")
        family.since()
        refs["c"].tell("crash")
        await trio.sleep(1)
        assert family.since() == "-c -d -b -e +b +c +d +e"
    assert family.since() == "-e -d -c -b -a"
