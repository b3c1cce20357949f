"""The same loads on actors: what `bench.raw` does with trio's own parts, and `bench.peers` with other libraries."""

import gc
import time

import trio
import trio.testing
from msgspec import Struct

from actors.runtime import Ctx, Ref, Replies, System, open_system
from bench.loop import LongestHold
from bench.messages import Done, Item, Tally
from bench.raw import ANSWER_WITHIN_S, BUFFER, BURST, time_askers

Message = Item | Done


class Add(Replies[int], Struct):
    """A request: add `amount` up and answer with the sum."""

    amount: int


async def _add_up(ctx: Ctx[Message]) -> None:
    total = 0
    async for message in ctx:
        match message:
            case Item(number=number):
                total += number
            case Done(tally=tally):
                tally.add(total)


async def _answer(ctx: Ctx[Add]) -> None:
    total = 0
    async for message in ctx:
        match message:
            case Add(amount=amount):
                total += amount
                message.reply.send(total)


async def idle(ctx: Ctx[Message]) -> None:
    """Wait for messages and do nothing with them."""
    async for _ in ctx:
        pass


def tells_per_second(n: int) -> float:
    """Return how many messages per second are told and handled; where there is no room, one is sent instead."""

    async def run() -> float:
        async with open_system() as system:
            ref = await system.spawn(_add_up, mailbox_size=BUFFER)
            handled = trio.Event()
            tally = Tally(1, handled.set)
            gc.collect()
            before = time.perf_counter()
            for _ in range(n):
                message = Item(1, "text")
                if not ref.tell(message):
                    await ref.send(message)
            await ref.send(Done(tally))
            await handled.wait()
            took = time.perf_counter() - before
        tally.check(n)
        return n / took

    return trio.run(run)


def sends_per_second(n: int) -> float:
    """Return how many messages per second are sent, each by `await ref.send`, and handled."""

    async def run() -> float:
        async with open_system() as system:
            ref = await system.spawn(_add_up, mailbox_size=BUFFER)
            handled = trio.Event()
            tally = Tally(1, handled.set)
            gc.collect()
            before = time.perf_counter()
            for _ in range(n):
                await ref.send(Item(1, "text"))
            await ref.send(Done(tally))
            await handled.wait()
            took = time.perf_counter() - before
        tally.check(n)
        return n / took

    return trio.run(run)


def asks_per_second(n: int, askers: int) -> float:
    """Return how many asks per second are answered, each with a deadline, by one actor."""

    async def run() -> float:
        async with open_system() as system:
            ref = await system.spawn(_answer, mailbox_size=BUFFER)

            async def ask(count: int) -> None:
                for _ in range(count):
                    await ref.ask(Add(1), within=ANSWER_WITHIN_S)

            return n / await time_askers(ask, n, askers)

    return trio.run(run)


def fanout_per_second(n: int, receivers: int) -> float:
    """Return how many messages per second one sender tells `receivers` actors in turn."""

    async def run() -> float:
        async with open_system() as system:
            refs: list[Ref[Message]] = [await system.spawn(_add_up, mailbox_size=BUFFER) for _ in range(receivers)]
            handled = trio.Event()
            tally = Tally(receivers, handled.set)
            gc.collect()
            before = time.perf_counter()
            sent = 0
            for _ in range(n // receivers):
                for ref in refs:
                    ref.tell(Item(1, "text"))
                    sent += 1
                    if not sent % BURST:
                        await trio.lowlevel.checkpoint()
            for ref in refs:
                ref.tell(Done(tally))
            await handled.wait()
            took = time.perf_counter() - before
        tally.check(sent)
        return sent / took

    return trio.run(run)


def spawns_per_second(n: int, *, ready: bool) -> float:
    """Return how many actors per second are spawned until all of them wait.

    Args:
        n: How many.
        ready: Each is waited for until it is ready, before the next is spawned; else they get ready together.
    """

    async def run() -> float:
        async with open_system() as system:
            gc.collect()
            before = time.perf_counter()
            if ready:
                refs = [await system.spawn(idle, mailbox_size=BUFFER) for _ in range(n)]
            else:
                refs = [system.spawn_nowait(idle, mailbox_size=BUFFER) for _ in range(n)]
            await trio.testing.wait_all_tasks_blocked()
            took = time.perf_counter() - before
            return len(refs) / took

    return trio.run(run)


async def spawn_idle(n: int, system: System, refs: list[Ref[Message]]) -> None:
    """Start `n` actors that wait for messages, and keep their handles."""
    for _ in range(n):
        refs.append(await system.spawn(idle, mailbox_size=BUFFER))
    await trio.testing.wait_all_tasks_blocked()


def stop(n: int) -> tuple[float, float]:
    """Stop a dynamic supervisor of `n` named actors that wait.

    Returns:
        Microseconds per actor until all have ended, and the longest hold of the loop meanwhile, in milliseconds.
    """

    async def run() -> tuple[float, float]:
        hold = LongestHold()
        async with open_system() as system:
            supervisor = await system.supervise(name="workers", max_children=n)
            for number in range(n):
                await supervisor.spawn(idle, name=f"worker-{number}", mailbox_size=BUFFER)
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            hold.start()
            before = time.perf_counter()
            supervisor.stop("it is measured")
            await supervisor.join()
            took = time.perf_counter() - before
            hold.stop()
        return took / n * 1e6, hold.longest_s * 1e3

    return trio.run(run)
