"""A websocket client that can do everything wrong, and a gateway on a real agent to do it to."""

import base64
import json
import os
import socket as stdlib_socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio
from msgspec import Struct

from actors.agent.agent import Agent, open_agent
from actors.extensions.ask_user import AskUserExtension
from actors.gateway import Gateway, open_gateway
from actors.gateway.websocket import SocketClosed
from actors.models.scripted import ScriptedModel, say
from protocol.errors import Code, RuleViolation
from protocol.limits import Limits

# ---- without sockets


class FakeSocket:
    """A socket whose client is the test."""

    def __init__(self) -> None:
        self.to_link, self._inbox = trio.open_memory_channel[str | bytes | SocketClosed](100)
        self.sent: list[str] = []
        self.closed_with: tuple[int, str] | None = None
        self.stalled: trio.Event | None = None
        self.answers_pings = True
        self.heard = 0
        self.sending = False
        self.pings = 0

    async def receive(self) -> str | bytes:
        message = await self._inbox.receive()
        if isinstance(message, SocketClosed):
            raise message
        return message

    async def send(self, text: str) -> None:
        if self.stalled is not None:
            await self.stalled.wait()
        await trio.lowlevel.checkpoint()
        self.sent.append(text)

    async def ping(self) -> None:
        self.pings += 1
        if not self.answers_pings:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await trio.lowlevel.checkpoint()
        self.closed_with = self.closed_with or (code, reason)

    @property
    def messages(self) -> list[Any]:
        """What was sent, out of its arrays."""
        read = [json.loads(text) for text in self.sent]
        return [message for each in read for message in (each if isinstance(each, list) else [each])]

    def call(self, method: str, params: dict[str, Any] | None = None, call_id: int = 1) -> None:
        text = {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params or {}}
        self.to_link.send_nowait(json.dumps(text))


class FakeAttached(Struct):
    log_id: str
    seq: int


class FakeSession:
    """A session that does what it is told to, in order, and nothing by itself."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.log_id = f"log of {session_id}"
        self.seq = 1
        self.readers: list[Any] = []
        self.submitted: list[tuple[Any, Any]] = []
        self.holding = False
        self.result: Any = {"seq": 1}
        self.replay: list[Any] = []

    @property
    def committed(self) -> int:
        return self.seq

    async def submit(self, command: Any, reply: Any, *, reader: Any = None) -> None:
        await trio.lowlevel.checkpoint()
        self.submitted.append((command, reply))
        if not self.holding:
            self.serve(command, reply, reader)

    def serve(self, command: Any, reply: Any, reader: Any) -> None:
        if reader is None or isinstance(self.result, RuleViolation):
            reply(self.result)
        else:
            reply(FakeAttached(self.log_id, self.seq))
            if all(reader.offer(event) for event in self.replay):
                self.readers.append(reader)

    def emit(self, event: Any) -> None:
        self.seq = event.seq or self.seq
        self.readers = [reader for reader in self.readers if reader.offer(event)]

    def detach(self, reader: Any) -> None:
        self.readers = [other for other in self.readers if other is not reader]


class FakeAgent:
    def __init__(self, *session_ids: str) -> None:
        self.sessions = {session_id: FakeSession(session_id) for session_id in session_ids}
        self.closing: trio.Event | None = None

    def find(self, session_id: str) -> FakeSession | None:
        return self.sessions.get(session_id)

    async def wake_session(self, session_id: str) -> FakeSession | None:
        return self.find(session_id)

    async def open_session(self, session_id: str | None = None) -> tuple[FakeSession, bool]:
        await trio.lowlevel.checkpoint()
        wanted = session_id or f"minted-{len(self.sessions)}"
        created = wanted not in self.sessions
        return self.sessions.setdefault(wanted, FakeSession(wanted)), created

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> tuple[list[str], bool]:
        ids = sorted(session_id for session_id in self.sessions if session_id > after)
        return ids[:limit], len(ids) > limit

    async def close_session(self, session_id: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.closing is not None:
            await self.closing.wait()
        for reader in self.sessions.pop(session_id).readers:
            reader.closed(Code.SESSION_CLOSED, 1)


@pytest.fixture
def fake_socket() -> FakeSocket:
    return FakeSocket()


@pytest.fixture
def fake_agent() -> Callable[..., FakeAgent]:
    return FakeAgent


# ---- with sockets

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True, length: int | None = None
) -> bytes:
    """A client's frame, well-formed unless told otherwise. The mask is all zeros."""
    size = len(payload) if length is None else length
    bit = 0x80 if masked else 0
    head = bytes([(0x80 if fin else 0) | opcode])
    if size < 126:
        head += bytes([bit | size])
    elif size < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    return head + (b"\0\0\0\0" if masked else b"") + payload


