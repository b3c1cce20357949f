import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import ActorGone, Backoff, Crash, Ctx, DownKind, NotAccepting, Ref, Replies, open_system

AT_ONCE = Backoff(first_s=0.0, jitter=0.0)


@dataclass
class Get(Replies[int]):
    pass


@dataclass
class Boom:
    secret: str = "secret"


@dataclass
class Sleep:
    seconds: float


Message = Get | Boom | Sleep | int


async def counter(ctx: Ctx[Message], log: list[object]) -> None:
    total = 0
    log.append("start")
    async for message in ctx:
        match message:
            case Get():
                message.reply.send(total)
            case Boom():
                total += 1000  # half of a change
                raise ValueError("boom")
            case Sleep(seconds):
                await trio.sleep(seconds)
            case int(n):
                total += n
                log.append(n)


@pytest.fixture
def crashes() -> list[Crash]:
    return []


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "actors.runtime"]


async def test_a_crashed_child_starts_afresh_and_keeps_what_it_was_told_e22_e23(autojump_clock: MockClock) -> None:
    log: list[object] = []
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", backoff=Backoff(first_s=0.1, jitter=0.0))
        ref = await sup.spawn(counter, log, name="c")
        ref.tell(Sleep(1))
        await wait_all_tasks_blocked()
        ref.tell(Boom())
        for n in range(1, 6):
            ref.tell(n)
        await trio.sleep(1.05)
        assert (log, system.tree().children[0].children[0].state) == (["start"], "restarting")
        assert ref.alive
        assert system.registry.lookup("c") is ref
        assert await ref.ask(Get()) == 15
        assert log == ["start", "start", 1, 2, 3, 4, 5]
        assert trio.current_time() == pytest.approx(1.1)
        assert system.statistics().restarts == 1


async def test_asks_end_with_the_incarnation_that_had_them_and_later_ones_wait_for_the_next(
    autojump_clock: MockClock,
) -> None:
    results: list[object] = []
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", backoff=Backoff(first_s=1.0, jitter=0.0))
        ref = await sup.spawn(counter, [], name="c", mailbox_size=3)

        async def ask() -> None:
            try:
                results.append(await ref.ask(Get()))
            except ActorGone as gone:
                results.append((gone.reason, type(gone.cause), trio.current_time()))

        ref.tell(Sleep(1))
        await wait_all_tasks_blocked()
        ref.tell(Boom())
        async with trio.open_nursery() as nursery:
            for _ in range(4):  # two are queued; as Boom is taken a third is, and one still waits for room
                nursery.start_soon(ask)
            await trio.sleep(1.5)
            nursery.start_soon(ask)
        assert results == [("crashed", ValueError, 1.0)] * 3 + [0, 0]
        now = ref.statistics()
        assert now.accepted == now.handled + now.returned
        assert now.returned == system.statistics().returned == 3


@pytest.mark.parametrize("limit", [0, 1])
async def test_messages_queued_at_the_last_crash_are_returned_e22(limit: int, autojump_clock: MockClock) -> None:
    log: list[object] = []
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", intensity=(limit, 10.0), backoff=AT_ONCE)
        ref = await sup.spawn(counter, log, name="c")
        for _ in range(limit + 1):
            ref.tell(Boom())
        for n in range(10):
            ref.tell(n)
        await ref.join()
        now = ref.statistics()
        assert (log.count("start"), now.accepted, now.handled, now.returned) == (limit + 1, limit + 11, limit + 1, 10)


@pytest.mark.parametrize(
    ("restart", "crash", "starts"),
    [
        ("temporary", True, 1),
        ("transient", True, 2),
        ("permanent", True, 2),
        ("temporary", False, 1),
        ("transient", False, 1),
        ("permanent", False, 2),
    ],
)
async def test_which_ends_are_followed_by_a_restart(
    restart: str, crash: bool, starts: int, autojump_clock: MockClock
) -> None:
    log: list[int] = []

    async def once(ctx: Ctx[int]) -> None:
        log.append(1)
        ctx.ready()
        if len(log) == 1:
            if crash:
                raise ValueError
            return
        await ctx.receive()

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart=restart)  # type: ignore[arg-type]
        ref = await sup.spawn(once)
        await trio.sleep(1)
        assert len(log) == starts
        assert ref.alive is (starts == 2)


