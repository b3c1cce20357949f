"""The references of `runtime/*`: what one would write with trio's own parts. It must not import the library.

The receivers match on the same messages and do the same with them as the actors do. None of them can be asked who it
is, has a name to be found by, or is restarted.
"""

import gc
import time
from collections.abc import Awaitable, Callable

import trio
import trio.testing
from msgspec import Struct

from bench.loop import LongestHold
from bench.messages import Done, Item, Tally

BUFFER = 64
#: How many messages a sender that never waits sends before it lets others run.
BURST = 64
ANSWER_WITHIN_S = 5.0

Message = Item | Done


class Add(Struct):
    """A request, with the channel that its answer goes into."""

    amount: int
    reply: trio.MemorySendChannel[int]


async def _add_up(receive: trio.MemoryReceiveChannel[Message]) -> None:
    total = 0
    async for message in receive:
        match message:
            case Item(number=number):
                total += number
            case Done(tally=tally):
                tally.add(total)


async def _answer(receive: trio.MemoryReceiveChannel[Add]) -> None:
    total = 0
    async for message in receive:
        match message:
            case Add(amount=amount, reply=reply):
                total += amount
                reply.send_nowait(total)


async def _idle(receive: trio.MemoryReceiveChannel[Message]) -> None:
    async for _ in receive:
        pass


async def _idle_in_scope(receive: trio.MemoryReceiveChannel[Message], scope: trio.CancelScope) -> None:
    with scope:
        async for _ in receive:
            pass


async def _start_idle_in_scope(
    receive: trio.MemoryReceiveChannel[Message], scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]
) -> None:
    with scope:
        task_status.started()
        async for _ in receive:
            pass


def items_per_second(n: int) -> float:
    """Return how many messages per second go through a channel: `await send`, and `await receive` by `async for`."""

    async def run() -> float:
        send, receive = trio.open_memory_channel[Message](BUFFER)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_add_up, receive)
            await trio.testing.wait_all_tasks_blocked()
            handled = trio.Event()
            tally = Tally(1, handled.set)
            gc.collect()
            before = time.perf_counter()
            for _ in range(n):
                await send.send(Item(1, "text"))
            await send.send(Done(tally))
            await handled.wait()
            took = time.perf_counter() - before
            nursery.cancel_scope.cancel()
        tally.check(n)
        return n / took

    return trio.run(run)


def asks_per_second(n: int, askers: int) -> float:
    """Return how many requests per second are answered, each through a channel of its own and within `fail_after`."""

    async def run() -> float:
        requests, receive = trio.open_memory_channel[Add](BUFFER)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_answer, receive)

            async def ask(count: int) -> None:
                for _ in range(count):
                    reply, answer = trio.open_memory_channel[int](1)
                    with trio.fail_after(ANSWER_WITHIN_S):
                        await requests.send(Add(1, reply))
                        await answer.receive()

            took = await time_askers(ask, n, askers)
            nursery.cancel_scope.cancel()
        return n / took

    return trio.run(run)


async def time_askers(ask: Callable[[int], Awaitable[None]], n: int, askers: int) -> float:
    """Let `askers` tasks ask `n` times together, and return how many seconds that takes."""
    await trio.testing.wait_all_tasks_blocked()
    gc.collect()
    before = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(askers):
            nursery.start_soon(ask, n // askers)
    return time.perf_counter() - before


def fanout_per_second(n: int, receivers: int) -> float:
    """Return how many messages per second one sender hands to `receivers` tasks in turn, by `send_nowait`."""

    async def run() -> float:
        ends: list[trio.MemorySendChannel[Message]] = []
        async with trio.open_nursery() as nursery:
            for _ in range(receivers):
                send, receive = trio.open_memory_channel[Message](BUFFER)
                ends.append(send)
                nursery.start_soon(_add_up, receive)
            await trio.testing.wait_all_tasks_blocked()
            handled = trio.Event()
            tally = Tally(receivers, handled.set)
            gc.collect()
            before = time.perf_counter()
            sent = 0
            for _ in range(n // receivers):
                for end in ends:
                    end.send_nowait(Item(1, "text"))
                    sent += 1
                    if not sent % BURST:
                        await trio.lowlevel.checkpoint()
            for end in ends:
                end.send_nowait(Done(tally))
            await handled.wait()
            took = time.perf_counter() - before
            nursery.cancel_scope.cancel()
        tally.check(sent)
        return sent / took

    return trio.run(run)


def spawns_per_second(n: int) -> float:
    """Return how many tasks per second are started, each with a channel and a cancel scope, until all of them wait."""

    async def run() -> float:
        async with trio.open_nursery() as nursery:
            ends: list[trio.MemorySendChannel[Message]] = []
            gc.collect()
            before = time.perf_counter()
            for _ in range(n):
                send, receive = trio.open_memory_channel[Message](BUFFER)
                ends.append(send)
                nursery.start_soon(_idle_in_scope, receive, trio.CancelScope())
            await trio.testing.wait_all_tasks_blocked()
            took = time.perf_counter() - before
            nursery.cancel_scope.cancel()
        return n / took

    return trio.run(run)


def starts_per_second(n: int) -> float:
    """Return the same, one after the other: `nursery.start` returns when the task says that it is ready."""

    async def run() -> float:
        async with trio.open_nursery() as nursery:
            ends: list[trio.MemorySendChannel[Message]] = []
            gc.collect()
            before = time.perf_counter()
            for _ in range(n):
                send, receive = trio.open_memory_channel[Message](BUFFER)
                ends.append(send)
                await nursery.start(_start_idle_in_scope, receive, trio.CancelScope())
            await trio.testing.wait_all_tasks_blocked()
            took = time.perf_counter() - before
            nursery.cancel_scope.cancel()
        return n / took

    return trio.run(run)


async def park_tasks(n: int, nursery: trio.Nursery, ends: list[trio.MemorySendChannel[Message]]) -> None:
    """Start `n` tasks that wait at a channel of their own, and keep the other ends."""
    for _ in range(n):
        send, receive = trio.open_memory_channel[Message](BUFFER)
        ends.append(send)
        nursery.start_soon(_idle, receive)
    await trio.testing.wait_all_tasks_blocked()


def stop(n: int) -> tuple[float, float]:
    """Cancel `n` named tasks that wait, each in a scope of its own, by one cancel around them all.

    Returns:
        Microseconds per task until all have ended, and the longest hold of the loop meanwhile, in milliseconds.
    """

    async def run() -> tuple[float, float]:
        ends: list[trio.MemorySendChannel[Message]] = []
        hold = LongestHold()
        async with trio.open_nursery() as nursery:
            for number in range(n):
                send, receive = trio.open_memory_channel[Message](BUFFER)
                ends.append(send)
                nursery.start_soon(_idle_in_scope, receive, trio.CancelScope(), name=f"worker-{number}")
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            hold.start()
            before = time.perf_counter()
            nursery.cancel_scope.cancel()
        took = time.perf_counter() - before
        hold.stop()
        return took / n * 1e6, hold.longest_s * 1e3

    return trio.run(run)
