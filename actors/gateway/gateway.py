"""The gateway: owns the listeners and the connections of one agent, and lets go of both in bounded time.

OPEN -> DRAINING -> CLOSED. Each connection is an actor, isolated from all others; none outlives the block that opened
the gateway. Knows nothing of what is said on a link.
"""

import itertools
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from functools import partial

import trio

from actors.gateway.access import Access, check_token_shape, make_access, make_token
from actors.gateway.guard import linger
from actors.gateway.head import PATH, Refused, Upgrade, read_head
from actors.gateway.link import SUPERSEDED, Link, clean
from actors.gateway.listener import accept_forever, open_listeners
from actors.gateway.ports import ServedAgent
from actors.gateway.watch import EventEncoder
from actors.gateway.websocket import GOING_AWAY, SocketClosed, open_socket
from actors.runtime import ActorError, Ctx, Ref, Replies, Supervisor, open_system
from protocol.limits import DEFAULT_LIMITS, Limits

logger = logging.getLogger("actors.gateway")

RESTARTING = 1012

_FULL = Refused(503, "no more connections are taken", (("Retry-After", "1"),))
_DRAINING = Refused(503, "this gateway is closing", (("Retry-After", "5"),))


class Connection:
    """One accepted stream, from accept to the last byte.

    Attributes:
        full: There are too many: it is only told so.
        ref: Its actor.
        link: What is said on it, once the upgrade was granted.
    """

    __slots__ = ("full", "link", "name", "ref", "stream")

    def __init__(self, stream: trio.SocketStream, name: str, *, full: bool) -> None:
        self.stream = stream
        self.name = name
        self.full = full
        self.ref: Ref[object] | None = None
        self.link: Link | None = None


