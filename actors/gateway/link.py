"""One connection as an actor: a reader, a writer and a heartbeat in one nursery, alive as long as the socket.

OPEN -> CLOSING -> ENDED. The session never waits for a client: what it offers is queued or refused at once, and a
client that lets its queue run over is cut off with its cursor. Whatever fails in here ends this connection alone.
"""

import logging
import unicodedata
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from actors.gateway.calls import let_go, perform
from actors.gateway.outbox import Outbox
from actors.gateway.ports import ServedAgent
from actors.gateway.watch import EventEncoder, Watch
from actors.gateway.websocket import ABNORMAL, Socket, SocketClosed
from protocol import commands as cmd
from protocol import jsonrpc
from protocol import link as rules
from protocol.errors import Code, RuleViolation
from protocol.limits import Limits

logger = logging.getLogger("actors.gateway")

TEXT_ONLY, OVERFLOW, SUPERSEDED = 1003, 4008, 4009
# An array stays below what clients accept as one message by default.
MAX_BATCH_BYTES = 262_144


class Link:
    """One client's connection."""

    def __init__(
        self,
        socket: Socket,
        agent: ServedAgent,
        limits: Limits,
        encoder: EventEncoder,
        nursery: trio.Nursery,
        *,
        name: str = "link",
        identify: Callable[["Link", str], None] = lambda link, client: None,
    ) -> None:
        self.name = name
        self.state = rules.Link(limits=limits)
        self.watches: dict[str, Watch] = {}
        self.joining: Watch | None = None
        self.received = self.sent = 0
        self._socket = socket
        self._agent = agent
        self._limits = limits
        self.encoder = encoder
        self._nursery = nursery
        self._identify = identify
        self._outbox = Outbox(max_bytes=limits.max_outbox_bytes, max_messages=limits.max_outbox_messages)
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        self._goodbye: tuple[int, str] | None = None
        self._ended = False

    # ---- its life

    async def run(self) -> SocketClosed:
        """Serve until the socket closes, from whichever side; return how. A checkpoint.

        Whatever ends it, no session knows this link afterwards.
        """
        closed = SocketClosed()
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._beat)
                    await self._read()
        except* SocketClosed as group:
            closed = _first(group)
        finally:
            self._let_go()
        return SocketClosed(*self._goodbye) if self._goodbye is not None else closed

    def close(self, code: int, reason: str = "") -> None:
        """Send what is queued, then close. Synchronous and idempotent; it takes a bounded time."""
        if self._goodbye is None:
            self._goodbye = (code, reason)
            limit = self._limits.write_deadline_s + self._limits.close_deadline_s
            self._scope.deadline = min(self._scope.deadline, trio.current_time() + limit)
            self._wake.set()

    @property
    def ended(self) -> bool:
        """Nothing more is queued for the client."""
        return self._ended or self._goodbye is not None

    def _let_go(self) -> None:
        self._ended = True
        self._outbox.clear()
        let_go(self._agent, self)

    # ---- its tasks

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if self.ended:
                continue
            self.received += 1
            if isinstance(message, bytes):
                self.close(TEXT_ONLY, "only text frames are spoken here")
                continue
            await self._answer(message)

    async def _write(self) -> None:
        most = 1
        while True:
            if self.state.batch:
                most = self._limits.max_batch
            self.joining = None
            items = self._outbox.take(max_messages=most, max_bytes=MAX_BATCH_BYTES)
            if items:
                frame = items[0].frame if len(items) == 1 else jsonrpc.join(item.frame for item in items)
                # Before the frame is out: what says how far the client got comes behind it, or not at all.
                for item in items:
                    if isinstance(item.reader, Watch) and item.seq > 0:
                        item.reader.sent = item.seq
                await self._socket.send(frame.decode())
                self.sent += len(items)
            elif self._goodbye is not None:
                await self._socket.close(*self._goodbye)
                raise SocketClosed(*self._goodbye)
            else:
                self._wake = trio.Event()
                await self._wake.wait()

    async def _beat(self) -> None:
        while True:
            await trio.sleep(self._limits.ping_interval_s)
            if self.watches:
                heads = {session: watch.seq for session, watch in self.watches.items()}
                self._queue(jsonrpc.notification("heartbeat", {"heads": heads}))
            heard = self._socket.heard
            with trio.move_on_after(self._limits.ping_timeout_s) as scope:
                await self._socket.ping()
            # A ping waits behind the frame that is being written, which has a deadline of its own.
            if scope.cancelled_caught and self._socket.heard == heard and not self._socket.sending:
                raise SocketClosed(ABNORMAL, "no answer to a ping")

    # ---- calls

    async def _answer(self, text: str) -> None:
        call = jsonrpc.read_frame(text, max_bytes=self._limits.max_message_bytes, max_depth=self._limits.max_depth)
        if isinstance(call, jsonrpc.BadFrame):
            self._queue_reply(jsonrpc.bad_frame(call))
            return
        call_id = call.id if isinstance(call, jsonrpc.Request) else None
        method = cmd.METHODS.get(call.method)
        if method is None:
            if call_id is not None:
                self._queue_reply(jsonrpc.error(call_id, jsonrpc.METHOD_NOT_FOUND, _NO_METHOD))
            return
        reply = partial(self._reply, call_id)
        try:
            await perform(self._agent, self, cmd.read_params(method, call.params), reply)
        except RuleViolation as refused:
            reply(refused)
        except Exception as error:
            logger.error("%s: %s failed", self.name, call.method, exc_info=error)
            if call_id is not None:
                self._queue_reply(jsonrpc.error(call_id, jsonrpc.INTERNAL_ERROR, _FAILED))

    def _reply(self, call_id: jsonrpc.Id | None, result: object) -> None:
        if call_id is None or self.ended:
            return
        try:
            if isinstance(result, RuleViolation):
                frame = jsonrpc.refusal(call_id, result)
            elif isinstance(result, Exception):
                frame = jsonrpc.error(call_id, jsonrpc.INTERNAL_ERROR, _FAILED)
            else:
                frame = jsonrpc.response(call_id, result)
        except RuleViolation as unsendable:
            frame = jsonrpc.refusal(call_id, unsendable)
        self._queue_reply(frame)

    def identify(self, client: str) -> None:
        """Make this the client's only link."""
        self._identify(self, client)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run something that takes long in the gateway's nursery: it goes on when this client leaves."""

        async def isolated() -> None:
            try:
                await task()
            except Exception as error:
                logger.error("%s: a call failed", self.name, exc_info=error)

        if not self._nursery.cancel_scope.cancel_called:  # then the gateway is at its end and takes nothing new
            self._nursery.start_soon(isolated)

    # ---- the outbox

    def queue_event(self, watch: Watch, frame: bytes, seq: int) -> bool:
        """Queue an event of a watch, of record `seq` or 0. False: the client is cut off, or on its way out."""
        if self.ended:
            return False
        if not self._outbox.put(frame, watch, seq):
            if watch is self.joining:
                self._stop_replay(watch)
            else:
                self._overflow()
            return False
        self._wake.set()
        if seq:
            rules.advance(self.state, watch.session, seq)
        return True

    def _queue(self, frame: bytes) -> None:
        if not self.ended:
            if self._outbox.put(frame):
                self._wake.set()
            else:
                self._overflow()

    def _queue_reply(self, frame: bytes) -> None:
        if not self.ended:
            if self._outbox.put_reply(frame):
                self._wake.set()
            else:
                self._overflow()

    def _stop_replay(self, watch: Watch) -> None:
        """A replay does not fit, in the very step in which it began. That is not the client's slowness: it gets what is
        queued, is told how far that goes, and attaches again from there."""
        self.watches.pop(watch.session, None)
        rules.detach(self.state, watch.session)
        self._queue_reply(_detached(watch.session, Code.LINK_TOO_SLOW, watch.seq))

    def _overflow(self) -> None:
        """Drop what the client will not take; tell it, if it still reads, how far it got."""
        self._outbox.clear()
        for session, watch in self.watches.items():
            watch.ended = True
            self._outbox.put_reply(_detached(session, Code.LINK_TOO_SLOW, watch.sent))
        self.close(OVERFLOW, Code.LINK_TOO_SLOW)

    def watch_closed(self, watch: Watch, code: Code, seq: int) -> None:
        """Tell the client that nothing more will come of this session; the connection goes on."""
        session = watch.session
        if self.watches.get(session) is watch:
            del self.watches[session]
            rules.detach(self.state, session)
            self._queue(_detached(session, code, seq))


_FAILED = "the server failed; it was logged"
_NO_METHOD = f"no such method; there are {', '.join(cmd.METHODS)}"


def _detached(session: str, code: Code, seq: int) -> bytes:
    return jsonrpc.notification("detached", {"session": session, "code": code, "seq": seq})


def _first(group: BaseExceptionGroup[SocketClosed]) -> SocketClosed:
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("a group is never empty")


def clean(text: str, limit: int = 80) -> str:
    """Return `text` fit for a log line: short, and without anything that moves the cursor or turns text around."""
    shown = "".join("?" if unicodedata.category(char)[0] in "CZ" and char != " " else char for char in text[:limit])
    return shown + ("..." if len(text) > limit else "")
