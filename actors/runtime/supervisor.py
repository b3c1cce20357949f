"""Supervisors: who owns a group of actors, and what happens when one of them ends.

It decides about each end once, in one synchronous step: restart after a backoff, end, or give up; and it tells that
decision once. It must not know what actors do. It has no task that could be busy: backoffs and graces are entries of
the system's wheel, so a child that ends while another end is being handled is handled too.

supervising -> stopping -> ended. One that gave up, and that its parent restarts, begins again with new children.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, TypeVarTuple, Union

import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled

from actors.runtime.actor import Actor, Spec
from actors.runtime.context import Ctx
from actors.runtime.errors import NotAccepting, TooManyChildren
from actors.runtime.group import Group, Start, Strategy, StrategyName
from actors.runtime.overflow import Overflow
from actors.runtime.ref import DownKind, Ref
from actors.runtime.reports import Crash, Reports
from actors.runtime.restart import Backoff, Budget, BudgetName, Restart, RestartName, RestartPolicy
from actors.runtime.stopping import StopChain

if TYPE_CHECKING:
    from actors.runtime.system import System

M = TypeVar("M")
Ts = TypeVarTuple("Ts")
Child = Union["Actor[Any]", "Supervisor"]
logger = logging.getLogger("actors.runtime")

#: How many children are stopped before other tasks run, where they stop together: 64 hold the loop for a few ms.
_SLICE = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """What a supervisor is made from, and made again from where the whole of its parent is restarted.

    Attributes:
        policy: When its children are restarted.
        strategy: Whom a crash concerns.
        max_children: How many it may have at a time; None for any number, stopped in order.
        stop_grace_s: How long a child may take to end, in seconds, before the next is stopped.
        on_crash: Told of each crash of a child.
    """

    policy: RestartPolicy = RestartPolicy()
    strategy: Strategy = Strategy.ONE_FOR_ONE
    max_children: int | None = None
    stop_grace_s: float = 5.0
    on_crash: Callable[[Crash], None] | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a child is made again: an actor's spec, or a supervisor's plan with the recipes of its children."""

    name: str
    spec: Spec | None = None
    plan: Plan | None = None
    children: "tuple[Recipe, ...]" = ()


