"""Supervisors: who owns a group of actors, starts them in order and stops them in the reverse order.

It decides who may be started, and what the end of the supervisor itself means. What follows when a child ends is the
judge's decision. It must not know what actors do.

supervising -> stopping -> ended. One that gave up, and that its parent restarts, begins again with new children.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, TypeVarTuple, Union

import trio
from trio.lowlevel import checkpoint

from actors.runtime.actor import Actor
from actors.runtime.context import Ctx
from actors.runtime.errors import NotAccepting, TooManyChildren, note
from actors.runtime.group import Strategy, StrategyName
from actors.runtime.judge import Judge
from actors.runtime.overflow import Overflow
from actors.runtime.plan import Plan, Recipe, Spec
from actors.runtime.ref import DownKind, Ref
from actors.runtime.reports import Crash
from actors.runtime.restart import Backoff, Budget, BudgetName, Restart, RestartName, RestartPolicy, word
from actors.runtime.stopping import StopChain

if TYPE_CHECKING:
    from actors.runtime.system import System

M = TypeVar("M")
Ts = TypeVarTuple("Ts")
Child: TypeAlias = Union["Actor[Any]", "Supervisor"]

#: How many children are stopped before other tasks run, where they stop together: 64 hold the loop for a few ms.
_SLICE = 64


class Supervisor:
    """Owns a group of actors and supervisors. Made by `system.supervise(...)`, or by another supervisor.

    Attributes:
        name: Unique in the system, among actors too.
        policy: Which ends are followed by a restart, how many, and when.
    """

    __slots__ = (
        "_chain", "_children", "_close", "_done", "_ending", "_failure", "_go", "_kept", "_plan", "_recipes",
        "_slices", "_stop_kind", "_stop_reason",
        "interrupted", "judge", "name", "nursery", "parent", "paused_s", "policy", "restart_times", "restarts",
        "system",
    )  # fmt: skip
    names_its_own: ClassVar[bool] = True

    def __init__(self, system: "System", name: str, plan: Plan, parent: "Supervisor | None" = None) -> None:
        self.system = system
        self.name = name
        self.parent = parent
        self.policy = plan.policy
        self.nursery: trio.Nursery | None = None
        self.interrupted: str | None = None
        self.restarts: int = 0
        self.restart_times: tuple[float, ...] = ()
        self.paused_s = 0.0
        self._plan = plan
        self._children: dict[str, Child] = {}
        self._chain: StopChain | None = None
        self._close = trio.Event()
        self._slices = trio.Event()  # a dynamic one: stop them, or none is left
        self._ending: str | None = None  # why its children are being stopped
        self._done = trio.Event()
        self._go: trio.Event | None = None
        self._stop_reason: str | None = None
        self._stop_kind = DownKind.STOPPED
        self._failure: BaseException | None = None
        self.judge = Judge(self, plan)
        self._recipes: tuple[Recipe, ...] = ()  # of the children that a restart has still to make
        self._kept = False  # or of all, noted before they end

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
        if self._go is not None or self.judge.restarting:
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
            TypeError, ValueError: An argument is not what is said above.
            Exception: What `body` raised before it was ready. Its name is free then, and it is not restarted.
        """
        _check_body(body)
        if name is None:
            name = f"{getattr(body, '__name__', 'actor')}-{self.system.next_number()}"
        own = None if restart is None else word(Restart, restart, "restart")
        _check_grace(stop_grace_s)
        spec = Spec(body, args, mailbox_size, overflow, own_nursery, own, stop_grace_s, on_end)
        await self.judge.wait_settled()
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
        try:
            limit, window_s = intensity
        except TypeError:
            raise TypeError(f"intensity is a pair, restarts and seconds, not {intensity!r}") from None
        which = word(Strategy, strategy, "strategy")
        policy = RestartPolicy(
            word(Restart, restart, "restart"), limit, window_s, backoff or Backoff(), word(Budget, budget, "budget")
        )
        if max_children is not None and max_children < 1:
            raise ValueError(f"max_children must be 1 or more, not {max_children}")
        if max_children is not None and which is not Strategy.ONE_FOR_ONE:
            raise ValueError(f"a supervisor with max_children is one_for_one, not {which}")
        _check_grace(stop_grace_s)
        plan = Plan(policy, which, max_children, stop_grace_s, on_crash or self.system.on_crash)
        await self.judge.wait_settled()
        return await self._start_supervisor(Recipe(name, plan=plan))

    def _check_room(self, name: str) -> trio.Nursery:
        above: Supervisor | None = self
        while above is not None:  # who is stopped in its turn, later, starts nothing more either
            if above.nursery is None or above.closing:
                raise NotAccepting(above.name)
            above = above.parent
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the name of an actor or supervisor is a text that is not empty, not {name!r}")
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
        self.judge.joined(name)
        self.system.count_started()
        await actor.start(nursery)
        return actor

    async def _start_supervisor(self, recipe: Recipe) -> "Supervisor":
        nursery = self._check_room(recipe.name)
        assert recipe.plan is not None
        supervisor = Supervisor(self.system, recipe.name, recipe.plan, self)
        supervisor._recipes = recipe.children
        self._children[recipe.name] = supervisor
        self.judge.joined(recipe.name)
        self.system.supervisors += 1
        await nursery.start(supervisor.serve)
        return supervisor

    def keep_recipes(self) -> None:
        """Note how to make its children again, before they end: it may be restarted as a whole."""
        if not self._kept:
            self._recipes = self.recipes()
            self._kept = True

    def recipes(self) -> tuple[Recipe, ...]:
        """Return how to make its children again, with those that a restart has still to make; not temporary ones."""
        if self._kept:
            return self._recipes
        made: list[Recipe] = []
        for child in self._children.values():
            if isinstance(child, Supervisor):
                made.append(Recipe(child.name, plan=child._plan, children=child.recipes()))
            elif child.spec is not None and (child.spec.restart or self.policy.restart) is not Restart.TEMPORARY:
                made.append(Recipe(child.name, spec=child.spec))
        return (*made, *self._recipes)

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
        """Start nothing more; it ends with its last child. Idempotent, no checkpoint.

        A child that waits for a restart ends now.
        """
        if self.closing:
            return
        self._close.set()
        self.judge.closed()
        for child in self.members():
            if child.awaits_start:
                child.stop(f"{self.name!r} was closed")
        if not self._children:
            self._slices.set()

    def interrupt_for_restart(self, reason: str) -> None:
        """Stop every child: all of it will be started again."""
        if self.interrupted is None and not self.closing:
            self.interrupted = reason
            self.keep_recipes()
            self._stop_children(reason)

    def _stop_children(self, reason: str) -> None:
        if self._ending is not None:
            return
        self._ending = reason
        self._close.set()
        self.judge.closed()
        self._slices.set()
        if self._plan.max_children is None:
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
                    elif not self.closing:  # a child may have failed to start again
                        self.parent.judge.ready(self)
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
        while self._recipes and not self.closing:
            recipe, self._recipes = self._recipes[0], self._recipes[1:]
            try:
                if recipe.spec is not None:
                    await self._start_actor(recipe.name, recipe.spec)
                else:
                    await self._start_supervisor(recipe)
            except Exception as error:
                if not self.closing:
                    self._recipes = (recipe, *self._recipes)  # the next restart begins with all of them again
                    self.give_up(error, f"child {recipe.name!r} did not start again")

    async def _stop_in_slices(self) -> None:
        """Stop the children of a dynamic supervisor, once it is to stop, without ever holding the loop for long."""
        await self._slices.wait()
        for position, child in enumerate(self.members()):
            child.stop(self._ending or "", self._stop_kind)
            if position % _SLICE == _SLICE - 1:
                await checkpoint()

    def _goes_on(self) -> bool:
        interrupted, self.interrupted = self.interrupted, None
        failure, self._failure = self._failure, None
        if self._stop_reason is not None or self.parent is None:
            return False
        if interrupted is not None:
            self.parent.judge.down(self)
        elif failure is None or not self.parent.judge.crashed(self, failure):
            return False
        self.restarts += 1
        if self._go is None:
            self._go = trio.Event()
        return True

    async def _wait_start(self) -> None:
        before = self.system.wheel.now()
        assert self._go is not None
        await self._go.wait()
        self.paused_s += self.system.wheel.now() - before
        self._go = None
        if self._stop_reason is None:
            self._close = trio.Event()
            self._slices = trio.Event()
            self._ending = None
            self._chain = None
            self._kept = False
            self.judge.begin()

    @property
    def awaits_start(self) -> bool:
        """True while it waits to be started again."""
        return self._go is not None and not self._go.is_set()

    def go(self) -> None:
        """Let it start again: it waits for that, or will."""
        if self._go is None:
            self._go = trio.Event()
        self._go.set()

    def _end(self) -> None:
        self.close()
        self.nursery = None
        self._done.set()
        if self.parent is not None:
            self.system.registry.release(self.name)
            self.system.supervisors -= 1
            self.parent.child_ended(self)

    def child(self, name: str) -> Child | None:
        """Return a child that has not ended."""
        return self._children.get(name)

    def child_ended(self, child: Child) -> None:
        """A child has ended for good."""
        del self._children[child.name]
        if self._chain is not None:
            self._chain.child_ended(child)
        self.judge.ended(child)
        if self.closing and not self._children:
            self._slices.set()

    def give_up(self, error: BaseException, why: str) -> None:
        """What is wrong cannot be put right here: stop every child, and fail with this."""
        if self.closing:
            return
        if self.parent is None:
            self.system.fail(error)
            return
        note(error, f"supervisor {self.path!r} gave up: {why}")
        self._failure = error
        self.keep_recipes()
        self._stop_children(f"supervisor {self.path!r} gave up")


def _check_body(body: object) -> None:
    if callable(body):
        return
    if isinstance(body, Coroutine):
        body.close()  # else it would be reported as never awaited
        raise TypeError("spawn takes the async function and its arguments, spawn(f, a), not a call of it, spawn(f(a))")
    raise TypeError(f"spawn takes an async function, not {body!r}")


def _check_grace(stop_grace_s: float | None) -> None:
    if stop_grace_s is not None and not stop_grace_s > 0:
        raise ValueError(f"stop_grace_s must be above 0 s, not {stop_grace_s}")
