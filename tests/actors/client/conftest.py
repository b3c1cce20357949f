"""A server that says what a test tells it to, over a real websocket on loopback."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

Served = Callable[["Peer"], Awaitable[None]]
Serve = Callable[[Served], AbstractAsyncContextManager[str]]


class Peer:
    """The server's end of one connection."""

    def __init__(self, socket: WebSocketConnection, headers: dict[str, str]) -> None:
        self.socket = socket
        self.headers = headers

    async def read(self) -> dict[str, Any]:
        return json.loads(await self.socket.get_message())

    async def send(self, *messages: dict[str, Any]) -> None:
        """Send one message alone, several as an array."""
        frames = [{"jsonrpc": "2.0", **message} for message in messages]
        await self.socket.send_message(json.dumps(frames[0] if len(frames) == 1 else frames))

    async def answer(self, *after: dict[str, Any], result: Any = None) -> dict[str, Any]:
        """Answer the next call, with `after` in the same frame; return the call."""
        call = await self.read()
        await self.send({"id": call["id"], "result": {} if result is None else result}, *after)
        return call

    async def attached(self, *events: dict[str, Any], seq: int = 0, **fields: Any) -> dict[str, Any]:
        """Answer `initialize`, `session/attach` and send `events` with its result; return the attach call."""
        await self.answer()
        result = {"session": "s", "log_id": "l1", "seq": seq, "mode": "snapshot", "snapshot": {"seq": seq}, **fields}
        return await self.answer(*(event(one) for one in events), result=result)

    async def ignore(self) -> None:
        """Read and answer nothing until the client goes."""
        while True:
            await self.socket.get_message()


def event(body: dict[str, Any], session: str = "s") -> dict[str, Any]:
    return {"method": "event", "params": {"session": session, "log_id": "l1", "event": body}}


@pytest.fixture
def serve() -> Serve:
    """Return a context manager that serves every connection with a function and yields the URL."""

    @asynccontextmanager
    async def serving(served: Served) -> AsyncGenerator[str]:
        async def handle(request: WebSocketRequest) -> None:
            headers = {name.decode(): value.decode() for name, value in request.headers}
            socket = await request.accept(subprotocol="actors.v1")
            with suppress(ConnectionClosed):
                await served(Peer(socket, headers))

        async with trio.open_nursery() as nursery:
            server = await nursery.start(partial(serve_websocket, handle, "127.0.0.1", 0, ssl_context=None))
            yield f"ws://127.0.0.1:{server.port}/ws"
            nursery.cancel_scope.cancel()

    return serving
