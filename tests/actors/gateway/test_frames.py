"""What the frame meter counts, however the bytes are cut up."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actors.gateway.frames import MAX_FRAGMENTS, FrameMeter
from protocol.errors import RemoteProtocolError

Make = Callable[..., bytes]
CONTINUATION, TEXT, CLOSE, PING = 0, 1, 8, 9


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 125, 126, 65_535, 65_536]), st.integers(1, 4)), max_size=3),
    st.sampled_from([7, 1_000, 70_000]),
)
@example([(0, 2), (1, 1), (126, 3)], 1)
def test_complete_messages_are_counted_whatever_the_chunks(messages: list[tuple[int, int]], chunk: int) -> None:
    data = b""
    for size, fragments in messages:
        for number in range(fragments):
            opcode = TEXT if number == 0 else CONTINUATION
            data += _frame(opcode, b"x" * size, fin=number == fragments - 1)
            data += _frame(PING, b"between")
    meter = FrameMeter(max_message_bytes=300_000)
    for start in range(0, len(data), chunk):
        meter.feed(data[start : start + chunk])
    assert meter.waiting_bytes == sum(size * fragments for size, fragments in messages)
    assert meter.frames == 2 * sum(fragments for _, fragments in messages)
    for size, fragments in messages:
        before = meter.waiting_bytes
        meter.take()
        assert before - meter.waiting_bytes == size * fragments
    meter.take()
    assert meter.waiting_bytes == 0
    assert not meter.saw_close


def _frame(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    size = len(payload)
    head = bytes([(0x80 if fin else 0) | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65_536:
        head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return head + b"mask" + payload


def test_a_message_over_the_limit_is_refused_by_what_it_announces(make_frame: Make) -> None:
    meter = FrameMeter(max_message_bytes=100)
    meter.feed(make_frame(TEXT, b"x" * 100))
    with pytest.raises(RemoteProtocolError, match=r"^a message has at most 100 bytes$") as refused:
        meter.feed(make_frame(TEXT, length=2**63 - 1))
    assert refused.value.close_code == 1009


def test_fragments_add_up_and_control_frames_between_them_do_not(make_frame: Make) -> None:
    meter = FrameMeter(max_message_bytes=100)
    meter.feed(make_frame(TEXT, b"x" * 60, fin=False) + make_frame(PING, b"x" * 60))
    with pytest.raises(RemoteProtocolError, match=r"^a message has at most 100 bytes$"):
        meter.feed(make_frame(CONTINUATION, b"x" * 60))


def test_empty_fragments_are_bounded_in_number_and_a_new_message_starts_over(make_frame: Make) -> None:
    meter = FrameMeter(max_message_bytes=100)
    most = make_frame(TEXT, fin=False) + make_frame(CONTINUATION, fin=False) * (MAX_FRAGMENTS - 2)
    meter.feed(most + make_frame(CONTINUATION))
    with pytest.raises(RemoteProtocolError, match=r"^a message has at most 1024 fragments$") as refused:
        meter.feed(most + make_frame(CONTINUATION, fin=False) * 2)
    assert refused.value.close_code == 1008


def test_a_close_is_seen_at_its_first_bytes(make_frame: Make) -> None:
    meter = FrameMeter(max_message_bytes=100)
    close = make_frame(CLOSE, b"\x03\xe8")
    meter.feed(close[:1])
    assert not meter.saw_close
    meter.feed(close[1:6])
    assert meter.saw_close


def test_unmasked_frames_are_counted_too(make_frame: Make) -> None:
    meter = FrameMeter(max_message_bytes=100)
    meter.feed(make_frame(TEXT, b"xyz", masked=False))
    assert meter.waiting_bytes == 3
