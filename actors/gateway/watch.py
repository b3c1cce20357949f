"""A link's subscription to one session, and the encoding of events that all subscriptions share.

A watch passes on what it is offered until it has ended; what is offered later is refused, so a session that has not
noticed yet drops it. Synchronous; knows neither sockets nor how a link sends.
"""

from collections.abc import Callable

from actors.gateway.ports import SessionHandle
from protocol.errors import Code
from protocol.events import Event
from protocol.jsonrpc import event_frame


class EventEncoder:
    """Encodes an event once for all who watch its session.

    A session offers an event to all its readers in one step, so remembering the last one is enough.
    """

    __slots__ = ("_event", "_frame", "_session")

    def __init__(self) -> None:
        self._event: Event | None = None
        self._session = ""
        self._frame = b""

    def frame(self, session_id: str, log_id: str, event: Event) -> bytes:
        """Return the frame of this event."""
        if event is not self._event or session_id != self._session:
            self._frame = event_frame(session_id, log_id, event)
            self._event, self._session = event, session_id
        return self._frame


class Watch:
    """One session as one link sees it.

    Attributes:
        seq: The last record that was queued for the client.
        sent: The last record that left for the client.
        ended: Nothing more is taken.
    """

    __slots__ = ("_encoder", "_on_closed", "_send", "ended", "handle", "sent", "seq")

    def __init__(
        self,
        handle: SessionHandle,
        encoder: EventEncoder,
        send: Callable[["Watch", bytes, int], bool],
        on_closed: Callable[["Watch", Code, int], None],
        *,
        seq: int = 0,
    ) -> None:
        self.handle = handle
        self.seq = self.sent = seq
        self.ended = False
        self._encoder = encoder
        self._send = send
        self._on_closed = on_closed

    def offer(self, event: Event) -> bool:
        """Queue the event for the client. False: the watch has ended, or the client is too slow."""
        if self.ended:
            return False
        frame = self._encoder.frame(self.handle.id, self.handle.log_id, event)
        seq = event.seq if event.durable else 0
        if not self._send(self, frame, seq):
            return False
        self.seq = seq or self.seq
        return True

    def closed(self, code: Code, seq: int) -> None:
        """The session will send nothing after `seq`."""
        if not self.ended:
            self.ended = True
            self._on_closed(self, code, seq)

    def end(self) -> None:
        """Stop watching. Idempotent."""
        self.ended = True
        self.handle.detach(self)
