"""Supervisors, as users see them: they start actors and other supervisors, and stop them in the reverse order.

It decides what may be asked of one, and with which words it refuses. It must not know what actors do.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

from actors.runtime.context import Ctx
from actors.runtime.errors import NotAccepting
from actors.runtime.group import Strategy, StrategyName
from actors.runtime.overflow import Overflow
from actors.runtime.owner import Owner
from actors.runtime.plan import Plan, Recipe, Spec
from actors.runtime.ref import Ref
from actors.runtime.reports import Crash
from actors.runtime.restart import Backoff, Budget, BudgetName, Restart, RestartName, RestartPolicy, word

M = TypeVar("M")
Ts = TypeVarTuple("Ts")


class Supervisor(Owner):
    """Owns a group of actors and supervisors. Made by `system.supervise(...)`, or by another supervisor.

    Attributes:
        name: Unique in the system, among actors too.
        policy: Which ends are followed by a restart, how many, and when.
    """

    __slots__ = ()

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
        spec = _spec(body, args, mailbox_size, overflow, own_nursery, restart, stop_grace_s, on_end)
        await self.judge.wait_settled()
        actor = await self.start_actor(self._name_for(body) if name is None else name, spec)
        return actor.ref

    def spawn_nowait(
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
        """Start an actor without waiting for it to be ready. No checkpoint.

        Its messages wait in its mailbox until it is. What its start raises is its crash, as nobody waits for it: it is
        logged, told to `on_crash` and in `Down`, and not followed by a restart. Arguments as in `spawn`.

        Raises:
            NameTaken: Another actor or supervisor that has not ended has this name.
            NotAccepting: The supervisor or the system is closing, or is restarting a group.
            TooManyChildren: It has `max_children`.
            TypeError, ValueError: An argument is not what `spawn` says.
        """
        spec = _spec(body, args, mailbox_size, overflow, own_nursery, restart, stop_grace_s, on_end)
        if self.judge.restarting:
            raise NotAccepting(self.name)
        actor, nursery = self.make_actor(self._name_for(body) if name is None else name, spec)
        actor.launch(nursery)
        return actor.ref

    def _name_for(self, body: object) -> str:
        return f"{getattr(body, '__name__', 'actor')}-{self.system.next_number()}"

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
        return await self.start_supervisor(Recipe(name, plan=plan))


def _spec(
    body: Callable[..., Awaitable[None]],
    args: tuple[Any, ...],
    mailbox_size: int,
    overflow: Overflow,
    own_nursery: bool,
    restart: RestartName | Restart | None,
    stop_grace_s: float | None,
    on_end: Callable[[], None] | None,
) -> Spec:
    _check_body(body)
    _check_grace(stop_grace_s)
    own = None if restart is None else word(Restart, restart, "restart")
    return Spec(body, args, mailbox_size, overflow, own_nursery, own, stop_grace_s, on_end)


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
