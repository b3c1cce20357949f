"""How what is released reaches its readers when one of them calls back, raises, leaves or comes too late."""

from collections.abc import Callable
from typing import Any

import pytest
from trio.testing import MockClock

from actors.agent.session import Session
from protocol import events as ev
from protocol.errors import Code, RuleViolation
from tests.scenarios.staging import staged

OVER = RuleViolation(Code.STORE_FAILED, "the disk is full")


class Reader:
    """Notes what it is offered and how it ended; does `first` once, at the first event."""

    def __init__(self, first: Callable[[], Any] = lambda: None) -> None:
        self.seen: list[Any] = []
        self.end: tuple[Code, int] | None = None
        self._first: Callable[[], Any] | None = first

    def offer(self, event: ev.Event) -> bool:
        self.seen.append("after its end" if self.end is not None else event.seq or type(event).__name__)
        first, self._first = self._first, None
        if first is not None:
            first()
        return True

    def closed(self, code: Code, seq: int) -> None:
        self.end = (code, seq)


def _emit(session: Session) -> None:
    session.append([ev.Custom("x")])


async def test_a_record_made_while_a_reader_is_told_the_past_reaches_it_too_d04(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        _emit(session)
        reader = Reader(lambda: _emit(session))
        session.attach(reader, after=0)
        assert reader.seen == [1, 2, 3]
        session.detach(reader)


async def test_a_record_made_within_an_ephemeral_event_comes_after_it_for_everybody(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        first, second = Reader(lambda: _emit(session)), Reader()
        session.attach(first)
        session.attach(second)
        session.show(ev.TextStreamed("m1", 0, "te"))
        assert first.seen == second.seen == ["TextStreamed", 2]
        session.detach(first)
        session.detach(second)


async def test_who_is_detached_within_a_delivery_is_offered_nothing_more(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        second = Reader()
        first = Reader(lambda: session.detach(second))
        session.attach(first)
        session.attach(second)
        _emit(session)
        assert (first.seen, second.seen) == ([2], [])
        session.detach(first)


async def test_who_is_told_the_end_within_a_delivery_is_offered_nothing_more(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        second = Reader()
        session.attach(Reader(lambda: session.shut(OVER)))
        session.attach(second)
        _emit(session)
        assert (second.seen, second.end) == ([], (Code.STORE_FAILED, 1))


@pytest.mark.parametrize("after", [None, 0])
async def test_a_reader_that_raises_is_cut_off_and_nobody_else(
    after: int | None, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("mine")

    async with staged([]) as agent:
        session = await agent.open("s")
        wrong, other = Reader(fail), Reader()
        session.attach(wrong, after=after)
        session.attach(other)
        _emit(session)
        _emit(session)
        assert (len(wrong.seen), other.seen) == (1, [2, 3])
        assert wrong.end is not None and wrong.end[0] == "link.too_slow"
        assert session.closed is None
        session.detach(other)
    assert [record.message for record in caplog.records] == ["a reader raised ValueError and is cut off"]


async def test_who_attaches_to_a_session_that_has_ended_is_told_so(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        session.shut(OVER)
        reader, refused = Reader(), list[RuleViolation]()
        session.attach(reader)
        session.attach(Reader(), joined=lambda: pytest.fail("it joined"), failed=refused.append)
        assert (reader.end, refused, session.watched) == ((Code.STORE_FAILED, 1), [OVER], False)


async def test_what_waits_is_told_of_an_end_within_a_delivery_once_and_never_done(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        told: list[str] = []

        def queue_two() -> None:
            session.leave(session.shut, OVER)
            session.leave(told.append, "done", failed=lambda why: told.append(why.code))

        session.attach(Reader(queue_two))
        _emit(session)
        assert told == ["store.failed"]


async def test_when_all_ends_within_an_offer_each_is_told_how_far_it_came(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        readers = [Reader(), Reader(lambda: session.store_failed(OSError("disk full"))), Reader(), Reader()]
        for reader in readers:
            session.attach(reader)
        _emit(session)
        assert [reader.seen for reader in readers] == [[2], [2], [], []]
        assert [reader.end for reader in readers] == [(Code.STORE_FAILED, seq) for seq in (2, 2, 1, 1)]


async def test_who_leaves_and_then_ends_everything_does_not_hide_who_was_behind(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")

        def leave_and_end() -> None:
            session.detach(first)
            session.store_failed(OSError("disk full"))

        first, second = Reader(leave_and_end), Reader()
        session.attach(first)
        session.attach(second)
        _emit(session)
        assert (first.end, second.end) == (None, (Code.STORE_FAILED, 1))


async def test_a_reader_that_does_not_take_a_record_is_told_the_one_before(autojump_clock: MockClock) -> None:
    class Full(Reader):
        def offer(self, event: ev.Event) -> bool:
            return False

    async with staged([]) as agent:
        session = await agent.open("s")
        live, replayed = Full(), Full()
        session.attach(live)
        _emit(session)
        session.attach(replayed, after=1)
        assert live.end == replayed.end == (Code.LINK_TOO_SLOW, 1)
        late = Full()
        session.attach(late)
        session.show(ev.TextStreamed("m1", 0, "te"))
        assert late.end == (Code.LINK_TOO_SLOW, 2), "what is not durable has no seq to miss"


async def test_a_record_that_a_later_version_wrote_leaves_no_gap(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        session.append([ev.Unknown("party_started", "{}")])
        _emit(session)
        reader = Reader()
        session.attach(reader, after=0)
        assert reader.seen == [1, 2, 3]
        session.detach(reader)
