import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import (
    ActorGone,
    Backoff,
    ChildTask,
    Ctx,
    Down,
    DownKind,
    Ref,
    Replies,
    Supervisor,
    System,
    open_system,
)

Body = Callable[[Ctx[Any]], Awaitable[None]]


async def idle(ctx: Ctx[Any]) -> None:
    async for _ in ctx:
        pass


def timed(order: Callable[[Ctx[Any]], object], got: list[tuple[float, Any]], work_s: float = 0.0) -> Body:
    """Make a body that orders something, and notes what comes and when."""

    async def body(ctx: Ctx[Any]) -> None:
        order(ctx)
        async for message in ctx:
            got.append((trio.current_time(), message))
            if work_s:
                await trio.sleep(work_s)

    return body


def wheel_of(system: System) -> int:
    return len(system.wheel)


# Timers.


async def test_after_comes_once_at_its_time(autojump_clock: MockClock) -> None:
    got: list[tuple[float, Any]] = []
    async with open_system() as system:
        await system.spawn(timed(lambda ctx: [ctx.after(s, f"{s}") for s in (3, 1, 0, math.inf)], got))
        await trio.sleep(100)
    assert got == [(0, "0"), (1, "1"), (3, "3")]


async def test_every_stays_on_its_grid(autojump_clock: MockClock) -> None:
    got: list[tuple[float, Any]] = []
    async with open_system() as system:
        await trio.sleep(1)
        await system.spawn(timed(lambda ctx: ctx.every(2.5, "tick"), got))
        await trio.sleep_until(12)
    assert got == [(3.5, "tick"), (6.0, "tick"), (8.5, "tick"), (11.0, "tick")]


@pytest.mark.parametrize(("first", "times"), [(0, [0, 2, 4]), (0.5, [0.5, 2.5, 4.5]), (4, [4]), (math.inf, [])])
async def test_the_first_tick_comes_when_it_is_said(
    first: float, times: list[float], autojump_clock: MockClock
) -> None:
    got: list[tuple[float, Any]] = []
    async with open_system() as system:
        await system.spawn(timed(lambda ctx: ctx.every(2, "tick", first=first), got))
        await trio.sleep(5)
    assert [at for at, _ in got] == times


async def test_a_busy_actor_finds_one_tick_and_stays_on_the_grid(autojump_clock: MockClock) -> None:
    got: list[tuple[float, Any]] = []
    async with open_system() as system:
        ref = await system.spawn(timed(lambda ctx: ctx.every(1, "tick"), got, work_s=3.25))
        await trio.sleep(9.9)
        assert ref.for_runtime().mailbox.queued() == ["tick"]
    assert [at for at, _ in got] == [1, 4.25, 7.5]


async def test_ticks_of_two_timers_wait_side_by_side_also_in_a_full_mailbox(autojump_clock: MockClock) -> None:
    got: list[tuple[float, Any]] = []

    def order(ctx: Ctx[Any]) -> None:
        ctx.every(1, "a", first=0)
        ctx.every(1, "b")
        ctx.after(2, "c")

    async with open_system() as system:
        ref = await system.spawn(timed(order, got, work_s=10), mailbox_size=1)
        await trio.sleep(0.5)
        ref.tell("full")
        assert not ref.tell("no room")
        await trio.sleep(5)
        assert ref.for_runtime().mailbox.queued() == ["full", "b", "a", "c"]


async def test_a_tick_that_was_put_aside_still_waits(autojump_clock: MockClock) -> None:
    got: list[float] = []

    async def body(ctx: Ctx[str]) -> None:
        ctx.every(1, "tick")
        async for message in ctx:
            if message == "now":
                ctx.unstash()
            elif trio.current_time() < 10:
                ctx.stash(message)
            else:
                got.append(trio.current_time())

    async with open_system() as system:
        ref = await system.spawn(body)
        await trio.sleep(10.5)
        assert ref.statistics().queued == 1
        ref.tell("now")
        await trio.sleep(1)
    assert got == [10.5, 11]


