"""Who is told that a system opens or closes: test kits, and tools that watch a program.

It decides nothing, and nothing that a listener raises reaches a system. It must not know who listens. Unlike everything
else in this package it is one per process: a listener cannot know where systems will be opened.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors.runtime.system import System

logger = logging.getLogger("actors.runtime")


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    on_open: "Callable[[System], object] | None"
    on_close: "Callable[[System], object] | None"


# Replaced, never changed: systems may open in several threads, each with a loop of its own. The lock is for those who
# replace it.
_listeners: tuple[_Listener, ...] = ()
_replacing = threading.Lock()


def listen(
    *,
    on_open: "Callable[[System], object] | None" = None,
    on_close: "Callable[[System], object] | None" = None,
) -> Callable[[], None]:
    """Be told of every system of this process, from now on. No checkpoint, and none is needed.

    Args:
        on_open: Called with each system that opens, before anything lives in it; in the thread it opens in.
        on_close: Called with each system whose block has ended, when nothing lives in it any more.

    Returns:
        A function that ends it. Idempotent.

    What a callback raises is logged.
    """
    global _listeners
    listener = _Listener(on_open, on_close)
    with _replacing:
        _listeners = (*_listeners, listener)

    def unlisten() -> None:
        global _listeners
        with _replacing:
            _listeners = tuple(other for other in _listeners if other is not listener)

    return unlisten


def opened(system: "System") -> None:
    """Tell the listeners that a system opens. For the runtime; never raises, no checkpoint."""
    for listener in _listeners:
        _tell(listener.on_open, system)


def closed(system: "System") -> None:
    """Tell the listeners that a system's block has ended. For the runtime; never raises, no checkpoint."""
    for listener in _listeners:
        _tell(listener.on_close, system)


def _tell(callback: "Callable[[System], object] | None", system: "System") -> None:
    try:
        if callback is not None:
            callback(system)
    except Exception:
        logger.exception("what listens to systems raised about %r", system)
