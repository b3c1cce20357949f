"""Scenarios of the client library: against the real gateway with what can happen to both, and against servers that are
none."""

import contextlib
import io
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
import wsproto
from trio.testing import wait_all_tasks_blocked
from wsproto import events as ws

from actors.client.answers import parse_answers
from actors.client.attachment import Attachment
from actors.client.connection import ConnectFailed, Connection, Detached, LinkClosed, Refused, connect
from actors.client.plain import Plain
from actors.client.watch import Watch
from actors.testing.sweep import Stage, scenario
from protocol import events as ev
from tests.sweeps.gateway_stage import AT_LINKS, OVER, House, house


class Caller:
    """Somebody who uses the client library and comes back whenever the connection is gone.

    Attributes:
        seen: `(log_id, seq)` of each record.
        asked: The questions that are open, as far as was seen.
    """

    def __init__(self, here: House) -> None:
        self.here = here
        self.seen: list[tuple[str, int]] = []
        self.asked: set[str] = set()
        self.known = ("", 0)
        self._connection: Connection | None = None

    def vanish(self) -> None:
        """Lose the connection, at any moment."""
        stream: Any = self._connection._socket._stream if self._connection and self._connection._socket else None
        if stream is not None:
            with contextlib.suppress(OSError):  # it is gone already
                stream._inner.socket.shutdown(trio.socket.SHUT_RDWR)

    @asynccontextmanager
    async def attached(self) -> AsyncGenerator[tuple[Connection, Attachment]]:
        """Connect, open the session, attach where it was the last time."""
        async with connect(self.here.gateway.url, self.here.gateway.token) as connection:
            self._connection = connection
            await connection.call("session/open", session="s")
            log_id, cursor = self.known
            attachment = await connection.attach("s", log_id=log_id, cursor=cursor)
            assert attachment.mode != "tail" or (attachment.log_id, attachment.cursor) == self.known
            yield connection, attachment
            self.known = (attachment.log_id, attachment.cursor)

    async def run(self, text: str, command: str) -> str:
        """Prompt, come back as often as that takes, and return how the run has ended."""
        while True:
            try:
                async with self.attached() as (connection, attachment):
                    try:
                        return await self._run(connection, attachment, text, command)
                    finally:
                        self.known = (attachment.log_id, attachment.cursor)
            except (LinkClosed, ConnectFailed):
                assert {*AT_LINKS} & {*self.here.stage.struck}, "the connection was lost and nobody struck it"
            except (Detached, Refused) as told:
                struck = self.here.stage.struck
                gone = "session" in struck and told.code in OVER
                settled = {"request", "session"} & {*struck} and told.code == "ask.settled"
                if not (gone or settled or "error" in struck):
                    raise
                self.asked.clear()

    async def _run(self, connection: Connection, attachment: Attachment, text: str, command: str) -> str:
        prompt: dict[str, Any] = await connection.call(
            "session/prompt", session="s", text=text, command=command, when_busy="queue"
        )
        while True:
            for ask in sorted(self.asked):
                await connection.call("session/answer", session="s", ask=ask, answer="yes", command=f"to {ask}")
                self.asked.discard(ask)
            event = await anext(attachment)
            if event.seq:
                self.seen.append((attachment.log_id, event.seq))
            if isinstance(event, ev.AskOpened):
                self.asked.add(event.ask.tool_call_id)
            if isinstance(event, ev.AskSettled):
                self.asked.discard(event.tool_call_id)
            if event.run == prompt["run"] and isinstance(event, ev.RUN_ENDS):
                return type(event).__name__

    def check(self) -> None:
        """Check that there is no gap in what was seen of each log."""
        for (log_id, seq), (next_log, following) in zip(self.seen, self.seen[1:], strict=False):
            assert next_log != log_id or following == seq + 1, f"{following} follows {seq}"


def _ended(how: str, stage: Stage) -> None:
    cut = {"request": "RunCancelled", "session": "RunFailed"}
    assert how == "RunCompleted" or how in [cut.get(name) for name in stage.struck], how


@scenario(faults=["cancel", "error", "session", "vanish", "vanish+2:vanish"], errors_in="*client*")
async def follows(stage: Stage) -> None:
    """A caller sees a run to its end, over as many connections as that takes, and every record once."""
    async with house(stage) as here:
        caller = Caller(here)
        stage.afterwards(caller.check)
        stage.fault("request", here.cancel_run)
        stage.fault("session", here.shut_session)
        stage.fault("link", here.stop_link)
        stage.fault("vanish", caller.vanish)
        _ended(await caller.run("ask", "c1"), stage)


