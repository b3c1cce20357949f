"""The websocket as a small port: receive, send, ping, close with a code. Everything about the library is in here.

OPEN -> CLOSING -> CLOSED. The library works on a guarded stream, and whatever its reader raises ends this socket and no
other. Knows what a message is, not what is in it.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

import trio
import trio_websocket

from actors.gateway.guard import GuardedStream, short_reason
from actors.gateway.head import Upgrade
from protocol.commands import SUBPROTOCOL
from protocol.limits import Limits

logger = logging.getLogger("actors.gateway")

NORMAL, GOING_AWAY, ABNORMAL, OUR_FAULT = 1000, 1001, 1006, 1011
# What the parser finds wrong by itself; it closes without saying so to the client.
_PARSER_CODES = frozenset({1002, 1007})


class SocketClosed(Exception):
    """The socket is closed, or closing.

    Attributes:
        code: The websocket close code; 1006 where the client vanished.
        reason: What the client, or this side, said. Not to be trusted.
    """

    def __init__(self, code: int = ABNORMAL, reason: str = "") -> None:
        super().__init__(f"closed with {code}")
        self.code = code
        self.reason = reason


class Socket(Protocol):
    """What a link needs from a websocket."""

    @property
    def heard(self) -> int:
        """How many frames have come in, of whatever kind: it grows while the client lives."""
        ...

    @property
    def sending(self) -> bool:
        """A frame is being written."""
        ...

    async def receive(self) -> str | bytes:
        """Return the next message. A checkpoint. Raises SocketClosed. At most one task may receive."""
        ...

    async def send(self, text: str) -> None:
        """Send one message whole, or not at all and nothing after it. A checkpoint. Raises SocketClosed."""
        ...

    async def ping(self) -> None:
        """Wait until the client answers a ping. A checkpoint; bound it. Raises SocketClosed."""
        ...

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Close, politely for a bounded time. A checkpoint. Does nothing the second time."""
        ...


class WebSocket:
    """The port, on the library."""

    def __init__(self, connection: trio_websocket.WebSocketConnection, stream: GuardedStream, limits: Limits) -> None:
        self._connection = connection
        self._stream = stream
        self._limits = limits
        self._closing: trio.CancelScope | None = None
        self._said: tuple[int, str] | None = None
        self._reader_ended = False
        self._reader_failed = False

    def fail_reader(self, kinds: str) -> None:
        """Note that the library's reader raised. While closing that is only a frame that came too late."""
        if self._said is None:
            self._reader_failed = True
            logger.warning("the reader of a websocket failed: %s", kinds)

    def end_reader(self) -> None:
        """Note that nothing more will be read: who waits for the client's Close need not."""
        self._reader_ended = True
        if self._closing is not None:
            self._closing.cancel(reason="the client is gone")

    @property
    def heard(self) -> int:
        return self._stream.heard

    @property
    def sending(self) -> bool:
        return self._stream.sending

    async def receive(self) -> str | bytes:
        try:
            message: str | bytes = await self._connection.get_message()
        except trio_websocket.ConnectionClosed:
            raise self.closed() from None
        self._stream.taken()
        return message

    async def send(self, text: str) -> None:
        try:
            await self._connection.send_message(text)
        except trio_websocket.ConnectionClosed:
            raise self.closed() from None

    async def ping(self) -> None:
        try:
            await self._connection.ping()
        except trio_websocket.ConnectionClosed:
            raise self.closed() from None

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        if self._said is not None:
            await trio.lowlevel.checkpoint()
            return
        self._said = (code, short_reason(reason))
        with trio.move_on_after(self._limits.close_deadline_s) as self._closing:
            if not self._reader_ended:
                await self._connection.aclose(*self._said)
        self._closing = None

    def closed(self) -> SocketClosed:
        """How this socket ended, from the side that ended it."""
        if self._said is not None:
            return SocketClosed(*self._said)
        if self._stream.violation is not None:
            return SocketClosed(self._stream.violation.close_code, str(self._stream.violation))
        reason = self._connection.closed
        return SocketClosed() if reason is None else SocketClosed(reason.code, reason.reason or "")

    def last_words(self) -> tuple[int, str]:
        """What the Close frame says if none was sent yet."""
        closed = self.closed()
        if self._said is not None or self._stream.violation is not None:
            return closed.code, closed.reason
        if closed.code in _PARSER_CODES:
            return closed.code, "the frame breaks the websocket protocol"
        return (OUR_FAULT, "") if self._reader_failed else (GOING_AWAY, "")


@asynccontextmanager
async def open_socket(
    stream: trio.abc.HalfCloseableStream, upgrade: Upgrade, limits: Limits
) -> AsyncGenerator[WebSocket, None]:
    """Answer a verified upgrade and yield the socket. At the end of the block the connection is gone, in bounded time.

    Raises:
        SocketClosed: The client left before the upgrade was answered, or did not take the answer in time.
    """
    guarded = GuardedStream(stream, upgrade, limits)
    code, reason = GOING_AWAY, ""
    try:
        async with trio.open_nursery() as nursery:
            opened = _Opened()
            nursery.start_soon(_run_library, guarded, limits, opened)
            with trio.move_on_after(limits.head_deadline_s):
                await opened.event.wait()
            socket = opened.socket
            if socket is None:
                raise SocketClosed
            try:
                yield socket
            finally:
                code, reason = socket.last_words()
                nursery.cancel_scope.cancel(reason="the link has ended")
    finally:
        # Shielded: also a connection that is cancelled says goodbye and gives its descriptor back.
        with trio.move_on_after(limits.close_deadline_s, shield=True):
            await guarded.finish(code, reason)
        with trio.move_on_after(limits.close_deadline_s, shield=True):
            await trio.aclose_forcefully(stream)


class _Opened:
    """Where the socket is put once the upgrade is answered."""

    def __init__(self) -> None:
        self.event = trio.Event()
        self.socket: WebSocket | None = None


async def _run_library(guarded: GuardedStream, limits: Limits, opened: _Opened) -> None:
    """Run the library's reader; what it raises once the socket is open ends here."""
    try:
        async with trio.open_nursery() as nursery:
            request = await trio_websocket.wrap_server_stream(
                nursery,
                guarded,
                message_queue_size=limits.max_inbox_messages,
                max_message_size=limits.max_message_bytes,
            )
            connection = await request.accept(subprotocol=SUBPROTOCOL)
            guarded.accepted()
            opened.socket = WebSocket(connection, guarded, limits)
            opened.event.set()
    except* trio_websocket.ConnectionClosed:
        if opened.socket is None:
            raise SocketClosed from None
    except* Exception as failed:
        if opened.socket is None:
            raise
        opened.socket.fail_reader(", ".join(type(error).__name__ for error in failed.exceptions))
    finally:
        if opened.socket is not None:
            opened.socket.end_reader()
