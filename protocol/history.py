"""The state of a session as the fold of its log. `apply` is its only writer.

A run is one request of the user: the model-tool loop until an answer. What a run owns (its calls, asks and todo list)
hangs on its record here and goes with it. Results of a turn enter the history in call order once all are there, so at
any moment each call in `messages` has exactly one result, except those of the turn in flight, which are in `calls`.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from protocol import events as ev
from protocol.asks import AskOutcome, AskRecord, SettledAsk
from protocol.chat import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from protocol.errors import LocalProtocolError
from protocol.ids import run_id
from protocol.limits import COMMANDS_KEPT, COMMANDS_KEPT_S, SETTLED_ASKS_KEPT
from protocol.todos import TodoList, advanced


class Status(StrEnum):
    """What a session is doing. Waiting for a person is not being idle."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"
    CANCELLING = "cancelling"


class CallRecord(Struct, omit_defaults=True):
    """A tool call of the turn in flight: requested, then perhaps started, then settled by its one result."""

    call: ToolCall
    started: bool = False
    result: ToolMessage | None = None


class Run(Struct, omit_defaults=True):
    """A run that has not ended.

    Attributes:
        entered: Its input is in the history.
        resumed: How often it went on after its actor or process had ended, since its last model message.
        held: The call id of the ask whether it may go on; until that is settled nothing of it happens.
    """

    id: str
    input: UserMessage
    max_turns: int
    path: str = ""
    parent: str = ""
    turn: int = 0
    budget_from: int = 0
    answered: bool = False
    message_id: str = ""
    cancelling: bool = False
    reason: str = ""
    calls: dict[str, CallRecord] | None = None
    todos: TodoList | None = None
    advanced_in: int = 0
    revision: int = 0
    steers: list[UserMessage] | None = None
    steering: UserMessage | None = None
    compacting: bool = False
    entered: bool = False
    resumed: int = 0
    held: str = ""


class QueuedRun(Struct, frozen=True, omit_defaults=True):
    id: str
    input: UserMessage
    max_turns: int


