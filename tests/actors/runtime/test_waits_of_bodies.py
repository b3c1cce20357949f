"""Waits of an actor's body that are no asks, and would close a cycle all the same."""

import pytest
import trio
from trio.testing import MockClock

from actors.runtime import AskCycle, Ctx, Ref, Replies, Supervisor, System, open_system


class Get(Replies[int]):
    pass


class Go(Replies[str]):
    pass


async def test_a_start_that_asks_its_spawner_fails_at_once_r9(autojump_clock: MockClock) -> None:
    async def child(ctx: Ctx[object], parent: Ref[Get | Go]) -> None:
        await parent.ask(Get())

    async def parent(ctx: Ctx[Get | Go]) -> None:
        async for message in ctx:
            if isinstance(message, Go):
                try:
                    await ctx.system.spawn(child, ctx.self, name="child")
                except AskCycle as cycle:
                    message.reply.send(str(cycle))
            else:
                message.reply.send(1)

    async with open_system() as system:
        ref = await system.spawn(parent, name="parent")
        assert await ref.ask(Go()) == "ask cycle: child asks parent asks child"
        assert await ref.ask(Get()) == 1
        assert trio.current_time() == 0


async def test_who_is_waited_for_to_end_cannot_ask_who_waits_r9(autojump_clock: MockClock) -> None:
    async def waits(ctx: Ctx[Get | Go], other: Ref[Go]) -> None:
        ctx.ready()
        await other.join()

    async def asks(ctx: Ctx[Go]) -> None:
        async for message in ctx:
            waiter = ctx.system.registry.lookup("waits")
            assert waiter is not None
            with pytest.raises(AskCycle, match=r"^ask cycle: asks asks waits asks asks$"):
                await waiter.ask(Get())
            message.reply.send("told")

    async with open_system() as system:
        other = await system.spawn(asks, name="asks")
        await system.spawn(waits, other, name="waits")
        await trio.testing.wait_all_tasks_blocked()
        assert system.tree().children[1].waits_for == "asks"
        assert await other.ask(Go()) == "told"


async def test_an_actor_cannot_wait_for_its_own_end_r9(system: System) -> None:
    async def body(ctx: Ctx[int]) -> None:
        ctx.ready()
        await ctx.self.join()

    ref = await system.spawn(body, name="me")
    down = await ref.join()
    assert str(down.error) == "ask cycle: me asks me"


async def test_an_on_end_that_raises_is_logged_and_the_name_is_free(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(ctx: Ctx[int]) -> None:
        ctx.ready()

    def on_end() -> None:
        raise OSError("disk")

    ref = await system.spawn(body, name="w", on_end=on_end)
    await ref.join()
    assert [record.getMessage() for record in caplog.records] == ["the on_end of actor 'w' raised"]
    assert "w" not in system.registry
    assert not ref.alive


async def test_a_restarted_start_that_spawns_into_its_own_group_does_not_wait_for_itself(
    autojump_clock: MockClock,
) -> None:
    starts: list[str] = []
    errors: list[str] = []

    async def body(ctx: Ctx[str], supervisor: Supervisor) -> None:
        starts.append(ctx.name)
        if len(starts) > 1:
            try:
                await supervisor.spawn(body, supervisor)
            except RuntimeError as error:
                errors.append(str(error))
        async for _ in ctx:
            raise ValueError

    async with open_system() as system:
        supervisor = await system.supervise(name="s", strategy="one_for_all", restart="transient")
        ref = await supervisor.spawn(body, supervisor, name="a")
        ref.tell("crash")
        await trio.sleep(5)
        assert ref.alive
    assert errors == ["actor 's/a' spawns a sibling before it is ready, while its group is restarted"]
