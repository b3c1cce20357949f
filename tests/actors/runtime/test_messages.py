import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.lowlevel import checkpoint
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import Ctx, Down, Ref, Replies, System, context, messages, open_system
from actors.runtime.messages import BURST, Messages, PlainMessages, QuickMessages


@pytest.fixture(params=[QuickMessages, PlainMessages], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """Everything here holds for both."""
    monkeypatch.setattr(context, "Messages", request.param)
    chosen: type[Any] = request.param
    return chosen


class Steps(trio.abc.Instrument):
    """Counts the messages that a task took in each of its turns."""

    def __init__(self, task_name: str, got: list[Any]) -> None:
        self.taken: list[int] = []
        self._task_name = task_name
        self._got = got
        self._before = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name == self._task_name:
            self._before = len(self._got)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name == self._task_name:
            self.taken.append(len(self._got) - self._before)


async def collect(ctx: Ctx[int], got: list[int]) -> None:
    async for n in ctx:
        got.append(n)


def handling(system: System, name: str) -> tuple[str | None, float | None]:
    node = next(node for node in system.tree().children if node.name == name)
    return node.handling, node.handling_s


# What trio has no public name for.


def test_the_quick_ones_are_used_as_long_as_trio_has_what_they_read() -> None:
    assert Messages is QuickMessages


@pytest.mark.parametrize(
    "gone", ["_cancel_status", "_schedule_points", "effectively_cancelled", "CancelStatus", "_run"]
)
def test_without_it_the_plain_ones_are_used(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = SimpleNamespace(_cancel_status=None, _schedule_points=0)
    status = SimpleNamespace(effectively_cancelled=False)
    run = SimpleNamespace(CancelStatus=status)
    core = SimpleNamespace(_run=run)
    monkeypatch.setattr(trio.lowlevel, "Task", task)
    monkeypatch.setattr(trio, "_core", core)
    spec = importlib.util.spec_from_file_location("messages_anew", messages.__file__)
    assert spec is not None
    assert spec.loader is not None

    def loaded() -> Any:
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        return module

    module = loaded()
    assert module.Messages is module.QuickMessages
    for holder in (task, status, run, core):
        if hasattr(holder, gone):
            delattr(holder, gone)
    module = loaded()
    assert module.Messages is module.PlainMessages


async def test_trio_keeps_it_as_it_is_understood_here() -> None:
    task: Any = trio.lowlevel.current_task()
    before = task._schedule_points
    await trio.lowlevel.checkpoint_if_cancelled()
    assert task._schedule_points == before
    await checkpoint()
    await trio.lowlevel.cancel_shielded_checkpoint()
    await wait_all_tasks_blocked()
    assert task._schedule_points >= before + 3
    with trio.CancelScope() as scope:
        assert not task._cancel_status.effectively_cancelled
        scope.cancel()
        assert task._cancel_status.effectively_cancelled
        with trio.CancelScope(shield=True):
            assert not task._cancel_status.effectively_cancelled
            await checkpoint()


# Order, start and end.


async def test_each_message_comes_once_in_order_until_the_drain() -> None:
    got: list[int] = []
    async with open_system() as system:
        ref = await system.spawn(collect, got, mailbox_size=500)
        await wait_all_tasks_blocked()
        for n in range(100):
            ref.tell(n)
        await wait_all_tasks_blocked()
        for n in range(100, 300):
            ref.tell(n)
        ref.drain()
        down = await ref.join()
    assert got == list(range(300))
    assert (down.handled, down.kind) == (300, "drained")


@pytest.mark.parametrize("queued", [0, 1])
async def test_the_end_stays_the_end(queued: int) -> None:
    ends: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        it = aiter(ctx)
        assert aiter(it) is it
        while True:
            try:
                await anext(it)
            except StopAsyncIteration:
                ends.append(len(ends))
                if len(ends) == 3:
                    return

    async with open_system() as system:
        ref = await system.spawn(body)
        await wait_all_tasks_blocked()
        for n in range(queued):
            ref.tell(n)
        ref.drain()
        assert (await ref.join()).error is None
    assert ends == [0, 1, 2]


async def test_the_first_receive_says_that_the_start_is_done(autojump_clock: MockClock) -> None:
    async def slow(ctx: Ctx[int]) -> None:
        await trio.sleep(3)
        async for _ in ctx:
            pass

    async with open_system() as system:
        await system.spawn(slow)
        assert trio.current_time() == 3


async def test_a_down_comes_before_all_that_was_queued_and_an_abandoned_ask_never_comes() -> None:
    class Ask(Replies[int]):
        pass

    got: list[str] = []

    async def body(ctx: Ctx[Any], other: Ref[int]) -> None:
        ctx.watch(other)
        async for message in ctx:
            got.append(type(message).__name__)
            if len(got) == 1:
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()

    async with open_system() as system:
        other: Ref[int] = await system.spawn(collect, [])
        ref: Ref[Any] = await system.spawn(body, other)
        ref.tell("busy")
        with trio.move_on_after(0):
            await ref.ask(Ask())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.ask, Ask())
            await checkpoint()
            await checkpoint()
            nursery.cancel_scope.cancel()
        ref.tell(1)
        other.stop()
        ref.drain()
        await ref.join()
        assert got == ["str", "Down", "int"]
        now = ref.statistics()
        assert (now.handled, now.expired + now.rejected) == (3, now.sent - 3)


async def test_what_is_not_in_the_queue_is_found_without_waiting_for_more(autojump_clock: MockClock) -> None:
    """A `Down` that came alone while a handler was busy, and a sender that waits at a mailbox without places."""
    got: list[tuple[float, str]] = []

    async def body(ctx: Ctx[Any], other: Ref[int]) -> None:
        ctx.watch(other)
        async for message in ctx:
            got.append((trio.current_time(), type(message).__name__))
            await trio.sleep(5)

    async with open_system() as system:
        other: Ref[int] = await system.spawn(collect, [])
        ref: Ref[Any] = await system.spawn(body, other, mailbox_size=0)
        await trio.sleep(1)
        ref.tell("busy")
        await trio.sleep(1)
        other.stop()
        await ref.send(1)
        await trio.sleep(20)
    assert got == [(1, "str"), (6, "Down"), (11, "int")]


# Cancellation.


@pytest.mark.parametrize("at", [0, 1, 5, BURST - 1, BURST, BURST + 1, 2 * BURST])
async def test_a_cancel_of_the_handlers_own_scope_is_seen_at_the_next_message(at: int) -> None:
    got: list[int] = []
    after: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        with trio.CancelScope() as scope:
            async for n in ctx:
                got.append(n)
                if n == at:
                    scope.cancel()
        assert scope.cancelled_caught
        async for n in ctx:
            after.append(n)

    async with open_system() as system:
        ref = await system.spawn(body, mailbox_size=100)
        for n in range(100):
            ref.tell(n)
        ref.drain()
        assert (await ref.join()).error is None
    assert got == list(range(at + 1))
    assert after == list(range(at + 1, 100))  # what was not taken is still there


@pytest.mark.parametrize("at", [0, 7, BURST, BURST + 5])
async def test_a_stop_is_seen_at_the_next_message_and_the_rest_is_returned(at: int) -> None:
    got: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        async for n in ctx:
            got.append(n)
            if n == at:
                ctx.self.stop()

    async with open_system() as system:
        ref = await system.spawn(body, mailbox_size=100)
        for n in range(100):
            ref.tell(n)
        await ref.join()
        assert got == list(range(at + 1))
        assert ref.statistics().returned == 100 - len(got)


async def test_a_receive_that_is_cancelled_while_it_waits_loses_nothing(autojump_clock: MockClock) -> None:
    got: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        it = aiter(ctx)
        while len(got) < 3:
            with trio.move_on_after(1):
                got.append(await anext(it))

    async with open_system() as system:
        ref = await system.spawn(body)
        for n in range(3):
            await trio.sleep(1)  # exactly when it gives up
            ref.tell(n)
            await trio.sleep(4.5)
        await ref.join()
    assert got == [0, 1, 2]


# Who else runs.


@pytest.mark.parametrize("parked", [False, True])
async def test_exactly_32_messages_are_taken_in_a_row(parked: bool) -> None:
    got: list[int] = []
    steps = Steps("actor a", got)
    async with open_system() as system:
        ref = await system.spawn(collect, got, name="a", mailbox_size=1000)
        if parked:
            await wait_all_tasks_blocked()
        for n in range(10 * BURST):
            ref.tell(n)
        trio.lowlevel.add_instrument(steps)
        ref.drain()
        await ref.join()
        trio.lowlevel.remove_instrument(steps)
    assert len(got) == 10 * BURST
    assert [taken for taken in steps.taken if taken] == [BURST] * 10


async def test_after_a_handler_that_waited_a_new_burst_begins(kind: type[Any]) -> None:
    got: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        async for n in ctx:
            got.append(n)
            if n == 19:
                await checkpoint()

    steps = Steps("actor a", got)
    async with open_system() as system:
        ref = await system.spawn(body, name="a", mailbox_size=1000)
        await wait_all_tasks_blocked()
        for n in range(100):
            ref.tell(n)
        trio.lowlevel.add_instrument(steps)
        ref.drain()
        await ref.join()
        trio.lowlevel.remove_instrument(steps)
    taken = [count for count in steps.taken if count]
    # The plain ones cannot know, and give way once more than they need.
    assert taken == ([20, 32, 32, 16] if kind is QuickMessages else [20, 12, 32, 32, 4])


async def test_after_a_wait_for_a_message_a_new_burst_begins() -> None:
    got: list[int] = []
    steps = Steps("actor a", got)
    async with open_system() as system:
        ref = await system.spawn(collect, got, name="a", mailbox_size=1000)
        trio.lowlevel.add_instrument(steps)
        for _ in range(3):
            await wait_all_tasks_blocked()
            for n in range(20):
                ref.tell(n)
        await wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(steps)
    assert [taken for taken in steps.taken if taken] == [20, 20, 20]


async def test_handlers_that_never_wait_hold_up_the_deadline_of_another_for_a_burst_only(
    mock_clock: MockClock,
) -> None:
    got: list[int] = []
    seen: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        async for n in ctx:
            got.append(n)
            mock_clock.jump(1.0)  # what a handler takes that computes for a second

    async def sleeper() -> None:
        await trio.sleep(10)
        seen.append(len(got))

    async with open_system() as system:
        ref = await system.spawn(body, mailbox_size=500)
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper)
            await wait_all_tasks_blocked()
            for n in range(400):
                ref.tell(n)
        ref.stop()
    assert seen[0] in (BURST, 2 * BURST)


