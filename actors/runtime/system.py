"""A system: one block that all its actors live in.

It decides what the end of the block means for them: everything is stopped, and nothing outlives it. It must not know
what actors do, and there is no global one.
"""

import contextvars
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, TypeVarTuple, cast

import trio

from actors.runtime.actor import Actor
from actors.runtime.context import Ctx
from actors.runtime.errors import NotAccepting
from actors.runtime.ref import Ref
from actors.runtime.registry import Registry
from actors.runtime.restart import Backoff, Restart, RestartName, RestartPolicy
from actors.runtime.supervisor import Crash, Supervisor

M = TypeVar("M")
Ts = TypeVarTuple("Ts")
logger = logging.getLogger("actors.runtime")


@dataclass(frozen=True, slots=True)
class Node:
    """One actor, supervisor or system in `tree()`.

    Attributes:
        name: Its name.
        state: One word: starting, running, restarting, draining, stopping; supervising for what has children.
        depth: How many messages are queued.
        children: What it supervises, in the order of start.
        handling: The type name of the message in hand, or None.
        asks: How many asks wait for it.
        restarts: How often it was restarted.
    """

    name: str
    state: str
    depth: int = 0
    children: tuple["Node", ...] = ()
    handling: str | None = None
    asks: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class SystemStatistics:
    """Counts of one system since it was opened; `actors` and `supervisors` are those that have not ended.

    Attributes:
        rejected: Messages not accepted: no room for a tell, or the actor had ended.
        returned: Messages that were accepted and not handled, because the actor ended or crashed.
        late_replies: Answers whose asker had gone.
    """

    actors: int
    supervisors: int
    started: int
    ended: int
    crashes: int
    restarts: int
    rejected: int
    returned: int
    late_replies: int