async def test_a_loop_that_stood_still_for_many_periods_makes_one_tick(mock_clock: MockClock) -> None:
    got: list[tuple[float, Any]] = []
    async with open_system() as system:
        await system.spawn(timed(lambda ctx: ctx.every(1, "tick"), got))
        mock_clock.jump(10.5)
        await wait_all_tasks_blocked()
        assert got == [(10.5, "tick")]
        mock_clock.jump(0.25)
        await wait_all_tasks_blocked()
        assert len(got) == 1
        mock_clock.jump(0.25)
        await wait_all_tasks_blocked()
        assert got[1:] == [(11.0, "tick")]


async def test_a_timer_that_is_cancelled_sends_nothing_more(autojump_clock: MockClock) -> None:
    got: list[Any] = []

    async def body(ctx: Ctx[str]) -> None:
        once, again, fired = ctx.after(5, "once"), ctx.every(2, "again"), ctx.after(1, "fired")
        assert (once.active, again.active, fired.active) == (True, True, True)
        async for message in ctx:
            got.append((trio.current_time(), message))
            assert not fired.active
            if message == "again":
                for _ in range(2):
                    once.cancel()
                    again.cancel()
                    fired.cancel()
                    once.due()  # were it on its way already
                assert (once.active, again.active) == (False, False)
                assert ctx.self.for_runtime().parts.timers == {}

    async with open_system() as system:
        ref = await system.spawn(body)
        await trio.sleep(20)
        assert ref.alive  # what the body asserts holds
        assert wheel_of(system) == 0
    assert got == [(1, "fired"), (2, "again")]


async def test_a_cancel_in_the_instant_it_is_due_is_in_time(autojump_clock: MockClock) -> None:
    got: list[Any] = []

    async def body(ctx: Ctx[str]) -> None:
        timer = ctx.after(1, "no")
        ctx.after(2, "yes")
        with trio.CancelScope(deadline=1):
            await trio.sleep_forever()
        if timer.active:  # whoever of the two runs first
            timer.cancel()
        async for message in ctx:
            got.append(message)

    async with open_system() as system:
        await system.spawn(body)
        await trio.sleep(3)
    assert got in (["yes"], ["no", "yes"])


@pytest.mark.parametrize("end", ["return", "stop", "crash", "drain"])
async def test_timers_end_with_their_actor(end: str, autojump_clock: MockClock) -> None:
    async def body(ctx: Ctx[str]) -> None:
        ctx.every(1, "tick")
        ctx.after(50, "later")
        async for message in ctx:
            if message == "return":
                return
            if message == "crash":
                raise ValueError(message)

    async with open_system() as system:
        ref = await system.spawn(body)
        await trio.sleep(2.5)
        if end in ("stop", "drain"):
            getattr(ref, end)()
        else:
            ref.tell(end)
        await ref.join()
        assert wheel_of(system) == 0
        before = ref.statistics()
        await trio.sleep(100)
        assert ref.statistics() == before
        assert before.accepted == 2 + (end in ("return", "crash"))


async def test_timers_end_with_their_incarnation_and_what_came_before_the_crash_stays(
    autojump_clock: MockClock,
) -> None:
    got: list[tuple[float, str]] = []
    starts: list[float] = []

    async def body(ctx: Ctx[str]) -> None:
        starts.append(trio.current_time())
        if len(starts) == 1:
            ctx.every(1, "old")
            ctx.after(30, "old once")
        async for message in ctx:
            got.append((trio.current_time(), message))
            if message == "crash":
                await trio.sleep(1.5)
                raise ValueError(message)

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent", backoff=Backoff(10.0, jitter=0))
        ref = await sup.spawn(body)
        await trio.sleep(2.5)
        ref.tell("crash")  # at 4.0, with the tick of 3.0 in the mailbox
        await trio.sleep(100)
    assert starts == [0, 14]
    assert got == [(1, "old"), (2, "old"), (2.5, "crash"), (14, "old")]


async def test_a_tick_comes_while_the_mailbox_drains(autojump_clock: MockClock) -> None:
    got: list[tuple[float, Any]] = []
    async with open_system() as system:
        ref = await system.spawn(timed(lambda ctx: ctx.after(2, "tick"), got, work_s=3))
        ref.tell("busy")
        ref.drain()
        await ref.join()
    assert got == [(0, "busy"), (3, "tick")]


