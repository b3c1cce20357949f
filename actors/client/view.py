"""What there is to see of one session: the fold of its snapshot and events. Pure; knows no terminal.

Shown while it lasts: the list, open questions, running tools, the text being written. Said once and left standing: what
`apply` returns, in order. Events of nested runs show as activity with their path; the list and the text are the root
run's. An event that does not fit (a type or a field of a later version) is passed over.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from actors.client.blocks import Block, Ended, Mark, Noted, Prompted, Said, Settled
from actors.client.snapshot import HISTORY_SHOWN, Snapshot, said_before
from actors.client.text import one_line
from protocol import events as ev
from protocol.asks import Ask, AskOutcome
from protocol.chat import CallOutcome
from protocol.errors import Code
from protocol.history import Status
from protocol.todos import TodoItem, TodoList, TodoStatus

# Shown as the list and as questions; their calls would say the same again.
QUIET_TOOLS = frozenset({"todo_write", "ask_user"})


class View:
    """See the module. Everything is for reading; `restore` and `apply` change it.

    Attributes:
        asks: Open asks by tool call id, in the order they were opened.
        tools: Names of running tools by call id.
        partial: The text so far of the message `partial_of`, which is being written.
        cancelling: A cancel was requested and the run has not ended.
        turns: Model calls completed in this run.
        forgotten: The list as it was when the run let go of it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Know nothing."""
        self.run = ""
        self.cancelling = False
        self.todos: TodoList | None = None
        self.asks: dict[str, Ask] = {}
        self.tools: dict[str, str] = {}
        self.pieces: list[str] = []
        self.chars = 0
        self.turns = 0
        self.partial_of = ""
        self.forgotten: TodoList | None = None

    @property
    def status(self) -> Status:
        if not self.run:
            return Status.IDLE
        if self.cancelling:
            return Status.CANCELLING
        return Status.WAITING if self.asks else Status.RUNNING

    @property
    def items(self) -> tuple[TodoItem, ...]:
        return self.todos.items if self.todos else ()

    def restore(self, snapshot: Mapping[str, Any]) -> list[Block]:
        """Become what `snapshot` says; return the end of the conversation so far.

        Raises:
            msgspec.ValidationError: It is not a snapshot.
        """
        self.reset()
        taken = msgspec.convert(snapshot, Snapshot)
        self.todos = taken.todos
        self.asks = {ask.tool_call_id: ask for ask in taken.asks}
        if taken.run is not None:
            self.run, self.cancelling = taken.run.id, taken.status == Status.CANCELLING
            self.tools = {c.call.id: c.call.name for c in taken.run.calls if c.started and c.result is None}
            if taken.run.partial is not None:
                self.write(taken.run.partial.message, 0, taken.run.partial.text)
        return [block for message in taken.messages[-HISTORY_SHOWN:] for block in said_before(message)]

    @property
    def partial(self) -> str:
        return "".join(self.pieces)

    def write(self, message: str, offset: int, text: str) -> None:
        """Put a piece of text at its place in the message being written; another message begins anew."""
        if message != self.partial_of:
            self.partial_of, self.pieces, self.chars = message, [], 0
        if offset != self.chars:  # a piece came twice, or one was missed: what stands before it stays
            before = self.partial[:offset]
            self.pieces, self.chars = [before], len(before)
        self.pieces.append(text)
        self.chars += len(text)

    def apply(self, event: ev.Event) -> list[Block]:
        """Take one event; return what it leaves standing."""
        handler = _APPLY.get(type(event))
        return handler(self, event) if handler else []


# ---- runs


def _run_started(view: View, event: ev.RunStarted) -> list[Block]:
    if event.parent:
        return [Noted(Mark.INFO, f"{event.path or event.run}: started")]
    asks = view.asks
    view.reset()
    view.run, view.asks = event.run, asks
    return [Prompted(event.input.content)]


def _run_queued(view: View, event: ev.RunQueued) -> list[Block]:
    return [Noted(Mark.INFO, f"queued: {one_line(event.input.content, 80)}")]


def _cancel_requested(view: View, event: ev.CancelRequested) -> list[Block]:
    view.cancelling = view.cancelling or event.run == view.run
    return []


def _run_ended(view: View, event: ev.RunCompleted | ev.RunFailed | ev.RunCancelled) -> list[Block]:
    if event.run != view.run:
        if event.path:
            how = str(type(event).__struct_config__.tag).removeprefix("run_")
            return [Noted(Mark.INFO, f"{event.path}: {how}")]
        return [Noted(Mark.INFO, "a queued run was cancelled")]
    todos = event.todos or view.todos or view.forgotten
    blocks: list[Block] = []
    if isinstance(event, ev.RunCompleted):
        kind, code, message = "completed", "", ""
    else:
        blocks += _broken_off(view)
        if isinstance(event, ev.RunFailed):
            kind, code, message = "failed", event.code, event.message
        else:
            kind, code, message = "cancelled", "run.cancelled", _why_cancelled(event)
    items = todos.items if todos else ()
    done = sum(item.status is TodoStatus.COMPLETED for item in items)
    blocks += _unfinished(items)
    blocks.append(Ended(kind, event.run, code, message, event.turns, done, len(items)))
    view.reset()
    return blocks


def _broken_off(view: View) -> list[Block]:
    """What was said of a message that will not be finished stays, marked as such."""
    return [Said(view.partial), Noted(Mark.INTERRUPTED, "broken off")] if view.partial.strip() else []


# ---- text


def _model_started(view: View, event: ev.ModelStarted) -> list[Block]:
    if event.run == view.run:
        view.write(event.message_id, 0, "")
    return []


def _text(view: View, event: ev.TextStreamed) -> list[Block]:
    if event.run in ("", view.run):
        view.write(event.message, event.offset, event.text)
    return []


def _model_completed(view: View, event: ev.ModelCompleted) -> list[Block]:
    if event.run != view.run:
        return []
    view.turns = event.turn
    view.write("", 0, "")
    return [Said(event.message.content)] if event.message.content.strip() else []


def _steering(view: View, event: ev.SteeringStarted) -> list[Block]:
    return [Prompted(event.message.content)]


# ---- tools, questions, the list


def _tool_started(view: View, event: ev.ToolStarted) -> list[Block]:
    if event.name not in QUIET_TOOLS:
        view.tools[event.tool_call_id] = _pathed(event.path, event.name)
    return []


def _tool_ended(view: View, event: ev.ToolCompleted | ev.ToolFailed | ev.ToolSkipped) -> list[Block]:
    result = event.result
    view.tools.pop(result.tool_call_id, None)
    name = _pathed(event.path, result.name)
    if isinstance(event, ev.ToolCompleted):
        quiet = result.name in QUIET_TOOLS
        return [] if quiet else [Noted(Mark.TOOL, one_line(f"{name}: {result.content}"))]
    declined = isinstance(event, ev.ToolFailed) and event.code == Code.ASK_DECLINED
    if declined or (result.name == "ask_user" and result.outcome is not CallOutcome.FAILED):
        return []  # the question's own outcome has been said
    return [Noted(Mark.FAILED, one_line(f"{name} {result.outcome}: {_error_text(result.content)}"))]


def _ask_opened(view: View, event: ev.AskOpened) -> list[Block]:
    view.asks[event.ask.tool_call_id] = event.ask
    return []


def _ask_settled(view: View, event: ev.AskSettled) -> list[Block]:
    ask = view.asks.pop(event.tool_call_id, None)
    if ask is None:
        return []
    asked = "; ".join(question.question for question in ask.questions)
    return [Settled(asked, event.outcome, _answer_text(event), ask.path or event.path)]


def _todos_changed(view: View, event: ev.TodosChanged) -> list[Block]:
    if event.path or event.run not in ("", view.run):
        return []
    before = view.items
    if event.todos is None:
        view.todos, view.forgotten = None, view.todos
        return []
    view.todos = event.todos
    finished = {index for index, item in enumerate(before) if item.status is TodoStatus.COMPLETED}
    return [
        Noted(Mark.DONE, item.content)
        for index, item in enumerate(event.todos.items)
        if item.status is TodoStatus.COMPLETED and index not in finished
    ]


def _state_damaged(view: View, event: ev.StateDamaged) -> list[Block]:
    return [Noted(Mark.FAILED, one_line(f"stored state {event.key} could not be read: {event.message}"))]


def _compaction(view: View, event: ev.CompactionCompleted) -> list[Block]:
    if event.error:
        return [Noted(Mark.FAILED, one_line(f"compaction failed: {event.error}"))]
    return [Noted(Mark.INFO, "the conversation was compacted")] if event.applied else []


def _why_cancelled(event: ev.RunCancelled) -> str:
    stuck = f"still running: {', '.join(event.stuck)}" if event.stuck else ""
    return "; ".join(part for part in (event.reason, event.error, stuck) if part)


def _unfinished(items: tuple[TodoItem, ...]) -> list[Block]:
    """Items nobody works on any more: the one in progress was interrupted, the rest never begun."""
    marks = {TodoStatus.IN_PROGRESS: Mark.INTERRUPTED, TodoStatus.PENDING: Mark.OPEN}
    return [Noted(marks[item.status], item.content) for item in items if item.status in marks]


def _pathed(path: str, name: str) -> str:
    return f"{path} {name}" if path else name


def _error_text(content: str) -> str:
    """Return the message of a structured error, or the content as it is."""
    try:
        body: object = msgspec.json.decode(content)
        return str(cast("dict[str, dict[str, object]]", body)["error"]["message"])
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError, KeyError):
        return content


def _answer_text(event: ev.AskSettled) -> str:
    if event.outcome is not AskOutcome.ANSWERED:
        return event.note
    values = [value for given in event.answers.values() for value in given.values]
    if values:
        return ", ".join(values)
    payload = event.payload or {}
    shown = payload.get("answer", {key: value for key, value in payload.items() if key != "tool_call_id"})
    return shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()


_APPLY = cast(
    "dict[type[ev.Event], Callable[[View, ev.Event], list[Block]]]",
    {
        ev.RunStarted: _run_started,
        ev.RunQueued: _run_queued,
        ev.CancelRequested: _cancel_requested,
        ev.RunCompleted: _run_ended,
        ev.RunFailed: _run_ended,
        ev.RunCancelled: _run_ended,
        ev.ModelStarted: _model_started,
        ev.TextStreamed: _text,
        ev.ModelCompleted: _model_completed,
        ev.SteeringStarted: _steering,
        ev.ToolStarted: _tool_started,
        ev.ToolCompleted: _tool_ended,
        ev.ToolFailed: _tool_ended,
        ev.ToolSkipped: _tool_ended,
        ev.AskOpened: _ask_opened,
        ev.AskSettled: _ask_settled,
        ev.TodosChanged: _todos_changed,
        ev.StateDamaged: _state_damaged,
        ev.CompactionCompleted: _compaction,
    },
)