class System:
    """Made by `open_system`."""

    def __init__(self, name: str, grace_s: float, on_crash: Callable[[Crash], None] | None) -> None:
        self.name = name
        self.grace_s = grace_s
        self.registry = Registry()
        #: For the runtime: how other threads reach the loop, and the context that actors start in.
        self.token = trio.lowlevel.current_trio_token()
        self.context = contextvars.copy_context()
        self._on_crash = on_crash
        self._root = Supervisor(self, name, RestartPolicy(), on_crash)
        self._supervisors: dict[str, Supervisor] = {}
        self._watch: trio.CancelScope | None = None
        self._started = self._ended = self._crashes = self._restarts = 0
        self._rejected = self._returned = self._late_replies = self._numbers = 0

    def __repr__(self) -> str:
        return f"<System {self.name!r} of {self._started - self._ended} actors>"

    async def spawn(
        self,
        body: Callable[[Ctx[M], *Ts], Awaitable[None]],
        *args: *Ts,
        name: str | None = None,
        mailbox_size: int = 64,
        own_nursery: bool = False,
        on_end: Callable[[], None] | None = None,
    ) -> Ref[M]:
        """Start an actor that is not restarted. Arguments, errors and checkpoint as in `Supervisor.spawn`."""
        return await self._root.spawn(
            body, *args, name=name, mailbox_size=mailbox_size, own_nursery=own_nursery, on_end=on_end
        )

    async def supervise(
        self,
        *,
        name: str,
        restart: RestartName | Restart = "temporary",
        intensity: tuple[int, float] = (3, 10.0),
        backoff: Backoff | None = None,
        on_crash: Callable[[Crash], None] | None = None,
    ) -> Supervisor:
        """Start a supervisor (one_for_one): each child is restarted on its own, within its own budget. A checkpoint.

        Args:
            name: Unique in the system, among actors too.
            restart: Which ends of a child are followed by a restart.
            intensity: At most so many restarts of one child in so many seconds; then it is given up.
            backoff: How long each restart waits.
            on_crash: Called with each crash of a child, synchronously; what it raises is logged. By default the
                system's.

        Raises:
            NameTaken: An actor or supervisor that has not ended has this name.
            NotAccepting: The system is closing.
            ValueError: `restart` is none of the three, or a number is out of its range.
        """
        limit, window_s = intensity
        policy = RestartPolicy(Restart(restart), limit, window_s, backoff or Backoff())
        if self._root.nursery is None or self._root.closing:
            raise NotAccepting(self.name)
        self.registry.reserve(name)
        supervisor = Supervisor(self, name, policy, on_crash or self._on_crash, prefix=f"{name}/")
        self._supervisors[name] = supervisor
        await self._root.nursery.start(supervisor.serve)
        return supervisor

    def stop(self, reason: str = "") -> None:
        """Start nothing more and stop every actor. Idempotent, no checkpoint; the block's end waits for them."""
        reason = reason or f"system {self.name!r} was stopped"
        for supervisor in reversed(self._supervisors.values()):
            supervisor.stop(reason)
        self._root.stop(reason)

    def tree(self) -> Node:
        """Return what lives now, as data. Works while actors hang; no checkpoint."""
        supervisors = tuple(
            Node(supervisor.name, "supervising", children=tuple(map(_node, supervisor.actors())))
            for supervisor in self._supervisors.values()
        )
        return Node(self.name, "supervising", children=(*map(_node, self._root.actors()), *supervisors))

    def statistics(self) -> SystemStatistics:
        """Return the counts. No checkpoint."""
        return SystemStatistics(
            actors=self._started - self._ended,
            supervisors=len(self._supervisors),
            started=self._started,
            ended=self._ended,
            crashes=self._crashes,
            restarts=self._restarts,
            rejected=self._rejected,
            returned=self._returned,
            late_replies=self._late_replies,
        )

    # What the parts of the runtime report.

    def next_number(self) -> int:
        """Return a number for an actor without a name."""
        self._numbers += 1
        return self._numbers

    def count_rejected(self) -> None:
        """A message was not accepted."""
        self._rejected += 1

    def count_returned(self, messages: int) -> None:
        """Messages were accepted and not handled."""
        self._returned += messages

    def count_late_reply(self) -> None:
        """An answer came after its asker had gone."""
        self._late_replies += 1

    def actor_started(self) -> None:
        """An actor's task is about to run."""
        self._started += 1

    def actor_restarts(self) -> None:
        """An actor will start again."""
        self._restarts += 1

    def actor_ended(self, actor: Actor[Any], returned: int) -> None:
        """An actor has ended: its name is free."""
        self._ended += 1
        self._returned += returned
        self.registry.release(actor.name)
        self._watch_less()

    def actor_crashed(self) -> None:
        """An actor's body raised."""
        self._crashes += 1

    def supervisor_ended(self, supervisor: Supervisor) -> None:
        """A supervisor and all its children have ended."""
        del self._supervisors[supervisor.name]
        self.registry.release(supervisor.name)

    # The block.

    def open(self, nursery: trio.Nursery) -> None:
        """Take the nursery that everything runs in."""
        self._root.nursery = nursery

    def close(self, reason: str) -> None:
        """Stop everything, and report what does not end within the grace."""
        if trio.current_effective_deadline() == float("-inf"):
            # The cancel reaches the actors too. Stopped as well, some would say `stopped` and some `cancelled`,
            # depending on who is woken first.
            for supervisor in (*self._supervisors.values(), self._root):
                supervisor.close()
        else:
            self.stop(reason)
        if self._ended < self._started and self._root.nursery is not None:
            self._watch = trio.CancelScope()
            self._root.nursery.start_soon(self._report_stragglers, self._watch)

    def _watch_less(self) -> None:
        if self._watch is not None and self._ended == self._started:
            self._watch.cancel(reason="every actor has ended")

    async def _report_stragglers(self, watch: trio.CancelScope) -> None:
        # Shielded, or an outer cancel would end the watch before the actors; bounded by the grace.
        watch.shield = True
        watch.deadline = trio.current_time() + self.grace_s
        with watch:
            await trio.sleep_forever()
        if self._ended < self._started:
            supervisors = (self._root, *self._supervisors.values())
            names = [actor.path for supervisor in supervisors for actor in supervisor.actors()]
            # trio cannot end a task that does not let itself be cancelled: say who it is, and go on waiting.
            logger.warning("system %r still waits for %s, stopped %g s ago", self.name, ", ".join(names), self.grace_s)


def _node(actor: Actor[Any]) -> Node:
    return Node(
        actor.name,
        actor.state,
        depth=len(actor.mailbox),
        handling=actor.handling_kind,
        asks=len(actor.asks),
        restarts=actor.restarts,
    )


@asynccontextmanager
async def open_system(
    *, name: str = "system", grace_s: float = 5.0, on_crash: Callable[[Crash], None] | None = None
) -> AsyncGenerator[System, None]:
    """Open a block that actors live in. When it ends, however it ends, they are stopped, and it waits for them.

    Args:
        name: For messages and logs.
        grace_s: How long stopped actors may take, in seconds, before they are named in the log. It goes on waiting:
            trio can end no task that does not let itself be cancelled.
        on_crash: Called with each crash of an actor, synchronously; what it raises is logged.

    Raises:
        Exception: What the block raised, as it was raised: no group around it. Actors raise nothing into it; how each
            ended is in the log, in `on_crash`, and in what `ref.join()` returns.
    """
    system = System(name, grace_s, on_crash)
    error: BaseException
    try:
        async with trio.open_nursery() as nursery:
            system.open(nursery)
            reason = f"system {name!r} failed"
            try:
                yield system
                reason = f"system {name!r} closed"
            finally:
                system.close(reason)
        return
    except BaseExceptionGroup as group:
        # The nursery's own group, and no other: one that the block itself raised stays as it is.
        members = cast("tuple[BaseException, ...]", group.exceptions)
        if len(members) != 1:
            raise
        error = members[0]
    raise error  # out here, where its own context is not replaced by the group
