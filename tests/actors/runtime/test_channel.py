"""The same behaviour for the ends of a mailbox and of `trio.open_memory_channel`."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from actors.runtime.channel import open_mailbox
from actors.runtime.errors import MailboxFull
from actors.runtime.overflow import latest

Open = Callable[[int], tuple[Any, Any]]


@pytest.fixture(params=["trio", "mailbox"])
def open_channel(request: pytest.FixtureRequest) -> Open:
    return trio.open_memory_channel[int] if request.param == "trio" else open_mailbox


async def test_capacity_is_checked(open_channel: Open) -> None:
    with pytest.raises(TypeError):
        open_channel("1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"-1|>= 0"):
        open_channel(-1)


async def test_both_ends_are_trio_channels() -> None:
    ends: tuple[Any, Any] = open_mailbox(1)
    send, receive = ends
    assert isinstance(send, trio.abc.SendChannel)
    assert isinstance(receive, trio.abc.ReceiveChannel)


async def test_messages_arrive_in_order_and_the_loop_ends(open_channel: Open) -> None:
    send, receive = open_channel(2)

    async def produce() -> None:
        async with send:
            for n in range(10):
                await send.send(n)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        assert [n async for n in receive] == list(range(10))
    with pytest.raises(trio.EndOfChannel):
        await receive.receive()


async def test_nowait_would_block(open_channel: Open) -> None:
    send, receive = open_channel(1)
    with pytest.raises(trio.WouldBlock):
        receive.receive_nowait()
    send.send_nowait(1)
    with pytest.raises(trio.WouldBlock):
        send.send_nowait(2)
    assert receive.receive_nowait() == 1


async def test_capacity_zero_passes_only_to_a_receiver_that_waits(open_channel: Open) -> None:
    send, receive = open_channel(0)
    with pytest.raises(trio.WouldBlock):
        send.send_nowait(1)
    with pytest.raises(trio.WouldBlock):
        receive.receive_nowait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send.send, 2)
        await wait_all_tasks_blocked()
        assert receive.receive_nowait() == 2
    got: list[int] = []

    async def take() -> None:
        got.append(await receive.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await wait_all_tasks_blocked()
        send.send_nowait(3)
        with pytest.raises(trio.WouldBlock):
            send.send_nowait(4)
    assert got == [3]


async def test_every_operation_is_a_checkpoint(open_channel: Open) -> None:
    send, receive = open_channel(1)
    with assert_checkpoints():
        await send.send(1)
    with assert_checkpoints():
        await receive.receive()
    with assert_checkpoints():
        await send.aclose()
    with assert_checkpoints():
        await receive.aclose()


async def test_a_cancelled_scope_is_noticed_even_when_there_is_room(open_channel: Open) -> None:
    send, receive = open_channel(1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await send.send(1)
    with pytest.raises(trio.WouldBlock):
        receive.receive_nowait()
    send.send_nowait(2)
    with trio.CancelScope() as scope:
        scope.cancel()
        await receive.receive()
    assert receive.receive_nowait() == 2


async def test_sending_after_the_receiver_closed_is_broken(open_channel: Open) -> None:
    send, receive = open_channel(1)
    send.send_nowait(1)
    receive.close()
    receive.close()
    with pytest.raises(trio.BrokenResourceError):
        send.send_nowait(2)
    with pytest.raises(trio.BrokenResourceError):
        await send.send(2)
    with pytest.raises(trio.ClosedResourceError):
        receive.receive_nowait()
    with pytest.raises(trio.ClosedResourceError):
        await receive.receive()


async def test_using_a_closed_send_end_fails(open_channel: Open) -> None:
    send, receive = open_channel(1)
    send.send_nowait(1)
    with send:
        pass
    with pytest.raises(trio.ClosedResourceError):
        send.send_nowait(2)
    with pytest.raises(trio.ClosedResourceError):
        await send.send(2)
    with pytest.raises(trio.ClosedResourceError):
        send.clone()
    assert await receive.receive() == 1
    with pytest.raises(trio.EndOfChannel):
        receive.receive_nowait()


async def test_closing_an_end_wakes_those_who_wait_at_it(open_channel: Open) -> None:
    send, receive = open_channel(0)

    async def sending() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await send.send(1)

    async def receiving() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await other_receive.receive()

    other_send, other_receive = open_channel(0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sending)
        nursery.start_soon(receiving)
        await wait_all_tasks_blocked()
        send.close()
        with other_receive:
            pass
    other_send.close()
    receive.close()


async def test_closing_the_other_end_wakes_who_waits(open_channel: Open) -> None:
    send, receive = open_channel(0)

    async def sending() -> None:
        with pytest.raises(trio.BrokenResourceError):
            await send.send(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sending)
        await wait_all_tasks_blocked()
        receive.close()

    send, receive = open_channel(0)

    async def receiving() -> None:
        with pytest.raises(trio.EndOfChannel):
            await receive.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receiving)
        await wait_all_tasks_blocked()
        send.close()


async def test_the_end_comes_when_the_last_clone_is_closed(open_channel: Open) -> None:
    send, receive = open_channel(1)
    clone = send.clone()

    async def sending() -> None:
        await clone.send(2)

    send.send_nowait(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sending)
        await wait_all_tasks_blocked()
        send.close()  # the one who waits at the clone goes on waiting
        send.close()
        assert receive.statistics().tasks_waiting_send == 1
        assert await receive.receive() == 1
    assert receive.statistics().open_send_channels == 1
    clone.close()
    assert await receive.receive() == 2
    with pytest.raises(trio.EndOfChannel):
        await receive.receive()


async def test_statistics_mean_the_same(open_channel: Open) -> None:
    send, receive = open_channel(2)
    clone = send.clone()

    def figures() -> tuple[int, ...]:
        now = send.statistics()
        assert now == receive.statistics()
        return (
            now.current_buffer_used,
            now.max_buffer_size,
            now.open_send_channels,
            now.open_receive_channels,
            now.tasks_waiting_send,
            now.tasks_waiting_receive,
        )

    assert figures() == (0, 2, 2, 1, 0, 0)
    clone.close()
    send.send_nowait(1)
    assert figures() == (1, 2, 1, 1, 0, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send.send, 2)
        nursery.start_soon(send.send, 3)
        await wait_all_tasks_blocked()
        assert figures() == (2, 2, 1, 1, 1, 0)
        for _ in range(3):
            receive.receive_nowait()
        nursery.start_soon(receive.receive)
        await wait_all_tasks_blocked()
        assert figures() == (0, 2, 1, 1, 0, 1)
        send.send_nowait(4)
    receive.close()
    assert figures() == (0, 2, 1, 0, 0, 0)


async def test_send_fails_at_once_where_the_mailbox_rejects() -> None:
    ends: tuple[Any, Any] = open_mailbox(1, "reject")
    send, receive = ends
    await send.send(1)
    text = "this mailbox is full and rejects what it has no room for; send it again later, or let it wait for room"
    with pytest.raises(MailboxFull, match=f"^{text}$") as caught:
        await send.send(2)
    assert caught.value.name == ""
    with pytest.raises(trio.WouldBlock):
        send.send_nowait(3)
    assert await receive.receive() == 1
    assert (send.statistics().accepted, send.statistics().rejected) == (1, 2)


async def test_a_mailbox_that_drops_or_replaces_lets_no_sender_wait_for_what_it_has() -> None:
    ends: tuple[Any, Any] = open_mailbox(2, "drop_oldest")
    send, receive = ends
    for n in range(5):
        await send.send(n)
    assert [receive.receive_nowait(), receive.receive_nowait()] == [3, 4]
    assert receive.statistics().dropped == 3

    ends = open_mailbox(2, latest(lambda n: n % 2))
    send, receive = ends
    for n in range(5):
        await send.send(n)
    assert [receive.receive_nowait(), receive.receive_nowait()] == [4, 3]
    assert receive.statistics().dropped == 3


async def test_statistics_cannot_be_changed() -> None:
    send, _ = open_mailbox(1)
    with pytest.raises(AttributeError):
        send.statistics().accepted = 5  # type: ignore[misc]


OPERATIONS = ["send_nowait", "receive_nowait", "send", "receive", "clone", "close", "close receiver", "cancel"]


async def play(channel: tuple[Any, Any], script: list[str]) -> tuple[list[tuple[int, str]], Any]:
    """Run a script one step at a time and return what each step, and each task that had to wait, ended with.

    Who is woken first within a step is trio's dice, so the endings of a step are sorted.
    """
    first, receive = channel
    ends = [first]
    seen: list[tuple[int, str]] = []
    now_at = 0
    scopes: list[trio.CancelScope] = []

    async def run(step: int, call: Callable[..., Any], *args: object) -> None:
        scopes.append(trio.CancelScope())
        with scopes[-1]:
            try:
                result = await call(*args)
                seen.append((now_at, f"{step} {result}"))
            except (trio.ClosedResourceError, trio.BrokenResourceError, trio.EndOfChannel) as error:
                seen.append((now_at, f"{step} {type(error)}"))

    async with trio.open_nursery() as nursery:
        for step, operation in enumerate(script):
            now_at = step
            try:
                match operation:
                    case "send_nowait":
                        ends[-1].send_nowait(step)
                    case "receive_nowait" if not receive.statistics().tasks_waiting_receive:
                        seen.append((step, f"got {receive.receive_nowait()}"))
                    case "send":
                        nursery.start_soon(run, step, ends[-1].send, step)
                    case "receive" if not receive.statistics().tasks_waiting_receive:
                        nursery.start_soon(run, step, receive.receive)
                    case "clone":
                        ends.append(ends[-1].clone())
                    case "close":
                        ends[-1].close()
                        if len(ends) > 1:
                            ends.pop()
                    case "close receiver":
                        receive.close()
                    case "cancel" if scopes:
                        scopes[-1].cancel()
                    case _:
                        pass
            except (trio.WouldBlock, trio.ClosedResourceError, trio.BrokenResourceError, trio.EndOfChannel) as error:
                seen.append((step, f"raised {type(error)}"))
            await wait_all_tasks_blocked()
        now = receive.statistics()
        nursery.cancel_scope.cancel()
    return sorted(seen), now


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.lists(st.sampled_from(OPERATIONS), max_size=20))
def test_any_script_ends_as_with_a_memory_channel_and_loses_nothing(size: int, script: list[str]) -> None:
    expected, theirs = trio.run(play, trio.open_memory_channel[int](size), script)
    seen, ours = trio.run(play, open_mailbox(size), script)
    assert seen == expected
    for field in ("current_buffer_used", "open_send_channels", "tasks_waiting_send", "tasks_waiting_receive"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert ours.accepted == ours.handled + ours.returned + ours.current_buffer_used
    assert (ours.expired, ours.dropped, ours.queued) == (0, 0, ours.current_buffer_used)
    assert ours.sent + ours.tasks_waiting_send == sum(operation.startswith("send") for operation in script)
