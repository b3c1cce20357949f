"""A websocket written down to its bytes: few steps of its own, and it can be gone between any two of them."""

import contextlib
import socket
import struct
from typing import Any

import trio

from actors.gateway.gateway import Gateway

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_RESET = struct.pack("ii", 1, 0)


def frame(opcode: int, payload: bytes = b"", *, masked: bool = True) -> bytes:
    """A client's frame. The mask is all zeros."""
    bit, size = 0x80 if masked else 0, len(payload)
    head = bytes([0x80 | opcode, bit | size]) if size < 126 else bytes([0x80 | opcode, bit | 126, *divmod(size, 256)])
    return head + (b"\0\0\0\0" if masked else b"") + payload


def head(gateway: Gateway, *extra: str, token: str = "", drop: str = "") -> bytes:
    """The head of an upgrade, with further headers, and without the one to be dropped."""
    lines = (
        f"Host: 127.0.0.1:{gateway.port}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: c3dlcHQgYW5kIHN3ZXB0IQ==",
        "Sec-WebSocket-Protocol: actors.v1",
        f"Authorization: Bearer {token or gateway.token}",
    )
    kept = [line for line in lines if not (drop and line.startswith(drop))]
    return "\r\n".join(["GET /ws HTTP/1.1", *kept, *extra, "", ""]).encode()


class Gone(Exception):
    """The connection has ended, with this close code; 1006 without a word, an HTTP status where it never began."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"gone with {code} {reason}".rstrip())
        self.code = code


class Wire:
    """Bytes to and from the gateway: one connection, open from the beginning."""

    def __init__(self, gateway: Gateway) -> None:
        # Loopback, and there is room in the backlog: it does not wait.
        self.socket = trio.socket.from_stdlib_socket(socket.create_connection((gateway.host, gateway.port)))
        self._data = b""

    @property
    def is_open(self) -> bool:
        """False once it was closed here."""
        return self.socket.fileno() >= 0

    def hang_up(self) -> None:
        """Be gone, and find that out by oneself a moment later. Unlike `close` at any moment, of any task."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Be gone without a word; what was on its way is lost. Idempotent."""
        if self.is_open:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.socket.close()

    async def send(self, data: bytes) -> None:
        """Send a few bytes."""
        await self._try(self.socket.send, data)

    async def read(self, count: int) -> bytes:
        """Return so many bytes."""
        while len(self._data) < count:
            more = await self._try(self.socket.recv, 65_536)
            if not more:
                raise Gone(1006)
            self._data += more
        data, self._data = self._data[:count], self._data[count:]
        return data

    async def read_head(self) -> int:
        """Return the status of an HTTP response; its head is all there is where the connection goes on."""
        lines = b""
        while not lines.endswith(b"\r\n\r\n"):
            lines += await self.read(1)
        return int(lines[9:12])

    async def read_frame(self) -> tuple[int, bytes]:
        """Return the opcode and the payload of the next frame, which must be whole and unmasked."""
        first, size = await self.read(2)
        assert first & 0x80
        assert size < 128
        if size > 125:
            (size,) = struct.unpack("!H" if size == 126 else "!Q", await self.read(2 if size == 126 else 8))
        return first & 0x0F, await self.read(size)

    async def read_to_end(self) -> None:
        """Read until the other end is done."""
        while await self._try(self.socket.recv, 65_536):
            pass

    async def _try(self, call: Any, *args: Any) -> Any:
        try:
            return await call(*args)
        except (OSError, trio.ClosedResourceError):
            raise Gone(1006) from None