# Tasks.


async def sleep_then(seconds: float, value: Any) -> Any:
    await trio.sleep(seconds)
    if isinstance(value, Exception):
        raise value
    return value


def spawning(*spawns: Callable[[Ctx[Any]], ChildTask], got: list[Any]) -> Body:
    return timed(lambda ctx: [spawn(ctx) for spawn in spawns], got)


async def test_the_result_of_a_task_comes_as_a_message_while_others_are_handled(autojump_clock: MockClock) -> None:
    got: list[Any] = []
    async with open_system() as system:
        ref = await system.spawn(
            spawning(
                lambda ctx: ctx.spawn(sleep_then, 2, "slow", result=lambda value: ("done", value)),
                lambda ctx: ctx.spawn(sleep_then, 1, "quick", result=str.upper),
                got=got,
            )
        )
        await trio.sleep(0.5)
        ref.tell("told")
        await trio.sleep(5)
        assert ref.for_runtime().parts.tasks == {}
        assert ref.for_runtime().mailbox.expected == 0
    assert got == [(0.5, "told"), (1, "QUICK"), (2, ("done", "slow"))]


async def test_the_error_of_a_task_comes_as_a_message_where_that_is_asked_for(autojump_clock: MockClock) -> None:
    got: list[Any] = []
    error = OSError("disk")
    async with open_system() as system:
        ref = await system.spawn(
            spawning(lambda ctx: ctx.spawn(sleep_then, 1, error, result=str, error=lambda e: ("failed", e)), got=got)
        )
        await trio.sleep(5)
        assert ref.alive
    assert got == [(1, ("failed", error))]


async def test_without_that_it_is_the_crash_of_the_actor(autojump_clock: MockClock) -> None:
    error = OSError("disk")
    async with open_system() as system:
        ref = await system.spawn(spawning(lambda ctx: ctx.spawn(sleep_then, 1, error, result=str), got=[]), name="a")
        down = await ref.join()
        assert trio.current_time() == 1
        assert (down.kind, down.error) == (DownKind.CRASHED, error)
        assert error.__notes__ == ["in a task of actor 'a'"]


@pytest.mark.parametrize("wrong", ["result", "error"])
async def test_what_the_makers_of_messages_raise_is_a_crash_too(wrong: str, autojump_clock: MockClock) -> None:
    value = 1 if wrong == "result" else OSError("disk")
    async with open_system() as system:
        ref = await system.spawn(
            spawning(lambda ctx: ctx.spawn(sleep_then, 1, value, result=len, error=len), got=[])  # type: ignore[arg-type]
        )
        down = await ref.join()
        assert isinstance(down.error, TypeError)


async def test_several_tasks_that_fail_are_one_group(autojump_clock: MockClock) -> None:
    errors = [OSError("1"), ValueError("2"), KeyError("3")]

    async def stubborn(error: Exception) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise error

    def order(ctx: Ctx[Any]) -> None:
        ctx.spawn(sleep_then, 1, errors[0], result=str)
        ctx.spawn(stubborn, errors[1], result=str)

    async with open_system() as system:
        ref = await system.spawn(timed(order, []), name="a")
        down = await ref.join()
        assert isinstance(down.error, ExceptionGroup)
        assert down.error.message == "tasks of actor 'a' failed"
        assert list(down.error.exceptions) == errors[:2]


async def test_an_error_of_the_body_on_top_of_that_of_a_task_is_kept_too(autojump_clock: MockClock) -> None:
    first, second = OSError("task"), ValueError("body")

    async def body(ctx: Ctx[Any]) -> None:
        ctx.spawn(sleep_then, 1, first, result=str)
        try:
            await idle(ctx)
        finally:
            raise second

    async with open_system() as system:
        ref = await system.spawn(body, name="a")
        down = await ref.join()
        assert isinstance(down.error, ExceptionGroup)
        assert (down.error.message, down.error.exceptions) == ("actor 'a' and a task of it failed", (first, second))


