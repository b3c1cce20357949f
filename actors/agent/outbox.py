"""The one way out of a session: whatever leaves is released in order, once the record that justifies it is committed.

Events, deltas, acknowledgements and snapshots share one queue with the log, so none can overtake another. It must not
know what they mean, nor wait for a reader: who does not take an event at once is cut off with its cursor.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from protocol import events as ev
from protocol.errors import Code, RuleViolation

logger = logging.getLogger("actors.session")


class Reader(Protocol):
    """A subscription to one session. Both calls are synchronous and must not raise."""

    def offer(self, event: ev.Event) -> bool:
        """Take an event, durable or ephemeral, in order and after its commit. False cuts this reader off."""
        ...

    def closed(self, code: Code, seq: int) -> None:
        """Nothing more will come; the last durable event that it was offered and took was `seq`."""
        ...


# (seq that justifies it, what to do, its arguments, what to do instead if the store fails)
_Item = tuple[int, Callable[..., object], tuple[Any, ...], Callable[[RuleViolation], object] | None]


class Outbox:
    """The log as far as it is recorded, committed and released, and who reads it.

    Attributes:
        log: The last records; the one of seq `n` is at `n - 1 - log_base`. Older ones only the store has.
        log_base: How many records come before them.
        committed: Seq of the last record that the store has kept.
        closed: Why nothing is recorded any more, or None.
    """

    __slots__ = (
        "_max_log", "_outbox", "_readers", "_released", "_releasing", "_turn", "closed", "committed", "log", "log_base",
    )  # fmt: skip

    def __init__(self, max_log_records: int) -> None:
        """Begin with nothing; a log of more than `max_log_records` is cut down to half of that."""
        self.log: list[ev.Event] = []
        self.log_base = 0
        self._max_log = max_log_records
        self.committed = 0
        self.closed: RuleViolation | None = None
        self._released = 0
        self._releasing = False
        # While an event is offered: to whom, whose turn it is, and what.
        self._turn: tuple[Sequence[Reader], int, ev.Event | ev.Ephemeral] | None = None
        self._readers: list[Reader] = []
        self._outbox: deque[_Item] | None = None

    def commit(self, head: int) -> None:
        """The store has kept everything up to `head`."""
        if head > self.committed and self.closed is None:
            self.committed = head
            self._release()
            if len(self.log) > self._max_log:
                self._cut_log()

    def _cut_log(self) -> None:
        """Keep the last records, what has not left yet, and what is promised to a reader that is about to join."""
        first = min(self._released, self.log_base + len(self.log) - self._max_log // 2)
        for item in self._outbox or ():
            if item[1] == self._join and item[2][1] is not None:
                first = min(first, item[2][1])
        if first > self.log_base:
            del self.log[: first - self.log_base]
            self.log_base = first

    def leave(
        self, action: Callable[..., object], *args: Any, failed: Callable[[RuleViolation], object] | None = None
    ) -> None:
        """Do `action(*args)` once everything recorded so far is committed, in order. It must only queue, never raise.

        Args:
            action: Called at most once.
            args: For `action`.
            failed: Called instead if the store fails first.
        """
        if self.closed is not None:
            if failed is not None:
                failed(self.closed)
            return
        if self._released == self.log_base + len(self.log) and not self._outbox and not self._releasing:
            # As in `_release`: what this leads to, a record or another reader's event, waits until it is through.
            self._releasing = True
            try:
                action(*args)
            finally:
                self._releasing = False
            if self._outbox or self._released < self.committed:
                self._release()
            return
        if self._outbox is None:
            self._outbox = deque()
        self._outbox.append((self.log_base + len(self.log), action, args, failed))
        self._release()

    def _release(self) -> None:
        # Whoever is offered an event may call back into this session: the outermost call delivers, in order.
        if self._releasing:
            return
        self._releasing = True
        try:
            while True:
                outbox = self._outbox
                while outbox and outbox[0][0] <= self._released:
                    _, action, args, _ = outbox.popleft()
                    action(*args)
                if self._released >= self.committed or self.closed is not None:
                    break
                event = self.log[self._released - self.log_base]
                self._released += 1
                self._offer(event)
        finally:
            self._releasing = False
        if outbox is not None and not outbox:
            self._outbox = None

    def _cut_off(self, reader: Reader, refused: ev.Event | ev.Ephemeral) -> None:
        self.detach(reader)
        reader.closed(Code.LINK_TOO_SLOW, self._before(refused))

    def _before(self, event: ev.Event | ev.Ephemeral) -> int:
        """Return the seq that a reader has reached that has not taken `event`, the last that was released."""
        return self._released - 1 if event.durable else self._released

    @property
    def watched(self) -> bool:
        """Somebody would see an ephemeral event."""
        if self._readers:
            return True
        # Whoever is about to join must not miss what is shown until then.
        return self._outbox is not None and any(item[1] == self._join for item in self._outbox)

    def show(self, event: ev.Ephemeral) -> None:
        """Send an ephemeral event to the readers, behind everything recorded so far. It has its `base` and time."""
        if self._released == self.log_base + len(self.log) and not self._outbox and not self._releasing:
            # `leave` with fewer steps, for the most frequent thing there is.
            self._releasing = True
            try:
                self._offer(event)
            finally:
                self._releasing = False
            if self._outbox or self._released < self.committed:
                self._release()
        else:
            self.leave(self._offer, event)

    def _offer(self, event: ev.Event | ev.Ephemeral) -> None:
        readers = self._readers
        for turn, reader in enumerate(readers):
            if self._readers is not readers and reader not in self._readers:
                continue  # one before it has detached it, or ended everything
            self._turn = (readers, turn, event)
            if not self._takes(reader, event):
                self._cut_off(reader, event)
        self._turn = None

    def _takes(self, reader: Reader, event: ev.Event | ev.Ephemeral) -> bool:
        try:
            return reader.offer(event)
        except Exception as error:  # the fault of one reader is neither the store's nor the session's
            logger.error("a reader raised %s and is cut off", type(error).__name__, exc_info=error)
            return False

    def attach(
        self,
        reader: Reader,
        *,
        after: int | None = None,
        joined: Callable[[], object] | None = None,
        failed: Callable[[RuleViolation], object] | None = None,
    ) -> None:
        """Let `reader` see what follows, in one synchronous step: no gap, nothing twice.

        Args:
            reader: Offered every event after this point.
            after: Offer first the records after this seq, which is not before `log_base`.
            joined: Called right before, for the reply that must precede the events.
            failed: Called instead, if the session has ended or the store fails before it could join; by default the
                reader's `closed`.
        """
        if failed is None:
            failed = partial(self._refuse, reader)
        self.leave(self._join, reader, after, joined, failed=failed)

    def _refuse(self, reader: Reader, why: RuleViolation) -> None:
        reader.closed(why.code, self._released)

    def _join(self, reader: Reader, after: int | None, joined: Callable[[], object] | None) -> None:
        if joined is not None:
            joined()
        for event in self._tail(after) if after is not None else ():
            if not self._takes(reader, event):
                reader.closed(Code.LINK_TOO_SLOW, event.seq - 1)
                return
        self._readers = [*self._readers, reader]

    def _tail(self, after: int) -> list[ev.Event]:
        return self.log[after - self.log_base : self._released - self.log_base]

    def detach(self, reader: Reader) -> None:
        """Stop offering to `reader`. Does nothing if it is not attached."""
        self._readers = [other for other in self._readers if other is not reader]
        if self._outbox:  # it may not have joined yet
            joins = [item for item in self._outbox if item[1] == self._join and item[2][0] is reader]
            for item in joins:
                self._outbox.remove(item)

    def end(self, why: RuleViolation) -> None:
        """Release nothing more: what waits is told that it failed, readers that it is over."""
        self.closed = why
        outbox = list(self._outbox or ())
        if self._outbox:
            self._outbox.clear()  # `_release` may be at work on it, further down in the stack
        self._outbox = None
        readers, self._readers = self._readers, []
        for _, _, _, failed in outbox:
            if failed is not None:
                failed(why)
        # In the middle of an offer those behind have not been offered what is released already.
        offered, turn, event = self._turn or ((), 0, None)
        behind = offered[turn + 1 :]
        for reader in readers:
            late = event is not None and any(other is reader for other in behind)
            reader.closed(why.code, self._before(event) if late and event is not None else self._released)
