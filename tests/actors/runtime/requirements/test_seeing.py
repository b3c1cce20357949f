"""What can be seen from outside: ends, waits, and who is busy with what."""

import io
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import Backoff, Ctx, Down, DownKind, Ref, Replies, Supervisor, System, dump_on_signal, open_system
from actors.testing import MakeProbe, seeds


@dataclass
class Get(Replies[str]):
    pass


@dataclass
class Boom:
    pass


@dataclass
class Leave:
    pass


async def serves(ctx: Ctx[Any]) -> None:
    async for message in ctx:
        match message:
            case Boom():
                raise ValueError("boom")
            case Leave():
                return
            case _:
                pass


# R6: every end is one event.

End = Callable[[System, Supervisor, Ref[Any]], Awaitable[None]]


async def returns(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    ref.tell(Leave())


async def drains(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    ref.drain()


async def stops(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    ref.stop("tab closed")


async def supervisor_stops(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    supervisor.stop("closing")


async def crashes(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    ref.tell(Boom())


async def crashes_too_often(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    for _ in range(4):
        ref.tell(Boom())


async def stops_between_two_lives(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    ref.tell(Boom())
    await wait_all_tasks_blocked()
    ref.stop("enough")


@pytest.mark.parametrize(
    ("end", "restart", "reason", "kind", "error", "handled"),
    [
        (returns, "temporary", "returned", DownKind.RETURNED, None, 3),
        (drains, "permanent", "drained", DownKind.DRAINED, None, 2),
        (stops, "permanent", "tab closed", DownKind.STOPPED, None, 2),
        (supervisor_stops, "permanent", "closing", DownKind.STOPPED, None, 2),
        (crashes, "temporary", "crashed", DownKind.CRASHED, "boom", 3),
        (crashes_too_often, "transient", "crashed", DownKind.CRASHED, "boom", 6),
        (stops_between_two_lives, "transient", "enough", DownKind.STOPPED, "boom", 3),
    ],
)
@seeds(10)
async def test_every_end_is_one_event_with_name_reason_error_and_count_r6(
    end: End, restart: Any, reason: str, kind: DownKind, error: str | None, handled: int
) -> None:
    downs: list[Down] = []
    seen: list[Down] = []

    async def watching(ctx: Ctx[Down], ref: Ref[Any]) -> None:
        ctx.watch(ref)
        async for down in ctx:
            seen.append(down)

    async with open_system(on_down=downs.append) as system:
        supervisor = await system.supervise(name="s", restart=restart, backoff=Backoff(0.1))
        ref = await supervisor.spawn(serves, name="w")
        await system.spawn(watching, ref, name="watcher")
        for n in range(2):
            ref.tell(n)
        await wait_all_tasks_blocked()
        await end(system, supervisor, ref)
        down = await ref.join()
        await wait_all_tasks_blocked()
        late = await system.spawn(watching, ref, name="late")  # it has ended already
        await wait_all_tasks_blocked()
        late.drain()
        await late.join()
    assert (down.ref, down.name, down.reason, down.kind) == (ref, "w", reason, kind)
    assert (None if down.error is None else str(down.error)) == error
    assert down.handled == handled
    assert [each for each in downs if each.name == "w"] == [down]
    assert seen == [down, down]  # one for each watcher


@pytest.mark.parametrize("where", ["outside", "block raises"])
@seeds(5)
async def test_an_end_by_cancel_is_an_event_too_r6(where: str) -> None:
    downs: list[Down] = []
    with pytest.raises(KeyError) if where == "block raises" else trio.CancelScope() as scope:
        async with open_system(on_down=downs.append) as system:
            await system.spawn(serves, name="w")
            if isinstance(scope, trio.CancelScope):
                scope.cancel()
                await trio.sleep_forever()
            raise KeyError("block")
    kinds = {"outside": DownKind.CANCELLED, "block raises": DownKind.STOPPED}
    assert [(down.name, down.kind, down.error) for down in downs] == [("w", kinds[where], None)]


@seeds(5)
async def test_a_start_that_fails_is_an_end_too_r6() -> None:
    downs: list[Down] = []

    async def broken(ctx: Ctx[int]) -> None:
        raise OSError("no disk")

    async with open_system(on_down=downs.append) as system:
        with pytest.raises(OSError, match=r"^no disk\n"):
            await system.spawn(broken, name="w")
    assert [(down.name, down.kind, str(down.error), down.handled) for down in downs] == [
        ("w", DownKind.CRASHED, "no disk", 0)
    ]


@pytest.mark.scheduler_seeds(10)
async def test_a_watch_that_is_set_twice_tells_once_and_one_taken_back_never_r6(
    system: System, probe: MakeProbe
) -> None:
    twice, never = await probe(), await probe()
    ref = await system.spawn(serves)
    for _ in range(2):
        twice.watch(ref)
        never.watch(ref)
    never.unwatch(ref)
    ref.stop()
    assert (await twice.expect(Down)).ref is ref
    await twice.expect_nothing()
    await never.expect_nothing()


# R24: who waits for what.


async def test_the_tree_says_who_is_busy_with_what_for_how_long_and_waits_for_whom_r24(system: System) -> None:
    async def slow(ctx: Ctx[Get]) -> None:
        async for message in ctx:
            await trio.sleep(100)
            message.reply.send("done")

    async def asks(ctx: Ctx[Any], ref: Ref[Get]) -> None:
        async for message in ctx:
            if isinstance(message, Boom):
                raise ValueError("boom")
            await ref.ask(Get())

    store = await system.spawn(slow, name="store")
    supervisor = await system.supervise(name="pool", restart="transient", backoff=Backoff(0.0))
    front = await supervisor.spawn(asks, store, name="front")
    front.tell(Boom())
    await wait_all_tasks_blocked()
    for n in range(3):
        front.tell(n)
    await wait_all_tasks_blocked()
    await trio.sleep(12.5)
    first, pool = system.tree().children
    (second,) = pool.children
    assert (first.name, first.state, first.handling, first.handling_s, first.asks) == (
        *("store", "running", "Get", 12.5, 1),
    )
    assert (second.name, second.handling, second.handling_s, second.depth) == ("front", "int", 12.5, 2)
    assert (second.restarts, second.waits_for, first.waits_for) == (1, "store", None)
    store.stop()
    front.stop()


async def test_a_signal_shows_the_tree_while_a_handler_hangs_r24(system: System) -> None:
    """The handler itself sends the signal: nothing else runs until it is done."""
    file = io.StringIO()

    async def hangs(ctx: Ctx[int]) -> None:
        async for _ in ctx:
            os.kill(os.getpid(), signal.SIGUSR1)
            signal.sigpending()  # Python runs the signal's handler at the latest after this

    ref = await system.spawn(hangs, name="spinner")
    waiting = await system.spawn(serves, name="waiting")
    with dump_on_signal(system, signal.SIGUSR1, file=file):
        for n in range(3):
            ref.tell(n)
        ref.drain()
        await ref.join()
    dumps = [line.split() for line in file.getvalue().splitlines() if "spinner" in line]
    assert [(line[1], line[2], line[3], line[4]) for line in dumps] == [
        ("draining", f"{left}/2", "handling", "int") for left in (2, 1, 0)
    ]
    assert waiting.alive


# R25: nobody loses what it still uses.


@pytest.mark.parametrize("cleanup", ["on_stop", "finally"])
@pytest.mark.parametrize("how", ["outer cancel", "block", "stop", "error"])
@seeds(10)
async def test_services_outlive_those_who_use_them_r25(cleanup: str, how: str) -> None:
    log: list[str] = []

    async def service(ctx: Ctx[Get], earlier: tuple[Ref[Get], ...]) -> None:
        async def say_goodbye() -> None:
            for ref in reversed(earlier):
                assert await ref.ask(Get(), within=3.0) == ref.name
                await trio.sleep(0.1)
            log.append(ctx.name)

        if cleanup == "on_stop":
            ctx.on_stop(say_goodbye)
        try:
            async for message in ctx:
                message.reply.send(ctx.name)
        finally:
            if cleanup == "finally":
                with trio.move_on_after(4, shield=True):
                    await say_goodbye()

    async def use(scope: trio.CancelScope) -> None:
        with scope:
            async with open_system() as system:
                refs = [await system.spawn(service, (), name="db")]
                caches = await system.supervise(name="caches", restart="permanent")
                for n in range(2):
                    refs.append(await caches.spawn(service, tuple(refs), name=f"cache {n}"))
                sessions = await system.supervise(name="sessions", max_children=2)
                for n in range(2):
                    await sessions.spawn(service, tuple(refs), name=f"session {n}")
                await system.spawn(service, tuple(refs), name="web")
                if how == "outer cancel":
                    scope.cancel()
                elif how == "stop":
                    system.stop()
                elif how == "error":
                    raise KeyError("block")

    if how == "error":
        with pytest.raises(KeyError):
            await use(trio.CancelScope())
    else:
        await use(trio.CancelScope())
    assert [*log[:1], *sorted(log[1:3]), *log[3:]] == ["web", "session 0", "session 1", "cache 1", "cache 0", "db"]