class RawClient:
    """A TCP connection to a gateway. Reads frames, sends whatever it is told."""

    def __init__(self, stream: trio.SocketStream, gateway: Gateway) -> None:
        self.stream = stream
        self.gateway = gateway
        self.buffer = b""
        self.pending: list[dict[str, Any]] = []
        self.ids = 0

    def head(self, *extra: str, path: str = "/ws", drop: tuple[str, ...] = (), token: str | None = None) -> bytes:
        headers = {
            "Host": f"127.0.0.1:{self.gateway.port}",
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Protocol": "actors.v1",
            "Authorization": f"Bearer {self.gateway.token if token is None else token}",
        }
        lines = [f"{name}: {value}" for name, value in headers.items() if name not in drop]
        return "\r\n".join([f"GET {path} HTTP/1.1", *lines, *extra, "", ""]).encode("latin-1")

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def read_response(self) -> tuple[int, bytes]:
        """Read an HTTP response whole; 0 where the connection ends before one."""
        while b"\r\n\r\n" not in self.buffer:
            data = await self.stream.receive_some(65536)
            if not data:
                return 0, self.buffer
            self.buffer += data
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return int(head.split()[1]), head

    async def read_to_end(self) -> bytes:
        while data := await self.stream.receive_some(65536):
            self.buffer += data
        return self.buffer

    async def upgrade(self, *extra: str, **options: Any) -> "RawClient":
        await self.send(self.head(*extra, **options))
        status, head = await self.read_response()
        assert status == 101, head
        return self

    async def _bytes(self, count: int) -> bytes:
        while len(self.buffer) < count:
            data = await self.stream.receive_some(65536)
            if not data:
                raise EOFError
            self.buffer += data
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    async def read_frame(self) -> tuple[int, bytes]:
        """Read one frame of the server, which must be whole and unmasked."""
        first, second = await self._bytes(2)
        assert first & 0x80
        assert not second & 0x80
        size = second
        if second == 126:
            (size,) = struct.unpack("!H", await self._bytes(2))
        elif second == 127:
            (size,) = struct.unpack("!Q", await self._bytes(8))
        return first & 0x0F, await self._bytes(size)

    async def read_close(self) -> tuple[int, str]:
        """Skip to the Close frame; (1006, "") where the connection ends without one."""
        try:
            while True:
                opcode, payload = await self.read_frame()
                if opcode == CLOSE:
                    return struct.unpack("!H", payload[:2])[0], payload[2:].decode()
        except (EOFError, trio.BrokenResourceError):
            return 1006, ""

    async def send_text(self, text: str) -> None:
        await self.send(frame(TEXT, text.encode()))

    async def send_call(self, method: str, params: dict[str, Any] | None = None) -> int:
        self.ids += 1
        await self.send_text(json.dumps({"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params or {}}))
        return self.ids

    async def next_message(self) -> dict[str, Any]:
        """The next message, out of an array or not; pings are answered."""
        while not self.pending:
            opcode, payload = await self.read_frame()
            if opcode == PING:
                await self.send(frame(PONG, payload))
                continue
            if opcode == CLOSE:
                raise EOFError(struct.unpack("!H", payload[:2])[0], payload[2:].decode())
            if opcode == PONG:
                continue
            message = json.loads(payload)
            self.pending += message if isinstance(message, list) else [message]
        return self.pending.pop(0)

    async def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Call and return the result, or the error; notifications that come before it are dropped."""
        wanted = await self.send_call(method, params)
        while True:
            message = await self.next_message()
            if message.get("id") == wanted:
                return message.get("result", message.get("error"))

    async def initialize(self, **params: Any) -> Any:
        return await self.call("initialize", {"protocol": 1, **params})

    def reset(self) -> None:
        """Vanish by RST."""
        self.stream.socket.setsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self.stream)


async def wait_until(condition: Callable[[], object]) -> None:
    """Wait, for 3 seconds at most, for what must come about by itself."""
    with trio.fail_after(3):
        while not condition():  # noqa: ASYNC110 - the other side is a socket, which gives no event
            await trio.sleep(0.005)


@pytest.fixture
def raw_client() -> type[RawClient]:
    return RawClient


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return wait_until


@pytest.fixture
def make_frame() -> Callable[..., bytes]:
    return frame


@pytest.fixture
def dial() -> Callable[[Gateway], Awaitable[RawClient]]:
    """Open a TCP connection to a gateway, nothing sent yet."""

    async def connect(gateway: Gateway) -> RawClient:
        return RawClient(await trio.open_tcp_stream("127.0.0.1", gateway.port), gateway)

    return connect


@pytest.fixture
def served() -> Callable[..., AbstractAsyncContextManager[tuple[Agent, Gateway]]]:
    """Open an agent with a gateway; afterwards nothing of either is left: no connection, task or descriptor."""

    @asynccontextmanager
    async def open_served(
        *script: Any, limits: Limits | None = None, tools: Any = (), **options: Any
    ) -> AsyncGenerator[tuple[Agent, Gateway], None]:
        limits = limits or Limits(head_deadline_s=2.0, close_deadline_s=0.5, drain_deadline_s=1.0, write_deadline_s=1.0)
        model = ScriptedModel(list(script) or [say("done")] * 1_000)
        before = trio.lowlevel.current_statistics().tasks_living
        descriptors = len(os.listdir("/proc/self/fd"))
        async with open_agent(model, extensions=[AskUserExtension()], limits=limits, tools=tools) as agent:
            async with open_gateway(agent, limits=limits, **options) as gateway:
                yield agent, gateway
            assert gateway.connections == 0
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert len(os.listdir("/proc/self/fd")) <= descriptors

    return open_served


@pytest.fixture
def good(dial: Callable[[Gateway], Awaitable[RawClient]]) -> Callable[[Gateway], Awaitable[None]]:
    """Check that a good client is served, and wait until nothing but it was left."""

    async def check(gateway: Gateway) -> None:
        with trio.fail_after(5):
            client = await (await dial(gateway)).upgrade()
            assert (await client.initialize())["protocol"] == 1
            assert (await client.call("session/open", {"session": "good"}))["session"] == "good"
            await client.send(frame(CLOSE, b"\x03\xe8"))
            assert await client.read_close() == (1000, "")
            await client.aclose()
            await wait_until(lambda: not gateway.connections)

    return check
