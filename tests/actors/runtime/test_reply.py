from dataclasses import dataclass
from typing import Any

import msgspec
import outcome
import pytest
import trio
from trio.lowlevel import Task
from trio.testing import wait_all_tasks_blocked

from actors.runtime.reply import NOBODY, Replies, Reply, attach, detach, is_expired, reply_of


class Asked:
    """Who is asked, in these tests."""

    def __init__(self) -> None:
        self.asks: dict[Reply[Any], None] = {}
        self.late = 0
        self.given_up = 0
        self.waiting: set[Task] = set()  # for room

    def ask_given_up(self) -> None:
        self.given_up += 1

    def ask_late(self) -> None:
        self.late += 1

    def ask_timeout(self, within: float) -> trio.TooSlowError:
        return trio.TooSlowError(str(within))

    def withdraw(self, task: Task, error: Exception) -> bool:
        if task not in self.waiting:
            return False
        trio.lowlevel.reschedule(task, outcome.Error(error))
        return True


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


def asked() -> tuple[Reply[int], Asked]:
    owner = Asked()
    return attach(Plain(1), owner), owner


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_class_can_be_a_request(kind: type[Plain]) -> None:
    message = kind(1)
    assert message.reply is NOBODY
    slot = attach(message, Asked())
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
    slot, owner = asked()
    assert slot.send(1) is True
    assert slot.send(2) is False
    assert slot.fail(ValueError()) is False
    slot.give_up()
    assert await slot.wait() == 1
    assert (len(owner.asks), owner.late, slot.settled, slot.abandoned) == (0, 0, True, False)


async def test_a_failed_slot_raises_in_the_asker() -> None:
    slot, _ = asked()
    error = ValueError("x")
    assert slot.fail(error) is True
    with pytest.raises(ValueError, match=r"^x$") as caught:
        await slot.wait()
    assert caught.value is error


async def test_a_cancelled_belongs_to_its_scope_and_never_to_an_asker() -> None:
    slot, _ = asked()
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
    slot, _ = asked()
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
    slot, owner = asked()
    with trio.move_on_after(0):
        await slot.wait()
    assert slot.abandoned
    assert owner.asks == {}
    assert owner.given_up == 1
    assert [slot.send(1), slot.send(2), slot.fail(ValueError())] == [False, False, False]
    slot.end(ValueError())
    assert owner.late == 1
    assert not slot.settled


def test_one_object_is_in_one_open_ask() -> None:
    message = Plain(1)
    first = attach(message, Asked())
    with pytest.raises(
        RuntimeError,
        match=r"^this Plain was asked before and is not answered; make a new Plain for each ask$",
    ):
        attach(message, Asked())
    first.send(1)
    second = attach(message, Asked())
    assert second is not first
    detach(message)
    assert message.reply is NOBODY


async def test_a_slot_of_its_own_joins_two_tasks_that_are_no_actors_r26() -> None:
    reply: Reply[str] = Reply()
    got: list[str] = []

    async def wait() -> None:
        got.append(await reply.wait())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert reply.send("answer")
    assert (got, reply.settled, reply.send("again")) == (["answer"], True, False)


async def test_a_slot_of_its_own_shows_that_nobody_waits_any_more() -> None:
    reply: Reply[str] = Reply()
    with trio.move_on_after(0):
        await reply.wait()
    assert (reply.abandoned, reply.send("late"), reply.settled) == (True, False, False)


async def test_a_deadline_wakes_the_asker_and_a_settled_slot_has_none() -> None:
    slot, owner = asked()
    slot.within = 2.5
    slot.due()  # nobody waits yet
    assert slot.active

    async def wait() -> None:
        with pytest.raises(trio.TooSlowError, match=r"^2\.5$"):
            await slot.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        slot.due()
    assert (slot.active, slot.abandoned, owner.asks) == (False, True, {})
    slot.due()


async def test_a_deadline_finds_an_asker_that_waits_for_room() -> None:
    slot, owner = asked()
    slot.within = 1.0
    task = trio.lowlevel.current_task()
    slot.sending(task)
    owner.waiting.add(task)

    async def later() -> None:
        slot.due()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(later)
        with pytest.raises(trio.TooSlowError, match=r"^1\.0$"):
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)
    assert slot.abandoned


async def test_a_deadline_between_getting_room_and_waiting_for_the_answer_is_not_lost() -> None:
    slot, _ = asked()
    slot.within = 1.0
    slot.sending(trio.lowlevel.current_task())
    slot.due()  # it has its place in the mailbox, and has not run since
    with pytest.raises(trio.TooSlowError, match=r"^1\.0$"):
        await slot.wait()
    assert (slot.abandoned, slot.send(1)) == (True, False)


def test_a_request_is_expired_when_its_asker_has_gone_unless_its_class_says_otherwise() -> None:
    class Anyway(Replies[int]):
        handle_abandoned = True

    plain, anyway, told = Plain(1), Anyway(), Plain(2)
    for request in (plain, anyway):
        slot = attach(request, Asked())
        assert not is_expired(request)
        slot.give_up()
    assert [is_expired(message) for message in (plain, anyway, told, "text")] == [True, False, False, False]


def test_the_typing_hook_is_never_called() -> None:
    with pytest.raises(TypeError, match=r"^asked_as\(\) exists for type checkers only$"):
        Plain(1).asked_as()
