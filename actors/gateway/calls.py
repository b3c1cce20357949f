"""Carries out the calls of a link: asks the rules, hands each command to its session.

Decides nothing about sessions. A reply arrives through a callback, once what justifies it is committed; until then the
link goes on reading, so calls to different sessions overtake each other and calls to one session never do.
"""

import hashlib
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Any, Protocol, cast

import trio

from actors.gateway.ports import Handle, Reply, ServedAgent
from actors.gateway.watch import Sink, Watch
from protocol import commands as cmd
from protocol import link as rules
from protocol.errors import Code, RuleViolation


def _version() -> str:
    try:
        return metadata.version("trio-actors")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "0"


SERVER = rules.ServerInfo("trio-actors", _version())


class Caller(Sink, Protocol):
    """What a call needs of the link that it came by."""

    state: rules.Link
    watches: dict[str, Watch]
    joining: Watch | None  # the watch whose replay may be going on in this very step

    @property
    def ended(self) -> bool: ...

    def identify(self, client: str) -> None:
        """Make this link the only one of the client with this id."""
        ...

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run something that takes long without holding up the calls behind it. It must not raise."""
        ...


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
            handle, created = await agent.open_session(_wanted_id(caller.state, params))
            reply({"session": handle.id, "log_id": handle.log_id, "seq": handle.committed, "created": created})
        case cmd.List():
            sessions, more = await agent.list_sessions(after=params.after, limit=params.limit)
            reply({"sessions": sessions, "more": more})
        case cmd.Attach():
            await _attach(agent, caller, params, reply)
        case cmd.Detach():
            _detach(agent, caller, params.session)
            reply({"session": params.session})
        case cmd.Close():
            await _close(agent, caller, params, reply)
        case _:
            handle = await _find(agent, cast("Any", params).session)
            await handle.submit(params, reply)


def _wanted_id(link: rules.Link, params: cmd.Open) -> str | None:
    """The id to open. A client that repeats a command because it missed the reply gets the session it made before."""
    if params.session is not None or not (params.command and link.client.id):
        return params.session
    return "s-" + hashlib.sha256(f"{link.client.id}\0{params.command}".encode()).hexdigest()[:24]


async def _find(agent: ServedAgent, session_id: str) -> Handle:
    handle = await agent.wake_session(session_id)
    if handle is None:
        raise RuleViolation(Code.SESSION_UNKNOWN, "no session has this id; `session/open` makes one")
    return handle


async def _attach(agent: ServedAgent, caller: Caller, params: cmd.Attach, reply: Reply) -> None:
    """Attach, counting from the moment it is asked for: what the client sends right behind it may rely on it."""
    session = params.session
    handle = await _find(agent, session)
    watch = Watch(caller, session)
    rules.attach(caller.state, session, params.cursor)

    async def drop() -> None:
        await trio.lowlevel.checkpoint()  # the session adds the watch after this reply
        _drop(agent, watch)

    def attached(result: Any) -> None:
        if isinstance(result, RuleViolation):
            _give_up(caller, watch)
        elif caller.ended or session not in caller.state.cursors:
            watch.ended = True  # the client left, or detached, before it was attached
            caller.start(drop)
        else:
            _drop(agent, caller.watches.get(session))
            watch.begin(result.log_id, result.seq)
            caller.watches[session] = caller.joining = watch
            rules.attach(caller.state, session, result.seq)
        reply(result)

    try:
        await handle.submit(params, attached, reader=watch)
    except BaseException:
        _give_up(caller, watch)
        raise


def _give_up(caller: Caller, watch: Watch) -> None:
    """The session did not take the watch; an older one goes on."""
    watch.ended = True
    if watch.session not in caller.watches:
        rules.detach(caller.state, watch.session)


def _drop(agent: ServedAgent, watch: Watch | None) -> None:
    """End a watch and make its session forget it. Idempotent."""
    if watch is not None:
        watch.ended = True
        session = agent.find(watch.session)
        if session is not None:
            session.detach(watch)


def _detach(agent: ServedAgent, caller: Caller, session: str) -> None:
    rules.detach(caller.state, session)
    _drop(agent, caller.watches.pop(session, None))


def let_go(agent: ServedAgent, caller: Caller) -> None:
    """The link is at its end: no session knows it any more."""
    for session in list(caller.watches):
        _detach(agent, caller, session)
    caller.state.cursors.clear()


async def _close(agent: ServedAgent, caller: Caller, params: cmd.Close, reply: Reply) -> None:
    """Close behind what was called before it: the session takes the call in its order and starts nothing after it."""

    async def close() -> None:
        try:
            await agent.close_session(params.session)
        except RuleViolation as refused:
            reply(refused)
        except Exception as error:
            reply(error)  # whoever called waits for it; it is logged where it goes on to
            raise
        else:
            reply({"session": params.session})

    def begun(result: Any) -> None:
        if isinstance(result, RuleViolation):
            reply(result)
        else:
            caller.start(close)

    handle = await _find(agent, params.session)
    await handle.submit(params, begun)
