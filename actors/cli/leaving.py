"""The way out when the orderly one takes too long: a tool stuck in a thread cannot be interrupted, a process can."""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def last_resort(seconds: float, exit_code: int) -> Generator["LastResort"]:
    """Yield something to be armed. Armed, it ends the process if the block has not ended within `seconds`."""
    resort = LastResort(seconds, exit_code)
    try:
        yield resort
    finally:
        resort.disarm()


class LastResort:
    """See `last_resort`. Arming it twice changes nothing."""

    def __init__(self, seconds: float, exit_code: int) -> None:
        self._timer = threading.Timer(seconds, os._exit, (exit_code,))
        self._timer.daemon = True
        self._armed = False

    def arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._timer.start()

    def disarm(self) -> None:
        self._timer.cancel()
