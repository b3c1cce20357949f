import sys

import pytest

from actors.runtime.accounting import Lanes, Lost, MailboxStatistics
from actors.runtime.mailbox import Mailbox


def test_the_ways_to_be_lost_have_the_names_of_their_counts() -> None:
    assert [how.value for how in Lost] == ["rejected", "expired", "dropped", "returned"]
    assert {how.value for how in Lost} < set(MailboxStatistics.__slots__)


def test_a_mailbox_counts_each_message_once_wherever_it_is() -> None:
    mailbox: Mailbox[int] = Mailbox(3)
    for n in range(5):
        mailbox.offer(n)
    mailbox.post_system(5)
    mailbox.stash(mailbox.take(), 1)
    mailbox.take()
    now = mailbox.statistics()
    assert (now.sent, now.accepted, now.rejected) == (6, 4, 2)
    assert (now.handled, now.expired, now.dropped, now.returned, now.queued) == (1, 0, 0, 0, 3)
    assert (now.current_buffer_used, now.peak_buffer_used, now.max_buffer_size) == (2, 4, 3)
    assert (mailbox.expired, mailbox.dropped, mailbox.expected, mailbox.abandoned) == (0, 0, 0, 0)
    assert len(mailbox) == 2


def test_the_peak_counts_what_came_while_the_system_lane_had_messages() -> None:
    mailbox: Mailbox[int] = Mailbox(3)
    mailbox.post_system(0)
    for n in range(3):
        mailbox.offer(n)
    mailbox.take()
    mailbox.take()
    assert mailbox.statistics().peak_buffer_used == 4
    mailbox = Mailbox(3)
    mailbox.post_system(0)
    mailbox.offer(1)
    mailbox.close_receiving()
    assert mailbox.statistics().peak_buffer_used == 2


def test_figures_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Mailbox[int](1).statistics().accepted = 5  # type: ignore[misc]


def test_an_idle_mailbox_is_small() -> None:
    assert sys.getsizeof(Mailbox[int](64)) <= 144
    assert sys.getsizeof(Mailbox[int](64)) < sys.getsizeof(Lanes[int]()) + sys.getsizeof(Lanes[int]().waiting)
    assert not hasattr(Mailbox[int](64), "__dict__")
