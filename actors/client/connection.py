"""A client of the gateway: calls with their answers, and attached sessions with their events.

One task reads the socket and one writes it, for as long as the connection lasts. The reader never waits for whoever
uses the events: a stream that is full ends, and can be attached again with its cursor. Cancelling a call leaves the
connection whole; whether the server carried the call out is then not known, which is what command ids are for.
"""

import itertools
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream

from actors.client.address import Address, parse_url
from actors.client.attachment import Attachment
from actors.client.errors import ConnectFailed, Detached, LinkClosed, Refused, plain_errors
from actors.client.frames import (
    DetachedParams,
    EventParams,
    HeartbeatParams,
    Incoming,
    call_frame,
    read_frame,
    read_part,
    refusal,
)
from actors.client.stream import CONNECT_S, WatchedStream, connect_failed, open_stream
from protocol.commands import PROTOCOL_VERSIONS, SUBPROTOCOL
from protocol.errors import Code, RemoteProtocolError

__all__ = ["Attachment", "ConnectFailed", "Connection", "Detached", "LinkClosed", "Refused", "connect"]

log = logging.getLogger("actors.client")

# A snapshot holds a whole conversation, so this is far above what one event may have.
MAX_MESSAGE_CHARS = 64 * 1024 * 1024
MAX_EVENTS_WAITING = 10_000
MAX_CALLS_WAITING = 64
CLOSE_S = 2.0


class _Call:
    """A call that waits for its answer."""

    __slots__ = ("answered", "error", "on_result", "result")

    def __init__(self, on_result: Callable[[msgspec.Raw], None] | None) -> None:
        self.answered = trio.Event()
        self.on_result = on_result
        self.result = msgspec.Raw(b"null")
        self.error: Exception | None = None


