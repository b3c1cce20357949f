import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import ActorGone, Ctx, Down, DownKind, NameTaken, NotAccepting, Replies, open_system
from actors.testing import Probe, open_probe, run, seeds


class Ping:
    def __repr__(self) -> str:
        return "Ping()"


class Pong:
    def __init__(self, n: int = 1) -> None:
        self.n = n

    def __repr__(self) -> str:
        return f"Pong({self.n})"


class Add(Replies[int]):
    pass


async def fails(call: Callable[[], Awaitable[object]]) -> str:
    with pytest.raises(AssertionError) as caught:
        await call()
    return str(caught.value)


async def test_messages_are_expected_one_by_one_in_their_order(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system)
        probe.ref.tell(Pong(1))
        probe.ref.tell(Pong(2))
        probe.ref.tell("text")
        assert (await probe.expect(Pong)).n == 1
        assert (await probe.expect(Pong)).n == 2
        assert await probe.expect(str) == "text"
        assert [repr(message) for message in probe.received] == ["Pong(1)", "Pong(2)", "'text'"]


async def test_a_base_or_object_takes_a_message_too(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system)
        probe.ref.tell(True)
        probe.ref.tell(None)
        assert await probe.expect(int) is True
        assert await probe.expect(object) is None
        probe.ref.tell(1.5)
        either: Any = int | float
        assert await probe.expect(either) == 1.5
        assert (await fails(lambda: probe.expect(either))).startswith(f"probe 'probe-1' expected {either} within 1 s, ")


async def test_it_waits_for_a_message_in_virtual_time(autojump_clock: MockClock) -> None:
    async with open_system() as system, trio.open_nursery() as nursery:
        probe = await open_probe(system)

        async def later() -> None:
            await trio.sleep(50)
            probe.ref.tell(Ping())

        nursery.start_soon(later)
        began = trio.current_time()
        await probe.expect(Ping, within=60)
        assert trio.current_time() - began == 50


@seeds(20)
async def test_a_message_at_the_very_end_of_the_time_is_taken() -> None:
    async with open_system() as system, trio.open_nursery() as nursery:
        probe = await open_probe(system)

        async def later() -> None:
            await trio.sleep(1)
            probe.ref.tell(Ping())

        nursery.start_soon(later)
        await wait_all_tasks_blocked()
        await probe.expect(Ping, within=1)


@seeds(20)
async def test_what_was_sent_before_is_seen_before_anything_is_said() -> None:
    async with open_system() as system:
        probe = await open_probe(system)
        for n in range(100):
            probe.ref.tell(n)
        await fails(lambda: probe.expect_nothing(within=0))
        assert len(probe.received) == 100


async def test_a_message_of_another_type_fails_and_says_what_came_and_what_is_behind(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system, name="p")
        probe.ref.tell(Pong(1))
        assert await fails(lambda: probe.expect(Ping)) == "probe 'p' expected Ping, and Pong(1) came"
        probe.ref.tell("text")
        probe.ref.tell(Ping())
        said = await fails(lambda: probe.expect(Ping))
        assert said == "probe 'p' expected Ping, and Pong(1) came; behind it: 'text', Ping()"
        for _ in range(9):
            probe.ref.tell(Ping())
        said = await fails(lambda: probe.expect(str))
        behind = "'text', Ping(), Ping(), Ping(), Ping() and 6 more"
        assert said == f"probe 'p' expected str, and Pong(1) came; behind it: {behind}"


async def test_a_message_that_was_not_the_right_one_is_still_the_next(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system)
        probe.ref.tell(Pong(1))
        await fails(lambda: probe.expect(Ping))
        await fails(lambda: probe.expect_nothing())
        assert (await probe.expect(Pong)).n == 1


