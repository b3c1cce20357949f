"""The life of a supervisor: its nursery, its children in order, its stop, and its own restart.

It decides what the end of the supervisor means for its children, and how they are made again. What follows when a
child ends is the judge's decision. It must not know what actors do.

supervising -> stopping -> ended. One that gave up, and that its parent restarts, begins again with new children.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, Union

import trio
from trio.lowlevel import checkpoint

from actors.runtime.actor import Actor
from actors.runtime.errors import NotAccepting, TooManyChildren, note
from actors.runtime.judge import Judge
from actors.runtime.plan import Plan, Recipe, Spec
from actors.runtime.ref import DownKind, Ref
from actors.runtime.restart import Restart
from actors.runtime.stopping import StopChain

if TYPE_CHECKING:
    from actors.runtime.system import System

Child: TypeAlias = Union["Actor[Any]", "Owner"]

#: How many children are stopped before other tasks run, where they stop together: 64 hold the loop for a few ms.
_SLICE = 64


class Owner:
    """A supervisor, without the ways to spawn. See `Supervisor`.

    Attributes:
        name: Unique in the system, among actors too.
        policy: Which ends are followed by a restart, how many, and when.
    """

    __slots__ = (
        "_chain", "_children", "_close", "_done", "_ending", "_failure", "_go", "_kept", "_plan", "_recipes",
        "_slices", "_stop_kind", "_stop_reason", "_up",
        "interrupted", "judge", "name", "nursery", "parent", "paused_s", "policy", "restart_times", "restarts",
        "system",
    )  # fmt: skip
    names_its_own: ClassVar[bool] = True

    def __init__(self, system: "System", name: str, plan: Plan, parent: "Owner | None" = None) -> None:
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
        self._up = trio.Event()  # its children have started once, or it has ended
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
    def winding_down(self) -> bool:
        """True once it, or one above it, was stopped: nothing is started again."""
        above: Owner | None = self
        while above is not None and not above.closing:
            above = above.parent
        return above is not None

    def is_under(self, other: "Owner") -> bool:
        """Return whether it is `other`, or below it."""
        above: Owner | None = self
        while above is not None and above is not other:
            above = above.parent
        return above is not None

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

    def _check_room(self, name: str) -> trio.Nursery:
        above: Owner | None = self
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

    def make_actor(self, name: str, spec: Spec) -> tuple[Actor[Any], trio.Nursery]:
        """Make a child that is to be started now, and return it with the nursery for it."""
        nursery = self._check_room(name)
        try:
            actor: Actor[Any] = Actor(self, spec, name)
        except BaseException:
            self.system.registry.release(name)
            raise
        self._children[name] = actor
        self.judge.joined(name)
        self.system.count_started()
        return actor, nursery

    async def start_actor(self, name: str, spec: Spec) -> Actor[Any]:
        """Start an actor and wait until it is ready."""
        actor, nursery = self.make_actor(name, spec)
        await actor.start(nursery)
        return actor

    async def start_supervisor(self, recipe: Recipe) -> Self:
        """Start a supervisor under this one, with the children that its recipe names."""
        nursery = self._check_room(recipe.name)
        assert recipe.plan is not None
        supervisor = type(self)(self.system, recipe.name, recipe.plan, self)
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
            if isinstance(child, Owner):
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
        if self.closing:
            self.stop(reason)  # closed: it is not started again
        elif self.interrupted is None:
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

    async def wait_up(self) -> None:
        """Wait until its children have started, or it has ended. A checkpoint."""
        await self._up.wait()

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
                        self._up.set()
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
        while self._recipes and not self.winding_down:
            recipe, self._recipes = self._recipes[0], self._recipes[1:]
            try:
                if recipe.spec is not None:
                    await self.start_actor(recipe.name, recipe.spec)
                else:
                    made = await self.start_supervisor(recipe)
                    await made.wait_up()  # what comes after it does not start before it has
            except Exception as error:
                if not self.winding_down:
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
        self._up.set()
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
