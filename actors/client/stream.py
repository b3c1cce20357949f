"""The byte stream below a websocket: opened with a deadline, and watched for its end.

While the upgrade is under way nothing else tells that the other end has gone; a client would wait out its deadline.
"""

import os
import ssl
from typing import cast

import trio
from trio_websocket import ConnectionRejected

from actors.client.address import Address
from actors.client.errors import ConnectFailed

CONNECT_S = 10.0


class WatchedStream(trio.abc.Stream):
    """Passes everything through; `over` is set once nothing more will come."""

    def __init__(self, inner: trio.abc.Stream) -> None:
        self.over = trio.Event()
        self._inner = inner

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            data = await self._inner.receive_some(max_bytes)
        except trio.BrokenResourceError:
            self.over.set()  # reset: the other end is gone with what it had not read
            raise
        if not data:
            self.over.set()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            await self._inner.send_all(data)
        except trio.BrokenResourceError:
            self.over.set()
            raise

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        self.over.set()
        await self._inner.aclose()


async def open_stream(address: Address) -> WatchedStream:
    """Return a stream to `address`, with TLS where it says so. A checkpoint.

    Raises:
        OSError: Nobody is there.
        trio.BrokenResourceError: TLS was not agreed on, or the certificate is not valid.
        trio.TooSlowError: It took over `CONNECT_S` seconds.
    """
    with trio.fail_after(CONNECT_S):
        if address.secure:
            context = ssl.create_default_context()
            secure = await trio.open_ssl_over_tcp_stream(
                address.host, address.port, https_compatible=True, ssl_context=context
            )
            try:
                await secure.do_handshake()
            except BaseException:
                await trio.aclose_forcefully(secure)
                raise
            return WatchedStream(secure)
        return WatchedStream(await trio.open_tcp_stream(address.host, address.port))


def connect_failed(address: Address, error: Exception) -> ConnectFailed:
    """Return what to tell whoever wanted to connect."""
    if isinstance(error, ConnectionRejected):
        hints = {401: "the token was not accepted", 403: "access was denied", 404: "nothing is served at this path",
                 421: "it does not answer to this host name", 503: "it has too many connections"}  # fmt: skip
        hint = hints.get(error.status_code, "it is not a gateway, or refuses connections")
        return ConnectFailed(f"{address} refused the connection ({error.status_code}): {hint}")
    if isinstance(error, trio.TooSlowError):
        return ConnectFailed(f"{address} did not answer within {CONNECT_S:g} s")
    if isinstance(error, OSError):
        return ConnectFailed(f"cannot connect to {address}: {_reason(error)}")
    if isinstance(error, trio.BrokenResourceError) and isinstance(error.__cause__, ssl.SSLError):
        return ConnectFailed(f"cannot connect to {address} with TLS: {error.__cause__.reason or error.__cause__}")
    return ConnectFailed(f"cannot connect to {address}: {error or type(error).__name__}")


def _reason(error: OSError) -> str:
    """Say why: an attempt at each address of a name was made, and what they failed of is the cause."""
    cause = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
    if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) and (cause.errno or 0) > 0:
        return os.strerror(cause.errno or 0)
    return error.strerror or str(error)
