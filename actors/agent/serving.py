"""What a session does with a command that arrives in its mailbox: decide, record, reply once that is committed."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio
from msgspec import UNSET, Struct

from actors.agent.extension import AgentRunConfig, ExternalEvent
from actors.agent.outbox import Reader
from actors.agent.session import Session
from actors.runtime import Ctx
from protocol import commands as cmd
from protocol import decisions
from protocol.asks import AskOutcome
from protocol.errors import Code, RuleViolation
from protocol.history import Ack
from protocol.link import choose_attach
from protocol.snapshot import PartialMessage, Snapshot, snapshot

if TYPE_CHECKING:
    from actors.agent.generation import Partial

Reply = Callable[[Any], object]


class Request(Struct):
    """A command for a session and where its result, or the `RuleViolation` that refuses it, goes.

    `reply` is called synchronously, once, in the session's order, after what justifies it is committed; it must only
    queue. `reader` is what `Attach` attaches and `Detach` detaches.
    """

    command: cmd.Params
    reply: Reply
    reader: Reader | None = None


class Acknowledged(Struct, frozen=True, omit_defaults=True):
    """The result of a command that was carried out: the seq that records it, and the run it concerns."""

    seq: int
    run: str = ""


class Accepted(Struct, frozen=True):
    """The result of `session/event`: the names of the extensions that took it."""

    accepted: tuple[str, ...]


class Attached(Struct, frozen=True, omit_defaults=True):
    session: str
    log_id: str
    seq: int
    mode: str
    snapshot: Snapshot | None = None


class StateResult(Struct, frozen=True):
    log_id: str
    snapshot: Snapshot


class HistoryResult(Struct, frozen=True):
    messages: tuple[Any, ...]
    total: int


async def session_actor(ctx: Ctx[Request], session: Session) -> None:
    """The actor of one session: one loop, which waits for no store, client or tool. Its runs live in its nursery."""
    session.actor, session.nursery = ctx.self, ctx.nursery
    if session.closed is not None:
        return  # its store failed while it was made
    ctx.ready()
    try:
        async for request in ctx:
            serve(session, request)
    except Exception as error:
        # First the record: the runs are not cancelled, the log says what becomes of them.
        text = f"the actor of session {session.id!r} failed with {type(error).__name__}"
        session.actor = None  # it ends by this error, not by a stop
        session.shut(RuleViolation(Code.SESSION_CRASHED, text))
        raise
    finally:
        session.body_ended("the session was stopped")
        _turn_away(ctx, session)


def _turn_away(ctx: Ctx[Request], session: Session) -> None:
    """Answer what is still in the mailbox: nobody will serve it."""
    why = session.closed or RuleViolation(Code.SESSION_CLOSED, f"session {session.id!r} is closed")
    with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel):
        while True:
            ctx.receive_nowait().reply(why)


def serve(session: Session, request: Request) -> None:
    """Carry out one command. Never a checkpoint."""
    command = request.command
    session.quiet = 0
    try:
        if isinstance(command, cmd.Attach):
            _attach(session, command, request)
            return
        result = _perform(session, command)
    except RuleViolation as refused:
        result = refused
    session.leave(request.reply, result, failed=request.reply)


def _perform(session: Session, command: cmd.Params) -> Any:
    limits = session.agent.limits
    match command:
        case cmd.Prompt():
            message = decisions.user_message(command.text, limits=limits)
            turns = command.max_turns or session.agent.max_turns
            return _ack(
                session.act(
                    command.command, decisions.prompt, message,
                    max_turns=turns, when_busy=command.when_busy, limits=limits,
                )
            )  # fmt: skip
        case cmd.Steer():
            message = decisions.user_message(command.text, limits=limits)
            return _ack(session.act(command.command, decisions.steer, message, limits=limits))
        case cmd.Answer():
            return _ack(_answer(session, command))
        case cmd.ExternalEvent():
            try:
                event = ExternalEvent(command.name, command.payload)
            except ValueError as wrong:
                raise RuleViolation(Code.COMMAND_INVALID, str(wrong)) from None
            config = AgentRunConfig(session_id=session.id)
            return Accepted(tuple(session.agent.broadcast(event, config, cause=command.command)))
        case cmd.Cancel():
            return _ack(session.cancel(command.command, command.run, command.reason))
        case cmd.Close():
            session.closing = True  # whoever sent it closes the session; from here on nothing is started in it
            return Acknowledged(session.state.seq)
        case cmd.GetState():
            return StateResult(session.state.log_id, take_snapshot(session))
        case cmd.GetHistory():
            messages = session.state.messages
            return HistoryResult(tuple(messages[command.offset : command.offset + command.limit]), len(messages))
        case _:
            raise RuleViolation(Code.COMMAND_INVALID, f"a session does not take {type(command).__name__}")


def _ack(ack: Ack) -> Acknowledged:
    return Acknowledged(ack.seq, ack.run)


def _answer(session: Session, command: cmd.Answer) -> Ack:
    if command.outcome == "declined":
        if command.answer is not UNSET or command.payload is not UNSET:
            raise RuleViolation(Code.COMMAND_INVALID, "a declined ask has no answer; put words into `note`")
        return session.act(
            command.command, decisions.settle_ask, command.ask, AskOutcome.DECLINED, note=command.note
        )
    if (command.answer is UNSET) == (command.payload is UNSET):
        raise RuleViolation(Code.COMMAND_INVALID, "an answer has either `answer` or `payload`")
    payload = dict(command.payload) if isinstance(command.payload, dict) else {"answer": command.answer}
    return session.act(command.command, decide_answer, command.ask, payload, limits=session.agent.limits)


def decide_answer(state: Any, target: str, payload: dict[str, Any], **options: Any) -> Any:
    """`decisions.answer`, with the ask's own `tool_call_id` in the payload: what the model reads names its call."""
    record = decisions.find_ask(state, target)
    return decisions.answer(state, target, {"tool_call_id": record.ask.tool_call_id, **payload}, **options)


def _attach(session: Session, command: cmd.Attach, request: Request) -> None:
    state, reader = session.state, request.reader
    if reader is None:
        raise RuleViolation(Code.COMMAND_INVALID, "attaching needs a reader")
    mode, first = choose_attach(
        state.log_id,
        state.seq,
        oldest=session.log_base + 1,
        wanted_log_id=command.log_id,
        wanted_cursor=command.cursor,
    )
    cursor = first - 1
    seen = None if mode == "tail" else take_snapshot(session)
    reply = Attached(session.id, state.log_id, cursor, mode, seen)
    session.attach(
        reader,
        after=cursor if mode == "tail" else None,
        joined=lambda: request.reply(reply),
        failed=request.reply,
    )


def take_snapshot(session: Session) -> Snapshot:
    """Return the session's snapshot now, the message in flight included."""
    live = session.live(session.state.root)
    partial: Partial | None = live.partial if live is not None else None
    if partial is None:
        return snapshot(session.state)
    assembler = partial.assembler
    return snapshot(session.state, PartialMessage(partial.message_id, assembler.text, assembler.reasoning))
