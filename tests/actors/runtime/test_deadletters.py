import gc
import weakref
from collections import Counter
from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from actors.runtime import Ctx, DownKind, Replies, open_system
from actors.runtime.deadletters import DeadLetter, DeadLetters
from actors.runtime.mailbox import Lost


async def hang(ctx: Ctx[object]) -> None:
    async for _ in ctx:
        await trio.sleep_forever()


def letter(number: int, how: Lost = Lost.DROPPED) -> DeadLetter:
    return DeadLetter(f"a{number}", number, how, "why")


def add(letters: DeadLetters, one: DeadLetter) -> None:
    letters.add(one.name, one.message, one.how, one.reason)


def test_there_are_none_at_first() -> None:
    letters = DeadLetters()
    assert (letters.count, letters.last, repr(letters)) == (0, (), "<DeadLetters 0>")
    assert letters.counts == {Lost.REJECTED: 0, Lost.EXPIRED: 0, Lost.DROPPED: 0, Lost.RETURNED: 0}


def test_the_newest_are_kept_and_all_are_counted() -> None:
    letters = DeadLetters()
    for number in range(250):
        add(letters, letter(number))
    assert letters.last == tuple(letter(number) for number in range(150, 250))
    assert (letters.count, repr(letters)) == (250, "<DeadLetters 250>")


def test_the_counts_are_a_copy() -> None:
    letters = DeadLetters()
    letters.counts[Lost.DROPPED] = 7
    assert letters.count == 0


def test_none_may_be_kept() -> None:
    letters = DeadLetters(keep=0)
    add(letters, letter(1))
    assert (letters.last, letters.count) == ((), 1)
    with pytest.raises(ValueError, match=r"^keep must be 0 or more, not -1$"):
        DeadLetters(keep=-1)


def test_a_message_lives_no_longer_than_its_letter_is_kept() -> None:
    class Big:
        pass

    letters = DeadLetters(keep=2)
    big = Big()
    seen = weakref.ref(big)
    letters.add("a", big, Lost.REJECTED, "why")
    del big
    add(letters, letter(1))
    gc.collect()
    assert seen() is not None
    add(letters, letter(2))
    gc.collect()
    assert seen() is None


def test_subscribers_are_told_in_the_order_of_subscribing_until_they_leave() -> None:
    letters = DeadLetters()
    told: list[tuple[str, DeadLetter]] = []
    add(letters, letter(0))
    leave_a = letters.subscribe(lambda one: told.append(("a", one)))
    leave_b = letters.subscribe(lambda one: told.append(("b", one)))
    add(letters, letter(1))
    leave_a()
    leave_a()
    add(letters, letter(2))
    leave_b()
    add(letters, letter(3))
    assert told == [("a", letter(1)), ("b", letter(1)), ("b", letter(2))]
    assert letters.count == 4


def test_one_function_may_subscribe_twice_and_leave_once() -> None:
    letters = DeadLetters()
    told: list[DeadLetter] = []
    letters.subscribe(told.append)
    leave = letters.subscribe(told.append)
    add(letters, letter(1))
    leave()
    add(letters, letter(2))
    assert told == [letter(1), letter(1), letter(2)]


def test_who_leaves_while_a_letter_is_told_is_not_called_any_more() -> None:
    letters = DeadLetters()
    told: list[str] = []
    leave: list[Callable[[], None]] = []

    def see_the_other_off(_: DeadLetter) -> None:
        told.append("a")
        leave[0]()

    letters.subscribe(see_the_other_off)
    leave.append(letters.subscribe(lambda _: told.append("b")))
    add(letters, letter(1))
    assert told == ["a"]


def test_who_subscribes_while_a_letter_is_told_hears_of_the_next_one() -> None:
    letters = DeadLetters()
    told: list[DeadLetter] = []
    leave = letters.subscribe(lambda _: (letters.subscribe(told.append), leave()))
    add(letters, letter(1))
    add(letters, letter(2))
    assert told == [letter(2)]


def test_what_a_subscriber_raises_is_logged_once_and_reaches_nobody(caplog: pytest.LogCaptureFixture) -> None:
    letters = DeadLetters()
    told: list[DeadLetter] = []

    def broken(_: DeadLetter) -> None:
        raise ValueError("mine")

    letters.subscribe(broken)
    letters.subscribe(told.append)
    for number in range(3):
        add(letters, letter(number))
    assert told == [letter(number) for number in range(3)]
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("actors.runtime", "ERROR", "a subscriber to dead letters raised; it is told of the next ones, unlogged")
    ]
    assert caplog.records[0].exc_info is not None
    assert isinstance(caplog.records[0].exc_info[1], ValueError)


def test_a_log_that_raises_reaches_nobody_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("disk full")

    letters = DeadLetters()
    told: list[DeadLetter] = []
    monkeypatch.setattr("actors.runtime.deadletters.logger.exception", broken)
    letters.subscribe(broken)
    letters.subscribe(told.append)
    add(letters, letter(1))
    assert told == [letter(1)]


def test_no_letter_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    letters = DeadLetters()
    letters.subscribe(lambda _: None)
    add(letters, letter(1))
    assert caplog.records == []


def test_a_letter_that_a_subscriber_causes_is_counted_and_kept_and_told_to_nobody() -> None:
    letters = DeadLetters()
    told: list[DeadLetter] = []

    def causes_one(one: DeadLetter) -> None:
        told.append(one)
        add(letters, letter(-len(told)))

    letters.subscribe(causes_one)
    letters.subscribe(told.append)
    add(letters, letter(1))
    assert told == [letter(1), letter(1)]
    assert letters.last == (letter(1), letter(-1))
    add(letters, letter(2))  # and telling goes on afterwards
    assert told[2:] == [letter(2), letter(2)]
    assert letters.count == 4


