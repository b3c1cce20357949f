"""A link's subscription to one session, and the encoding of events that all subscriptions share.

A watch passes on what it is offered until it has ended; what is offered later is refused, so a session that has not
noticed yet drops it. Synchronous; knows neither sockets nor how a link sends.
"""

from typing import Protocol

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


class Sink(Protocol):
    """The link behind a watch. Synchronous; never raises."""

    encoder: EventEncoder

    def queue_event(self, watch: "Watch", frame: bytes, seq: int) -> bool:
        """Queue the frame of an event, of record `seq` or 0. False: nothing of this session is taken any more."""
        ...

    def watch_closed(self, watch: "Watch", code: Code, seq: int) -> None:
        """The session has ended it."""
        ...


class Watch:
    """One session as one link sees it.

    Attributes:
        session: Its id.
        log_id: Its log; "" until attached.
        seq: The last record that was queued for the client.
        sent: The last record that left for the client, or is being written.
        ended: Nothing more is taken.
    """

    __slots__ = ("_sink", "ended", "log_id", "sent", "seq", "session")

    def __init__(self, sink: Sink, session: str) -> None:
        self._sink = sink
        self.session = session
        self.log_id = ""
        self.seq = self.sent = 0
        self.ended = False

    def begin(self, log_id: str, seq: int) -> None:
        """The session has attached this watch; what follows `seq` will be offered."""
        self.log_id = log_id
        self.seq = self.sent = seq

    def offer(self, event: Event) -> bool:
        """Queue the event for the client. False: the watch has ended, or the client is too slow."""
        if self.ended:
            return False
        frame = self._sink.encoder.frame(self.session, self.log_id, event)
        seq = event.seq if event.durable else 0
        if not self._sink.queue_event(self, frame, seq):
            self.ended = True
            return False
        self.seq = seq or self.seq
        return True

    def closed(self, code: Code, seq: int) -> None:
        """The session will send nothing after `seq`."""
        if not self.ended:
            self.ended = True
            self._sink.watch_closed(self, code, seq)
