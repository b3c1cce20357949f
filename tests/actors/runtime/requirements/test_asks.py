"""What every ask owes to its asker: one end, in time, whatever happens to the actor that is asked."""

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import ActorGone, AskTimeout, Backoff, Ctx, Ref, Replies, Reply, System

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
class Leave:
    pass


@dataclass
class Release:
    pass


Message = Add | Important | Hold | Sleep | Boom | Leave | Release


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
            case Leave():
                return


@dataclass
class Ends:
    """How asks ended, and when."""

    results: dict[str, object]

    async def ask(self, key: str, ref: Ref[Message], message: Add | Hold, within: float = 1e6) -> None:
        try:
            self.results[key] = await ref.ask(message, within=within)
        except (ActorGone, AskTimeout) as error:
            self.results[key] = error


class Batches(trio.abc.Instrument):
    """In which of the scheduler's batches each task was last woken, and in which it ended."""

    def __init__(self) -> None:
        self.now = 0
        self.woken: dict[str, int] = {}
        self.ended: dict[str, int] = {}

    def before_io_wait(self, timeout: float) -> None:
        self.now += 1

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self.woken[task.name] = self.now

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.ended[task.name] = self.now


@asynccontextmanager
async def batches() -> AsyncGenerator[Batches]:
    instrument = Batches()
    trio.lowlevel.add_instrument(instrument)
    try:
        yield instrument
    finally:
        trio.lowlevel.remove_instrument(instrument)


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
    log, ends = Log(), Ends({})
    ref = await system.spawn(worker, log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.ask, "a", ref, Hold())
        await wait_all_tasks_blocked()
        ref.tell(Release())
    assert (log.sent, ends.results) == ([True, False], {"a": "late"})
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


Trigger = Callable[[System, Ref[Message]], None]


@pytest.mark.scheduler_seeds(20)
@pytest.mark.parametrize(
    ("first", "trigger", "reason", "cause"),
    [
        (Boom(), None, "crashed", ValueError),
        (Leave(), None, "returned", type(None)),
        (Add(), lambda system, ref: ref.stop("enough"), "enough", type(None)),
        (Add(), lambda system, ref: system.stop("over"), "over", type(None)),
    ],
    ids=["crash", "return", "stop", "system"],
)
async def test_every_pending_and_queued_asker_hears_of_the_end_in_the_same_batch_r5(
    system: System, first: Message, trigger: Trigger | None, reason: str, cause: type
) -> None:
    ends = Ends({})
    ref = await system.spawn(worker, Log(), name="w", mailbox_size=5)
    async with batches() as seen, trio.open_nursery() as nursery:
        for n in range(2):
            nursery.start_soon(ends.ask, f"pending {n}", ref, Hold(), name=f"pending {n}")
        await wait_all_tasks_blocked()
        ref.tell(Sleep(10))
        await wait_all_tasks_blocked()
        ref.tell(first)
        for n in range(6):  # four have a place, two wait for one
            nursery.start_soon(ends.ask, f"queued {n}", ref, Add(), name=f"queued {n}")
        await trio.sleep(1)
        if trigger is not None:
            trigger(system, ref)
    assert len(ends.results) == 8
    for gone in ends.results.values():
        assert isinstance(gone, ActorGone)
        assert (gone.name, gone.reason, type(gone.cause), gone.__cause__) == ("w", reason, cause, gone.cause)
    queued = {seen.woken[name] for name in ends.results if name.startswith("queued")}
    assert {seen.woken[f"pending {n}"] for n in range(2)} == {seen.ended["actor w"]}
    # Who waited for room has no ask with the actor yet, and may hear of a stop before it is over.
    assert max(queued) == seen.ended["actor w"]


@pytest.mark.scheduler_seeds(20)
async def test_probe_the_handler_raises_while_asks_are_pending_r5(system: System) -> None:
    ends = Ends({})
    supervisor = await system.supervise(name="s", restart="transient", backoff=Backoff(first_s=50.0))
    ref = await supervisor.spawn(worker, Log(), name="w")
    async with batches() as seen, trio.open_nursery() as nursery:
        nursery.start_soon(ends.ask, "pending", ref, Hold(), name="pending")
        await wait_all_tasks_blocked()
        ref.tell(Sleep(1))
        ref.tell(Boom())
        nursery.start_soon(ends.ask, "queued", ref, Add(), name="queued")
    assert trio.current_time() == 1
    assert seen.woken["pending"] == seen.woken["queued"]
    for gone in ends.results.values():
        assert isinstance(gone, ActorGone)
        assert isinstance(gone.__cause__, ValueError)


@pytest.mark.parametrize("size", [0, 1, 2, 64])
async def test_asks_may_be_cancelled_in_any_order_and_the_others_are_answered_r22(system: System, size: int) -> None:
    orders = [order for length in range(1, 5) for order in itertools.permutations(range(4), length)]
    ref = await system.spawn(worker, Log(), mailbox_size=size)

    async def ask(scope: trio.CancelScope, answers: list[int], n: int) -> None:
        with scope:
            answers.append(await ref.ask(Add(n)))

    for order, pause in itertools.product(orders, (False, True)):
        scopes = [trio.CancelScope() for _ in range(4)]
        answers: list[int] = []
        await ref.send(Sleep(1))
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            for n in range(4):
                nursery.start_soon(ask, scopes[n], answers, n)
                await wait_all_tasks_blocked()  # so that they queue in this order
            for n in order:
                scopes[n].cancel()
                if pause:
                    await wait_all_tasks_blocked()
        assert sorted(answers) == [n for n in range(4) if n not in order]  # trio wakes them in any order
        await trio.sleep(2)
    assert (ref.statistics().queued, ref.statistics().tasks_waiting_send) == (0, 0)


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
