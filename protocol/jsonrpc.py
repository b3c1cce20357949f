"""JSON-RPC 2.0 frames: what counts as a call, and how answers and notifications are written.

Decides whether one text frame is a call, before anything in it is built: size, text, depth, digits and doubled members
are looked at in one linear pass, so no frame can exhaust the stack or the parser. Pure; knows no methods, no sessions
and no sockets. What a client sent is never repeated in a message: it would end up in other people's logs and terminals.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from protocol.errors import Code, Detail, RuleViolation
from protocol.events import Event, Unknown
from protocol.limits import DEFAULT_LIMITS

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REFUSED = -32000

MAX_ID_CHARS = 128
MAX_METHOD_CHARS = 128
# A double has 17 significant digits and an exponent of 3; longer numbers only cost time.
MAX_NUMBER_DIGITS = 400
# The largest integer a browser counts exactly.
MAX_ID = 2**53 - 1
MAX_ERROR_CHARS = 1_000

Id = str | int

# The closing quote is optional: a string that never ends is swallowed whole, which keeps the pass linear.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (MAX_NUMBER_DIGITS + 1))
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},"))
_MEMBERS = frozenset({"jsonrpc", "id", "method", "params"})
_NO_PARAMS = Raw(b"{}")

_encode = msgspec.json.Encoder().encode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_id = msgspec.json.Decoder(str | int | None).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_anything = msgspec.json.Decoder(Raw).decode


class Request(Struct, frozen=True):
    """A call that wants an answer. `params` is a JSON object, not decoded yet."""

    id: Id
    method: str
    params: Raw


class Notification(Struct, frozen=True):
    """A call that wants no answer, whatever becomes of it."""

    method: str
    params: Raw


class BadFrame(Struct, frozen=True):
    """A frame that is no call. `id` is the call's where it could be read, else None."""

    code: int
    message: str
    id: Id | None = None