async def test_a_loop_for_each_message_lets_others_run() -> None:
    turns: list[int] = []

    async def body(ctx: Ctx[int]) -> None:
        ctx.self.tell(0)
        for _ in range(1000):
            async for n in ctx:
                ctx.self.tell(n + 1)  # there is always one
                break

    async def other() -> None:
        while True:
            await checkpoint()
            turns.append(len(turns))

    async with open_system() as system, trio.open_nursery() as nursery:
        nursery.start_soon(other)
        ref = await system.spawn(body)
        await ref.join()
        nursery.cancel_scope.cancel()
    assert len(turns) >= 1000 // BURST


# More than one task.


async def test_a_second_task_may_take_over_but_not_wait_at_the_same_time() -> None:
    got: list[tuple[str, int]] = []

    async def body(ctx: Ctx[int]) -> None:
        async def take(who: str, count: int) -> None:
            async for n in ctx:
                got.append((who, n))
                if len([one for one, _ in got if one == who]) == count:
                    return

        await take("body", 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, "other", 40)
        await take("body", 3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, "other", 99)
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await take("body", 99)
            got.append(("refused", -1))
            nursery.cancel_scope.cancel()

    async with open_system() as system:
        ref = await system.spawn(body, mailbox_size=100)
        for n in range(43):
            ref.tell(n)
        down = await ref.join()
        assert down.error is None
    assert got == [("body", 0), ("body", 1), *(("other", n) for n in range(2, 42)), ("body", 42), ("refused", -1)]