async def test_when_nothing_comes_it_fails_at_its_time_and_says_what_came_before(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system, name="p")
        began = trio.current_time()
        said = await fails(lambda: probe.expect(Ping, within=2.5))
        assert said == "probe 'p' expected Ping within 2.5 s, and nothing came, nor ever did"
        assert trio.current_time() - began == 2.5
        probe.ref.tell(Pong(7))
        await probe.expect(Pong)
        said = await fails(lambda: probe.expect(Ping))
        assert said == "probe 'p' expected Ping within 1 s, and nothing came; 1 came before, the last Pong(7)"


async def test_within_zero_looks_at_what_is_there(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system)
        await fails(lambda: probe.expect(Ping, within=0))
        probe.ref.tell(Ping())
        await wait_all_tasks_blocked()
        await probe.expect(Ping, within=0)
        with pytest.raises(ValueError):
            await probe.expect(Ping, within=-1)


async def test_nothing_can_be_expected_and_takes_its_time(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system, name="p")
        began = trio.current_time()
        await probe.expect_nothing(within=3)
        assert trio.current_time() - began == 3
        probe.ref.tell(Ping())
        assert (
            await fails(lambda: probe.expect_nothing()) == "probe 'p' expected nothing for 1 s, and Ping() came at once"
        )
        await probe.expect(Ping)
        await probe.expect_nothing()


async def test_what_comes_while_nothing_is_expected_fails_at_that_moment(autojump_clock: MockClock) -> None:
    async with open_system() as system, trio.open_nursery() as nursery:
        probe = await open_probe(system, name="p")

        async def later() -> None:
            await trio.sleep(0.5)
            probe.ref.tell(Ping())
            probe.ref.tell(Pong(2))

        nursery.start_soon(later)
        said = await fails(lambda: probe.expect_nothing(within=3))
        assert said.startswith("probe 'p' expected nothing for 3 s, and Ping() came after 0.5 s")


async def test_an_ask_is_answered_by_the_test(autojump_clock: MockClock) -> None:
    async with open_system() as system, trio.open_nursery() as nursery:
        probe = await open_probe(system)
        answers: list[int] = []

        async def ask() -> None:
            answers.append(await probe.ref.ask(Add(), within=5))

        nursery.start_soon(ask)
        request = await probe.expect(Add)
        assert request.reply.send(42)
        await wait_all_tasks_blocked()
        assert answers == [42]


async def test_an_end_that_is_watched_comes_as_a_message(autojump_clock: MockClock) -> None:
    async def worker(ctx: Ctx[str]) -> None:
        async for _ in ctx:
            raise ValueError("mine")

    async with open_system() as system:
        probe = await open_probe(system)
        first, second = await system.spawn(worker), await system.spawn(worker)
        probe.watch(first)
        probe.watch(second)
        probe.unwatch(second)
        second.stop()
        first.tell("go")
        down = await probe.expect(Down)
        assert (down.ref, down.kind, str(down.error)) == (first, DownKind.CRASHED, "mine")
        await probe.expect_nothing()


async def test_nobody_ever_waits_for_a_probe(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system)
        for n in range(1000):
            assert probe.ref.tell(n)
        assert await probe.expect(int) == 0
        assert len(probe.received) == 1000
        small = await open_probe(system, mailbox_size=1)
        assert [small.ref.tell(n) for n in range(3)] == [True, True, False]


# ---- ends


