"""The gateway's methods: what a client may call, with the exact shape of the parameters, and what comes back.

Parameters are decoded strictly: an unknown field is an error, never ignored. Results and notifications may gain fields;
clients ignore what they do not know. `command` is an id made by the client; a command that is repeated with the same id
is not carried out again and gets the first acknowledgement.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from protocol.decisions import WhenBusy
from protocol.errors import Code, Detail, RuleViolation
from protocol.limits import MAX_NOTE_CHARS

SUBPROTOCOL = "actors.v1"
PROTOCOL_VERSIONS = (1,)

# 2**53 - 1: the largest integer that a browser counts exactly.
Seq = Annotated[int, Meta(ge=0, le=9007199254740991)]
CommandId = Annotated[str, Meta(min_length=1, max_length=128)]
Name = Annotated[str, Meta(max_length=256)]
Note = Annotated[str, Meta(max_length=MAX_NOTE_CHARS)]


class Params(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parameters."""


class ClientInfo(Struct, frozen=True, omit_defaults=True):
    """Who the client is. With an `id`, made by itself and kept over reconnects, its newest connection is the one."""

    name: Name = ""
    version: Name = ""
    id: Name = ""


class ClientCapabilities(Struct, frozen=True, omit_defaults=True):
    """`batch`: the client takes JSON arrays of notifications and responses in one frame."""

    batch: bool = False


class Initialize(Params, frozen=True):
    """The first call. `protocol` lists the versions the client speaks, best first, or names its only one."""

    protocol: int | list[int]
    client: ClientInfo = ClientInfo()
    capabilities: ClientCapabilities = ClientCapabilities()


class Open(Params, frozen=True):
    """Make a session, or find the one with this id. Without an id a new one is minted."""

    session: str | None = None
    command: CommandId = ""


class Attach(Params, frozen=True):
    """Watch a session. With `log_id` and `cursor` (the last seq applied) only what is missing is sent."""

    session: str
    log_id: str = ""
    cursor: Seq = 0


class Detach(Params, frozen=True):
    session: str


class Prompt(Params, frozen=True):
    """Start a run."""

    session: str
    text: str
    when_busy: WhenBusy = "reject"
    max_turns: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    command: CommandId = ""


class Steer(Params, frozen=True):
    session: str
    text: str
    command: CommandId = ""


class Answer(Params, frozen=True):
    """Answer an ask, or decline it. `ask` is its `tool_call_id` or its id.

    `payload` reaches the model whole, `tool_call_id` added where it is missing; `answer` is short for
    `{"answer": ...}`. With `outcome` "declined" neither is given; `note` tells the model why.
    """

    session: str
    ask: str
    outcome: Literal["answered", "declined"] = "answered"
    answer: Any = UNSET
    payload: dict[str, Any] | UnsetType = UNSET
    note: Note = ""
    command: CommandId = ""


class ExternalEvent(Params, frozen=True):
    """Hand an application-defined event to the extensions; the result names those that accepted it."""

    session: str
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    payload: dict[str, Any] = {}
    command: CommandId = ""


class Cancel(Params, frozen=True):
    """Cancel a run, by default the active one. Without one it is acknowledged all the same."""

    session: str
    run: Name = ""
    reason: Note = ""
    command: CommandId = ""


class GetState(Params, frozen=True):
    session: str


class GetHistory(Params, frozen=True):
    """Page through the messages, oldest first."""

    session: str
    offset: Seq = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class List(Params, frozen=True):
    """Page through the open sessions in the order of their ids, those after `after`."""

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class Close(Params, frozen=True):
    session: str
    command: CommandId = ""


METHODS: dict[str, type[Params]] = {
    "initialize": Initialize,
    "session/open": Open,
    "session/attach": Attach,
    "session/detach": Detach,
    "session/prompt": Prompt,
    "session/steer": Steer,
    "session/answer": Answer,
    "session/event": ExternalEvent,
    "session/cancel": Cancel,
    "session/state": GetState,
    "session/history": GetHistory,
    "session/list": List,
    "session/close": Close,
}

_QUOTED = re.compile(r"(?<=Invalid enum value).*|(?<=unknown field).*", re.DOTALL)

NOTIFICATIONS = ("event", "detached", "heartbeat")


def read_params(method: type[Params], raw: msgspec.Raw | bytes) -> Params:
    """Return the parameters of a call.

    Raises:
        RuleViolation: `command.invalid` - with the path of what does not fit in `details`.
    """
    try:
        return msgspec.json.decode(raw, type=method)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        # msgspec quotes what it was given here; what a client sent is not repeated to whoever reads the message.
        message = _QUOTED.sub("", message)
        where = path.rstrip("`").lstrip(".")
        raise RuleViolation(Code.COMMAND_INVALID, message, Detail(where, "invalid", message)) from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RuleViolation(Code.COMMAND_INVALID, f"parameters cannot be read: {error}") from None


def choose_version(offered: int | list[int]) -> int:
    """Return the protocol version to speak: the first offered that is known.

    Raises:
        RuleViolation: `protocol.unsupported` - naming the known ones.
    """
    versions = [offered] if isinstance(offered, int) else offered
    for version in versions:
        if version in PROTOCOL_VERSIONS:
            return version
    known = ", ".join(map(str, PROTOCOL_VERSIONS))
    raise RuleViolation(
        Code.PROTOCOL_UNSUPPORTED,
        f"protocol {', '.join(map(str, versions)) or 'none'} is not known; known: {known}",
        *(Detail("protocol", "known", str(version)) for version in PROTOCOL_VERSIONS),
    )
