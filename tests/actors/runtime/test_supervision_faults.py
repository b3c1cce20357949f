"""Errors, cancels and stops at every single await of a supervised life (R11).

Whatever is hit, and when: nothing hangs, no name, task or timer is left, every end is told once, the books are right.
`run` fails on a hang and on what is left over; the rest is checked here.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio
from trio.lowlevel import checkpoint

from actors.runtime import (
    ActorError,
    Backoff,
    Crash,
    Ctx,
    Down,
    DownKind,
    Ref,
    Replies,
    Supervisor,
    System,
    open_system,
)
from actors.runtime.group import Strategy
from actors.testing import Fault, every_checkpoint, inject, run
from actors.testing.checkpoints import Moment

AT_ONCE = Backoff(first_s=0.0, jitter=0.0)


class Injected(Exception):
    pass


@dataclass
class Get(Replies[str]):
    pass


@dataclass
class Life:
    """What one run of a scenario has seen."""

    downs: list[Down] = field(default_factory=list)
    told: list[Down] = field(default_factory=list)
    watched: list[Ref[Any]] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    raised: list[BaseException] = field(default_factory=list)
    starts: int = 0
    ends: int = 0
    cleanups: int = 0
    tasks_left: int = 0
    system: System | None = None
    sup: Supervisor | None = None

    def strike(self, what: str) -> None:
        """Stop or drain, if it is there already."""
        if what == "system" and self.system is not None:
            self.system.stop("struck")
        elif what == "sup" and self.sup is not None:
            self.sup.stop("struck")
        elif self.sup is not None:
            for ref in self.sup.children:
                if ref.name == what[-1]:
                    ref.drain() if what.startswith("drain") else ref.stop("struck")

    async def worker(self, ctx: Ctx[Any]) -> None:
        self.starts += 1
        ctx.on_stop(self.cleanup, within=3.0)
        try:
            await trio.sleep(0.1)
            await checkpoint()
            ctx.ready()
            async for message in ctx:
                match message:
                    case Get():
                        await trio.sleep(0.1)
                        message.reply.send(ctx.name)
                    case "crash":
                        raise ValueError(ctx.name)
                    case _:
                        await trio.sleep(0.01)
        finally:
            self.ends += 1

    async def cleanup(self) -> None:
        await trio.sleep(0.1)
        await checkpoint()
        self.cleanups += 1

    async def watcher(self, ctx: Ctx[Any]) -> None:
        async for message in ctx:
            if isinstance(message, Down):
                self.told.append(message)
            else:
                ctx.watch(message)
                self.watched.append(message)

    async def around(self, scenario: Callable[[System, Ref[Any]], Awaitable[None]]) -> None:
        """Open a system for the scenario, and look whether everything is as before when it has closed."""
        before = trio.lowlevel.current_statistics().tasks_living
        try:
            async with open_system(on_down=self.downs.append, on_crash=self.crashes.append) as system:
                watcher: Ref[Any] = await system.spawn(self.watcher, name="watcher")
                self.system = system
                try:
                    await scenario(system, watcher)
                except (ActorError, Injected) as error:
                    self.raised.append(error)
        finally:
            self.tasks_left = trio.lowlevel.current_statistics().tasks_living - before

    def check(self) -> None:
        assert self.tasks_left == 0
        assert self.starts == self.ends
        assert max(Counter(down.ref for down in self.downs).values(), default=1) == 1, "one end each"
        assert all(not ref.alive for ref in self.watched)
        assert max(Counter(down.ref for down in self.told).values(), default=1) == 1, "told once"
        # Who watches is the first of the system, and so the last to stop.
        if not any(down.name == "watcher" and down.kind is not DownKind.STOPPED for down in self.downs):
            assert {down.ref for down in self.told} == set(self.watched)


async def grow(life: Life, system: System, watcher: Ref[Any]) -> tuple[Supervisor, dict[str, Ref[Any]]]:
    """A group in a supervisor that restarts it, watched."""
    top = await system.supervise(name="top", restart="transient", intensity=(9, 99.0), backoff=AT_ONCE)
    sup = await top.supervise(
        name="sup", strategy="one_for_all", restart="transient", intensity=(2, 99.0), backoff=Backoff(1.0, jitter=0)
    )
    life.sup = sup
    refs: dict[str, Ref[Any]] = {}
    for name in "abc":
        refs[name] = await sup.spawn(life.worker, name=name)
        await watcher.send(refs[name])
    return sup, refs


async def start_and_stop(life: Life, system: System, watcher: Ref[Any]) -> None:
    sup, refs = await grow(life, system, watcher)
    for ref in refs.values():
        ref.tell(1)
    sup.stop("done")
    await sup.join()


async def restart_a_group(life: Life, system: System, watcher: Ref[Any]) -> None:
    _, refs = await grow(life, system, watcher)
    refs["b"].tell(1)
    refs["b"].tell("crash")
    refs["b"].tell(2)
    await trio.sleep(3)
    await refs["c"].ask(Get(), within=10)


async def escalate(life: Life, system: System, watcher: Ref[Any]) -> None:
    _, refs = await grow(life, system, watcher)
    for _ in range(3):
        refs["a"].tell("crash")
        refs["c"].tell(1)
        await trio.sleep(5)
    again = system.registry.lookup("b")
    if again is not None:
        await watcher.send(again)
        await again.ask(Get(), within=10)


async def drain_all(life: Life, system: System, watcher: Ref[Any]) -> None:
    _, refs = await grow(life, system, watcher)
    for ref in refs.values():
        ref.tell(1)
        ref.tell(2)
        ref.drain()
    for ref in refs.values():
        await ref.join()


SCENARIOS = [start_and_stop, restart_a_group, escalate, drain_all]
Scenario = Callable[[Life, System, Ref[Any]], Awaitable[None]]


def around(life: Life, scenario: Scenario) -> Callable[[], Awaitable[None]]:
    async def supervised_life() -> None:
        await life.around(lambda system, watcher: scenario(life, system, watcher))

    return supervised_life


def checkpoints(scenario: Scenario, tasks: str = "*") -> range:
    return every_checkpoint(around(Life(), scenario), tasks=tasks)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_undisturbed_nothing_is_left(scenario: Scenario) -> None:
    life = Life()
    run(around(life, scenario), seed=0)
    life.check()
    assert life.raised == []
    assert life.cleanups == life.starts
    assert len(life.told) >= 3


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_cancel_from_outside_at_any_moment_leaves_nothing_r11(scenario: Scenario) -> None:
    for n in checkpoints(scenario):
        life = Life()
        run(around(life, scenario), seed=0, fault=inject(n, "cancel"))
        life.check()
        assert life.cleanups == life.starts, n


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("who", ["a", "c"])
def test_an_error_in_a_child_at_any_moment_leaves_nothing_r11(scenario: Scenario, who: str) -> None:
    tasks = f"actor top/sup/{who}"
    for n in own_waits(scenario, tasks):
        life = Life()
        error = Injected(n)
        run(around(life, scenario), seed=0, fault=inject(n, error, tasks=tasks))
        life.check()
        assert all(raised is error for raised in life.raised if isinstance(raised, Injected))
        # It is the crash, or the start's error, or the cleanup's, which is only noted. Who gives up fails with it too.
        assert {crash.error for crash in life.crashes if isinstance(crash.error, Injected)} <= {error}


class OwnWaits(Fault):
    """Notes which checkpoints of a task are waits of its body or its cleanup: only these raise errors of their own."""

    def __init__(self, tasks: str) -> None:
        super().__init__(None, None, tasks)
        self.numbers: list[int] = []

    def _reached(self, moment: Moment) -> None:
        if any(code.co_filename == __file__ for code, _ in moment.frames()):
            self.numbers.append(self.count)


def own_waits(scenario: Scenario, tasks: str) -> list[int]:
    waits = OwnWaits(tasks)
    run(around(Life(), scenario), seed=0, fault=waits)
    assert waits.numbers
    return waits.numbers


@pytest.mark.parametrize(
    ("scenario", "what"),
    [
        *((restart_a_group, what) for what in ("sup", "system", "a", "b", "c", "drain b")),
        *((escalate, what) for what in ("sup", "b")),
        *((start_and_stop, what) for what in ("system", "b", "drain c")),
        *((drain_all, what) for what in ("sup", "b")),
    ],
)
def test_a_stop_of_anything_at_any_moment_leaves_nothing_r11(scenario: Scenario, what: str) -> None:
    for n in checkpoints(scenario):
        life = Life()
        run(around(life, scenario), seed=0, fault=inject(n, partial(life.strike, what)))
        life.check()
        assert life.cleanups == life.starts, n


def test_a_start_that_fails_anywhere_raises_its_cause_and_frees_the_name_r11() -> None:
    life = Life()
    raised: list[tuple[BaseException, list[str]]] = []

    async def scenario(life: Life, system: System, watcher: Ref[Any]) -> None:
        for strategy in (Strategy.ONE_FOR_ONE, Strategy.ONE_FOR_ALL):
            sup = await system.supervise(name=strategy.value, strategy=strategy, restart="permanent")
            for _ in range(2):
                try:
                    ref = await sup.spawn(life.worker, name="a")
                except Injected as error:
                    assert system.registry.lookup("a") is None
                    assert sup.children == ()
                    raised.append((error, error.__notes__))
                    ref = await sup.spawn(life.worker, name="a")
                ref.stop()
                await ref.join()

    for n in every_checkpoint(around(Life(), scenario), tasks="actor */a"):
        life, raised = Life(), []
        error = Injected(n)
        run(around(life, scenario), seed=0, fault=inject(n, error, tasks="actor */a"))
        life.check()
        for caught, notes in raised:
            assert caught is error
            assert (caught.__cause__, caught.__context__) == (None, None)
            assert notes[0] in ("in actor 'one_for_one/a', while starting", "in actor 'one_for_all/a', while starting")
        assert life.raised == []


def test_a_spawner_that_is_cancelled_anywhere_leaves_no_actor_r11() -> None:
    life = Life()
    scopes: list[trio.CancelScope] = []

    async def scenario(life: Life, system: System, watcher: Ref[Any]) -> None:
        sup = await system.supervise(name="sup", strategy="one_for_all", restart="permanent", backoff=AT_ONCE)
        sibling = await sup.spawn(life.worker, name="sibling")
        with trio.CancelScope() as scope:
            scopes[:] = [scope]
            await sup.spawn(life.worker, name="a")
            await trio.sleep(1)
        if scope.cancelled_caught and len(sup.children) == 1:
            assert system.registry.lookup("a") is None
            # Cancelled before its body began, it was never watched.
            ends = [("a", DownKind.CANCELLED)] if life.starts > 1 else []
            assert [(down.name, down.kind) for down in life.downs] == ends
        elif scope.cancelled_caught:
            assert system.registry.lookup("a") is sup.children[1]
        assert sibling.alive
        (await sup.spawn(life.worker, name="z")).stop()

    for n in every_checkpoint(around(Life(), scenario)):
        life = Life()
        run(around(life, scenario), seed=0, fault=inject(n, lambda: [scope.cancel() for scope in scopes]))
        life.check()
        assert life.raised == []
        scopes.clear()


def test_cleanup_that_fails_anywhere_replaces_no_error_and_frees_the_name_r11() -> None:
    async def scenario(life: Life, system: System, watcher: Ref[Any]) -> None:
        sup = await system.supervise(name="sup")
        ref: Ref[Any] = await sup.spawn(life.worker, name="a")
        await watcher.send(ref)
        ref.tell("crash")
        down = await ref.join()
        assert system.registry.lookup("a") is None
        assert isinstance(down.error, (ValueError, Injected))
        if isinstance(down.error, ValueError) and life.cleanups == 0:
            assert "on_stop 'cleanup' raised" in down.error.__notes__[1]

    for n in every_checkpoint(around(Life(), scenario), tasks="actor sup/a"):
        life = Life()
        run(around(life, scenario), seed=0, fault=inject(n, Injected, tasks="actor sup/a"))
        life.check()
