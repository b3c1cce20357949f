"""The way out when the orderly one takes too long: a tool stuck in a thread cannot be interrupted, a process can."""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def last_resort(seconds: float, exit_code: int, cleanup: Callable[[], None] = lambda: None) -> Generator["LastResort"]:
    """Yield something to be armed. Armed, it ends the process if the block has not ended within `seconds`.

    Args:
        seconds: From arming on.
        exit_code: What the process ends with then.
        cleanup: Called before that, in another thread; it must be quick.
    """
    resort = LastResort(seconds, exit_code, cleanup)
    try:
        yield resort
    finally:
        resort.disarm()


class LastResort:
    """See `last_resort`. Arming it twice changes nothing."""

    def __init__(self, seconds: float, exit_code: int, cleanup: Callable[[], None]) -> None:
        self._exit_code = exit_code
        self._cleanup = cleanup
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._armed = False

    def _end(self) -> None:
        try:
            self._cleanup()
            os.write(2, b"actors: something would not end; the process was ended all the same\n")
        finally:
            os._exit(self._exit_code)

    def arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._timer.start()

    def disarm(self) -> None:
        self._timer.cancel()
