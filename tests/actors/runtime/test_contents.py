"""What the receiver of a mailbox does to it beside receiving."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.lowlevel import Task
from trio.testing import wait_all_tasks_blocked

from actors.runtime import contents
from actors.runtime.errors import StashFull
from actors.runtime.mailbox import Lost, Mailbox
from actors.runtime.overflow import Overflow, make_mailbox
from actors.runtime.reply import Replies, Reply, attach


class Question(Replies[int]):
    def __init__(self, number: int) -> None:
        self.number = number


class StubbornQuestion(Question):
    handle_abandoned = True


class Owner:
    """Asked and told: the part of an actor that a mailbox and a reply know."""

    def __init__(self, size: int = 8, overflow: Overflow = "wait") -> None:
        self.asks: dict[Reply[Any], None] = {}
        self.told: list[tuple[object, Lost]] = []
        self.mailbox: Mailbox[Any] = make_mailbox(size, overflow, self)

    def lost(self, message: object, how: Lost) -> None:
        self.told.append((message, how))
        assert balanced(self.mailbox)

    def ask_given_up(self) -> None:
        self.mailbox.abandoned += 1

    def ask_late(self) -> None: ...

    def ask_timeout(self, within: float) -> Exception:
        return TimeoutError(within)

    def withdraw(self, task: Task, error: Exception) -> bool:
        return self.mailbox.withdraw(task, error)

    def asked(self, message: Question) -> Question:
        attach(message, self)
        assert self.mailbox.offer(message)
        return message


def balanced(mailbox: Mailbox[Any]) -> bool:
    now = mailbox.statistics()
    gone = now.handled + now.expired + now.dropped + now.returned
    return now.accepted == gone + now.queued and now.sent == now.accepted + now.rejected


# What the receiver orders.


def test_what_the_receiver_orders_comes_in_order_and_needs_no_room() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    mailbox.offer(1)
    assert mailbox.post(2)
    assert mailbox.post(3)
    assert not mailbox.offer(4)
    assert [mailbox.take() for _ in range(3)] == [1, 2, 3]
    assert mailbox.statistics().peak_buffer_used == 3
    assert balanced(mailbox)


@pytest.mark.parametrize("post", [Mailbox[int].post, Mailbox[int].post_system])
def test_what_the_receiver_orders_is_accepted_until_it_has_gone(post: Callable[[Mailbox[int], int], bool]) -> None:
    mailbox: Mailbox[int] = Mailbox(0)
    mailbox.close_sending()
    assert post(mailbox, 1)
    assert mailbox.take() == 1
    with pytest.raises(trio.EndOfChannel):
        mailbox.take()
    mailbox.close_receiving()
    assert not post(mailbox, 2)
    assert (mailbox.accepted, mailbox.rejected) == (1, 1)
    assert balanced(mailbox)


@pytest.mark.parametrize("post", [Mailbox[int].post, Mailbox[int].post_system])
@pytest.mark.parametrize("draining", [False, True])
async def test_what_the_receiver_orders_wakes_it(post: Callable[[Mailbox[int], int], bool], draining: bool) -> None:
    mailbox: Mailbox[int] = Mailbox(0)
    got: list[int] = []

    async def receive() -> None:
        got.append(await mailbox.get())

    mailbox.expect_more()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        if draining:
            mailbox.close_sending()
        assert post(mailbox, 1)
        assert post(mailbox, 2)
    assert got == [1]
    assert mailbox.queued() == [2]
    assert balanced(mailbox)


def test_the_system_lane_overtakes_ten_thousand_messages_and_is_in_order_itself_r8() -> None:
    mailbox: Mailbox[int] = Mailbox(10_000)
    for n in range(10_000):
        mailbox.offer(n)
    mailbox.post_system(-1)
    mailbox.post_system(-2)
    assert len(mailbox) == 10_002
    assert [mailbox.take() for _ in range(4)] == [-1, -2, 0, 1]
    assert mailbox.statistics().peak_buffer_used == 10_002
    assert balanced(mailbox)


async def test_a_drained_mailbox_has_no_end_while_a_message_is_expected() -> None:
    mailbox: Mailbox[str] = Mailbox(1)
    mailbox.expect_more()
    mailbox.expect_more()
    mailbox.close_sending()
    got: list[str] = []

    async def receive() -> None:
        with pytest.raises(trio.EndOfChannel):
            while True:
                got.append(await mailbox.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await mailbox.get()
        mailbox.post("one")
        mailbox.expect_less()
        await wait_all_tasks_blocked()
        assert mailbox.statistics().tasks_waiting_receive == 1
        mailbox.expect_less()
    assert got == ["one"]
    assert mailbox.expected == 0
    with pytest.raises(RuntimeError, match=r"^expect_less\(\) was called more often than expect_more\(\)$"):
        mailbox.expect_less()


def test_a_receive_that_need_not_wait_says_so_while_a_message_is_expected() -> None:
    mailbox: Mailbox[str] = Mailbox(1)
    mailbox.expect_more()
    mailbox.close_sending()
    with pytest.raises(trio.WouldBlock):
        mailbox.take()
    assert mailbox.would_block
    mailbox.expect_less()
    assert not mailbox.would_block
    with pytest.raises(trio.EndOfChannel):
        mailbox.take()


# Messages aside.


def test_what_is_put_aside_comes_back_before_the_queue_in_its_order() -> None:
    mailbox: Mailbox[int] = Mailbox(4)
    for n in range(4):
        mailbox.offer(n)
    for _ in range(2):
        mailbox.stash(mailbox.take(), 2)
    assert mailbox.queued() == [0, 1, 2, 3]
    now = mailbox.statistics()
    assert (now.handled, now.queued, now.current_buffer_used) == (0, 4, 2)
    assert mailbox.offer(4)  # the stash takes no room
    mailbox.unstash()
    mailbox.unstash()
    mailbox.post_system(-1)
    assert [mailbox.take() for _ in range(6)] == [-1, 0, 1, 2, 3, 4]
    assert balanced(mailbox)


def test_a_full_stash_leaves_the_message_taken() -> None:
    mailbox: Mailbox[int] = Mailbox(4)
    mailbox.offer(1)
    mailbox.offer(2)
    mailbox.stash(mailbox.take(), 1)
    message = mailbox.take()
    with pytest.raises(StashFull) as caught:
        mailbox.stash(message, 1)
    assert caught.value.limit == 1
    assert mailbox.handled == 1
    assert mailbox.queued() == [1]
    assert balanced(mailbox)


def test_nothing_is_put_aside_when_the_receiver_has_gone() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    mailbox.offer(1)
    message = mailbox.take()
    mailbox.close_receiving()
    with pytest.raises(trio.ClosedResourceError, match=r"^the receiving side of this mailbox has been closed$"):
        mailbox.stash(message, 1)
    assert balanced(mailbox)


async def test_what_is_unstashed_by_another_task_wakes_the_receiver() -> None:
    mailbox: Mailbox[int] = Mailbox(4)
    for n in (1, 2):
        mailbox.offer(n)
        mailbox.stash(mailbox.take(), 4)
    got: list[int] = []

    async def receive() -> None:
        got.append(await mailbox.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        mailbox.unstash()
    assert got == [1]
    assert mailbox.queued() == [2]
    assert balanced(mailbox)


def test_messages_are_handed_back_from_wherever_they_are() -> None:
    owner = Owner()
    mailbox = owner.mailbox
    messages = [f"message {n}" for n in range(6)]
    for message in messages[:4]:
        mailbox.offer(message)
    for message in messages[4:]:
        mailbox.post_system(message)
    taken = [mailbox.take() for _ in range(4)]
    mailbox.stash(taken[2], 4)
    mailbox.stash(taken[3], 4)
    mailbox.post_system("down")
    before = mailbox.queued()
    assert before == [messages[0], messages[1], "down", messages[2], messages[3]]
    mailbox.hand_back([before[0], before[2], before[4], "another"])
    assert mailbox.queued() == [messages[1], messages[2]]
    mailbox.hand_back([])
    assert mailbox.returned == 3
    assert owner.told == []  # who takes them back has them
    assert balanced(mailbox)


@pytest.mark.parametrize("overflow", ["wait", "reject", "drop_oldest"])
@pytest.mark.parametrize("drained", [False, True])
def test_the_end_returns_what_is_queued_and_what_is_put_aside_r21(overflow: Overflow, drained: bool) -> None:
    owner = Owner(4, overflow)
    mailbox = owner.mailbox
    for n in range(4):
        mailbox.offer(n)
    mailbox.stash(mailbox.take(), 4)
    mailbox.stash(mailbox.take(), 4)
    mailbox.post(4)
    mailbox.post_system(5)
    if drained:
        mailbox.close_sending()
    assert mailbox.close_receiving() == [0, 1, 5, 2, 3, 4]
    assert mailbox.close_receiving() == []
    assert mailbox.queued() == []
    now = mailbox.statistics()
    assert (now.accepted, now.handled, now.returned, now.queued, now.peak_buffer_used) == (6, 0, 6, 0, 4)
    assert owner.told == []
    assert balanced(mailbox)


# Requests that nobody waits for.


def test_a_request_whose_asker_has_gone_is_skipped_when_it_reaches_the_front() -> None:
    owner = Owner()
    mailbox = owner.mailbox
    first, second, third = (owner.asked(Question(n)) for n in range(3))
    second.reply.give_up()
    assert mailbox.take() is first
    assert mailbox.queued() == [second, third]  # not at the front before that
    assert mailbox.take() is third
    assert owner.told == [(second, Lost.EXPIRED)]
    now = mailbox.statistics()
    assert (now.expired, now.handled) == (1, 2)
    assert balanced(mailbox)


def test_what_was_told_or_wants_to_be_handled_does_not_expire() -> None:
    owner = Owner()
    told, stubborn, gone = Question(1), owner.asked(StubbornQuestion(2)), owner.asked(Question(3))
    assert owner.mailbox.offer(told)
    stubborn.reply.give_up()
    gone.reply.give_up()
    assert [owner.mailbox.take(), owner.mailbox.take()] == [stubborn, told]
    assert owner.told == [(gone, Lost.EXPIRED)]


def test_a_mailbox_of_expired_requests_is_empty() -> None:
    owner = Owner()
    for question in [owner.asked(Question(n)) for n in range(5)]:
        question.reply.give_up()
    assert owner.mailbox.abandoned == 5
    assert owner.mailbox.would_block
    assert owner.mailbox.poll(None) is None
    assert owner.mailbox.abandoned == 0
    assert owner.mailbox.expired == 5
    assert balanced(owner.mailbox)


def test_messages_are_looked_at_only_after_an_asker_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner(100)
    mailbox = owner.mailbox
    looked: list[object] = []

    def is_expired(message: Question) -> bool:
        looked.append(message.number)
        return message.reply.abandoned

    monkeypatch.setattr(contents, "is_expired", is_expired)
    questions = [owner.asked(Question(n)) for n in range(3)]
    assert mailbox.take() is questions[0]
    assert looked == []
    questions[0].reply.give_up()  # it is being handled
    for n in range(3, 50):
        owner.asked(Question(n))
    for _ in range(40):
        mailbox.take()
    assert looked == [1, 2]  # what came later was asked by somebody who waits
    assert mailbox.abandoned == 0


def test_an_asker_that_goes_when_nothing_is_queued_costs_nothing() -> None:
    owner = Owner()
    question = owner.asked(Question(1))
    assert owner.mailbox.take() is question
    question.reply.give_up()
    assert owner.mailbox.abandoned == 0
    assert owner.mailbox.lanes is None


def test_a_request_whose_asker_goes_while_it_is_put_aside_is_skipped_when_it_comes_back() -> None:
    owner = Owner()
    question = owner.asked(Question(1))
    owner.mailbox.stash(owner.mailbox.take(), 1)
    question.reply.give_up()
    owner.mailbox.unstash()
    assert owner.mailbox.poll(None) is None
    assert owner.told == [(question, Lost.EXPIRED)]
    assert balanced(owner.mailbox)


async def test_the_place_of_an_expired_request_goes_to_who_waits_for_room() -> None:
    owner = Owner(1)
    question = owner.asked(Question(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(owner.mailbox.put, "next")
        await wait_all_tasks_blocked()
        question.reply.give_up()
        assert not owner.mailbox.would_block
        assert owner.mailbox.queued() == ["next"]
    assert owner.mailbox.take() == "next"
    assert balanced(owner.mailbox)


def test_who_is_told_of_a_loss_may_send_to_the_same_mailbox() -> None:
    class Talker(Owner):
        def lost(self, message: object, how: Lost) -> None:
            super().lost(message, how)
            self.mailbox.offer(f"{how.value} {len(self.told)}")

    talker = Talker(2)
    for question in [talker.asked(Question(n)) for n in range(2)]:
        question.reply.give_up()
    assert [talker.mailbox.take(), talker.mailbox.take()] == ["expired 1", "expired 2"]
    assert balanced(talker.mailbox)