class Ack(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a command was acknowledged with, and when; a repeat of it gets the same."""

    seq: int
    run: str = ""
    accepted: tuple[str, ...] = ()
    time: float = 0.0


class State(Struct):
    """Everything the log says. Read it freely; only `apply` changes it.

    Attributes:
        seq: The last record applied.
        messages: The history, oldest first.
        runs: Runs that have not ended, the root run and its nested ones.
        root: Id of the root run, or "".
        asks: Asks of those runs by tool call id, settled ones included.
        settled: How asks of ended runs had ended, by tool call id, the last 256.
        commands: Acknowledgements by command id, of the last 24 hours and at most 10,000.
    """

    session_id: str = ""
    log_id: str = ""
    seq: int = 0
    messages: list[Message] = field(default_factory=list[Message])
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    root: str = ""
    queue: list[QueuedRun] | None = None
    asks: dict[str, AskRecord] | None = None
    settled: dict[str, SettledAsk] | None = None
    commands: dict[str, Ack] | None = None
    call_ids: list[str] | None = None
    state: dict[str, Any] | None = None

    @property
    def run(self) -> Run | None:
        """The root run, if one is active."""
        return self.runs.get(self.root)

    def open_asks(self) -> list[AskRecord]:
        """The asks that wait for an answer, in the order they were opened."""
        return [record for record in (self.asks or {}).values() if record.outcome is None]

    @property
    def status(self) -> Status:
        run = self.run
        if run is None:
            return Status.IDLE
        if run.cancelling:
            return Status.CANCELLING
        if self.asks and any(record.outcome is None for record in self.asks.values()):
            return Status.WAITING
        return Status.RUNNING


def apply(state: State, event: ev.Event) -> None:
    """Apply one stamped record. The seq must be the next one.

    Raises:
        LocalProtocolError: A gap, or an event that cannot happen in this state: the log is not one of ours.
    """
    if event.seq != state.seq + 1:
        raise LocalProtocolError(f"record {event.seq} does not follow {state.seq}")
    handler = _APPLY.get(type(event))
    if handler is not None:
        handler(state, event)
    state.seq = event.seq
    if event.cause:
        _remember_command(state, event)


def fold(events: Iterable[ev.Event], state: State | None = None) -> State:
    """Return the state a log describes, or `state` (a restored snapshot) carried on by it."""
    state = state or State()
    for event in events:
        apply(state, event)
    return state


def _remember_command(state: State, event: ev.Event) -> None:
    if state.commands is None:
        state.commands = {}
    before = state.commands.pop(event.cause, None)
    via = event.via if isinstance(event, ev.AskSettled) and event.via else ""
    accepted = (before.accepted if before else ()) + ((via,) if via else ())
    run = before.run if before and before.run else event.run
    state.commands[event.cause] = Ack(event.seq, run, accepted, event.time)
    while len(state.commands) > 1:
        oldest = next(iter(state.commands))
        if len(state.commands) <= COMMANDS_KEPT and state.commands[oldest].time >= event.time - COMMANDS_KEPT_S:
            break
        del state.commands[oldest]


def _run(state: State, event: ev.Event) -> Run:
    try:
        return state.runs[event.run]
    except KeyError:
        raise LocalProtocolError(f"record {event.seq} belongs to run {event.run!r}, which is not active") from None


def _call(state: State, event: ev.ToolStarted | ev.ToolCompleted | ev.ToolFailed | ev.ToolSkipped) -> CallRecord:
    call_id = event.tool_call_id if isinstance(event, ev.ToolStarted) else event.result.tool_call_id
    record = (_run(state, event).calls or {}).get(call_id)
    if record is None:
        raise LocalProtocolError(f"record {event.seq}: {call_id!r} is no call of the turn in flight")
    if record.result is not None:
        raise LocalProtocolError(f"record {event.seq}: call {call_id!r} has its result already")
    return record


def _session_opened(state: State, event: ev.SessionOpened) -> None:
    if event.format > ev.LOG_FORMAT:
        raise LocalProtocolError(
            f"the log of session {event.session_id!r} has format {event.format}; known up to {ev.LOG_FORMAT}"
        )
    state.session_id, state.log_id = event.session_id, event.log_id


def _message_added(state: State, event: ev.MessageAdded) -> None:
    if event.input:
        _run(state, event).entered = True
    if event.index is None:
        state.messages.append(event.message)
    else:
        # A new list: whoever holds the old one has seen a history that only grows at its end.
        state.messages = [*state.messages]
        state.messages.insert(event.index, event.message)


def _history_replaced(state: State, event: ev.HistoryReplaced) -> None:
    state.messages = list(event.messages)


def _state_changed(state: State, event: ev.StateChanged) -> None:
    if state.state is None:
        state.state = {}
    if event.value is None:
        state.state.pop(event.key, None)
    else:
        state.state[event.key] = event.value


def _run_queued(state: State, event: ev.RunQueued) -> None:
    if state.queue is None:
        state.queue = []
    state.queue.append(QueuedRun(run_id(event.seq), event.input, event.max_turns))


def _run_started(state: State, event: ev.RunStarted) -> None:
    if not event.parent:
        if state.root:
            raise LocalProtocolError(f"run {event.run} starts while {state.root} is active")
        state.root = event.run
        state.queue = [queued for queued in state.queue or () if queued.id != event.run] or None
    state.runs[event.run] = Run(event.run, event.input, event.max_turns, path=event.path, parent=event.parent)


def _run_resumed(state: State, event: ev.RunResumed) -> None:
    run = _run(state, event)
    run.resumed += 1
    run.held, run.compacting = "", False


def _cancel_requested(state: State, event: ev.CancelRequested) -> None:
    run = _run(state, event)
    run.cancelling, run.reason = True, event.reason


def _run_ended(state: State, event: ev.Event) -> None:
    run = state.runs.pop(event.run, None)
    if run is None:  # it was cancelled while it still waited in the queue
        left = [queued for queued in state.queue or () if queued.id != event.run]
        if len(left) == len(state.queue or ()):
            raise LocalProtocolError(f"record {event.seq} ends run {event.run!r}, which is neither active nor queued")
        state.queue = left or None
        return
    if state.root == run.id:
        state.root = ""
    if state.asks:
        for key in [key for key, record in state.asks.items() if record.run == run.id]:
            record = state.asks.pop(key)
            if state.settled is None:
                state.settled = {}
            state.settled[key] = SettledAsk(record.ask.id, record.outcome or AskOutcome.CANCELLED, event.time)
        while state.settled and len(state.settled) > SETTLED_ASKS_KEPT:
            del state.settled[next(iter(state.settled))]
    if not state.asks:
        state.asks = None


def _model_completed(state: State, event: ev.ModelCompleted) -> None:
    run = _run(state, event)
    if run.calls:
        raise LocalProtocolError(f"record {event.seq}: calls of run {run.id} are still without their results")
    run.turn, run.message_id = event.turn, event.message_id
    run.answered = not event.message.tool_calls
    run.entered, run.resumed = True, 0
    state.messages.append(event.message)
    if event.message.tool_calls:
        run.calls = {call.id: CallRecord(call) for call in event.message.tool_calls}
        if state.call_ids is None:
            state.call_ids = [*run.calls]  # of its own size: most sessions make few calls
        else:
            state.call_ids.extend(run.calls)


def _tool_started(state: State, event: ev.ToolStarted) -> None:
    _call(state, event).started = True


def _tool_settled(state: State, event: ev.ToolCompleted | ev.ToolFailed | ev.ToolSkipped) -> None:
    _call(state, event).result = event.result
    run = _run(state, event)
    calls = (run.calls or {}).values()
    if all(record.result is not None for record in calls):
        run.calls = None
        _add_results(state, [record.result for record in calls if record.result is not None])


def _add_results(state: State, results: list[ToolMessage]) -> None:
    """Put the results of a turn right behind the message that made the calls, whatever was added since.

    A history that was replaced by one without that message gets no results: no model takes them without their calls.
    """
    messages, first = state.messages, results[0].tool_call_id
    for end in range(len(messages), 0, -1):
        message = messages[end - 1]
        if isinstance(message, AssistantMessage) and first in [call.id for call in message.tool_calls]:
            if end == len(messages):
                messages.extend(results)
            else:
                state.messages = [*messages[:end], *results, *messages[end:]]
            return


def _ask_opened(state: State, event: ev.AskOpened) -> None:
    if state.asks is None:
        state.asks = {}
    if event.ask.tool_call_id in state.asks:
        raise LocalProtocolError(f"record {event.seq}: call {event.ask.tool_call_id!r} has its ask already")
    run, call_id = _run(state, event), event.ask.tool_call_id
    state.asks[call_id] = AskRecord(event.ask, run=run.id)
    if call_id not in (run.calls or {}):
        # It is about the run and not about a call: no call may have its id, then or later.
        run.held = call_id
        state.call_ids = [*(state.call_ids or ()), call_id]


def _ask_settled(state: State, event: ev.AskSettled) -> None:
    record = (state.asks or {}).get(event.tool_call_id)
    if record is None:
        raise LocalProtocolError(f"record {event.seq}: call {event.tool_call_id!r} has no ask")
    if record.outcome is not None:
        raise LocalProtocolError(f"record {event.seq}: ask {event.ask} is settled already, as {record.outcome}")
    record.outcome, record.payload, record.note = event.outcome, event.payload, event.note


def _todos_changed(state: State, event: ev.TodosChanged) -> None:
    run = _run(state, event)
    if event.todos is not None and advanced(run.todos, event.todos):
        run.advanced_in = run.turn
    run.todos = event.todos
    if event.todos is not None:
        run.revision = event.todos.revision


def _steering_queued(state: State, event: ev.SteeringQueued) -> None:
    run = _run(state, event)
    run.steers = [*(run.steers or ()), event.message]


def _steering_started(state: State, event: ev.SteeringStarted) -> None:
    run = _run(state, event)
    run.steers = (run.steers or [])[1:] or None
    run.steering, run.answered, run.budget_from = event.message, False, run.turn
    state.messages.append(event.message)


def _steering_over(state: State, event: ev.SteeringCompleted | ev.SteeringInterrupted) -> None:
    _run(state, event).steering = None


def _compaction_started(state: State, event: ev.CompactionStarted) -> None:
    if event.run:
        _run(state, event).compacting = True


def _compaction_completed(state: State, event: ev.CompactionCompleted) -> None:
    if event.run:
        _run(state, event).compacting = False


_APPLY: dict[type[ev.Event], Callable[[State, Any], None]] = {
    ev.SessionOpened: _session_opened,
    ev.MessageAdded: _message_added,
    ev.HistoryReplaced: _history_replaced,
    ev.StateChanged: _state_changed,
    ev.RunQueued: _run_queued,
    ev.RunStarted: _run_started,
    ev.RunResumed: _run_resumed,
    ev.CancelRequested: _cancel_requested,
    ev.RunCompleted: _run_ended,
    ev.RunFailed: _run_ended,
    ev.RunCancelled: _run_ended,
    ev.ModelCompleted: _model_completed,
    ev.ToolStarted: _tool_started,
    ev.ToolCompleted: _tool_settled,
    ev.ToolFailed: _tool_settled,
    ev.ToolSkipped: _tool_settled,
    ev.AskOpened: _ask_opened,
    ev.AskSettled: _ask_settled,
    ev.TodosChanged: _todos_changed,
    ev.SteeringQueued: _steering_queued,
    ev.SteeringStarted: _steering_started,
    ev.SteeringCompleted: _steering_over,
    ev.SteeringInterrupted: _steering_over,
    ev.CompactionStarted: _compaction_started,
    ev.CompactionCompleted: _compaction_completed,
}
