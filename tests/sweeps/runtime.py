"""Scenarios of the plain actor runtime: asks, full mailboxes, and what an actor has beside its body."""

from typing import Any

import trio

from actors.runtime import (
    ActorGone,
    AskTimeout,
    Ctx,
    Down,
    MailboxFull,
    MessageDropped,
    NotAccepting,
    Ref,
)
from actors.runtime.messages import PlainMessages
from actors.testing.sweep import Stage, scenario, twice
from tests.sweeps.runtime_stage import Get, tallied


@scenario(faults=["cancel", "error", "system", "stop", "scope", "stop,scope", "scope,stop", *twice("scope", "stop")],
          errors_in="actor *")  # fmt: skip
async def asks(stage: Stage) -> None:
    """Asks that are answered, late, passed on, cancelled, and that nobody answers because the actor ends."""
    outcomes: list[str] = []
    async with tallied(stage) as (system, tally):

        async def slow(ctx: Ctx[Get]) -> None:
            with tally.living("slow"):
                async for message in ctx:
                    await trio.sleep(2)
                    message.reply.send("late")

        async def front(ctx: Ctx[Get]) -> None:
            with tally.living("front"):
                async for message in ctx:
                    try:
                        with trio.move_on_after(5):
                            message.reply.send(await back.ask(Get()))
                    except ActorGone as gone:
                        message.reply.fail(gone)

        async def ask(who: Ref[Any], within: float) -> None:
            try:
                outcomes.append(await who.ask(Get(), within=within))
            except AskTimeout:
                outcomes.append("timed out")
            except (ActorGone, NotAccepting):
                assert {"stop", "system", "error"} & {*stage.struck}
                outcomes.append("gone")

        stage.fault("stop", lambda: tally.stop("back"))
        back = await system.spawn(slow, name="back", mailbox_size=1)
        through = await system.spawn(front, name="front", mailbox_size=1)
        with trio.CancelScope() as scope:
            stage.fault("scope", scope.cancel)
            async with trio.open_nursery() as nursery:
                for who, within in ((back, 100.0), (through, 100.0), (back, 3.0), (back, 100.0), (through, 1.0)):
                    nursery.start_soon(ask, who, within)
        stage.withdraw("scope")
        await ask(through, 10)
        assert stage.struck or sorted(outcomes) == ["late", "late", "late", "late", "timed out", "timed out"], outcomes
        back.drain()
        await back.join()


@scenario(faults=["cancel", "error", "system", "stop", "drain", "stop,drain", "scope,stop"], errors_in="actor *")
async def full(stage: Stage) -> None:
    """Senders wait for room, an actor among them; one gives up, the others have their turn or hear of the end."""
    taken: list[int] = []
    sent: list[int] = []
    async with tallied(stage) as (system, tally):

        async def taker(ctx: Ctx[int]) -> None:
            with tally.living("taker"):
                while True:
                    await trio.sleep(1)
                    try:
                        taken.append(await ctx.receive())
                    except trio.EndOfChannel:
                        return

        async def sender(ctx: Ctx[int]) -> None:
            with tally.living("sender"):
                async for number in ctx:
                    await send(number)

        async def send(number: int) -> None:
            try:
                await ref.send(number)
                sent.append(number)
            except (ActorGone, NotAccepting):
                assert {"stop", "drain", "system", "error"} & {*stage.struck}

        ref = await system.spawn(taker, name="taker", mailbox_size=1)
        stage.fault("stop", lambda: ref.stop("struck"))
        stage.fault("drain", ref.drain)
        beside = await system.spawn(sender, name="sender")
        beside.tell(100)
        with trio.move_on_after(2.5) as scope:
            stage.fault("scope", scope.cancel)
            async with trio.open_nursery() as nursery:
                for number in range(6):
                    nursery.start_soon(send, number)
        beside.drain()
        await beside.join()
        ref.drain()
        await ref.join()
        assert {*taken} <= {*sent}, "a message was handled that was not accepted"
        assert stage.struck or {*taken} == {*sent}, f"lost were {[*{*sent} - {*taken}]}"


