import gc
import warnings

import pytest
import trio
from trio.testing import MockClock

from actors.runtime import ActorGone, Backoff, Ctx, Down, DownKind, Ref, Replies, open_system
from actors.testing import Fault, count_checkpoints, every_checkpoint, inject, open_probe, run


async def three_waits() -> str:
    await trio.sleep(1)
    await trio.lowlevel.checkpoint()
    await trio.sleep(1)
    return "done"


class Deposit(Replies[int]):
    pass


async def account(ctx: Ctx[Deposit | str]) -> None:
    total = 0
    await trio.sleep(0.1)
    ctx.ready()
    async for message in ctx:
        if isinstance(message, Deposit):
            await trio.sleep(0.5)
            total += 1
            message.reply.send(total)


async def bank() -> list[int]:
    """Two tasks ask one supervised actor."""
    answers: list[int] = []
    async with open_system() as system:
        supervisor = await system.supervise(name="all", restart="permanent", backoff=Backoff(0.1, jitter=0.5))
        ref: Ref[Deposit | str] = await supervisor.spawn(account, name="account")

        async def ask() -> None:
            answers.append(await ref.ask(Deposit(), within=10))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
    return answers


# ---- counting


def test_each_wait_of_a_scenario_is_one_checkpoint() -> None:
    counting = count_checkpoints()
    assert run(three_waits, fault=counting) == "done"
    assert counting.count == 3
    assert every_checkpoint(three_waits) == range(1, 4)


async def test_what_cannot_be_interrupted_does_not_count(autojump_clock: MockClock) -> None:
    with count_checkpoints() as counting:
        await trio.lowlevel.cancel_shielded_checkpoint()
        assert counting.count == 0
        await trio.lowlevel.checkpoint()
        assert counting.count == 1


async def test_a_look_that_does_not_wait_is_a_checkpoint(autojump_clock: MockClock) -> None:
    lock = trio.Lock()
    with count_checkpoints() as counting:
        await trio.lowlevel.checkpoint_if_cancelled()
        assert counting.count == 1
        async with lock:  # looks, takes it, and lets others run
            assert counting.count == 2


async def test_a_cancel_at_a_look_is_seen_there(autojump_clock: MockClock) -> None:
    lock = trio.Lock()
    with inject(2, "cancel") as fault:
        await trio.lowlevel.checkpoint_if_cancelled()
        await lock.acquire()
        pytest.fail("it was cancelled before")
    assert fault.cancelled
    assert not lock.locked()


async def test_an_error_at_a_look_is_raised_there(autojump_clock: MockClock) -> None:
    lock = trio.Lock()
    with inject(1, OSError("gone")) as fault:
        with pytest.raises(OSError, match=r"^gone$"):
            await lock.acquire()
    assert fault.struck
    assert not lock.locked()


async def test_a_function_is_called_at_a_look_while_the_task_stands_still(autojump_clock: MockClock) -> None:
    lock = trio.Lock()
    seen: list[bool] = []
    with inject(1, lambda: seen.append(lock.locked())):
        await lock.acquire()
    assert seen == [False]


def test_the_loop_over_messages_looks_before_each() -> None:
    async def count_down(ctx: Ctx[int]) -> None:
        async for number in ctx:
            if not number:
                return

    async def main() -> None:
        async with open_system() as system:
            ref = await system.spawn(count_down, name="it")
            for number in reversed(range(20)):
                ref.tell(number)
            await ref.join()

    assert len(every_checkpoint(main, tasks="actor it")) > 20
    for n in every_checkpoint(main, tasks="actor it"):
        run(main, fault=inject(n, "cancel", tasks="actor it"))


async def test_tasks_that_end_and_trios_own_do_not_count(autojump_clock: MockClock) -> None:
    async def nothing() -> None:
        pass

    with count_checkpoints() as counting:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nothing)
            nursery.start_soon(nothing)
            for _ in range(3):
                trio.lowlevel.current_trio_token().run_sync_soon(nothing.__name__.upper)
    assert counting.count == 1  # the end of the nursery


