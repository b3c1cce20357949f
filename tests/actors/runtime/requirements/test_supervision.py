"""Who is restarted, in which order, how often, and who hears of it."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import ActorGone, Backoff, Crash, Ctx, DownKind, Ref, Replies, Supervisor, System, open_system
from actors.testing import seeds

AT_ONCE = Backoff(first_s=0.0, jitter=0.0)


@dataclass
class Get(Replies[str]):
    pass


@dataclass
class Refused(Replies[str]):
    pass


@dataclass
class Bug(Replies[str]):
    pass


@dataclass
class Boom:
    pass


class NotAllowed(Exception):
    """An error that the actor gives to its asker."""


async def serves(ctx: Ctx[Any]) -> None:
    async for message in ctx:
        match message:
            case Get():
                message.reply.send("here")
            case Refused():
                message.reply.fail(NotAllowed("not you"))
            case Bug():
                raise ZeroDivisionError("bug")
            case _:
                raise ValueError("boom")


async def idle(ctx: Ctx[Any]) -> None:
    async for _ in ctx:
        raise ValueError("boom")


async def doomed(ctx: Ctx[Any], starts: list[float], alive_s: float = 0.0) -> None:
    starts.append(trio.current_time())
    ctx.ready()
    await trio.sleep(alive_s)
    raise ValueError("again")


# R7: what a raise means.


@pytest.mark.parametrize("way", ["tell", "ask"])
@pytest.mark.parametrize("kind", [Refused, Bug])
async def test_an_error_given_to_the_asker_is_a_reply_and_a_raise_is_a_crash_r7(
    way: str, kind: type[Refused] | type[Bug]
) -> None:
    crashes: list[Crash] = []
    async with open_system(on_crash=crashes.append) as system:
        ref = await system.spawn(serves, name="w")
        if way == "tell":
            ref.tell(kind())
            await wait_all_tasks_blocked()
        elif kind is Refused:
            with pytest.raises(NotAllowed, match=r"^not you$"):
                await ref.ask(kind())
        else:
            with pytest.raises(ActorGone) as caught:
                await ref.ask(kind())
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
        if kind is Refused:
            assert crashes == []
            assert await ref.ask(Get()) == "here"
        else:
            assert [(type(crash.error), crash.message_kind) for crash in crashes] == [(ZeroDivisionError, "Bug")]
            assert (await ref.join()).error is crashes[0].error


async def test_probe_a_tell_to_a_handler_that_raises_reaches_the_supervisor_r7(system: System) -> None:
    crashes: list[Crash] = []
    supervisor = await system.supervise(name="s", restart="transient", on_crash=crashes.append)
    ref = await supervisor.spawn(serves, name="w")
    ref.tell(Boom())
    await wait_all_tasks_blocked()
    assert await ref.ask(Get()) == "here"
    assert [(crash.path, str(crash.error), crash.restarts) for crash in crashes] == [("s/w", "boom", 1)]


async def test_probe_a_temporary_child_that_crashes_is_told_and_its_siblings_live_r12(system: System) -> None:
    crashes: list[Crash] = []
    supervisor = await system.supervise(name="s", on_crash=crashes.append)
    first, second, third = [await supervisor.spawn(serves, name=name) for name in "abc"]
    second.tell(Boom())
    assert (await second.join()).kind is DownKind.CRASHED
    assert [(crash.name, crash.restart_in_s, crash.gave_up) for crash in crashes] == [("b", None, False)]
    assert [await ref.ask(Get()) for ref in (first, third)] == ["here", "here"]
    assert supervisor.children == (first, third)


# R12: the traces of OTP's supervisor.


async def traced(ctx: Ctx[Any], log: list[str], fails: list[str]) -> None:
    log.append(f"+{ctx.name}")
    if ctx.name in fails:
        fails.remove(ctx.name)
        log.append(f"!{ctx.name}")
        raise OSError("does not start")
    try:
        async for _ in ctx:
            log.append(f"!{ctx.name}")
            raise ValueError("boom")
    except trio.Cancelled:
        with trio.move_on_after(1, shield=True):
            await trio.sleep(0.1)  # so that an order is one
        log.append(f"-{ctx.name}")
        raise


#: Children a b c, started in this order; those that crash, one by one; what starts (+), crashes (!), is stopped (-).
OTP: Sequence[tuple[str, str, str, str]] = [
    ("one_for_one", "b", "", "!b +b"),
    ("one_for_one", "ca", "", "!c +c !a +a"),
    ("one_for_all", "b", "", "!b -c -a +a +b +c"),
    ("one_for_all", "a", "", "!a -c -b +a +b +c"),
    ("rest_for_one", "b", "", "!b -c +b +c"),
    ("rest_for_one", "a", "", "!a -c -b +a +b +c"),
    ("rest_for_one", "c", "", "!c +c"),
    ("rest_for_one", "cb", "", "!c +c !b -c +b +c"),
    ("one_for_one", "b", "b", "!b +b !b +b"),
    ("one_for_all", "b", "b", "!b -c -a +a +b !b -a +a +b +c"),
    ("rest_for_one", "a", "b", "!a -c -b +a +b !b +b +c"),
]


@pytest.mark.parametrize(("strategy", "crash", "fails"), [row[:3] for row in OTP])
@pytest.mark.parametrize("end", ["block", "stop", "outer cancel"])
@seeds(10)
async def test_starts_and_stops_are_in_the_order_of_otp_r12(strategy: Any, crash: str, fails: str, end: str) -> None:
    expected = next(row[3] for row in OTP if row[:3] == (strategy, crash, fails))
    log: list[str] = []
    failing: list[str] = []
    with trio.CancelScope() as scope:
        async with open_system() as system:
            supervisor = await system.supervise(
                name="s", strategy=strategy, restart="permanent", intensity=(5, 10.0), backoff=Backoff(0.5, jitter=0.0)
            )
            refs = {name: await supervisor.spawn(traced, log, failing, name=name) for name in "abc"}
            failing.extend(fails)
            for name in crash:
                refs[name].tell(Boom())
                await trio.sleep(60)
            if end == "stop":
                supervisor.stop()
            elif end == "outer cancel":
                scope.cancel()
    assert " ".join(log) == f"+a +b +c {expected} -c -b -a"


# R13: how often.


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
        await idle(ctx)

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


# R14: a crash loop is seen, and no flood.


async def test_each_restart_is_logged_once_with_cause_and_count_and_a_flood_as_a_number_r14(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[float] = []
    supervisor = await system.supervise(name="s", restart="transient", intensity=(99, 10.0), backoff=AT_ONCE)
    ref = await supervisor.spawn(doomed, starts, 0.001, name="w")
    await ref.join()
    await trio.sleep(2)
    records = [record for record in caplog.records if record.name == "actors.runtime"]
    each = "actor 's/w' crashed while handling no message: ValueError; restart {} in 0.000 s"
    assert [record.getMessage() for record in records] == [
        *[each.format(n) for n in range(1, 21)],
        "80 more crashes of actors of 's' in one second are not written out",
    ]
    assert all(record.levelno == logging.ERROR for record in records)
    assert all(record.exc_info and record.exc_info[0] is ValueError for record in records[:20])
    assert len(starts) == 100


# R20: one error comes out.


@dataclass
class Explosive:
    pass


async def nested(ctx: Ctx[Any], errors: Sequence[Exception]) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async for _ in ctx:
        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            for error in errors:
                inner.start_soon(fail, error)
            outer.start_soon(trio.sleep_forever)


async def explode(errors: Sequence[Exception]) -> None:
    async with open_system() as system:
        supervisor: System | Supervisor = system
        for name in "ab":
            supervisor = await supervisor.supervise(
                name=name, restart="transient", budget="supervisor", intensity=(0, 10.0)
            )
        assert isinstance(supervisor, Supervisor)
        ref = await supervisor.spawn(nested, errors, name="c")
        ref.tell(Explosive())
        await trio.sleep_forever()


@seeds(20)
async def test_a_crash_three_levels_down_comes_out_as_the_one_error_with_its_path_r20() -> None:
    error = ValueError("root")
    with pytest.raises(ValueError) as caught:
        await explode([error])
    assert caught.value is error
    assert [note for note in error.__notes__ if note.startswith("in actor")] == [
        "in actor 'a/b/c', while handling Explosive"
    ]


@seeds(20)
async def test_only_more_than_one_error_comes_out_as_a_group_r20() -> None:
    errors = [ValueError("one"), KeyError("two")]
    with pytest.raises(ExceptionGroup) as caught:
        await explode(errors)
    leaves: list[Callable[[], object] | BaseException] = list(caught.value.exceptions)
    assert {id(leaf) for leaf in leaves} == {id(error) for error in errors}
