from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import ActorGone, AskCycle, Ctx, Ref, Replies, System, open_system, waits


@dataclass
class Wait:
    active: bool = True


@dataclass
class Body:
    """As much of an actor as the module sees."""

    name: str
    waits_for: waits.Waiter | None = None
    wait: waits.Wait | None = None
    receives_elsewhere: bool = False


def begin(waiter: Body, target: Body) -> None:
    waits.check(waiter, target)
    waits.begin(waiter, target, Wait())


def chain(names: str) -> list[Body]:
    """Make bodies of which each waits for the next."""
    bodies = [Body(name) for name in names]
    for waiter, target in pairwise(bodies):
        begin(waiter, target)
    return bodies


# The rule itself.


def test_a_wait_is_noted() -> None:
    a, b = Body("a"), Body("b")
    begin(a, b)
    assert (a.waits_for, b.waits_for) == (b, None)
    assert (waits.waited_for(a), waits.waited_for(b)) == (b, None)
    waits.end(a)
    assert (a.waits_for, a.wait, waits.waited_for(a)) == (None, None, None)


@pytest.mark.parametrize("names", ["a", "ab", "abc", "abcd"])
def test_a_wait_that_closes_a_cycle_is_refused_with_its_path_r9(names: str) -> None:
    bodies = chain(names)
    with pytest.raises(AskCycle) as caught:
        begin(bodies[-1], bodies[0])
    # From the one that would close it, round to itself.
    assert caught.value.path == (names[-1], *names)
    assert bodies[-1].waits_for is None  # the wait was not begun
    assert str(caught.value) == f"ask cycle: {' asks '.join(names[-1] + names)}"


@pytest.mark.parametrize("over", range(3))
def test_a_wait_that_is_over_though_its_task_has_not_run_since_is_in_no_cycle(over: int) -> None:
    bodies = chain("abcd")
    wait = bodies[over].wait
    assert isinstance(wait, Wait)
    wait.active = False
    assert waits.waited_for(bodies[over]) is None
    begin(bodies[3], bodies[0])
    assert waits.waited_for(bodies[3]) is bodies[0]


def test_a_long_chain_is_no_cycle() -> None:
    bodies = chain("abcdef")
    begin(Body("asker"), bodies[0])
    begin(Body("another"), bodies[3])
    assert bodies[-1].waits_for is None


def test_two_actors_of_one_name_are_two() -> None:
    first, second = Body("same"), Body("same")
    begin(first, second)
    end = Body("end")
    begin(second, end)
    with pytest.raises(AskCycle, match=r"^ask cycle: end asks same asks same asks end$"):
        begin(end, first)


@pytest.mark.parametrize("elsewhere", range(3))
def test_an_actor_that_receives_in_another_task_breaks_the_cycle(elsewhere: int) -> None:
    bodies = chain("abc")
    bodies[elsewhere].receives_elsewhere = True
    assert waits.waited_for(bodies[elsewhere]) is None
    begin(bodies[2], bodies[0])
    assert bodies[2].waits_for is bodies[0]


def test_an_actor_that_receives_in_another_task_may_ask_itself() -> None:
    a = Body("a", receives_elsewhere=True)
    begin(a, a)
    assert a.waits_for is a
    # The search of others ends there too.
    begin(Body("b"), a)


def test_a_cycle_that_others_are_in_is_not_searched_for_ever() -> None:
    a, b = chain("ab")
    a.receives_elsewhere = True
    begin(b, a)
    begin(Body("c"), b)


async def test_a_body_is_known_by_its_task_until_it_leaves() -> None:
    a = Body("a")
    assert trio.lowlevel.current_task() not in waits.bodies
    waits.leave()  # of a task that runs none: nothing to do
    waits.enter(a)
    assert waits.bodies[trio.lowlevel.current_task()] is a
    waits.leave()
    assert trio.lowlevel.current_task() not in waits.bodies


# The same with actors.


@dataclass(frozen=True)
class Route(Replies[str]):
    """Passed along the rest of its path: each asks the next one."""

    path: tuple[Ref["Route"], ...] = field(default=())


async def router(ctx: Ctx[Route]) -> None:
    async for message in ctx:
        if not message.path:
            message.reply.send(ctx.name)
            continue
        try:
            message.reply.send(await message.path[0].ask(Route(message.path[1:])))
        except AskCycle as cycle:
            message.reply.send(str(cycle))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Generator[None, None, None]:
    before = dict(waits.bodies)
    yield
    assert waits.bodies == before


@asynccontextmanager
async def routers(count: int) -> AsyncGenerator[tuple[System, list[Ref[Route]]], None]:
    async with open_system() as system:
        refs = [await system.spawn(router, name="abcd"[number]) for number in range(count)]
        yield system, refs
        assert [ref.for_runtime().waits_for for ref in refs] == [None] * count
        assert [len(ref.for_runtime().asks) for ref in refs] == [0] * count


