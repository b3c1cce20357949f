"""The rules of one client link: what it may call when, and where an attached client goes on reading.

NEW -> INITIALIZED, and in it a set of attached sessions, each with a cursor: the seq of the last record that left for
the client. Pure: knows no sockets and no actors; whoever carries a link out asks here first.
"""

from typing import Literal

from msgspec import Struct, field

from protocol import commands as cmd
from protocol.errors import Code, RuleViolation
from protocol.limits import DEFAULT_LIMITS, Limits

AttachMode = Literal["tail", "snapshot", "reset"]

# What only somebody who sees the session may do: whoever answers must have been shown the question.
_NEEDS_ATTACHMENT = (cmd.Answer, cmd.ExternalEvent)


class LinkLimits(Struct, frozen=True):
    """What a client is told about sizes, in bytes of UTF-8."""

    max_message_bytes: int


class ServerInfo(Struct, frozen=True):
    name: str
    version: str


class Initialized(Struct, frozen=True):
    """The result of `initialize`."""

    protocol: int
    server: ServerInfo
    capabilities: cmd.ClientCapabilities
    limits: LinkLimits


class Link(Struct):
    """What is known about one client.

    Attributes:
        protocol: The version spoken; 0 before `initialize`.
        batch: Whether the client takes arrays of frames.
        client: Who it says it is.
        cursors: The seq of the last record that was queued for the client, per attached session.
    """

    limits: Limits = DEFAULT_LIMITS
    protocol: int = 0
    batch: bool = False
    client: cmd.ClientInfo = cmd.ClientInfo()
    cursors: dict[str, int] = field(default_factory=dict[str, int])


def initialize(link: Link, params: cmd.Initialize, server: ServerInfo) -> Initialized:
    """Negotiate version and capabilities.

    Raises:
        RuleViolation: `protocol.unsupported` - naming the known versions, the link stays as it was and may try again;
            `command.invalid` - the link is initialized already.
    """
    if link.protocol:
        raise RuleViolation(Code.COMMAND_INVALID, f"this connection is initialized already, protocol {link.protocol}")
    link.protocol = cmd.choose_version(params.protocol)
    link.batch, link.client = params.capabilities.batch, params.client
    return Initialized(
        link.protocol, server, cmd.ClientCapabilities(batch=link.batch), LinkLimits(link.limits.max_message_bytes)
    )


def admit(link: Link, params: cmd.Params) -> None:
    """Say whether the link may make this call now.

    Raises:
        RuleViolation: `link.not_initialized` - anything but `initialize` came first; `link.not_attached` - the call
            is for those who watch the session; `session.limit` - it watches as many sessions as it may.
    """
    if not link.protocol:
        if isinstance(params, cmd.Initialize):
            return
        raise RuleViolation(Code.LINK_NOT_INITIALIZED, "the first call of a connection is `initialize`")
    if isinstance(params, (*_NEEDS_ATTACHMENT, cmd.Detach)) and params.session not in link.cursors:
        raise RuleViolation(Code.LINK_NOT_ATTACHED, "attach to the session first, with `session/attach`")
    most = link.limits.max_attached
    if isinstance(params, cmd.Attach) and params.session not in link.cursors and len(link.cursors) >= most:
        raise RuleViolation(Code.SESSION_LIMIT, f"a connection attaches to at most {most} sessions; detach one")


def attach(link: Link, session: str, seq: int) -> None:
    """Note that the client watches `session` from `seq` + 1 on. Attaching again starts over from there."""
    link.cursors[session] = seq


def advance(link: Link, session: str, seq: int) -> None:
    """Note that the record `seq` was queued for the client. A cursor never goes back."""
    if seq > link.cursors.get(session, seq):
        link.cursors[session] = seq


def detach(link: Link, session: str) -> int:
    """Note that the client watches `session` no more; return its cursor, 0 if it did not watch it."""
    return link.cursors.pop(session, 0)


def choose_attach(
    log_id: str,
    head: int,
    oldest: int,
    wanted_log_id: str,
    wanted_cursor: int,
    *,
    max_tail: int = DEFAULT_LIMITS.max_outbox_messages // 2,
) -> tuple[AttachMode, int]:
    """Choose how a client is brought up to date, and the seq of the first event that follows.

    Args:
        log_id: The log as it is.
        head: Seq of its last record.
        oldest: Seq of the oldest record that can still be sent.
        wanted_log_id: The log the client knows, "" for none.
        wanted_cursor: The last seq the client applied.
        max_tail: How many records may be replayed; more would not fit the client's outbox, a snapshot does.

    =====================  ==========================  ========  ==========
    log the client knows   its cursor                  mode      from
    =====================  ==========================  ========  ==========
    none                   any                         snapshot  head + 1
    another                any                         reset     head + 1
    this one               beyond the head             reset     head + 1
    this one               before what can be sent     snapshot  head + 1
    this one               further back than max_tail  snapshot  head + 1
    this one               otherwise                   tail      cursor + 1
    =====================  ==========================  ========  ==========
    """
    if not wanted_log_id:
        return "snapshot", head + 1
    if wanted_log_id != log_id or wanted_cursor > head:
        return "reset", head + 1
    if wanted_cursor + 1 < oldest or head - wanted_cursor > max_tail:
        return "snapshot", head + 1
    return "tail", wanted_cursor + 1