async def test_a_cancelled_task_sends_nothing(autojump_clock: MockClock) -> None:
    got: list[Any] = []
    reasons: list[str] = []

    async def job() -> None:
        try:
            await trio.sleep(5)
        except trio.Cancelled as cancelled:
            reasons.append(str(cancelled))
            raise

    async def body(ctx: Ctx[Any]) -> None:
        tasks = [ctx.spawn(job, result=str, name="mine"), ctx.spawn(job, result=str)]
        assert repr(tasks[0]) == "<ChildTask 'mine'>"
        assert [task.name for task in tasks] == ["mine", "job"]
        await trio.sleep(1)
        for _ in range(2):
            tasks[0].cancel("not needed")
            tasks[1].cancel()
        async for message in ctx:
            got.append(message)

    async with open_system() as system:
        ref = await system.spawn(body)
        ref.drain()
        await ref.join()
        assert trio.current_time() == 1  # nothing is waited for any more
    assert got == []
    said = " ".join(reasons)
    assert "not needed" in said
    assert "task 'job' was cancelled" in said


async def test_a_task_is_known_by_its_name_in_trio_and_of_a_partial_by_task() -> None:
    names: list[str] = []

    async def job() -> None:
        names.append(trio.lowlevel.current_task().name)

    class Callable_:
        async def __call__(self) -> None:
            await job()

    def order(ctx: Ctx[Any]) -> None:
        ctx.spawn(job, result=str)
        ctx.spawn(Callable_(), result=str)

    async with open_system() as system:
        ref = await system.spawn(timed(order, []), name="a")
        await wait_all_tasks_blocked()
        ref.stop()
        await ref.join()
    assert sorted(names) == ["a: job", "a: task"]


async def test_a_drain_waits_for_the_results_of_tasks(autojump_clock: MockClock) -> None:
    got: list[Any] = []
    async with open_system() as system:
        ref = await system.spawn(
            spawning(
                lambda ctx: ctx.spawn(sleep_then, 2, "b", result=str),
                lambda ctx: ctx.spawn(sleep_then, 1, "a", result=str),
                lambda ctx: ctx.spawn(sleep_then, 3, OSError(), result=str, error=lambda _: "c"),
                got=got,
            )
        )
        ref.drain()
        assert not ref.tell("late")
        down = await ref.join()
        assert (down.kind, down.handled) == (DownKind.DRAINED, 3)
    assert got == [(1, "a"), (2, "b"), (3, "c")]


async def test_tasks_have_finished_before_the_supervisor_acts_r10(autojump_clock: MockClock) -> None:
    events: list[str] = []

    async def job() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(7)
            events.append(f"task finished at {trio.current_time():g}")

    async def body(ctx: Ctx[str]) -> None:
        events.append(f"start at {trio.current_time():g}")
        if len(events) == 1:
            ctx.spawn(job, result=str)
        async for _ in ctx:
            raise ValueError("boom")

    async with open_system() as system:
        sup = await system.supervise(
            name="sup",
            restart="permanent",
            backoff=Backoff(1.0, jitter=0),
            on_crash=lambda _: events.append(f"crash told at {trio.current_time():g}"),
        )
        ref = await sup.spawn(body)
        await trio.sleep(1)
        ref.tell("crash")
        await trio.sleep(100)
    assert events == ["start at 0", "task finished at 8", "crash told at 8", "start at 9"]


@pytest.mark.parametrize("end", ["return", "stop", "crash"])
async def test_tasks_have_finished_before_anybody_sees_the_end_r10(end: str, autojump_clock: MockClock) -> None:
    finished: list[float] = []

    async def job() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            finished.append(trio.current_time())

    async def body(ctx: Ctx[str]) -> None:
        ctx.spawn(job, result=str)
        ctx.spawn(job, result=str)
        async for message in ctx:
            if message == "crash":
                raise ValueError(message)
            return

    async with open_system() as system:
        ref = await system.spawn(body)
        await wait_all_tasks_blocked()
        if end == "stop":
            ref.stop()
        else:
            ref.tell(end)
        assert (await ref.join()).handled == (end != "stop")
        assert finished == [3, 3]
        assert trio.current_time() == 3