@pytest.mark.parametrize("length", [1, 2, 3, 4])
async def test_an_ask_cycle_fails_at_once_and_names_the_path_r9(length: int, autojump_clock: MockClock) -> None:
    async with routers(length) as (_, refs):
        answer = await refs[0].ask(Route((*refs[1:], refs[0])))
        names = "abcd"[:length]
        assert answer == f"ask cycle: {' asks '.join(names[-1] + names)}"
        assert trio.current_time() == 0
        # All of them go on.
        assert [await ref.ask(Route()) for ref in refs] == list(names)


async def test_a_path_without_a_cycle_is_answered_and_may_be_asked_again() -> None:
    async with routers(4) as (_, refs):
        for _ in range(3):
            assert await refs[0].ask(Route((*refs[1:],))) == "d"
        assert await refs[3].ask(Route((refs[2], refs[1], refs[0]))) == "a"


async def test_a_cycle_through_two_systems_is_found_r9() -> None:
    async with open_system(name="one") as one, open_system(name="two") as two:
        left, right = await one.spawn(router, name="left"), await two.spawn(router, name="right")
        assert await left.ask(Route((right, left))) == "ask cycle: right asks left asks right"


async def test_a_request_that_closes_a_cycle_was_not_sent_and_may_be_asked_again() -> None:
    errors: list[str] = []

    async def body(ctx: Ctx[Route], other: Ref[Route]) -> None:
        request = Route()
        with pytest.raises(AskCycle) as caught:
            await ctx.self.ask(request)
        errors.append(str(caught.value))
        errors.append(await other.ask(request))

    async with routers(1) as (system, (other,)):
        ref = await system.spawn(body, other, name="self")
        await ref.join()
        assert errors == ["ask cycle: self asks self", "a"]
        assert ref.statistics().sent == 0


