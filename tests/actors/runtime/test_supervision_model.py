"""A real supervisor against a model of it that knows nothing of tasks: any sequence of what may happen, step by step.

Trio runs as a guest of the test, so that each step of Hypothesis ends when everything waits. Time is virtual and jumps
from one event of the model to the next.
"""

import queue
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import outcome
import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import ActorGone, Backoff, Ctx, DownKind, NameTaken, Ref, Replies, Supervisor, System, open_system
from actors.testing import check_conservation

NAMES = "abcd"
LIMIT, WINDOW_S, BACKOFF_S = 2, 16.0, 1.0
STRATEGIES = st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"])
RESTARTS = st.sampled_from(["permanent", "transient", "transient", "temporary"])


@dataclass(frozen=True)
class Say:
    pass


@dataclass(frozen=True)
class Hold:
    seconds: float


@dataclass(frozen=True)
class Fail:
    pass


@dataclass(frozen=True)
class Leave:
    pass


@dataclass(eq=False)
class Get(Replies[int]):
    number: int = 0


async def body(ctx: Ctx[Any]) -> None:
    said = 0
    async for message in ctx:
        match message:
            case Say():
                said += 1
            case Hold(seconds):
                await trio.sleep(seconds)
            case Get():
                message.reply.send(said)
            case Fail():
                raise ValueError(ctx.name)
            case _:
                return


@dataclass(eq=False)
class Child:
    """What the model knows of one actor."""

    name: str
    restart: str
    queue: deque[Any] = field(default_factory=deque)
    life: str = "up"  # up, down (waits for its next start), ended
    said: int = 0
    draining: bool = False
    busy_until: float | None = None
    handled: int = 0
    accepted: int = 0
    rejected: int = 0
    returned: int = 0
    restarts: int = 0
    times: list[float] = field(default_factory=list)
    down_since: float = 0.0
    up_since: float = -1.0
    paused_s: float = 0.0
    kind: DownKind | None = None


