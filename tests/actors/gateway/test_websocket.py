"""The port on the real library, over real sockets; the other end is a client of the test's own."""

import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock
from trio_websocket import WebSocketConnection

from actors.gateway.head import Upgrade
from actors.gateway.websocket import SocketClosed, WebSocket, open_socket
from protocol.limits import Limits

Make = Callable[..., bytes]
TEXT, CONTINUATION, BINARY, CLOSE, PING, PONG = 1, 0, 2, 8, 9, 10
HEAD = (
    b"GET /ws HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: actors.v1\r\n\r\n"
)
QUICK = Limits(close_deadline_s=0.3, write_deadline_s=0.5, max_message_bytes=100_000)


async def socket_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    client = await trio.open_tcp_stream("127.0.0.1", port)
    server = await listener.accept()
    await listener.aclose()
    return server, client


@asynccontextmanager
async def opened(dialled: Any, limits: Limits = QUICK) -> AsyncGenerator[tuple[WebSocket, Any], None]:
    server, stream = await socket_pair()
    client = dialled(stream)
    try:
        async with open_socket(server, Upgrade(HEAD, b""), limits) as socket:
            assert (await client.read_response())[0] == 101
            yield socket, client
        assert server.socket.fileno() == -1
    finally:
        await client.aclose()


@pytest.fixture
def dialled(raw_client: Any) -> Callable[[trio.SocketStream], Any]:
    return lambda stream: raw_client(stream, None)


async def test_messages_go_both_ways_whole(dialled: Any, make_frame: Make) -> None:
    async with opened(dialled) as (socket, client):
        await client.send(make_frame(TEXT, b"he", fin=False) + make_frame(CONTINUATION, b"llo"))
        assert await socket.receive() == "hello"
        await client.send(make_frame(BINARY, b"\xff"))
        assert await socket.receive() == b"\xff"
        await socket.send("x" * 70_000)
        assert await client.read_frame() == (TEXT, b"x" * 70_000)
        assert socket.heard == 3
        await client.send(make_frame(CLOSE, b"\x03\xe8"))
        assert await closed_code(socket) == 1000


async def test_pings_are_answered_while_nobody_receives_d18(dialled: Any, make_frame: Make) -> None:
    async with opened(dialled) as (_, client):
        await client.send(make_frame(TEXT, b"1") * 10 + make_frame(PING, b"there?"))
        with trio.fail_after(1):
            assert await client.read_frame() == (PONG, b"there?")
        client.reset()


async def test_a_ping_of_ours_waits_for_its_pong(dialled: Any, make_frame: Make) -> None:
    async with opened(dialled) as (socket, client):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(socket.ping)
            opcode, payload = await client.read_frame()
            assert opcode == PING
            await client.send(make_frame(PONG, payload))
        client.reset()


async def test_frames_never_interleave_whatever_the_client_pings_d23(dialled: Any, make_frame: Make) -> None:
    async with opened(dialled, Limits(close_deadline_s=0.3)) as (socket, client):
        pongs = 0
        messages = []
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:

                async def send() -> None:
                    for number in range(5):
                        await socket.send(f"{number}" * 1_000_000)
                    await socket.close(1000)

                async def ping() -> None:
                    while True:
                        await client.send(make_frame(PING, b"now"))

                nursery.start_soon(send)
                nursery.start_soon(ping)
                while True:
                    opcode, payload = await client.read_frame()
                    if opcode == CLOSE:
                        break
                    if opcode == PONG:
                        assert payload == b"now"
                        pongs += 1
                    else:
                        messages.append(payload)
                nursery.cancel_scope.cancel()
        assert messages == [str(number).encode() * 1_000_000 for number in range(5)]
        assert pongs
        client.reset()


@pytest.mark.parametrize("when", ["cancelled", "stalled"])
async def test_after_a_write_that_was_cut_short_the_client_sees_no_other_frame_d23(dialled: Any, when: str) -> None:
    tail: list[bytes] = []
    async with trio.open_nursery() as nursery, opened(dialled) as (socket, client):
        if when == "cancelled":
            with trio.move_on_after(0.1):
                await socket.send("x" * 20_000_000)
        else:
            with pytest.raises(SocketClosed):
                await socket.send("x" * 20_000_000)
        with pytest.raises(SocketClosed):
            await socket.send("next")

        async def read() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                tail.append(await client.read_to_end())

        nursery.start_soon(read)
    assert all(received[10:].strip(b"x") == b"" for received in tail)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([(TEXT, b"\xff", {})], 1007),
        ([(3, b"", {})], 1002),
        ([(TEXT, b"x", {"masked": False})], 1002),
        ([(TEXT, b"", {"length": 100_001})], 1009),
    ],
)
async def test_a_client_that_breaks_the_protocol_is_told_how(
    dialled: Any, make_frame: Make, frames: list[tuple[int, bytes, dict[str, Any]]], code: int
) -> None:
    async with trio.open_nursery() as nursery, opened(dialled) as (socket, client):
        await client.send(b"".join(make_frame(opcode, payload, **options) for opcode, payload, options in frames))
        assert await closed_code(socket) == code
        words: list[tuple[int, str]] = []

        async def read() -> None:
            words.append(await client.read_close())
            await client.aclose()

        nursery.start_soon(read)
    assert [word for word, _ in words] == [code]