async def test_a_task_ends_when_the_whole_system_is_cancelled_from_outside(autojump_clock: MockClock) -> None:
    ended: list[str] = []

    async def job() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("task")

    with trio.move_on_after(1) as scope:
        async with open_system() as system:
            await system.spawn(spawning(lambda ctx: ctx.spawn(job, result=str), got=[]))
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert ended == ["task"]


async def test_a_task_that_ends_the_process_is_not_held_back(autojump_clock: MockClock) -> None:
    async def leave() -> None:
        await trio.sleep(1)
        raise SystemExit(4)

    with pytest.raises(BaseException) as caught:
        async with open_system() as system:
            await system.spawn(spawning(lambda ctx: ctx.spawn(leave, result=str), got=[]))
            await trio.sleep_forever()
    error: BaseException = caught.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, SystemExit)


async def test_a_cancelled_that_a_task_lets_out_of_a_foreign_scope_is_a_crash(autojump_clock: MockClock) -> None:
    kept: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep(1)
        except trio.Cancelled as cancelled:
            kept.append(cancelled)
            raise

    async def foreign() -> None:
        raise kept[0]

    async with open_system() as system:
        other = await system.spawn(idle)
        ref = await system.spawn(spawning(lambda ctx: ctx.spawn(foreign, result=str), got=[]))
        down = await ref.join()
        assert str(down.error) == "the body let out a Cancelled of a scope that is not around it"
        assert other.alive


# Watches.


@pytest.mark.parametrize("how", ["stop", "crash", "return", "ended before"])
async def test_a_down_comes_once_however_the_other_ended_r6(how: str, autojump_clock: MockClock) -> None:
    got: list[Any] = []

    async def other(ctx: Ctx[str]) -> None:
        async for message in ctx:
            if message == "crash":
                raise ValueError(message)
            return

    async with open_system() as system:
        watched = await system.spawn(other, name="w")
        if how == "ended before":
            watched.stop("long ago")
            await watched.join()
        ref = await system.spawn(timed(lambda ctx: ctx.watch(watched), got))
        await trio.sleep(1)
        if how == "stop":
            watched.stop("long ago")
        elif how != "ended before":
            watched.tell(how)
        down = await watched.join()
        await trio.sleep(10)
        assert got == [(0 if how == "ended before" else 1, down)]
        assert got[0][1].ref is watched
        assert ref.for_runtime().parts.watching == {}


async def test_a_down_overtakes_10000_messages_r8(autojump_clock: MockClock) -> None:
    got: list[Any] = []
    async with open_system() as system:
        watched = await system.spawn(idle)

        async def body(ctx: Ctx[Any]) -> None:
            ctx.watch(watched)
            async for message in ctx:
                got.append(message)
                if message == "busy":
                    await trio.sleep(1)

        ref = await system.spawn(body, mailbox_size=10_000)
        await wait_all_tasks_blocked()
        ref.tell("busy")
        for n in range(10_000):
            ref.tell(n)
        watched.stop()
        await trio.sleep(2)
        assert got[0] == "busy"
        assert isinstance(got[1], Down)
        assert got[2:] == list(range(10_000))


@pytest.mark.parametrize("ended", [False, True])
async def test_the_message_of_a_watch_is_made_as_it_was_asked_for(ended: bool, autojump_clock: MockClock) -> None:
    got: list[Any] = []
    async with open_system() as system:
        watched = await system.spawn(idle, name="w")
        if ended:
            watched.stop()
            await watched.join()
        await system.spawn(timed(lambda ctx: ctx.watch(watched, lambda down: ("gone", down.name)), got))
        watched.stop()
        await trio.sleep(1)
    assert got == [(0, ("gone", "w"))]


async def test_a_second_watch_takes_the_place_of_the_first(autojump_clock: MockClock) -> None:
    got: list[Any] = []

    def order(ctx: Ctx[Any]) -> None:
        ctx.watch(watched, lambda _: "first")
        ctx.watch(watched, lambda _: "second")

    async with open_system() as system:
        watched = await system.spawn(idle)
        await system.spawn(timed(order, got))
        watched.stop()
        await trio.sleep(1)
    assert got == [(0, "second")]