@dataclass
class Model:
    """The rules, as the documentation has them."""

    strategy: str
    shared: bool
    now: float = 0.0
    children: list[Child] = field(default_factory=list)  # in the order of their start; the ended are taken out
    answers: dict[int, object] = field(default_factory=dict)
    due: dict[Child, float] = field(default_factory=dict)  # next starts; those of a group have one time
    times: list[float] = field(default_factory=list)
    gave_up: Child | None = None
    tied: list[Child] = field(default_factory=list)  # to start in the very instant of the give-up

    def end(self, child: Child, kind: DownKind) -> None:
        child.life, child.kind, child.busy_until = "ended", kind, None
        self.children.remove(child)
        self.due.pop(child, None)
        self.give_back(child, lambda message: True)

    def give_back(self, child: Child, which: Callable[[Any], bool]) -> None:
        for message in list(child.queue):
            if which(message):
                child.queue.remove(message)
                child.returned += 1
                if isinstance(message, Get):
                    self.answers[message.number] = "gone"

    def go_down(self, child: Child) -> None:
        child.life, child.busy_until, child.down_since = "down", None, self.now
        child.restarts += 1
        self.give_back(child, lambda message: isinstance(message, Get))

    def admits(self, child: Child) -> bool:
        at = self.now if self.shared else self.now - child.paused_s
        times = self.times if self.shared else child.times
        times[:] = [t for t in times if at - t < WINDOW_S]
        if len(times) >= LIMIT:
            return False
        times.append(at)
        return True

    def fails(self, child: Child, kind: DownKind, *, wanted: bool) -> None:
        if not wanted:
            self.end(child, kind)
        elif self.admits(child):
            self.restart(child)
        else:
            self.end(child, kind)
            if self.shared or self.strategy != "one_for_one":
                self.gave_up = child
                self.tied = [
                    c for c in self.children if c.up_since == self.now or self.due.get(c, self.now + 1) <= self.now
                ]
                for other in reversed(list(self.children)):
                    self.end(other, DownKind.STOPPED)

    def restart(self, child: Child) -> None:
        self.go_down(child)
        self.due[child] = self.now + BACKOFF_S
        if self.strategy == "one_for_one":
            return
        first = 0 if self.strategy == "one_for_all" else self.children.index(child)
        for other in reversed(self.children[first:]):
            if other.life == "up" and other.restart == "temporary":
                self.end(other, DownKind.STOPPED)
            elif other.life == "up":
                self.go_down(other)
        for other in self.children:
            if other.life == "down":
                self.due[other] = self.now + BACKOFF_S

    def send(self, child: Child, message: Any) -> None:
        if child.life == "ended" or child.draining:
            child.rejected += 1
            if isinstance(message, Get):
                self.answers[message.number] = "gone"
            return
        child.accepted += 1
        child.queue.append(message)
        self.work(child)

    def work(self, child: Child) -> None:
        """Handle messages until something takes time."""
        while child.life == "up" and child.busy_until is None:
            if not child.queue:
                if child.draining:
                    self.end(child, DownKind.DRAINED)
                return
            message = child.queue.popleft()
            child.handled += 1
            match message:
                case Say():
                    child.said += 1
                case Hold(seconds):
                    child.busy_until = self.now + seconds
                case Get():
                    self.answers[message.number] = child.said
                case Fail():
                    self.fails(child, DownKind.CRASHED, wanted=child.restart != "temporary")
                case _ if child.draining:
                    self.end(child, DownKind.DRAINED)
                case _:
                    self.fails(child, DownKind.RETURNED, wanted=child.restart == "permanent")

    def start(self, child: Child) -> None:
        child.life, child.said, child.up_since = "up", 0, self.now
        child.paused_s += self.now - child.down_since
        self.due.pop(child, None)
        self.work(child)

    def next_event(self) -> float | None:
        times = [*self.due.values(), *(c.busy_until for c in self.children if c.busy_until is not None)]
        return min(times, default=None)

    def happen(self) -> None:
        """Do what is due now. In a group the first starts first, and what it does then may end the others' start."""
        for child in list(self.children):
            if child.busy_until is not None and child.busy_until <= self.now:
                child.busy_until = None
                self.work(child)
        while ready := [c for c in self.children if self.due.get(c, self.now + 1) <= self.now]:
            self.start(ready[0])
            if len(ready) > 1 and ready[1].life == "down" and self.due[ready[1]] > self.now:
                # Its start had been ordered, and is taken back before its body runs: a life without length.
                ready[1].paused_s += self.now - ready[1].down_since
                self.go_down(ready[1])


