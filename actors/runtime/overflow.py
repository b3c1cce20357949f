"""What a mailbox does with a message that it has no room for, or that replaces one it has: the overflow policies.

They decide which message gives way, and that it is counted and told. They must not know actors or channels. What the
receiver itself has ordered never gives way.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from trio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled, enable_ki_protection

from actors.runtime.accounting import Losses
from actors.runtime.errors import MailboxFull
from actors.runtime.keyed import KeyedQueue
from actors.runtime.mailbox import Mailbox

logger = logging.getLogger("actors.runtime")

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Latest:
    """The policy `latest(key)`."""

    key: Callable[[Any], Hashable | None]


def latest(key: Callable[[Any], Hashable | None]) -> Latest:
    """Make the policy that keeps the newest message of each key.

    Args:
        key: Called with each message that is sent. A message takes the place of the queued one whose key is equal. For
            None it replaces nothing and is not replaced; so it is if `key` raises or returns what cannot be hashed,
            which is logged once.
    """
    return Latest(key)


#: What happens when there is no room. `wait`: a send waits, a tell is refused. `reject`: both are refused at once.
#: `drop_oldest`: the oldest message gives way. `latest(key)`: as `wait`, but a message replaces the one of its key.
Overflow: TypeAlias = Literal["wait", "reject", "drop_oldest"] | Latest


def make_mailbox(max_buffer_size: int, overflow: Overflow = "wait", losses: Losses | None = None) -> Mailbox[Any]:
    """Make a mailbox with an overflow policy.

    Args:
        max_buffer_size: How many messages may wait, 0 or more.
        overflow: What happens when there is no room.
        losses: Who is told of each message that expires or is dropped.

    Raises:
        TypeError, ValueError: `max_buffer_size` is no integer, or is negative.
        ValueError: There is no such policy.
    """
    match overflow:
        case "wait":
            return Mailbox(max_buffer_size, losses)
        case "reject":
            return RejectMailbox(max_buffer_size, losses)
        case "drop_oldest":
            return DropOldestMailbox(max_buffer_size, losses)
        case Latest(key):
            return LatestMailbox(max_buffer_size, losses, key=key)
        case _:  # pyright: ignore[reportUnnecessaryComparison]
            raise ValueError(f"overflow must be 'wait', 'reject', 'drop_oldest' or latest(key), not {overflow!r}")


class RejectMailbox(Mailbox[M]):
    """A mailbox in which no sender waits."""

    __slots__ = ()

    @enable_ki_protection
    async def put(self, message: M, owner: object = None) -> None:
        """Put a message in if there is room now. A checkpoint.

        Raises:
            MailboxFull: There is no room.
            ClosedResourceError, BrokenResourceError: As for any mailbox.
        """
        await checkpoint_if_cancelled()
        self.check_sendable()
        if not self.offer(message):
            raise MailboxFull
        await cancel_shielded_checkpoint()


class _Kept(Generic[M]):
    """A message in a queue that may drop others."""

    __slots__ = ("message",)

    def __init__(self, message: M) -> None:
        self.message = message


class DropOldestMailbox(RejectMailbox[M]):
    """A mailbox whose oldest message gives way. It is full for others only when all it has is its receiver's own."""

    __slots__ = ()

    @property
    def has_room(self) -> bool:
        """True if `offer` would take any message."""
        if super().has_room:
            return True
        return self.senders > 0 and self.receivers > 0 and self._oldest() is not None

    @enable_ki_protection
    def offer(self, message: M) -> bool:
        """Put a message in, if need be in exchange for the oldest. Never raises, no checkpoint."""
        queue = self.queue
        if queue is None or len(queue) < self.capacity or not self.senders or not self.receivers:
            return super().offer(message)
        place = self._oldest()
        if place is None:
            self.rejected += 1
            return False
        oldest = queue[place]
        del queue[place]
        queue.append(message)
        self.accepted += 1
        self._drop(oldest)
        return True

    def _oldest(self) -> int | None:
        if not self.capacity:
            return None
        for place, message in enumerate(self.queue or ()):
            if type(message) is not _Kept:
                return place
        return None

    def _append_own(self, message: M) -> None:
        super()._append_own(cast(M, _Kept(message)))
        self._rare().kept += 1
        self.look = True

    def _pop(self, queue: deque[M]) -> M:
        message = queue.popleft()
        if type(message) is not _Kept:
            return message
        self._rare().kept -= 1
        return cast("_Kept[M]", message).message

    def _in_queue(self) -> list[M]:
        return [_bare(message) for message in self.queue or ()]

    def _remove(self, gone: Collection[int]) -> None:
        kept = deque(message for message in self.queue or () if id(_bare(message)) not in gone)
        self.queue = kept
        self._rare().kept = sum(type(message) is _Kept for message in kept)


def _bare(message: M) -> M:
    return cast("_Kept[M]", message).message if type(message) is _Kept else message


class LatestMailbox(Mailbox[M]):
    """A mailbox that has one message of each key, the newest, in the order in which the keys came.

    A sender waits only for room for a message whose key is not in the queue. If a newer one of that key has come when
    there is room, the sender's message is accepted, and dropped for it at once.
    """

    __slots__ = ("_key", "_warned")

    def __init__(
        self, max_buffer_size: int, losses: Losses | None = None, *, key: Callable[[M], Hashable | None]
    ) -> None:
        super().__init__(max_buffer_size, losses)
        self._key = key
        self._warned = False

    @enable_ki_protection
    def offer(self, message: M) -> bool:
        """Put a message in if its key is queued, or there is room now. Never raises, no checkpoint."""
        key = self._key_of(message)
        if key is None:
            return self._offer_plain(message)
        waited = self.lanes.waits if self.lanes is not None else 0
        if self._is_queued(key) and self.senders:
            self.accepted += 1
            self._drop(self._keyed().replace(key, message, waited))
            return True
        if not self._offer_plain(message):
            return False
        # Handed over, it is in no queue: a receiver that waits has let that go.
        if self.queue is not None:
            self._keyed().mark_last(key, waited)
        return True

    def _offer_plain(self, message: M) -> bool:
        taken = super().offer(message)
        self.limit = 0  # no short cut into the queue: each message has its key looked at
        return taken

    def _is_queued(self, key: Hashable) -> bool:
        return bool(self.queue) and self._keyed().waited_before(key) is not None

    def _key_of(self, message: M) -> Hashable | None:
        try:
            key = self._key(message)
            hash(key)
        except Exception:
            # The receiver has given the key; a sender must not suffer for it.
            if not self._warned:
                self._warned = True
                logger.exception("the key of a `latest` mailbox failed for a %s", type(message).__name__)
            return None
        return key

    def _has_room_for(self, message: M) -> bool:
        if self.has_room:
            return True
        key = self._key_of(message)
        return key is not None and self._is_queued(key)

    def _keyed(self) -> KeyedQueue[M]:
        return cast("KeyedQueue[M]", self._made_queue())

    def _made_queue(self) -> deque[M]:
        if self.queue is None:
            self.queue = KeyedQueue()
        return self.queue

    def _admit(self, message: M, number: int) -> None:
        key = self._key_of(message)
        queue = self._keyed()
        before = None if key is None else queue.waited_before(key)
        if key is None or before is None:
            queue.append(message)
            if key is not None:
                queue.mark_last(key, number)
        elif before >= number:  # the queued one was sent when this sender waited already
            self._drop(message)
        else:
            self._drop(queue.replace(key, message, number))

    def _remove(self, gone: Collection[int]) -> None:
        self.queue = self._keyed().without(gone)
