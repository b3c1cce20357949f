from collections.abc import Callable

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from actors.runtime.mailbox import Mailbox


def balanced(mailbox: Mailbox[int]) -> bool:
    now = mailbox.statistics()
    return now.accepted == now.handled + now.returned + now.current_buffer_used and now.sent == (
        now.accepted + now.rejected
    )


@pytest.mark.parametrize(
    ("size", "error", "text"),
    [
        (-1, ValueError, "max_buffer_size must be 0 or more, not -1"),
        (float("inf"), TypeError, "max_buffer_size must be an integer, 0 or more, not inf"),
    ],
)
def test_there_is_no_unbounded_mailbox(size: int, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"^{text}$"):
        Mailbox[int](size)


def test_offer_takes_what_there_is_room_for_and_never_raises() -> None:
    mailbox: Mailbox[int] = Mailbox(2)
    assert [mailbox.offer(n) for n in range(4)] == [True, True, False, False]
    assert not mailbox.has_room
    assert mailbox.take() == 0
    assert mailbox.has_room
    assert mailbox.offer(4)
    assert [mailbox.take(), mailbox.take()] == [1, 4]
    now = mailbox.statistics()
    assert (now.accepted, now.rejected, now.handled, now.sent, now.peak_buffer_used) == (3, 2, 3, 5, 2)
    assert balanced(mailbox)


def test_offers_that_nobody_reads_take_no_memory_and_are_counted() -> None:
    mailbox: Mailbox[int] = Mailbox(64)
    for n in range(100_000):
        mailbox.offer(n)
    assert len(mailbox) == 64
    assert mailbox.rejected == 100_000 - 64
    assert balanced(mailbox)


def test_an_idle_mailbox_has_no_queues() -> None:
    mailbox: Mailbox[int] = Mailbox(64)
    assert mailbox._queue is None
    assert mailbox._waiting is None


async def test_waiting_for_a_message_lets_the_empty_queue_go() -> None:
    mailbox: Mailbox[int] = Mailbox(64)
    mailbox.offer(1)
    assert await mailbox.get() == 1
    assert mailbox._queue is not None
    with trio.move_on_after(0):
        await mailbox.get()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.get)
        await wait_all_tasks_blocked()
        assert mailbox._queue is None
        mailbox.offer(2)


async def test_put_and_get_are_checkpoints_also_when_they_need_not_wait() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    with assert_checkpoints():
        await mailbox.put(1)
    with assert_checkpoints():
        assert await mailbox.get() == 1


async def test_a_second_receiver_is_refused() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.get)
        await wait_all_tasks_blocked()
        with pytest.raises(
            trio.BusyResourceError,
            match=r"^another task already receives from this mailbox; it has one receiver$",
        ):
            await mailbox.get()
        mailbox.offer(1)


async def test_senders_wait_in_the_order_of_arrival_and_a_cancelled_one_leaves() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    mailbox.offer(0)
    scopes = [trio.CancelScope() for _ in range(3)]

    async def send(n: int) -> None:
        with scopes[n - 1]:
            await mailbox.put(n)

    async with trio.open_nursery() as nursery:
        for n in (1, 2, 3):
            nursery.start_soon(send, n)
            await wait_all_tasks_blocked()
        assert mailbox.waiting() == [1, 2, 3]
        scopes[1].cancel()
        await wait_all_tasks_blocked()
        assert not mailbox.offer(9)  # those who wait come first
        assert [await mailbox.get() for _ in range(3)] == [0, 1, 3]
    now = mailbox.statistics()
    assert (now.accepted, now.rejected, now.handled) == (3, 2, 3)
    assert balanced(mailbox)


async def test_closing_the_receiver_hands_back_what_is_queued_and_fails_who_waits() -> None:
    mailbox: Mailbox[int] = Mailbox(2)
    mailbox.offer(1)
    mailbox.offer(2)

    async def send() -> None:
        with pytest.raises(trio.BrokenResourceError, match=r"^the receiver of this mailbox has gone$"):
            await mailbox.put(3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        assert mailbox.close_receiving() == [1, 2]
    assert not mailbox.offer(4)
    assert mailbox.close_receiving() == []
    with pytest.raises(trio.ClosedResourceError):
        mailbox.take()
    now = mailbox.statistics()
    assert (now.accepted, now.returned, now.rejected, now.handled) == (2, 2, 2, 0)
    assert balanced(mailbox)


async def test_closing_the_sender_lets_the_rest_be_received() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    mailbox.offer(1)

    async def send() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await mailbox.put(2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        mailbox.close_sending()
    assert not mailbox.offer(3)
    with pytest.raises(trio.ClosedResourceError):
        await mailbox.put(4)
    assert await mailbox.get() == 1
    with pytest.raises(trio.EndOfChannel):
        await mailbox.get()
    assert balanced(mailbox)


@pytest.mark.parametrize(
    ("close", "error"),
    [
        (Mailbox[int].close_sending, trio.EndOfChannel),
        (Mailbox[int].close_receiving, trio.ClosedResourceError),
    ],
)
async def test_closing_either_side_wakes_the_receiver(
    close: Callable[[Mailbox[int]], object], error: type[Exception]
) -> None:
    mailbox: Mailbox[int] = Mailbox(1)

    async def receive() -> None:
        with pytest.raises(error):
            await mailbox.get()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        close(mailbox)


async def test_messages_handed_back_make_room_for_who_waits() -> None:
    mailbox: Mailbox[int] = Mailbox(3)
    messages = [1000, 1001, 1002]
    for message in messages:
        mailbox.offer(message)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.put, 1003)
        await wait_all_tasks_blocked()
        mailbox.hand_back(messages[1:2])
    assert mailbox.queued() == [1000, 1002, 1003]
    assert mailbox.statistics().returned == 1
    assert balanced(mailbox)


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("how", ["deadline", "by hand"])
async def test_a_receive_that_times_out_loses_no_item_a01(
    size: int, how: str, autojump_clock: trio.testing.MockClock
) -> None:
    mailbox: Mailbox[int] = Mailbox(size)
    received: list[int] = []
    sent: list[int] = []
    scope = trio.CancelScope()

    async def consume() -> None:
        nonlocal scope
        while True:
            scope = trio.CancelScope(deadline=trio.current_time() + 0.1 if how == "deadline" else float("inf"))
            with scope:
                received.append(await mailbox.get())

    async def produce() -> None:
        for n in range(200):
            await trio.sleep(0.1)
            if how == "by hand" and n % 2:
                scope.cancel()
            with trio.move_on_after(0.05):
                await mailbox.put(n)
                sent.append(n)
            if how == "by hand" and not n % 2:
                scope.cancel()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        nursery.start_soon(produce)
    assert received == sent
    assert len(received) > 100
    assert balanced(mailbox)


async def test_a_message_offered_just_before_the_receiver_is_cancelled_arrives_a01() -> None:
    mailbox: Mailbox[int] = Mailbox(0)
    received: list[int] = []
    scope = trio.CancelScope()

    async def receive() -> None:
        with scope:
            received.append(await mailbox.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        assert mailbox.offer(1)
        scope.cancel()
        assert not mailbox.offer(2)
    assert received == [1]