@scenario(faults=["error", "session"], errors_in="*client*")
async def detaches(stage: Stage) -> None:
    """One attaches, detaches, attaches again, and reads so late that its stream ends; the connection goes on."""
    async with house(stage) as here:
        try:
            async with connect(here.gateway.url, here.gateway.token, max_events=1) as connection:
                stage.fault("link", here.stop_link)
                stage.fault("session", here.shut_session)
                await connection.call("session/open", session="s")
                first = await connection.attach("s")
                await first.detach()
                late = await connection.attach("s", log_id=first.log_id, cursor=first.cursor)
                await connection.call("session/prompt", session="s", text="on")
                try:
                    async for _ in late:
                        await trio.sleep(10)
                    raise AssertionError("it ends by raising why")
                except Detached as told:
                    if told.code != "link.too_slow" and not stage.struck:
                        raise
                assert (await connection.call("session/list"))["more"] is False
        except (LinkClosed, ConnectFailed):
            assert {*AT_LINKS} & {*stage.struck}
        except Refused as told:
            if not (("session" in stage.struck and told.code in OVER) or "error" in stage.struck):
                raise


@scenario(faults=["cancel", "error", "request"], errors_in="*client*")
async def watches(stage: Stage) -> None:
    """A run is followed without a terminal, its question answered out of a file."""
    async with house(stage) as here:
        out = io.StringIO()
        try:
            async with connect(here.gateway.url, here.gateway.token) as connection:
                stage.fault("link", here.stop_link)
                stage.fault("session", here.shut_session)
                stage.fault("request", here.cancel_run)
                await connection.call("session/open", session="s")
                attachment = await connection.attach("s")
                await connection.call("session/prompt", session="s", text="ask")
                watch = Watch(connection, attachment, once=True, person=False, answers=parse_answers('["yes"]'))
                ended = await Plain(watch, out).run()
                assert ended is not None
                assert stage.struck or "fine" in out.getvalue(), out.getvalue()
        except (LinkClosed, ConnectFailed):
            assert {*AT_LINKS} & {*stage.struck}
        except (Detached, Refused) as told:
            if not (("session" in stage.struck and told.code in OVER) or "error" in stage.struck):
                raise


# ---- servers that are none

Served = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def _serving(served: Served) -> AsyncGenerator[str]:
    """Serve every connection with a function."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            await served(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            stream.socket.close()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            nursery.cancel_scope.cancel()
    finally:
        for listener in listeners:
            listener.socket.close()


async def _says(stream: trio.SocketStream, answer: bytes) -> None:
    await stream.receive_some()
    await stream.send_all(answer)


async def _never(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


def _upgrades(subprotocol: str | None, *texts: str) -> Served:
    """A server that becomes a websocket, sends these texts, and reads on until the client is gone."""

    async def serve(stream: trio.SocketStream) -> None:
        wire = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        while True:
            data = await stream.receive_some()
            if not data:
                return
            wire.receive_data(data)
            for event in wire.events():
                if isinstance(event, ws.Request):
                    await stream.send_all(wire.send(ws.AcceptConnection(subprotocol=subprotocol)))
                    for text in texts:
                        await stream.send_all(wire.send(ws.TextMessage(data=text)))
                elif isinstance(event, ws.CloseConnection):
                    await stream.send_all(wire.send(event.response()))

    return serve


async def _fails(served: Served, wanted: str, stage: Stage, scheme: str = "ws") -> None:
    """Connect to a server, and check how that fails."""
    async with _serving(served) as place:
        try:
            async with connect(f"{scheme}://{place}/ws", "x"):
                raise AssertionError("that is no gateway")
        except* (ConnectFailed, LinkClosed) as failed:  # in a group where the injected error came besides
            if wanted not in str(failed.exceptions[0]) and not stage.struck:
                raise


@scenario(faults=["cancel", "error"], errors_in="*client*")
async def refused(stage: Stage) -> None:
    """The server refuses, hangs up during the upgrade, speaks another language, or something that is none."""

    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.receive_some()

    await _fails(lambda stream: _says(stream, b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"), "401", stage)
    await _fails(hang_up, "closed the connection before", stage)
    await _fails(_upgrades(None), "does not speak", stage)
    await _fails(_upgrades("actors.v1", "}"), "(1002)", stage)


@scenario(faults=["cancel", "error"], errors_in="*client*")
async def silent(stage: Stage) -> None:
    """Nobody is there; the server says nothing, or nothing any more once it is a websocket: all of it ends in time."""
    begun = trio.current_time()
    async with _serving(_never) as place:
        nobody = place
    try:
        async with connect(f"ws://{nobody}/ws", "x"):
            raise AssertionError("nobody is there")
    except ConnectFailed:
        pass
    await _fails(_never, "did not answer", stage)
    await _fails(_upgrades("actors.v1"), "did not answer", stage)
    assert trio.current_time() - begun <= 25
    await wait_all_tasks_blocked()


@scenario(faults=["cancel"])
async def secure(stage: Stage) -> None:
    """The client speaks TLS, the server does not."""
    await _fails(lambda stream: _says(stream, b"this is no TLS\r\n"), "TLS", stage, "wss")
