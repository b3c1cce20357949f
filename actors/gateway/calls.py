"""Carries out the calls of a link: asks the rules, hands each command to its session, shapes what comes back.

Decides nothing about sessions. A reply arrives through a callback, once what justifies it is committed; until then the
link goes on reading, so calls to different sessions overtake each other and calls to one session never do.
"""

from collections.abc import Callable
from importlib import metadata
from typing import Any, Protocol

from actors.gateway.ports import Reply, ServedAgent, SessionHandle
from actors.gateway.watch import Watch
from protocol import commands as cmd
from protocol import link as rules
from protocol.errors import Code, RuleViolation
from protocol.history import Ack

try:
    VERSION = metadata.version("trio-actors")
except metadata.PackageNotFoundError:
    VERSION = "0"

SERVER = rules.ServerInfo("trio-actors", VERSION)


class Caller(Protocol):
    """What a call needs of the link that it came by."""

    state: rules.Link
    watches: dict[str, Watch]

    def identify(self, client: str) -> None:
        """Make this link the one of the client with this id; an older one is closed."""
        ...

    def make_watch(self, handle: SessionHandle, cursor: int) -> Watch: ...

    @property
    def ended(self) -> bool: ...


async def perform(agent: ServedAgent, caller: Caller, params: cmd.Params, reply: Reply) -> None:
    """Carry out one call. A checkpoint where it waits for a session.

    Args:
        agent: Whose sessions they are.
        caller: The link.
        params: Decoded parameters.
        reply: Told the result once, now or later.

    Raises:
        RuleViolation: The call is refused; `reply` was not called.
    """
    rules.admit(caller.state, params)
    match params:
        case cmd.Initialize():
            result = rules.initialize(caller.state, params, SERVER)
            if params.client.id:
                caller.identify(params.client.id)
            reply(result)
        case cmd.Open():
            handle, created = await agent.open_session(params.session)
            reply({"session": handle.id, "log_id": handle.log_id, "seq": handle.seq, "created": created})
        case cmd.List():
            sessions, more = agent.list_sessions(params.after, params.limit)
            reply({"sessions": sessions, "more": more})
        case cmd.Attach():
            await _attach(_find(agent, params.session), caller, params, reply)
        case cmd.Detach():
            _forget(caller, params.session)
            reply({"session": params.session})
        case _:
            command: Any = params
            cause: str = getattr(command, "command", "")
            shaped = _shape(_RESULTS.get(type(params)), command.session, reply)
            await _find(agent, command.session).submit(params, shaped, cause=cause)


def _find(agent: ServedAgent, session_id: str) -> SessionHandle:
    handle = agent.find_session(session_id)
    if handle is None:
        raise RuleViolation(Code.SESSION_UNKNOWN, "no session has this id; `session/open` makes one")
    return handle


def _shape(shape: Callable[[Ack, str], object] | None, session_id: str, reply: Reply) -> Reply:
    if shape is None:
        return reply
    chosen = shape

    def shaped(result: Any) -> None:
        reply(result if isinstance(result, RuleViolation) else chosen(result, session_id))

    return shaped


_RESULTS: dict[type[cmd.Params], Callable[[Ack, str], object]] = {
    cmd.ExternalEvent: lambda ack, _: {"accepted": ack.accepted},
    cmd.Close: lambda _, session_id: {"session": session_id},
}


async def _attach(handle: SessionHandle, caller: Caller, params: cmd.Attach, reply: Reply) -> None:
    """Attach, counting from the moment it is asked for: what the client sends right behind it may rely on it."""
    watch = caller.make_watch(handle, params.cursor)
    rules.attach(caller.state, params.session, params.cursor)

    def attached(result: Any) -> None:
        if isinstance(result, RuleViolation):
            watch.ended = True
            if params.session not in caller.watches:
                rules.detach(caller.state, params.session)
        elif caller.ended or params.session not in caller.state.cursors:
            watch.end()  # it left, or detached, before it was attached
        else:
            _replace(caller, params.session, watch)
            watch.seq = watch.sent = result.seq
            rules.attach(caller.state, params.session, result.seq)
        reply(result)

    try:
        await handle.submit_attach(watch, params, attached)
    except BaseException:
        if params.session not in caller.watches:
            rules.detach(caller.state, params.session)
        watch.end()
        raise


def _replace(caller: Caller, session_id: str, watch: Watch) -> None:
    before = caller.watches.get(session_id)
    if before is not None:
        before.end()
    caller.watches[session_id] = watch


def _forget(caller: Caller, session_id: str) -> None:
    rules.detach(caller.state, session_id)
    watch = caller.watches.pop(session_id, None)
    if watch is not None:
        watch.end()
