"""What the scenarios over real sockets share: a served agent, a client with all it has seen, one that can vanish."""

import json
import os
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import trio
import wsproto
from trio.testing import wait_all_tasks_blocked
from wsproto.events import AcceptConnection, Request, TextMessage

from actors import (
    Agent,
    AskUserExtension,
    Gateway,
    Model,
    ScriptedModel,
    TodoWriteExtension,
    open_agent,
    open_gateway,
)
from actors.client.connection import Attachment, Connection, Refused, connect
from actors.runtime import open_system
from protocol import events as ev
from protocol.commands import SUBPROTOCOL
from tests.faults.invariants import check_agent, check_session
from tests.scenarios.staging import check_system, sessions

E = TypeVar("E", bound=ev.Event)

# Far above what anything here takes: it ends a test that would hang.
GUARD_S = 30.0


async def wait_until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; look again whenever nothing but sockets can make it so."""
    while not condition():
        await wait_all_tasks_blocked(0.001)


@asynccontextmanager
async def served(turns: Sequence[Any] | Model, **options: Any) -> AsyncGenerator[tuple[Agent, Gateway]]:
    """Serve an agent with both extensions over a loopback socket, and check at the end that nothing is left.

    The end is compared with the beginning while agent and gateway still run: closing them hides nothing.

    Args:
        turns: A script, or a model.
        options: For `open_agent`.
    """
    options.setdefault("extensions", [TodoWriteExtension(), AskUserExtension()])
    model = ScriptedModel(turns) if isinstance(turns, Sequence) else turns
    with trio.fail_after(GUARD_S):
        async with open_system() as system:
            async with open_agent(model, system=system, **options) as agent, open_gateway(agent) as gateway:
                await wait_all_tasks_blocked()
                names, tasks, open_files = set(system.registry), _living(), _descriptors()
                yield agent, gateway
                await wait_until(lambda: not gateway.connections)
                for session in sessions(agent):
                    assert agent.session(session.id).asks == (), "a question is left open"
                    check_session(session)
                    await agent.session(session.id).close()
                check_agent(agent)
                await wait_until(lambda: _living() == tasks)
                assert set(system.registry) == names, "names are left"
                assert _descriptors() == open_files, "file descriptors are left"
            check_system(system)
        assert gateway.connections == 0


def _living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def _descriptors() -> int:
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    return len(os.listdir(folder))


@dataclass
class Seat:
    """A client that is attached to one session.

    Attributes:
        connection: Its connection.
        attachment: What it is attached with.
        seen: Every event it has taken, oldest first.
    """

    connection: Connection
    attachment: Attachment
    seen: list[ev.Event] = field(default_factory=list)

    async def until(self, kind: type[E], found: Callable[[E], object] = lambda event: True) -> E:
        """Take events up to one of this kind."""
        while True:
            event = await self.attachment.receive()
            self.seen.append(event)
            if isinstance(event, kind) and found(event):
                return event

    async def until_asked(self, count: int) -> list[str]:
        """Take events until so many more questions are open, and return the ids of their calls."""
        return [(await self.until(ev.AskOpened)).ask.tool_call_id for _ in range(count)]

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method on the session."""
        return await self.connection.call(f"session/{method}", session=self.attachment.session, **params)

    async def refused_answer(self, ask: str, answer: str) -> tuple[str, str]:
        """Answer, which must be refused, and return the code and the outcome that is named."""
        with pytest.raises(Refused) as refused:
            await self.call("answer", ask=ask, answer=answer)
        return refused.value.code, refused.value.details[0].code

    @property
    def log(self) -> list[tuple[str, int]]:
        """`(log_id, seq)` of each durable event taken."""
        return [(self.attachment.log_id, event.seq) for event in self.seen if event.seq]

    def of(self, run: str) -> list[ev.Event]:
        """The events of a run, the ephemeral ones too."""
        return [event for event in self.seen if event.run == run]


@asynccontextmanager
async def seat(gateway: Gateway, session: str, *, log_id: str = "", cursor: int = 0) -> AsyncGenerator[Seat]:
    """Connect a client and attach it to the session, which is made if there is none."""
    async with connect(gateway.url, gateway.token) as connection:
        await connection.call("session/open", session=session)
        yield Seat(connection, await connection.attach(session, log_id=log_id, cursor=cursor))


class BareClient:
    """A websocket client that sends several calls in one segment, and can be gone without a word."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._wire = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._messages: list[dict[str, Any]] = []

    async def upgrade(self, gateway: Gateway) -> None:
        """Become a websocket of this gateway and be initialized. A checkpoint."""
        token = [(b"Authorization", f"Bearer {gateway.token}".encode())]
        host = f"{gateway.host}:{gateway.port}"
        request = Request(host=host, target="/ws", subprotocols=[SUBPROTOCOL], extra_headers=token)
        await self._stream.send_all(self._wire.send(request))
        assert isinstance(await self._next_event(), AcceptConnection)
        await self.call("initialize", protocol=1)

    async def send(self, *calls: tuple[str, dict[str, Any]]) -> None:
        """Send calls in one go; their ids count from 1."""
        frames = b""
        for number, (method, params) in enumerate(calls, 1):
            text = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            frames += self._wire.send(TextMessage(data=text))
        await self._stream.send_all(frames)

    async def call(self, method: str, **params: Any) -> Any:
        """Send one call and return its result; what comes before it is passed over."""
        await self.send((method, params))
        return (await self.until(lambda message: message.get("id") == 1))["result"]

    async def until(self, found: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Take messages up to the one that is looked for."""
        while True:
            message = await self.receive()
            if found(message):
                return message

    async def until_event(self, type_: str) -> dict[str, Any]:
        """Take messages up to an event of this type, and return the event."""
        message = await self.until(lambda one: one.get("method") == "event" and one["params"]["event"]["type"] == type_)
        event: dict[str, Any] = message["params"]["event"]
        return event

    async def receive(self) -> dict[str, Any]:
        """Take one message."""
        event = await self._next_event()
        assert isinstance(event, TextMessage) and event.message_finished, event
        message: dict[str, Any] = json.loads(event.data)
        return message

    async def _next_event(self) -> Any:
        while True:
            for event in self._wire.events():
                return event
            self._wire.receive_data(bytes(await self._stream.receive_some()) or None)

    def vanish(self) -> None:
        """Reset the connection: no goodbye, no close frame, whatever was on its way is gone. Idempotent."""
        if self._stream.socket.fileno() < 0:
            return
        self._stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._stream.socket.close()


@asynccontextmanager
async def bare_client(gateway: Gateway) -> AsyncGenerator[BareClient]:
    """Connect a bare client; it vanishes at the end, if it has not before."""
    client = BareClient(await trio.open_tcp_stream(gateway.host, gateway.port))
    try:
        await client.upgrade(gateway)
        yield client
    finally:
        client.vanish()
