"""casty: an actor is a function with an asyncio task, behind a core in Rust that encodes every message.

It takes frozen dataclasses only, so it gets those instead of structs. Its actors start with their first message.
"""

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

from casty import ActorSystem, Askable, Context, Ref, actor

from bench.messages import Tally
from bench.peers.sizes import ASKERS, BURST, ROUNDS, WITHIN_S, Growth


@dataclass(frozen=True)
class Item:
    """One message."""

    number: int
    text: str


@dataclass(frozen=True)
class Add(Askable[int]):
    """A request."""

    amount: int


@dataclass(frozen=True)
class Done:
    """The last message. What is sent is encoded, so the tally cannot be in it."""


_tallies: list[Tally] = []


@actor(initial=0, idle_after=timedelta(hours=1), ask_timeout=timedelta(seconds=WITHIN_S))
async def adder(ctx: Context[int, Item | Add | Done]) -> None:
    """Add up what comes."""
    total = 0
    async for message in ctx.inbox:
        match message:
            case Item(number=number):
                total += number
            case Add(amount=amount):
                total += amount
                message.reply_to.tell(total)
            case Done():
                _tallies[-1].add(total)


async def _started(system: ActorSystem, n: int, first: int = 0) -> list[Ref[Item | Add | Done]]:
    refs = [system.ref(adder, f"worker-{number}") for number in range(first, first + n)]
    for ref in refs:
        await ref.ask(Add(0))
    return refs


def tell(n: int) -> float:
    """Return how many messages per second are told and handled."""

    async def run() -> float:
        async with ActorSystem() as system:
            (ref,) = await _started(system, 1)
            before = time.perf_counter()
            for _ in range(n):
                ref.tell(Item(1, "text"))
            total = await ref.ask(Add(0))
            took = time.perf_counter() - before
        assert total == n
        return n / took

    return asyncio.run(run())


def ask(n: int) -> float:
    """Return how many asks per second are answered, one after the other."""
    return asyncio.run(_ask(n, 1))


def ask64(n: int) -> float:
    """Return the same with 64 askers."""
    return asyncio.run(_ask(n, ASKERS))


async def _ask(n: int, askers: int) -> float:
    async with ActorSystem() as system:
        (ref,) = await _started(system, 1)

        async def ask(count: int) -> None:
            for _ in range(count):
                await ref.ask(Add(1))

        before = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(askers):
                group.create_task(ask(n // askers))
        took = time.perf_counter() - before
    return n / took


def fanout(n: int) -> float:
    """Return how many messages per second are told to `n / 50` actors in turn and handled."""

    receivers = n // ROUNDS

    async def run() -> float:
        async with ActorSystem() as system:
            refs = await _started(system, receivers)
            handled = asyncio.Event()
            tally = Tally(receivers, handled.set)
            _tallies.append(tally)
            before = time.perf_counter()
            sent = 0
            for _ in range(ROUNDS):
                for ref in refs:
                    ref.tell(Item(1, "text"))
                    sent += 1
                    if not sent % BURST:
                        await asyncio.sleep(0)
            for ref in refs:
                ref.tell(Done())
            await handled.wait()
            took = time.perf_counter() - before
        tally.check(receivers * ROUNDS)
        return receivers * ROUNDS / took

    return asyncio.run(run())


def spawn(n: int) -> float:
    """Return how many actors per second are started, each by the answer to its first ask."""

    async def run() -> float:
        async with ActorSystem() as system:
            before = time.perf_counter()
            await _started(system, n)
            took = time.perf_counter() - before
        return n / took

    return asyncio.run(run())


def idle(n: int) -> float:
    """Return the bytes that each of `n` idle actors adds to the process."""

    async def run() -> float:
        async with ActorSystem() as system:
            growth = Growth(n)
            refs = await _started(system, growth.before)
            growth.start()
            refs += await _started(system, n, growth.before)
            return growth.stop()

    return asyncio.run(run())


def stop(n: int) -> float:
    """Return the microseconds per actor until a system of `n` of them has ended."""

    async def run() -> float:
        async with ActorSystem() as system:
            refs = await _started(system, n)
            before = time.perf_counter()
        return (time.perf_counter() - before) / len(refs) * 1e6

    return asyncio.run(run())


LOADS = {"tell": tell, "ask": ask, "ask64": ask64, "fanout": fanout, "spawn": spawn, "idle": idle, "stop": stop}
