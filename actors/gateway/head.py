"""The request head: read it under a deadline and a size limit, check it, and say what becomes of the connection.

Ends as `Upgrade`, with a head written anew of nothing but verified parts, or as `Refused`, with a short plain answer.
Nothing a client sends before the upgrade reaches the websocket parser as it came. Knows HTTP and the rules of access;
knows no frames and no sessions. The query string is never read and never logged.
"""

import re
from dataclasses import dataclass

import h11
import trio

from actors.gateway.access import Access, host_allowed, origin_allowed, token_allowed
from protocol.commands import SUBPROTOCOL
from protocol.limits import Limits

PATH = "/ws"

_SINGLE = frozenset({
    b"host", b"origin", b"authorization", b"upgrade", b"sec-websocket-key", b"sec-websocket-version",
})  # fmt: skip
# 16 bytes in base64.
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==", re.ASCII)
_CHUNK = 4_096
_MAX_HEADERS = 100

_REASONS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    421: "Misdirected Request",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A client that may come in.

    Attributes:
        head: The request for the websocket parser, made of constants and the verified key.
        early: What the client sent after its head, which is not to be lost.
    """

    head: bytes
    early: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """A request to be answered and closed."""

    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        """Return the whole HTTP response. It says nothing of what was asked."""
        body = f"{self.text}\n".encode()
        headers = (
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
            *self.headers,
        )
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        return f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n{lines}\r\n".encode("ascii") + body


class _Refusal(Exception):
    def __init__(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.refused = Refused(status, text, headers)


async def read_head(stream: trio.abc.ReceiveStream, access: Access, limits: Limits) -> Upgrade | Refused | None:
    """Read one request head and check it. None: the client left before its head was complete.

    A checkpoint. Takes at most `limits.head_deadline_s` seconds and keeps at most `limits.max_head_bytes` bytes.
    """
    try:
        with trio.move_on_after(limits.head_deadline_s):
            read = await _read_request(stream, limits.max_head_bytes)
            if read is None:
                return None
            request, early = read
            key = check_request(request, access)
            return Upgrade(_head_for_parser(key), early)
        return Refused(408, f"the request head must be here within {limits.head_deadline_s:g} seconds")
    except _Refusal as refusal:
        return refusal.refused
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return None


async def _read_request(stream: trio.abc.ReceiveStream, max_bytes: int) -> tuple[h11.Request, bytes] | None:
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=max_bytes)
    received = 0
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:
                raise _too_large(max_bytes) from None
            raise _Refusal(400, "this is not an HTTP/1.1 request") from None
        if isinstance(event, h11.Request):
            early = parser.trailing_data[0]
            if received - len(early) > max_bytes:
                raise _too_large(max_bytes)
            return event, bytes(early)
        if event is not h11.NEED_DATA:
            return None
        data = await stream.receive_some(_CHUNK)
        if not data:
            return None
        received += len(data)
        parser.receive_data(bytes(data))


def _too_large(max_bytes: int) -> _Refusal:
    return _Refusal(431, f"a request head has at most {max_bytes} bytes")


def check_request(request: h11.Request, access: Access) -> bytes:
    """Check a request against the rules and return its websocket key.

    The order is: is it clean, is it for us, what does it want, who is it.
    """
    headers = _read_headers(request)
    if not host_allowed(access, headers.get(b"host", "")):
        raise _Refusal(421, "this host is not served here")
    if request.target.partition(b"?")[0] != PATH.encode():
        raise _Refusal(404, "there is nothing here")
    if request.method != b"GET":
        raise _Refusal(405, "only GET is served", ("Allow", "GET"))
    if not origin_allowed(access, headers.get(b"origin")):
        raise _Refusal(403, "pages of this origin may not connect")
    subprotocols = _tokens(headers.get(b"sec-websocket-protocol", ""))
    if not token_allowed(access, headers.get(b"authorization"), subprotocols):
        raise _Refusal(401, "a valid token is needed", ("WWW-Authenticate", "Bearer"))
    _check_upgrade(request, headers, subprotocols)
    return _check_key(headers.get(b"sec-websocket-key", ""))


def _read_headers(request: h11.Request) -> dict[bytes, str]:
    if len(request.headers) > _MAX_HEADERS:
        raise _Refusal(431, f"a request has at most {_MAX_HEADERS} headers")
    headers: dict[bytes, str] = {}
    for name, value in request.headers:
        if not (name.isascii() and value.isascii()):
            raise _Refusal(400, "headers are ASCII")
        if name not in headers:
            headers[name] = value.decode("ascii")
        elif name in _SINGLE:
            raise _Refusal(400, f"{name.decode('ascii')} may be given once")
        else:
            headers[name] += ", " + value.decode("ascii")
    return headers


def _tokens(value: str) -> list[str]:
    return [token.strip() for token in value.split(",") if token.strip()]


def _check_upgrade(request: h11.Request, headers: dict[bytes, str], subprotocols: list[str]) -> None:
    wants = [token.lower() for token in _tokens(headers.get(b"connection", ""))]
    if request.http_version != b"1.1" or "upgrade" not in wants or headers.get(b"upgrade", "").lower() != "websocket":
        raise _Refusal(426, "this is a websocket", ("Upgrade", "websocket"))
    if headers.get(b"sec-websocket-version") != "13":
        raise _Refusal(426, "websocket version 13 is spoken here", ("Sec-WebSocket-Version", "13"))
    if headers.get(b"content-length", "0") != "0" or b"transfer-encoding" in headers:
        raise _Refusal(400, "an upgrade has no body")
    if SUBPROTOCOL not in subprotocols:
        raise _Refusal(400, f"offer the subprotocol {SUBPROTOCOL}")


def _check_key(key: str) -> bytes:
    if not _KEY.fullmatch(key):
        raise _Refusal(400, "sec-websocket-key is 16 bytes in base64")
    return key.encode("ascii")


def _head_for_parser(key: bytes) -> bytes:
    return (
        b"GET /ws HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n"
        b"Sec-WebSocket-Protocol: " + SUBPROTOCOL.encode("ascii") + b"\r\n\r\n"
    )
