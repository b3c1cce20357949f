import math
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import (
    ActorGone,
    AskCycle,
    AskTimeout,
    Ctx,
    DeadLetter,
    Down,
    DownKind,
    Lost,
    MailboxFull,
    MessageDropped,
    Ref,
    Replies,
    Reply,
    System,
    open_system,
)
from actors.testing import seeds


@dataclass
class Add(Replies[int]):
    n: int


@dataclass
class Hold(Replies[str]):
    """Kept, and answered when the next `Release` comes."""


@dataclass
class Release:
    answer: str


@dataclass
class Sleep:
    seconds: float


@dataclass
class Boom:
    pass


Message = Add | Hold | Release | Sleep | Boom


async def worker(ctx: Ctx[Message], log: list[object]) -> None:
    total = 0
    held: list[Reply[str]] = []
    async for message in ctx:
        log.append(message)
        match message:
            case Add(n):
                total += n
                message.reply.send(total)
            case Hold():
                held.append(message.reply)
            case Release(answer):
                log.append([reply.send(answer) for reply in held])
                held.clear()
            case Sleep(seconds):
                await trio.sleep(seconds)
            case Boom():
                raise ValueError("boom")


@asynccontextmanager
async def running(mailbox_size: int = 64) -> AsyncGenerator[tuple[System, Ref[Message], list[Any]], None]:
    log: list[Any] = []
    async with open_system() as system:
        yield system, await system.spawn(worker, log, name="w", mailbox_size=mailbox_size), log


async def ends_with(ref: Ref[Message], message: Add | Hold, results: list[object]) -> None:
    try:
        results.append(await ref.ask(message))
    except ActorGone as gone:
        results.append(gone)


async def test_an_ask_gets_its_answer() -> None:
    async with running() as (_, ref, _):
        assert await ref.ask(Add(2)) == 2
        assert ref.tell(Add(3))  # told: its reply goes nowhere
        assert await ref.ask(Add(0)) == 5


async def test_a_tell_returns_false_when_full_or_gone_and_is_counted() -> None:
    async with running(mailbox_size=1) as (system, ref, log):
        assert ref.tell(Sleep(1))
        assert [ref.tell(Add(1)), ref.tell(Add(2))] == [True, False]
        ref.stop()
        assert ref.tell(Add(3)) is False
        await ref.join()
        assert ref.tell(Add(4)) is False
        now = ref.statistics()
        assert (now.sent, now.accepted, now.rejected, now.handled, now.returned) == (5, 2, 3, 1, 1)
        assert (system.statistics().rejected, system.statistics().returned) == (3, 1)
        assert log == [Sleep(1)]  # handed to the waiting body before the stop


async def test_send_waits_for_room_in_order(autojump_clock: MockClock) -> None:
    async with running(mailbox_size=1) as (_, ref, log):
        ref.tell(Sleep(1))
        for n in range(5):
            await ref.send(Add(n))
        assert trio.current_time() >= 1
        ref.drain()
        await ref.join()
        assert [message.n for message in log[1:]] == [0, 1, 2, 3, 4]


async def test_send_to_an_actor_that_has_ended_or_ends_meanwhile_fails() -> None:
    async with running(mailbox_size=0) as (system, ref, _):
        ref.tell(Sleep(1))

        async def send() -> None:
            with pytest.raises(ActorGone, match=r"^actor 'w' is gone: closed by user$"):
                await ref.send(Add(1))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await wait_all_tasks_blocked()
            ref.stop("closed by user")
        await send()
        assert system.statistics().rejected == 2


async def test_asks_wait_for_room_too(autojump_clock: MockClock) -> None:
    async with running(mailbox_size=1) as (_, ref, _):
        results: list[object] = []
        ref.tell(Sleep(1))
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ends_with, ref, Add(1), results)
        assert sorted(map(str, results)) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("moment", ["before", "queued", "waiting for room", "handled", "kept", "answered"])
