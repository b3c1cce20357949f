"""What a terminal sends, as keys, and the one line that is typed with them. Pure.

Bytes come in pieces: a character or an escape sequence may be split between two reads. A lone escape byte is the start
of a sequence or the key itself; only time tells, so whoever reads calls `flush` when nothing has followed for a while.
"""

import codecs
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

MAX_LINE_CHARS = 20_000
_PASTE_BEGIN, _PASTE_END = "\x1b[200~", "\x1b[201~"
# Longer than any sequence a terminal sends; past it the bytes are no sequence.
_MAX_SEQUENCE = 64


class Key(StrEnum):
    """Keys with a meaning. Arrows and function keys have none and are read over."""

    ENTER = "enter"
    BACKSPACE = "backspace"
    ERASE_LINE = "erase_line"
    ERASE_WORD = "erase_word"
    ESCAPE = "escape"
    END_OF_INPUT = "end_of_input"


@dataclass(frozen=True, slots=True)
class Typed:
    """Text that was typed or pasted."""

    text: str


_CONTROLS = {
    "\r": Key.ENTER,
    "\n": Key.ENTER,
    "\x7f": Key.BACKSPACE,
    "\x08": Key.BACKSPACE,
    "\x15": Key.ERASE_LINE,
    "\x17": Key.ERASE_WORD,
    "\x04": Key.END_OF_INPUT,
}


class KeyReader:
    """Turns what was read into keys."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._pasting = False

    @property
    def waiting(self) -> bool:
        """An escape byte has come and nothing after it yet: call `flush` if nothing does."""
        return self._pending == "\x1b" and not self._pasting

    def feed(self, data: bytes) -> list[Key | Typed]:
        """Return the keys that `data` completes."""
        self._pending += self._decoder.decode(data)
        keys: list[Key | Typed] = []
        while self._pending:
            taken = self._paste(keys) if self._pasting else self._take(keys)
            if not taken:
                break
            self._pending = self._pending[taken:]
        return keys

    def flush(self) -> list[Key | Typed]:
        """Return the escape key if that is what has been waiting."""
        if not self.waiting:
            return []
        self._pending = ""
        return [Key.ESCAPE]

    def _take(self, keys: list[Key | Typed]) -> int:
        """Append the first key of what is pending; return how many characters it took, 0 if it is not complete."""
        text = self._pending
        if text[0] == "\x1b":
            return self._sequence(keys)
        if text[0] in _CONTROLS:
            keys.append(_CONTROLS[text[0]])
            return 1
        end = 0
        while end < len(text) and unicodedata.category(text[end]) != "Cc":
            end += 1
        if end:
            keys.append(Typed(text[:end]))
        return end or 1

    def _sequence(self, keys: list[Key | Typed]) -> int:
        text = self._pending
        if len(text) == 1:
            return 0
        if text[1] == "\x1b":  # the key, pressed twice
            keys.append(Key.ESCAPE)
            return 1
        if text[1] == "O":
            return 3 if len(text) > 2 else 0
        if text[1] != "[":
            return 2
        for index in range(2, min(len(text), _MAX_SEQUENCE)):
            if "@" <= text[index] <= "~":
                self._pasting = text[: index + 1] == _PASTE_BEGIN
                return index + 1
        return 0 if len(text) < _MAX_SEQUENCE else len(text)

    def _paste(self, keys: list[Key | Typed]) -> int:
        text = self._pending
        end = text.find(_PASTE_END)
        if end >= 0:
            self._pasting = False
            keys.append(Typed(text[:end]))
            return end + len(_PASTE_END)
        # The end mark itself may be split between two reads: its first characters wait for the rest.
        kept = max((n for n in range(1, len(_PASTE_END)) if text.endswith(_PASTE_END[:n])), default=0)
        if len(text) > kept:
            keys.append(Typed(text[: len(text) - kept]))
        return len(text) - kept


class Line:
    """The line being typed, of several lines where they were pasted. The cursor stays at its end."""

    def __init__(self) -> None:
        self.text = ""

    def press(self, key: Key | Typed) -> str | None:
        """Change the line; return it when this key finished it, whereupon it is empty again."""
        if isinstance(key, Typed):
            self.text = (self.text + _shown(key.text))[:MAX_LINE_CHARS]
        elif key is Key.BACKSPACE:
            self.text = _without_last(self.text)
        elif key is Key.ERASE_LINE:
            self.text = ""
        elif key is Key.ERASE_WORD:
            self.text = self.text.rstrip().rpartition(" ")[0] and self.text.rstrip().rpartition(" ")[0] + " "
        elif key is Key.ENTER:
            finished, self.text = self.text, ""
            return finished
        return None


def _shown(text: str) -> str:
    """Return what was typed or pasted without control characters; line breaks are kept, a checklist has several."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    return "".join(char for char in text if char == "\n" or unicodedata.category(char) not in ("Cc", "Cs"))


def _without_last(text: str) -> str:
    """Remove the last character with the marks and joiners that make it up."""
    joiner = "\u200d"
    while text:
        last, text = text[-1], text[:-1]
        mark = unicodedata.combining(last) or last in (joiner, "\ufe0f") or "\U0001f3fb" <= last <= "\U0001f3ff"
        if not mark and not text.endswith(joiner):
            break
    return text
