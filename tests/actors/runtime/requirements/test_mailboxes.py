"""What a mailbox owes to both sides: a bound, an order, and an account of every message."""

import gc
import math
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import (
    ActorGone,
    Ctx,
    Down,
    Lost,
    MailboxFull,
    Overflow,
    Ref,
    Replies,
    System,
    latest,
    open_mailbox,
)


@dataclass
class Get(Replies[int]):
    pass


@dataclass(frozen=True)
class Cursor:
    user: str
    at: int


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
            case _:
                pass


async def stalled(ctx: Ctx[Any]) -> None:
    ctx.ready()
    await trio.sleep_forever()


# What overtakes.


@pytest.mark.scheduler_seeds(5)
async def test_a_down_is_handled_before_ten_thousand_queued_messages_r8(system: System) -> None:
    log: list[Any] = []

    async def watching(ctx: Ctx[Any], other: Ref[Any]) -> None:
        ctx.watch(other)
        await busy_first(ctx, log)

    other = await system.spawn(stalled)
    ref = await system.spawn(watching, other, mailbox_size=10_000)
    ref.tell("busy")
    await wait_all_tasks_blocked()
    assert [ref.tell(n) for n in range(10_000)].count(True) == 10_000
    other.stop("gone")
    assert await ref.ask(Get()) == 10_003
    assert isinstance(log[1], Down)
    assert (log[1].ref, log[1].reason) == (other, "gone")
    assert log[2:-1] == list(range(10_000))


@pytest.mark.scheduler_seeds(5)
@pytest.mark.parametrize("queued", [5_000, 10_000])
async def test_probe_a_stop_overtakes_the_backlog_r8(system: System, queued: int) -> None:
    log: list[Any] = []
    ref = await system.spawn(busy_first, log, mailbox_size=queued)
    ref.tell("busy")
    await wait_all_tasks_blocked()
    assert [ref.tell(n) for n in range(queued)].count(True) == queued
    ref.stop()
    await ref.join()
    assert log == ["busy"]
    assert trio.current_time() == 0
    assert ref.statistics().returned == queued


async def test_an_actor_that_stops_itself_takes_no_further_message_r8(system: System) -> None:
    log: list[int] = []

    async def stops(ctx: Ctx[int]) -> None:
        async for n in ctx:
            log.append(n)
            if n == 3:
                ctx.self.stop("enough")

    ref = await system.spawn(stops)
    for n in range(20):
        ref.tell(n)
    await ref.join()
    assert log == [0, 1, 2, 3]


# Bounds.


@pytest.mark.parametrize("size", [math.inf, None, -1, 10.0])
async def test_there_is_no_unbounded_mailbox_r16(system: System, size: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="max_buffer_size"):
        await system.spawn(stalled, mailbox_size=size, name="w")
    with pytest.raises((TypeError, ValueError), match="max_buffer_size"):
        open_mailbox(size)
    ref = await system.spawn(stalled, name="w")  # the name is free
    assert [ref.tell(n) for n in range(100)].count(True) == 64


@pytest.mark.parametrize(
    ("overflow", "tells"),
    [("wait", 1_000_000), ("reject", 100_000), ("drop_oldest", 100_000), (latest(lambda n: n % 64), 100_000)],
    ids=["wait", "reject", "drop_oldest", "latest"],
)
async def test_tells_to_a_stalled_actor_keep_nothing_and_each_is_counted_r16(
    system: System, overflow: Overflow, tells: int
) -> None:
    ref = await system.spawn(stalled, overflow=overflow)
    for n in range(1000):
        ref.tell(n)
    gc.collect()
    before = sys.getallocatedblocks()
    for n in range(1000, tells):
        ref.tell(n)
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000
    books = ref.statistics()
    assert (books.sent, books.queued) == (tells, 64)
    assert system.dead_letters.count == books.rejected + books.dropped == tells - 64