class Guest:
    """Trio, run step by step."""

    def __init__(self, main: Callable[["Guest"], Awaitable[None]]) -> None:
        self.clock = MockClock()
        self.result: outcome.Outcome[None] | None = None
        self._jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._idle = False
        self._next: trio.MemorySendChannel[Callable[[], Awaitable[None]]]

        async def run() -> None:
            self._token = trio.lowlevel.current_trio_token()
            await main(self)

        trio.lowlevel.start_guest_run(
            run,
            run_sync_soon_threadsafe=self._jobs.put,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
            clock=self.clock,
        )
        self._until_idle()

    def _done(self, result: outcome.Outcome[None]) -> None:
        self.result = result

    async def serve(self) -> None:
        self._next, todo = trio.open_memory_channel[Callable[[], Awaitable[None]]](1)
        self._idle = True
        async for act in todo:
            await act()
            await wait_all_tasks_blocked()
            self._idle = True

    def step(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do it, and return when everything waits, or all has ended."""
        if self.result is None:
            self._idle = False
            self._token.run_sync_soon(self._next.send_nowait, act)
            self._until_idle()

    def close(self) -> None:
        if self.result is None:
            self._idle = False
            self._token.run_sync_soon(self._next.close)
            self._until_idle()
        assert self.result is not None

    def _until_idle(self) -> None:
        while not self._idle and self.result is None:
            self._jobs.get(timeout=20)()


class Supervision(RuleBasedStateMachine):
    system: System
    sup: Supervisor

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0
        self.over = False
        self.guest: Guest | None = None

    @initialize(strategy=STRATEGIES, shared=st.booleans(), restarts=st.tuples(RESTARTS, RESTARTS, RESTARTS))
    def begin(self, strategy: Any, shared: bool, restarts: tuple[str, ...]) -> None:
        self.model = Model(strategy, shared)
        self.refs: list[tuple[Ref[Any], Child]] = []
        self.got: dict[int, object] = {}
        self.downs: list[str] = []
        self.over = False

        async def main(guest: Guest) -> None:
            async with open_system(on_down=lambda down: self.downs.append(f"{down.name} {down.kind}")) as self.system:
                self.sup = await self.system.supervise(
                    name="sup",
                    strategy=strategy,
                    intensity=(LIMIT, WINDOW_S),
                    budget="supervisor" if shared else "child",
                    backoff=Backoff(BACKOFF_S, factor=1.0, jitter=0.0),
                )
                async with trio.open_nursery() as self.askers:
                    await guest.serve()
                    self.askers.cancel_scope.cancel()  # no time passes any more, and those who are asked may hold

        self.guest = Guest(main)
        for name, restart in zip(NAMES, restarts, strict=False):
            self.spawn_one(name, restart)

    @precondition(lambda self: self.over)
    @rule(strategy=STRATEGIES, shared=st.booleans(), restarts=st.tuples(RESTARTS, RESTARTS, RESTARTS))
    def begin_again(self, strategy: Any, shared: bool, restarts: tuple[str, ...]) -> None:
        self.teardown()
        self.begin(strategy, shared, restarts)

    def step(self, act: Callable[[], object]) -> None:
        async def do() -> None:
            act()

        assert self.guest is not None
        self.guest.step(do)
        if self.guest.result is not None:
            self.over = True

    @precondition(lambda self: not self.over and not (self.model.strategy != "one_for_one" and self.model.due))
    @rule(name=st.sampled_from(NAMES), restart=RESTARTS)
    def spawn(self, name: str, restart: str) -> None:
        self.spawn_one(name, restart)

    def spawn_one(self, name: str, restart: Any) -> None:
        taken = any(child.name == name for child in self.model.children)

        async def do() -> None:
            if taken:
                with pytest.raises(NameTaken):
                    await self.sup.spawn(body, name=name, restart=restart)
                return
            ref = await self.sup.spawn(body, name=name, restart=restart)
            child = Child(name, restart)
            self.model.children.append(child)
            self.refs.append((ref, child))

        assert self.guest is not None
        self.guest.step(do)

    def pick(self, data: st.DataObject) -> tuple[Ref[Any], Child]:
        living = [(ref, child) for ref, child in self.refs if child.life != "ended"]
        # Now and then one that has ended; the longer it lives, the more can go wrong with it.
        number: int = data.draw(st.integers(0, 999))
        those = living if living and number % 10 else self.refs[-4:]
        return those[number // 10 % len(those)]

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    @precondition(lambda self: self.refs and not self.over)
    @rule(data=st.data(), what=st.sampled_from(["say", "leave", "hold", "hold"]))
    def tell(self, data: st.DataObject, what: str) -> None:
        self.tell_one(data, what)

    @precondition(lambda self: self.refs and not self.over)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.tell_one(data, "fail")

    def tell_one(self, data: st.DataObject, what: str) -> None:
        ref, child = self.pick(data)
        # No two holds are equally long, so that no two events are at the same time. All are exact as binary fractions.
        seconds = data.draw(st.sampled_from([0.5, 2.0, 8.0])) + self.number() / 4096 if what == "hold" else 0
        message = {"say": Say(), "fail": Fail(), "leave": Leave(), "hold": Hold(seconds)}[what]
        accepted = child.life != "ended" and not child.draining
        told: list[bool] = []
        self.model.send(child, message)
        self.step(lambda: told.append(ref.tell(message)))
        assert told == [accepted]

    @precondition(lambda self: self.refs and not self.over)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        ref, child = self.pick(data)
        number = self.number()

        async def asker() -> None:
            try:
                self.got[number] = await ref.ask(Get(number))
            except ActorGone:
                self.got[number] = "gone"

        self.model.send(child, Get(number))
        self.step(lambda: self.askers.start_soon(asker))

    @precondition(lambda self: self.refs and not self.over)
    @rule(data=st.data(), sure=st.integers(0, 2))
    def stop(self, data: st.DataObject, sure: int) -> None:
        ref, child = self.pick(data)
        if sure:
            return self.wait(1)
        if child.life != "ended":
            self.model.end(child, DownKind.STOPPED)
        self.step(ref.stop)

    @precondition(lambda self: self.refs and not self.over)
    @rule(data=st.data(), sure=st.integers(0, 2))
    def drain(self, data: st.DataObject, sure: int) -> None:
        ref, child = self.pick(data)
        if sure:
            return self.wait(1)
        if child.life != "ended":
            child.draining = True
            self.model.work(child)
        self.step(ref.drain)

    @precondition(lambda self: not self.over)
    @rule(events=st.integers(1, 3))
    def wait(self, events: int) -> None:
        for _ in range(events):
            at = self.model.next_event()
            self.pass_time(0.25 if at is None else at - self.model.now)

    @precondition(lambda self: not self.over)
    @rule(quarters=st.integers(1, 4))
    def wait_a_little(self, quarters: int) -> None:
        end = self.model.now + quarters / 4
        while not self.over and self.model.now < end:
            at = self.model.next_event()
            self.pass_time(min(end, at if at is not None else end) - self.model.now)

    def pass_time(self, seconds: float) -> None:
        if self.over:
            return
        self.model.now += seconds
        self.model.happen()
        assert self.guest is not None
        self.step(lambda: self.guest.clock.jump(seconds) if self.guest is not None else None)

    @precondition(lambda self: len(self.refs) > 4 and not self.over)
    @rule(sure=st.integers(0, 3))
    def stop_the_supervisor(self, sure: int) -> None:
        if sure:
            return self.wait(1)
        for child in reversed(list(self.model.children)):
            self.model.end(child, DownKind.STOPPED)
        self.step(self.sup.stop)
        assert self.sup.ended
        self.compare()
        self.over = True

    @invariant()
    def compare(self) -> None:
        if self.guest is None or (self.over and self.guest.result is None):
            return
        for ref, child in self.refs:
            books = ref.statistics()
            assert (ref.name, ref.alive) == (child.name, child.life != "ended")
            if child in self.model.tied:
                # It started or not, as the scheduler had it; and what it did not handle came back.
                assert (books.accepted, books.handled + books.returned) == (
                    child.accepted,
                    child.handled + child.returned,
                ), child
                continue
            assert (books.handled, books.accepted, books.returned, books.queued) == (
                child.handled,
                child.accepted,
                child.returned,
                len(child.queue),
            ), child
        ended = [f"{c.name} {c.kind}" for _, c in self.refs if c.kind is not None]
        assert sorted(self.downs) == sorted(ended)
        assert self.got == self.model.answers
        assert [ref.name for ref in self.sup.children] == [child.name for child in self.model.children]
        check_conservation(self.system)
        if self.model.gave_up is not None:
            assert isinstance(self.guest.result, outcome.Error)
            crashed = self.model.gave_up.kind is DownKind.CRASHED
            assert type(self.guest.result.error) is (ValueError if crashed else RuntimeError)
            return
        assert self.guest.result is None
        for child in self.model.children:
            ref = next(ref for ref, each in self.refs if each is child)
            assert self.system.registry.lookup(child.name) is ref
        nodes = self.system.tree().children[0].children if not self.sup.ended else ()
        assert [(node.name, node.restarts, node.state == "restarting") for node in nodes] == [
            (child.name, child.restarts, child.life == "down") for child in self.model.children
        ]

    def teardown(self) -> None:
        if self.guest is not None:
            self.guest.close()
            assert self.system.statistics().actors == 0
            assert isinstance(self.guest.result, outcome.Value) is (self.model.gave_up is None)


TestSupervision = Supervision.TestCase
TestSupervision.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
