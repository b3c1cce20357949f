"""A system: one block that all its actors live in.

It decides what the end of the block means for them: everything is stopped, in order, and nothing outlives it. It must
not know what actors do, and there is no global one.

The actors are shielded from a cancel around the block. It reaches them through the block's own end: first the block
has finished, then they are stopped in the reverse order of their start, so nobody loses what it still uses.
"""

import contextvars
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, TypeVarTuple, cast

import trio
from trio.lowlevel import checkpoint_if_cancelled

from actors.runtime import log, observe
from actors.runtime.actor import Actor
from actors.runtime.context import Ctx
from actors.runtime.deadletters import DeadLetters
from actors.runtime.errors import unwrap
from actors.runtime.figures import SystemStatistics, Totals
from actors.runtime.group import Strategy, StrategyName
from actors.runtime.overflow import Overflow
from actors.runtime.plan import Plan
from actors.runtime.ref import Down, DownKind, Ref
from actors.runtime.registry import Registry
from actors.runtime.reports import Crash
from actors.runtime.restart import Backoff, Budget, BudgetName, Restart, RestartName, RestartPolicy
from actors.runtime.supervisor import Supervisor
from actors.runtime.threads import Threads, default_threads
from actors.runtime.tree import Node
from actors.runtime.walk import actors_of, node_of
from actors.runtime.wheel import Alarm, Wheel

M = TypeVar("M")
Ts = TypeVarTuple("Ts")


