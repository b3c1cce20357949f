"""Identity: letters and sequence numbers, and which session names are allowed.

An id inside a session is a letter and the `seq` of the record that made it (`r12` a run, `a15` an ask, `c16` a tool
call), so it is unique in its log, the same after a replay, and needs no randomness. Only `log_id` is random, and it is
made outside. The id of a streamed message is its run and turn (`r12.1`).
"""

import unicodedata

from protocol.errors import Code, RuleViolation

MAX_SESSION_ID = 128
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"})
# Unassigned to this Python may be an emoji to the person who typed it: no blank answer, but no session id either.
_UNPRINTABLE = _INVISIBLE | {"Co", "Cn"}
# Letters and marks by category, blank to the eye: braille blank, Hangul fillers, grapheme joiner, Khmer inherent
# vowels, Mongolian and other variation selectors.
_BLANK_LETTERS = frozenset(
    "\u2800\u3164\u115f\u1160\uffa0\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)


def run_id(seq: int) -> str:
    return f"r{seq}"


def ask_id(seq: int) -> str:
    return f"a{seq}"


def call_id(seq: int, index: int) -> str:
    """Return the minted id of the `index`-th call (from 0) of the message recorded at `seq`."""
    return f"c{seq}" if index == 0 else f"c{seq}-{index + 1}"


def message_id(run: str, turn: int) -> str:
    return f"{run}.{turn}"


def is_blank(text: str) -> bool:
    """Say whether nothing of `text` would be seen: spaces, controls, zero-width and filler characters only."""
    if text[:1].isalnum() and text[0] not in _BLANK_LETTERS:
        return False  # nearly every text; the rest of this is for the others
    return all(unicodedata.category(char) in _INVISIBLE or char in _BLANK_LETTERS for char in text)


def check_session_id(value: object) -> str:
    """Return `value` as a session id.

    Raises:
        RuleViolation: `session.invalid` - not a text of 1-128 printable characters without spaces.
    """
    if not isinstance(value, str):
        raise RuleViolation(Code.SESSION_INVALID, f"a session id is text, not {type(value).__name__}")
    if not 1 <= len(value) <= MAX_SESSION_ID:
        raise RuleViolation(Code.SESSION_INVALID, f"a session id has 1-{MAX_SESSION_ID} characters, not {len(value)}")
    if value.isascii() and value.isprintable() and " " not in value:
        return value  # nearly every id
    for position, char in enumerate(value):
        if unicodedata.category(char) in _UNPRINTABLE or char in _BLANK_LETTERS:
            raise RuleViolation(
                Code.SESSION_INVALID,
                f"a session id has no spaces or invisible characters, this one has U+{ord(char):04X} at {position}",
            )
    return value
