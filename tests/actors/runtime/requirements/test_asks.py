"""What every ask owes to its asker: one end, in time, whatever happens to the actor that is asked."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import AskTimeout, Backoff, Ctx, Ref, Replies, Reply, System

#: Seconds by which a deadline may be late: one tick of a wheel that serves them in steps.
TICK_S = 0.02


@dataclass
class Add(Replies[int]):
    n: int = 7


@dataclass
class Important(Replies[int]):
    handle_abandoned = True


@dataclass
class Hold(Replies[str]):
    """Kept, and never answered by itself."""


@dataclass
class Sleep:
    seconds: float


@dataclass
class Boom:
    pass


@dataclass
class Release:
    pass


Message = Add | Important | Hold | Sleep | Boom | Release


class Log:
    def __init__(self) -> None:
        self.starts = 0
        self.handled: list[object] = []
        self.sent: list[bool] = []


async def worker(ctx: Ctx[Message], log: Log) -> None:
    log.starts += 1
    kept: list[Hold] = []
    async for message in ctx:
        log.handled.append(message)
        match message:
            case Add(n):
                message.reply.send(n)
            case Important():
                message.reply.send(1)
            case Hold():
                kept.append(message)
            case Sleep(seconds):
                await trio.sleep(seconds)
            case Boom():
                raise ValueError("boom")
            case Release():
                log.sent += [held.reply.send("late") for held in kept for _ in range(2)]
                kept.clear()


async def asks_time_out(ref: Ref[Message], queued: int, handling: str | None) -> None:
    began = trio.current_time()
    with pytest.raises(AskTimeout) as caught:
        await ref.ask(Hold(), within=1.5)
    assert 1.5 <= trio.current_time() - began <= 1.5 + TICK_S
    assert (caught.value.name, caught.value.queued, caught.value.handling) == ("w", queued, handling)


async def test_probe_ask_timeout_actor_busy_r1(system: System) -> None:
    ref = await system.spawn(worker, Log(), name="w")
    ref.tell(Sleep(100))
    ref.tell(Add())
    await asks_time_out(ref, 2, "Sleep")


@pytest.mark.parametrize("size", [0, 3])
async def test_probe_ask_timeout_mailbox_full_r1(system: System, size: int) -> None:
    ref = await system.spawn(worker, Log(), name="w", mailbox_size=size)
    ref.tell(Sleep(100))
    await wait_all_tasks_blocked()
    while ref.tell(Add()):
        pass
    await asks_time_out(ref, size, "Sleep")


async def test_an_ask_whose_reply_is_lost_times_out_r1(system: System) -> None:
    ref = await system.spawn(worker, Log(), name="w")
    await asks_time_out(ref, 0, None)


async def test_an_ask_of_an_actor_that_waits_to_be_restarted_times_out_r1(system: System) -> None:
    supervisor = await system.supervise(name="s", restart="transient", backoff=Backoff(first_s=100.0, jitter=0.0))
    ref = await supervisor.spawn(worker, Log(), name="w")
    ref.tell(Boom())
    await wait_all_tasks_blocked()
    await asks_time_out(ref, 1, None)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_an_ask_without_time_ends_at_once_r1(system: System, seconds: float) -> None:
    ref = await system.spawn(worker, Log(), name="w")
    ref.tell(Sleep(100))
    with pytest.raises(AskTimeout):
        await ref.ask(Add(), within=seconds)
    assert trio.current_time() <= TICK_S


@pytest.mark.parametrize("leave", ["cancelled", "timed out"])
async def test_what_an_asker_that_has_gone_asked_is_skipped_unless_its_type_says_otherwise_r2(
    system: System, leave: str
) -> None:
    log = Log()
    ref = await system.spawn(worker, log)
    ref.tell(Sleep(10))
    answers: list[int] = []

    async def gives_up(message: Add | Important) -> None:
        with trio.move_on_after(1 if leave == "cancelled" else 100):
            with pytest.raises(AskTimeout):
                await ref.ask(message, within=1 if leave == "timed out" else 100)

    async def stays() -> None:
        answers.append(await ref.ask(Add(5)))

    async with trio.open_nursery() as nursery:
        for message in (Add(0), Important(), Add(0)):
            nursery.start_soon(gives_up, message)
        nursery.start_soon(stays)
    assert answers == [5]
    await wait_all_tasks_blocked()
    assert sorted(map(repr, log.handled)) == sorted(map(repr, [Sleep(10), Important(), Add(5)]))
    books = ref.statistics()
    assert (books.accepted, books.handled, books.expired) == (5, 3, 2)


async def test_probe_the_asker_gives_up_and_the_handler_answers_later_r4(system: System) -> None:
    log, got = Log(), []
    ref = await system.spawn(worker, log)

    async def asker(ctx: Ctx[str]) -> None:
        with pytest.raises(AskTimeout):
            await ref.ask(Hold(), within=1)
        async for message in ctx:
            got.append(message)

    asking = await system.spawn(asker)
    await trio.sleep(2)
    ref.tell(Release())
    await wait_all_tasks_blocked()
    assert log.sent == [False, False]
    assert got == []
    assert asking.statistics().accepted == 0
    assert await ref.ask(Add(3)) == 3
    assert system.statistics().late_replies == 1


async def test_a_reply_to_an_asker_that_was_stopped_goes_nowhere_r4(system: System) -> None:
    log = Log()
    ref = await system.spawn(worker, log)

    async def asker(ctx: Ctx[str]) -> None:
        ctx.ready()
        await ref.ask(Hold())

    asking = await system.spawn(asker)
    await wait_all_tasks_blocked()
    asking.stop()
    await asking.join()
    ref.tell(Release())
    assert await ref.ask(Add(3)) == 3
    assert log.sent == [False, False]


async def test_only_the_first_reply_counts_r4(system: System) -> None:
    log = Log()
    answers: list[str] = []
    ref = await system.spawn(worker, log)

    async def ask() -> None:
        answers.append(await ref.ask(Hold()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        ref.tell(Release())
    assert (log.sent, answers) == ([True, False], ["late"])
    assert system.statistics().late_replies == 0


async def test_probe_the_asker_is_cancelled_and_the_handler_runs_on(system: System) -> None:
    steps: list[object] = []

    async def slow(ctx: Ctx[Add]) -> None:
        handled = 0
        async for message in ctx:
            await trio.sleep(5)
            handled += 1
            steps.append((handled, message.reply.abandoned))
            message.reply.send(handled)

    ref = await system.spawn(slow)
    with trio.move_on_after(1):
        await ref.ask(Add())
    assert await ref.ask(Add()) == 2
    assert steps == [(1, True), (2, False)]


async def test_two_tasks_that_are_no_actors_use_the_same_reply_r26() -> None:
    answers: list[object] = []

    async def asks(work: Callable[[Reply[int]], Awaitable[None]]) -> None:
        reply: Reply[int] = Reply()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, reply)
            try:
                answers.append(await reply.wait())
            except ValueError as error:
                answers.append(error)

    async def answer(reply: Reply[Any]) -> None:
        answers.append((reply.send(1), reply.send(2), reply.fail(ValueError("late")), reply.settled))

    async def refuse(reply: Reply[Any]) -> None:
        reply.fail(error)

    error = ValueError("no")
    await asks(answer)
    await asks(refuse)
    assert answers == [(True, False, False, True), 1, error]
    reply: Reply[int] = Reply()
    with trio.move_on_after(0):
        await reply.wait()
    assert (reply.abandoned, reply.send(3)) == (True, False)
