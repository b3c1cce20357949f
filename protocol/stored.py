"""How a log and a state are written down, and read again by this version or a later one. Pure.

A record is the event as JSON. What an older version wrote passes through the step that makes it of today's shape; a
type that this version does not know stays in its place and changes nothing; a newer format is refused by its number.
It must not know where records are kept.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from protocol import events as ev
from protocol.blobs import is_parted
from protocol.errors import LocalProtocolError
from protocol.history import State

#: Of the state's own shape: a snapshot of another one is left aside, and the state is folded from the log.
STATE_FORMAT = 2


class _StoredState(Struct):
    format: int
    state: Raw


class _Time(Struct):
    time: float = 0.0


class _Head(Struct):
    type: str
    seq: int = 0
    time: float = 0.0
    run: str = ""
    path: str = ""
    cause: str = ""


_encode = msgspec.json.Encoder().encode
_event_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(ev.DurableEvent)
_state_decoder: msgspec.json.Decoder[State] = msgspec.json.Decoder(State)
_stored_decoder = msgspec.json.Decoder(_StoredState)
_head_decoder = msgspec.json.Decoder(_Head)
_time_decoder = msgspec.json.Decoder(_Time)
_parted_time_decoder = msgspec.json.Decoder(tuple[Raw, _Time])
#: By type: what makes the fields of an older record, which today's shape does not fit, those of today.
UPCASTERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def encode_record(event: ev.Event) -> bytes:
    """Return a stamped event as it is kept.

    Args:
        event: A durable one, checked to be sendable before it was recorded.

    Raises:
        LocalProtocolError: It is ephemeral, or cannot be written: it should not have been recorded.
    """
    if isinstance(event, ev.Unknown):
        return event.body.encode()
    if not event.durable:
        raise LocalProtocolError(f"an event of type {type(event).__name__} is never stored")
    try:
        return _encode(event)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LocalProtocolError(f"record {event.seq} cannot be written: {error}") from None


def decode_record(body: bytes) -> ev.Event:
    """Return the event that a record is; of a type that is not known, `Unknown`.

    Raises:
        LocalProtocolError: It is none, or the log that begins with it has a newer format.
    """
    try:
        event: ev.Event = _event_decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        event = _decode_other(body, error)
    if isinstance(event, ev.SessionOpened) and event.format > ev.LOG_FORMAT:
        raise LocalProtocolError(
            f"the log of session {event.session_id!r} has format {event.format}; known up to {ev.LOG_FORMAT}"
        )
    return event


def _decode_other(body: bytes, error: Exception) -> ev.Event:
    try:
        head = _head_decoder.decode(body)
        upcast = UPCASTERS.get(head.type)
        if upcast is not None:
            event: ev.Event = msgspec.convert(upcast(msgspec.json.decode(body)), ev.DurableEvent)
            return event
        text = body.decode()
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as why:
        raise LocalProtocolError(f"a record is no event: {why}") from None
    if head.type in ev.KNOWN_TYPES:
        raise LocalProtocolError(f"record {head.seq} is no {head.type}: {error}")
    return ev.Unknown(head.type, text, seq=head.seq, time=head.time, run=head.run, path=head.path, cause=head.cause)


def record_time(body: bytes) -> float | None:
    """Return when a record was made, in Unix seconds, also if large texts were taken out of it; None if it is none."""
    try:
        return _parted_time_decoder.decode(body)[1].time if is_parted(body) else _time_decoder.decode(body).time
    except (msgspec.MsgspecError, RecursionError):
        return None


def encode_state(state: State) -> bytes:
    """Return a state as it is kept beside its log. It shares nothing that changes later."""
    return _encode(_StoredState(STATE_FORMAT, Raw(_encode(state))))


def decode_state(body: bytes) -> State | None:
    """Return the state, or None where another version wrote it in another shape: fold the log instead."""
    try:
        stored = _stored_decoder.decode(body)
        return _state_decoder.decode(stored.state) if stored.format == STATE_FORMAT else None
    except (msgspec.MsgspecError, RecursionError):
        return None