async def test_tell_never_raises_for_overflow_and_send_is_the_one_that_waits_r17(system: System) -> None:
    log: list[Any] = []
    sender_of_the_tells: list[bool] = []
    ref = await system.spawn(busy_first, log, name="w", mailbox_size=2)
    ref.tell("busy")
    await wait_all_tasks_blocked()

    async def tells(ctx: Ctx[int]) -> None:
        sender_of_the_tells.extend(ref.tell(n) for n in range(5))
        await ctx.receive()

    sender = await system.spawn(tells)
    assert sender_of_the_tells == [True, True, False, False, False]
    assert sender.alive
    letters = [(letter.name, letter.message, letter.how, letter.reason) for letter in system.dead_letters.last]
    assert letters == [("w", n, Lost.REJECTED, "its mailbox is full") for n in (2, 3, 4)]
    await ref.send(5)
    assert trio.current_time() == 1
    await wait_all_tasks_blocked()
    assert log == ["busy", 0, 1, 5]


def odd_or_even(message: Any) -> int | None:
    return message % 2 if isinstance(message, int) else None


@pytest.mark.parametrize(
    ("overflow", "told", "handled", "lost"),
    [
        ("wait", "TTTFF", [1, 2, 3], [(4, Lost.REJECTED), (5, Lost.REJECTED)]),
        ("reject", "TTTFF", [1, 2, 3], [(4, Lost.REJECTED), (5, Lost.REJECTED)]),
        ("drop_oldest", "TTTTT", [3, 4, 5], [(1, Lost.DROPPED), (2, Lost.DROPPED)]),
        (latest(odd_or_even), "TTTTT", [5, 4], [(1, Lost.DROPPED), (2, Lost.DROPPED), (3, Lost.DROPPED)]),
    ],
    ids=["wait", "reject", "drop_oldest", "latest"],
)
async def test_probe_overflow_by_tell_follows_the_policy_in_order_and_in_what_it_reports_r18(
    system: System, overflow: Overflow, told: str, handled: list[int], lost: list[tuple[int, Lost]]
) -> None:
    log: list[Any] = []
    ref = await system.spawn(busy_first, log, mailbox_size=3, overflow=overflow)
    ref.tell("busy")
    await wait_all_tasks_blocked()
    assert "".join("FT"[ref.tell(n)] for n in range(1, 6)) == told
    assert [(letter.message, letter.how) for letter in system.dead_letters.last] == lost
    await trio.sleep(2)
    assert log == ["busy", *handled]
    books = ref.statistics()
    assert (books.dropped, books.rejected) == (
        sum(how is Lost.DROPPED for _, how in lost),
        sum(how is Lost.REJECTED for _, how in lost),
    )


async def test_the_newest_of_each_key_is_kept_in_the_place_of_the_first_r18(system: System) -> None:
    log: list[Any] = []
    by_user: Overflow = latest(lambda message: message.user if isinstance(message, Cursor) else None)
    ref = await system.spawn(busy_first, log, mailbox_size=3, overflow=by_user)
    ref.tell("busy")
    await wait_all_tasks_blocked()
    for at in range(1000):
        assert ref.tell(Cursor("ann", at))
        assert ref.tell(Cursor("bob", at))
    assert ref.tell("other")
    assert not ref.tell("no room")
    assert ref.tell(Cursor("ann", 1000))
    await trio.sleep(2)
    assert log == ["busy", Cursor("ann", 1000), Cursor("bob", 999), "other"]
    assert ref.statistics().dropped == 999 + 1 + 999


async def test_a_send_is_refused_by_the_policy_that_rejects_r18(system: System) -> None:
    ref = await system.spawn(stalled, name="w", mailbox_size=1, overflow="reject")
    await ref.send(1)
    with pytest.raises(MailboxFull, match=r"^the mailbox of actor 'w' is full and rejects"):
        await ref.send(2)
    with pytest.raises(MailboxFull):
        await ref.ask(Get())
    assert ref.statistics().rejected == 2


async def test_probe_a_tell_after_a_stop_was_requested_is_refused_and_a_dead_letter_r17(system: System) -> None:
    ref = await system.spawn(stalled, name="w")
    ref.stop("enough")
    assert not ref.tell("late")  # requested, and not over yet
    with pytest.raises(ActorGone, match=r"^actor 'w' is gone: enough$"):
        await ref.ask(Get())
    with pytest.raises(ActorGone, match=r"^actor 'w' is gone: enough$"):
        await ref.send("late")
    await ref.join()
    assert not ref.tell("too late")
    assert [letter.message for letter in system.dead_letters.last] == ["late", "too late"]