async def test_two_tasks_that_both_find_messages_share_them_and_both_let_others_run() -> None:
    got: list[tuple[str, int]] = []
    full = trio.Event()

    async def body(ctx: Ctx[int]) -> None:
        async def take(who: str) -> None:
            async for n in ctx:
                got.append((who, n))

        ctx.ready()
        await full.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, "a")
            nursery.start_soon(take, "b")

    async with open_system() as system:
        ref = await system.spawn(body, mailbox_size=1000)
        for n in range(500):
            ref.tell(n)
        ref.drain()  # so that neither waits
        full.set()
        await ref.join()
    assert sorted(n for _, n in got) == list(range(500))
    assert {who for who, _ in got} == {"a", "b"}


@pytest.mark.parametrize("queued", [False, True])
async def test_an_iterator_may_go_on_in_another_task(queued: bool) -> None:
    got: list[int] = []
    moved = trio.Event()
    reached: list[bool] = []

    async def body(ctx: Ctx[int]) -> None:
        it = aiter(ctx)

        async def take() -> None:
            with trio.CancelScope() as scope:
                async for n in it:
                    got.append(n)
                    if n == 120:
                        scope.cancel()
            reached.append(scope.cancelled_caught)

        got.append(await anext(it))
        await moved.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)

    async with open_system() as system:
        ref = await system.spawn(body, mailbox_size=1000)
        await wait_all_tasks_blocked()
        ref.tell(0)
        await wait_all_tasks_blocked()
        if not queued:
            moved.set()
        for n in range(1, 121):
            if not queued:
                await wait_all_tasks_blocked()
            ref.tell(n)
        moved.set()
        ref.drain()
        assert (await ref.join()).error is None
    assert got == list(range(121))
    assert reached == [True]


