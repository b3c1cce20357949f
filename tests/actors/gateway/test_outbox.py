"""Bounds of what waits for one client."""

from actors.gateway.outbox import Item, Outbox


def everything(outbox: Outbox) -> list[bytes]:
    return [item.frame for item in outbox.take(max_messages=1_000, max_bytes=1_000_000)]


def test_the_frame_about_to_be_queued_counts_d02() -> None:
    outbox = Outbox(max_bytes=10, max_messages=100)
    assert not outbox.put(b"x" * 11)
    assert outbox.put(b"x" * 6)
    assert not outbox.put(b"x" * 5)
    assert outbox.put(b"x" * 4)
    assert outbox.queued_bytes == 10
    assert len(everything(outbox)) == 2
    assert outbox.queued_bytes == 0


def test_messages_are_bounded_in_number() -> None:
    outbox = Outbox(max_bytes=1_000, max_messages=2)
    assert outbox.put(b"")
    assert outbox.put_reply(b"")
    assert not outbox.put(b"")
    assert not outbox.put_reply(b"")


def test_one_large_reply_is_taken_and_leaves_the_room_of_events_alone_d02() -> None:
    outbox = Outbox(max_bytes=10, max_messages=100)
    assert outbox.put_reply(b"s" * 1_000)
    assert not outbox.put_reply(b"s")
    assert outbox.put(b"e" * 10)
    assert not outbox.put(b"e")
    assert everything(outbox) == [b"s" * 1_000, b"e" * 10]
    assert outbox.put_reply(b"s" * 1_000)


def test_frames_are_taken_in_order_at_least_one_and_no_more_than_fit() -> None:
    outbox = Outbox(max_bytes=100, max_messages=100)
    for size in (9, 4, 4, 3, 1):
        outbox.put(b"x" * size)
    taken = []
    while items := outbox.take(max_messages=2, max_bytes=8):
        taken.append([len(item.frame) for item in items])
    assert taken == [[9], [4, 4], [3, 1]]


def test_an_item_knows_the_record_it_carries() -> None:
    outbox = Outbox(max_bytes=100, max_messages=100)
    outbox.put(b"a", None, 7)
    outbox.put(b"b")
    assert outbox.take(max_messages=9, max_bytes=9) == [Item(b"a", None, 7), Item(b"b", None, 0)]


def test_clear_forgets_all() -> None:
    outbox = Outbox(max_bytes=10, max_messages=100)
    outbox.put(b"x" * 10)
    outbox.put_reply(b"x" * 20)
    outbox.clear()
    assert (len(outbox), outbox.queued_bytes) == (0, 0)
    assert outbox.put(b"x" * 10)
