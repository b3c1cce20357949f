"""Ids are made of what the log says; a session's name is what a person can read."""

import re
import unicodedata

import pytest

from protocol.errors import Code, RuleViolation
from protocol.ids import ask_id, call_id, check_session_id, is_blank, message_id, run_id

BLANK = [
    "", " ", "\t\r\n", "\u00a0", "\u2003", "\u3000", "\u2028", "\u2029", "\u200b", "\u200d", "\ufeff", "\u2060",
    "\u00ad", "\u202e", "\x00", "\x1f", "\x85", "\ud800", "\u2800", "\u3164", "\u115f", "\u1160", "\uffa0", "\u034f",
    "\u17b4", "\u180b", "\u180e", "\ufe0f", "\U000e0100", "\U000e0041", " \u200b\u3164\ufe0f ",
]  # fmt: skip
VISIBLE = [
    "a", " a ", "0", ".", "_", "\u200ba", "\u3164a", "null", "{}", "\u00e9", "e\u0301", "\u4e2d", "\u0627",
    "\u2764\ufe0f", "\U0001f600", "\U0001fae8", "\ue000",
]  # fmt: skip


@pytest.mark.parametrize("text", BLANK, ids=ascii)
def test_text_of_which_nothing_is_seen_is_blank(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", VISIBLE, ids=ascii)
def test_text_of_which_something_is_seen_is_not_blank(text: str) -> None:
    assert not is_blank(text)


def test_an_emoji_younger_than_this_python_is_not_blank() -> None:
    unassigned = next(chr(n) for n in range(0x1FA70, 0x1FB00) if unicodedata.category(chr(n)) == "Cn")
    assert not is_blank(unassigned)


def test_ids_are_a_letter_and_the_seq_of_their_record() -> None:
    assert (run_id(12), ask_id(15), message_id("r12", 1)) == ("r12", "a15", "r12.1")


def test_minted_call_ids_of_one_message_differ() -> None:
    assert [call_id(16, index) for index in range(3)] == ["c16", "c16-2", "c16-3"]


@pytest.mark.parametrize(
    "name", ["s", "S-42", "a" * 128, "user@example.org/7", "\u4f1a\u8bdd", "e\u0301t\u00e9", "\U0001f600"], ids=ascii
)
def test_a_session_id_is_printable_text(name: str) -> None:
    assert check_session_id(name) is name


@pytest.mark.parametrize("value", [None, 7, b"s", ["s"], True])
def test_a_session_id_is_text(value: object) -> None:
    kind = type(value).__name__
    with pytest.raises(RuleViolation, match=f"^session.invalid: a session id is text, not {kind}$") as refused:
        check_session_id(value)
    assert refused.value.code is Code.SESSION_INVALID


@pytest.mark.parametrize("length", [0, 129, 100_000])
def test_a_session_id_has_1_to_128_characters(length: int) -> None:
    text = f"session.invalid: a session id has 1-128 characters, not {length}"
    with pytest.raises(RuleViolation, match=f"^{re.escape(text)}$"):
        check_session_id("x" * length)


@pytest.mark.parametrize(
    "char",
    [" ", "\t", "\n", "\x00", "\x7f", "\u00a0", "\u200b", "\u202e", "\ufeff", "\u2028", "\ud800", "\u2800", "\u3164",
     "\u115f", "\ufe0f", "\u034f", "\ue000", "\U0010ffff"],
    ids=ascii,
)  # fmt: skip
def test_a_session_id_has_nothing_that_cannot_be_seen(char: str) -> None:
    text = f"session.invalid: a session id has no spaces or invisible characters, this one has U+{ord(char):04X} at 2"
    with pytest.raises(RuleViolation, match=f"^{re.escape(text)}$"):
        check_session_id(f"ab{char}cd")