async def test_who_has_unwatched_hears_nothing(autojump_clock: MockClock) -> None:
    got: list[Any] = []

    def order(ctx: Ctx[Any]) -> None:
        ctx.unwatch(watched)  # never watched: nothing to do
        ctx.watch(watched)
        ctx.watch(other)
        ctx.unwatch(watched)
        ctx.unwatch(watched)

    async with open_system() as system:
        watched, other = await system.spawn(idle), await system.spawn(idle, name="other")
        ref = await system.spawn(timed(order, got))
        assert list(ref.for_runtime().parts.watching) == [other.for_runtime()]
        assert watched.for_runtime()._watchers is None
        watched.stop()
        await watched.join()
        other.stop()
        await trio.sleep(1)
    assert [message.name for _, message in got] == ["other"]


async def test_a_restart_of_the_watched_is_no_end(autojump_clock: MockClock) -> None:
    got: list[Any] = []

    async def crashing(ctx: Ctx[str]) -> None:
        async for message in ctx:
            raise ValueError(message)

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent", intensity=(2, 1000.0))
        watched = await sup.spawn(crashing, name="w")
        await system.spawn(timed(lambda ctx: ctx.watch(watched), got))
        for _ in range(2):
            watched.tell("boom")
            await trio.sleep(100)
        assert got == []
        watched.tell("boom")
        await trio.sleep(100)
        (((_, down),)) = got
        assert (down.ref, down.kind, down.handled) == (watched, DownKind.CRASHED, 3)


@pytest.mark.parametrize("end", ["stop", "crash", "restart"])
async def test_the_end_of_the_watcher_leaves_nothing_with_the_watched_e02(end: str, autojump_clock: MockClock) -> None:
    starts: list[float] = []

    async def watcher(ctx: Ctx[str], watched: Ref[Any]) -> None:
        starts.append(trio.current_time())
        if len(starts) == 1:
            ctx.watch(watched)
        async for message in ctx:
            raise ValueError(message)

    async with open_system() as system:
        watched = await system.spawn(idle)
        sup = await system.supervise(name="sup", restart="permanent" if end == "restart" else "temporary")
        for _ in range(100 if end != "restart" else 1):
            starts.clear()
            ref = await sup.spawn(watcher, watched)
            assert len(watched.for_runtime()._watchers or ()) == 1
            if end == "stop":
                ref.stop()
            else:
                ref.tell("crash")
            await trio.sleep(60)
            assert watched.for_runtime()._watchers is None
        watched.stop()
        await trio.sleep(1)
        assert ref.statistics().accepted == (end != "stop")  # no notice came for the next incarnation


async def test_a_watch_whose_message_cannot_be_made_is_the_watchers_crash(autojump_clock: MockClock) -> None:
    def fail(down: Down) -> str:
        raise LookupError(down.name)

    async with open_system() as system:
        watched = await system.spawn(idle, name="w")
        ref = await system.spawn(timed(lambda ctx: ctx.watch(watched, fail), []))
        other_got: list[Any] = []
        await system.spawn(timed(lambda ctx: ctx.watch(watched), other_got))
        watched.stop()
        down = await ref.join()
        assert isinstance(down.error, LookupError)
        assert [message.name for _, message in other_got] == ["w"]


async def test_an_actor_may_watch_one_that_it_is_asked_to_stop(autojump_clock: MockClock) -> None:
    """The end of the watched comes while the watcher itself stops: it finds nobody, and nothing breaks."""

    async def watcher(ctx: Ctx[Any], watched: Ref[Any]) -> None:
        ctx.watch(watched)
        try:
            await idle(ctx)
        finally:
            watched.stop()
            with trio.move_on_after(1, shield=True):
                await watched.join()

    async with open_system() as system:
        watched = await system.spawn(idle)
        ref = await system.spawn(watcher, watched)
        await wait_all_tasks_blocked()
        ref.stop()
        assert (await ref.join()).kind is DownKind.STOPPED
        assert ref.statistics().returned == 1  # the Down


# Cleanup.


async def note(log: list[Any], text: str, seconds: float = 0.0) -> None:
    await trio.sleep(seconds)
    log.append((trio.current_time(), text))