@scenario(faults=["cancel", "error", "system", "stop"], errors_in="actor *")
async def many(stage: Stage) -> None:
    """So many messages that both ends let others run; and mailboxes that reject, and that drop."""
    async with tallied(stage) as (system, tally):

        async def counter(ctx: Ctx[Any]) -> None:
            messages = PlainMessages(ctx.self.for_runtime()) if ctx.name == "plain" else ctx
            with tally.living(ctx.name):
                async for message in messages:
                    if isinstance(message, Get):
                        await trio.sleep(0.1)
                        message.reply.send("in time")
                    elif message == 0:
                        await trio.sleep(1)  # the others are queued meanwhile

        refs = [
            await system.spawn(counter, name="quick"),
            await system.spawn(counter, name="plain"),
            await system.spawn(counter, name="picky", mailbox_size=1, overflow="reject"),
            await system.spawn(counter, name="hasty", mailbox_size=1, overflow="drop_oldest"),
        ]
        stage.fault("stop", lambda: refs[0].stop("struck"))
        for number in range(40):
            with tally.attempt("stop"):
                await refs[0].send(number)
            refs[1].tell(number)
        await trio.sleep(2)
        refused = 0
        for ref in refs[2:]:
            async with trio.open_nursery() as nursery:

                async def ask(ref: Ref[Any] = ref) -> None:
                    nonlocal refused
                    try:
                        with tally.attempt():
                            await ref.ask(Get())
                    except (MailboxFull, MessageDropped):
                        refused += 1

                for _ in range(4):
                    nursery.start_soon(ask)
        assert stage.struck or refused, "there was room for all"
        with tally.attempt():
            refs[2].tell("x")
            try:
                await refs[2].send("y")
            except MailboxFull:
                assert stage.struck


@scenario(faults=["cancel", "error", "system", "stop", "crash", "crash,stop", "stop+1:cancel", "crash+2:stop"],
          errors_in="*actor parted*")  # fmt: skip
async def parts(stage: Stage) -> None:
    """An actor with tasks, timers, a watch, cleanup and a nursery; whatever ends it, all of it ends in order."""
    async with tallied(stage) as (system, tally):
        seen: list[object] = []

        async def work(name: str, seconds: float) -> str:
            with tally.living(name):
                await trio.sleep(seconds)
                return name

        async def clean(ctx: Ctx[Any], name: str) -> None:
            with tally.living(name):
                ctx.spawn(work, f"after {name}", 1_000, result=str)
                await trio.sleep(1)
                ctx.spawn(work, f"behind {name}", 1_000, result=str)  # the hook ends before this has begun

        async def parted(ctx: Ctx[Any]) -> None:
            with tally.living("parted"):
                ctx.on_stop(clean, ctx, "first", within=3)
                ctx.on_stop(clean, ctx, "second", within=0.5)
                ctx.watch(other)
                ctx.after(2, "after")
                every = ctx.every(3, "every")
                ctx.spawn(work, "quick", 1, result=str)
                ctx.spawn(work, "long", 1_000, result=str)
                ctx.nursery.start_soon(work, "beside", 1_000)
                async for message in ctx:
                    seen.append(message)
                    if message == "crash":
                        raise ValueError(message)
                    if isinstance(message, Down):
                        every.cancel()
                        return

        other = await system.spawn(tally.worker, name="other")
        ref = await system.spawn(parted, name="parted", own_nursery=True)
        stage.fault("stop", lambda: ref.stop("struck"))
        stage.fault("crash", lambda: ref.tell("crash"))
        await trio.sleep(4)
        other.stop("enough")
        down = await ref.join()
        # An error may have struck the very wait for its tasks, before the cleanup.
        assert tally.begun["first"] == tally.begun["parted"] or "error" in stage.struck, "cleanup did not run once"
        kinds = [message for message in seen if isinstance(message, str)]
        assert stage.struck or kinds == ["quick", "after", "every"], seen
        assert stage.struck or (isinstance(seen[-1], Down) and down.error is None)
