"""everything-is-an-actor: an actor is an object with an asyncio task. Its `tell` waits where there is no room."""

import asyncio
import time
from typing import Any

from actor_for_agents import Actor, ActorRef, ActorSystem

from bench.messages import Amount, Done, Item, Tally
from bench.peers.sizes import ASKERS, BUFFER, BURST, ROUNDS, WITHIN_S, Growth


class Adder(Actor[Any, Any]):
    """Adds up what it gets."""

    def __init__(self) -> None:
        self.total = 0

    async def on_receive(self, message: Any) -> Any:
        """Match on what came, as all the others do."""
        match message:
            case Item(number=number):
                self.total += number
            case Amount(amount=amount):
                self.total += amount
                return self.total
            case Done(tally=tally):
                tally.add(self.total)
        return None


def tell(n: int) -> float:
    """Return how many messages per second are told and handled, with the mailbox that it has by default."""
    return asyncio.run(_tell(n))


def send(n: int) -> float:
    """Return the same with a mailbox of 64: its `tell` is what waits for room."""
    return asyncio.run(_tell(n, mailbox_size=BUFFER))


async def _tell(n: int, **mailbox: int) -> float:
    system = ActorSystem()
    ref = await system.spawn(Adder, "adder", **mailbox)
    before = time.perf_counter()
    for _ in range(n):
        await ref.tell(Item(1, "text"))
    total = await ref.ask(Amount(0), timeout=WITHIN_S)
    took = time.perf_counter() - before
    await system.shutdown()
    assert total == n
    return n / took


def ask(n: int) -> float:
    """Return how many asks per second are answered, one after the other."""
    return asyncio.run(_ask(n, 1))


def ask64(n: int) -> float:
    """Return the same with 64 askers."""
    return asyncio.run(_ask(n, ASKERS))


async def _ask(n: int, askers: int) -> float:
    system = ActorSystem()
    ref = await system.spawn(Adder, "adder")

    async def ask(count: int) -> None:
        for _ in range(count):
            await ref.ask(Amount(1), timeout=WITHIN_S)

    before = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(askers):
            group.create_task(ask(n // askers))
    took = time.perf_counter() - before
    await system.shutdown()
    return n / took


async def _spawn(system: ActorSystem, n: int, first: int = 0) -> list[ActorRef[Any, Any]]:
    return [await system.spawn(Adder, f"worker-{number}") for number in range(first, first + n)]


def fanout(n: int) -> float:
    """Return how many messages per second are told to `n / 50` actors in turn and handled."""

    receivers = n // ROUNDS

    async def run() -> float:
        system = ActorSystem()
        refs = await _spawn(system, receivers)
        await asyncio.sleep(0)
        handled = asyncio.Event()
        tally = Tally(receivers, handled.set)
        before = time.perf_counter()
        sent = 0
        for _ in range(ROUNDS):
            for ref in refs:
                await ref.tell(Item(1, "text"))
                sent += 1
                if not sent % BURST:
                    await asyncio.sleep(0)
        for ref in refs:
            await ref.tell(Done(tally))
        await handled.wait()
        took = time.perf_counter() - before
        await system.shutdown()
        tally.check(receivers * ROUNDS)
        return receivers * ROUNDS / took

    return asyncio.run(run())


def spawn(n: int) -> float:
    """Return how many actors per second are started, until all of them wait."""

    async def run() -> float:
        system = ActorSystem()
        before = time.perf_counter()
        await _spawn(system, n)
        await asyncio.sleep(0)
        took = time.perf_counter() - before
        await system.shutdown()
        return n / took

    return asyncio.run(run())


def idle(n: int) -> float:
    """Return the bytes that each of `n` idle actors adds to the process."""

    async def run() -> float:
        system = ActorSystem()
        growth = Growth(n)
        await _spawn(system, growth.before)
        await asyncio.sleep(0)
        growth.start()
        await _spawn(system, n, growth.before)
        await asyncio.sleep(0)
        grown = growth.stop()
        await system.shutdown()
        return grown

    return asyncio.run(run())


def stop(n: int) -> float:
    """Return the microseconds per actor until `n` of them are stopped."""

    async def run() -> float:
        system = ActorSystem()
        await _spawn(system, n)
        await asyncio.sleep(0)
        before = time.perf_counter()
        await system.shutdown(timeout=WITHIN_S)
        return (time.perf_counter() - before) / n * 1e6

    return asyncio.run(run())


LOADS = {
    "tell": tell, "send": send, "ask": ask, "ask64": ask64,
    "fanout": fanout, "spawn": spawn, "idle": idle, "stop": stop,
}  # fmt: skip
