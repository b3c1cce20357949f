"""What a mailbox counts, and how a message can be lost to its receiver.

It decides what the figures mean, and how they follow from the state of a mailbox. It must not know how that changes.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeAlias, TypeVar

from trio.lowlevel import Task

M = TypeVar("M")


class Lost(StrEnum):
    """How a message came to be not handled by its receiver."""

    REJECTED = "rejected"  # never accepted; an actor says so of what its mailbox refused
    EXPIRED = "expired"  # its asker had gone when it reached the front
    DROPPED = "dropped"  # a newer message took its place
    RETURNED = "returned"  # the receiver ended first


class Losses(Protocol):
    """Who is told of each message that a mailbox accepted and that its receiver will not handle."""

    def lost(self, message: object, how: Lost) -> None:
        """Take note. Called in the middle of a send or a receive, once its books are right: it must not raise.

        It may send to the same mailbox. What is returned by `close_receiving` or by `hand_back` is not told here: the
        one who calls these has it.
        """
        ...


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """A moment of a mailbox. The names that a trio memory channel has too mean what they mean there.

    `sent == rejected + accepted` and `accepted == handled + expired + dropped + returned + queued`, always.

    Attributes:
        current_buffer_used: How many messages wait to be received, in the system lane and in the queue.
        peak_buffer_used: The most there ever were of these.
        accepted: Taken, by a send or from the receiver itself.
        rejected: Refused, turned away or cancelled while they waited for room.
        handled: Received, and not put aside since.
        expired: Skipped, as the asker had gone.
        dropped: Given up for a newer message, as the overflow policy says.
        returned: Handed back unhandled.
        queued: What is in the mailbox: the system lane, the queue, and the stash.
    """

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
    expired: int
    dropped: int
    queued: int

    @property
    def sent(self) -> int:
        """Attempts to send that have ended, well or not."""
        return self.accepted + self.rejected


#: What a sender would send, the end it sends through, and its number among all who ever waited.
Sending: TypeAlias = tuple[M, object, int]


class Lanes(Generic[M]):
    """What few mailboxes have beside their queue. Made when first needed: it is larger than its mailbox.

    Attributes:
        waiting: The tasks that wait for room, in the order of their arrival.
        waits: How many ever waited.
        system: What overtakes every message of the queue.
        stash: What the receiver has put aside.
        expected: How many messages the receiver itself may still order.
        abandoned: A hint: how many askers went away since the queue was last known to hold no request of theirs.
        unchecked: How many messages at the front of the queue the hint is about.
        kept: How many messages of the queue the overflow policy must not drop, where these are marked.
        expired: How many messages were skipped.
        dropped: How many messages gave way.
    """

    __slots__ = (
        "abandoned",
        "dropped",
        "expected",
        "expired",
        "kept",
        "stash",
        "system",
        "unchecked",
        "waiting",
        "waits",
    )

    def __init__(self) -> None:
        self.waiting: OrderedDict[Task, Sending[M]] = OrderedDict()
        self.waits = 0
        # An empty deque is 760 bytes: made when first needed.
        self.system: deque[M] | None = None
        self.stash: deque[M] | None = None
        self.expected = 0
        self.abandoned = 0
        self.unchecked = 0
        self.kept = 0
        self.expired = 0
        self.dropped = 0

    @property
    def busy(self) -> bool:
        """The next message to receive is perhaps not simply the first of the queue."""
        return bool(self.waiting or self.system or self.abandoned or self.kept)


class Account(Generic[M]):
    """The state of a mailbox, as its figures need it.

    The runtime's hottest paths, a tell and a receive, read and change this state themselves where that is simple: only
    while `limit` and `look` allow it.
    """

    __slots__ = (
        "_losses",
        "_peak",
        "accepted",
        "capacity",
        "handled",
        "lanes",
        "limit",
        "look",
        "queue",
        "receiver",
        "receivers",
        "rejected",
        "returned",
        "senders",
    )

    def __init__(self, max_buffer_size: int, losses: Losses | None = None) -> None:
        if not isinstance(max_buffer_size, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"max_buffer_size must be an integer, 0 or more, not {max_buffer_size!r}")
        if max_buffer_size < 0:
            raise ValueError(f"max_buffer_size must be 0 or more, not {max_buffer_size}")
        self.capacity = max_buffer_size
        self._losses = losses
        # An empty deque is 760 bytes, and most mailboxes are empty most of the time: made when first needed. There is
        # none while a receiver waits.
        self.queue: deque[M] | None = None
        # Below this depth an offer need not look at anything else: as deep as offers have filled the queue while it was
        # open, 0 once it is closed.
        self.limit = 0
        self._peak = 0
        self.lanes: Lanes[M] | None = None
        # A receive must look at the lanes first.
        self.look = False
        self.receiver: Task | None = None
        self.senders: int = 1
        self.receivers: int = 1
        self.accepted: int = 0
        self.rejected: int = 0
        self.handled: int = 0
        self.returned: int = 0

    def __len__(self) -> int:
        """Return how many messages wait to be received: the system lane and the queue, without the stash."""
        used = len(self.queue) if self.queue else 0
        lanes = self.lanes
        return used if lanes is None or not lanes.system else used + len(lanes.system)

    @property
    def expired(self) -> int:
        """How many messages were skipped, as their asker had gone."""
        return self.lanes.expired if self.lanes is not None else 0

    @property
    def dropped(self) -> int:
        """How many messages gave way to newer ones."""
        return self.lanes.dropped if self.lanes is not None else 0

    @property
    def expected(self) -> int:
        """How many messages the receiver itself may still order: while there are any, a drained mailbox has no end."""
        return self.lanes.expected if self.lanes is not None else 0

    def queued(self) -> list[M]:
        """Return what is in here: the stash, the system lane, the queue, each oldest first."""
        lanes = self.lanes
        aside: list[M] = [] if lanes is None else [*(lanes.stash or ()), *(lanes.system or ())]
        return aside + self._in_queue()

    def waiting(self) -> list[M]:
        """Return what senders that wait for room would send; none of it is accepted yet."""
        return [] if self.lanes is None else [message for message, _, _ in self.lanes.waiting.values()]

    def is_waiting(self, task: Task) -> bool:
        """Return whether a task waits for room."""
        return self.lanes is not None and task in self.lanes.waiting

    def statistics(self) -> MailboxStatistics:
        """Return this moment's figures."""
        self._note_peak()
        return MailboxStatistics(
            current_buffer_used=len(self),
            max_buffer_size=self.capacity,
            open_send_channels=self.senders,
            open_receive_channels=self.receivers,
            tasks_waiting_send=len(self.lanes.waiting) if self.lanes is not None else 0,
            tasks_waiting_receive=int(self.receiver is not None),
            peak_buffer_used=self._peak,
            accepted=self.accepted,
            rejected=self.rejected,
            handled=self.handled,
            returned=self.returned,
            expired=self.expired,
            dropped=self.dropped,
            queued=self.total,
        )

    def _rare(self) -> Lanes[M]:
        lanes = self.lanes
        if lanes is None:
            lanes = self.lanes = Lanes()
        return lanes

    @property
    def total(self) -> int:
        """How many messages are in here: the system lane, the queue, the stash."""
        lanes = self.lanes
        return len(self) if lanes is None or not lanes.stash else len(self) + len(lanes.stash)

    def _note_peak(self) -> None:
        """Called before anything is taken out while the system lane has messages, as an offer does not count these."""
        self._peak = max(self._peak, len(self))

    def _in_queue(self) -> list[M]:
        return list(self.queue or ())
