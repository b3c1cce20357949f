"""Accepts connections, and goes on accepting: running out of descriptors, or one bad connection, ends nothing.

Knows no HTTP and no websockets; hands each stream on.
"""

import errno
import logging
from collections.abc import Callable

import trio

logger = logging.getLogger("actors.gateway")

# How long to wait when the machine has no more descriptors or memory, in seconds.
RETRY_S = 0.1

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


async def open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Bind and listen. With port 0, on one address only: a second would get another port. A checkpoint.

    Raises:
        OSError: The address cannot be bound.
    """
    listeners = await trio.open_tcp_listeners(port, host=host or None)
    if port == 0:
        for surplus in listeners[1:]:
            surplus.socket.close()  # at once: cancelled in between, nobody would close the others
        return listeners[:1]
    return listeners


async def accept_forever(
    listener: trio.abc.Listener[trio.SocketStream],
    handle: Callable[[trio.SocketStream], None],
) -> None:
    """Call `handle(stream)` for each connection, until the listener is closed. A checkpoint.

    Args:
        listener: Stays the caller's; close it to end this.
        handle: Owns the stream from then on, must not wait and must not raise: what it raises would end this.
    """
    exhausted = False
    while True:
        try:
            stream = await listener.accept()
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            return
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                # The connection died in the queue; the next one has nothing to do with it.
                logger.info("a connection could not be accepted: %s", errno.errorcode.get(error.errno or 0, "?"))
                await trio.lowlevel.checkpoint()
                continue
            if not exhausted:
                logger.error("no connection can be accepted: %s", errno.errorcode[error.errno])
            exhausted = True
            await trio.sleep(RETRY_S)
            continue
        if exhausted:
            logger.info("connections are accepted again")
            exhausted = False
        handle(stream)
