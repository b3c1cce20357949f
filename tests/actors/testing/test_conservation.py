import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime import ActorGone, Ctx, MailboxFull, Ref, Replies, System, observe, open_system
from actors.testing import check_conservation, conservation, conserving, run, seeds


class Get(Replies[int]):
    pass


async def idle(ctx: Ctx[Any]) -> None:
    async for message in ctx:
        if message == "crash":
            raise ValueError
        if message == "sleep":
            await trio.sleep(1)


def lose_one(ref: Ref[Any]) -> None:
    """Plant a leak: a message that was handled, and is in no book."""
    ref.for_runtime().mailbox.handled -= 1


async def with_a_leak(system: System) -> None:
    ref = await system.spawn(idle, name="bank")
    for _ in range(3):
        ref.tell("work")
    await wait_all_tasks_blocked()
    lose_one(ref)


BANK = "actor 'bank' of system 'system': accepted 3, but handled 2 + expired 0 + dropped 0 + returned 0 + queued 0 = 2"
ALL = (
    "all actors of system 'system' together: accepted 3, "
    "but handled 2 + expired 0 + dropped 0 + returned 0 + queued 0 = 2"
)


@contextmanager
def planted() -> Iterator[None]:
    """What a test plants is for it alone: whoever watches the test must not see it."""
    watch = conservation.Watch()
    try:
        yield
    finally:
        assert watch.end()


async def test_a_lost_message_is_found_while_its_actor_lives_and_afterwards() -> None:
    with planted():
        async with open_system() as system:
            check_conservation(system)
            await with_a_leak(system)
            with pytest.raises(AssertionError) as caught:
                check_conservation(system)
            assert str(caught.value).splitlines() == [BANK, ALL]
        with pytest.raises(AssertionError) as caught:
            check_conservation(system)
        assert str(caught.value) == ALL


async def test_an_actor_that_has_ended_is_named_by_a_block() -> None:
    with pytest.raises(AssertionError) as caught:
        with conserving():
            async with open_system() as system:
                await with_a_leak(system)
    assert str(caught.value).splitlines() == [BANK, ALL]


async def test_a_message_that_was_counted_twice_is_found() -> None:
    with planted():
        async with open_system() as system:
            ref = await system.spawn(idle, name="bank")
            ref.for_runtime().mailbox.returned += 2
            with pytest.raises(AssertionError, match=r"accepted 0, but .* returned 2 \+ queued 0 = 2"):
                check_conservation(system)


def test_an_attempt_that_is_in_no_book_is_found() -> None:
    class Books:
        name = "system"
        sent, rejected, accepted, handled, expired, dropped, returned, queued = 5, 1, 3, 3, 0, 0, 0, 0

        def actors(self) -> list[object]:
            return []

        def statistics(self) -> "Books":
            return self

    fake: Any = Books()
    with pytest.raises(AssertionError) as caught:
        check_conservation(fake)
    assert str(caught.value) == "all actors of system 'system' together: sent 5, but rejected 1 + accepted 3 = 4"


class Never:
    active = True

    def due(self) -> None: ...


def _lose_actor(system: System) -> None:
    system.count_started()


def _lose_supervisor(system: System) -> None:
    system.supervisors += 1


def _lose_name(system: System) -> None:
    system.registry.reserve("b")
    system.registry.reserve("a")


def _lose_timer(system: System) -> None:
    system.wheel.add(Never(), 10**9)


@pytest.mark.parametrize(
    ("lose", "what"),
    [
        (_lose_actor, "1 actors are left"),
        (_lose_supervisor, "1 supervisors are left"),
        (_lose_name, "the names 'a', 'b' are left"),
        (_lose_timer, "1 timers are left"),
    ],
)
async def test_what_is_left_when_a_system_has_closed_is_found(lose: Callable[[System], None], what: str) -> None:
    with pytest.raises(AssertionError) as caught:
        with conserving():
            async with open_system(name="main") as system:
                lose(system)
    assert str(caught.value) == f"system 'main' has closed, and {what}"


