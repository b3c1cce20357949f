"""Text from elsewhere cannot command a terminal, and fits where it is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from actors.client.text import clean, one_line, tail


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[2Jgone", "␛[2Jgone"),
        ("a\x07b\x7f", "a␇b␡"),
        ("a\x9b31m", "a�31m"),
        ("abc\u202efdp.exe", "abc�fdp.exe"),
        ("a\u200bb\ufeffc", "a�b�c"),
        ("half \ud800", "half �"),
        ("a\tb\r\nc\u2028d", "a    b\nc\nd"),
        ("👩\u200d💻 日本", "👩\u200d💻 日本"),
        ("tag\U000e0041", "tag�"),
    ],
)
def test_what_commands_or_misleads_becomes_visible(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text())
def test_clean_text_has_no_control_but_line_breaks_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    assert all(char == "\n" or char.isprintable() or char in "\u200c\u200d" or ord(char) >= 0xA0 for char in cleaned)
    assert "\x1b" not in cleaned
    assert clean(cleaned) == cleaned


@given(st.text(), st.integers(min_value=2, max_value=80))
def test_one_line_fits_its_width(text: str, width: int) -> None:
    line = one_line(text, width)
    assert "\n" not in line
    assert cell_len(line) <= width


def test_what_is_cut_off_shows() -> None:
    assert one_line("日本語のテキスト", 9) == "日本語の…"


def test_a_megabyte_is_not_measured_to_show_a_line() -> None:
    assert one_line("x" * 1_000_000, 10) == "xxxxxxxxx…"


@pytest.mark.parametrize(
    ("text", "lines", "shown"),
    [("a\nb\nc", 2, "b\nc"), ("aaaaabbbbbccccc", 2, "bbbbbccccc"), ("aaaaab\ncc", 1, "cc"), ("", 3, ""), ("a", 0, "")],
)
def test_tail_keeps_the_end_that_fits(text: str, lines: int, shown: str) -> None:
    assert tail(text, lines, 5) == shown
