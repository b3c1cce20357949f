"""What is a violation in a log, and what is not."""

from collections.abc import Sequence
from typing import cast

import pytest

from actors.agent.session import Session
from bench.books import Books, Violation
from protocol import events as ev
from protocol.asks import Ask, AskOutcome
from protocol.chat import UserMessage

QUEUED = ev.RunQueued(UserMessage("go"), 3, run="r1")
CANCELLED = ev.RunCancelled("", run="r1")
COMPLETED = ev.RunCompleted("", run="r1")
OPENED = ev.AskOpened(Ask("a3", "c2", ()), run="r1")
SETTLED = ev.AskSettled("a3", "c2", AskOutcome.ANSWERED, run="r1")


class Record:
    id = "s-1"

    def __init__(self, log: Sequence[ev.Event]) -> None:
        self.log = list(log)


def open_books(*log: ev.Event) -> Books:
    return Books(cast("Session", Record(log)))


def test_ends_are_counted_once_however_often_it_is_read() -> None:
    books = open_books(QUEUED, OPENED)
    assert books.read() == 0
    books.session.log += [SETTLED, CANCELLED]
    assert books.read() == 1
    assert books.read() == 0
    assert books.close() == 0
    assert (books.cancelled, books.completed) == (1, 0)
    assert books.outcomes == {"c2": AskOutcome.ANSWERED}


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ([QUEUED, CANCELLED, CANCELLED], "RunCancelled 0 comes after the end of run r1"),
        ([QUEUED, CANCELLED, OPENED], "AskOpened 0 comes after the end of run r1"),
        ([CANCELLED], "run r1 ended and never began"),
        ([QUEUED, ev.RunFailed("store.failed", "lost", run="r1")], "run r1 failed: store.failed lost"),
        ([QUEUED, OPENED, SETTLED, SETTLED], "the ask of c2 was not open when it became answered"),
    ],
)
def test_a_broken_rule_is_seen_when_it_is_read(log: list[ev.Event], said: str) -> None:
    with pytest.raises(Violation, match=f"^session s-1: {said}$"):
        open_books(*log).read()


@pytest.mark.parametrize(
    ("log", "said"),
    [([QUEUED], "the runs r1 have no end"), ([QUEUED, OPENED, CANCELLED], "the asks of c2 are open")],
)
def test_what_is_left_is_seen_when_the_session_has_ended(log: list[ev.Event], said: str) -> None:
    books = open_books(*log)
    books.read()
    with pytest.raises(Violation, match=f"^session s-1: {said}$"):
        books.close()


def test_a_run_whose_cancel_was_acknowledged_must_not_complete() -> None:
    books = open_books(QUEUED, COMPLETED)
    books.promised.add("r1")
    with pytest.raises(Violation, match=r"^session s-1: the cancel of run r1 was acknowledged, and it completed$"):
        books.read()


def test_a_promise_is_kept_by_a_cancelled_end_and_a_run_may_complete_without_one() -> None:
    books = open_books(QUEUED, CANCELLED)
    books.promised.add("r1")
    assert books.read() == 1
    assert books.promised == set()
    completed = open_books(QUEUED, COMPLETED)
    assert completed.close() == 0
    assert completed.completed == 1
