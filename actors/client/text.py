"""Text that came from elsewhere, made safe and short enough for a terminal. Pure.

A terminal obeys control characters, and a reader is misled by text that runs backwards; neither may come from a model,
a tool or another client.
"""

import unicodedata

from rich.cells import cell_len, set_cell_size

# Letters and marks by category, yet they hide or reorder what is around them.
_HIDDEN = frozenset("\u061c\u180e\u200b\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff\ufff9\ufffa\ufffb")
_BREAKS = frozenset("\n\u2028\u2029\x85")


def clean(text: str) -> str:
    """Return `text` with lines and visible characters only.

    Tabs become spaces, C0 controls their pictures (`␛`), other controls, lone surrogates and everything that reorders
    or hides text `�`. Joiners inside emoji stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def _visible(char: str) -> str:
    if char in _BREAKS:
        return "\n"
    if char == "\t":
        return "    "
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    hidden = char in _HIDDEN or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x206F or 0xE0000 <= code <= 0xE007F
    return "\ufffd" if hidden or unicodedata.category(char) in ("Cc", "Cs") else char


def one_line(text: str, width: int = 200) -> str:
    """Return `text` cleaned, on one line, at most `width` terminal cells wide; what is cut off shows as `…`."""
    # Far more than fits is cut first: a megabyte of text is not measured to show a line of it.
    line = " ".join(clean(text[: 8 * width + 64]).split())
    return line if cell_len(line) <= width else set_cell_size(line, width - 1).rstrip() + "…"


def tail(text: str, lines: int, width: int) -> str:
    """Return the end of `text` that fills at most `lines` lines of `width` cells when it is wrapped there."""
    kept: list[str] = []
    room = lines
    for line in reversed(clean(text[-lines * width * 2 :]).split("\n")):
        rows = max(1, -(-cell_len(line) // width))
        if rows > room:
            if room:
                kept.append(_last_cells(line, room * width))
            break
        kept.append(line)
        room -= rows
    return "\n".join(reversed(kept))


def _last_cells(line: str, cells: int) -> str:
    while cell_len(line) > cells:
        line = line[max(1, (cell_len(line) - cells) // 2) :]
    return line
