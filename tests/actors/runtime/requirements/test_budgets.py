"""How often a child is restarted, who pays for it, and what follows when that is used up."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import Backoff, Crash, Ctx, DownKind, Ref, Replies, System, open_system
from actors.testing import seeds

AT_ONCE = Backoff(first_s=0.0, jitter=0.0)


@dataclass
class Get(Replies[str]):
    pass


@dataclass
class Boom:
    pass


async def serves(ctx: Ctx[Get | Boom]) -> None:
    async for message in ctx:
        if isinstance(message, Boom):
            raise ValueError("boom")
        message.reply.send("here")


async def doomed(ctx: Ctx[Any], starts: list[float], alive_s: float = 0.0) -> None:
    starts.append(trio.current_time())
    ctx.ready()
    await trio.sleep(alive_s)
    raise ValueError("again")


async def crash_at(ref: Ref[Any], at: float) -> None:
    await trio.sleep_until(at)
    ref.tell(Boom())


@pytest.mark.parametrize(
    ("times", "gives_up"),
    [
        ([0.0, 1.0, 2.0], False),
        ([0.0, 1.0, 2.0, 7.9], True),
        ([0.0, 1.0, 2.0, 8.0], False),  # one made exactly a window ago has left it
        ([0.0, 1.0, 2.0, 8.1], False),
        ([0.0, 1.0, 2.0, 8.1, 8.9], True),
        ([0.0, 1.0, 2.0, 9.0, 9.0], False),
        ([0.0, 1.0, 2.0, 9.0, 9.0, 9.5], True),
    ],
)
@seeds(5)
async def test_the_window_counts_the_restarts_of_the_supervisor_r13(times: list[float], gives_up: bool) -> None:
    """Whichever child crashed: three take turns."""
    with pytest.raises(ValueError, match=r"^boom\n") if gives_up else nullcontext():
        async with open_system() as system:
            supervisor = await system.supervise(
                name="s", restart="transient", intensity=(3, 8.0), budget="supervisor", backoff=AT_ONCE
            )
            refs = [await supervisor.spawn(serves) for _ in range(3)]
            async with trio.open_nursery() as nursery:
                for n, at in enumerate(times):
                    nursery.start_soon(crash_at, refs[n % 3], at)
            await trio.sleep(1)
            assert len(supervisor.children) == 3


async def test_a_budget_of_each_child_is_a_separate_option_r13_e10(system: System) -> None:
    """Five sessions, three restarts in ten seconds: each fails once within a second, and none pays for another."""
    crashes: list[Crash] = []
    supervisor = await system.supervise(
        name="s", restart="transient", intensity=(3, 10.0), budget="child", backoff=AT_ONCE, on_crash=crashes.append
    )
    refs = [await supervisor.spawn(serves, name=f"s{n}") for n in range(5)]
    for ref in refs:
        ref.tell(Boom())
        await trio.sleep(0.2)
    assert sorted((crash.name, crash.restarts) for crash in crashes) == [(f"s{n}", 1) for n in range(5)]
    assert [await ref.ask(Get()) for ref in refs] == ["here"] * 5


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
@pytest.mark.parametrize("twice", [False, True])
@seeds(10)
async def test_three_restarts_then_it_is_given_up_and_escalated_once_e14(strategy: Any, twice: bool) -> None:
    """Also where a task of the actor crashes with its body, so that there are two notices of one crash."""
    starts: list[float] = []
    crashes: list[Crash] = []

    async def crashing(ctx: Ctx[Any]) -> None:
        if twice:
            ctx.spawn(failing, result=lambda _: None)
        await doomed(ctx, starts, 0.001)

    async def failing() -> None:
        await trio.sleep(0.001)
        raise ValueError("again")

    with pytest.raises((ValueError, BaseExceptionGroup)) as caught:
        async with open_system(on_crash=crashes.append) as system:
            supervisor = await system.supervise(
                name="s",
                strategy=strategy,
                restart="transient",
                intensity=(3, 10.0),
                budget="supervisor",
                backoff=AT_ONCE,
            )
            await supervisor.spawn(crashing)
            await trio.sleep_forever()
    assert len(starts) == 4
    assert [crash.gave_up for crash in crashes if crash.name != "s"] == [False, False, False, True]
    assert len([crash for crash in crashes if crash.name == "s"]) <= 1
    error = caught.value
    assert error is crashes[-1].error
    # Only the one whose restarts they were says that they were used up.
    assert [note for note in error.__notes__ if "used up" in note] == [
        "supervisor 's' gave up: 3 restarts in 10 s were used up"
    ]
    assert trio.current_time() < 1


@pytest.mark.parametrize("budget", ["child", "supervisor"])
@seeds(5)
async def test_a_start_that_goes_well_does_not_forgive_the_crashes_before_e15(budget: Any) -> None:
    starts: list[float] = []
    with pytest.raises(ValueError, match=r"^again\n") if budget == "supervisor" else nullcontext():
        async with open_system() as system:
            supervisor = await system.supervise(name="s", restart="transient", budget=budget, backoff=AT_ONCE)
            ref = await supervisor.spawn(doomed, starts, 0.1)  # ready at once, dead after 100 ms
            assert (await ref.join()).kind is DownKind.CRASHED
            await trio.sleep(60)
    assert starts == pytest.approx([0.0, 0.1, 0.2, 0.3])


async def test_a_child_that_crashes_at_each_start_ends_alone_among_fifty_e16(system: System) -> None:
    async def session(ctx: Ctx[Get]) -> None:
        message = await ctx.receive()
        await trio.sleep(600)  # the question is open
        message.reply.send("answered")
        await ctx.receive()

    answers: list[str] = []
    starts: list[float] = []
    supervisor = await system.supervise(name="sessions", restart="transient", max_children=50)
    healthy = [await supervisor.spawn(session, name=f"S{n}") for n in range(2, 51)]

    async def ask(ref: Ref[Get]) -> None:
        answers.append(await ref.ask(Get()))

    async with trio.open_nursery() as nursery:
        for ref in healthy:
            nursery.start_soon(ask, ref)
        await wait_all_tasks_blocked()
        failed = await supervisor.spawn(doomed, starts, name="S1")
        assert (await failed.join()).kind is DownKind.CRASHED
    assert (len(starts), answers) == (4, ["answered"] * 49)
    assert supervisor.children == tuple(healthy)
