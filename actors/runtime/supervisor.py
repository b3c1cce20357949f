"""Supervisors: who owns a group of actors, and what happens when one of them crashes (one_for_one).

It decides about each crash once, in one synchronous step: restart after a wait, end, or give up; and it logs that
decision once. It must not know what actors do. Each child waits for its restart in its own task, so nothing that one
child does, and nothing that a hook or the backoff raises, reaches the supervisor or another child.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import trio

from actors.runtime.actor import Actor
from actors.runtime.context import Ctx
from actors.runtime.errors import NotAccepting
from actors.runtime.ref import Ref
from actors.runtime.restart import RestartPolicy

if TYPE_CHECKING:
    from actors.runtime.system import System

M = TypeVar("M")
Ts = TypeVarTuple("Ts")
logger = logging.getLogger("actors.runtime")


@dataclass(frozen=True, slots=True)
class Crash:
    """One crash of an actor, with what was decided.

    Attributes:
        name: The actor's name.
        path: The same under its supervisor's name.
        error: What its body raised, unwrapped.
        message_kind: The type name of the message it had in hand, or None. Never what is in it.
        restarts: How often it has been restarted, with the restart that follows if there is one.
        restart_in_s: Seconds until that restart, or None: it has ended.
        gave_up: True if it has ended because its restarts are used up.
    """

    name: str
    path: str
    error: BaseException
    message_kind: str | None
    restarts: int
    restart_in_s: float | None
    gave_up: bool


class Supervisor:
    """Owns a group of actors. Made by `system.supervise(...)`.

    When one crashes, only that one is restarted, as its policy says.
    """

    __slots__ = ("_children", "_close", "_ended", "_on_crash", "_prefix", "name", "nursery", "policy", "system")

    def __init__(
        self,
        system: "System",
        name: str,
        policy: RestartPolicy,
        on_crash: Callable[[Crash], None] | None,
        *,
        prefix: str = "",
    ) -> None:
        self.system = system
        self.name = name
        self.policy = policy
        self.nursery: trio.Nursery | None = None
        self._prefix = prefix
        self._on_crash = on_crash
        self._children: dict[str, Actor[Any]] = {}
        self._close = trio.Event()
        self._ended = trio.Event()

    def __repr__(self) -> str:
        return f"<Supervisor {self.name!r} of {len(self._children)} actors>"

    @property
    def children(self) -> tuple[Ref[Any], ...]:
        """Its actors that have not ended, in the order of their start."""
        return tuple(child.ref for child in self._children.values())

    def actors(self) -> tuple[Actor[Any], ...]:
        """Return the same, for the runtime."""
        return tuple(self._children.values())

    def path_of(self, name: str) -> str:
        """Return a child's name under this supervisor's."""
        return f"{self._prefix}{name}"

    @property
    def closing(self) -> bool:
        """True once it was stopped: it starts nothing more."""
        return self._close.is_set()

    async def spawn(
        self,
        body: Callable[[Ctx[M], *Ts], Awaitable[None]],
        *args: *Ts,
        name: str | None = None,
        mailbox_size: int = 64,
        own_nursery: bool = False,
        on_end: Callable[[], None] | None = None,
    ) -> Ref[M]:
        """Start an actor and return once it is ready, or has returned. A checkpoint.

        Args:
            body: The actor, an async function; it is ready when it calls `ctx.ready()` or first receives.
            args: Given to it, at each restart too.
            name: Unique in the system; by default the function's name and a number.
            mailbox_size: How many messages may wait, 0 or more.
            own_nursery: Give it `ctx.nursery` for tasks of its own. They are cancelled when its body has ended, and
                their errors are its crash. Such an actor is never restarted.
            on_end: Called once when it and its tasks have ended, before its name is free. It must not raise.

        Raises:
            NameTaken: Another actor that has not ended has this name.
            NotAccepting: The supervisor or the system is closing.
            ActorGone: It was stopped before it was ready.
            Exception: What `body` raised before it was ready. Its name is free then, and it is not restarted.
        """
        if self.nursery is None or self.closing:
            raise NotAccepting(self.name)
        if name is None:
            name = f"{getattr(body, '__name__', 'actor')}-{self.system.next_number()}"
        actor: Actor[M] = Actor(self, body, args, name, mailbox_size, on_end)
        self.system.registry.reserve(name)
        self._children[name] = actor
        self.system.actor_started()
        await actor.start(self.nursery, own_nursery=own_nursery)
        return actor.ref

    def stop(self, reason: str = "") -> None:
        """Start nothing more and stop every child. Idempotent, no checkpoint.

        Args:
            reason: Why, in words; each child is stopped with it.
        """
        self.close()
        for child in self.actors():
            child.stop(reason or f"{self.name!r} was stopped")

    def close(self) -> None:
        """Start nothing more; it ends with its last child. Idempotent, no checkpoint."""
        self._close.set()

    async def join(self) -> None:
        """Wait until it was stopped and every child has ended. A checkpoint."""
        await self._ended.wait()

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        """Keep the children's nursery open until it is stopped and they have ended. The system runs it."""
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                task_status.started()
                await self._close.wait()
        finally:
            self.end()

    def end(self) -> None:
        """Everything has ended."""
        self.close()
        self._ended.set()
        self.system.supervisor_ended(self)

    def forget(self, actor: Actor[Any]) -> None:
        """A child has ended."""
        del self._children[actor.name]

    def judge_return(self, actor: Actor[Any]) -> float | None:
        """Decide what follows a body that has returned: the seconds until its restart, or None."""
        if actor.draining or not actor.published or not self.policy.wants(crashed=False):
            return None
        try:
            delay = self._admit(actor)
        except Exception:
            logger.exception("actor %r returned and is given up: its backoff raised", actor.path)
            return None
        if delay is None:
            logger.error("actor %r returned and is given up after %s", actor.path, self._budget())
        else:
            logger.info("actor %r returned; restart %d in %.3f s", actor.path, actor.restarts + 1, delay)
        return delay

    def judge_crash(self, actor: Actor[Any], error: BaseException, *, final: bool) -> float | None:
        """Decide what follows a crash, log it once, and tell the hook: the seconds until its restart, or None.

        Args:
            actor: Who crashed.
            error: What its body raised.
            final: True if it cannot go on whatever is decided, as it is cancelled from outside.
        """
        delay: float | None = None
        can = actor.published and actor.stop_reason is None and not final
        wanted = can and self.policy.wants(crashed=True)
        if wanted:
            try:
                delay = self._admit(actor)
            except Exception as raised:
                error.add_note(f"its backoff raised {raised!r}")
        crash = Crash(
            name=actor.name,
            path=actor.path,
            error=error,
            message_kind=actor.handling_kind,
            restarts=actor.restarts + (delay is not None),
            restart_in_s=delay,
            gave_up=wanted and delay is None,
        )
        self.system.actor_crashed()
        for report in (self._log, self._on_crash):
            try:
                if report is not None:
                    report(crash)
            except Exception:
                # A hook, or a log filter of the host: recorded where possible, never the end of a supervisor.
                with contextlib.suppress(Exception):
                    logger.exception("reporting the crash of actor %r raised", crash.path)
        return delay

    def _admit(self, actor: Actor[Any]) -> float | None:
        times = self.policy.admit(actor.restart_times, trio.current_time() - actor.paused_s)
        if times is None:
            return None
        delay = self.policy.backoff.delay_s(len(times))
        actor.restart_times = times
        return delay

    def _budget(self) -> str:
        return f"{self.policy.limit} restarts in {self.policy.window_s:g} s"

    def _log(self, crash: Crash) -> None:
        if crash.restart_in_s is not None:
            then = f"restart {crash.restarts} in {crash.restart_in_s:.3f} s"
        else:
            then = f"given up after {self._budget()}" if crash.gave_up else f"ended, restarts: {crash.restarts}"
        fields = {"actor": crash.path, "message_kind": crash.message_kind, "restarts": crash.restarts}
        logger.error(
            "actor %r crashed while handling %s: %s; %s",
            crash.path,
            crash.message_kind or "no message",
            type(crash.error).__name__,
            then,
            exc_info=crash.error,
            extra=fields,
        )