@pytest.mark.parametrize("end", ["return", "stop", "crash", "drain", "cancel"])
async def test_cleanup_runs_last_first_however_the_incarnation_ends(end: str, autojump_clock: MockClock) -> None:
    log: list[Any] = []

    async def no_arguments() -> None:
        log.append("plain")

    async def body(ctx: Ctx[str]) -> None:
        ctx.on_stop(note, log, "first", 2)
        ctx.on_stop(no_arguments)
        ctx.on_stop(note, log, "last", 1)
        async for message in ctx:
            if message == "crash":
                raise ValueError(message)
            return

    with trio.CancelScope() as scope:
        async with open_system() as system:
            ref = await system.spawn(body)
            await trio.sleep(1)
            assert log == []
            if end == "cancel":
                scope.cancel()
            elif end in ("stop", "drain"):
                getattr(ref, end)()
            else:
                ref.tell(end)
            await ref.join()
    assert log == [(2, "last"), "plain", (4, "first")]
    assert not ref.alive


async def test_cleanup_runs_once_for_each_incarnation_before_the_next_begins(autojump_clock: MockClock) -> None:
    log: list[Any] = []

    async def body(ctx: Ctx[str]) -> None:
        log.append((trio.current_time(), "start"))
        ctx.on_stop(note, log, "end", 1)
        async for message in ctx:
            raise ValueError(message)

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent", backoff=Backoff(10.0, jitter=0))
        ref = await sup.spawn(body)
        ref.tell("crash")
        await trio.sleep(50)
        ref.stop()
        await ref.join()
    assert log == [(0, "start"), (1, "end"), (11, "start"), (51, "end")]


async def test_cleanup_runs_after_the_tasks_have_finished(autojump_clock: MockClock) -> None:
    log: list[Any] = []

    async def job() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await note(log, "task", 2)

    async def body(ctx: Ctx[str]) -> None:
        ctx.on_stop(note, log, "cleanup")
        ctx.spawn(job, result=str)
        await wait_all_tasks_blocked()

    async with open_system() as system:
        await (await system.spawn(body)).join()
    assert log == [(2, "task"), (2, "cleanup")]


@pytest.mark.parametrize("crashed", [False, True])
async def test_cleanup_that_fails_or_takes_too_long_is_logged_and_noted_and_the_next_runs(
    crashed: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "actors.runtime")
    log: list[Any] = []

    async def fail() -> None:
        raise OSError("no disk")

    async def hang() -> None:
        await trio.sleep_forever()

    async def body(ctx: Ctx[str]) -> None:
        ctx.on_stop(note, log, "first")
        ctx.on_stop(fail)
        ctx.on_stop(hang)
        ctx.on_stop(hang, within=2.5)
        if crashed:
            await wait_all_tasks_blocked()
            ctx.ready()
            raise ValueError("the crash")
        await idle(ctx)

    async with open_system() as system:
        ref = await system.spawn(body, name="a")
        if not crashed:
            ref.stop("enough")
        down = await ref.join()
    problems = [
        "on_stop 'hang' did not end within 2.5 s",
        "on_stop 'hang' did not end within 5 s",
        "on_stop 'fail' raised OSError('no disk')",
    ]
    assert log == [(7.5, "first")]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors[:3]] == [f"actor 'a': {problem}" for problem in problems]
    (traceback,) = [record for record in errors if record.exc_info and "raised" in record.getMessage()]
    assert traceback.exc_info is not None
    assert isinstance(traceback.exc_info[1], OSError)
    if crashed:
        assert str(down.error) == "the crash"
        assert down.error is not None
        assert down.error.__notes__[1:] == problems
    else:
        # What the cleanup says never becomes the end itself.
        assert (down.error, down.kind, down.reason) == (None, DownKind.STOPPED, "enough")


async def test_cleanup_may_still_ask_others(autojump_clock: MockClock) -> None:
    class Get(Replies[int]):
        pass

    async def store(ctx: Ctx[Get]) -> None:
        async for message in ctx:
            await trio.sleep(1)
            message.reply.send(5)

    answers: list[int] = []

    async def goodbye(to: Ref[Get]) -> None:
        answers.append(await to.ask(Get()))

    async def body(ctx: Ctx[Any], to: Ref[Get]) -> None:
        ctx.on_stop(goodbye, to)
        await idle(ctx)

    async with open_system() as system:
        to = await system.spawn(store)
        await system.spawn(body, to)
    assert answers == [5]