async def test_close_waits_for_the_clients_close_and_not_longer_than_its_deadline_d15(
    dialled: Any, make_frame: Make
) -> None:
    for answers in (True, False):
        async with opened(dialled) as (socket, client):
            started = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(socket.close, 1012, "again")
                opcode, payload = await client.read_frame()
                assert (opcode, payload) == (CLOSE, struct.pack("!H", 1012) + b"again")
                if answers:
                    await client.send(make_frame(PING, b"late") + make_frame(CLOSE, payload))
            took = trio.current_time() - started
            assert took < 0.2 if answers else 0.25 < took < 1
            assert (await closed_code(socket)) == 1012
            client.reset()


async def closed_code(socket: WebSocket) -> int:
    with pytest.raises(SocketClosed) as closed:
        await socket.receive()
    return closed.value.code


async def test_a_cancelled_close_still_lets_go_of_everything_d15(dialled: Any) -> None:
    started = trio.current_time()
    with trio.CancelScope() as scope:
        async with opened(dialled) as (socket, _):
            scope.cancel()
            await socket.close(1000)
    assert scope.cancelled_caught
    assert trio.current_time() - started < 1.5


@pytest.mark.parametrize("order", ["close,reset", "reset", "fin"])
async def test_a_reader_ends_when_its_client_is_gone_d13(dialled: Any, make_frame: Make, order: str) -> None:
    async with opened(dialled) as (socket, client):
        if order.startswith("close"):
            await client.send(make_frame(CLOSE, b"\x03\xe8"))
        if order.endswith("reset"):
            client.reset()
        else:
            await client.stream.send_eof()
        with trio.fail_after(1), pytest.raises(SocketClosed):
            await socket.receive()


async def test_a_client_that_leaves_during_the_upgrade_is_a_closed_socket(dialled: Any) -> None:
    server, client = await socket_pair()
    await trio.aclose_forcefully(client)
    with pytest.RaisesGroup(pytest.RaisesExc(SocketClosed), flatten_subgroups=True, allow_unwrapped=True):
        async with open_socket(server, Upgrade(HEAD, b""), QUICK) as socket:
            await socket.receive()


async def test_what_the_librarys_reader_raises_ends_this_socket_only(
    dialled: Any, until: Any, monkeypatch: pytest.MonkeyPatch, make_frame: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def crash(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise UnicodeError("a header")

    monkeypatch.setattr(WebSocketConnection, "_handle_ping_event", crash)
    words: list[tuple[int, str]] = []
    async with trio.open_nursery() as nursery, opened(dialled) as (socket, client):
        await client.send(make_frame(PING, b"x"))
        assert await closed_code(socket) == 1006
        await until(lambda: caplog.records)
        assert [record.getMessage() for record in caplog.records] == ["the reader of a websocket failed: UnicodeError"]

        async def read() -> None:
            words.append(await client.read_close())
            await client.aclose()

        nursery.start_soon(read)
    assert words == [(1011, "")]


async def test_a_closed_socket_sends_and_pings_nothing_and_closes_once(dialled: Any, make_frame: Make) -> None:
    async with opened(dialled) as (socket, client):
        await client.send(make_frame(CLOSE, b"\x03\xe8bye"))
        assert await closed_code(socket) == 1000
        for attempt in (socket.send("x"), socket.ping()):
            with pytest.raises(SocketClosed) as closed:
                await attempt
            assert (closed.value.code, closed.value.reason) == (1000, "bye")
        await socket.close(1012)
        await socket.close(1001)
        assert await closed_code(socket) == 1012


async def test_an_upgrade_that_cannot_be_answered_in_time_is_given_up(autojump_clock: MockClock) -> None:
    class Full(trio.abc.HalfCloseableStream):
        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            await trio.sleep_forever()

        async def wait_send_all_might_not_block(self) -> None:
            await trio.sleep_forever()

        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            await trio.sleep_forever()
            return b""

        async def send_eof(self) -> None:
            await trio.lowlevel.checkpoint()

        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()

    for limits in (Limits(head_deadline_s=5, write_deadline_s=50), Limits(head_deadline_s=50, write_deadline_s=5)):
        started = trio.current_time()
        with pytest.RaisesGroup(pytest.RaisesExc(SocketClosed), flatten_subgroups=True):
            async with open_socket(Full(), Upgrade(HEAD, b""), limits):
                raise AssertionError("it must not open")
        assert 5 <= trio.current_time() - started <= 5 + 2 * limits.close_deadline_s


async def test_a_head_that_the_library_does_not_take_is_an_error_of_ours() -> None:
    server, client = await socket_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_eof)
        with pytest.RaisesGroup(pytest.RaisesExc(UnicodeError), flatten_subgroups=True):
            async with open_socket(server, Upgrade(HEAD.replace(b"gateway", b"xn--0"), b""), QUICK):
                raise AssertionError("it must not open")
    assert server.socket.fileno() == -1
    await trio.aclose_forcefully(client)
