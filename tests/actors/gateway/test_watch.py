"""A subscription passes on what it is offered until it has ended, encoded once for all."""

import json

from actors.gateway.watch import EventEncoder, Watch
from protocol import events as ev
from protocol.errors import Code


class Sink:
    def __init__(self, encoder: EventEncoder | None = None, *, room: int = 100) -> None:
        self.encoder = encoder or EventEncoder()
        self.room = room
        self.frames: list[bytes] = []
        self.seqs: list[int] = []
        self.closed: list[tuple[str, Code, int]] = []

    def queue_event(self, watch: Watch, frame: bytes, seq: int) -> bool:
        if len(self.frames) >= self.room:
            return False
        self.frames.append(frame)
        self.seqs.append(seq)
        return True

    def watch_closed(self, watch: Watch, code: Code, seq: int) -> None:
        self.closed.append((watch.session, code, seq))


def watching(sink: Sink, session: str = "s") -> Watch:
    watch = Watch(sink, session)
    watch.begin(f"log of {session}", 4)
    return watch


def test_all_watchers_of_a_session_share_the_encoded_event() -> None:
    encoder = EventEncoder()
    sinks = [Sink(encoder) for _ in range(3)]
    watches = [watching(sink) for sink in sinks]
    for event in (ev.Custom("a", seq=5), ev.Custom("b", seq=6)):
        for watch in watches:
            assert watch.offer(event)
    assert sinks[0].frames[1] is sinks[1].frames[1] is sinks[2].frames[1]
    assert [json.loads(frame)["params"]["event"]["seq"] for frame in sinks[2].frames] == [5, 6]


def test_the_same_event_in_another_session_is_another_frame() -> None:
    sink = Sink()
    event = ev.Custom("a", seq=5)
    for watch in (watching(sink, "s"), watching(sink, "t")):
        watch.offer(event)
    assert [json.loads(frame)["params"]["session"] for frame in sink.frames] == ["s", "t"]


def test_durable_events_move_the_cursor_and_ephemeral_ones_do_not() -> None:
    sink = Sink()
    watch = watching(sink)
    watch.offer(ev.Custom("a", seq=5))
    watch.offer(ev.TextStreamed(message="m", offset=0, text="x", base=5))
    assert (watch.seq, watch.sent) == (5, 4)
    assert sink.seqs == [5, 0]


def test_a_watch_that_was_refused_takes_nothing_more() -> None:
    sink = Sink(room=1)
    watch = watching(sink)
    assert watch.offer(ev.Custom("a", seq=5))
    assert not watch.offer(ev.Custom("b", seq=6))
    sink.room = 100
    assert not watch.offer(ev.Custom("c", seq=7))
    assert watch.seq == 5


def test_the_end_is_reported_once_and_not_after_our_own() -> None:
    sink = Sink()
    watch = watching(sink)
    watch.closed(Code.SESSION_CLOSED, 9)
    watch.closed(Code.STORE_FAILED, 9)
    assert sink.closed == [("s", Code.SESSION_CLOSED, 9)]
    other = watching(sink)
    other.ended = True
    other.closed(Code.SESSION_CLOSED, 9)
    assert len(sink.closed) == 1