@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_each_ask_of_an_actor_that_dies_ends_at_once_e07(
    moment: str, how: str, autojump_clock: MockClock
) -> None:
    results: list[object] = []
    async with running(mailbox_size=50) as (_, ref, _):

        async def kill() -> None:
            if how == "stop":
                ref.stop("killed")
            await ref.join()

        end = Boom() if how == "crash" else Sleep(5)
        asks: list[Add | Hold] = []
        async with trio.open_nursery() as nursery:
            if moment == "before":
                ref.tell(end)
                await kill()
                asks = [Add(0)]
            elif moment == "queued":
                ref.tell(Sleep(1))
                await wait_all_tasks_blocked()
                ref.tell(end)
                asks = [Add(0) for _ in range(49)]
            elif moment == "waiting for room":
                ref.tell(Sleep(1))
                await wait_all_tasks_blocked()
                ref.tell(end)
                asks = [Add(0) for _ in range(60)]
            elif moment in ("handled", "kept"):
                asks = [Hold() for _ in range(3)]
            else:
                asks = [Add(0)]
            for message in asks:
                nursery.start_soon(ends_with, ref, message, results)
            await wait_all_tasks_blocked()
            ref.tell(end)
            await kill()
        before = trio.current_time()
        assert len(results) == len(asks)
        assert ref._actor.asks == {}
        if moment == "answered":
            assert results == [0]
            return
        reason, cause = ("killed", type(None)) if how == "stop" else ("crashed", ValueError)
        for gone in results:
            assert isinstance(gone, ActorGone)
            assert (gone.name, gone.reason, type(gone.cause)) == ("w", reason, cause)
        assert trio.current_time() == before


async def test_an_ask_that_was_passed_on_ends_with_the_actor_that_has_it() -> None:
    async def passing(ctx: Ctx[Add], to: Ref[Message]) -> None:
        async for message in ctx:
            to.tell(message)

    async with running() as (system, ref, _):
        first: Ref[Any] = await system.spawn(passing, ref)
        assert await first.ask(Add(7)) == 7
        ref.tell(Sleep(9))
        await wait_all_tasks_blocked()
        results: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends_with, first, Add(1), results)
            await wait_all_tasks_blocked()
            ref.stop("over")
        assert str(results[0]) == "actor 'w' is gone: over"


async def test_asks_that_time_out_leave_nothing_behind_e01(autojump_clock: MockClock) -> None:
    async with running() as (system, ref, log):

        async def ask() -> None:
            with pytest.raises(AskTimeout):
                await ref.ask(Hold(), within=0.001)

        for _ in range(20):
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(ask)
        assert len(ref._actor.asks) == 0
        assert ref._actor.asks == {}
        assert all(message.reply.abandoned for message in log)
        ref.tell(Release("late"))
        assert await ref.ask(Add(1)) == 1
        assert log[-2] == [False] * 2000
        assert system.statistics().late_replies == 2000


async def test_a_timeout_says_what_the_actor_is_busy_with(autojump_clock: MockClock) -> None:
    async with running() as (_, ref, _):
        ref.tell(Sleep(100))
        ref.tell(Add(1))
        with pytest.raises(
            AskTimeout, match=r"^actor 'w' did not answer within 1 s: handling Sleep, 2 queued$"
        ) as caught:
            await ref.ask(Add(2), within=1)
        assert (caught.value.name, caught.value.queued, caught.value.handling) == ("w", 2, "Sleep")
        assert trio.current_time() < 2


async def test_the_time_limit_covers_the_wait_for_room(autojump_clock: MockClock) -> None:
    async with running(mailbox_size=0) as (_, ref, log):
        ref.tell(Sleep(100))
        message = Add(2)
        with pytest.raises(AskTimeout):
            await ref.ask(message, within=1)
        assert trio.current_time() < 2
        ref.drain()
        with pytest.raises(ActorGone, match=r"^actor 'w' is gone: draining$"):
            await ref.ask(message)  # it was never accepted, so the object is free
        await ref.join()
        assert log == [Sleep(100)]


async def test_a_late_reply_is_dropped_and_the_next_ask_gets_its_own_e21(autojump_clock: MockClock) -> None:
    async with running() as (system, ref, _):
        with trio.move_on_after(0.01) as scope:
            await ref.ask(Hold())
        assert scope.cancelled_caught
        ref.tell(Release("first"))
        answers: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends_with, ref, Hold(), answers)
            await wait_all_tasks_blocked()
            ref.tell(Release("second"))
        assert answers == ["second"]
        assert system.statistics().late_replies == 1


