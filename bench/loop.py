"""How long trio's loop was held: from one look at what else is to do, to the next."""

from time import perf_counter

import trio


class LongestHold(trio.abc.Instrument):
    """Measures each turn of the loop, a batch of task steps. What becomes ready meanwhile waits that long.

    Pauses of the garbage collector count: to those who wait they are the same.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._since = 0.0

    def start(self) -> None:
        """Begin, in a task of the loop: the turn that is under way counts from here."""
        self._since = perf_counter()
        trio.lowlevel.add_instrument(self)

    def stop(self) -> None:
        """Measure no more: the turn that is under way counts up to here."""
        trio.lowlevel.remove_instrument(self)
        self._look()

    def after_io_wait(self, timeout: float) -> None:
        """The loop has looked and goes through what is ready."""
        self._since = perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        """Everything that was ready has had its step."""
        self._look()

    def _look(self) -> None:
        self.longest_s = max(self.longest_s, perf_counter() - self._since)
