"""Large texts of what is stored, kept beside it by their hash: an image is written once, not with each snapshot. Pure.

What is stored is a JSON object: a record, or a state. With large texts taken out of it, it is an array instead:
`[[[path, name], ...], rest]`, where the text of that name belongs at that path of `rest`. So the two cannot be taken
for each other, whatever texts say. It must not know where the texts are kept, nor what they mean.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from protocol.errors import LocalProtocolError

Texts = dict[str, bytes]


class _Place(Struct, frozen=True, array_like=True):
    path: tuple[str | int, ...]
    name: str


class _Parted(Struct, frozen=True, array_like=True):
    places: tuple[_Place, ...]
    rest: Raw


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(_Parted)


def blob_name(data: bytes) -> str:
    """Return the name of a blob: SHA-256, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def take_out(body: bytes, *, larger_than: int, texts: Texts) -> bytes:
    """Take the large texts out of what is to be stored.

    Args:
        body: A JSON object.
        larger_than: Texts of more bytes of UTF-8 are taken out. The names of fields stay.
        texts: Gets what is taken out, by its name.

    Returns:
        What is left; the body as it is where there is no large text.
    """
    if len(body) <= larger_than:
        return body
    places: list[_Place] = []
    try:
        whole: Any = msgspec.json.decode(body)
        _take_out(whole, (), larger_than, places, texts)
        return _encode((places, whole)) if places else body
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return body  # what a later version has written may not pass through here: it stays whole


def _take_out(
    value: dict[str, Any] | list[Any], path: tuple[str | int, ...], most: int, places: list[_Place], texts: Texts
) -> None:
    items: Iterable[tuple[str | int, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        if isinstance(item, str):
            if len(item) * 4 > most and len(data := item.encode()) > most:  # four bytes: the longest of one character
                name = blob_name(data)
                texts[name] = data
                places.append(_Place((*path, key), name))
                value[key] = ""  # type: ignore[index]
        elif isinstance(item, dict | list):
            _take_out(cast("dict[str, Any] | list[Any]", item), (*path, key), most, places, texts)


def is_parted(body: bytes) -> bool:
    """Say whether texts were taken out of this."""
    return body[:1] == b"["


def names_in(body: bytes) -> frozenset[str]:
    """Return the names of the texts that were taken out of this.

    Raises:
        LocalProtocolError: It is not what `take_out` has made.
    """
    return frozenset(place.name for place in _read(body).places) if is_parted(body) else frozenset()


def put_back(body: bytes, get: Callable[[str], bytes | None]) -> bytes:
    """Return what was stored, whole.

    Args:
        body: As `take_out` has made it; without large texts it comes back as it is.
        get: Returns a text by its name, or None.

    Raises:
        LocalProtocolError: It is not what `take_out` has made, or a text is not there.
    """
    if not is_parted(body):
        return body
    parted = _read(body)
    try:
        whole: Any = msgspec.json.decode(parted.rest)
        for place in parted.places:
            data = get(place.name)
            if data is None:
                raise LocalProtocolError(f"blob {place.name}, which is part of it, is missing")
            inside = whole
            for key in place.path[:-1]:
                inside = inside[key]
            inside[place.path[-1]] = data.decode()
        return _encode(whole)
    except (msgspec.MsgspecError, LookupError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise LocalProtocolError(f"large texts do not fit where they were taken out: {error}") from None


def _read(body: bytes) -> _Parted:
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise LocalProtocolError(f"it is neither an object nor one with texts taken out: {error}") from None