async def test_two_open_asks_of_one_object_are_refused() -> None:
    async with running() as (_, ref, _):
        message = Hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends_with, ref, message, [])
            await wait_all_tasks_blocked()
            with pytest.raises(RuntimeError, match=r"^this Hold was asked before"):
                await ref.ask(message)
            ref.tell(Release("x"))
        assert ref.statistics().sent == 2


@pytest.mark.parametrize("error", [ValueError("no"), trio.ClosedResourceError("theirs")])
async def test_an_error_in_a_reply_reaches_the_asker_as_it_is(error: Exception) -> None:
    async def refuse(ctx: Ctx[Add]) -> None:
        async for message in ctx:
            message.reply.fail(error)

    async with open_system() as system:
        ref = await system.spawn(refuse)
        with pytest.raises(type(error)) as caught:
            await ref.ask(Add(1))
        assert caught.value is error
        assert ref.alive


async def test_messages_from_another_thread_arrive_in_order() -> None:
    async with running() as (_, ref, log):

        def tell() -> None:
            assert all(ref.tell_threadsafe(Add(n)) for n in range(50))

        await trio.to_thread.run_sync(tell)
        assert await ref.ask(Add(0)) == sum(range(50))
        assert [message.n for message in log[:50]] == list(range(50))


def test_a_thread_that_outlives_the_loop_is_told_false() -> None:
    async def main() -> Ref[Message]:
        async with running() as (_, ref, _):
            return ref

    ref = trio.run(main)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(ref.tell_threadsafe(Add(1))))
    thread.start()
    thread.join()
    assert results == [False]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda ref: ref.stop("tab closed"), ("w", "tab closed", None, DownKind.STOPPED, 0)),
        (lambda ref: ref.stop(), ("w", "stopped", None, DownKind.STOPPED, 0)),
        (lambda ref: ref.drain(), ("w", "drained", None, DownKind.DRAINED, 0)),
    ],
)
async def test_join_says_how_it_ended_to_everybody_and_at_any_time(
    end: Callable[[Ref[Message]], None], expected: tuple[Any, ...]
) -> None:
    async with running() as (_, ref, _):
        downs: list[Down] = []

        async def join() -> None:
            downs.append(await ref.join())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join)
            nursery.start_soon(join)
            await wait_all_tasks_blocked()
            assert ref.alive
            end(ref)
            end(ref)
        assert not ref.alive
        assert [*downs, await ref.join()] == [Down(ref, *expected)] * 3


async def test_a_ref_says_who_and_in_which_state() -> None:
    async with running() as (_, ref, _):
        assert repr(ref) == "<Ref 'w' running>"
        assert ref.started_with is None
        ref.stop()
        assert repr(ref) == "<Ref 'w' stopping>"
        await ref.join()
        assert repr(ref) == "<Ref 'w' ended>"