class Supervisor:
    """Owns a group of actors and supervisors. Made by `system.supervise(...)`, or by another supervisor.

    Attributes:
        name: Unique in the system, among actors too.
        policy: Which ends are followed by a restart, how many, and when.
    """

    __slots__ = (
        "_backoff", "_chain", "_children", "_close", "_crashed_with", "_done", "_failure", "_go", "_group", "_plan",
        "_recipes", "_reports", "_settled", "_stop_kind", "_stop_reason", "_times", "interrupted", "name", "nursery",
        "parent", "paused_s", "policy", "restart_times", "restarts", "system",
    )  # fmt: skip
    names_its_own: ClassVar[bool] = True

    def __init__(self, system: "System", name: str, plan: Plan, parent: "Supervisor | None" = None) -> None:
        self.system = system
        self.name = name
        self.parent = parent
        self.policy = plan.policy
        self.nursery: trio.Nursery | None = None
        self.interrupted: str | None = None
        self.restarts = 0
        self.restart_times: tuple[float, ...] = ()
        self.paused_s = 0.0
        self._plan = plan
        self._reports = Reports(system.wheel, name, plan.on_crash)
        self._children: dict[str, Child] = {}
        self._group = Group(plan.strategy) if plan.strategy is not Strategy.ONE_FOR_ONE else None
        self._settled = trio.lowlevel.ParkingLot()  # who waits until a group has been restarted
        self._times: tuple[float, ...] = ()  # of all restarts, where they share one budget
        self._backoff: _GroupBackoff | None = None
        self._chain: StopChain | None = None
        self._close = trio.Event()
        self._done = trio.Event()
        self._go: trio.Event | None = None
        self._stop_reason: str | None = None
        self._stop_kind = DownKind.STOPPED
        self._crashed_with: BaseException | None = None  # restarts are used up: what to fail with, once it has ended
        self._failure: BaseException | None = None
        self._recipes: tuple[Recipe, ...] = ()

    def __repr__(self) -> str:
        return f"<Supervisor {self.name!r} of {len(self._children)} children>"

    # What others see.

    @property
    def path(self) -> str:
        """Its name under its supervisor's."""
        return self.name if self.parent is None else self.parent.path_of(self.name)

    def path_of(self, name: str) -> str:
        """Return a child's name under this supervisor's. The system is no part of it."""
        return name if self.parent is None else f"{self.path}/{name}"

    @property
    def children(self) -> tuple[Ref[Any], ...]:
        """Its actors that have not ended, in the order of their start."""
        return tuple(child.ref for child in self._children.values() if isinstance(child, Actor))

    def members(self) -> tuple[Child, ...]:
        """Return all its children, for the runtime."""
        return tuple(self._children.values())

    @property
    def closing(self) -> bool:
        """True once it was stopped: it starts nothing more."""
        return self._close.is_set()

    @property
    def ended(self) -> bool:
        """True once it was stopped and every child has ended."""
        return self._done.is_set()

    @property
    def state(self) -> str:
        """One word for `tree()`."""
        if self._go is not None or (self._group is not None and self._group.restarting):
            return "restarting"
        return "stopping" if self.closing else "supervising"

    # Children.

    async def spawn(
        self,
        body: Callable[[Ctx[M], *Ts], Awaitable[None]],
        *args: *Ts,
        name: str | None = None,
        mailbox_size: int = 64,
        overflow: Overflow = "wait",
        own_nursery: bool = False,
        restart: RestartName | Restart | None = None,
        stop_grace_s: float | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> Ref[M]:
        """Start an actor and return once it is ready, or has returned. A checkpoint.

        While a group is being restarted it waits for that first.

        Args:
            body: The actor, an async function; it is ready when it calls `ctx.ready()` or first receives.
            args: Given to it, at each restart too.
            name: Unique in the system; by default the function's name and a number.
            mailbox_size: How many messages may wait, 0 or more.
            overflow: What happens to a message for which there is no room: see `Overflow`.
            own_nursery: Give it `ctx.nursery` for tasks of its own. They are cancelled when its body has ended, and
                their errors are its crash.
            restart: Which of its ends are followed by a restart; by default what the supervisor says.
            stop_grace_s: Seconds it may take to end, when children are stopped in order, before the next one is
                stopped; by default what the supervisor says.
            on_end: Called once when it and its tasks have ended, before its name is free. It must not raise.

        Raises:
            NameTaken: Another actor or supervisor that has not ended has this name.
            NotAccepting: The supervisor or the system is closing.
            TooManyChildren: It has `max_children`.
            ActorGone: It was stopped before it was ready.
            Exception: What `body` raised before it was ready. Its name is free then, and it is not restarted.
        """
        if name is None:
            name = f"{getattr(body, '__name__', 'actor')}-{self.system.next_number()}"
        own = None if restart is None else Restart(restart)
        spec = Spec(body, args, mailbox_size, overflow, own_nursery, own, stop_grace_s, on_end)
        await self._until_settled()
        actor = await self._start_actor(name, spec)
        return actor.ref

    async def supervise(
        self,
        *,
        name: str,
        strategy: StrategyName | Strategy = "one_for_one",
        restart: RestartName | Restart = "temporary",
        intensity: tuple[int, float] = (3, 10.0),
        budget: BudgetName | Budget = "child",
        backoff: Backoff | None = None,
        max_children: int | None = None,
        stop_grace_s: float = 5.0,
        on_crash: Callable[[Crash], None] | None = None,
    ) -> "Supervisor":
        """Start a supervisor under this one. A checkpoint.

        Args:
            name: Unique in the system, among actors too.
            strategy: Whom a crash concerns: the one that crashed, all, or it and those started after it.
            restart: Which ends of a child are followed by a restart, where the child does not say.
            intensity: At most so many restarts in so many seconds. With `budget="child"` and one_for_one a child that
                has used them up ends, and no other notices. Else the supervisor stops all its children and fails with
                the child's error: whoever supervises it restarts all of it, or fails too; at the top the block of
                the system is cancelled and raises that error.
            budget: Whether each child has its own restarts, or all share them.
            backoff: How long each restart waits.
            max_children: Make it a dynamic supervisor: at most so many children at a time (1 or more), which stop
                together instead of one after the other.
            stop_grace_s: Seconds that a child may take to end before the next one is stopped, above 0.
            on_crash: Called with each crash of a child, synchronously; what it raises is logged. By default the
                system's.

        Raises:
            NameTaken: An actor or supervisor that has not ended has this name.
            NotAccepting: This supervisor, or the system, is closing.
            TooManyChildren: This supervisor has `max_children`.
            ValueError: A word is none of those above, or a number is out of its range.
        """
        limit, window_s = intensity
        policy = RestartPolicy(Restart(restart), limit, window_s, backoff or Backoff(), Budget(budget))
        if max_children is not None and max_children < 1:
            raise ValueError(f"max_children must be 1 or more, not {max_children}")
        if max_children is not None and Strategy(strategy) is not Strategy.ONE_FOR_ONE:
            raise ValueError(f"a supervisor with max_children is one_for_one, not {Strategy(strategy).value}")
        if not stop_grace_s > 0:
            raise ValueError(f"stop_grace_s must be above 0 s, not {stop_grace_s}")
        plan = Plan(policy, Strategy(strategy), max_children, stop_grace_s, on_crash or self.system.on_crash)
        await self._until_settled()
        return await self._start_supervisor(Recipe(name, plan=plan))

    async def _until_settled(self) -> None:
        await checkpoint_if_cancelled()
        while self._group is not None and self._group.restarting and not self.closing:
            await self._settled.park()

    def _check_room(self, name: str) -> trio.Nursery:
        above: Supervisor | None = self
        while above is not None:  # who is stopped in its turn, later, starts nothing more either
            if above.nursery is None or above.closing:
                raise NotAccepting(above.name)
            above = above.parent
        assert self.nursery is not None
        limit = self._plan.max_children
        if limit is not None and len(self._children) >= limit:
            raise TooManyChildren(self.name, limit)
        self.system.registry.reserve(name)
        return self.nursery

    async def _start_actor(self, name: str, spec: Spec) -> Actor[Any]:
        nursery = self._check_room(name)
        try:
            actor: Actor[Any] = Actor(self, spec, name)
        except BaseException:
            self.system.registry.release(name)
            raise
        self._children[name] = actor
        if self._group is not None:
            self._group.joined(name)
        self.system.count_started()
        await actor.start(nursery)
        return actor

    async def _start_supervisor(self, recipe: Recipe) -> "Supervisor":
        nursery = self._check_room(recipe.name)
        assert recipe.plan is not None
        supervisor = Supervisor(self.system, recipe.name, recipe.plan, self)
        supervisor._recipes = recipe.children
        self._children[recipe.name] = supervisor
        if self._group is not None:
            self._group.joined(recipe.name)
        self.system.supervisors += 1
        await nursery.start(supervisor.serve)
        return supervisor

    def recipes(self) -> tuple[Recipe, ...]:
        """Return how to make its children again; temporary ones are not."""
        made: list[Recipe] = []
        for child in self._children.values():
            if isinstance(child, Supervisor):
                made.append(Recipe(child.name, plan=child._plan, children=child._recipes or child.recipes()))
            elif child.spec is not None and (child.spec.restart or self.policy.restart) is not Restart.TEMPORARY:
                made.append(Recipe(child.name, spec=child.spec))
        return tuple(made)

    # Its own life.

    def stop(self, reason: str = "", kind: DownKind = DownKind.STOPPED) -> None:
        """Start nothing more and stop every child. Idempotent, no checkpoint.

        In the reverse order of their start, one after the other, each with its own grace; a dynamic supervisor stops
        them together, in slices.

        Args:
            reason: Why, in words; each child is stopped with it.
            kind: For the runtime.
        """
        if self._stop_reason is not None or self.ended:
            return
        self._stop_reason = reason or f"{self.name!r} was stopped"
        self._stop_kind = kind
        self._stop_children(self._stop_reason)
        if self._go is not None:
            self._go.set()

    def close(self) -> None:
        """Start nothing more; it ends with its last child. Idempotent, no checkpoint."""
        self._close.set()
        self._settled.unpark_all()

    def interrupt_for_restart(self, reason: str) -> None:
        """Stop every child: all of it will be started again."""
        if self.interrupted is None and not self.closing:
            self.interrupted = reason
            self._recipes = self.recipes()
            self._stop_children(reason)

    def _stop_children(self, reason: str) -> None:
        self.close()
        if self._plan.max_children is None and self._chain is None:
            self._chain = StopChain(self.system.wheel, self.members(), reason, self._stop_kind)

    async def join(self) -> None:
        """Wait until it was stopped and every child has ended. A checkpoint."""
        await self._done.wait()

    def grace_s(self) -> float:
        """Return how long it may take to end when its parent stops it: as long as its children may, one by one."""
        return sum((child.grace_s() for child in self._children.values()), 0.0) or self._plan.stop_grace_s

    def grace_of(self, spec: Spec | None) -> float:
        """Return how long an actor may take to end."""
        own = spec.stop_grace_s if spec is not None else None
        return self._plan.stop_grace_s if own is None else own

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the children's nursery open until it is stopped and they have ended. Its parent runs it."""
        try:
            while True:
                async with trio.open_nursery() as self.nursery:
                    await self._restore()
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    if self.parent is None:
                        self.system.serving.set()
                    else:
                        self.parent.child_ready(self)
                    await self._close.wait()
                    if self._plan.max_children is not None:
                        await self._stop_in_slices()
                self.nursery = None
                if not self._goes_on():
                    return
                await self._wait_start()
        finally:
            self._end()

    async def _restore(self) -> None:
        """Make the children again that were there before it was restarted."""
        recipes, self._recipes = self._recipes, ()
        for recipe in recipes:
            if self.closing:
                return
            try:
                if recipe.spec is not None:
                    await self._start_actor(recipe.name, recipe.spec)
                else:
                    await self._start_supervisor(recipe)
            except Exception as error:
                if not self.closing:
                    self._recipes = recipes  # the next restart begins with all of them again
                    self._give_up(error, f"child {recipe.name!r} did not start again")
                return

    async def _stop_in_slices(self) -> None:
        if self._stop_reason is None and self._failure is None and self.interrupted is None:
            return  # closed only: they end by themselves
        reason = self._stop_reason or f"{self.name!r} gave up"
        for position, child in enumerate(self.members()):
            child.stop(reason, self._stop_kind)
            if position % _SLICE == _SLICE - 1:
                await checkpoint()

    def _goes_on(self) -> bool:
        interrupted, self.interrupted = self.interrupted, None
        failure, self._failure = self._failure, None
        if self._stop_reason is not None or self.parent is None:
            return False
        if interrupted is not None:
            self.parent.child_down(self)
        elif failure is None or not self.parent.judge_crash(self, failure):
            return False
        self.restarts += 1
        self._go = self._go or trio.Event()
        return True

    async def _wait_start(self) -> None:
        before = self.system.wheel.now()
        assert self._go is not None
        await self._go.wait()
        self.paused_s += self.system.wheel.now() - before
        self._go = None
        if self._stop_reason is None:
            self._close = trio.Event()
            self._chain = None
            self._times = ()

    @property
    def awaits_start(self) -> bool:
        """True while it waits to be started again."""
        return self._go is not None and not self._go.is_set()

    def go(self) -> None:
        """Let it start again: it waits for that, or will."""
        self._go = self._go or trio.Event()
        self._go.set()

    def _end(self) -> None:
        self.close()
        self.nursery = None
        self._done.set()
        if self.parent is not None:
            self.system.registry.release(self.name)
            self.system.supervisors -= 1
            self.parent.child_ended(self)

    # What children report.

    def child_ready(self, child: Child) -> None:
        """A child has started."""
        if self._group is not None:
            self._group.ready(child.name)
            self._step()

    def child_down(self, child: Child) -> None:
        """A child that was interrupted waits to be started again."""
        assert self._group is not None
        self._group.down(child.name)
        self._step()

    def child_ended(self, child: Child) -> None:
        """A child has ended for good."""
        del self._children[child.name]
        if self._chain is not None:
            self._chain.child_ended(child)
        error, self._crashed_with = self._crashed_with, None
        if self._group is not None:
            self._group.left(child.name)
        if error is not None:
            self._give_up(error, f"{self.policy.limit} restarts in {self.policy.window_s:g} s were used up")
        elif self._group is not None:
            self._step()

    def judge_return(self, actor: Actor[Any]) -> bool:
        """Decide whether a body that has returned is run again."""
        own = actor.spec.restart if actor.spec is not None else None
        if actor.draining or not actor.published or self.closing or not self.policy.wants(own, crashed=False):
            return False
        try:
            delay = self._admit(actor)
        except Exception:
            logger.exception("actor %r returned and is given up: its backoff raised", actor.path)
            return False
        if delay is None:
            logger.error("actor %r returned and is given up after %s", actor.path, self._budget())
            self._used_up(RuntimeError(f"actor {actor.path!r} returned and is to run for ever"))
            return False
        logger.info("actor %r returned; restart %d in %.3f s", actor.path, actor.restarts + 1, delay)
        self._restart_in(actor, delay)
        return True

    def judge_crash(self, child: Child, error: BaseException) -> bool:
        """Decide what follows a crash, and tell it once: whether the child waits for another start."""
        if isinstance(child, Supervisor):
            own, can = None, not self.closing
        else:
            own = child.spec.restart if child.spec is not None else None
            can = child.published and child.stop_reason is None and not self.closing
        wanted = can and self.policy.wants(own, crashed=True)
        delay: float | None = None
        if wanted:
            try:
                delay = self._admit(child)
            except Exception as raised:
                error.add_note(f"its backoff raised {raised!r}")
        gave_up = wanted and delay is None
        self.report_crash(child, error, delay, gave_up=gave_up)
        if delay is not None:
            self._restart_in(child, delay)
            return True
        if gave_up:
            self._used_up(error)
        elif can and isinstance(child, Supervisor):
            self._crashed_with = error  # what a supervisor could not handle is not dropped here either
        return False

    def report_crash(
        self, child: Child, error: BaseException, restart_in_s: float | None, *, gave_up: bool = False
    ) -> None:
        """Tell a crash to the log and to the hook."""
        self.system.count_crash()
        crash = Crash(
            name=child.name,
            path=child.path,
            error=error,
            message_kind=child.handling_kind if isinstance(child, Actor) else None,
            restarts=child.restarts + (restart_in_s is not None),
            restart_in_s=restart_in_s,
            gave_up=gave_up,
        )
        self._reports.crashed(crash, self._budget())

    def _admit(self, child: Child) -> float | None:
        now = self.system.wheel.now()
        shared = self.policy.budget is Budget.SUPERVISOR
        times = self.policy.admit(self._times, now) if shared else (
            self.policy.admit(child.restart_times, now - child.paused_s)
        )  # fmt: skip
        if times is None:
            return None
        delay = self.policy.backoff.delay_s(len(times))
        if shared:
            self._times = times
        else:
            child.restart_times = times
        return delay

    def _used_up(self, error: BaseException) -> None:
        """A child has used up the restarts; once it has ended, that may be the end of all."""
        if self._group is not None or self.policy.budget is Budget.SUPERVISOR:
            self._crashed_with = error

    def _give_up(self, error: BaseException, why: str) -> None:
        error.add_note(f"supervisor {self.path!r} gave up: {why}")
        if self.closing:
            return
        if self.parent is None:
            self.system.fail(error)
            return
        self._failure = error
        self._recipes = self._recipes or self.recipes()
        self._stop_children(f"supervisor {self.path!r} gave up")

    # Restarts.

    def _restart_in(self, child: Child, delay: float) -> None:
        wheel = self.system.wheel
        if self._group is None:
            wheel.add(_Backoff(child), wheel.now() + delay)
            return
        self._group.crashed(child.name)
        if self._backoff is not None:
            self._backoff.cancel()
        self._backoff = _GroupBackoff(self._backoff_over)
        wheel.add(self._backoff, wheel.now() + delay)
        self._step()

    def _backoff_over(self) -> None:
        assert self._group is not None
        self._backoff = None
        self._group.backoff_over()
        self._step()

    def _step(self) -> None:
        """Carry out what the restart of a group asks for."""
        group = self._group
        assert group is not None
        while not self.closing and (step := group.next_step()) is not None:
            child = self._children[step.name]
            if isinstance(step, Start):
                child.go()
            else:
                self._stop_for_restart(child)
        if not group.restarting:
            self._settled.unpark_all()

    def _stop_for_restart(self, child: Child) -> None:
        reason = f"supervisor {self.path!r} restarts its children"
        spec = child.spec if isinstance(child, Actor) else None
        if spec is not None and (spec.restart or self.policy.restart) is Restart.TEMPORARY:
            child.stop(reason)
        else:
            child.interrupt_for_restart(reason)
        wheel = self.system.wheel
        wheel.add(_Grace(self, child), wheel.now() + child.grace_s())

    def stopping_for_restart(self, child: Child) -> bool:
        """Return whether a child is being stopped, to be started again."""
        group = self._group
        return group is not None and self._children.get(child.name) is child and group.stopping(child.name)

    def overran(self, child: Child) -> None:
        """A child that is stopped for a restart has used up its grace: the others are stopped meanwhile."""
        logger.warning("actor %r has not ended %g s after it was stopped to be restarted", child.path, child.grace_s())
        assert self._group is not None
        self._group.overran(child.name)
        self._step()

    def _budget(self) -> str:
        return f"{self.policy.limit} restarts in {self.policy.window_s:g} s"


class _Backoff:
    """On the wheel: a child's next start."""

    __slots__ = ("_child",)

    def __init__(self, child: Child) -> None:
        self._child = child

    @property
    def active(self) -> bool:
        return self._child.awaits_start

    def due(self) -> None:
        self._child.go()


class _Grace:
    """On the wheel: how long a child may take to end before the others of its group are stopped."""

    __slots__ = ("_child", "_supervisor")

    def __init__(self, supervisor: Supervisor, child: Child) -> None:
        self._supervisor = supervisor
        self._child = child

    @property
    def active(self) -> bool:
        return self._supervisor.stopping_for_restart(self._child)

    def due(self) -> None:
        self._supervisor.overran(self._child)


class _GroupBackoff:
    """On the wheel: when a group may start again."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    @property
    def active(self) -> bool:
        return self._call is not None

    def cancel(self) -> None:
        self._call = None

    def due(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()
