"""The figures of a system: sums over its mailboxes, and counts of what happened. Data; it must not know tasks."""

from dataclasses import dataclass
from typing import Any

from actors.runtime.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class SystemStatistics:
    """Counts of one system since it was opened; `actors`, `supervisors` and `queued` are of this moment.

    At every moment `sent == rejected + accepted` and `accepted == handled + expired + dropped + returned + queued`.

    Attributes:
        sent: Messages that somebody tried to send, and the try has ended.
        accepted: Messages that are or were in a mailbox.
        rejected: Messages not accepted: no room for a tell, or the actor had ended, or the sender was cancelled.
        handled: Messages that an actor took.
        expired: Requests that were skipped, as their asker had gone.
        dropped: Messages that the overflow policy of their mailbox gave up for newer ones.
        returned: Messages that were accepted and not handled, because the actor ended or crashed.
        queued: Messages in mailboxes and stashes.
        late_replies: Answers whose asker had gone.
    """

    actors: int
    supervisors: int
    started: int
    ended: int
    crashes: int
    restarts: int
    sent: int
    accepted: int
    rejected: int
    handled: int
    expired: int
    dropped: int
    returned: int
    queued: int
    late_replies: int


class Totals:
    """Sums over mailboxes."""

    __slots__ = ("accepted", "dropped", "expired", "handled", "queued", "rejected", "returned")

    def __init__(self) -> None:
        self.accepted = self.rejected = self.handled = self.expired = self.dropped = self.returned = self.queued = 0

    def add(self, one: "Mailbox[Any] | Totals") -> None:
        self.accepted += one.accepted
        self.rejected += one.rejected
        self.handled += one.handled
        self.expired += one.expired
        self.dropped += one.dropped
        self.returned += one.returned