class System:
    """Made by `open_system`.

    Attributes:
        name: For messages and logs.
        registry: Its actors by name.
        dead_letters: What was sent to its actors and not handled.
        threads: Where its actors run blocking functions.
        grace_s: How long a stopped actor may take, in seconds, before it is named in the log.
    """

    def __init__(
        self,
        name: str,
        grace_s: float,
        on_crash: Callable[[Crash], None] | None,
        on_down: Callable[[Down], None] | None,
        threads: Threads | None,
    ) -> None:
        self.name = name
        self.grace_s = grace_s
        self.on_crash = on_crash
        self.registry = Registry()
        self.dead_letters = DeadLetters()
        self.threads = threads or default_threads()
        #: For the runtime: its deadlines, how other threads reach the loop, and the context that actors start in.
        self.wheel = Wheel()
        self.token = trio.lowlevel.current_trio_token()
        self.context = contextvars.copy_context()
        #: For the runtime: sends so far, and supervisors that have not ended.
        self.sends = 0
        self.supervisors = 0
        self._on_down = on_down
        self._root = Supervisor(self, name, Plan(RestartPolicy(), stop_grace_s=grace_s, on_crash=on_crash))
        self._block: trio.Nursery | None = None
        self.serving = trio.Event()
        self._failed = False
        self._started = self._ended = self._crashes = self._restarts = self._late_replies = self._numbers = 0
        self._past = Totals()

    def __repr__(self) -> str:
        return f"<System {self.name!r} of {self._started - self._ended} actors>"

    async def spawn(
        self,
        body: Callable[[Ctx[M], *Ts], Awaitable[None]],
        *args: *Ts,
        name: str | None = None,
        mailbox_size: int = 64,
        overflow: Overflow = "wait",
        own_nursery: bool = False,
        stop_grace_s: float | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> Ref[M]:
        """Start an actor that is not restarted. Arguments, errors and checkpoint as in `Supervisor.spawn`."""
        return await self._root.spawn(
            body,
            *args,
            name=name,
            mailbox_size=mailbox_size,
            overflow=overflow,
            own_nursery=own_nursery,
            stop_grace_s=stop_grace_s,
            on_end=on_end,
        )

    def spawn_nowait(
        self,
        body: Callable[[Ctx[M], *Ts], Awaitable[None]],
        *args: *Ts,
        name: str | None = None,
        mailbox_size: int = 64,
        overflow: Overflow = "wait",
        own_nursery: bool = False,
        stop_grace_s: float | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> Ref[M]:
        """Start an actor without waiting for it to be ready. As `Supervisor.spawn_nowait`; no checkpoint."""
        return self._root.spawn_nowait(
            body,
            *args,
            name=name,
            mailbox_size=mailbox_size,
            overflow=overflow,
            own_nursery=own_nursery,
            stop_grace_s=stop_grace_s,
            on_end=on_end,
        )

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
    ) -> Supervisor:
        """Start a supervisor. Arguments, errors and checkpoint as in `Supervisor.supervise`."""
        return await self._root.supervise(
            name=name,
            strategy=strategy,
            restart=restart,
            intensity=intensity,
            budget=budget,
            backoff=backoff,
            max_children=max_children,
            stop_grace_s=stop_grace_s,
            on_crash=on_crash,
        )

    def stop(self, reason: str = "") -> None:
        """Start nothing more and stop every actor. Idempotent, no checkpoint; the block's end waits for them.

        Actors and supervisors are stopped in the reverse order of their start, one after the other.
        """
        self._stop(reason or f"system {self.name!r} was stopped", DownKind.STOPPED)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Alarm:
        """Call a function at a later time, synchronously, in trio's thread. No checkpoint.

        Args:
            seconds: From now, 0 or more.
            call: What to call, unless the alarm was cancelled or the system has ended. What it raises is logged.

        Raises:
            ValueError: `seconds` is negative, or no number.
        """
        if not seconds >= 0:
            raise ValueError(f"a call is due in 0 s or more, not in {seconds} s")
        alarm = Alarm(call)
        self.wheel.add(alarm, self.wheel.now() + seconds)
        return alarm

    def tree(self) -> Node:
        """Return what lives now, as data; as text with `str()`. Works while actors hang; no checkpoint."""
        return node_of(self._root, self.wheel.stamp())

    def statistics(self) -> SystemStatistics:
        """Return the counts. No checkpoint; it asks every actor that lives."""
        totals = Totals()
        totals.add(self._past)
        for actor in self.actors():
            totals.add(actor.mailbox)
            totals.queued += actor.mailbox.total
        return SystemStatistics(
            actors=self._started - self._ended,
            supervisors=self.supervisors,
            started=self._started,
            ended=self._ended,
            crashes=self._crashes,
            restarts=self._restarts,
            sent=totals.accepted + totals.rejected,
            accepted=totals.accepted,
            rejected=totals.rejected,
            handled=totals.handled,
            expired=totals.expired,
            dropped=totals.dropped,
            returned=totals.returned,
            queued=totals.queued,
            late_replies=self._late_replies,
        )

    def actors(self) -> list[Actor[Any]]:
        """Return the actors that have not ended. For the runtime and its test kit."""
        return actors_of(self._root)

    # What the parts of the runtime report.

    def next_number(self) -> int:
        """Return a number for an actor without a name."""
        self._numbers += 1
        return self._numbers

    def count_late_reply(self) -> None:
        """An answer came after its asker had gone."""
        self._late_replies += 1

    def count_rejected_by_ended(self) -> None:
        """A message was sent to an actor whose figures have been added up."""
        self._past.rejected += 1

    def count_started(self) -> None:
        """An actor's task is about to run."""
        self._started += 1

    def count_restart(self) -> None:
        """An actor will start again."""
        self._restarts += 1

    def count_crash(self) -> None:
        """An actor's body raised, or a supervisor gave up."""
        self._crashes += 1

    def actor_ended(self, actor: Actor[Any], down: Down) -> None:
        """An actor has ended: its name is free."""
        self._ended += 1
        self._past.add(actor.mailbox)
        self.registry.release(actor.name)
        if self._on_down is not None:
            try:
                self._on_down(down)
            except Exception:
                log.exception("the hook for the end of actor %r raised", actor.path)

    def fail(self, error: BaseException) -> None:
        """What no supervisor could handle ends the block: it is cancelled, and raises this error."""
        self._failed = True
        assert self._block is not None
        self._block.start_soon(_raise, error)

    # The block.

    async def run(self, block: trio.Nursery) -> None:
        """Serve the actors until everything was stopped and has ended."""
        self._block = block
        error: BaseException
        try:
            with trio.CancelScope(shield=True):  # it ends with the actors, and they are stopped when the block ends
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.wheel.run)
                    await self._root.serve()
                    nursery.cancel_scope.cancel(reason="every actor has ended")
            return
        except BaseExceptionGroup as group:  # what ends a process: SystemExit, KeyboardInterrupt
            error = unwrap(group)
        raise error

    def close(self, *, failed: bool) -> None:
        """The block has finished: stop everything, and report what does not end within the grace."""
        if self._failed:
            self._stop(f"system {self.name!r} failed", DownKind.STOPPED)
        elif trio.current_effective_deadline() == float("-inf"):
            self._stop(f"the block of system {self.name!r} was cancelled", DownKind.CANCELLED)
        else:
            self._stop(f"system {self.name!r} {'failed' if failed else 'closed'}", DownKind.STOPPED)
        self.wheel.add(_Stragglers(self), self.wheel.now() + self.grace_s)

    def _stop(self, reason: str, kind: DownKind) -> None:
        self._root.stop(reason, kind)
        self.registry.close(self.name)

    @property
    def has_actors(self) -> bool:
        """True while one has not ended."""
        return bool(self._root.members())

    def stragglers(self) -> list[str]:
        """Return the paths of the actors that were stopped and have not ended."""
        return [actor.path for actor in self.actors() if actor.stop_reason is not None]

    def report_stragglers(self) -> None:
        """Say who has not ended; trio cannot end a task that does not let itself be cancelled."""
        names = self.stragglers()
        if names:
            waits = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
            log.warning("system %r still waits for %s, %g s after its end", self.name, waits, self.grace_s)


