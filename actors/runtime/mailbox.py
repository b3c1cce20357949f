"""A bounded queue with one receiver, any number of senders, and an account of every message.

It decides where a message goes: to the receiver that waits, into the buffer, to a sender's place in the queue, or back.
It must not know actors, requests or names.

Open -> draining (no sender is left: what is buffered is still received) -> closed (the receiver has gone: what was
buffered is handed back). At every moment `accepted == handled + returned + queued`, and each attempt to send that has
ended is in `accepted` or in `rejected` (one that was cancelled before it began is no attempt).
"""

from collections import OrderedDict, deque
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

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

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """A moment of a mailbox. The names that a trio memory channel has too mean what they mean there."""

    current_buffer_used: int
    max_buffer_size: int
    open_send_channels: int
    open_receive_channels: int
    tasks_waiting_send: int
    tasks_waiting_receive: int
    peak_buffer_used: int
    accepted: int
    rejected: int
    handled: int
    returned: int

    @property
    def sent(self) -> int:
        """Attempts to send that have ended, well or not."""
        return self.accepted + self.rejected


class Mailbox(Generic[M]):
    """The queue itself, without ends. `open_mailbox` gives it two; an actor uses it directly.

    Args:
        max_buffer_size: How many messages may wait, 0 or more; with 0 a message passes only to a receiver that waits.

    Raises:
        TypeError, ValueError: `max_buffer_size` is no integer, or is negative. There is no unbounded mailbox.
    """

    __slots__ = (
        "_capacity",
        "_peak",
        "_queue",
        "_receiver",
        "_waiting",
        "accepted",
        "handled",
        "receivers",
        "rejected",
        "returned",
        "senders",
    )

    def __init__(self, max_buffer_size: int) -> None:
        if not isinstance(max_buffer_size, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"max_buffer_size must be an integer, 0 or more, not {max_buffer_size!r}")
        if max_buffer_size < 0:
            raise ValueError(f"max_buffer_size must be 0 or more, not {max_buffer_size}")
        self._capacity = max_buffer_size
        # An empty deque is 760 bytes, and most mailboxes are empty most of the time: made when first needed.
        self._queue: deque[M] | None = None
        self._waiting: OrderedDict[Task, tuple[M, object]] | None = None
        self._receiver: Task | None = None
        self._peak = 0
        self.senders = 1
        self.receivers = 1
        self.accepted = 0
        self.rejected = 0
        self.handled = 0
        self.returned = 0

    def __len__(self) -> int:
        return len(self._queue) if self._queue else 0

    @property
    def has_room(self) -> bool:
        """True if `offer` would take a message."""
        if not self.senders or not self.receivers:
            return False
        return self._receiver is not None or len(self) < self._capacity

    @enable_ki_protection
    def offer(self, message: M) -> bool:
        """Put a message in if there is room now. Never raises, no checkpoint."""
        if self.senders and self.receivers:
            receiver = self._receiver
            if receiver is not None:
                self._receiver = None
                self.accepted += 1
                self.handled += 1
                # Handed over, not queued: once rescheduled, a task cannot be cancelled out of this wait, so a deadline
                # in the same tick loses nothing (test_a_receive_that_times_out_loses_no_item_a01).
                reschedule(receiver, outcome.Value(message))
                return True
            queue = self._queue
            if queue is None:
                queue = self._queue = deque()
            used = len(queue)
            if used < self._capacity:
                queue.append(message)
                self.accepted += 1
                if used >= self._peak:
                    self._peak = used + 1
                return True
        self.rejected += 1
        return False

    async def put(self, message: M, owner: object = None) -> None:
        """Put a message in, waiting for room in the order of arrival. A checkpoint.

        Args:
            message: What to send.
            owner: The end it is sent through; closing that end wakes its senders.

        Raises:
            ClosedResourceError: The sending side has been closed.
            BrokenResourceError: The receiver has gone.
        """
        await checkpoint_if_cancelled()
        self.check_sendable()
        if self.has_room:
            self.offer(message)
            await cancel_shielded_checkpoint()
            return
        task = current_task()
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = OrderedDict()
        waiting[task] = (message, owner)

        def abort(_: RaiseCancelT) -> Abort:
            del waiting[task]
            self.rejected += 1
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    def check_sendable(self) -> None:
        """Raise, and count it, when no message can be accepted any more. No checkpoint."""
        if not self.senders:
            self.rejected += 1
            raise trio.ClosedResourceError("the sending side of this mailbox has been closed")
        if not self.receivers:
            self.rejected += 1
            raise trio.BrokenResourceError("the receiver of this mailbox has gone")

    @enable_ki_protection
    def take(self) -> M:
        """Take the oldest message. No checkpoint.

        Raises:
            WouldBlock: There is none.
            EndOfChannel: There is none, and none will come.
            ClosedResourceError: The receiving side has been closed.
        """
        if not self.receivers:
            raise trio.ClosedResourceError("the receiving side of this mailbox has been closed")
        if self._waiting:
            self._admit(self._waiting)
        if self._queue:
            self.handled += 1
            return self._queue.popleft()
        if not self.senders:
            raise trio.EndOfChannel
        raise trio.WouldBlock

    async def get(self) -> M:
        """Take the oldest message, waiting for one. A checkpoint; raises what `take` raises, without `WouldBlock`."""
        await checkpoint_if_cancelled()
        try:
            message = self.take()
        except trio.WouldBlock:
            return await self.park()
        await cancel_shielded_checkpoint()
        return message

    def park(self) -> Awaitable[M]:
        """Wait for the next message, after `take` raised `WouldBlock`: await the result at once. A checkpoint.

        Raises:
            BusyResourceError: Another task is receiving.
            EndOfChannel, ClosedResourceError: As `take` does.
        """
        if self._receiver is not None:
            raise trio.BusyResourceError("another task already receives from this mailbox; it has one receiver")
        self._receiver = current_task()
        self._queue = None
        # No coroutine and no closure of its own: ten thousand idle actors wait here, and each would keep them.
        return wait_task_rescheduled(self._leave)  # noqa: ASYNC105

    def _leave(self, _: RaiseCancelT) -> Abort:
        self._receiver = None
        return Abort.SUCCEEDED

    @property
    def would_block(self) -> bool:
        """`take` would raise `WouldBlock`."""
        return not self._queue and not self._waiting and self.senders > 0 and self.receivers > 0

    def close_sending(self) -> None:
        """Accept nothing more: what is buffered is still received, senders that wait are turned away. Idempotent."""
        self.senders = 0
        self._turn_away(trio.ClosedResourceError("the sending side of this mailbox has been closed"))
        if self._receiver is not None:
            reschedule(self._receiver, outcome.Error(trio.EndOfChannel()))
            self._receiver = None

    def close_receiving(self) -> list[M]:
        """Receive nothing more, and hand back what was buffered, oldest first. Idempotent."""
        self.receivers = 0
        self._turn_away(trio.BrokenResourceError("the receiver of this mailbox has gone"))
        if self._receiver is not None:
            reschedule(self._receiver, outcome.Error(trio.ClosedResourceError("closed while a task received from it")))
            self._receiver = None
        left = list(self._queue or ())
        self._queue = None
        self.returned += len(left)
        return left

    def hand_back(self, messages: Iterable[object]) -> None:
        """Take these buffered messages out, found by identity, without handling them."""
        gone = {id(message) for message in messages}
        if not gone:
            return
        kept = deque(message for message in self._queue or () if id(message) not in gone)
        self.returned += len(self) - len(kept)
        self._queue = kept
        while self._waiting and len(kept) < self._capacity:
            self._admit(self._waiting)

    def queued(self) -> list[M]:
        """Return what is buffered, oldest first."""
        return list(self._queue or ())

    def waiting(self) -> list[M]:
        """Return what senders that wait for room would send; none of it is accepted yet."""
        return [message for message, _ in (self._waiting or {}).values()]

    def turn_away(self, owner: object) -> None:
        """Fail the senders that wait through one end, which is being closed."""
        self._turn_away(trio.ClosedResourceError("this send channel was closed while it waited for room"), owner)

    def statistics(self) -> MailboxStatistics:
        """Return this moment's figures. No checkpoint."""
        return MailboxStatistics(
            current_buffer_used=len(self),
            max_buffer_size=self._capacity,
            open_send_channels=self.senders,
            open_receive_channels=self.receivers,
            tasks_waiting_send=len(self._waiting or ()),
            tasks_waiting_receive=int(self._receiver is not None),
            peak_buffer_used=self._peak,
            accepted=self.accepted,
            rejected=self.rejected,
            handled=self.handled,
            returned=self.returned,
        )

    def _admit(self, waiting: OrderedDict[Task, tuple[M, object]]) -> None:
        """Give the sender that has waited longest its place, one above the bound until the caller takes a message."""
        task, (message, _) = waiting.popitem(last=False)
        reschedule(task)
        if self._queue is None:
            self._queue = deque()
        self._queue.append(message)
        self.accepted += 1

    def _turn_away(self, error: Exception, owner: object = None) -> None:
        waiting = self._waiting
        if not waiting:
            return
        for task in [task for task, (_, through) in waiting.items() if owner is None or through is owner]:
            del waiting[task]
            self.rejected += 1
            reschedule(task, outcome.Error(type(error)(*error.args)))
