"""What a raise means, who is restarted in which order, and what comes out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import ActorGone, Backoff, Crash, Ctx, DownKind, Replies, Supervisor, System, open_system
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