class _Stragglers:
    """On the wheel: the report of who has not ended."""

    __slots__ = ("_system",)

    def __init__(self, system: System) -> None:
        self._system = system

    @property
    def active(self) -> bool:
        return self._system.has_actors

    def due(self) -> None:
        self._system.report_stragglers()


async def _raise(error: BaseException) -> None:  # noqa: ASYNC124 - it is a task
    raise error  # at once: a second one that comes in the same moment is not lost


@asynccontextmanager
async def open_system(
    *,
    name: str = "system",
    grace_s: float = 5.0,
    on_crash: Callable[[Crash], None] | None = None,
    on_down: Callable[[Down], None] | None = None,
    threads: Threads | None = None,
) -> AsyncGenerator[System, None]:
    """Open a block that actors live in. When it ends, however it ends, they are stopped, and it waits for them.

    Args:
        name: For messages and logs.
        grace_s: How long stopped actors may take, in seconds, before they are named in the log. It goes on waiting:
            trio can end no task that does not let itself be cancelled.
        on_crash: Called with each crash of an actor, synchronously; what it raises is logged.
        on_down: Called with each end of an actor, likewise.
        threads: Where actors run blocking functions, as `system.threads`; by default trio's worker threads, and under
            trio's mock clock at once, in the loop, as its autojump does not wait for threads.

    Raises:
        ValueError: `grace_s` is out of its range.
        Exception: What the block raised, as it was raised: no group around it. Actors raise nothing into it; how each
            ended is in the log, in `on_crash`, in `on_down`, and in what `ref.join()` returns. But what a supervisor
            gave up on, and no other restarted, cancels the block and comes out of it, with notes of where it came from.
    """
    if not 0 < grace_s < math.inf:
        raise ValueError(f"grace_s must be above 0 s and finite, not {grace_s}")
    system = System(name, grace_s, on_crash, on_down, threads)
    error: BaseException
    try:
        async with trio.open_nursery() as nursery:
            failed = True
            try:
                # Not `nursery.start`: cancelled in there, it would wait for what only `close` ends.
                nursery.start_soon(system.run, nursery)  # noqa: ASYNC113
                await system.serving.wait()
                observe.opened(system)
                yield system
                failed = False
            finally:
                system.close(failed=failed)
        # The actors were cut short, even if the block was not: who is cancelled hears it here.
        await checkpoint_if_cancelled()
        return
    except BaseExceptionGroup as group:
        # The nursery's own group, and no other: one that the block itself raised stays as it is. Where the block was
        # cancelled while the system failed, the error is all there is to say.
        members = cast("tuple[BaseException, ...]", group.exceptions)
        members = tuple([one for one in members if not isinstance(one, trio.Cancelled)]) or members[:1]
        if len(members) != 1:
            raise
        error = members[0]
    finally:
        system.wheel.close()
        observe.closed(system)
    raise error  # out here, where its own context is not replaced by the group