async def test_after_its_block_a_probe_has_ended_and_its_name_is_free(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        async with open_probe(system, name="p") as probe:
            with pytest.raises(NameTaken):
                await open_probe(system, name="p")
        assert not probe.ref.alive
        with pytest.raises(ActorGone):
            await probe.ref.ask(Add())
        async with open_probe(system, name="p") as again:
            assert again.name == "p"
        assert (await open_probe(system)).name == "probe-1"
        await probe.aclose()


async def test_a_probe_whose_system_closes_fails_what_is_expected_at_once_and_says_why(
    autojump_clock: MockClock,
) -> None:
    said: list[str] = []
    async with trio.open_nursery() as nursery:
        async with open_system(name="bank") as system:
            probe = await open_probe(system, name="p")

            async def expect() -> None:
                said.append(await fails(lambda: probe.expect(Ping, within=1000)))

            nursery.start_soon(expect)
            await wait_all_tasks_blocked()
    assert said == ["probe 'p' expected Ping within 1000 s, and nothing came: it has ended, system 'bank' closed"]
    assert trio.current_time() < 1


async def test_what_came_before_the_end_can_still_be_expected(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system, name="p")
        probe.ref.tell(Ping())
        probe.ref.tell(Pong())
        probe.ref.drain()
        await probe.ref.join()
    await probe.expect(Ping)
    await fails(lambda: probe.expect_nothing())
    await probe.expect(Pong)
    said = await fails(lambda: probe.expect(Ping))
    assert said == "probe 'p' expected Ping within 1 s, and nothing came: it has ended, drained"
    await probe.expect_nothing(within=1000)
    assert trio.current_time() < 1


async def test_no_probe_is_opened_in_a_system_that_has_closed(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        pass
    with pytest.raises(NotAccepting):
        await open_probe(system)


# ---- cancels


async def test_an_expectation_that_is_cancelled_takes_no_message(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system)
        with trio.move_on_after(0.5) as scope:
            await probe.expect(Ping)
        assert scope.cancelled_caught
        probe.ref.tell(Ping())
        with trio.CancelScope() as scope:
            scope.cancel()
            await probe.expect(Ping)
        assert scope.cancelled_caught
        await probe.expect(Ping)


@seeds(50)
async def test_a_message_and_a_cancel_at_once_lose_nothing() -> None:
    async with open_system() as system:
        probe = await open_probe(system)
        got: list[int] = []

        async def expect(scope: trio.CancelScope) -> None:
            with scope:
                got.append(await probe.expect(int))

        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect, scope)
            await wait_all_tasks_blocked()
            probe.ref.tell(1)
            await trio.lowlevel.checkpoint()
            scope.cancel()
        if not got:
            got.append(await probe.expect(int, within=0))
        assert got == [1]


async def test_two_tasks_cannot_expect_of_one_probe(autojump_clock: MockClock) -> None:
    async with open_system() as system, trio.open_nursery() as nursery:
        probe = await open_probe(system, name="p")
        nursery.start_soon(lambda: probe.expect(Ping))
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError, match=r"^another task expects something of probe 'p' already$"):
            await probe.expect(Pong)
        with pytest.raises(trio.BusyResourceError):
            await probe.expect_nothing()
        probe.ref.tell(Ping())


async def test_leaving_the_block_while_cancelled_still_ends_the_probe(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        with trio.CancelScope() as scope:
            async with open_probe(system) as probe:
                scope.cancel()
        await wait_all_tasks_blocked()
        assert not probe.ref.alive


# ---- words


async def test_a_message_that_cannot_be_shown_does_not_hide_the_failure(autojump_clock: MockClock) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    async with open_system() as system:
        probe = await open_probe(system, name="p")
        probe.ref.tell(Odd())
        said = await fails(lambda: probe.expect(str))
        assert said == "probe 'p' expected str, and <Odd whose repr raised RuntimeError('no')> came"
        await probe.expect(Odd)
        probe.ref.tell("x" * 1000)
        assert re.fullmatch(r"probe 'p' expected int, and 'x{199}\.\.\. came", await fails(lambda: probe.expect(int)))


async def test_it_shows_what_it_holds(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        probe = await open_probe(system, name="p")
        probe.ref.tell(1)
        probe.ref.tell(2)
        await probe.expect(int)
        await wait_all_tasks_blocked()
        assert repr(probe) == "<Probe 'p', 2 received, 1 not expected yet>"
        assert isinstance(probe, Probe)


def test_every_expectation_is_a_checkpoint() -> None:
    async def main() -> None:
        async with open_system() as system:
            probe = await open_probe(system)
            probe.ref.tell(1)
            with trio.testing.assert_checkpoints():
                await probe.expect(int)
            with trio.testing.assert_checkpoints():
                await probe.expect_nothing(within=0)

    run(main)
