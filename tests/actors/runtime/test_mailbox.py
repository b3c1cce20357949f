import tracemalloc
from collections.abc import Callable
from itertools import permutations

import pytest
import trio
from trio.lowlevel import Task, current_task
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from actors.runtime.mailbox import Mailbox


def balanced(mailbox: Mailbox[int]) -> bool:
    now = mailbox.statistics()
    gone = now.handled + now.expired + now.dropped + now.returned
    return now.accepted == gone + now.queued and now.sent == now.accepted + now.rejected


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


def test_offers_to_a_stalled_mailbox_take_no_memory_and_each_is_counted_r16() -> None:
    mailbox: Mailbox[str] = Mailbox(64)
    for _ in range(64):
        mailbox.offer("x")
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(200_000):
        mailbox.offer("x")
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 500
    now = mailbox.statistics()
    assert (now.sent, now.accepted, now.rejected, now.queued) == (200_064, 64, 200_000, 64)


def test_an_idle_mailbox_has_no_queues() -> None:
    mailbox: Mailbox[int] = Mailbox(64)
    assert mailbox.queue is None
    assert mailbox.lanes is None
    mailbox.offer(1)
    mailbox.take()
    assert mailbox.would_block
    assert mailbox.lanes is None


def test_poll_is_take_without_the_error_of_an_empty_mailbox() -> None:
    mailbox: Mailbox[int] = Mailbox(2)
    assert mailbox.poll(None) is None
    mailbox.offer(1)
    mailbox.offer(2)
    mailbox.post_system(0)
    assert [mailbox.poll(None) for _ in range(4)] == [0, 1, 2, None]
    mailbox.close_sending()
    with pytest.raises(trio.EndOfChannel):
        mailbox.poll(None)
    mailbox.close_receiving()
    with pytest.raises(trio.ClosedResourceError, match=r"^the receiving side of this mailbox has been closed$"):
        mailbox.poll(None)
    assert mailbox.handled == 3


async def test_waiting_for_a_message_lets_the_empty_queue_go() -> None:
    mailbox: Mailbox[int] = Mailbox(64)
    mailbox.offer(1)
    assert await mailbox.get() == 1
    assert mailbox.queue is not None
    with trio.move_on_after(0):
        await mailbox.get()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.get)
        await wait_all_tasks_blocked()
        assert mailbox.queue is None
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


@pytest.mark.parametrize("leaving", [order for n in range(5) for order in permutations(range(4), n)])
@pytest.mark.parametrize("how", ["cancelled", "withdrawn"])
async def test_senders_that_leave_in_any_order_hold_nobody_up_r22(leaving: tuple[int, ...], how: str) -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    mailbox.offer(100)
    scopes = [trio.CancelScope() for _ in range(4)]
    tasks: dict[int, Task] = {}
    seen: list[str] = []

    async def send(n: int) -> None:
        tasks[n] = current_task()
        with scopes[n]:
            try:
                await mailbox.put(n)
            except TimeoutError as error:
                seen.append(str(error))

    async with trio.open_nursery() as nursery:
        for n in range(4):
            nursery.start_soon(send, n)
            await wait_all_tasks_blocked()
        for n in leaving:
            if how == "cancelled":
                scopes[n].cancel()
                await wait_all_tasks_blocked()
            else:
                assert mailbox.withdraw(tasks[n], TimeoutError(f"{n} took too long"))
                assert not mailbox.withdraw(tasks[n], TimeoutError("again"))
        stayed = [n for n in range(4) if n not in leaving]
        assert [await mailbox.get() for _ in range(len(stayed) + 1)] == [100, *stayed]
    if how == "withdrawn":
        assert sorted(seen) == [f"{n} took too long" for n in sorted(leaving)]
    assert mailbox.rejected == len(leaving)
    assert balanced(mailbox)


async def test_only_a_sender_that_waits_can_be_withdrawn() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    assert not mailbox.withdraw(current_task(), TimeoutError())
    await mailbox.put(1)
    assert not mailbox.withdraw(current_task(), TimeoutError())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.put, 2)
        await wait_all_tasks_blocked()
        assert not mailbox.withdraw(current_task(), TimeoutError())
        assert [await mailbox.get(), await mailbox.get()] == [1, 2]
    assert balanced(mailbox)


async def test_a_sender_that_waits_is_not_overtaken_by_one_that_comes_when_there_is_room_again() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    mailbox.offer(0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.put, 1)
        await wait_all_tasks_blocked()
        assert mailbox.take() == 0
        assert not mailbox.offer(2)
    assert mailbox.queued() == [1]


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


@pytest.mark.parametrize("left", [0, 1, 2])
@pytest.mark.parametrize("close", [Mailbox[int].close_sending, Mailbox[int].close_receiving])
def test_a_closed_mailbox_takes_nothing_though_there_is_room(
    left: int, close: Callable[[Mailbox[int]], object]
) -> None:
    mailbox: Mailbox[int] = Mailbox(3)
    for n in range(3):
        mailbox.offer(n)
    for _ in range(3 - left):
        mailbox.take()
    close(mailbox)
    assert not mailbox.has_room
    assert not mailbox.offer(3)
    assert mailbox.rejected == 1
    assert balanced(mailbox)


async def test_a_draining_mailbox_takes_nothing_from_others_for_a_receiver_that_waits() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    mailbox.expect_more()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.get)
        await wait_all_tasks_blocked()
        mailbox.close_sending()
        assert not mailbox.has_room
        assert not mailbox.offer(1)
        assert mailbox.post(2)
    assert (mailbox.handled, mailbox.rejected) == (1, 1)


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
