"""The handle of an actor: what everybody else may do to it.

It decides how each way of sending ends: a tell with True or False, a send with room or `ActorGone`, an ask with exactly
one answer or error. It must not know how actors run or who restarts them; it survives its actor, and stays harmless.
"""

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
import trio
from trio.lowlevel import (
    Task,
    checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    reschedule,
)

from actors.runtime import waits
from actors.runtime.errors import MailboxFull
from actors.runtime.handed import Handed
from actors.runtime.mailbox import Mailbox, MailboxStatistics
from actors.runtime.reply import AskOf, Replies, Reply, attach, detach

if TYPE_CHECKING:
    from actors.runtime.actor import Actor

M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")

#: Every 32nd send of a system lets other tasks run.
_GIVE_WAY = 31


class DownKind(StrEnum):
    """How an actor ended."""

    RETURNED = "returned"  # its body was done
    DRAINED = "drained"  # `drain()`, and its body finished what was queued
    STOPPED = "stopped"  # `stop()`, or its supervisor or system closed
    CANCELLED = "cancelled"  # a scope around the system, or around the start, was cancelled
    CRASHED = "crashed"  # its body raised, and it is not (or no longer) restarted


class Down(msgspec.Struct, frozen=True):
    """The end of an actor. There is one per actor, however often it was restarted.

    Attributes:
        ref: The actor: the same handle that was watched or joined.
        name: Its name.
        reason: In words: what `stop(reason)` was given, else the kind.
        error: What its body raised, unwrapped, or None. An actor that was stopped has one if its cleanup raised, or if
            an error was on its way out when the stop cut it off.
        kind: How it ended.
        handled: How many messages it took, over all its restarts.
    """

    ref: "Ref[Any]"
    name: str
    reason: str
    error: BaseException | None
    kind: DownKind
    handled: int


class Ref(Generic[M_contra]):
    """A handle of one actor, for as long as anybody keeps it. It never leads to another actor of the same name."""

    __slots__ = ("_actor", "_mailbox")

    def __init__(self, actor: "Actor[Any]") -> None:
        self._actor = actor
        self._mailbox = actor.mailbox

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

    @enable_ki_protection
    def tell(self, message: M_contra) -> bool:
        """Send without waiting. Never raises, no checkpoint; only from trio's thread.

        Returns:
            True if the message is in the mailbox or with the actor; False if there is no room or the actor has ended
            or is ending: it is a dead letter then.
        """
        mailbox = self._mailbox
        queue = mailbox.queue
        if queue is not None and len(queue) < mailbox.limit:
            queue.append(message)
            mailbox.accepted += 1
            return True
        receiver = mailbox.receiver
        if receiver is not None and mailbox.senders:
            mailbox.receiver = None
            mailbox.accepted += 1
            mailbox.handled += 1
            reschedule(receiver, Handed(message))
            return True
        if mailbox.offer(message):
            return True
        self._actor.refused(message)
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
        """Send, waiting for room in the order of arrival.

        Cancellation is checked each time. It lets other tasks run when it waits, and at the latest with every 32nd send
        in the system: a trip through the scheduler costs more than all the rest of a send.

        Raises:
            ActorGone: The actor has ended or is ending, or did so while this waited. The message was not accepted.
            MailboxFull: There is no room, and the actor's mailbox rejects then.
            AskCycle: There is no room, and the actor waits, perhaps through others, for the one that sends.
        """
        await checkpoint_if_cancelled()
        actor = self._actor
        system = actor.system
        system.sends += 1
        if not system.sends & _GIVE_WAY:
            await checkpoint()
        if actor.mailbox.has_room:
            actor.mailbox.offer(message)
            return
        task = current_task()
        sender = waits.bodies.get(task)
        if sender is None:
            await self._wait_for_room(message)
            return
        waits.check(sender, actor)
        waits.begin(sender, actor, _Sending(self._mailbox, task))
        try:
            await self._wait_for_room(message)
        finally:
            waits.end(sender)

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
            AskCycle: The actor waits, perhaps through others, for the one that asks. Nothing was sent.
            MailboxFull: There is no room, and the actor's mailbox rejects then.
            MessageDropped: The actor's mailbox dropped the request for a newer message.
            RuntimeError: The object carries an ask that was not answered.
            TypeError: The object is no request.
            Exception: What the actor gave to `msg.reply.fail(...)`.
        """
        await checkpoint_if_cancelled()
        if within != within:
            raise ValueError("an ask may take a number of seconds, not nan")
        actor = self._actor
        task = current_task()
        asker = waits.bodies.get(task)
        if asker is not None:
            waits.check(asker, actor)
        request = cast("Replies[R]", message)
        slot = attach(request, actor)
        if asker is not None:
            waits.begin(asker, actor, slot)
        try:
            if within != math.inf:
                slot.within = within
                wheel = actor.system.wheel
                wheel.add(slot, wheel.now() + within)
            try:
                # With room there is one trip through the scheduler, to the answer.
                if self._mailbox.has_room:
                    self.tell(message)  # type: ignore[arg-type]
                    answer: R = await slot.park(task)  # nothing was awaited since: it is not answered
                    return answer
                await self._wait_to_ask(request, slot, task)
                return await slot.wait()
            except BaseException:
                slot.give_up()
                raise
        finally:
            if asker is not None:
                waits.end(asker)

    async def _wait_to_ask(self, request: Replies[R], slot: Reply[R], task: Task) -> None:
        slot.sending(task)
        try:
            await self._wait_for_room(cast(Any, request))
        except BaseException:
            detach(request)  # nobody has it: the object may be asked again
            raise

    async def _wait_for_room(self, message: M_contra) -> None:
        actor = self._actor
        if actor.down is not None:
            actor.system.count_rejected_by_ended()
        try:
            await actor.mailbox.put(message)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            gone = actor.gone()
        except MailboxFull:
            raise MailboxFull(actor.name) from None
        else:
            return
        raise gone from actor.error

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
        """Wait until the actor has ended and its name is free, and return how. A checkpoint; any number may wait.

        Raises:
            AskCycle: It waits, perhaps through others, for the actor whose body calls this.
        """
        return await self._actor.join()

    def statistics(self) -> MailboxStatistics:
        """Return the figures of its mailbox. No checkpoint."""
        return self._actor.mailbox.statistics()

    def for_runtime(self) -> "Actor[Any]":
        """Return what is behind the handle. For the runtime only."""
        return self._actor


class _Sending:
    """A send that waits for room."""

    __slots__ = ("_mailbox", "_task")

    def __init__(self, mailbox: Mailbox[Any], task: Task) -> None:
        self._mailbox = mailbox
        self._task = task

    @property
    def active(self) -> bool:
        """False once it has its place."""
        return self._mailbox.is_waiting(self._task)
