"""Bytes become keys however they are cut, and keys become one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.client.keys import MAX_LINE_CHARS, Key, KeyReader, Line, Typed


def typed_through(*pieces: bytes) -> str:
    reader, line = KeyReader(), Line()
    for piece in pieces:
        for key in reader.feed(piece):
            line.press(key)
    return line.text


def test_a_character_split_between_two_reads_is_one_character() -> None:
    data = "é日👍".encode()
    assert typed_through(*(data[i : i + 1] for i in range(len(data)))) == "é日👍"


def test_bytes_that_are_no_text_do_not_end_the_reading() -> None:
    assert typed_through(b"a\xffb") == "a�b"


@pytest.mark.parametrize("sequence", [b"\x1b[A", b"\x1b[D", b"\x1bOP", b"\x1b[1;5C", b"\x1b[3~", b"\x1bx"])
def test_arrows_and_function_keys_type_nothing(sequence: bytes) -> None:
    assert typed_through(b"a" + sequence + b"b") == "ab"
    assert typed_through(b"a", *(sequence[i : i + 1] for i in range(len(sequence))), b"b") == "ab"


def test_a_lone_escape_is_the_key_once_nothing_follows() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.waiting
    assert reader.flush() == [Key.ESCAPE]
    assert not reader.waiting
    assert reader.flush() == []


def test_escape_twice_at_once_is_two_keys() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b\x1b") + reader.flush() == [Key.ESCAPE, Key.ESCAPE]


def test_a_pasted_line_break_is_kept_and_sends_nothing() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b[200~one\r\ntwo\x1b[201~") == [Typed("one\r\ntwo")]
    assert typed_through(b"\x1b[200~one\r\ntwo\x03\x1b[201~!") == "one\ntwo!"


@given(st.integers(min_value=0, max_value=30), st.integers(min_value=0, max_value=30))
def test_a_paste_is_the_same_however_it_is_cut(first: int, second: int) -> None:
    data = b"\x1b[200~ab\xc3\xa9\ncd\x1b[201~ef"
    a, b = sorted((first, second))
    assert typed_through(data[:a], data[a:b], data[b:]) == "abé\ncdef"


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"ab\x7f", "a"), (b"\x7f", ""), (b"ab\x08", "a"), (b"ab cd\x15", ""), (b"ab cd\x17", "ab "), (b"ab\x17", ""),
        ("ae\u0301\x7f".encode(), "a"), ("a👩\u200d💻\x7f".encode(), "a"), (b"a\x00\x1ab", "ab"), (b"a\x04", "a"),
    ],
)  # fmt: skip
def test_editing_works_on_what_is_seen(data: bytes, left: str) -> None:
    assert typed_through(data) == left


def test_enter_finishes_the_line_and_empties_it() -> None:
    reader, line = KeyReader(), Line()
    finished = [line.press(key) for key in reader.feed(b"one\rtwo")]
    assert finished == [None, "one", None]
    assert line.text == "two"


def test_a_line_has_a_limit() -> None:
    line = Line()
    line.press(Typed("x" * (MAX_LINE_CHARS + 5)))
    assert len(line.text) == MAX_LINE_CHARS


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_no_bytes_break_the_reader(pieces: list[bytes]) -> None:
    reader, line = KeyReader(), Line()
    for piece in pieces:
        for key in reader.feed(piece):
            line.press(key)
    reader.flush()
    assert line.text.isprintable() or line.text
