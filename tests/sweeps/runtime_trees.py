"""Scenarios of supervision: restarts with a backoff, groups, nested supervisors, dynamic ones, and stops in order."""

from typing import Any

import trio

from actors.runtime import ActorError, Ctx, Ref, Supervisor, System
from actors.testing.sweep import Stage, scenario, twice
from tests.sweeps.runtime_stage import AT_ONCE, SOON, Crashed, Get, Tally, tallied


@scenario(faults=["cancel", "error", "system", "stop", "crash", "sup", "crash,stop", "stop,crash", "crash,sup",
                  *twice("crash"), *twice("crash", "stop")], errors_in="actor *")  # fmt: skip
async def restarts(stage: Stage) -> None:
    """A supervised actor crashes, waits, and is there again with what it was told; its sibling notices nothing."""
    async with tallied(stage) as (system, tally):
        sup = await system.supervise(name="sup", restart="permanent", backoff=SOON, intensity=(9, 10))
        stage.fault("sup", lambda: sup.stop("struck"))
        stage.fault("stop", lambda: tally.stop("one"))
        stage.fault("crash", lambda: tally.tell("one", "crash"))
        with tally.attempt("stop", "sup", "crash"):
            one = await sup.spawn(tally.worker, name="one")
            other = await sup.spawn(tally.careful, name="other", restart="temporary")
            soon = await system.supervise(name="soon", strategy="one_for_all", restart="permanent", backoff=AT_ONCE)
            await soon.spawn(tally.careful, name="slow")  # ends last, and is the first to start again
            quick = await soon.spawn(tally.worker, name="quick")
            one.tell("crash")
            quick.tell("crash")
            await trio.sleep(0.1)
            for ref in (one, other):
                await _answers(ref, tally, "stop", "sup", "crash")
            await trio.sleep(3)
            await _answers(quick, tally)
        stage.withdraw("crash")
        sup.stop("enough")
        await sup.join()
        assert len(tally.crashes) <= 2 + stage.struck.count("crash") + stage.struck.count("error"), "more than crashed"


async def _answers(ref: Ref[Any], tally: Tally, *struck: str) -> None:
    """Check that an actor answers, unless it was struck."""
    with tally.attempt(*struck):
        for _ in range(4):
            try:
                assert await ref.ask(Get(), within=50) == ref.name
                return
            except ActorError:
                if not {*struck, "error", "system"} & {*tally.stage.struck}:
                    raise
                await trio.sleep(2)


@scenario(faults=["cancel", "error", "system", "crash", "inner", "top", "crash,inner", "crash+1:top", "inner+2:crash",
                  "crash+3:cancel"], errors_in="actor *")  # fmt: skip
async def groups(stage: Stage) -> None:
    """A group in a group, where one crash stops and starts them all in order; what is in it is spawned on."""
    async with tallied(stage) as (system, tally):
        top, inner = await _tree(system, tally)
        stage.fault("crash", lambda: tally.tell("b", "crash"))
        stage.fault("inner", lambda: inner.stop("struck"))
        stage.fault("top", lambda: top.stop("struck"))
        tally.tell("b", "crash")
        await trio.sleep(0.1)
        with tally.attempt("crash", "inner", "top"):
            late = await inner.spawn(tally.worker, name="late")
            await _answers(late, tally, "crash", "inner", "top")
        tally.tell("a", "crash")
        await trio.sleep(5)
        for name in ("a", "b", "c"):
            ref = system.registry.lookup(name)
            assert ref is not None or stage.struck, f"{name} is not there again"
            if ref is not None:
                await _answers(ref, tally, "crash", "inner", "top")
        for name in ("crash", "inner", "top"):
            stage.withdraw(name)
        top.stop("enough")
        await top.join()


async def _tree(system: System, tally: Tally) -> tuple[Supervisor, Supervisor]:
    top = await system.supervise(
        name="top", strategy="one_for_all", restart="permanent", backoff=AT_ONCE, intensity=(20, 1.0)
    )
    await top.spawn(tally.worker, name="a")
    inner = await top.supervise(
        name="inner",
        strategy="rest_for_one",
        restart="permanent",
        backoff=SOON,
        intensity=(20, 1.0),
        budget="supervisor",
    )
    await inner.spawn(tally.worker, name="b")
    await inner.spawn(tally.worker, name="c", own_nursery=True)
    return top, inner


@scenario(faults=["cancel", "error", "crash", "crash+1:crash", "crash+2:cancel"], errors_in="actor *")
async def gives_up(stage: Stage) -> None:
    """A nested supervisor gives up and is started again with its children; the next time the system fails with it."""
    try:
        async with tallied(stage) as (system, tally):
            top = await system.supervise(
                name="top", restart="permanent", backoff=SOON, intensity=(1, 1_000), budget="supervisor"
            )
            inner = await top.supervise(
                name="inner", restart="permanent", backoff=AT_ONCE, intensity=(0, 10), budget="supervisor"
            )
            deep = await inner.supervise(name="deep", restart="permanent")
            await inner.spawn(tally.worker, name="first")
            await deep.spawn(tally.worker, name="second")
            stage.fault("crash", lambda: tally.tell("second", "crash"))
            tally.tell("first", "crash")
            await trio.sleep(10)
            tally.tell("first", "crash")
            await trio.sleep(10)
            raise AssertionError("it did not give up")
    except Crashed:
        pass
    except ActorError:
        assert stage.struck


@scenario(faults=["cancel", "error", "system", "sup", "sup,cancel"], errors_in="actor *")
async def stop_chain(stage: Stage) -> None:
    """Children that take their time are stopped one after the other, the last first; one that takes too long holds up
    none for longer than its grace."""
    async with tallied(stage) as (system, tally):
        gone: list[str] = []

        async def slow(ctx: Ctx[Any], seconds: float) -> None:
            with tally.living(ctx.name):
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.move_on_after(seconds, shield=True):
                        await trio.sleep_forever()
                    gone.append(ctx.name)

        sup = await system.supervise(name="sup", stop_grace_s=2)
        stage.fault("sup", lambda: sup.stop("struck"))

        async def ready(ctx: Ctx[Any], seconds: float) -> None:
            ctx.ready()
            await slow(ctx, seconds)

        with tally.attempt("sup"):
            for name, seconds in (("a", 0.5), ("b", 9.0), ("c", 0.5)):
                await sup.spawn(ready, seconds, name=name)
        begun = trio.current_time()
        sup.stop("enough")
        await sup.join()
        assert trio.current_time() - begun <= 9.5, "they were waited for one after the other"
        assert stage.struck or gone == ["c", "a", "b"], gone


@scenario(faults=["cancel", "system", "sup"], seeds=(0,))
async def dynamic(stage: Stage) -> None:
    """More children than are stopped in one slice, of whom some are one too many."""
    async with tallied(stage) as (system, tally):
        sup = await system.supervise(name="sup", max_children=66)

        async def idle(ctx: Ctx[Any]) -> None:
            with tally.living("idle"):
                ctx.ready()
                await trio.sleep_forever()

        refused = 0
        for number in range(67):
            try:
                sup.spawn_nowait(idle, name=f"idle {number}")
            except ActorError:
                refused += 1
        assert refused == 1 or stage.struck
        stage.fault("sup", lambda: sup.stop("struck"))
        sup.stop("enough")
        await sup.join()
        assert tally.begun["idle"] == tally.ended["idle"]