class Connection:
    """A connection that has been initialized. Made by `connect`.

    Attributes:
        server: What the server said of itself: `protocol`, `server`, `capabilities`, `limits`.
        closed: Why the connection has ended, or None.
        client_id: Who this is to the server; of two connections with one id it keeps the newer.
    """

    def __init__(self, *, max_events: int) -> None:
        self.server: dict[str, Any] = {}
        self.closed: LinkClosed | None = None
        self._socket: WebSocketConnection | None = None
        self._leaving: trio.Event | None = None
        self._max_events = max_events
        self._numbers = itertools.count(1)
        self.client_id = secrets.token_hex(8)
        self._commands = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._attached: dict[str, Attachment] = {}
        self._outgoing, self._to_write = trio.open_memory_channel[str](MAX_CALLS_WAITING)

    def new_command(self) -> str:
        """Return a command id that nobody else makes, for the `command` parameter of a call that may be repeated."""
        return f"{self.client_id}-{next(self._commands)}"

    async def call(self, method: str, /, **params: Any) -> Any:
        """Call a method of the server and return its result. A checkpoint.

        Raises:
            Refused: The server refused it.
            LinkClosed: The connection ended first.
        """
        return msgspec.json.decode(await self._call(method, params))

    async def attach(self, session: str, *, log_id: str = "", cursor: int = 0) -> Attachment:
        """Watch a session, from its present state or, with `log_id` and `cursor`, from there on. A checkpoint.

        Raises:
            Refused: `session.unknown` and the like.
            LinkClosed: The connection ended first.
            ValueError: This connection is attached to it already.
        """
        if session in self._attached:
            raise ValueError(f"this connection is attached to session {session!r} already; detach first")
        attachment = Attachment(session, self._detach, max_events=self._max_events)
        self._attached[session] = attachment
        known = {"log_id": log_id, "cursor": cursor} if log_id else {}
        try:
            await self._call("session/attach", {"session": session, **known}, attachment.begin)
        except BaseException:
            self._attached.pop(session, None)
            raise
        return attachment

    async def _detach(self, attachment: Attachment) -> None:
        if self._attached.get(attachment.session) is attachment:
            del self._attached[attachment.session]
            try:
                await self._call("session/detach", {"session": attachment.session})
            except Refused as refused:
                if refused.code != Code.LINK_NOT_ATTACHED:  # the session let go of it while this was on its way
                    raise
        await trio.lowlevel.checkpoint()

    async def _call(
        self, method: str, params: dict[str, Any], on_result: Callable[[msgspec.Raw], None] | None = None
    ) -> msgspec.Raw:
        if self.closed is not None:
            raise self.closed
        number = next(self._numbers)
        frame = call_frame(number, method, params)
        self._calls[number] = call = _Call(on_result)
        try:
            await self._outgoing.send(frame)
            await call.answered.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise self.closed or LinkClosed(1006, "nothing can be sent any more") from None
        finally:
            self._calls.pop(number, None)
        if call.error is not None:
            raise call.error
        return call.result

    # ---- the two tasks of the socket

    async def run(self, address: Address, token: str, *, task_status: trio.TaskStatus[None]) -> None:
        """Hold the socket until it ends. Started by `connect`; `started` once the upgrade was accepted."""
        try:
            stream = await open_stream(address)
        except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
            raise connect_failed(address, error) from None
        ended, errors = LinkClosed(1006, "the connection was dropped"), list[Exception]()
        try:
            async with trio.open_nursery() as nursery:
                await self._upgrade(nursery, stream, address, token)
                task_status.started()
                nursery.start_soon(self._write)
                ended = await self._read()
                if self._leaving is not None:
                    await self._leaving.wait()  # the goodbye of the other end still has to be read
                nursery.cancel_scope.cancel()
        except* Exception as group:
            errors.extend(_flat(group))
        finally:
            self._end(ended if not errors else LinkClosed(1006, f"{type(errors[0]).__name__}: {errors[0]}"))
            await trio.aclose_forcefully(stream)
        if errors and self._socket is None:
            rejected = [error for error in errors if isinstance(error, ConnectionRejected)]
            raise connect_failed(address, (rejected or errors)[0])

    async def _upgrade(self, nursery: trio.Nursery, stream: WatchedStream, address: Address, token: str) -> None:
        headers = [(b"Authorization", b"Bearer " + token.encode())] if token else []

        async def give_up() -> None:
            await stream.over.wait()
            raise ConnectFailed("the server closed the connection before it became a websocket")

        with trio.fail_after(CONNECT_S):
            async with trio.open_nursery() as race:
                race.start_soon(give_up)
                socket = await wrap_client_stream(
                    nursery, cast("trio.SocketStream", stream), address.host_header, address.resource,
                    subprotocols=[SUBPROTOCOL], extra_headers=headers, message_queue_size=16,
                    max_message_size=MAX_MESSAGE_CHARS, receive_buffer_size=65_536,
                )  # fmt: skip
                race.cancel_scope.cancel(reason="the upgrade was accepted")
        if socket.subprotocol != SUBPROTOCOL:
            raise ConnectFailed(f"the server does not speak {SUBPROTOCOL}")
        self._socket = socket

    async def _write(self) -> None:
        assert self._socket is not None
        async for frame in self._to_write:
            try:
                await self._socket.send_message(frame)
            except ConnectionClosed:
                return  # the reader learns why

    async def _read(self) -> LinkClosed:
        assert self._socket is not None
        while True:
            try:
                frame = await self._socket.get_message()
                for incoming in read_frame(frame):
                    self._handle(incoming)
            except ConnectionClosed as closed:
                reason = closed.reason
                if reason is None:
                    return LinkClosed(1006, "the connection was dropped")
                return LinkClosed(reason.code, reason.reason or reason.name)
            except RemoteProtocolError as wrong:
                with trio.move_on_after(CLOSE_S):
                    await self._socket.aclose(wrong.close_code, "not the protocol")
                return LinkClosed(wrong.close_code, str(wrong))

    # ---- what comes in; synchronous, so that a result and the events after it are taken in their order

    def _handle(self, incoming: Incoming) -> None:
        if incoming.method == "event":
            self._event(read_part(incoming.params, EventParams))
        elif incoming.method == "detached":
            detached: DetachedParams = read_part(incoming.params, DetachedParams)
            attachment = self._attached.get(detached.session)
            if attachment is not None and attachment.begun:  # else it was said of the one before
                del self._attached[detached.session]
                attachment.end(detached.code)
        elif incoming.method == "heartbeat":
            heartbeat: HeartbeatParams = read_part(incoming.params, HeartbeatParams)
            for session, head in heartbeat.heads.items():
                if session in self._attached:
                    self._attached[session].advance(head)
        elif not incoming.method:
            self._answer(incoming)

    def _event(self, params: EventParams) -> None:
        attachment = self._attached.get(params.session)
        if attachment is not None and not attachment.offer(params.event):
            del self._attached[params.session]
            attachment.end("link.too_slow")

    def _answer(self, incoming: Incoming) -> None:
        call = self._calls.get(incoming.id) if isinstance(incoming.id, int) else None
        if call is None or call.answered.is_set():
            log.debug("an answer to no call of ours was passed over")
            return
        if not isinstance(incoming.error, msgspec.UnsetType):
            code, details = refusal(incoming.error)
            call.error = Refused(code, incoming.error.message, details)
        elif not isinstance(incoming.result, msgspec.UnsetType):
            call.result = msgspec.Raw(bytes(incoming.result))  # a copy: the frame need not be kept for it
            if call.on_result is not None:
                call.on_result(call.result)
        else:
            raise RemoteProtocolError("the server sent a response with neither result nor error")
        call.answered.set()

    def _end(self, why: LinkClosed) -> None:
        self.closed = self.closed or why
        for call in self._calls.values():
            call.error = self.closed
            call.answered.set()
        for attachment in self._attached.values():
            attachment.end(self.closed)
        self._attached.clear()
        self._outgoing.close()
        self._to_write.close()

    async def close(self) -> None:
        """Say goodbye and wait for the server's, which may take for ever. A checkpoint."""
        if self._socket is not None and self._leaving is None:
            self._leaving = left = trio.Event()
            try:
                await self._socket.aclose()
            finally:
                left.set()
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def connect(url: str, token: str = "", *, max_events: int = MAX_EVENTS_WAITING) -> AsyncGenerator[Connection]:
    """Connect to a gateway, for as long as the block lasts.

    Args:
        url: `ws://host:port/ws` or `wss://...`.
        token: Sent as a bearer token in a header.
        max_events: How many events of one session may wait to be taken before its stream ends as too slow.

    Raises:
        ConnectFailed: The address is wrong, nobody listens, the server refused or took over 10 s.
    """
    address = parse_url(url)
    connection = Connection(max_events=max_events)
    with plain_errors():
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.run, address, token)
            try:
                with trio.move_on_after(CONNECT_S) as greeting:
                    connection.server = await connection.call(
                        "initialize",
                        protocol=list(PROTOCOL_VERSIONS),
                        client={"name": "actors-client", "id": connection.client_id},
                        capabilities={"batch": True},
                    )
                if greeting.cancelled_caught:
                    raise ConnectFailed(f"the server did not answer within {CONNECT_S:g} s")
                yield connection
            finally:
                with trio.move_on_after(CLOSE_S, shield=True):
                    await connection.close()
                nursery.cancel_scope.cancel()


def _flat(group: BaseExceptionGroup[Exception]) -> list[Exception]:
    flat: list[Exception] = []
    for error in group.exceptions:
        flat.extend(_flat(error) if isinstance(error, BaseExceptionGroup) else [error])
    return flat
