"""The TCP stream under the websocket library, guarded against both sides.

OPEN -> VIOLATED | CUT | CLOSE SENT -> ENDED. What comes in is counted and paced before it is parsed. What goes out has
a deadline, and after a write that was cut short nothing more is written: neither a client nor a cancelled task can
leave half a frame and go on. After our Close only the client's Close counts. Knows frames by their headers only.
"""

import trio
from wsproto.frame_protocol import FrameProtocol

from actors.gateway.frames import FrameMeter
from actors.gateway.head import Upgrade
from protocol.errors import RemoteProtocolError
from protocol.limits import Limits

_CHUNK = 65_536
# A client may send this much per second on average; a frame costs as much as this many bytes.
_BYTES_PER_S = 1_048_576
_FRAME_COST = 256
_MIN_BURST = 262_144
_MAX_REASON_BYTES = 123
# The first byte of a Close frame. The library writes each frame with a call of its own.
_CLOSE = b"\x88"


class GuardedStream(trio.abc.Stream):
    """The TCP stream of one client, as the websocket library sees it.

    Attributes:
        violation: What the client broke, if that ended the stream.
        close_sent: A Close frame went out; nothing else will.
        sending: A write is going on.
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
        self._burst = float(max(4 * limits.max_message_bytes, _MIN_BURST))
        self._budget = self._burst
        self._paced_at = trio.current_time()
        self.violation: RemoteProtocolError | None = None
        self.close_sent = False
        self.sending = False

    @property
    def heard(self) -> int:
        """How many frames have come in."""
        return self._meter.frames

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
        self._budget = min(allowed, self._burst) - cost
        self._paced_at = now
        if self._budget < 0:
            await trio.sleep(-self._budget / _BYTES_PER_S)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        if self.close_sent:
            raise trio.ClosedResourceError("a Close frame was sent, nothing follows it")
        await self._write(data)
        if bytes(data[:1]) == _CLOSE:
            self.close_sent = True
            self._room.set()

    async def _write(self, data: bytes | bytearray | memoryview) -> None:
        self.sending = True
        try:
            for start in range(0, len(data), _CHUNK):
                with trio.move_on_after(self._limits.write_deadline_s) as scope:
                    await self._stream.send_all(data[start : start + _CHUNK])
                if scope.cancelled_caught:
                    seconds = self._limits.write_deadline_s
                    raise trio.BrokenResourceError(f"the client took nothing for {seconds:g} seconds")
        except BaseException:
            # Half a frame may be out, and whatever came next would be read as part of it.
            self._cut = True
            raise
        finally:
            self.sending = False

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
        """Say goodbye if nobody has, and wait until the client has read it. A checkpoint; bound it."""
        await trio.lowlevel.checkpoint()
        if self._cut:
            return
        try:
            if not self.close_sent:
                self.close_sent = True
                await self._write(close_frame(code, reason))
            await linger(self._stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


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