async def test_an_asker_that_is_cancelled_while_it_waits_for_room_leaves_nothing() -> None:
    async with running(mailbox_size=0) as (_, ref, _):
        ref.tell(Sleep(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends_with, ref, Add(1), [])
            await wait_all_tasks_blocked()
            assert len(ref._actor.asks) == 1
            nursery.cancel_scope.cancel()
        assert len(ref._actor.asks) == 0
        assert ref.statistics().tasks_waiting_send == 0


# Deadlines of asks.


@pytest.mark.parametrize("within", [0, -1, 0.5])
async def test_an_ask_ends_at_its_deadline_and_leaves_nothing_on_the_wheel(
    within: float, autojump_clock: MockClock
) -> None:
    async with running() as (system, ref, _):
        with pytest.raises(AskTimeout):
            await ref.ask(Hold(), within=within)
        assert trio.current_time() == max(within, 0)
        assert (len(ref._actor.asks), len(system.wheel)) == (0, 0)
        assert await ref.ask(Add(1), within=5) == 1
        assert len(system.wheel) == 0  # an answer takes the deadline with it
        assert trio.current_time() == max(within, 0)
        assert await ref.ask(Add(1), within=math.inf) == 2


@seeds(30)
async def test_an_answer_in_the_instant_of_the_deadline_is_the_answer_or_late() -> None:
    """Which one is a matter of order; both are told, and never a third."""

    async def slow(ctx: Ctx[Add]) -> None:
        async for message in ctx:
            await trio.sleep(1)
            sent.append(message.reply.send(message.n))

    sent: list[bool] = []
    async with open_system() as system:
        ref = await system.spawn(slow)
        answers: list[int] = []
        for n in range(5):
            try:
                answers.append(await ref.ask(Add(n), within=1))
            except AskTimeout:
                answers.append(-1)
            await trio.sleep(1)
        assert [answer >= 0 for answer in answers] == sent
        assert all(answer in (n, -1) for n, answer in enumerate(answers))
        assert system.statistics().late_replies == answers.count(-1)
        assert ref.for_runtime().asks == {}


@seeds(30)
async def test_an_ask_that_gets_its_place_in_the_instant_of_its_deadline_is_not_handled() -> None:
    seen: list[int] = []

    async def slow(ctx: Ctx[Add]) -> None:
        async for message in ctx:
            seen.append(message.n)
            await trio.sleep(1)

    async with open_system() as system:
        ref = await system.spawn(slow, mailbox_size=1)
        await wait_all_tasks_blocked()
        ref.tell(Add(1))
        ref.tell(Add(2))
        message = Add(3)
        with pytest.raises(AskTimeout, match=r"^actor '\S+' did not answer within 1 s: handling Add, [01] queued$"):
            await ref.ask(message, within=1)
        assert trio.current_time() == 1
        await trio.sleep(10)
        now = ref.statistics()
        assert (seen, now.handled) == ([1, 2], 2)
        assert (now.rejected + now.expired, now.sent, now.tasks_waiting_send) == (1, 3, 0)
        assert ref.for_runtime().asks == {}
        assert len(system.wheel) == 0


async def test_a_place_that_was_given_before_the_deadline_is_noticed_ends_the_ask_in_time(
    mock_clock: MockClock,
) -> None:
    """The asker has its place and has not run since, when its time runs out."""
    results: list[str] = []
    async with running(mailbox_size=1) as (_, ref, log):
        ref.tell(Sleep(5))
        await wait_all_tasks_blocked()
        ref.tell(Add(1))

        async def ask() -> None:
            with pytest.raises(AskTimeout) as caught:
                await ref.ask(Add(2), within=1)
            results.append(str(caught.value))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            actor = ref.for_runtime()
            assert actor.mailbox.take() == Add(1)  # the asker moves up
            (slot,) = actor.asks
            slot.due()
        assert results == ["actor 'w' did not answer within 1 s: handling Sleep, 1 queued"]
        mock_clock.jump(5)
        await wait_all_tasks_blocked()
        assert log == [Sleep(5)]
        assert ref.statistics().expired == 1


async def test_an_answer_that_comes_before_the_asker_noticed_its_place_is_the_answer() -> None:
    results: list[object] = []
    async with running(mailbox_size=1) as (_, ref, _):
        ref.tell(Sleep(5))
        await wait_all_tasks_blocked()
        ref.tell(Add(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends_with, ref, Add(2), results)
            await wait_all_tasks_blocked()
            mailbox = ref.for_runtime().mailbox
            mailbox.take()
            request = mailbox.take()
            assert isinstance(request, Add)
            assert request.reply.send(42)
        assert results == [42]
        ref.stop()


# Requests that nobody waits for.


@dataclass
class Insist(Replies[int]):
    handle_abandoned = True


async def test_asks_whose_asker_has_gone_are_skipped_and_counted_r2(autojump_clock: MockClock) -> None:
    async with running() as (system, ref, log):
        ref.tell(Sleep(5))
        await wait_all_tasks_blocked()
        for n in range(3):
            with pytest.raises(AskTimeout):
                await ref.ask(Add(n), within=1)
        ref.tell(Add(10))
        assert await ref.ask(Add(100)) == 110
        assert log == [Sleep(5), Add(10), Add(100)]
        now = ref.statistics()
        assert (now.expired, now.handled, now.accepted) == (3, 3, 6)
        letters = system.dead_letters.last
        assert [(letter.message, letter.how) for letter in letters] == [(Add(n), Lost.EXPIRED) for n in range(3)]
        assert letters[0].reason == "its asker has gone"


async def test_a_request_that_says_so_is_handled_without_its_asker_r2(autojump_clock: MockClock) -> None:
    answered: list[bool] = []

    async def slow(ctx: Ctx[Insist]) -> None:
        async for message in ctx:
            await trio.sleep(2)
            answered.append(message.reply.send(1))

    async with open_system() as system:
        ref = await system.spawn(slow)
        for _ in range(2):
            with pytest.raises(AskTimeout):
                await ref.ask(Insist(), within=0.5)
        await trio.sleep(10)
        assert answered == [False, False]
        assert (ref.statistics().expired, system.statistics().late_replies) == (0, 2)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]])
