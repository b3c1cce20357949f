"""pykka: an actor is an object with a thread. Its inbox has no bound."""

import threading
import time
from typing import Any

import pykka

from bench.messages import Amount, Done, Item, Tally
from bench.peers.sizes import ASKERS, ROUNDS, WITHIN_S, Growth


class Adder(pykka.ThreadingActor):
    """Adds up what it gets."""

    use_daemon_thread = True  # a bench that fails ends all the same

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def on_receive(self, message: Any) -> Any:
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
    """Return how many messages per second are told and handled."""
    ref = Adder.start()
    before = time.perf_counter()
    for _ in range(n):
        ref.tell(Item(1, "text"))
    total = ref.ask(Amount(0))
    took = time.perf_counter() - before
    ref.stop()
    assert total == n
    return n / took


def ask(n: int) -> float:
    """Return how many asks per second are answered, one after the other."""
    ref = Adder.start()
    ref.ask(Amount(0))
    before = time.perf_counter()
    for _ in range(n):
        ref.ask(Amount(1), timeout=WITHIN_S)
    took = time.perf_counter() - before
    ref.stop()
    return n / took


def ask64(n: int) -> float:
    """Return how many asks per second are answered with 64 of them open."""
    ref = Adder.start()
    ref.ask(Amount(0))
    before = time.perf_counter()
    for _ in range(n // ASKERS):
        for future in [ref.ask(Amount(1), block=False) for _ in range(ASKERS)]:
            future.get(timeout=WITHIN_S)
    took = time.perf_counter() - before
    ref.stop()
    return n / took


def fanout(n: int) -> float:
    """Return how many messages per second are told to `n / 50` actors in turn and handled."""
    receivers = n // ROUNDS
    refs = [Adder.start() for _ in range(receivers)]
    handled = threading.Event()
    tally = Tally(receivers, handled.set)
    before = time.perf_counter()
    for _ in range(ROUNDS):
        for ref in refs:
            ref.tell(Item(1, "text"))
    for ref in refs:
        ref.tell(Done(tally))
    handled.wait()
    took = time.perf_counter() - before
    pykka.ActorRegistry.stop_all()
    tally.check(receivers * ROUNDS)
    return receivers * ROUNDS / took


def spawn(n: int) -> float:
    """Return how many actors per second are started."""
    before = time.perf_counter()
    for _ in range(n):
        Adder.start()
    took = time.perf_counter() - before
    pykka.ActorRegistry.stop_all()
    return n / took


def idle(n: int) -> float:
    """Return the bytes that each of `n` idle actors adds to the process."""
    growth = Growth(n)
    for _ in range(growth.before):
        Adder.start()
    growth.start()
    for _ in range(n):
        Adder.start()
    return growth.stop()


def stop(n: int) -> float:
    """Return the microseconds per actor until `n` of them are stopped."""
    for _ in range(n):
        Adder.start()
    before = time.perf_counter()
    pykka.ActorRegistry.stop_all()
    return (time.perf_counter() - before) / n * 1e6


LOADS = {"tell": tell, "ask": ask, "ask64": ask64, "fanout": fanout, "spawn": spawn, "idle": idle, "stop": stop}
