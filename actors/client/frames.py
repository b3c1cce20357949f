"""JSON-RPC frames as a client writes and reads them. Pure.

Read leniently: fields that are not known are ignored, a frame may be one message or an array of them.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from protocol.errors import Detail, RemoteProtocolError


class RpcError(Struct, frozen=True):
    """The error member of a response."""

    code: int
    message: str = ""
    data: Raw = Raw(b"null")


class Incoming(Struct, frozen=True):
    """A response (`id` with `result` or `error`) or a notification (`method`)."""

    id: int | str | None = None
    method: str = ""
    params: Raw = Raw(b"null")
    result: Raw | UnsetType = UNSET
    error: RpcError | UnsetType = UNSET


class EventParams(Struct, frozen=True):
    session: str
    event: Raw
    log_id: str = ""


class EventHead(Struct, frozen=True):
    """What is read of every event, of unknown types too: 0 as `seq` is an ephemeral one."""

    type: str
    seq: int = 0


class DetachedParams(Struct, frozen=True):
    session: str
    code: str = ""
    seq: int = 0


class HeartbeatParams(Struct, frozen=True):
    """By session: everything up to this record was sent that is for this client."""

    heads: dict[str, int] = {}


class _Refusal(Struct, frozen=True):
    code: str = ""
    details: tuple[Detail, ...] = ()


def call_frame(call_id: int, method: str, params: dict[str, Any]) -> str:
    """Return the text of a call.

    Raises:
        TypeError: A parameter is not JSON.
    """
    frame = {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}
    return msgspec.json.encode(frame).decode()


def read_frame(text: str | bytes) -> list[Incoming]:
    """Return the messages of a frame.

    Raises:
        RemoteProtocolError: It is not JSON-RPC.
    """
    if isinstance(text, bytes):
        raise RemoteProtocolError("the server sent a binary frame; this protocol has text only", close_code=1003)
    try:
        if text.lstrip(" \t\r\n").startswith("["):
            return msgspec.json.decode(text, type=list[Incoming])
        return [msgspec.json.decode(text, type=Incoming)]
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise RemoteProtocolError(f"the server sent what is not JSON-RPC: {error}") from None


def read_part(raw: Raw, kind: type[Any]) -> Any:
    """Return a part of a message as `kind`.

    Raises:
        RemoteProtocolError: It does not have that shape.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise RemoteProtocolError(f"the server sent a {kind.__name__} that cannot be read: {error}") from None


def refusal(error: RpcError) -> tuple[str, tuple[Detail, ...]]:
    """Return the stable code of an error and its details; without one the code is `rpc` and its number."""
    try:
        read = msgspec.json.decode(error.data, type=_Refusal | None)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        read = None
    if read is None or not read.code:
        return f"rpc{error.code}", ()
    return read.code, read.details
