"""The two ends of a mailbox, as trio channels.

It decides which end an error belongs to; the queue is the mailbox's. It must not know actors. What holds for the ends
of `trio.open_memory_channel` holds for these, with two differences: there is one receiver, so the receiving end cannot
be cloned, and a second task that receives gets `BusyResourceError`; and the buffer is always bounded.
"""

from types import TracebackType
from typing import Generic, Self, TypeVar

import trio
from trio.lowlevel import checkpoint

from actors.runtime.mailbox import Mailbox, MailboxStatistics
from actors.runtime.overflow import Overflow, make_mailbox

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


class MailboxSendChannel(trio.abc.SendChannel[M_contra], Generic[M_contra]):
    """A sending end. Messages of one sender arrive in order."""

    def __init__(self, mailbox: Mailbox[M_contra]) -> None:
        self._mailbox = mailbox
        self._closed = False

    def send_nowait(self, value: M_contra) -> None:
        """Send if there is room now. No checkpoint.

        Raises:
            WouldBlock: The buffer is full and nobody waits to receive.
            ClosedResourceError: This end has been closed.
            BrokenResourceError: The receiving end has been closed.
        """
        self._check()
        if not self._mailbox.offer(value):
            raise trio.WouldBlock

    async def send(self, value: M_contra) -> None:
        """Send, waiting for room in the order of arrival. A checkpoint.

        Raises:
            ClosedResourceError: This end has been closed, perhaps while this waited.
            BrokenResourceError: The receiving end has been closed.
            MailboxFull: There is no room, and the mailbox rejects what it has no room for.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check()
        await self._mailbox.put(value, self)

    def clone(self) -> Self:
        """Return another sending end; the receiver sees the end when all are closed.

        Raises:
            ClosedResourceError: This end has been closed.
        """
        if self._closed:
            raise trio.ClosedResourceError("a closed send channel cannot be cloned")
        self._mailbox.senders += 1
        return type(self)(self._mailbox)

    def close(self) -> None:
        """Close this end. Senders that wait through it get ClosedResourceError. Idempotent, no checkpoint."""
        if self._closed:
            return
        self._closed = True
        self._mailbox.turn_away(self)
        if self._mailbox.senders == 1:
            self._mailbox.close_sending()
        else:
            self._mailbox.senders -= 1

    async def aclose(self) -> None:
        """Close this end. A checkpoint."""
        self.close()
        await checkpoint()

    def statistics(self) -> MailboxStatistics:
        """Return this moment's figures. No checkpoint."""
        return self._mailbox.statistics()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            self._mailbox.rejected += 1
            raise trio.ClosedResourceError("this send channel has been closed")
        self._mailbox.check_sendable()


class MailboxReceiveChannel(trio.abc.ReceiveChannel[M], Generic[M]):
    """The receiving end, for one task at a time."""

    def __init__(self, mailbox: Mailbox[M]) -> None:
        self._mailbox = mailbox

    def receive_nowait(self) -> M:
        """Take the oldest message. No checkpoint.

        Raises:
            WouldBlock: There is none.
            EndOfChannel: There is none, and every sending end is closed.
            ClosedResourceError: This end has been closed.
        """
        return self._mailbox.take()

    async def receive(self) -> M:
        """Wait for the oldest message. A checkpoint; when it is cancelled, no message is lost.

        Raises:
            EndOfChannel: There is none, and every sending end is closed.
            ClosedResourceError: This end has been closed.
            BusyResourceError: Another task is receiving.
        """
        return await self._mailbox.get()

    def close(self) -> None:
        """Close this end: what is buffered is gone, counted as returned; senders get BrokenResourceError.

        Idempotent, no checkpoint.
        """
        if self._mailbox.receivers:
            self._mailbox.close_receiving()

    async def aclose(self) -> None:
        """Close this end. A checkpoint."""
        self.close()
        await checkpoint()

    def statistics(self) -> MailboxStatistics:
        """Return this moment's figures. No checkpoint."""
        return self._mailbox.statistics()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_mailbox(
    max_buffer_size: int, overflow: Overflow = "wait"
) -> tuple[MailboxSendChannel[M], MailboxReceiveChannel[M]]:
    """Make a bounded mailbox for one receiver and return its two ends, as `trio.open_memory_channel` does.

    Args:
        max_buffer_size: How many messages may wait, 0 or more.
        overflow: What happens when there is no room: `"wait"`, `"reject"`, `"drop_oldest"` or `latest(key)`.

    Raises:
        TypeError, ValueError: `max_buffer_size` is no integer, or negative; or there is no such policy.
    """
    mailbox: Mailbox[M] = make_mailbox(max_buffer_size, overflow)
    return MailboxSendChannel(mailbox), MailboxReceiveChannel(mailbox)
