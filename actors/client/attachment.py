"""One attached session as a client sees it: the snapshot, then every event after it, in order and without a gap."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Self

import msgspec
import trio
from msgspec import Raw, Struct

from actors.client.errors import Detached, LinkClosed
from actors.client.frames import EventHead, read_part
from protocol.errors import RemoteProtocolError
from protocol.events import Event, decode_event


class _Attached(Struct, frozen=True):
    session: str
    log_id: str
    seq: int
    mode: Literal["tail", "snapshot", "reset"]
    snapshot: dict[str, Any] | None = None


class Attachment:
    """Iterate it for the events. Made by `Connection.attach`.

    Attributes:
        mode: `tail` where the cursor fitted; `snapshot`; or `reset` where the log is another one than was known.
        snapshot: The state at the beginning, where the mode is not `tail`.
        log_id: Which log this is.
        begun: The server has answered; before that, what comes is of an attachment before this one.
        cursor: The last durable seq that was taken, or that the server said since it has sent all up to; with `log_id`
            it is all that attaching again needs.
    """

    def __init__(self, session: str, detach: "Callable[[Attachment], Awaitable[None]]", *, max_events: int) -> None:
        self.session = session
        self.log_id = ""
        self.cursor = 0
        self.mode: Literal["tail", "snapshot", "reset"] = "snapshot"
        self.snapshot: dict[str, Any] | None = None
        self._detach = detach
        self._seen = 0
        self.begun = False
        self._ended: LinkClosed | str | None = None
        self._in, self._out = trio.open_memory_channel[tuple[int, Event | None]](max_events)

    def begin(self, result: Raw) -> None:
        """Take the answer of `session/attach`. Called by the reader, before it looks at anything that follows."""
        attached: _Attached = read_part(result, _Attached)
        self.log_id, self.mode, self.snapshot = attached.log_id, attached.mode, attached.snapshot
        self.cursor = self._seen = attached.seq
        self.begun = True

    def offer(self, raw: Raw) -> bool:
        """Take one event as it comes in. False: there is no room, the reader of this stream is too slow.

        Raises:
            RemoteProtocolError: It is no event, or an event before it is missing.
        """
        if not self.begun:
            return True  # the server has not yet heard that the one before is over
        head: EventHead = read_part(raw, EventHead)
        if head.seq and head.seq <= self._seen:
            return True  # delivered twice; applied once
        if head.seq and head.seq != self._seen + 1:
            raise RemoteProtocolError(f"event {head.seq} of session {self.session} does not follow {self._seen}")
        try:
            event = decode_event(raw)
        except msgspec.MsgspecError as error:
            raise RemoteProtocolError(f"the server sent a {head.type} event that cannot be read: {error}") from None
        try:
            self._in.send_nowait((head.seq, event))
        except trio.WouldBlock:
            return False
        self._seen = max(self._seen, head.seq)
        return True

    def advance(self, head: int) -> None:
        """The server has sent everything up to `head` that is for this client: go on from there once it is taken."""
        if self.begun and head > self._seen:
            try:
                self._in.send_nowait((head, None))
            except trio.WouldBlock:
                return  # the next heartbeat says it again
            self._seen = head

    def end(self, why: LinkClosed | str) -> None:
        """Let what has come be taken, and nothing after it. `why` is the link's end or the code of a detach."""
        self._ended = self._ended or why
        self._in.close()

    async def receive(self) -> Event:
        """Return the next event of a known type. A checkpoint.

        Raises:
            Detached: The session sends no more; `code` says why.
            LinkClosed: The connection ended.
        """
        while True:
            try:
                seq, event = await self._out.receive()
            except trio.EndOfChannel:
                raise self._why() from None
            self.cursor = max(self.cursor, seq)
            if event is not None:
                return event

    def receive_nowait(self) -> Event:
        """Return the next event if one has come.

        Raises:
            trio.WouldBlock: None has.
            Detached: As `receive`.
            LinkClosed: As `receive`.
        """
        while True:
            try:
                seq, event = self._out.receive_nowait()
            except trio.EndOfChannel:
                raise self._why() from None
            self.cursor = max(self.cursor, seq)
            if event is not None:
                return event

    def _why(self) -> Exception:
        if isinstance(self._ended, LinkClosed):
            return self._ended
        return Detached(self.session, self._ended or "detached", self.cursor)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self.receive()

    async def detach(self) -> None:
        """Stop watching. The stream ends with `Detached`. Idempotent; a checkpoint."""
        self.end("detached")
        await self._detach(self)