class _Invalid(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


# ---- reading


def read_frame(
    text: str | bytes,
    *,
    max_bytes: int = DEFAULT_LIMITS.max_message_bytes,
    max_depth: int = DEFAULT_LIMITS.max_depth,
) -> Request | Notification | BadFrame:
    """Read one frame. Never raises: what is no call comes back as the error to answer with.

    Args:
        text: The frame as it came, text or UTF-8.
        max_bytes: Size limit of the frame in bytes of UTF-8.
        max_depth: How deep arrays and objects may nest, the frame's own object included.
    """
    call_id: Id | None = None
    try:
        data = _encoded(text, max_bytes)
        members_written = _check_structure(data, max_depth)
        members = _read_members(data)
        if len(members) != members_written:
            raise _Invalid(INVALID_REQUEST, "a member of the call is given twice")
        call_id = _read_id(members)
        return _read_call(members, call_id)
    except _Invalid as error:
        return BadFrame(error.code, str(error), call_id)


def _encoded(text: str | bytes, max_bytes: int) -> bytes:
    try:
        if isinstance(text, str):
            data = text.encode()
        else:
            data = text
            data.decode()
    except UnicodeError:
        raise _Invalid(PARSE_ERROR, "a frame is text in UTF-8; this one is not") from None
    if len(data) > max_bytes:
        raise _Invalid(INVALID_REQUEST, f"a frame has at most {max_bytes} bytes, not {len(data)}")
    return data


def _check_structure(data: bytes, max_depth: int) -> int:
    """Check depth and digits without building anything; return how many members the frame's own object has."""
    bare = _STRINGS.sub(b'"', data)
    if len(bare) > MAX_NUMBER_DIGITS and _LONG_NUMBER.search(bare):
        raise _Invalid(INVALID_REQUEST, f"a number has at most {MAX_NUMBER_DIGITS} digits")
    depth = commas = 0
    empty = not bare.strip(b"{} \t\r\n")
    for byte in bare.translate(None, _NOT_STRUCTURE):
        if byte == 0x2C:  # a comma
            commas += depth == 1
        elif byte in b"[{":
            depth += 1
            if depth > max_depth:
                raise _Invalid(INVALID_REQUEST, f"a frame nests at most {max_depth} deep")
        else:
            depth -= 1
    return 0 if empty else commas + 1


def _read_members(data: bytes) -> dict[str, Raw]:
    try:
        if data.lstrip(b" \t\r\n")[:1] != b"{":
            _decode_anything(data)
            batch = data.lstrip(b" \t\r\n")[:1] == b"["
            what = "a client sends one call per frame, not an array of them" if batch else "a call is a JSON object"
            raise _Invalid(INVALID_REQUEST, what)
        return _decode_members(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _Invalid(PARSE_ERROR, "the frame is not JSON") from None


def _read_id(members: dict[str, Raw]) -> Id | None:
    """Return the id, or None where there is none: the frame is a notification."""
    raw = members.get("id")
    if raw is None:
        return None
    try:
        value = _decode_id(raw)
    except (msgspec.MsgspecError, ValueError):
        value = None
    if isinstance(value, str) and len(value) <= MAX_ID_CHARS:
        return value
    if isinstance(value, int) and -MAX_ID <= value <= MAX_ID:
        return value
    raise _Invalid(INVALID_REQUEST, f"an id is a string of at most {MAX_ID_CHARS} characters or an integer below 2**53")


def _read_call(members: dict[str, Raw], call_id: Id | None) -> Request | Notification:
    if _text(members, "jsonrpc") != "2.0":
        raise _Invalid(INVALID_REQUEST, 'a call says "jsonrpc": "2.0"')
    method = _text(members, "method")
    if method is None or not 1 <= len(method) <= MAX_METHOD_CHARS:
        raise _Invalid(INVALID_REQUEST, f"a call names its method in 1-{MAX_METHOD_CHARS} characters")
    if not members.keys() <= _MEMBERS:
        raise _Invalid(INVALID_REQUEST, f"a call has no other members than {', '.join(sorted(_MEMBERS))}")
    params = members.get("params", _NO_PARAMS)
    if bytes(params)[:1] != b"{":
        raise _Invalid(INVALID_PARAMS, "params are an object, by name")
    # A copy: the raw value is a window on the frame and would keep all of it alive.
    copied = params if params is _NO_PARAMS else params.copy()
    return Notification(method, copied) if call_id is None else Request(call_id, method, copied)


def _text(members: dict[str, Raw], name: str) -> str | None:
    try:
        return _decode_text(members[name])
    except (KeyError, msgspec.MsgspecError, ValueError):
        return None


# ---- writing


class _Response(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: Id | None
    result: Any


class _ErrorBody(Struct, frozen=True, omit_defaults=True):
    code: int
    message: str
    data: Any = None


class _ErrorResponse(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: Id | None
    error: _ErrorBody


class _RefusalData(Struct, frozen=True):
    code: str
    details: tuple[Detail, ...]


class _Notice(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    method: str
    params: Any


class _EventParams(Struct, frozen=True):
    session: str
    log_id: str
    event: Event | Raw


def response(call_id: Id, result: object) -> bytes:
    """Return the frame of a result.

    Raises:
        RuleViolation: `event.unsendable` - the result cannot be written as JSON.
    """
    return _written(_Response(call_id, result))


def error(call_id: Id | None, code: int, message: str, data: object = None) -> bytes:
    """Return the frame of an error. `call_id` None says that the call could not be told."""
    return _written(_ErrorResponse(call_id, _ErrorBody(code, message[:MAX_ERROR_CHARS], data)))


def refusal(call_id: Id, violation: RuleViolation) -> bytes:
    """Return the frame that says a rule refused a call: -32602 for wrong parameters, -32000 for everything else."""
    code = INVALID_PARAMS if violation.code is Code.COMMAND_INVALID else REFUSED
    return error(call_id, code, violation.message, _RefusalData(violation.code, violation.details))


def bad_frame(frame: BadFrame) -> bytes:
    """Return the frame that answers what was no call."""
    return error(frame.id, frame.code, frame.message)


def notification(method: str, params: object) -> bytes:
    """Return the frame of a notification.

    Raises:
        RuleViolation: `event.unsendable` - the parameters cannot be written as JSON.
    """
    return _written(_Notice(method, params))


def event_frame(session_id: str, log_id: str, event: Event) -> bytes:
    """Return the frame of one event. It depends on the session alone, so all who watch it can share it.

    A record that a later version wrote goes out as it was written: the client may know it, and has no gap.
    """
    body = Raw(event.body.encode()) if isinstance(event, Unknown) else event
    return _written(_Notice("event", _EventParams(session_id, log_id, body)))


def join(frames: Iterable[bytes]) -> bytes:
    """Return one array of frames that are encoded already."""
    return b"[" + b",".join(frames) + b"]"


def _written(frame: object) -> bytes:
    try:
        return _encode(frame)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as failed:
        raise RuleViolation(Code.EVENT_UNSENDABLE, f"cannot be written as JSON: {failed}") from None
