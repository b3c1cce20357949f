"""What the loads of all peers have in common: their sizes, and how a process is seen to grow."""

import gc
import random

ASKERS = 64
ROUNDS = 50  # of a fan-out: how many messages each receiver gets
BUFFER = 64
BURST = 64
WITHIN_S = 60.0
#: Of `cancel/*`: what a session of the library has, as `bench.shape` counts it.
TASKS_PER_SESSION = 2
CANCELS = 1_000  # of one session, one after the other


def order(n: int, samples: int = CANCELS) -> list[int]:
    """Return which of `n` sessions are cancelled: scattered, always the same, each once where there are enough."""
    if n >= samples:
        return random.Random(0).sample(range(n), samples)
    return [number % n for number in range(samples)]


class Growth:
    """What `n` things add to the process, without what the first of them bring along.

    Attributes:
        before: How many to make before `start`.
    """

    def __init__(self, n: int) -> None:
        # Brings trio along, which only this load can do with: what is imported before `start` counts for nobody.
        from bench.memory import resident_bytes

        self._resident_bytes = resident_bytes
        self.before = max(1, n // 100)
        self._n = n
        self._bytes = 0

    def start(self) -> None:
        """What is there now is not theirs."""
        gc.collect()
        self._bytes = self._resident_bytes()

    def stop(self) -> float:
        """Return the bytes for each."""
        gc.collect()
        return (self._resident_bytes() - self._bytes) / self._n