def test_telling_goes_on_after_a_subscriber_let_an_exit_through() -> None:
    letters = DeadLetters()
    told: list[DeadLetter] = []

    def leave(_: DeadLetter) -> None:
        raise SystemExit(3)

    end = letters.subscribe(leave)
    with pytest.raises(SystemExit):
        add(letters, letter(1))
    end()
    letters.subscribe(told.append)
    add(letters, letter(2))
    assert told == [letter(2)]


_hows = st.sampled_from(Lost)
_steps = st.lists(st.one_of(_hows, st.tuples(st.sampled_from(["in", "in and raise", "out"]), st.integers(0, 5))))


@given(st.integers(0, 8), _steps)
def test_any_order_of_letters_and_subscribers_is_counted_kept_and_told(
    keep: int, steps: list[Lost | tuple[str, int]]
) -> None:
    letters = DeadLetters(keep=keep)
    every: list[DeadLetter] = []
    heard: dict[int, list[DeadLetter]] = {}
    should_hear: dict[int, list[DeadLetter]] = {}
    leave: dict[int, Callable[[], None]] = {}

    def subscriber(key: int, raises: bool) -> Callable[[DeadLetter], None]:
        def hear(one: DeadLetter) -> None:
            heard[key].append(one)
            if raises:
                raise ValueError(key)

        return hear

    for number, step in enumerate(steps):
        match step:
            case Lost():
                one = letter(number, step)
                add(letters, one)
                every.append(one)
                for key in leave:
                    should_hear[key].append(one)
            case ("out", key):
                leave.pop(key, lambda: None)()
            case (how, key):
                leave.pop(key, lambda: None)()
                heard.setdefault(key, [])
                should_hear.setdefault(key, [])
                leave[key] = letters.subscribe(subscriber(key, how == "in and raise"))
        assert letters.last == tuple(every[max(0, len(every) - keep) :])
        assert letters.count == len(every) == sum(letters.counts.values())
        assert {how: count for how, count in letters.counts.items() if count} == Counter(one.how for one in every)
        assert heard == should_hear


async def test_a_tell_that_finds_no_room_is_a_dead_letter_and_never_raises_r17() -> None:
    async with open_system() as system:
        ref = await system.spawn(hang, name="slow", mailbox_size=1)
        ref.tell("in hand")
        await wait_all_tasks_blocked()
        assert ref.tell("queued")
        told: list[DeadLetter] = []
        system.dead_letters.subscribe(told.append)
        assert not ref.tell("refused")
        assert [(one.name, one.message, one.how) for one in told] == [("slow", "refused", Lost.REJECTED)]
        assert system.dead_letters.last == tuple(told)
        assert told[0].reason != ""
        assert ref.tell_threadsafe("refused too")
        await wait_all_tasks_blocked()
        assert system.dead_letters.counts[Lost.REJECTED] == 2


async def test_a_tell_to_an_ended_actor_and_what_it_left_are_dead_letters_r17_r21() -> None:
    async with open_system() as system:
        ref = await system.spawn(hang, name="gone")
        ref.tell("in hand")
        await wait_all_tasks_blocked()
        ref.tell("left")
        ref.stop("enough of it")
        assert (await ref.join()).kind is DownKind.STOPPED
        assert not ref.tell("late")
        kinds = [(one.name, one.message, one.how) for one in system.dead_letters.last]
        assert kinds == [("gone", "left", Lost.RETURNED), ("gone", "late", Lost.REJECTED)]
        assert all("enough of it" in one.reason for one in system.dead_letters.last)


async def test_what_is_dropped_and_what_has_lost_its_asker_are_dead_letters_r2_r18() -> None:
    class Get(Replies[int]):
        pass

    done = trio.Event()

    async def busy(ctx: Ctx[object]) -> None:
        async for _ in ctx:
            await done.wait()

    async with open_system() as system, trio.open_nursery() as nursery:
        newest = await system.spawn(busy, name="newest", mailbox_size=1, overflow="drop_oldest")
        server = await system.spawn(busy, name="server")
        for ref in (newest, server):
            ref.tell("in hand")
        await wait_all_tasks_blocked()
        assert newest.tell("old")
        assert newest.tell("new")
        request = Get()
        nursery.start_soon(server.ask, request)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            done.set()
            await wait_all_tasks_blocked()
        kinds = [(one.name, one.message, one.how) for one in system.dead_letters.last]
        assert kinds == [("newest", "old", Lost.DROPPED), ("server", request, Lost.EXPIRED)]
        assert all(one.reason for one in system.dead_letters.last)


async def test_an_actor_may_subscribe_with_its_tell_and_its_end_makes_no_loop() -> None:
    got: list[DeadLetter] = []

    async def listener(ctx: Ctx[DeadLetter]) -> None:
        async for one in ctx:
            got.append(one)

    async with open_system() as system:
        ref = await system.spawn(listener, name="listener")
        slow = await system.spawn(hang, name="slow", mailbox_size=0)
        unsubscribe = system.dead_letters.subscribe(ref.tell)
        slow.tell("in hand")
        slow.tell("refused")
        await wait_all_tasks_blocked()
        assert [one.message for one in got] == ["refused"]
        ref.stop()
        await ref.join()
        slow.tell("refused again")
        # The listener refuses the letter, which makes one more, and no third.
        assert [(one.name, one.how) for one in system.dead_letters.last[1:]] == [
            ("slow", Lost.REJECTED),
            ("listener", Lost.REJECTED),
        ]
        unsubscribe()
        slow.tell("refused for good")
        assert system.dead_letters.count == 4
