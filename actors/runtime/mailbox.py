"""A bounded queue with one receiver, any number of senders, and an account of every message.

It decides where a message goes: to the receiver that waits, into the queue, to a sender's place before it, or back. It
must not know actors, requests or names. What happens when there is no room is the overflow policy's, by subclass; this
class lets senders wait.

Open -> draining (no sender is left: what is queued is still received, and so is what the receiver itself orders) ->
closed (the receiver has gone: what was queued is handed back). At every moment `sent == rejected + accepted` and
`accepted == handled + expired + dropped + returned + queued`; each attempt to send that has ended is in `accepted` or
in `rejected` (one that was cancelled before it began is no attempt).
"""

from collections.abc import Awaitable
from typing import TypeVar

import outcome
import trio
from trio.lowlevel import (
    Abort,
    RaiseCancelT,
    Task,
    cancel_shielded_checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from actors.runtime.accounting import Losses, Lost, MailboxStatistics
from actors.runtime.contents import Contents
from actors.runtime.handed import Handed

__all__ = ["Losses", "Lost", "Mailbox", "MailboxStatistics"]

M = TypeVar("M")
T = TypeVar("T")


class Mailbox(Contents[M]):
    """The queue itself, without ends. `open_mailbox` gives it two; an actor uses it directly.

    Args:
        max_buffer_size: How many messages may wait, 0 or more; with 0 a message passes only to a receiver that waits.
        losses: Who is told of each message that expires or is dropped.

    Raises:
        TypeError, ValueError: `max_buffer_size` is no integer, or is negative. There is no unbounded mailbox.
    """

    __slots__ = ()

    # Sending.

    @property
    def has_room(self) -> bool:
        """True if `offer` would take any message."""
        if not self.senders or not self.receivers:
            return False
        return self.receiver is not None or (len(self.queue) if self.queue else 0) < self.capacity

    @enable_ki_protection
    def offer(self, message: M) -> bool:
        """Put a message in if there is room now. Never raises, no checkpoint."""
        queue = self.queue
        if queue is not None:
            used = len(queue)
            if used < self.limit:
                queue.append(message)
                self.accepted += 1
                return True
            if used >= self.capacity:
                self.rejected += 1
                return False
        if self.senders and self.receivers:
            receiver = self.receiver
            if receiver is not None:  # `_hand_over`, written out
                self.receiver = None
                self.accepted += 1
                self.handled += 1
                reschedule(receiver, Handed(message))
                return True
            if self.capacity:
                queue = self._made_queue()
                queue.append(message)
                self.accepted += 1
                used = len(queue)
                self.limit = max(self.limit, used)
                self._peak = max(self._peak, used)
                return True
        self.rejected += 1
        return False

    @enable_ki_protection
    async def put(self, message: M, owner: object = None) -> None:
        """Put a message in, waiting for room in the order of arrival. A checkpoint.

        Args:
            message: What to send.
            owner: The end it is sent through; closing that end wakes its senders.

        Raises:
            ClosedResourceError: The sending side has been closed.
            BrokenResourceError: The receiver has gone.
            MailboxFull: There is no room, and the overflow policy is not to wait.
        """
        await checkpoint_if_cancelled()
        self.check_sendable()
        if self._has_room_for(message):
            self.offer(message)
            await cancel_shielded_checkpoint()
            return
        task = current_task()
        lanes = self._rare()
        lanes.waits += 1
        lanes.waiting[task] = (message, owner, lanes.waits)
        self.look = True

        def abort(_: RaiseCancelT) -> Abort:
            del lanes.waiting[task]
            self.rejected += 1
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    def _has_room_for(self, message: M) -> bool:
        return self.has_room

    @enable_ki_protection
    def withdraw(self, task: Task, error: Exception) -> bool:
        """Let the `put` in which a task waits for room raise `error`. No checkpoint.

        Returns:
            False if it does not wait there.
        """
        lanes = self.lanes
        if lanes is None or lanes.waiting.pop(task, None) is None:
            return False
        self.rejected += 1
        reschedule(task, outcome.Error(error))
        return True

    def check_sendable(self) -> None:
        """Raise, and count it, when no message can be accepted any more. No checkpoint."""
        if not self.senders:
            self.rejected += 1
            raise trio.ClosedResourceError("the sending side of this mailbox has been closed")
        if not self.receivers:
            self.rejected += 1
            raise trio.BrokenResourceError("the receiver of this mailbox has gone")

    # Receiving.

    @enable_ki_protection
    def take(self) -> M:
        """Take the next message: the oldest of the system lane, else of the queue. No checkpoint.

        Raises:
            WouldBlock: There is none.
            EndOfChannel: There is none, and none will come.
            ClosedResourceError: The receiving side has been closed.
        """
        queue = self.queue
        if queue and not self.look:
            self.handled += 1
            return queue.popleft()
        return self._take_first()

    @enable_ki_protection
    def poll(self, nothing: T) -> M | T:
        """Take the next message as `take` does, but return `nothing` where that raises `WouldBlock`. No checkpoint."""
        queue = self.queue
        if queue and not self.look:
            self.handled += 1
            return queue.popleft()
        return nothing if self.would_block else self._take_first()

    def _take_first(self) -> M:
        lanes = self.lanes
        if lanes is None:  # then the queue was found empty
            raise self._nothing()
        if lanes.abandoned:
            self.skip_expired()
        if lanes.system:
            self._note_peak()
            self.handled += 1
            message = lanes.system.popleft()
        elif self.queue:
            self.handled += 1
            lanes.unchecked -= 1
            message = self._pop(self.queue)
            self._refill(lanes)
        elif lanes.waiting:  # the size is 0
            self.accepted += 1
            self.handled += 1
            task, (message, _, _) = lanes.waiting.popitem(last=False)
            reschedule(task)
        else:
            raise self._nothing()
        self.look = lanes.busy
        return message

    def _nothing(self) -> Exception:
        if not self.receivers:
            return trio.ClosedResourceError("the receiving side of this mailbox has been closed")
        return trio.WouldBlock() if self.senders or self.expected else trio.EndOfChannel()

    @property
    def would_block(self) -> bool:
        """`take` would raise `WouldBlock`. What has expired is skipped first."""
        if self.queue and not self.look:
            return False
        lanes = self.lanes
        if lanes is not None:
            self.skip_expired()
            if lanes.system or lanes.waiting:
                return False
        return not self.queue and self.receivers > 0 and (self.senders > 0 or self.expected > 0)

    @enable_ki_protection
    async def get(self) -> M:
        """Take the next message, waiting for one. A checkpoint; raises what `take` raises, without `WouldBlock`."""
        await checkpoint_if_cancelled()
        try:
            message = self.take()
        except trio.WouldBlock:
            return await self.park()
        await cancel_shielded_checkpoint()
        return message

    def park(self, task: Task | None = None) -> Awaitable[M]:
        """Wait for the next message, after `take` raised `WouldBlock`: await the result at once. A checkpoint.

        Args:
            task: The current task, if the caller knows it.

        Raises:
            BusyResourceError: Another task is receiving.
            EndOfChannel, ClosedResourceError: As `take` does.
        """
        if self.receiver is not None:
            raise trio.BusyResourceError("another task already receives from this mailbox; it has one receiver")
        self.receiver = task or current_task()
        self.queue = None
        # No coroutine and no closure of its own: ten thousand idle actors wait here, and each would keep them.
        return wait_task_rescheduled(self._leave)  # noqa: ASYNC105

    def _leave(self, _: RaiseCancelT) -> Abort:
        self.receiver = None
        return Abort.SUCCEEDED

    # The end.

    @enable_ki_protection
    def close_sending(self) -> None:
        """Accept nothing more from others: what is queued is still received, senders that wait are turned away.

        Idempotent, no checkpoint.
        """
        self.senders = 0
        self.limit = 0
        if self.lanes is not None:
            self._turn_away(trio.ClosedResourceError("the sending side of this mailbox has been closed"))
        self._end_if_drained()

    @enable_ki_protection
    def close_receiving(self) -> list[M]:
        """Receive nothing more, and hand back what `queued` shows. Idempotent, no checkpoint."""
        self.receivers = 0
        self.limit = 0
        if self.lanes is not None:
            self._turn_away(trio.BrokenResourceError("the receiver of this mailbox has gone"))
        if self.receiver is not None:
            reschedule(self.receiver, outcome.Error(trio.ClosedResourceError("closed while a task received from it")))
            self.receiver = None
        if self.lanes is None and not self.queue:
            return []
        self._note_peak()
        left = self.queued()
        self.returned += len(left)
        self.queue = None
        lanes = self.lanes
        if lanes is not None:
            lanes.system = lanes.stash = None
            lanes.abandoned = lanes.kept = 0
            self.look = False
        return left

    def turn_away(self, owner: object) -> None:
        """Fail the senders that wait through one end, which is being closed."""
        self._turn_away(trio.ClosedResourceError("this send channel was closed while it waited for room"), owner)

    def _turn_away(self, error: Exception, owner: object = None) -> None:
        waiting = self.lanes.waiting if self.lanes is not None else None
        if not waiting:
            return
        for task in [task for task, (_, through, _) in waiting.items() if owner is None or through is owner]:
            del waiting[task]
            self.rejected += 1
            reschedule(task, outcome.Error(type(error)(*error.args)))
