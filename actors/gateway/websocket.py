"""The websocket as a small port: receive, send, ping, close with a code. Everything about the library is in here.

OPEN -> CLOSING -> CLOSED. The stream under the library is guarded, so that neither a client nor a cancelled task can
leave it half-done: what comes in is counted before it is parsed, what goes out has a deadline, and after a write that
was cut short nothing more is written. Whatever the library's reader raises ends this socket and no other.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import trio
import trio_websocket
from wsproto.frame_protocol import FrameProtocol

from actors.gateway.frames import FrameMeter
from actors.gateway.head import Upgrade
from protocol.commands import SUBPROTOCOL
from protocol.errors import RemoteProtocolError
from protocol.limits import Limits

logger = logging.getLogger("actors.gateway")

NORMAL, GOING_AWAY, ABNORMAL, OUR_FAULT = 1000, 1001, 1006, 1011
# What the parser finds wrong by itself; it closes without saying so to the client.
_PARSER_CODES = frozenset({1002, 1007})

_CHUNK = 65_536
# A client may send this much per second on average; a frame costs as much as this many bytes.
_BYTES_PER_S = 1_048_576
_FRAME_COST = 256
_MAX_REASON_BYTES = 123


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


class GuardedStream(trio.abc.Stream):
    """The TCP stream of one client, as the websocket library sees it.

    Attributes:
        violation: What the client broke, if that ended the stream.
        close_sent: A Close frame went out; nothing else will.
    """

    def __init__(self, stream: trio.abc.HalfCloseableStream, upgrade: Upgrade, limits: Limits) -> None:
        self._stream = stream
        self._limits = limits
        self._head: bytes = upgrade.head
        self._early: bytes = upgrade.early
        self._accepted = trio.Event()
        self._room = trio.Event()
        self._cut = False
        self._ended = False
        self._meter = FrameMeter(max_message_bytes=limits.max_message_bytes)
        self._budget = float(4 * limits.max_message_bytes)
        self._paced_at = trio.current_time()
        self.violation: RemoteProtocolError | None = None
        self.close_sent = False

    def accepted(self) -> None:
        """Let frames through: the upgrade was answered. Earlier the parser would drop them."""
        self._accepted.set()

    def taken(self) -> None:
        """Note that a message was taken, which makes room for others."""
        self._meter.take()
        self._room.set()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            await trio.lowlevel.checkpoint()
            return head
        await self._accepted.wait()
        while self._meter.waiting_bytes > 4 * self._limits.max_message_bytes and not self.close_sent:
            self._room = trio.Event()
            await self._room.wait()
        while True:
            data = await self._receive(max_bytes)
            if not data or (self.close_sent and self._meter.saw_close):
                return b""
            # After our Close only the client's Close counts. The library would answer a Ping, which is an error now.
            if not self.close_sent:
                return data

    async def _receive(self, max_bytes: int | None) -> bytes:
        self._check()
        if self._early:
            await trio.lowlevel.checkpoint()
            data, self._early = self._early, b""
        else:
            data = bytes(await self._stream.receive_some(max_bytes))
        frames = self._meter.frames
        try:
            self._meter.feed(data)
        except RemoteProtocolError as violation:
            self.violation = violation
            self._ended = True
            raise trio.BrokenResourceError(str(violation)) from None
        await self._pace(len(data) + (self._meter.frames - frames) * _FRAME_COST)
        return data

    async def _pace(self, cost: int) -> None:
        """Make a flood wait: without this one client of tiny frames keeps a core busy."""
        now = trio.current_time()
        allowed = self._budget + (now - self._paced_at) * _BYTES_PER_S
        self._budget = min(allowed, 4.0 * self._limits.max_message_bytes) - cost
        self._paced_at = now
        if self._budget < 0:
            await trio.sleep(-self._budget / _BYTES_PER_S)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        if self.close_sent:
            raise trio.ClosedResourceError("a Close frame was sent, nothing follows it")
        await self._write(data)
        if bytes(data[:1]) == b"\x88":
            self.close_sent = True
            self._room.set()

    async def _write(self, data: bytes | bytearray | memoryview) -> None:
        # Until the last byte is out the stream counts as cut: a cancelled or failed write has left half a frame, and
        # whatever came next would be read as part of it.
        self._cut = True
        for start in range(0, len(data), _CHUNK):
            with trio.move_on_after(self._limits.write_deadline_s) as scope:
                await self._stream.send_all(data[start : start + _CHUNK])
            if scope.cancelled_caught:
                raise trio.BrokenResourceError(f"the client took nothing for {self._limits.write_deadline_s:g} seconds")
        self._cut = False

    def _check(self) -> None:
        if self._ended:
            raise trio.ClosedResourceError("this stream was closed")
        if self._cut:
            raise trio.BrokenResourceError("a write was cut short, nothing may follow it")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """End it for the library. The connection itself stays until a Close frame and what lingers are through."""
        self._ended = True
        await trio.lowlevel.checkpoint()

    async def finish(self, code: int, reason: str) -> None:
        """Say goodbye if nobody has, wait until the client has read it, then let go. Bounded, also when cancelled."""
        try:
            with trio.move_on_after(self._limits.close_deadline_s, shield=True):
                if not (self._cut or self.close_sent):
                    self.close_sent = True
                    await self._write(close_frame(code, reason))
                if not self._cut:
                    await linger(self._stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(self._stream)


async def linger(stream: trio.abc.HalfCloseableStream) -> None:
    """Stop sending and read until the client is done; closing over unread bytes would reset what it has yet to read."""
    await stream.send_eof()
    while await stream.receive_some(_CHUNK):
        pass


def close_frame(code: int, reason: str) -> bytes:
    """Return a Close frame as a server writes it."""
    return bytes(FrameProtocol(client=False, extensions=[]).close(code, short_reason(reason)))


def short_reason(reason: str) -> str:
    """Return as much of `reason` as a Close frame has room for."""
    return reason.encode(errors="replace")[:_MAX_REASON_BYTES].decode(errors="ignore")


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
) -> AsyncIterator[WebSocket]:
    """Answer a verified upgrade and yield the socket. At the end of the block the connection is gone, in bounded time.

    Raises:
        SocketClosed: The client left before the upgrade was answered, or did not take the answer in time.
    """
    guarded = GuardedStream(stream, upgrade, limits)
    words = (GOING_AWAY, "")
    try:
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(limits.head_deadline_s) as opening:
                socket = await nursery.start(_run_library, guarded, limits)
            if opening.cancelled_caught:
                raise SocketClosed
            try:
                yield socket
            finally:
                words = socket.last_words()
                nursery.cancel_scope.cancel(reason="the link has ended")
    finally:
        await guarded.finish(*words)


async def _run_library(
    guarded: GuardedStream,
    limits: Limits,
    *,
    task_status: trio.TaskStatus[WebSocket] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the library's reader; what it raises ends here."""
    socket: WebSocket | None = None
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
            socket = WebSocket(connection, guarded, limits)
            task_status.started(socket)
    except* trio_websocket.ConnectionClosed:
        if socket is None:
            raise SocketClosed from None
    except* Exception as failed:
        if socket is None:
            raise
        socket.fail_reader(", ".join(type(error).__name__ for error in failed.exceptions))
    finally:
        if socket is not None:
            socket.end_reader()
