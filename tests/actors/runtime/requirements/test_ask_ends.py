"""Every ask has one end, and in time: of an actor that ends, and of one whose other askers go away."""

import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import ActorGone, Backoff, Ctx, Ref, Replies, System


@dataclass
class Add(Replies[int]):
    n: int = 7


@dataclass
class Hold(Replies[int]):
    """Kept, and never answered."""


@dataclass
class Sleep:
    seconds: float


@dataclass
class Boom:
    pass


@dataclass
class Leave:
    pass


Message = Add | Hold | Sleep | Boom | Leave


async def worker(ctx: Ctx[Message]) -> None:
    kept: list[Hold] = []
    async for message in ctx:
        match message:
            case Add(n):
                message.reply.send(n)
            case Hold():
                kept.append(message)
            case Sleep(seconds):
                await trio.sleep(seconds)
            case Boom():
                raise ValueError("boom")
            case Leave():
                return


class Ends(dict[str, object]):
    """How asks ended."""

    async def ask(self, key: str, ref: Ref[Message], message: Add | Hold) -> None:
        try:
            self[key] = await ref.ask(message)
        except ActorGone as error:
            self[key] = error


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
    ends = Ends()
    ref = await system.spawn(worker, name="w", mailbox_size=5)
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
    assert len(ends) == 8
    for gone in ends.values():
        assert isinstance(gone, ActorGone)
        assert (gone.name, gone.reason, type(gone.cause), gone.__cause__) == ("w", reason, cause, gone.cause)
    queued = {seen.woken[name] for name in ends if name.startswith("queued")}
    assert {seen.woken[f"pending {n}"] for n in range(2)} == {seen.ended["actor w"]}
    # Who waited for room has no ask with the actor yet, and may hear of a stop before it is over.
    assert max(queued) == seen.ended["actor w"]


@pytest.mark.scheduler_seeds(20)
async def test_probe_the_handler_raises_while_asks_are_pending_r5(system: System) -> None:
    ends = Ends()
    supervisor = await system.supervise(name="s", restart="transient", backoff=Backoff(first_s=50.0))
    ref = await supervisor.spawn(worker, name="w")
    async with batches() as seen, trio.open_nursery() as nursery:
        nursery.start_soon(ends.ask, "pending", ref, Hold(), name="pending")
        await wait_all_tasks_blocked()
        ref.tell(Sleep(1))
        ref.tell(Boom())
        nursery.start_soon(ends.ask, "queued", ref, Add(), name="queued")
    assert trio.current_time() == 1
    assert seen.woken["pending"] == seen.woken["queued"]
    for gone in ends.values():
        assert isinstance(gone, ActorGone)
        assert isinstance(gone.__cause__, ValueError)


@pytest.mark.parametrize("size", [0, 1, 2, 64])
async def test_asks_may_be_cancelled_in_any_order_and_the_others_are_answered_r22(system: System, size: int) -> None:
    orders = [order for length in range(1, 5) for order in itertools.permutations(range(4), length)]
    ref = await system.spawn(worker, mailbox_size=size)

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
