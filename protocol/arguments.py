"""The arguments of a tool call as the model wrote them: one JSON object, or the reason why not. Pure.

Decides what counts as usable arguments. Nothing is repaired and nothing evaluated; depth and size are bounded before
the parser sees the text.
"""

import json
import math
import re
from typing import Any, NoReturn, cast

from protocol.errors import RuleViolation
from protocol.limits import DEFAULT_LIMITS, Limits
from protocol.sendable import check_text, encode

_MAX_INTEGER = 2**63
# A string, or one bracket. The string is possessive: its end is never looked for twice.
_BRACKETS = re.compile(r'"(?>[^"\\]+|\\.)*+"|[\[\]{}]', re.DOTALL)


class CallPieces:
    """A call that is being put together.

    Attributes:
        index: Its place as the provider counts, where it does.
        id, name: As the provider wrote them, "" while unknown.
        pieces: Of the arguments.
        chars: How long the arguments are so far.
        split: It shared its slot with another call and was told apart by name only.
    """

    __slots__ = ("_whole", "chars", "id", "index", "name", "pieces", "split")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.chars = 0
        self.split = False
        self._whole: bool | None = None

    def add(self, piece: str) -> None:
        self.pieces.append(piece)
        self.chars += len(piece)
        self._whole = None

    def joined(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def is_whole(self, limits: Limits) -> bool:
        """Say whether the arguments so far are a complete object. Worked out again only after a new piece."""
        if self._whole is None:
            self._whole = bool(self.chars) and not parse_arguments(self.joined(), limits)[1]
        return self._whole


def parse_arguments(text: str, limits: Limits = DEFAULT_LIMITS) -> tuple[dict[str, Any], str]:
    """Return the JSON object that `text` is, and "", or `{}` and the reason why it is none.

    Strict: one object, no key twice, finite numbers, integers of 64 bits, at most `limits.max_depth` levels and
    `limits.max_arguments_chars` characters, both checked before anything is parsed. Never raises, never repairs.
    """
    if not text or text.isspace():
        return {}, "the arguments are empty; a JSON object is expected"
    if len(text) > limits.max_arguments_chars:
        return {}, f"the arguments are over the limit of {limits.max_arguments_chars} characters"
    if _is_too_deep(text, limits.max_depth):
        return {}, f"the arguments are nested deeper than {limits.max_depth} levels"
    try:
        value = _DECODER.decode(check_text(text, path="the arguments' text"))
        if "\\u" in text:
            encode(value)  # an escape can be half a character
    except RuleViolation as refused:
        return {}, refused.message
    except json.JSONDecodeError as error:
        return {}, f"the arguments are not JSON: {error.msg} at character {error.pos}"
    except (ValueError, RecursionError) as error:
        return {}, f"the arguments are not JSON that can be kept: {error}"
    if type(value) is not dict:
        return {}, f"the arguments are a JSON {_JSON_NAMES[type(value)]}; an object is expected"
    return cast("dict[str, Any]", value), ""


def _is_too_deep(text: str, max_depth: int) -> bool:
    if text.count("[") + text.count("{") <= max_depth:
        return False
    depth = 0
    for match in _BRACKETS.finditer(text):
        char = match[0]
        if char in ("[", "{"):
            depth += 1
            if depth > max_depth:
                return True
        elif char in ("]", "}"):
            depth -= 1
    return False


def is_glued(text: str) -> bool:
    """Say whether `text` is an object, glued to the beginning of a second one."""
    try:
        _, end = _DECODER.raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return False
    return text.lstrip()[end:].lstrip().startswith("{")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has a key twice")
    return value


def _integer(digits: str) -> int:
    # Counted first: Python refuses thousands of digits in its own words.
    if len(digits) > 20 or not -_MAX_INTEGER <= (value := int(digits)) < _MAX_INTEGER:
        raise ValueError("an integer is beyond 64 bits")
    return value


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is beyond what a float holds")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
)
_JSON_NAMES: dict[type, str] = {
    list: "array", str: "string", bool: "boolean", int: "number", float: "number", type(None): "null",
}  # fmt: skip
