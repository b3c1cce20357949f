"""Reading and checking the request head. What each broken rule is answered with is in test_gateway, over sockets."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MemoryReceiveStream, MockClock, memory_stream_one_way_pair, wait_all_tasks_blocked

from actors.gateway.access import make_access
from actors.gateway.head import Refused, Upgrade, read_head
from protocol.limits import Limits

TOKEN = "t" * 22
ACCESS = make_access("127.0.0.1", 8000, TOKEN)
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
HEAD = (
    f"GET /ws?x=\x7f HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
    f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: actors.v1\r\n"
    f"Sec-WebSocket-Extensions: permessage-deflate\r\nCookie: secret\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
).replace("\x7f", "1")


async def read(data: bytes, *, end: bool = True, **limits: Any) -> Upgrade | Refused | None:
    send, receive = memory_stream_one_way_pair()
    await send.send_all(data)
    if end:
        await send.aclose()
    return await read_head(receive, ACCESS, Limits(**limits))


async def test_the_parser_gets_nothing_but_constants_and_the_verified_key() -> None:
    upgrade = await read(HEAD.encode() + b"\x81\x80early")
    assert isinstance(upgrade, Upgrade)
    assert upgrade.early == b"\x81\x80early"
    assert upgrade.head.decode().split("\r\n") == [
        "GET /ws HTTP/1.1",
        "Host: gateway",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {KEY}",
        "Sec-WebSocket-Protocol: actors.v1",
        "",
        "",
    ]


async def test_a_head_may_come_byte_by_byte() -> None:
    send, receive = memory_stream_one_way_pair()
    results: list[object] = []

    async def reading() -> None:
        results.append(await read_head(receive, ACCESS, Limits()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reading)
        for byte in HEAD.encode():
            await send.send_all(bytes([byte]))
            await wait_all_tasks_blocked()
    assert isinstance(results[0], Upgrade)


async def test_the_deadline_is_for_the_whole_head_not_for_each_byte(autojump_clock: MockClock) -> None:
    send, receive = memory_stream_one_way_pair()
    started = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def drip() -> None:
            for byte in HEAD.encode():
                await send.send_all(bytes([byte]))
                await trio.sleep(1)

        nursery.start_soon(drip)
        refused = await read_head(receive, ACCESS, Limits(head_deadline_s=5))
        nursery.cancel_scope.cancel()
    assert refused == Refused(408, "the request head must be here within 5 seconds")
    assert trio.current_time() - started == 5


@pytest.mark.parametrize("cut", [0, 1, 100, len(HEAD) - 1])
async def test_a_client_that_leaves_is_answered_nothing(cut: int) -> None:
    assert await read(HEAD.encode()[:cut]) is None


async def test_a_broken_stream_is_a_client_that_left() -> None:
    async def broken() -> None:
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError

    assert await read_head(MemoryReceiveStream(receive_some_hook=broken), ACCESS, Limits()) is None


@pytest.mark.parametrize("split", [True, False])
async def test_the_size_limit_holds_however_the_head_arrives(split: bool) -> None:
    long = HEAD.replace("secret", "s" * 1_000)
    size = len(long)
    assert isinstance(await read(long.encode() + b"x" * 5_000, max_head_bytes=size), Upgrade)
    refused = await read(long.encode()[: -1 if split else None], end=False, max_head_bytes=size - 2)
    assert refused == Refused(431, f"a request head has at most {size - 2} bytes")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda head: head.replace("GET /ws?x=1", "GET /ws"), None),
        (lambda head: head.replace("/ws?x=1", "/other"), 404),
        (lambda head: head.replace("GET", "PUT"), 405),
        (lambda head: head.replace("Bearer t", "Bearer x"), 401),
        (lambda head: head.replace(KEY, KEY[:-2] + "x="), 400),
        (lambda head: head.replace("Cookie: secret", "Content-Length: 0"), None),
    ],
)
async def test_each_rule_has_its_status(change: Callable[[str], str], status: int | None) -> None:
    result = await read(change(HEAD).encode())
    if status is None:
        assert isinstance(result, Upgrade)
    else:
        assert isinstance(result, Refused)
        assert result.status == status


async def test_the_host_is_checked_before_anything_is_told_about_paths_and_tokens() -> None:
    foreign = HEAD.replace("127.0.0.1:8000", "evil.example").replace("/ws", "/secret").replace(TOKEN, "wrong")
    result = await read(foreign.encode())
    assert result == Refused(421, "this host is not served here")


def test_a_refusal_is_a_whole_response_that_ends_the_connection() -> None:
    assert Refused(405, "only GET is served", (("Allow", "GET"),)).encode() == (
        b"HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 19\r\n"
        b"Cache-Control: no-store\r\nConnection: close\r\nAllow: GET\r\n\r\nonly GET is served\n"
    )