async def test_queued_and_waiting_asks_may_go_in_any_order_and_the_others_are_answered_r22(
    order: list[int], autojump_clock: MockClock
) -> None:
    async with running(mailbox_size=2) as (_, ref, _):
        ref.tell(Sleep(10))
        await wait_all_tasks_blocked()
        results: dict[int, int] = {}
        scopes = [trio.CancelScope() for _ in range(8)]

        async def ask(number: int) -> None:
            with scopes[number]:
                results[number] = await ref.ask(Add(1))

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(ask, number)
                await wait_all_tasks_blocked()
            for number in order:
                scopes[number].cancel()
                await wait_all_tasks_blocked()
        assert results == {4: 1, 5: 2, 6: 3, 7: 4}
        now = ref.statistics()
        assert (now.handled, now.expired + now.rejected) == (5, 4)


# Sends.


@pytest.mark.parametrize("actors", [1, 3])
async def test_every_32nd_send_lets_others_run_whoever_it_goes_to(actors: int) -> None:
    steps: list[int] = []
    sent: list[int] = []

    class Steps(trio.abc.Instrument):
        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            if task is sender:
                steps.append(len(sent))

    async def idle(ctx: Ctx[int]) -> None:
        ctx.ready()
        await trio.sleep_forever()

    sender = trio.lowlevel.current_task()
    async with open_system() as system:
        refs = [await system.spawn(idle, mailbox_size=1000) for _ in range(actors)]
        instrument = Steps()
        trio.lowlevel.add_instrument(instrument)
        for n in range(320):
            await refs[n % actors].send(n)
            sent.append(n)
        trio.lowlevel.remove_instrument(instrument)
    assert steps == [32 * round_ + 31 for round_ in range(10)]


async def test_a_cancel_is_seen_at_the_next_send_and_that_message_is_not_sent() -> None:
    async with running() as (_, ref, log):
        with trio.CancelScope() as scope:
            for n in range(50):
                if n == 5:
                    scope.cancel()
                await ref.send(Add(n))
        assert scope.cancelled_caught
        with trio.CancelScope() as scope:
            scope.cancel()
            await ref.ask(Add(99))
        assert scope.cancelled_caught
        assert ref.statistics().sent == 5
        await wait_all_tasks_blocked()
        assert log == [Add(n) for n in range(5)]


async def test_a_send_that_is_cancelled_while_it_waits_leaves_no_wait(autojump_clock: MockClock) -> None:
    async def sends(ctx: Ctx[str], to: Ref[Message]) -> None:
        async for _ in ctx:
            with trio.move_on_after(1):
                await to.send(Add(1))

    async with running(mailbox_size=0) as (system, ref, _):
        ref.tell(Sleep(100))
        other = await system.spawn(sends, ref)
        other.tell("go")
        await trio.sleep(0.5)
        assert "waits for w" in str(system.tree())
        await trio.sleep(1)
        assert "waits for w" not in str(system.tree())
        assert (ref.statistics().rejected, ref.statistics().tasks_waiting_send) == (1, 0)


