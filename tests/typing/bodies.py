# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""What type checkers know of actors, their bodies, supervisors and the test kit. Nothing here runs.

A line with an ignore is wrong, and must be found wrong: an ignore that is not needed is an error.
"""

from typing import Any, assert_never, assert_type

import msgspec
import trio

from actors.runtime import (
    Backoff,
    ChildTask,
    Crash,
    Ctx,
    DeadLetter,
    Down,
    DownKind,
    MailboxReceiveChannel,
    MailboxSendChannel,
    MailboxStatistics,
    Node,
    Ref,
    Replies,
    Restart,
    Strategy,
    Supervisor,
    System,
    SystemStatistics,
    Timer,
    latest,
    open_mailbox,
    open_system,
)
from actors.testing import Probe


class Add(Replies[int], msgspec.Struct):
    """A request."""

    n: int


class Tick(msgspec.Struct, frozen=True):
    """Comes from a timer."""


class Loaded(msgspec.Struct, frozen=True):
    """Comes from a task."""

    text: str


class Failed(msgspec.Struct, frozen=True):
    """Comes from a task, too."""

    error: Exception


Message = Add | Tick | Loaded | Failed | Down


async def load(path: str, retries: int) -> str:
    return path * retries


async def body(ctx: Ctx[Message], start: int, name: str) -> None:
    assert_type(ctx.self, Ref[Message])
    assert_type(ctx.system, System)
    assert_type(await ctx.receive(), Message)
    assert_type(ctx.receive_nowait(), Message)
    async for message in ctx:
        assert_type(message, Message)
        match message:
            case Add(n=n):
                message.reply.send(n + start)
            case Tick():
                assert_type(ctx.spawn(load, name, 3, result=Loaded, error=Failed), ChildTask)
            case Loaded(text=text):
                assert_type(text, str)
            case Failed(error=error):
                assert_type(error, Exception)
            case Down():
                assert_type(message.kind, DownKind)
            case _:
                assert_never(message)


async def open_match(ctx: Ctx[Message]) -> None:
    async for message in ctx:
        match message:
            case Add() | Tick() | Loaded() | Down():
                pass
            case _:
                assert_never(message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def orders(ctx: Ctx[Message], other: Ref[str]) -> None:
    assert_type(ctx.after(1.0, Tick()), Timer)
    assert_type(ctx.every(1.0, Tick(), first=0), Timer)
    ctx.spawn(load, "a", 3, result=Loaded)
    ctx.spawn(load, "a", 3, result=lambda text: Loaded(text.upper()))
    ctx.watch(other)
    ctx.watch(other, lambda down: Loaded(down.reason))
    ctx.stash(Tick())
    ctx.on_stop(trio.sleep, 1.0, within=2.0)


async def wrong_orders(ctx: Ctx[Message], other: Ref[str]) -> None:
    ctx.after(1.0, "tick")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.every("1", Tick())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.spawn(load, "a", 3, result=Failed)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    ctx.spawn(load, "a", 3, result=str)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.spawn(load, "a", "3", result=Loaded)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.spawn(load, "a", 3, result=Loaded, error=repr)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.spawn(load, "a", 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ctx.watch(other, repr)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.watch("other")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.stash("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.on_stop(trio.sleep)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def spawns(system: System) -> None:
    ref = await system.spawn(body, 1, "name", name="n", mailbox_size=8, overflow=latest(type), own_nursery=True)
    assert_type(ref, Ref[Message])
    assert_type(await ref.ask(Add(1)), int)
    supervisor = await system.supervise(name="s", strategy="rest_for_one", restart="permanent", intensity=(3, 10.0))
    assert_type(supervisor, Supervisor)
    assert_type(await supervisor.spawn(body, 1, "name", restart="transient", overflow="reject"), Ref[Message])
    assert_type(supervisor.children, tuple[Ref[Any], ...])
    nested = await supervisor.supervise(
        name="t", strategy=Strategy.ONE_FOR_ALL, restart=Restart.TRANSIENT, backoff=Backoff(0.5), max_children=None
    )
    assert_type(nested, Supervisor)
    assert_type(await ref.join(), Down)


async def wrong_spawns(system: System, supervisor: Supervisor) -> None:
    await system.spawn(body, "1", "name")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await system.spawn(body, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await system.spawn(body, 1, "name", 2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await system.spawn(load, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await system.spawn(body, 1, "n", overflow="drop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await system.spawn(body, 1, "n", restart="permanent")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await supervisor.spawn(body, 1, "n", restart="always")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await system.supervise(name="s", strategy="all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await system.supervise(name="s", intensity=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await system.supervise()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def see_crash(crash: Crash) -> None:
    assert_type(crash.restart_in_s, float | None)


async def seeing(letters: Ref[DeadLetter]) -> None:
    async with open_system(name="s", on_crash=see_crash, on_down=lambda down: print(down.handled)) as system:
        assert_type(system.tree(), Node)
        assert_type(system.statistics(), SystemStatistics)
        assert_type(system.registry.lookup("n"), Ref[Any] | None)
        found: Ref[Add] = await system.registry.wait_for("n")
        assert_type(found.statistics(), MailboxStatistics)
        assert_type(system.dead_letters.last, tuple[DeadLetter, ...])
        system.dead_letters.subscribe(letters.tell)
        assert_type(await system.threads.run_sync(lambda: 3), int)
    open_system(on_crash=see_down)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def see_down(down: Down) -> None:
    assert_type(down.ref, Ref[Any])


async def channels() -> None:
    ends: tuple[MailboxSendChannel[int], MailboxReceiveChannel[int]] = open_mailbox(3)
    send, receive = ends
    as_trio: trio.abc.SendChannel[int] = send
    await as_trio.send(3)
    assert_type(await receive.receive(), int)
    await send.send("three")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def probes(probe: Probe, ref: Ref[Message]) -> None:
    assert_type(await probe.expect(Add), Add)
    assert_type((await probe.expect(Add)).n, int)
    assert_type(await probe.expect(Down, within=2.0), Down)
    takes: Ref[Message] = probe.ref
    takes.tell(Tick())
    probe.watch(ref)
    add = await probe.expect(Add)
    tick: Tick = add  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    await probe.expect("Add")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await probe.expect(Add(1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await probe.expect(Add, 2.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    print(tick)
