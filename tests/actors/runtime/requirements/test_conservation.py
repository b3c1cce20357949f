"""Every message that was sent is accounted for, for every way to end."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import (
    ActorGone,
    AskTimeout,
    Backoff,
    Ctx,
    Lost,
    MailboxFull,
    MessageDropped,
    Overflow,
    Ref,
    Replies,
    Supervisor,
    System,
    latest,
    open_system,
)
from actors.testing import seeds


@dataclass
class Get(Replies[int]):
    pass


@dataclass
class Boom:
    pass


@dataclass
class Aside:
    pass


@dataclass
class Leave:
    pass


async def busy_first(ctx: Ctx[Any], log: list[Any]) -> None:
    """Takes a second over the first message, and none over the others."""
    ctx.ready()
    async for message in ctx:
        log.append(message)
        match message:
            case "busy":
                await trio.sleep(1)
            case Get():
                message.reply.send(len(log))
            case Aside():
                ctx.stash(message)
            case Boom():
                raise ValueError("boom")
            case Leave():
                return
            case _:
                pass


End = Callable[[System, Supervisor, Ref[Any]], Awaitable[None]]


async def drains(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    ref.drain()


async def stops(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    ref.stop()


async def supervisor_stops(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    supervisor.stop()


async def system_stops(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    system.stop()


async def sibling_restarts_all(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    sibling = await supervisor.spawn(busy_first, [])
    sibling.tell(Boom())
    await trio.sleep(20)
    ref.stop()


async def goes_on(system: System, supervisor: Supervisor, ref: Ref[Any]) -> None:
    await trio.sleep(20)


@pytest.mark.parametrize(
    "overflow",
    ["wait", "drop_oldest", latest(lambda message: str(message)[:5])],
    ids=["wait", "drop_oldest", "latest"],
)
@pytest.mark.parametrize(
    ("message", "restart", "end"),
    [
        ("x", "temporary", drains),
        ("x", "temporary", stops),
        ("x", "temporary", supervisor_stops),
        ("x", "temporary", system_stops),
        ("x", "transient", sibling_restarts_all),
        ("x", "temporary", goes_on),
        (Leave(), "temporary", goes_on),
        (Leave(), "permanent", goes_on),
        (Boom(), "temporary", goes_on),
        (Boom(), "transient", goes_on),
        (Boom(), "transient", stops),
    ],
)
@seeds(5)
async def test_every_message_is_accounted_for_however_the_actor_ends_r21(
    message: Any, restart: Any, end: End, overflow: Overflow
) -> None:
    """With messages queued, put aside, refused, given up by their asker and waiting for room."""
    async with open_system() as system:
        strategy: Any = "one_for_all" if end is sibling_restarts_all else "one_for_one"
        supervisor = await system.supervise(name="s", strategy=strategy, restart=restart, backoff=Backoff(0.1))
        ref = await supervisor.spawn(busy_first, [], name="w", mailbox_size=6, overflow=overflow)
        sent = 0

        async def ask(within: float) -> None:
            nonlocal sent
            with trio.move_on_after(30):
                try:
                    sent += 1
                    await ref.ask(Get(), within=within)
                except (ActorGone, AskTimeout, MailboxFull, MessageDropped):
                    pass

        async with trio.open_nursery() as nursery:
            for first in (Aside(), Aside(), "busy"):
                sent += 1
                ref.tell(first)
                await wait_all_tasks_blocked()
            for within in (0.5, 5.0, 0.5):
                nursery.start_soon(ask, within)
            await wait_all_tasks_blocked()
            for n in range(6):
                sent += 1
                ref.tell(message if n == 2 else f"{n}")
            nursery.start_soon(ask, 5.0)
            await trio.sleep(0.7)
            await end(system, supervisor, ref)
        await wait_all_tasks_blocked()
        books = ref.statistics()
        assert books.sent == sent
        assert books.accepted == books.handled + books.expired + books.dropped + books.returned + books.queued
        letters = system.dead_letters.counts
        assert letters[Lost.EXPIRED] == books.expired
        assert letters[Lost.DROPPED] == books.dropped
        assert letters[Lost.RETURNED] == books.returned
        assert letters[Lost.REJECTED] <= books.rejected  # a send or an ask that was refused has raised instead


@pytest.mark.parametrize("crashes", [3, 4])
async def test_ten_messages_behind_the_last_restart_are_handled_or_returned_e22(system: System, crashes: int) -> None:
    log: list[Any] = []
    supervisor = await system.supervise(name="s", restart="transient", intensity=(3, 10.0), backoff=Backoff(0.1))
    ref = await supervisor.spawn(busy_first, log, name="w")
    for _ in range(crashes):
        ref.tell(Boom())
    for n in range(10):
        ref.tell(n)
    await trio.sleep(30)
    returned = [letter.message for letter in system.dead_letters.last]
    expected = list(range(10))
    assert (log[crashes:], returned, ref.alive) == ((expected, [], True) if crashes == 3 else ([], expected, False))
