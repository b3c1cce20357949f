"""Accepting goes on, whatever the machine or one connection does."""

import errno
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.gateway.listener import RETRY_S, accept_forever, open_listeners
from actors.testing.sweep import Stage, sweep


class Listener(trio.abc.Listener[Any]):
    """Plays a list of errors and streams, then waits until it is closed."""

    def __init__(self, *script: object) -> None:
        self.script = list(script)
        self.over = trio.Event()

    async def accept(self) -> Any:
        await trio.lowlevel.checkpoint()
        if self.script:
            step = self.script.pop(0)
            if isinstance(step, Exception):
                raise step
            return step
        await self.over.wait()
        raise trio.ClosedResourceError

    async def aclose(self) -> None:
        self.over.set()


def failing(code: int) -> OSError:
    return OSError(code, "no")


async def test_without_descriptors_it_waits_says_so_once_and_goes_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    listener = Listener(failing(errno.EMFILE), failing(errno.EMFILE), failing(errno.ENOBUFS), "one", "two")
    handled: list[tuple[object, float]] = []

    def handle(stream: object) -> None:
        handled.append((stream, trio.current_time()))

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept_forever, listener, handle)
        await trio.sleep(10)
        await listener.aclose()
    assert [stream for stream, _ in handled] == ["one", "two"]
    assert handled[0][1] - started == pytest.approx(3 * RETRY_S)
    assert [record.getMessage() for record in caplog.records] == [
        "no connection can be accepted: EMFILE",
        "connections are accepted again",
    ]


async def test_a_connection_that_died_in_the_queue_stops_nothing() -> None:
    listener = Listener(failing(errno.ECONNABORTED), failing(errno.EPROTO), "one")
    handled: list[object] = []

    def handle(stream: object) -> None:
        handled.append(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept_forever, listener, handle)
        await wait_all_tasks_blocked()
        await listener.aclose()
    assert handled == ["one"]


@pytest.mark.parametrize("host", ["localhost", ""])
async def test_with_port_0_one_port_is_listened_on(host: str) -> None:
    listeners = await open_listeners(host, 0)
    assert len(listeners) == 1
    await listeners[0].aclose()


async def test_with_a_port_every_address_of_the_host_is_listened_on() -> None:
    (first,) = await open_listeners("127.0.0.1", 0)
    port = first.socket.getsockname()[1]
    await first.aclose()
    listeners = await open_listeners("", port)
    assert {listener.socket.getsockname()[1] for listener in listeners} == {port}
    for listener in listeners:
        await listener.aclose()


async def test_an_address_in_use_is_an_error() -> None:
    (first,) = await open_listeners("127.0.0.1", 0)
    port = first.socket.getsockname()[1]
    with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
        await open_listeners("127.0.0.1", port)
    await first.aclose()


def test_whenever_it_is_cancelled_no_listener_is_left() -> None:
    async def listening(stage: Stage) -> None:
        for listener in await open_listeners("", 0):  # on several addresses, of which one is kept
            await listener.aclose()

    sweep(listening).check()
