"""Scenarios of what there is beside actors: mailboxes without one, names, blocking functions, the clock."""

import trio

from actors.runtime import (
    Ctx,
    MailboxFull,
    MailboxReceiveChannel,
    MailboxSendChannel,
    NotAccepting,
    open_mailbox,
)
from actors.testing.sweep import Stage, scenario
from tests.sweeps.runtime_stage import tallied


@scenario(faults=["cancel", "error", "close", "close,cancel"], errors_in="*.give*")
async def channel(stage: Stage) -> None:
    """A mailbox without an actor, between tasks: senders that wait, one that gives up, ends that are closed."""
    picky: tuple[MailboxSendChannel[int], MailboxReceiveChannel[int]] = open_mailbox(1, "reject")
    await picky[0].send(1)
    try:
        await picky[0].send(2)
        raise AssertionError("there is no room")
    except MailboxFull:
        assert await picky[1].receive() == 1
    ends: tuple[MailboxSendChannel[int], MailboxReceiveChannel[int]] = open_mailbox(1)
    to, receiver = ends
    got: list[int] = []
    put: list[int] = []

    async def give(number: int, patience: float) -> None:
        with to.clone() as end, trio.move_on_after(patience):
            try:
                await end.send(number)
                put.append(number)
            except trio.BrokenResourceError:
                assert "close" in stage.struck

    stage.fault("close", receiver.close)
    try:
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(give, number, 100 if number else 0.5)
            await trio.sleep(1)
            await to.aclose()
            try:
                async for number in receiver:
                    got.append(number)
            except trio.ClosedResourceError:
                assert "close" in stage.struck
    finally:
        with trio.CancelScope(shield=True):
            await receiver.aclose()
            await to.aclose()
    assert stage.struck or sorted(got) == sorted(put), f"{put} were sent and {got} received"


@scenario(faults=["cancel", "error", "system", "stop", "stop,system"], errors_in="actor *")
async def names(stage: Stage) -> None:
    """Some wait for a name: they get its actor, at once where there is one, or hear that the system closes."""
    async with tallied(stage) as (system, tally):
        found: list[str] = []

        async def wait(name: str, patience: float) -> None:
            with trio.move_on_after(patience):
                try:
                    ref = await system.registry.wait_for(name)
                    found.append(ref.name)
                except NotAccepting:
                    found.append("closed")

        async with trio.open_nursery() as nursery:
            for patience in (0.5, 1_000, 1_000):
                nursery.start_soon(wait, "late", patience)
            await trio.sleep(1)
            with tally.attempt():
                late = await system.spawn(tally.worker, name="late")
                stage.fault("stop", lambda: late.stop("struck"))
                await wait("late", 1)
            if stage.struck:
                system.stop("nobody comes any more")
        system.stop("enough")
        await wait("nobody", 1)
        assert stage.struck or found == ["late", "late", "late", "closed"], found


@scenario(faults=["cancel", "error", "system", "stop"], errors_in="actor *")
async def threads(stage: Stage) -> None:
    """Actors call blocking functions; how many times a function has run is how often its call was made."""
    calls: list[int] = []
    async with tallied(stage) as (system, tally):

        async def caller(ctx: Ctx[int]) -> None:
            with tally.living(ctx.name):
                async for number in ctx:
                    await system.threads.run_sync(calls.append, number)

        refs = [await system.spawn(caller, name=f"caller {number}") for number in range(2)]
        stage.fault("stop", lambda: refs[0].stop("struck"))
        for number in range(3):
            for ref in refs:
                with tally.attempt("stop"):
                    await ref.send(number)
        for ref in refs:
            ref.drain()
        downs = [await ref.join() for ref in refs]
        assert len(calls) <= sum(down.handled for down in downs)
        assert stage.struck or sorted(calls) == [0, 0, 1, 1, 2, 2]


@scenario(faults=["cancel"], seeds=(0,))
async def timers(stage: Stage) -> None:
    """So many things are due in one instant that the clock lets others run."""
    async with tallied(stage) as (system, _):
        rung: list[int] = []
        for number in range(130):
            system.call_later(5, lambda number=number: rung.append(number))  # type: ignore[misc]
        await trio.sleep(4)
        assert not rung
        await trio.sleep(2)
        assert rung == [*range(130)], "what is due is due in order"
