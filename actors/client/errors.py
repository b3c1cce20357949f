"""How a client's work goes wrong, and how an error leaves the client's nurseries: alone, as it was raised."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import cast

import trio

from protocol.errors import ActorsError, Detail


class ConnectFailed(ActorsError):
    """There is no connection: nobody listens, the address is wrong, or the server refused it."""


class LinkClosed(ActorsError):
    """The connection has ended.

    Attributes:
        close_code: The websocket close code; 1006 where the other end just vanished.
        reason: What the other end said, or what was noticed here.
    """

    def __init__(self, close_code: int, reason: str) -> None:
        super().__init__(f"the connection ended ({close_code}): {reason}")
        self.close_code = close_code
        self.reason = reason


class Refused(ActorsError):
    """The server refused a call; nothing was done.

    Attributes:
        code: The stable code (`session.busy`), or `rpc` and a number where the call itself was wrong.
        message: A sentence for people.
        details: What exactly is wrong, and where.
    """

    def __init__(self, code: str, message: str, details: tuple[Detail, ...] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.details = details


class Detached(ActorsError):
    """Nothing more of this session will come. Attaching again with the cursor goes on where it ended.

    Attributes:
        code: Why: `session.closed`, `store.failed`, `link.too_slow`.
        cursor: The last seq that was taken here.
    """

    def __init__(self, session: str, code: str, cursor: int) -> None:
        super().__init__(f"detached from session {session} after seq {cursor}: {code}")
        self.session = session
        self.code = code
        self.cursor = cursor


@contextmanager
def plain_errors() -> Generator[None]:
    """Let one error out of a nursery as itself; several that are not cancellations stay a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        leaves = list(_leaves(group))
        errors = [leaf for leaf in leaves if not isinstance(leaf, trio.Cancelled)] or leaves[:1]
        stop = next((leaf for leaf in errors if isinstance(leaf, (KeyboardInterrupt, SystemExit))), None)
        if stop is None and len(errors) > 1:
            raise
        lone = stop or errors[0]
        raise lone from lone.__cause__


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error