async def test_a_body_that_asks_one_who_waits_for_another_is_no_cycle(autojump_clock: MockClock) -> None:
    class Held(Replies[str]):
        pass

    async def hold(ctx: Ctx[Held]) -> None:
        async for message in ctx:
            await trio.sleep(5)
            message.reply.send("done")

    async def asks(ctx: Ctx[Held], to: Ref[Held]) -> None:
        async for message in ctx:
            message.reply.send(await to.ask(Held()))

    async with open_system() as system:
        last = await system.spawn(hold)
        middle = await system.spawn(asks, last)
        first = await system.spawn(asks, middle)
        second = await system.spawn(asks, middle)
        answers: list[str] = []

        async def ask(ref: Ref[Held]) -> None:
            answers.append(await ref.ask(Held()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, first)
            nursery.start_soon(ask, second)
        assert answers == ["done", "done"]


async def test_a_task_of_an_actor_may_ask_the_actor_and_whoever_waits_for_it(autojump_clock: MockClock) -> None:
    """Only the body's own task holds its messages up."""

    async def front(ctx: Ctx[Route | str], back: Ref[Route], answers: list[str]) -> None:
        async def beside() -> str:
            return await back.ask(Route((ctx.self,)))  # which asks this actor, while its body takes messages

        async for message in ctx:
            if isinstance(message, str):
                answers.append(message)
                ctx.self.drain()
            elif message.path:
                ctx.spawn(beside, result=str)
                message.reply.send("begun")
            else:
                message.reply.send(ctx.name)

    async with routers(1) as (system, (back,)):
        answers: list[str] = []
        ref = await system.spawn(front, back, answers, name="front")
        assert await ref.ask(Route((back,))) == "begun"
        await ref.join()
    assert answers == ["front"]


@pytest.mark.parametrize("first_in", ["loop", "receive"])
async def test_a_body_whose_messages_another_task_takes_may_be_asked_back(first_in: str) -> None:
    answers: list[str] = []

    async def split(ctx: Ctx[Route], back: Ref[Route]) -> None:
        async def serve() -> None:
            if first_in == "receive":
                (await ctx.receive()).reply.send("first")
            async for message in ctx:
                message.reply.send("from the other task")

        ctx.ready()  # so the first receive is not what starts it
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await wait_all_tasks_blocked()
            answers.append(await back.ask(Route((ctx.self,))))
            nursery.cancel_scope.cancel()

    async with routers(1) as (system, (back,)):
        ref = await system.spawn(split, back, name="split")
        down = await ref.join()
        assert down.error is None
    assert answers == ["first" if first_in == "receive" else "from the other task"]


async def test_a_body_that_receives_again_itself_is_in_cycles_again() -> None:
    answers: list[str] = []

    async def body(ctx: Ctx[Route], back: Ref[Route]) -> None:
        async def serve() -> None:
            async for message in ctx:
                message.reply.send("from the other task")
                return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
        async for message in ctx:
            message.reply.send("from the body")
            answers.append(await back.ask(Route((ctx.self,))))

    async with routers(1) as (system, (back,)):
        ref = await system.spawn(body, back, name="body")
        assert await ref.ask(Route()) == "from the other task"
        assert await ref.ask(Route()) == "from the body"
        ref.drain()
        await ref.join()
    assert answers == ["ask cycle: a asks body asks a"]


# A send waits too, when there is no room.


@dataclass
class Push:
    to: Ref["Push"] | None = None


async def pusher(ctx: Ctx[Push], errors: list[str]) -> None:
    async for message in ctx:
        if message.to is not None:
            try:
                await message.to.send(Push())
            except AskCycle as cycle:
                errors.append(str(cycle))


async def test_a_send_into_the_own_full_mailbox_is_a_cycle(autojump_clock: MockClock) -> None:
    errors: list[str] = []
    async with open_system() as system:
        ref = await system.spawn(pusher, errors, name="a", mailbox_size=1)
        ref.tell(Push(ref))
        await wait_all_tasks_blocked()
        assert errors == []  # there was room
        ref.tell(Push(ref))  # handed over, as it waits
        ref.tell(Push())
        ref.drain()
        await ref.join()
        assert errors == ["ask cycle: a asks a"]
        # What could not be sent was not begun.
        assert ref.statistics().sent == ref.statistics().handled == 4


async def test_two_that_send_into_each_others_full_mailbox_are_a_cycle(autojump_clock: MockClock) -> None:
    errors: list[str] = []
    async with open_system() as system:
        a = await system.spawn(pusher, errors, name="a", mailbox_size=1)
        b = await system.spawn(pusher, errors, name="b", mailbox_size=1)
        await wait_all_tasks_blocked()
        a.tell(Push(b))
        a.tell(Push())
        b.tell(Push(a))
        b.tell(Push())
        await wait_all_tasks_blocked()
        for ref in (a, b):
            ref.drain()
            await ref.join()
            assert ref.for_runtime().waits_for is None
    assert errors in (["ask cycle: a asks b asks a"], ["ask cycle: b asks a asks b"])


async def test_the_tree_names_whom_a_body_waits_for_and_only_while_it_does(autojump_clock: MockClock) -> None:
    class Get(Replies[int]):
        pass

    async def slow(ctx: Ctx[Get]) -> None:
        async for message in ctx:
            await trio.sleep(1)
            message.reply.send(1)

    async def asks(ctx: Ctx[str], to: Ref[Get]) -> None:
        async for how in ctx:
            if how == "ask":
                await to.ask(Get())
            elif how == "send":
                await to.send(Get())
            else:
                with pytest.raises((ActorGone, trio.TooSlowError)):
                    await to.ask(Get(), within=0.5)

    async with open_system() as system:
        store = await system.spawn(slow, name="store", mailbox_size=0)
        front = await system.spawn(asks, store, name="front")

        def waits_for() -> str | None:
            return next(node.waits_for for node in system.tree().children if node.name == "front")

        for how, ends_after_s in (("ask", 1.0), ("send", 1.0), ("time out", 0.5)):
            await wait_all_tasks_blocked()
            if how != "ask":
                store.tell(Get())  # it is busy for a second, and its mailbox holds nothing
            front.tell(how)
            await wait_all_tasks_blocked()
            assert waits_for() == "store"
            await trio.sleep(ends_after_s + 0.1)
            assert waits_for() is None
            await trio.sleep(10)


@pytest.mark.parametrize("end", ["stop", "asked one stops", "scope"])
async def test_however_a_wait_ends_nothing_is_left(end: str, autojump_clock: MockClock) -> None:
    class Get(Replies[int]):
        pass

    async def hang(ctx: Ctx[Get]) -> None:
        async for _ in ctx:
            await trio.sleep_forever()

    async def asks(ctx: Ctx[str], to: Ref[Get]) -> None:
        async for _ in ctx:
            with trio.move_on_after(1):
                await to.ask(Get())

    async with open_system() as system:
        store = await system.spawn(hang, name="store")
        front = await system.spawn(asks, store)
        front.tell("go")
        await wait_all_tasks_blocked()
        assert front.for_runtime().waits_for is store.for_runtime()
        if end == "stop":
            front.stop()
            await front.join()
        elif end == "scope":
            await trio.sleep(2)
        else:
            store.stop()
            await front.join()
        assert front.for_runtime().waits_for is None
        assert store.for_runtime().asks == {}
