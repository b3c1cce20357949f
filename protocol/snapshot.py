"""What a client that attaches is told: the state at one seq, partial text included. Live events go on from there."""

from msgspec import Struct

from protocol.asks import Ask
from protocol.chat import Message, UserMessage
from protocol.history import CallRecord, QueuedRun, State, Status
from protocol.todos import TodoList


class PartialMessage(Struct, frozen=True, omit_defaults=True):
    """The message that is being streamed; the next delta's offset is the length of `text`."""

    message: str
    text: str = ""
    reasoning: str = ""


class RunSnapshot(Struct, frozen=True, omit_defaults=True):
    """The active run. `reason` is set while it is being cancelled; `steers` wait for the next model call."""

    id: str
    turn: int
    input: UserMessage
    calls: tuple[CallRecord, ...] = ()
    partial: PartialMessage | None = None
    reason: str = ""
    steers: tuple[UserMessage, ...] = ()
    compacting: bool = False


class Snapshot(Struct, frozen=True, omit_defaults=True):
    """The visible state of a session at `seq`.

    Attributes:
        messages: The history; the calls of the turn in flight are in `run.calls`.
        asks: The open asks, in the order they were opened.
        todos: The active run's list.
    """

    session: str
    seq: int
    status: Status
    messages: tuple[Message, ...] = ()
    run: RunSnapshot | None = None
    asks: tuple[Ask, ...] = ()
    todos: TodoList | None = None
    queue: tuple[QueuedRun, ...] = ()


def snapshot(state: State, partial: PartialMessage | None = None) -> Snapshot:
    """Return the snapshot of a state. It shares nothing that changes later."""
    run = state.run
    seen = None
    if run is not None:
        calls = tuple(CallRecord(c.call, c.started, c.result) for c in (run.calls or {}).values())
        steers = tuple(run.steers or ())
        seen = RunSnapshot(run.id, run.turn, run.input, calls, partial, run.reason, steers, run.compacting)
    return Snapshot(
        state.session_id,
        state.seq,
        state.status,
        tuple(state.messages),
        seen,
        tuple(record.ask for record in state.open_asks()),
        run.todos if run is not None else None,
        tuple(state.queue or ()),
    )
