"""What may enter the log: JSON values with finite numbers, real text, a bounded depth and size.

Checked at the door, on a copy: what the caller does with its own object afterwards changes nothing.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from protocol.errors import Code, RuleViolation

Json = None | bool | int | float | str | list[Any] | dict[str, Any]

_MAX_INTEGER = 2**63
_encoder = msgspec.json.Encoder()


def check_text(text: str, *, path: str = "text") -> str:
    """Return `text`, as plain `str`, if it can be written as UTF-8.

    Raises:
        RuleViolation: `event.unsendable` - it holds a lone surrogate.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RuleViolation(
                Code.EVENT_UNSENDABLE, f"{path} holds half a character (a lone surrogate) at {error.start}"
            ) from None
    # A subclass would pass here and be refused by the encoder, after it was recorded.
    return text if type(text) is str else str.__str__(text)


def copy_json(value: object, *, max_depth: int, path: str = "payload") -> Any:
    """Return a deep copy of `value` made of plain JSON values; tuples become lists.

    Raises:
        RuleViolation: `event.unsendable` - with the path of what is not JSON, not finite, not text or too deep.
    """
    if isinstance(value, str):
        return check_text(value, path=path)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -_MAX_INTEGER <= value < _MAX_INTEGER:
            raise RuleViolation(Code.EVENT_UNSENDABLE, f"{path} is an integer beyond 64 bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RuleViolation(Code.EVENT_UNSENDABLE, f"{path} is {value}, which JSON cannot say")
        return float(value)
    if max_depth <= 0:
        raise RuleViolation(Code.EVENT_UNSENDABLE, f"{path} is nested too deeply")
    if isinstance(value, Mapping):
        copied: dict[str, Any] = {}
        for key, inner in cast("Mapping[object, object]", value).items():
            if not isinstance(key, str):
                raise RuleViolation(Code.EVENT_UNSENDABLE, f"{path} has a key of type {type(key).__name__}, not text")
            name = check_text(key, path=f"a key of {path}")  # first, for it becomes part of what a refusal says
            copied[name] = copy_json(inner, max_depth=max_depth - 1, path=f"{path}.{name}")
        return copied
    if isinstance(value, (list, tuple)):
        items = cast("list[object] | tuple[object, ...]", value)
        return [copy_json(inner, max_depth=max_depth - 1, path=f"{path}[{i}]") for i, inner in enumerate(items)]
    raise RuleViolation(Code.EVENT_UNSENDABLE, f"{path} is of type {type(value).__name__}, which JSON cannot say")


def encode(value: object) -> bytes:
    """Return `value` as JSON bytes.

    Raises:
        RuleViolation: `event.unsendable` - it cannot be written.
    """
    try:
        return _encoder.encode(value)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RuleViolation(Code.EVENT_UNSENDABLE, f"cannot be written as JSON: {error}") from None


def check_size(value: object, *, max_bytes: int) -> None:
    """Check that `value` can be written as JSON of at most `max_bytes` bytes.

    Raises:
        RuleViolation: `event.unsendable` or `event.too_large`.
    """
    size = len(encode(value))
    if size > max_bytes:
        raise RuleViolation(Code.EVENT_TOO_LARGE, f"{size} bytes are over the limit of {max_bytes}")