async def test_only_tasks_of_the_given_name_count(autojump_clock: MockClock) -> None:
    with count_checkpoints(tasks="b?") as counting:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(three_waits, name="a1")
            nursery.start_soon(three_waits, name="b1")
            nursery.start_soon(three_waits, name="b2")
    assert counting.count == 6


async def test_after_its_block_nothing_is_counted(autojump_clock: MockClock) -> None:
    with count_checkpoints() as counting:
        await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
    assert counting.count == 1
    assert repr(counting) == "<Fault counting, 1 so far>"


@pytest.mark.parametrize("seed", range(5))
def test_the_count_and_what_is_struck_repeat_with_the_seed(seed: int) -> None:
    numbers = every_checkpoint(bank, seed=seed)
    assert numbers == every_checkpoint(bank, seed=seed)
    assert len(numbers) > 8
    for _ in range(2):
        struck: list[str | None] = []
        for n in numbers:
            fault = inject(n, int)  # a function without effect
            assert run(bank, seed=seed, fault=fault) == [1, 2]
            assert fault.count == len(numbers)
            struck.append(fault.struck)
        assert "actor all/account" in struck
        assert "bank" in struck
        assert struck.count("actor all/account") == len(every_checkpoint(bank, seed=seed, tasks="actor all/account"))


# ---- errors


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_nth_wait_raises_the_error(n: int) -> None:
    error = OSError("disk full")
    fault = inject(n, error)
    with pytest.raises(OSError, match=r"^disk full") as caught:
        run(three_waits, fault=fault)
    assert caught.value is error
    assert (fault.count, fault.struck) == (n, "three_waits")


def test_a_class_of_error_says_where_it_was_injected() -> None:
    with pytest.raises(ConnectionError, match=r"^injected at checkpoint 2"):
        run(three_waits, fault=inject(2, ConnectionError))


async def test_a_scenario_may_go_on_after_the_error(autojump_clock: MockClock) -> None:
    with inject(1, OSError()) as fault:
        with pytest.raises(OSError):
            await trio.sleep_forever()
        await three_waits()
    assert fault.count == 4


async def test_an_error_strikes_the_task_that_waits_and_no_other(autojump_clock: MockClock) -> None:
    raised: list[str] = []

    async def one(name: str) -> None:
        try:
            await trio.sleep(1)
        except OSError:
            raised.append(name)

    with inject(1, OSError(), tasks="second"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "first", name="first")
            nursery.start_soon(one, "second", name="second")
    assert raised == ["second"]


@pytest.mark.parametrize("seed", [0, 1])
def test_whichever_wait_of_an_actor_fails_it_is_restarted_and_nobody_hangs(seed: int) -> None:
    tasks = "actor all/account"
    outcomes: set[str] = set()
    numbers = every_checkpoint(bank, seed=seed, tasks=tasks)
    for n in numbers:
        try:
            answers = run(bank, seed=seed, fault=inject(n, OSError("disk full"), tasks=tasks))
        except* ActorGone as group:
            outcomes.update(f"gone: {error.__cause__}" for error in group.exceptions)
        except* OSError:
            outcomes.add("never started")
        else:
            outcomes.add("answered")
            assert answers == [1, 2]
    assert {"gone: disk full", "never started"} <= outcomes <= {"gone: disk full", "never started", "answered"}


def test_a_resource_that_is_not_given_back_is_found_at_exactly_its_waits() -> None:
    taken: list[str] = []

    async def careless() -> None:
        await trio.sleep(1)
        taken.append("it")
        await trio.sleep(1)  # 2
        await trio.lowlevel.checkpoint()  # 3
        taken.clear()
        await trio.sleep(1)

    leaks: list[int] = []
    for n in every_checkpoint(careless):
        with pytest.raises(OSError):
            run(careless, fault=inject(n, OSError))
        if taken:
            leaks.append(n)
            taken.clear()
    assert leaks == [2, 3]


# ---- cancels and functions


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_cancel_is_that_of_the_whole_run(n: int) -> None:
    fault = inject(n, "cancel")
    assert run(three_waits, fault=fault) is None
    assert fault.cancelled
    assert fault.count >= n