# The message in hand.


async def test_the_message_in_hand_is_shown_and_nothing_while_there_is_none() -> None:
    shown: list[str | None] = []

    async def body(ctx: Ctx[int]) -> None:
        async for _ in ctx:
            shown.append(handling(ctx.system, "a")[0])

    async with open_system() as system:
        ref = await system.spawn(body, name="a")
        assert handling(system, "a") == (None, None)
        for _ in range(2):
            await wait_all_tasks_blocked()
            assert handling(system, "a") == (None, None)
            for n in range(3):
                ref.tell(n)
        await wait_all_tasks_blocked()
        assert handling(system, "a") == (None, None)
    assert shown == ["int"] * 6


async def test_a_message_is_as_old_as_its_handler_took_also_after_handlers_that_slept(
    autojump_clock: MockClock,
) -> None:
    async def body(ctx: Ctx[float]) -> None:
        async for seconds in ctx:
            await trio.sleep(seconds)

    def age() -> float | None:
        return handling(system, "a")[1]

    async with open_system() as system:
        ref = await system.spawn(body, name="a")
        await trio.sleep(100)
        ref.tell(5.0)  # handed to one who waits
        ref.tell(10.0)  # queued
        ref.tell(20.0)
        await trio.sleep(4)
        assert age() == pytest.approx(4)
        await trio.sleep(2)
        assert age() == pytest.approx(1)
        await trio.sleep(10)
        assert age() == pytest.approx(1)
        await trio.sleep(30)
        assert age() is None
        ref.tell(5.0)
        await trio.sleep(3)
        assert age() == pytest.approx(3)


async def test_the_age_of_the_first_message_counts_from_when_it_was_taken(autojump_clock: MockClock) -> None:
    async def body(ctx: Ctx[float]) -> None:
        await trio.sleep(50)
        async for seconds in ctx:
            await trio.sleep(seconds)

    async with open_system() as system:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: system.spawn(body, name="a"))
            await wait_all_tasks_blocked()
            ref: Ref[float] = system.actors()[0].ref
            ref.tell(5.0)
        await trio.sleep(2)
        assert handling(system, "a") == ("float", 2)


async def test_a_down_that_overtakes_is_as_old_as_its_handler_took_too(autojump_clock: MockClock) -> None:
    async def body(ctx: Ctx[Any], other: Ref[int]) -> None:
        ctx.watch(other)
        async for message in ctx:
            await trio.sleep(100 if isinstance(message, Down) else 10)

    async with open_system() as system:
        other: Ref[int] = await system.spawn(collect, [])
        ref: Ref[Any] = await system.spawn(body, other, name="a")
        await trio.sleep(1)
        ref.tell("one")
        ref.tell("two")
        other.stop()
        await trio.sleep(15)
        assert handling(system, "a") == ("Down", 5)