# Refusals.


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda _: None, "its mailbox is full"),
        (lambda ref: ref.drain(), "draining"),
        (lambda ref: ref.stop("closed"), "closed"),
    ],
)
async def test_a_refused_tell_is_a_dead_letter_that_says_why(
    end: Callable[[Ref[Message]], None], reason: str, autojump_clock: MockClock
) -> None:
    async with running(mailbox_size=0) as (system, ref, _):
        ref.tell(Sleep(1))
        await wait_all_tasks_blocked()
        end(ref)
        assert not ref.tell(Add(7))
        assert list(system.dead_letters.last) == [DeadLetter("w", Add(7), Lost.REJECTED, reason)]
        ref.drain()
        down = await ref.join()
        assert not ref.tell(Add(8))
        assert system.dead_letters.last[1] == DeadLetter("w", Add(8), Lost.REJECTED, down.reason)
        assert system.statistics().rejected == 2


async def test_a_tell_from_a_thread_that_is_refused_is_a_dead_letter_too() -> None:
    async with running() as (system, ref, _):
        ref.stop("over")
        await ref.join()
        assert await trio.to_thread.run_sync(ref.tell_threadsafe, Add(1))  # which says nothing about room
        await wait_all_tasks_blocked()
        assert [letter.reason for letter in system.dead_letters.last] == ["over"]


async def test_a_mailbox_that_rejects_says_so_to_sends_and_asks_and_the_object_stays_free(
    autojump_clock: MockClock,
) -> None:
    async with open_system() as system:
        ref = await system.spawn(worker, [], name="w", mailbox_size=1, overflow="reject")
        ref.tell(Sleep(1))
        await wait_all_tasks_blocked()
        await ref.send(Add(1))
        message = Add(2)
        for attempt in (lambda: ref.send(message), lambda: ref.ask(message)):
            with pytest.raises(MailboxFull) as caught:
                await attempt()
            assert caught.value.name == "w"
            assert caught.value.__cause__ is None
        assert ref.for_runtime().asks == {}
        await trio.sleep(2)
        assert await ref.ask(message) == 3


async def test_an_ask_that_gives_way_to_a_newer_message_ends_at_once(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        ref = await system.spawn(worker, [], name="w", mailbox_size=1, overflow="drop_oldest")
        ref.tell(Sleep(1))
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(MessageDropped, match=r"^actor 'w' did not see the request"):
                    await ref.ask(Add(1))
                assert trio.current_time() == 0

            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            ref.tell(Add(2))


async def test_who_waits_for_room_of_a_crashing_actor_hears_of_the_crash(autojump_clock: MockClock) -> None:
    causes: list[object] = []
    async with running(mailbox_size=1) as (_, ref, _):
        ref.tell(Sleep(1))
        await wait_all_tasks_blocked()
        ref.tell(Boom())

        async def send() -> None:
            with pytest.raises(ActorGone, match=r"^actor 'w' is gone: crashed$") as caught:
                await ref.send(Add(1))
            causes.append(caught.value.__cause__)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.send, Add(0))  # gets the place of the message that is the end of the actor
            await wait_all_tasks_blocked()
            nursery.start_soon(send)
        await send()
        assert ref.statistics().returned == 1
    assert [type(cause) for cause in causes] == [ValueError] * 2


async def test_a_body_that_asks_waits_for_the_other_until_it_is_answered_and_not_in_a_circle(
    autojump_clock: MockClock,
) -> None:
    errors: list[str] = []

    async def front(ctx: Ctx[Add], to: Ref[Message]) -> None:
        async for message in ctx:
            with pytest.raises(AskCycle) as caught:
                await ctx.self.ask(Add(0))
            errors.append(str(caught.value))
            message.reply.send(await to.ask(Add(message.n)))

    async with running() as (system, ref, _):
        asking = await system.spawn(front, ref, name="front")
        ref.tell(Sleep(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asking.ask, Add(3))
            await trio.sleep(0.5)
            assert asking.for_runtime().waits_for is ref.for_runtime()
            assert "waits for w" in str(system.tree())
        assert asking.for_runtime().waits_for is None
        assert errors == ["ask cycle: front asks front"]
        assert (asking.for_runtime().asks, asking.statistics().sent) == ({}, 1)
