"""The guarded stream: deadlines, cut writes, pacing, and what happens after our Close."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from actors.gateway.guard import GuardedStream, close_frame, linger, short_reason
from actors.gateway.head import Upgrade
from protocol.limits import Limits

Make = Callable[..., bytes]
TEXT, CONTINUATION, CLOSE, PING = 1, 0, 8, 9


class Client(trio.abc.HalfCloseableStream):
    """The server's end of a connection whose client takes bytes only when it is let."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.room = trio.Event()
        self.room.set()
        self.to_server, self.incoming = trio.open_memory_channel[bytes](1_000)
        self.eof = self.closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.taken += data[:1]
        await self.room.wait()
        await trio.lowlevel.checkpoint()
        self.taken += data[1:]

    async def wait_send_all_might_not_block(self) -> None:
        await self.room.wait()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            return await self.incoming.receive()
        except trio.EndOfChannel:
            return b""

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        self.eof = True

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


def guarded(client: Client, *, early: bytes = b"", **limits: float) -> GuardedStream:
    stream = GuardedStream(client, Upgrade(b"HEAD", early), Limits(**limits))  # type: ignore[arg-type]
    return stream


async def opened(client: Client, *, early: bytes = b"", **limits: float) -> GuardedStream:
    stream = guarded(client, early=early, **limits)
    assert await stream.receive_some() == b"HEAD"
    stream.accepted()
    return stream


async def test_frames_wait_until_the_upgrade_is_answered_and_early_ones_come_first(make_frame: Make) -> None:
    client = Client()
    first, second = make_frame(TEXT, b"1"), make_frame(TEXT, b"2")
    stream = guarded(client, early=first)
    client.to_server.send_nowait(second)
    assert await stream.receive_some() == b"HEAD"
    got: list[bytes] = []

    async def read() -> None:
        got.append(await stream.receive_some())
        got.append(await stream.receive_some())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        assert got == []
        stream.accepted()
    assert got == [first, second]


async def test_a_write_that_takes_too_long_poisons_the_stream(autojump_clock: MockClock) -> None:
    client = Client()
    stream = await opened(client, write_deadline_s=5)
    client.room = trio.Event()
    started = trio.current_time()
    with pytest.raises(trio.BrokenResourceError, match=r"^the client took nothing for 5 seconds$"):
        await stream.send_all(b"frame")
    assert trio.current_time() - started == 5
    client.room.set()
    for again in (stream.send_all(b"next"), stream.receive_some()):
        with pytest.raises(trio.BrokenResourceError, match=r"^a write was cut short, nothing may follow it$"):
            await again
    await stream.finish(1000, "")
    assert bytes(client.taken) == b"f"


async def test_a_cancelled_write_is_followed_by_nothing_d23(autojump_clock: MockClock) -> None:
    client = Client()
    stream = await opened(client)
    client.room = trio.Event()
    with trio.move_on_after(1):
        await stream.send_all(b"frame")
    client.room.set()
    with pytest.raises(trio.BrokenResourceError, match=r"^a write was cut short"):
        await stream.send_all(b"next")
    assert bytes(client.taken) == b"f"


async def test_the_deadline_is_for_progress_so_a_large_frame_may_take_long(autojump_clock: MockClock) -> None:
    class Slow(Client):
        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            await trio.sleep(4)
            self.taken += data

    client = Slow()
    stream = await opened(client, write_deadline_s=5)
    await stream.send_all(b"x" * 1_000_000)
    assert len(client.taken) == 1_000_000


async def test_reading_goes_on_while_a_write_is_going_on(make_frame: Make) -> None:
    client = Client()
    stream = await opened(client)
    client.room = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, b"frame")
        await wait_all_tasks_blocked()
        assert stream.sending
        client.to_server.send_nowait(make_frame(TEXT, b"x"))
        assert await stream.receive_some() == make_frame(TEXT, b"x")
        client.room.set()
    assert not stream.sending


