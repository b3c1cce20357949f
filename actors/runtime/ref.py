"""The handle of an actor: what everybody else may do to it.

It decides how each way of sending ends: a tell with True or False, a send with room or `ActorGone`, an ask with exactly
one answer or error. It must not know how actors run or who restarts them; it survives its actor, and stays harmless.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import trio

from actors.runtime.errors import AskTimeout
from actors.runtime.mailbox import MailboxStatistics
from actors.runtime.reply import AskOf, Replies, Reply, attach, detach

if TYPE_CHECKING:
    from actors.runtime.actor import Actor

M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")


class DownKind(StrEnum):
    """How an actor ended."""

    RETURNED = "returned"  # its body was done
    DRAINED = "drained"  # `drain()`, and its body finished what was queued
    STOPPED = "stopped"  # `stop()`, or its supervisor or system closed
    CANCELLED = "cancelled"  # a scope around the system, or around the start, was cancelled
    CRASHED = "crashed"  # its body raised, and it is not (or no longer) restarted


@dataclass(frozen=True, slots=True)
class Down:
    """The end of an actor. There is one per actor, however often it was restarted.

    Attributes:
        name: The actor's name.
        reason: In words: what `stop(reason)` was given, else the kind.
        error: What its body raised, unwrapped, or None. An actor that was stopped has one if its cleanup raised.
        kind: How it ended.
    """

    name: str
    reason: str
    error: BaseException | None
    kind: DownKind


class Ref(Generic[M_contra]):
    """A handle of one actor, for as long as anybody keeps it. It never leads to another actor of the same name."""

    __slots__ = ("_actor",)

    def __init__(self, actor: "Actor[Any]") -> None:
        self._actor = actor

    def __repr__(self) -> str:
        return f"<Ref {self.name!r} {self._actor.state}>"

    @property
    def name(self) -> str:
        """The actor's name, unique in its system while it lives."""
        return self._actor.name

    @property
    def alive(self) -> bool:
        """True until the actor has ended; an actor that waits to be restarted is alive."""
        return self._actor.down is None

    @property
    def started_with(self) -> object:
        """What the actor's body gave to `ctx.ready(value)`, of its latest start; None before."""
        return self._actor.started_with

    def tell(self, message: M_contra) -> bool:
        """Send without waiting. Never raises, no checkpoint; only from trio's thread.

        Returns:
            True if the message is in the mailbox or with the actor; False if there is no room or the actor has ended
            or is ending, which is counted.
        """
        actor = self._actor
        if actor.mailbox.offer(message):
            return True
        actor.system.count_rejected()
        return False

    def tell_threadsafe(self, message: M_contra) -> bool:
        """Send from any thread: `tell` is run in trio's thread soon. Never raises, does not wait.

        Returns:
            False if trio's loop has ended; True says nothing about room in the mailbox.
        """
        try:
            self._actor.system.token.run_sync_soon(self.tell, message)
        except trio.RunFinishedError:
            return False
        return True

    async def send(self, message: M_contra) -> None:
        """Send, waiting for room in the order of arrival. A checkpoint.

        Raises:
            ActorGone: The actor has ended or is ending, or did so while this waited. The message was not accepted.
        """
        actor = self._actor
        try:
            await actor.mailbox.put(message)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            actor.system.count_rejected()
            raise actor.gone() from actor.error

    async def ask(self, message: AskOf[M_contra, R], *, within: float = math.inf) -> R:
        """Send a request, waiting for room, and wait for its answer. A checkpoint.

        Args:
            message: A request (`Replies[R]`) that carries no other open ask.
            within: Seconds for room and answer together; without it the caller's cancel scope is the only limit.

        Returns:
            What the actor gave to `msg.reply.send(...)`.

        Raises:
            ActorGone: The actor has ended or is ending; or it ended, crashed or was restarted before it answered.
            AskTimeout: `within` ran out. A later answer is dropped and counted.
            RuntimeError: The object carries an ask that was not answered.
            Exception: What the actor gave to `msg.reply.fail(...)`.
        """
        request = cast("Replies[R]", message)
        actor = self._actor
        slot = attach(request, actor.asks)
        if math.isinf(within):
            return await self._ask(request, slot)
        with trio.move_on_after(within):
            return await self._ask(request, slot)
        raise AskTimeout(actor.name, within, len(actor.mailbox), actor.handling_kind)

    async def _ask(self, request: Replies[R], slot: Reply[R]) -> R:
        actor = self._actor
        actor.asks.open(slot)
        accepted = False
        try:
            try:
                await trio.lowlevel.checkpoint_if_cancelled()
                # With room there is one trip through the scheduler, to the answer; `put` would make it two.
                if actor.mailbox.has_room:
                    actor.mailbox.offer(request)
                else:
                    await actor.mailbox.put(request)
                accepted = True
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                actor.system.count_rejected()
                slot.end(actor.gone())
            return await slot.wait()
        finally:
            slot.give_up()
            if not accepted:  # nobody has it: the object may be asked again
                detach(request)

    def drain(self) -> None:
        """Accept nothing more, let the actor finish what is queued, and end. Idempotent, no checkpoint."""
        self._actor.drain()

    def stop(self, reason: str = "") -> None:
        """Accept nothing more and cancel the actor; what is queued is returned. Idempotent, no checkpoint.

        Args:
            reason: Why, in words; it is in every `Cancelled` of the actor, in `Down` and in `ActorGone`.
        """
        self._actor.stop(reason)

    async def join(self) -> Down:
        """Wait until the actor has ended and its name is free, and return how. A checkpoint; any number may wait."""
        return await self._actor.join()

    def statistics(self) -> MailboxStatistics:
        """Return the figures of its mailbox. No checkpoint."""
        return self._actor.mailbox.statistics()
