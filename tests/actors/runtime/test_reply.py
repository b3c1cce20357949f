from dataclasses import dataclass

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime.reply import NOBODY, OpenAsks, Replies, Reply, attach, detach, reply_of


class Late:
    def __init__(self) -> None:
        self.count = 0

    def count_late_reply(self) -> None:
        self.count += 1


class Plain(Replies[int]):
    def __init__(self, n: int) -> None:
        self.n = n


@dataclass(frozen=True, slots=True)
class Frozen(Replies[int]):
    n: int


class Struct(Replies[int], msgspec.Struct):
    n: int


class FrozenStruct(Replies[int], msgspec.Struct, frozen=True):
    n: int


KINDS = [Plain, Frozen, Struct, FrozenStruct]


def asked() -> tuple[Reply[int], OpenAsks, Late]:
    late = Late()
    asks = OpenAsks(late)
    slot = attach(Plain(1), asks)
    asks.open(slot)
    return slot, asks, late


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_class_can_be_a_request(kind: type[Plain]) -> None:
    message = kind(1)
    assert message.reply is NOBODY
    slot = attach(message, OpenAsks(Late()))
    assert message.reply is slot
    assert reply_of(message) is slot
    assert message.n == 1


def test_a_message_that_is_no_request_has_no_reply() -> None:
    assert reply_of("text") is NOBODY


def test_the_reply_of_a_told_request_goes_nowhere() -> None:
    reply = Plain(1).reply
    assert reply.abandoned
    assert reply.send(1) is False
    assert reply.fail(ValueError()) is False
    reply.give_up()
    assert not reply.settled


async def test_a_slot_settles_once() -> None:
    slot, asks, late = asked()
    assert slot.send(1) is True
    assert slot.send(2) is False
    assert slot.fail(ValueError()) is False
    slot.give_up()
    assert await slot.wait() == 1
    assert (len(asks), late.count, slot.settled, slot.abandoned) == (0, 0, True, False)


async def test_a_failed_slot_raises_in_the_asker() -> None:
    slot, _, _ = asked()
    error = ValueError("x")
    assert slot.fail(error) is True
    with pytest.raises(ValueError, match=r"^x$") as caught:
        await slot.wait()
    assert caught.value is error


async def test_a_cancelled_belongs_to_its_scope_and_never_to_an_asker() -> None:
    slot, _, _ = asked()
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            with pytest.raises(TypeError, match=r"^a reply fails with an Exception, not with Cancelled$"):
                slot.fail(cancelled)  # type: ignore[arg-type]
            raise
    assert not slot.settled


async def test_an_answer_wakes_who_waits_even_if_it_is_cancelled_in_the_same_tick() -> None:
    slot, _, _ = asked()
    got: list[int] = []
    scope = trio.CancelScope()

    async def wait() -> None:
        with scope:
            got.append(await slot.wait())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert slot.send(5)
        scope.cancel()
    assert got == [5]


async def test_the_receiver_sees_that_the_asker_has_gone_and_a_late_answer_counts_once() -> None:
    slot, asks, late = asked()
    with trio.move_on_after(0):
        await slot.wait()
    assert slot.abandoned
    assert len(asks) == 0
    assert [slot.send(1), slot.send(2), slot.fail(ValueError())] == [False, False, False]
    slot.end(ValueError())
    assert late.count == 1
    assert not slot.settled


def test_one_object_is_in_one_open_ask() -> None:
    message = Plain(1)
    first = attach(message, OpenAsks(Late()))
    with pytest.raises(
        RuntimeError,
        match=r"^this Plain was asked before and is not answered; make a new Plain for each ask$",
    ):
        attach(message, OpenAsks(Late()))
    first.send(1)
    second = attach(message, OpenAsks(Late()))
    assert second is not first
    detach(message)
    assert message.reply is NOBODY


def test_the_table_of_open_asks_is_made_when_first_needed_and_goes_with_the_last() -> None:
    asks = OpenAsks(Late())
    assert (len(asks), list(asks), NOBODY in asks) == (0, [], False)
    one, two = attach(Plain(1), asks), attach(Plain(2), asks)
    asks.close(one)
    asks.open(one)
    asks.open(two)
    assert list(asks) == [one, two]
    assert two in asks
    asks.close(one)
    asks.close(two)
    assert asks._slots is None


def test_the_typing_hook_is_never_called() -> None:
    with pytest.raises(TypeError, match=r"^asked_as\(\) exists for type checkers only$"):
        Plain(1).asked_as()