@pytest.mark.parametrize("end", [Ref.drain, Ref.stop])
async def test_an_end_that_was_asked_for_is_followed_by_no_restart(
    end: Callable[[Ref[Message]], None], autojump_clock: MockClock
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent")
        log: list[object] = []
        ref = await sup.spawn(counter, log)
        end(ref)
        assert (await ref.join()).kind in (DownKind.DRAINED, DownKind.STOPPED)
        await trio.sleep(60)
        assert log == ["start"]


async def test_stop_ends_the_wait_for_a_restart(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent", backoff=Backoff(first_s=20.0))
        ref = await sup.spawn(counter, [])
        ref.tell(Boom())
        ref.tell(1)
        await trio.sleep(1)
        ref.stop("enough")
        down = await ref.join()
        assert (down.reason, down.kind, type(down.error)) == ("enough", DownKind.STOPPED, ValueError)
        assert ref.statistics().returned == 1
        assert trio.current_time() == pytest.approx(1)


async def test_a_restart_that_fails_to_start_counts_and_the_name_is_free_at_the_end_e08(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[int] = []

    async def body(ctx: Ctx[str]) -> None:
        starts.append(1)
        if len(starts) > 1:
            raise OSError("no disk")
        async for _ in ctx:
            raise ValueError("first")

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", intensity=(2, 10.0), backoff=AT_ONCE)
        ref = await sup.spawn(body, name="S1")
        for _ in range(11):
            ref.tell("x")
        down = await ref.join()
        assert (len(starts), str(down.error)) == (3, "no disk")
        assert system.registry.lookup("S1") is None
        assert sup.children == ()
        assert ref.statistics().returned == 10
    assert messages(caplog) == [
        "actor 'sup/S1' crashed while handling str: ValueError; restart 1 in 0.000 s",
        "actor 'sup/S1' crashed while handling no message: OSError; restart 2 in 0.000 s",
        "actor 'sup/S1' crashed while handling no message: OSError; given up after 2 restarts in 10 s",
    ]


async def test_a_first_start_that_fails_is_not_restarted_e08(autojump_clock: MockClock) -> None:
    starts: list[int] = []

    async def body(ctx: Ctx[str]) -> None:
        starts.append(1)
        raise OSError("no disk")

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent")
        with pytest.raises(OSError, match=r"^no disk\n"):
            await sup.spawn(body, name="S1")
        await trio.sleep(60)
        assert (starts, sup.children, system.statistics().actors) == ([1], (), 0)


async def test_each_child_has_its_own_budget_e10(autojump_clock: MockClock, crashes: list[Crash]) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", intensity=(3, 10.0), on_crash=crashes.append)
        refs = [await sup.spawn(counter, [], name=f"s/{n}") for n in range(5)]
        for ref in refs:
            ref.tell(Boom())
            await trio.sleep(0.2)
        assert [await ref.ask(Get()) for ref in refs] == [0] * 5
        assert [(crash.name, crash.restarts) for crash in crashes] == [(f"s/{n}", 1) for n in range(5)]


async def test_each_crash_is_logged_and_told_once_with_cause_kind_and_count_e13(
    autojump_clock: MockClock, crashes: list[Crash], caplog: pytest.LogCaptureFixture
) -> None:
    async with open_system(on_crash=crashes.append) as system:
        sup = await system.supervise(name="sup", restart="transient", backoff=Backoff(first_s=0.5, jitter=0.0))
        ref = await sup.spawn(counter, [], name="c")
        for _ in range(3):
            ref.tell(Boom())
            await trio.sleep(5)
    assert messages(caplog) == [
        "actor 'sup/c' crashed while handling Boom: ValueError; restart 1 in 0.500 s",
        "actor 'sup/c' crashed while handling Boom: ValueError; restart 2 in 1.000 s",
        "actor 'sup/c' crashed while handling Boom: ValueError; restart 3 in 2.000 s",
    ]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    first = caplog.records[0]
    assert (first.__dict__["actor"], first.__dict__["message_kind"], first.__dict__["restarts"]) == (
        "sup/c",
        "Boom",
        1,
    )
    assert first.exc_info is not None
    assert first.exc_info[1] is crashes[0].error
    assert "secret" not in "".join(messages(caplog))
    assert [(crash.path, crash.message_kind, crash.restarts, crash.gave_up) for crash in crashes] == [
        ("sup/c", "Boom", 1, False),
        ("sup/c", "Boom", 2, False),
        ("sup/c", "Boom", 3, False),
    ]
    assert [crash.restart_in_s for crash in crashes] == [0.5, 1.0, 2.0]


async def test_the_budget_is_used_up_after_three_restarts_and_the_system_ends_e14(
    autojump_clock: MockClock, crashes: list[Crash], caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[float] = []

    async def doomed(ctx: Ctx[int]) -> None:
        starts.append(trio.current_time())
        ctx.ready()
        await trio.sleep(0.001)
        raise ValueError("again")

    async with open_system() as system:
        sup = await system.supervise(
            name="sup", restart="transient", intensity=(3, 10.0), backoff=AT_ONCE, on_crash=crashes.append
        )
        ref = await sup.spawn(doomed, name="c")
        down = await ref.join()
        assert (len(starts), down.kind, str(down.error)) == (4, DownKind.CRASHED, "again")
    assert [crash.gave_up for crash in crashes] == [False, False, False, True]
    assert messages(caplog)[3:] == [
        "actor 'sup/c' crashed while handling no message: ValueError; given up after 3 restarts in 10 s"
    ]


@pytest.mark.parametrize("first_s", [0.1, 8.0])
async def test_a_start_that_goes_well_does_not_refill_the_budget_e15(first_s: float, autojump_clock: MockClock) -> None:
    starts: list[int] = []

    async def short(ctx: Ctx[int]) -> None:
        starts.append(1)
        ctx.ready()
        await trio.sleep(0.1)
        raise ValueError

    async with open_system() as system:
        # With a wait of 8 s and more, time that was spent waiting would let each restart leave the window.
        sup = await system.supervise(
            name="sup", restart="transient", intensity=(3, 10.0), backoff=Backoff(first_s=first_s, jitter=0.0)
        )
        ref = await sup.spawn(short)
        await ref.join()
        assert len(starts) == 4


async def test_time_spent_up_refills_the_budget(autojump_clock: MockClock) -> None:
    starts: list[int] = []

    async def steady(ctx: Ctx[int]) -> None:
        starts.append(1)
        ctx.ready()
        await trio.sleep(4)
        raise ValueError

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", intensity=(3, 10.0), backoff=AT_ONCE)
        ref = await sup.spawn(steady)
        await trio.sleep(200)
        assert ref.alive
        assert len(starts) == 50


async def test_a_crash_loop_leaves_the_siblings_and_their_open_asks_alone_e16(autojump_clock: MockClock) -> None:
    async def holding(ctx: Ctx[Get]) -> None:
        message = await ctx.receive()
        await trio.sleep(60)
        message.reply.send(7)
        await ctx.receive()

    answers: list[int] = []
    async with open_system() as system:
        sup = await system.supervise(name="sessions", restart="transient")
        healthy = [await sup.spawn(holding, name=f"S{n}") for n in range(2, 51)]

        async def ask(ref: Ref[Get]) -> None:
            answers.append(await ref.ask(Get()))

        async def looping(ctx: Ctx[int]) -> None:
            ctx.ready()
            raise ValueError

        async with trio.open_nursery() as nursery:
            for ref in healthy:
                nursery.start_soon(ask, ref)
            await wait_all_tasks_blocked()
            down = await (await sup.spawn(looping, name="S1")).join()
            assert down.kind is DownKind.CRASHED
        assert answers == [7] * 49
        assert len(sup.children) == 49


async def test_a_backoff_of_one_child_holds_up_no_other(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        drawn = iter([0.9, 0.0])  # of 10 s: once 18 s, once none
        backoff = Backoff(first_s=10.0, jitter=1.0, draw=lambda: next(drawn))
        sup = await system.supervise(name="sup", restart="transient", backoff=backoff)
        slow, fast = [await sup.spawn(counter, []) for _ in range(2)]
        slow.tell(Boom())
        await wait_all_tasks_blocked()
        fast.tell(Boom())
        await wait_all_tasks_blocked()
        assert await fast.ask(Get()) == 0
        assert trio.current_time() < 1
        assert await slow.ask(Get()) == 0


async def test_what_a_hook_raises_is_logged_and_harms_nobody_e17(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Crash] = []

    def hook(crash: Crash) -> None:
        calls.append(crash)
        raise RuntimeError("hook")

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", backoff=AT_ONCE, on_crash=hook)
        sibling = await sup.spawn(counter, [])
        ref = await sup.spawn(counter, [], name="c")
        ref.tell(Boom())
        ref.tell(Boom())
        await wait_all_tasks_blocked()
        await trio.sleep(1)
        assert await ref.ask(Get()) == 0
        assert sibling.alive
        assert len(calls) == 2
    assert messages(caplog).count("reporting the crash of actor 'sup/c' raised") == 2


async def test_a_log_handler_that_raises_harms_nobody_e17(autojump_clock: MockClock) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("filter")

    broken = Broken()
    logging.getLogger("actors.runtime").addFilter(broken)
    try:
        async with open_system() as system:
            sup = await system.supervise(name="sup", restart="transient", backoff=AT_ONCE)
            ref = await sup.spawn(counter, [])
            ref.tell(Boom())
            await trio.sleep(1)
            assert await ref.ask(Get()) == 0
    finally:
        logging.getLogger("actors.runtime").removeFilter(broken)


@pytest.mark.parametrize("crash", [True, False])
async def test_a_backoff_that_raises_gives_up_that_child_only_e17(
    crash: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def draw() -> float:
        raise ZeroDivisionError

    async def body(ctx: Ctx[int]) -> None:
        async for _ in ctx:
            if crash:
                raise ValueError
            return

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent", backoff=Backoff(draw=draw))
        sibling = await sup.spawn(counter, [])
        ref = await sup.spawn(body, name="c")
        ref.tell(1)
        down = await ref.join()
        assert down.kind is (DownKind.CRASHED if crash else DownKind.RETURNED)
        assert sibling.alive
    if crash:
        assert down.error is not None
        assert "its backoff raised ZeroDivisionError()" in down.error.__notes__
    else:
        assert messages(caplog) == ["actor 'sup/c' returned and is given up: its backoff raised"]


async def test_a_permanent_child_that_keeps_returning_is_given_up(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def body(ctx: Ctx[int]) -> None:
        ctx.ready()
        await trio.sleep(0.1)

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent", intensity=(1, 10.0), backoff=AT_ONCE)
        down = await (await sup.spawn(body, name="c")).join()
        assert down.kind is DownKind.RETURNED
    assert messages(caplog) == [
        "actor 'sup/c' returned; restart 1 in 0.000 s",
        "actor 'sup/c' returned and is given up after 1 restart in 10 s",
    ]


async def test_stop_ends_the_children_and_join_waits_for_them() -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup")
        assert repr(sup) == "<Supervisor 'sup' of 0 children>"
        refs = [await sup.spawn(counter, []) for _ in range(3)]
        assert sup.children == tuple(refs)
        other = await system.spawn(counter, [])
        sup.stop()
        assert sup.closing
        await sup.join()
        assert [(await ref.join()).reason for ref in refs] == ["'sup' was stopped"] * 3
        assert (other.alive, sup.children) == (True, ())
        with pytest.raises(NotAccepting, match=r"^'sup' is closing and starts no more actors$"):
            await sup.spawn(counter, [])
        again = await system.supervise(name="sup")
        assert again is not sup


async def test_names_may_repeat_after_giving_up_and_the_ref_stays_dead(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", intensity=(0, 1.0))
        old = await sup.spawn(counter, [], name="c")
        old.tell(Boom())
        await old.join()
        new = await sup.spawn(counter, [], name="c")
        assert (old.alive, old.tell(1), new.tell(1)) == (False, False, True)
        assert await new.ask(Get()) == 1


async def test_an_error_that_a_restart_got_over_is_not_in_the_end(autojump_clock: MockClock) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient")
        ref = await sup.spawn(counter, [])
        ref.tell(Boom())
        await trio.sleep(1)
        ref.drain()
        assert (await ref.join()).error is None


async def test_a_body_that_returns_before_it_was_ready_is_not_restarted(autojump_clock: MockClock) -> None:
    starts: list[int] = []

    async def job(ctx: Ctx[int]) -> None:
        starts.append(1)

    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="permanent")
        ref = await sup.spawn(job)
        await trio.sleep(60)
        assert (ref.alive, starts) == (False, [1])


async def test_a_child_that_crashes_as_it_is_cancelled_from_outside_is_not_said_to_restart(
    crashes: list[Crash],
) -> None:
    async def body(ctx: Ctx[int]) -> None:
        ctx.ready()
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cleanup")

    with trio.CancelScope() as scope:
        async with open_system(on_crash=crashes.append) as system:
            sup = await system.supervise(name="sup", restart="transient")
            await sup.spawn(body)
            scope.cancel()
    assert [(crash.restart_in_s, crash.gave_up) for crash in crashes] == [(None, False)]
    assert system.statistics().restarts == 0