async def test_what_breaks_a_bound_never_reaches_the_parser(make_frame: Make) -> None:
    client = Client()
    stream = await opened(client, max_message_bytes=10)
    client.to_server.send_nowait(make_frame(TEXT, b"ok") + make_frame(TEXT, length=11))
    with pytest.raises(trio.BrokenResourceError, match=r"^a message has at most 10 bytes$"):
        await stream.receive_some()
    assert stream.violation is not None
    assert stream.violation.close_code == 1009
    with pytest.raises(trio.ClosedResourceError, match=r"^this stream was closed$"):
        await stream.receive_some()


async def test_after_our_close_only_the_clients_close_is_heard(make_frame: Make) -> None:
    client = Client()
    stream = await opened(client)
    await stream.send_all(close_frame(1012, "again"))
    assert stream.close_sent
    with pytest.raises(trio.ClosedResourceError, match=r"^a Close frame was sent, nothing follows it$"):
        await stream.send_all(b"pong")
    for late in (make_frame(PING, b"late"), make_frame(TEXT, b"late"), make_frame(CLOSE, b"\x03\xf4")):
        client.to_server.send_nowait(late)
    assert await stream.receive_some() == b""
    assert client.incoming.statistics().current_buffer_used == 0


async def test_messages_that_nobody_takes_stop_the_reading_until_one_is_taken(make_frame: Make) -> None:
    client = Client()
    stream = await opened(client, max_message_bytes=100)
    for _ in range(6):
        client.to_server.send_nowait(make_frame(TEXT, b"x" * 100))
    got: list[bytes] = []

    async def read() -> None:
        while True:
            got.append(await stream.receive_some())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        assert len(got) == 5
        stream.taken()
        await wait_all_tasks_blocked()
        assert len(got) == 6
        nursery.cancel_scope.cancel()


async def test_a_close_is_read_however_much_waits(make_frame: Make) -> None:
    client = Client()
    stream = await opened(client, max_message_bytes=100)
    for _ in range(5):
        client.to_server.send_nowait(make_frame(TEXT, b"x" * 100))
    client.to_server.send_nowait(make_frame(CLOSE, b"\x03\xe8"))
    got: list[bytes] = []

    async def read() -> None:
        while True:
            got.append(await stream.receive_some())
            if not got[-1]:
                return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        await stream.send_all(close_frame(1000, ""))
    assert got[-1] == b""


async def test_a_flood_of_tiny_frames_is_paced(autojump_clock: MockClock, make_frame: Make) -> None:
    client = Client()
    stream = await opened(client, max_message_bytes=1_000)
    flood = make_frame(PING, b"") * 10_000
    client.to_server.send_nowait(flood)
    started = trio.current_time()
    await stream.receive_some()
    assert trio.current_time() - started == pytest.approx((len(flood) + 10_000 * 256 - 262_144) / 1_048_576)


async def test_finish_says_the_code_half_closes_and_reads_until_the_client_is_done() -> None:
    client = Client()
    stream = await opened(client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.finish, 1009, "too big")
        await wait_all_tasks_blocked()
        assert bytes(client.taken) == close_frame(1009, "too big")
        assert client.eof
        client.to_server.send_nowait(b"still sending")
        await wait_all_tasks_blocked()
        client.to_server.close()


async def test_finish_says_nothing_twice() -> None:
    client = Client()
    stream = await opened(client)
    await stream.send_all(close_frame(1000, ""))
    client.to_server.close()
    await stream.finish(1001, "")
    assert bytes(client.taken) == close_frame(1000, "")


async def test_the_library_may_close_it_and_the_goodbye_still_goes_out() -> None:
    client = Client()
    stream = await opened(client)
    await stream.aclose()
    assert not client.closed
    with pytest.raises(trio.ClosedResourceError, match=r"^this stream was closed$"):
        await stream.send_all(b"x")
    client.to_server.close()
    await stream.finish(1007, "")
    assert bytes(client.taken) == close_frame(1007, "")


async def test_linger_reads_to_the_end() -> None:
    ours, theirs = memory_stream_pair()
    await theirs.send_all(b"x" * 100)
    await theirs.send_eof()
    await linger(ours)
    assert await theirs.receive_some() == b""


@pytest.mark.parametrize("reason", ["", "short", "x" * 500, "\u00e9" * 100, "\ud800"])
def test_a_reason_fits_a_close_frame(reason: str) -> None:
    assert len(short_reason(reason).encode()) <= 123
    assert close_frame(1000, reason)[:1] == b"\x88"
