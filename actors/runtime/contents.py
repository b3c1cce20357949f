"""What is in a mailbox, the account of it, and what its receiver does to it beside receiving.

It decides what overtakes the rest, what is put aside and what is skipped. It must not know when others may send, and of
requests only whether their asker has gone.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import TypeVar

import outcome
import trio
from trio.lowlevel import Task, enable_ki_protection, reschedule

from actors.runtime.accounting import Account, Lanes, Lost
from actors.runtime.errors import StashFull
from actors.runtime.handed import Handed
from actors.runtime.reply import is_expired

M = TypeVar("M")


class Contents(Account[M]):
    """The part of a mailbox that its receiver works on. Nothing here is a checkpoint."""

    __slots__ = ()

    # What the receiver itself orders.

    @enable_ki_protection
    def post(self, message: M) -> bool:
        """Put in what the receiver itself has ordered: behind the rest, but not bound by the size.

        It is accepted while the mailbox drains too, and no overflow policy drops it.

        Returns:
            False if the receiver has gone, which is counted.
        """
        if not self.receivers:
            self.rejected += 1
            return False
        self.accepted += 1
        if self.receiver is not None:
            self._hand_over(self.receiver, message)
        else:
            self._append_own(message)
            self._note_peak()
        return True

    @enable_ki_protection
    def post_system(self, message: M) -> bool:
        """Put in what overtakes everything but earlier ones of its kind. Otherwise as `post`."""
        if not self.receivers:
            self.rejected += 1
            return False
        self.accepted += 1
        if self.receiver is not None:
            self._hand_over(self.receiver, message)
            return True
        lanes = self._rare()
        if lanes.system is None:
            lanes.system = deque()
        lanes.system.append(message)
        self.look = True
        self._note_peak()
        return True

    def expect_more(self) -> None:
        """The receiver may order one more message, until `expect_less`."""
        self._rare().expected += 1

    @enable_ki_protection
    def expect_less(self) -> None:
        """One message that was expected has come, or will not come.

        Raises:
            RuntimeError: None is expected.
        """
        lanes = self.lanes
        if lanes is None or not lanes.expected:
            raise RuntimeError("expect_less() was called more often than expect_more()")
        lanes.expected -= 1
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        # A receiver that waits has seen that all is empty.
        if self.receiver is not None and not self.senders and not self.expected:
            receiver, self.receiver = self.receiver, None
            reschedule(receiver, outcome.Error(trio.EndOfChannel()))

    # Messages aside.

    @enable_ki_protection
    def stash(self, message: M, limit: int) -> None:
        """Put the message that was just taken aside, until `unstash`.

        Args:
            message: The message; it counts as handled no more.
            limit: How many the stash may hold.

        Raises:
            StashFull: It holds as many. The message stays taken.
            ClosedResourceError: The receiving side has been closed.
        """
        if not self.receivers:
            raise trio.ClosedResourceError("the receiving side of this mailbox has been closed")
        lanes = self._rare()
        stash = lanes.stash
        if len(stash or ()) >= limit:
            raise StashFull("", limit)
        if stash is None:
            stash = lanes.stash = deque()
        stash.append(message)
        self.handled -= 1

    @enable_ki_protection
    def unstash(self) -> None:
        """Put all that was put aside before the queue, in the order in which it was."""
        lanes = self.lanes
        if lanes is None or not lanes.stash:
            return
        stash, lanes.stash = lanes.stash, None
        if self.receiver is not None:  # so another task of the receiver calls this
            self._hand_over(self.receiver, stash.popleft())
        if stash:
            self._made_queue().extendleft(reversed(stash))
            self._note_peak()
            # Their askers may have gone when they were not in the queue.
            self.abandoned += 1

    @enable_ki_protection
    def hand_back(self, messages: Iterable[object]) -> None:
        """Take these messages out of the queue, the system lane and the stash, found by identity."""
        gone = {id(message) for message in messages}
        if not gone:
            return
        self._note_peak()
        before = self.total
        if self.queue:
            self._remove(gone)
        lanes = self.lanes
        if lanes is not None:
            lanes.system = without(lanes.system, gone) if lanes.system else None
            lanes.stash = without(lanes.stash, gone) if lanes.stash else None
        self.returned += before - self.total
        if lanes is not None:
            self._refill(lanes)

    # Requests that nobody waits for.

    @property
    def abandoned(self) -> int:
        """A hint that an ask raises by one when its asker goes away, as its request may be queued.

        While it is 0, receiving costs nothing more. It is 0 again when what was queued has been looked at.
        """
        return self.lanes.abandoned if self.lanes is not None else 0

    @abandoned.setter
    def abandoned(self, askers: int) -> None:
        if self.queue:
            lanes = self._rare()
            lanes.abandoned = askers
            lanes.unchecked = len(self.queue)
            self.look = True

    @enable_ki_protection
    def skip_expired(self) -> None:
        """Take the requests that nobody waits for any more off the front of the queue."""
        lanes = self.lanes
        if lanes is None or not lanes.abandoned:
            return
        self._note_peak()
        while self.queue and lanes.unchecked > 0 and is_expired(self.queue[0]):
            message = self.queue.popleft()
            lanes.unchecked -= 1
            lanes.expired += 1
            self._refill(lanes)
            if self._losses is not None:
                self._losses.lost(message, Lost.EXPIRED)
        if not self.queue or lanes.unchecked <= 0:
            lanes.abandoned = 0

    # The steps of all of these.

    def _hand_over(self, receiver: Task, message: M) -> None:
        # Not queued: once rescheduled, a task cannot be cancelled out of this wait, so a deadline in the same tick
        # loses nothing (test_a_receive_that_times_out_loses_no_item_a01).
        self.receiver = None
        self.handled += 1
        reschedule(receiver, Handed(message))

    def _refill(self, lanes: Lanes[M]) -> None:
        """Give the senders that have waited longest the places that became free."""
        while lanes.waiting and (len(self.queue) if self.queue else 0) < self.capacity:
            task, (message, _, number) = lanes.waiting.popitem(last=False)
            self.accepted += 1
            reschedule(task)
            self._admit(message, number)

    def _drop(self, message: M) -> None:
        """Count an accepted message that gave way to another."""
        self._rare().dropped += 1
        if self._losses is not None:
            self._losses.lost(message, Lost.DROPPED)

    # What an overflow policy does in its own way.

    def _made_queue(self) -> deque[M]:
        """Return the queue, made if there is none."""
        queue = self.queue
        if queue is None:
            queue = self.queue = deque()
        return queue

    def _admit(self, message: M, number: int) -> None:
        """Queue the message of a sender that has waited, now accepted."""
        self._made_queue().append(message)

    def _append_own(self, message: M) -> None:
        """Queue a message that the receiver itself has ordered."""
        self._made_queue().append(message)

    def _pop(self, queue: deque[M]) -> M:
        """Take the first message of a queue that has one."""
        return queue.popleft()

    def _remove(self, gone: Collection[int]) -> None:
        """Take the messages with these ids out of the queue."""
        self.queue = without(self._made_queue(), gone)


def without(lane: deque[M], gone: Collection[int]) -> deque[M]:
    """Return a lane without the messages with these ids."""
    return deque(message for message in lane if id(message) not in gone)