class Gateway:
    """A running gateway.

    Attributes:
        host: The address it listens on.
        port: The port it listens on.
        token: What clients must show. Keep it out of logs and query strings.
    """

    def __init__(self, agent: ServedAgent, access: Access, limits: Limits, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.token = access.token
        self._agent = agent
        self._access = access
        self._limits = limits
        self._encoder = EventEncoder()
        self._connections: set[Connection] = set()
        self._clients: dict[str, Link] = {}
        self._numbers = itertools.count(1)
        self._listeners: list[trio.SocketListener] = []
        self._draining = False
        self._empty = trio.Event()

    @property
    def url(self) -> str:
        """Where clients connect, without the token."""
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"ws://[{host}]:{self.port}{PATH}" if ":" in host else f"ws://{host}:{self.port}{PATH}"

    @property
    def connections(self) -> int:
        """How many connections are open, those included that have not said who they are."""
        return len(self._connections)

    def start(self, listeners: list[trio.SocketListener], nursery: trio.Nursery, links: Supervisor) -> None:
        """Accept from `listeners`, which become the gateway's own.

        Args:
            listeners: Where to accept.
            nursery: For what outlives a connection.
            links: Whose children the connections are, an actor each: what happens to one reaches no other.
        """
        self._listeners = listeners
        for listener in listeners:
            nursery.start_soon(accept_forever, listener, partial(self._accept, nursery, links))

    async def drain(self, code: int = RESTARTING, reason: str = "") -> None:
        """Take no more connections, close those there are with `code`, and return when they are gone. A checkpoint.

        Args:
            code: A websocket close code; 1012 says that the server comes back, 1001 that it does not.
            reason: At most 123 bytes.

        What is not gone after `limits.drain_deadline_s` seconds is cancelled, and ends within `close_deadline_s` more.
        Sessions go on. A second call waits for the same end.
        """
        self._draining = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.socket.close()
        for connection in list(self._connections):
            if connection.link is not None:
                connection.link.close(code, reason)
        with trio.move_on_after(self._limits.drain_deadline_s):
            await self._wait_empty()
        for connection in list(self._connections):
            if connection.ref is not None:
                connection.ref.stop("the gateway is closing")
        await self._wait_empty()

    async def _wait_empty(self) -> None:
        while self._connections:
            if self._empty.is_set():  # else somebody waits for it, and a new one would leave them waiting
                self._empty = trio.Event()
            await self._empty.wait()
        await trio.lowlevel.checkpoint()

    # ---- one connection

    def _accept(self, nursery: trio.Nursery, links: Supervisor, stream: trio.SocketStream) -> None:
        name = f"link {next(self._numbers)} from {_peer(stream)}"
        full = len(self._connections) >= self._limits.max_connections
        connection = Connection(stream, name, full=full)
        if not full:
            self._connections.add(connection)
        gone = partial(self._gone, connection)
        try:
            connection.ref = links.spawn_nowait(
                link_actor, self, nursery, connection, name=name, mailbox_size=0, on_end=gone
            )
        except ActorError as refused:  # the gateway is at its end, or far too many are being refused
            logger.info("%s not served: %s", name, refused)
            gone()

    def _gone(self, connection: Connection) -> None:
        # Synchronous: the descriptor is gone in the step in which the connection is no longer counted.
        connection.stream.socket.close()
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    async def serve(self, nursery: trio.Nursery, connection: Connection) -> None:
        """Serve a connection to its end. Its actor runs it."""
        if connection.full:
            await _refuse(connection.stream, _FULL, 0)
        else:
            await self._admit(nursery, connection.stream, connection, connection.name)

    async def _admit(
        self, nursery: trio.Nursery, stream: trio.SocketStream, connection: Connection, name: str
    ) -> None:
        head = await read_head(stream, self._access, self._limits)
        if self._draining and head is not None:
            head = _DRAINING
        match head:
            case None:
                logger.debug("%s left before asking for anything", name)
            case Refused():
                logger.info("%s refused: %d", name, head.status)
                await _refuse(stream, head, self._limits.close_deadline_s)
            case Upgrade():
                await self._run_link(nursery, stream, head, connection, name)

    async def _run_link(
        self, nursery: trio.Nursery, stream: trio.SocketStream, upgrade: Upgrade, connection: Connection, name: str
    ) -> None:
        try:
            async with open_socket(stream, upgrade, self._limits) as socket:
                link = Link(
                    socket, self._agent, self._limits, self._encoder, nursery, name=name, identify=self._identify
                )
                connection.link = link
                if self._draining:
                    link.close(RESTARTING)
                try:
                    closed = await link.run()
                finally:
                    self._forget(link)
            client = clean(link.state.client.name) or "unnamed"
            ended = f"{closed.code} {clean(closed.reason)}".strip()
            logger.info("%s (%s) closed: %s; %d in, %d out", name, client, ended, link.received, link.sent)
        except* SocketClosed:
            logger.info("%s left during the upgrade", name)

    def _identify(self, link: Link, client: str) -> None:
        """One link per client: a client that is back has no use for the link that it lost."""
        older = self._clients.get(client)
        self._clients[client] = link
        if older is not None and older is not link:
            older.close(SUPERSEDED, "superseded by a newer connection of this client")

    def _forget(self, link: Link) -> None:
        client = link.state.client.id
        if self._clients.get(client) is link:
            del self._clients[client]


@asynccontextmanager
async def open_gateway(
    agent: ServedAgent,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
) -> AsyncGenerator[Gateway, None]:
    """Serve `agent` to websocket clients while the block runs.

    Args:
        agent: Stays open, also when the gateway has closed.
        host: Address to bind; loopback by default. It speaks plain text: put a proxy with TLS before anything else.
        port: 0 picks a free one.
        token: What clients must show, 22-512 characters; made from 256 random bits by default.
        limits: Sizes, counts and deadlines.
        hosts: Names it is reached by, besides loopback and `host`.
        origins: Origins of pages that may connect, besides its own over http.

    Raises:
        ValueError: Token, hosts or origins cannot be used; see `make_access`.
        OSError: The address cannot be bound.

    At the end, clients are told 1001 and have `limits.drain_deadline_s` seconds to go; then they are cut off.
    """
    secret = make_token() if token is None else token
    check_token_shape(secret)
    listeners = await open_listeners(host, port)
    try:
        bound = int(listeners[0].socket.getsockname()[1])
        access = make_access(host, bound, secret, hosts=tuple(hosts), origins=tuple(origins))
        gateway = Gateway(agent, access, limits, host, bound)
        async with open_system(name="gateway") as system:
            name = f"gateway on port {bound}"
            # Twice as many as are served: those beyond are told that they are too many.
            links = await system.supervise(name="links", max_children=2 * limits.max_connections)
            ref = await system.spawn(gateway_actor, gateway, listeners, links, name=name, own_nursery=True)
            try:
                yield gateway
            finally:
                # Shielded, or a cancelled host would cut its clients off without a word. Bounded by drain itself.
                with trio.move_on_after(limits.drain_deadline_s + 2 * limits.close_deadline_s, shield=True):
                    await gateway.drain(GOING_AWAY)
                ref.stop("the gateway has closed")
    finally:
        for listener in listeners:
            listener.socket.close()


class Drain(Replies[None]):
    """Ask the gateway's actor to close: the reply comes when every connection is gone. See `Gateway.drain`."""

    def __init__(self, code: int = RESTARTING, reason: str = "") -> None:
        self.code = code
        self.reason = reason


async def gateway_actor(
    ctx: Ctx[Drain], gateway: Gateway, listeners: list[trio.SocketListener], links: Supervisor
) -> None:
    """The actor that owns the listeners; the connections are actors under `links`."""
    gateway.start(listeners, ctx.nursery, links)
    async for message in ctx:
        await gateway.drain(message.code, message.reason)
        message.reply.send(None)


async def link_actor(ctx: Ctx[object], gateway: Gateway, nursery: trio.Nursery, connection: Connection) -> None:
    """The actor of one connection. It takes no messages: what it does comes from its socket and from sessions."""
    ctx.ready()
    await gateway.serve(nursery, connection)


async def _refuse(stream: trio.SocketStream, refused: Refused, linger_s: float) -> None:
    """Answer and let the client read it. Bounded: it costs at most `linger_s` seconds, 1 for the answer itself."""
    try:
        with trio.move_on_after(1):
            await stream.send_all(refused.encode())
        with trio.move_on_after(linger_s):
            await linger(stream)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


def _peer(stream: trio.SocketStream) -> str:
    try:
        address = stream.socket.getpeername()
    except OSError:
        return "nowhere"
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "a socket"