async def test_an_error_of_the_block_stays_and_has_the_problems_in_a_note() -> None:
    with pytest.raises(KeyError) as caught:
        with conserving():
            async with open_system() as system:
                await with_a_leak(system)
                raise KeyError("mine")
    assert caught.value.args == ("mine",)
    assert caught.value.__notes__ == [f"{BANK}\n{ALL}"]
    with pytest.raises(KeyError) as caught:
        with conserving():
            raise KeyError
    assert not hasattr(caught.value, "__notes__")


async def test_only_the_innermost_block_sees_a_system() -> None:
    with conserving():
        with pytest.raises(AssertionError):
            with conserving():
                async with open_system() as system:
                    await with_a_leak(system)
        async with open_system():
            pass


async def test_a_system_belongs_to_the_block_that_it_opened_in() -> None:
    with pytest.raises(AssertionError):
        with conserving():
            async with open_system() as before:
                with conserving():
                    await with_a_leak(before)
                    async with open_system(name="other"):
                        pass


async def test_after_a_block_nobody_listens_and_the_system_is_as_it_was() -> None:
    listeners = observe._listeners
    with conserving():
        async with open_system() as system:
            assert "actor_ended" in vars(system)
    assert "actor_ended" not in vars(system)
    assert observe._listeners == listeners


async def test_no_system_is_kept_alive() -> None:
    with conserving():
        async with open_system() as system:
            await system.spawn(idle)
        gone = weakref.ref(system)
        del system
        gc.collect()
        assert gone() is None


async def test_what_is_sent_to_actors_that_have_ended_is_in_the_books() -> None:
    with conserving():
        async with open_system() as system:
            ref = await system.spawn(idle)
        for _ in range(3):
            assert not ref.tell("late")
        check_conservation(system)
        assert system.statistics().rejected == 3


async def test_what_is_lost_after_a_system_has_closed_is_found() -> None:
    with pytest.raises(AssertionError, match=r"^all actors of system 'system' together: accepted 0, but handled -1 "):
        with conserving():
            async with open_system() as system:
                pass
            system._past.handled -= 1


@seeds(100)
async def test_the_books_are_right_whatever_becomes_of_a_message() -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent")
        refs: list[Ref[Any]] = [
            await sup.spawn(idle, name="waits", mailbox_size=2),
            await sup.spawn(idle, name="rejects", mailbox_size=2, overflow="reject"),
            await sup.spawn(idle, name="drops", mailbox_size=2, overflow="drop_oldest"),
        ]

        async def send(ref: Ref[Any], message: object) -> None:
            with trio.move_on_after(0.5):
                with suppress(ActorGone, MailboxFull):
                    await ref.send(message)

        async def ask(ref: Ref[Any]) -> None:
            with pytest.raises(Exception, match=r"gone|did not answer|full|dropped"):
                await ref.ask(Get(), within=0.3)

        async with trio.open_nursery() as nursery:
            for ref in refs:
                for message in ("sleep", "work", "crash", "sleep"):
                    nursery.start_soon(send, ref, message)
                nursery.start_soon(ask, ref)
                ref.tell("work")
            await trio.sleep(0.1)
            check_conservation(system)
            refs[1].drain()
            refs[2].stop()
            await trio.sleep(0.3)
            check_conservation(system)


def test_a_run_checks_what_it_opened() -> None:
    async def leak() -> None:
        async with open_system() as system:
            await with_a_leak(system)

    with pytest.raises(AssertionError) as caught:
        run(leak, seed=3)
    assert str(caught.value).splitlines() == [BANK, ALL]
    assert caught.value.__notes__ == ["under scheduler seed 3; to repeat: run(leak, seed=3) or ACTORS_SCHEDULER_SEED=3"]
