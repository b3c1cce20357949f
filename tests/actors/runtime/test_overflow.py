import logging
import tracemalloc
from typing import Any

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from actors.runtime.errors import MailboxFull
from actors.runtime.mailbox import Lost, Mailbox
from actors.runtime.overflow import Latest, Overflow, latest, make_mailbox

FULL = "this mailbox is full and rejects what it has no room for; send it again later, or let it wait for room"


def first_letter(message: str) -> str | None:
    """The key of these tests: none for what begins with a dash."""
    return None if message.startswith("-") else message[0]


LATEST = latest(first_letter)
POLICIES: list[Overflow] = ["wait", "reject", "drop_oldest", LATEST]


class Told:
    """Notes what is lost, and that the books are right then."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.mailbox: Mailbox[str] | None = None

    def lost(self, message: object, how: Lost) -> None:
        assert how is Lost.DROPPED
        assert self.mailbox is not None
        assert balanced(self.mailbox)
        self.messages.append(str(message))


def balanced(mailbox: Mailbox[Any]) -> bool:
    now = mailbox.statistics()
    gone = now.handled + now.expired + now.dropped + now.returned
    return now.accepted == gone + now.queued and now.sent == now.accepted + now.rejected


def made(size: int, overflow: Overflow) -> tuple[Mailbox[str], Told]:
    told = Told()
    told.mailbox = make_mailbox(size, overflow, told)
    return told.mailbox, told


def test_only_the_four_policies_exist() -> None:
    with pytest.raises(
        ValueError, match=r"^overflow must be 'wait', 'reject', 'drop_oldest' or latest\(key\), not 'drop_newest'$"
    ):
        make_mailbox(1, "drop_newest")  # type: ignore[arg-type]


@pytest.mark.parametrize("overflow", POLICIES)
def test_no_policy_makes_an_unbounded_mailbox_r16(overflow: Overflow) -> None:
    with pytest.raises(TypeError, match=r"^max_buffer_size must be an integer, 0 or more, not inf$"):
        make_mailbox(float("inf"), overflow)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^max_buffer_size must be 0 or more, not -1$"):
        make_mailbox(-1, overflow)


def test_a_plain_mailbox_lets_senders_wait() -> None:
    assert type(make_mailbox(1)) is Mailbox
    assert latest(first_letter) == Latest(first_letter)


@pytest.mark.parametrize(
    ("overflow", "size", "sent", "refused", "dropped", "received"),
    [
        ("wait", 2, "a1 b1 a2 b2", "a2 b2", "", "a1 b1"),
        ("reject", 2, "a1 b1 a2 b2", "a2 b2", "", "a1 b1"),
        ("drop_oldest", 2, "a1 b1 a2 b2", "", "a1 b1", "a2 b2"),
        ("drop_oldest", 1, "a1 b1 a2", "", "a1 b1", "a2"),
        (LATEST, 2, "a1 b1 a2 b2", "", "a1 b1", "a2 b2"),
        (LATEST, 2, "a1 b1 c1 a2", "c1", "a1", "a2 b1"),
        (LATEST, 4, "a1 b1 c1 b2 b3 a2", "", "b1 b2 a1", "a2 b3 c1"),
        (LATEST, 3, "-1 a1 -1 -1 a2", "-1", "a1", "-1 a2 -1"),
        ("wait", 0, "a1 a2", "a1 a2", "", ""),
        ("reject", 0, "a1 a2", "a1 a2", "", ""),
        ("drop_oldest", 0, "a1 a2", "a1 a2", "", ""),
        (LATEST, 0, "a1 a2", "a1 a2", "", ""),
    ],
)
def test_what_a_full_mailbox_takes_drops_and_says_r18(
    overflow: Overflow, size: int, sent: str, refused: str, dropped: str, received: str
) -> None:
    mailbox, told = made(size, overflow)
    turned_away: list[str] = []
    for message in sent.split():
        room = mailbox.has_room
        if not mailbox.offer(message):
            turned_away.append(message)
            assert not room
    assert turned_away == refused.split()
    assert told.messages == dropped.split()
    assert mailbox.queued() == received.split()
    assert [mailbox.take() for _ in received.split()] == received.split()
    now = mailbox.statistics()
    assert (now.sent, now.rejected) == (len(sent.split()), len(turned_away))
    assert (now.dropped, now.handled, now.queued) == (len(told.messages), len(received.split()), 0)
    assert now.peak_buffer_used == len(received.split())
    assert balanced(mailbox)


@pytest.mark.parametrize("overflow", POLICIES)
def test_an_offer_never_raises_whatever_became_of_the_mailbox_r17(overflow: Overflow) -> None:
    mailbox, _ = made(1, overflow)
    for n in range(3):
        assert mailbox.offer(f"{n}") is (n == 0 or overflow == "drop_oldest")
    mailbox.close_sending()
    assert not mailbox.offer("0")
    assert not mailbox.has_room
    mailbox.close_receiving()
    assert not mailbox.offer("0")
    assert mailbox.statistics().sent == 5
    assert balanced(mailbox)


@pytest.mark.parametrize("overflow", POLICIES)
def test_a_stalled_mailbox_does_not_grow_and_each_message_is_counted_r16(overflow: Overflow) -> None:
    mailbox: Mailbox[int] = make_mailbox(64, overflow if isinstance(overflow, str) else latest(lambda n: n % 1000))
    for n in range(64):
        mailbox.offer(n)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for n in range(50_000):
        mailbox.offer(n)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 64 * 200  # at most, the messages that are queued are others now
    now = mailbox.statistics()
    assert (now.sent, now.queued, now.handled) == (50_064, 64, 0)
    assert now.rejected + now.dropped == 50_000
    assert balanced(mailbox)


@pytest.mark.parametrize("overflow", POLICIES)
async def test_a_receiver_that_waits_gets_the_message_itself(overflow: Overflow) -> None:
    mailbox, told = made(0, overflow)
    got: list[str] = []

    async def receive() -> None:
        got.append(await mailbox.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        assert mailbox.offer("a1")
    assert got == ["a1"]
    assert told.messages == []
    assert balanced(mailbox)


@pytest.mark.parametrize("overflow", POLICIES)
async def test_what_the_receiver_itself_ordered_is_neither_dropped_nor_replaced(overflow: Overflow) -> None:
    mailbox, _ = made(2, overflow)
    for n in range(3):
        mailbox.post(f"own {n}")
    assert not mailbox.offer("o2")
    assert [mailbox.take(), mailbox.take()] == ["own 0", "own 1"]
    assert mailbox.offer("o3")
    assert mailbox.offer("o4") is (overflow in ("drop_oldest", LATEST))
    rest = "o4" if mailbox.dropped else "o3"
    assert mailbox.queued() == ["own 2", rest]
    assert [mailbox.take(), mailbox.take()] == ["own 2", rest]
    assert balanced(mailbox)


# Reject.


@pytest.mark.parametrize(("overflow", "size"), [("reject", 1), ("drop_oldest", 0)])
async def test_a_send_fails_at_once_where_none_may_wait(overflow: Overflow, size: int) -> None:
    mailbox, _ = made(size, overflow)
    for n in range(size):
        with assert_checkpoints():
            await mailbox.put(f"{n}")
    with pytest.raises(MailboxFull, match=f"^{FULL}$") as caught:
        await mailbox.put("x")
    assert caught.value.name == ""
    with trio.CancelScope() as scope:
        scope.cancel()
        await mailbox.put("y")
    assert scope.cancelled_caught
    assert (mailbox.accepted, mailbox.rejected) == (size, 1)
    mailbox.close_sending()
    with pytest.raises(trio.ClosedResourceError, match=r"^the sending side of this mailbox has been closed$"):
        await mailbox.put("z")
    assert balanced(mailbox)


# Drop the oldest.


async def test_a_send_never_waits_where_the_oldest_gives_way() -> None:
    mailbox, told = made(2, "drop_oldest")
    for n in range(4):
        with assert_checkpoints():
            await mailbox.put(f"{n}")
    assert told.messages == ["0", "1"]
    assert mailbox.queued() == ["2", "3"]


def test_a_message_handed_back_is_found_among_the_receivers_own() -> None:
    mailbox, _ = made(2, "drop_oldest")
    own, other = "own message", "message of others"
    mailbox.post(own)
    mailbox.offer(other)
    mailbox.post("second")
    mailbox.hand_back([own])
    assert mailbox.queued() == [other, "second"]
    assert mailbox.close_receiving() == [other, "second"]
    assert balanced(mailbox)


def test_when_the_receivers_own_messages_have_left_receiving_is_as_cheap_as_before() -> None:
    mailbox, _ = made(4, "drop_oldest")
    for message in ("own one", "own two"):
        mailbox.post(message)
    mailbox.offer("a1")
    mailbox.offer("a2")
    assert mailbox.take() == "own one"
    mailbox.hand_back(["own two"])
    assert mailbox.take() == "a1"
    assert not mailbox.look
    assert mailbox.take() == "a2"
    assert balanced(mailbox)


async def test_with_no_room_at_all_nothing_is_dropped_for_a_message() -> None:
    mailbox, told = made(0, "drop_oldest")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.get)
        await wait_all_tasks_blocked()
        mailbox.offer("taken")
    mailbox.stash("taken", 1)
    mailbox.unstash()
    assert not mailbox.has_room
    assert not mailbox.offer("a1")
    assert mailbox.queued() == ["taken"]
    assert told.messages == []
    assert balanced(mailbox)


def test_who_is_told_of_a_drop_may_send_to_the_same_mailbox() -> None:
    class Talker(Told):
        def lost(self, message: object, how: Lost) -> None:
            super().lost(message, how)
            if len(self.messages) < 3:
                assert self.mailbox is not None
                self.mailbox.offer(f"dropped {message}")

    told = Talker()
    mailbox = told.mailbox = make_mailbox(1, "drop_oldest", told)
    mailbox.offer("a")
    mailbox.offer("b")
    assert told.messages == ["a", "b", "dropped a"]
    assert mailbox.queued() == ["dropped b"]
    assert balanced(mailbox)


# The latest of each key.


async def test_a_send_waits_only_for_a_key_that_is_not_queued() -> None:
    mailbox, told = made(1, LATEST)
    await mailbox.put("a1")
    with assert_checkpoints():
        await mailbox.put("a2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.put, "b1")
        await wait_all_tasks_blocked()
        assert mailbox.waiting() == ["b1"]
        with assert_checkpoints():
            await mailbox.put("a3")
        assert mailbox.take() == "a3"
    assert mailbox.take() == "b1"
    assert told.messages == ["a1", "a2"]
    assert balanced(mailbox)


async def test_of_two_senders_that_waited_the_later_replaces_the_earlier() -> None:
    mailbox, told = made(1, LATEST)
    mailbox.offer("-")
    async with trio.open_nursery() as nursery:
        for message in ("a1", "a2", "b1"):
            nursery.start_soon(mailbox.put, message)
            await wait_all_tasks_blocked()
        assert mailbox.take() == "-"
        assert mailbox.queued() == ["a1"]
        assert mailbox.take() == "a1"
        assert mailbox.take() == "a2"
        assert mailbox.take() == "b1"
    assert told.messages == []

    mailbox, told = made(2, LATEST)
    mailbox.offer("-")
    mailbox.offer("-")
    async with trio.open_nursery() as nursery:
        for message in ("a1", "a2", "b1"):
            nursery.start_soon(mailbox.put, message)
            await wait_all_tasks_blocked()
        assert [mailbox.take(), mailbox.take()] == ["-", "-"]
        assert mailbox.queued() == ["a2", "b1"]
    assert told.messages == ["a1"]
    assert balanced(mailbox)


async def test_a_sender_that_waited_does_not_replace_what_was_sent_after_it_began() -> None:
    mailbox, told = made(2, LATEST)
    mailbox.offer("-")
    mailbox.offer("-")
    async with trio.open_nursery() as nursery:
        for message in ("a1", "a2"):
            nursery.start_soon(mailbox.put, message)
            await wait_all_tasks_blocked()
        assert mailbox.take() == "-"  # a1 gets in
        assert mailbox.offer("a3")
        assert told.messages == ["a1"]
        assert mailbox.take() == "-"  # a2 gets in, and is old
        assert told.messages == ["a1", "a2"]
    assert mailbox.queued() == ["a3"]
    assert balanced(mailbox)


def test_a_key_that_was_received_put_aside_or_handed_back_is_not_queued() -> None:
    mailbox, told = made(3, LATEST)
    mailbox.offer("a1")
    mailbox.stash(mailbox.take(), 1)
    mailbox.offer("a2")
    mailbox.offer("b1")
    mailbox.unstash()
    assert mailbox.offer("a3")
    assert mailbox.queued() == ["a1", "a3", "b1"]  # what was put aside stays
    assert told.messages == ["a2"]
    mailbox.hand_back([mailbox.queued()[1]])
    assert mailbox.offer("a4")
    assert mailbox.offer("b2")
    assert [mailbox.take() for _ in range(3)] == ["a1", "b2", "a4"]
    assert balanced(mailbox)


def test_a_key_that_fails_counts_as_none_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def key(message: str) -> object:
        return [] if message == "list" else message.upper() if message.isalpha() else 1 // 0

    mailbox: Mailbox[str] = make_mailbox(4, latest(key))
    with caplog.at_level(logging.ERROR):
        for message in ("1", "list", "1", "a", "a"):
            assert mailbox.offer(message)
    assert mailbox.queued() == ["1", "list", "1", "a"]
    assert mailbox.dropped == 1
    (record,) = caplog.records
    assert record.getMessage() == "the key of a `latest` mailbox failed for a str"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
