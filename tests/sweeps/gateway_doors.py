"""Scenarios of those who must not come in, and of those who send what they must not: each is alone with its failure."""

import errno

import trio

from actors.gateway.listener import accept_forever, open_listeners
from actors.testing.sweep import Stage, scenario
from tests.sweeps.gateway_stage import house, made
from tests.sweeps.gateway_wire import BINARY, CLOSE, PING, PONG, TEXT, Gone, Wire, frame, head


async def _status(wire: Wire, sent: bytes, found: list[int]) -> None:
    """Send something in the place of a head, and note the status of the response; 0 where there is none."""
    try:
        await wire.send(sent)
        found.append(await wire.read_head())
        await wire.read_to_end()
    except Gone:
        found.append(0)
    finally:
        wire.close()


@scenario(faults=["error", "vanish", "link"], errors_in="*link*")
async def refused(stage: Stage) -> None:
    """Wrong token, foreign page, no HTTP at all, a head without an end, one connection too many: each its answer."""
    async with house(stage, limits=made(max_connections=5, close_deadline_s=1.0)) as here:
        stage.fault("vanish", here.hang_up)
        stage.fault("link", here.stop_link)
        here.wires = [Wire(here.gateway) for _ in range(6)]  # in this order, so that the last is one too many
        found: list[list[int]] = [[] for _ in here.wires]
        async with trio.open_nursery() as nursery:
            for place, sent in enumerate((
                head(here.gateway)[:-2],
                head(here.gateway, token="x" * 22),
                head(here.gateway, "Origin: http://elsewhere.example"),
                b"\x16\x03\x01\x02\x00\x01 this is no HTTP\r\n\r\n",
                head(here.gateway, drop="Sec-WebSocket-Key"),
                head(here.gateway),
            )):  # fmt: skip
                nursery.start_soon(_status, here.wires[place], sent, found[place])
        wanted = [408, 401, 403, 400, 400, 503]
        got = [statuses[0] for statuses in found]
        strange = [has for want, has in zip(wanted, got, strict=True) if want != has]
        if stage.struck and 101 in strange[-1:]:
            strange.pop()  # one that was struck has left its place to the last
        assert strange == [0] * len(strange), f"for {wanted} there were {got}"
        assert len(strange) <= len(stage.struck), f"for {wanted} there were {got}"
        here.wires.clear()
        stage.withdraw("vanish")
        page = here.page()
        here.ended(await page.run("on", "c1"))


@scenario(faults=["error", "link"], errors_in="*link*")
async def garbage(stage: Stage) -> None:
    """Frames that break the protocol end their own connection with its code; what is no call is answered."""
    async with house(stage, limits=made(max_message_bytes=2_000, close_deadline_s=1.0)) as here:
        good = here.page()
        with here.attempt(good):
            await good.join()
        here.offer(good)
        found: dict[int, int] = {}

        async def send(wanted: int, sent: bytes) -> None:
            page = here.page()
            codes: list[int] = []
            with here.attempt(page, codes):
                await page.connect()
                here.losses_planned += 1
                assert page.wire is not None
                await page.wire.send(sent)
                while True:
                    await page.take()
            found[wanted] = codes[0]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, 1002, frame(TEXT, b"x", masked=False))
            nursery.start_soon(send, 1003, frame(BINARY, b"x"))
            nursery.start_soon(send, 1009, frame(TEXT, b"x" * 2_001))
            nursery.start_soon(send, 1000, frame(TEXT, b"}") + frame(CLOSE, b"\x03\xe8"))
        strange = [(want, has) for want, has in found.items() if want != has]
        assert len(strange) <= len(stage.struck), f"closed with others: {strange}"
        here.withdraw()
        here.ended(await good.run("on", "c1"))


@scenario(faults=["error", "vanish"], errors_in="*link*")
async def flood(stage: Stage) -> None:
    """One sends more than may wait while its call takes long, and frames without number; it is slowed down, no more."""
    async with house(stage, limits=made(max_message_bytes=1_000)) as here:
        page = here.page()
        here.planned.add("-32700")
        with here.attempt(page):
            await page.connect()
            here.offer(page)
            here.store.delay_s = 1.0
            assert page.wire is not None
            await page.wire.send(page.frame_of("session/open", session="s") + frame(TEXT, b"}" + b" " * 900) * 6)
            await page.wire.send(frame(PING) + frame(PONG) * 1_700)
            begun = trio.current_time()
            await page.call("session/list")
            assert trio.current_time() > begun or stage.struck, "a flood is as fast as it likes"
        here.withdraw()
        here.store.delay_s = 0
        here.ended(await page.run("on", "c1"))


class _Tired(trio.abc.Listener[trio.SocketStream]):
    """A listener on a machine that has no more descriptors, for a while."""

    def __init__(self) -> None:
        self.errors = [errno.EMFILE, errno.EMFILE, errno.ECONNABORTED]

    async def accept(self) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        if not self.errors:
            raise trio.ClosedResourceError
        raise OSError(self.errors.pop(0), "not now")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@scenario(faults=["cancel", "error"])
async def listening(stage: Stage) -> None:
    """Listeners are opened on one of several addresses; accepting goes on after what was only bad luck."""
    begun = trio.current_time()
    tired = _Tired()
    await accept_forever(tired, lambda stream: None)
    assert not tired.errors
    assert trio.current_time() - begun == 0.2, "it did not wait where there were no descriptors"
    listeners = await open_listeners("", 0)
    try:
        assert len(listeners) == 1
    finally:
        for listener in listeners:
            listener.socket.close()