async def test_cleanup_may_register_more(autojump_clock: MockClock) -> None:
    log: list[Any] = []

    async def body(ctx: Ctx[Any]) -> None:
        async def more() -> None:
            ctx.on_stop(note, log, "more")

        ctx.on_stop(note, log, "first")
        ctx.on_stop(more)

    async with open_system() as system:
        await (await system.spawn(body)).join()
    assert log == [(0, "more"), (0, "first")]


# Messages aside.


@dataclass
class Get(Replies[int]):
    n: int = 0


async def stashing(ctx: Ctx[Any], log: list[Any]) -> None:
    """Puts everything aside until "open"."""
    opened = False
    async for message in ctx:
        if message == "open":
            opened = True
            ctx.unstash()
        elif opened:
            log.append(message)
            if isinstance(message, Get):
                message.reply.send(message.n)
        elif message == "crash":
            raise ValueError(message)
        else:
            ctx.stash(message)
            assert ctx.self.for_runtime().current is None


async def test_what_was_put_aside_comes_back_first_and_in_order() -> None:
    log: list[Any] = []
    async with open_system() as system:
        ref = await system.spawn(stashing, log)
        for message in (1, 2, 3):
            ref.tell(message)
        await wait_all_tasks_blocked()
        assert ref.statistics().queued == 3
        for later in (4, "open", 5, 6):
            ref.tell(later)
        ref.drain()
        assert (await ref.join()).handled == 7
    assert log == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("size", "limit"), [(2, 2), (1, 1), (0, 1)])
async def test_a_stash_holds_as_many_as_the_mailbox(size: int, limit: int) -> None:
    async with open_system() as system:
        ref = await system.spawn(stashing, [], name="a", mailbox_size=size)
        for n in range(limit):
            await ref.send(n)
        await wait_all_tasks_blocked()
        assert ref.alive
        await ref.send("one more")
        down = await ref.join()
        assert str(down.error) == (
            f"the stash of actor 'a' is full: it holds {limit}; unstash them, or handle this message"
        )
        assert down.error is not None
        assert down.error.__notes__ == ["in actor 'a', while handling str"]
        assert ref.statistics().returned == limit


async def test_an_ask_that_was_put_aside_is_answered_later_or_ends_with_the_actor(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        sup: Supervisor = await system.supervise(name="sup", restart="permanent")
        ref = await sup.spawn(stashing, [], name="a")
        results: list[Any] = []

        async def ask(n: int) -> None:
            try:
                results.append(await ref.ask(Get(n)))
            except ActorGone as gone:
                results.append(str(gone))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 1)
            await wait_all_tasks_blocked()
            ref.tell("told")
            ref.tell("crash")
        assert results == ["actor 'a' is gone: crashed"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 2)
            await trio.sleep(60)
            assert ref.statistics().queued == 2  # what was told is put aside again
            ref.tell("open")
        assert results[1:] == [2]


async def test_an_ask_whose_asker_went_while_it_was_aside_is_skipped() -> None:
    log: list[Any] = []
    async with open_system() as system:
        ref = await system.spawn(stashing, log)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.ask, Get(1))
            await wait_all_tasks_blocked()
            ref.tell("kept")
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        ref.tell("open")
        await wait_all_tasks_blocked()
        assert (log, ref.statistics().expired) == (["kept"], 1)


async def test_what_is_still_aside_at_the_end_is_returned() -> None:
    async with open_system() as system:
        ref = await system.spawn(stashing, [])
        for n in range(3):
            ref.tell(n)
        ref.drain()
        down = await ref.join()
        assert (down.handled, ref.statistics().returned) == (0, 3)
        assert [letter.message for letter in system.dead_letters.last] == [0, 1, 2]


async def test_an_actor_that_uses_none_of_this_has_none_of_it() -> None:
    async with open_system() as system:
        ref = await system.spawn(idle)
        assert ref.for_runtime()._parts is None