async def test_a_cancel_is_that_of_the_block_and_says_why(autojump_clock: MockClock) -> None:
    said: list[str] = []

    async def listen() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            said.append(str(cancelled))
            raise

    with inject(2, "cancel") as fault:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            nursery.start_soon(listen)
    assert fault.cancelled
    assert len(said) == 2
    assert "injected at checkpoint 2" in said[0]
    await trio.lowlevel.checkpoint()  # outside nothing is cancelled


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_system_ends_cleanly_whenever_it_is_cancelled(seed: int) -> None:
    """Each run is checked for messages that are not accounted for, and for names and actors that are left."""
    for n in every_checkpoint(bank, seed=seed):
        fault = inject(n, "cancel")
        assert run(bank, seed=seed, fault=fault) in (None, [1, 2])
        assert fault.struck is not None


def test_a_function_is_called_at_the_nth_checkpoint() -> None:
    async def stopped_at(n: int | None) -> tuple[Down, int]:
        async with open_system() as system:
            ref = await system.spawn(account, name="account")
            async with open_probe(system, name="probe") as probe:
                probe.watch(ref)
                fault = count_checkpoints() if n is None else inject(n, lambda: ref.stop("enough"))
                with fault:
                    ref.tell("nothing")
                    ref.tell(Deposit())
                    await trio.sleep(1)
                ref.stop("at last")
                return await probe.expect(Down), fault.count

    down, count = run(stopped_at, None, seed=1)
    assert (down.reason, down.kind) == ("at last", DownKind.STOPPED)
    assert count > 2
    for n in range(1, count + 1):
        down, _ = run(stopped_at, n, seed=1)
        assert down.reason == "enough"


async def test_what_the_function_raises_comes_out_of_the_block(autojump_clock: MockClock) -> None:
    def broken() -> None:
        raise ZeroDivisionError("mine")

    fault = inject(1, broken)
    with pytest.raises(ZeroDivisionError, match=r"^mine$"):
        with fault:
            await three_waits()
    assert fault.count == 3


async def test_what_the_block_raises_comes_before_what_the_function_raised(autojump_clock: MockClock) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(KeyError):
        with inject(1, broken):
            await trio.lowlevel.checkpoint()
            raise KeyError


async def test_errors_beside_the_cancel_come_out(autojump_clock: MockClock) -> None:
    async def broken() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError

    fault = inject(2, "cancel")
    with pytest.RaisesGroup(ValueError):
        with fault:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broken)
                await trio.sleep_forever()
    assert fault.cancelled


# ---- misuse


def test_a_checkpoint_that_is_never_reached_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"^checkpoint 4 was never reached: there were 3"):
        run(three_waits, fault=inject(4, OSError))


async def test_the_scenarios_own_error_comes_before_that(autojump_clock: MockClock) -> None:
    with pytest.raises(KeyError):
        with inject(4, OSError):
            raise KeyError


@pytest.mark.parametrize("n", [0, -1])
def test_checkpoints_count_from_one(n: int) -> None:
    with pytest.raises(ValueError, match=rf"^checkpoints count from 1, not {n}$"):
        inject(n, OSError)


def test_another_word_than_cancel_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^'kill' is no fault; one is an error, a function, or 'cancel'$"):
        inject(1, "kill")  # type: ignore[arg-type]


async def test_a_fault_is_used_once(autojump_clock: MockClock) -> None:
    with inject(1, int) as fault:
        await trio.lowlevel.checkpoint()
    with pytest.raises(RuntimeError):
        with fault:
            pass
    await trio.lowlevel.checkpoint()
    assert fault.count == 1
    assert isinstance(fault, Fault)
    assert repr(fault) == "<Fault <class 'int'> at checkpoint 1, 1 so far>"


def test_an_injected_error_leaves_no_coroutine_behind() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in every_checkpoint(bank, seed=4):
            try:
                run(bank, seed=4, fault=inject(n, "cancel"))
            finally:
                gc.collect()
