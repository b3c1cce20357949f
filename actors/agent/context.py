"""`AgentRunContext`: what an extension or a tool sees of its run, and all it may change."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from actors.agent.tools import Tool
from actors.agent.view import AgentEvent, AgentEventType
from protocol import decisions
from protocol import events as ev
from protocol.asks import Question
from protocol.chat import AssistantMessage, Message, ModelRequest, UserMessage, drop_orphans
from protocol.errors import LocalProtocolError
from protocol.history import Run
from protocol.phases import Phase
from protocol.sendable import check_size, check_text, copy_json
from protocol.todos import TodoList

if TYPE_CHECKING:
    from actors.agent.run import LiveRun
    from actors.agent.session import Session

T = TypeVar("T")

#: The id of the call whose tool the current task, or thread, runs; "" outside.
CURRENT_CALL: ContextVar[str] = ContextVar("CURRENT_CALL", default="")


class MessagesView(Sequence[Message]):
    """The history as it was at one moment, without copying it: it only ever grows at its end."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._length = len(messages)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self._messages[i] for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(f"message {index} of {self._length}")
        return self._messages[index if index >= 0 else self._length + index]


class ToolSet:
    """A table of tools that many runs share, and what the model is told of it. Nobody changes it."""

    __slots__ = ("definitions", "tools")

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.tools = dict(tools)
        self.definitions = tuple([tool.definition for tool in self.tools.values()])


class AgentRunContext:
    """One run, as its hooks and tools see it.

    Every change is a record in the session's log; once the run has ended it is refused with `run.settled`. `emit`,
    `add_message`, `replace_messages` and `set_state` may be called from the thread of a synchronous tool.

    Attributes:
        input_message: The user's message; `on_message` may replace it.
    """

    __slots__ = ("_live", "_server_tools", "_set", "_slots", "_tools", "input_message")

    def __init__(self, live: "LiveRun", input_message: UserMessage) -> None:
        self._live = live
        self._slots: dict[object, Any] | None = None
        self.input_message = input_message
        self._tools: dict[str, Tool] | None = None
        self._set: ToolSet = live.agent.tool_set
        self._server_tools: list[Any] | None = None

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools the model may call, by name. Change it freely: it belongs to this run."""
        if self._tools is None:
            self._tools = dict(self._set.tools)
        return self._tools

    def share_tools(self) -> None:
        """Give up the run's own tools where they are those of the run before: most runs have the same."""
        usual = self._live.agent.usual_tools
        if self._tools is not None:
            if usual.tools != self._tools:
                usual = self._live.agent.usual_tools = ToolSet(self._tools)
            self._set, self._tools = usual, None

    def tool(self, name: str) -> Tool | None:
        """Return a tool by its name. Cheaper than `tools`, which makes the run its own table."""
        return (self._set.tools if self._tools is None else self._tools).get(name)

    @property
    def server_tools(self) -> list[Any]:
        """Provider-side tools, passed through as they are."""
        if self._server_tools is None:
            self._server_tools = []
        return self._server_tools

    @server_tools.setter
    def server_tools(self, tools: Sequence[Any]) -> None:
        self._server_tools = list(tools)

    @property
    def session(self) -> "Session":
        return self._live.session

    @property
    def session_id(self) -> str:
        return self._live.session.id

    @property
    def run_id(self) -> str:
        return self._live.id

    @property
    def idempotency_key(self) -> str:
        """The key of the call whose tool asks, the same if that is called again: for services that know such keys.

        Raises:
            LocalProtocolError: It is not asked within a tool.
        """
        call_id = CURRENT_CALL.get()
        if not call_id:
            raise LocalProtocolError(f"run {self.run_id}: an idempotency key belongs to a call, so only a tool has one")
        return f"{self.session.state.log_id}/{call_id}"

    @property
    def phase(self) -> Phase:
        return self._live.phase

    @property
    def messages(self) -> Sequence[Message]:
        """The history as it is now, read-only."""
        return MessagesView(self._live.session.state.messages)

    @property
    def state(self) -> Mapping[str, Any]:
        """The session's durable state. Change it with `set_state`."""
        return self._live.session.state.state or {}

    @property
    def todos(self) -> TodoList | None:
        """The run's sequential todo list."""
        return self._live.record.todos

    @property
    def record(self) -> Run:
        """The run's record, to be read."""
        return self._live.record

    def register_tool(self, tool: Tool) -> None:
        """Give the model a tool for this run.

        Raises:
            ValueError: A tool of that name is there already.
        """
        if tool.name in self.tools:
            raise ValueError(f"run {self.run_id} has a tool {tool.name!r} already")
        self.tools[tool.name] = tool

    def add_message(self, message: Message, index: int | None = None) -> None:
        """Insert a message into the history, at its end or at `index`.

        Raises:
            RuleViolation: `event.unsendable` or `event.too_large` - the message cannot be recorded.
        """
        self._check_message(message)
        self._append(ev.MessageAdded(message, index))

    def replace_messages(self, messages: Sequence[Message], *, reason: str = "") -> None:
        """Replace the whole history. A result that does not follow the message of its call is left out.

        Raises:
            RuleViolation: `event.unsendable` or `event.too_large` - as `add_message`, of one of the messages.
        """
        for message in messages:
            self._check_message(message)
        check_text(reason, path="the reason")
        self._append(ev.HistoryReplaced(drop_orphans(messages), reason))

    def set_state(self, key: str, value: Any) -> None:
        """Set a key of the session's durable state; None removes it.

        Raises:
            RuleViolation: `event.unsendable` or `event.too_large` - the value is not JSON.
        """
        limits = self._live.agent.limits
        changed = ev.StateChanged(
            check_text(key, path="a key of the state"), copy_json(value, max_depth=limits.max_depth, path=key)
        )
        check_size(changed, max_bytes=limits.max_event_bytes)
        self._append(changed)

    @overload
    def emit(self, event: AgentEvent, /) -> None: ...
    @overload
    def emit(self, event: str, payload: Mapping[str, Any], /) -> None: ...
    def emit(self, event: AgentEvent | str, payload: Mapping[str, Any] | None = None, /) -> None:
        """Emit a CUSTOM event. It is recorded, copied, and shown to whoever watches. Never a checkpoint.

        Raises:
            LocalProtocolError: The event is not a CUSTOM one, or has no name.
            RuleViolation: `event.unsendable` or `event.too_large` - the payload is not JSON.
        """
        if isinstance(event, AgentEvent):
            if event.type is not AgentEventType.CUSTOM:
                raise LocalProtocolError(f"an extension emits CUSTOM events, not {event.type}")
            name, payload = event.name, event.payload
        else:
            name = event
        if not name.strip():
            raise LocalProtocolError("a CUSTOM event needs a name")
        limits = self._live.agent.limits
        custom = ev.Custom(
            check_text(name, path="the name of an event"), copy_json(payload or {}, max_depth=limits.max_depth)
        )
        check_size(custom, max_bytes=limits.max_event_bytes)
        self._append(custom)

    def open_ask(self, tool_call_id: str, questions: tuple[Question, ...], *, answers_call: bool = True) -> None:
        """Put a question for a call of this turn; the call waits for its outcome before it starts.

        Registered and shown in one step. Call it in `before_tool`. Never a checkpoint.

        Raises:
            RuleViolation: See `protocol.decisions.open_ask`.
        """
        session, run, limits = self._live.session, self._live.record, self._live.agent.limits
        events = decisions.open_ask(
            session.state, run, tool_call_id, questions, answers_call=answers_call, limits=limits
        )
        session.append(events, run=run.id)

    def write_todos(self, todos: TodoList | None, tool_call_id: str = "") -> None:
        """Record the run's list, already validated; None forgets it."""
        self._live.session.append(decisions.write_todos(self._live.record, todos, tool_call_id), run=self.run_id)

    def slot(self, owner: object, factory: Callable[[], T]) -> T:
        """Return what `owner` keeps for this run, made by `factory` at first. It goes with the run."""
        if self._slots is None:
            self._slots = {}
        if owner not in self._slots:
            self._slots[owner] = factory()
        return cast("T", self._slots[owner])

    def request(self, turn: int) -> ModelRequest:
        """Return the model request as it stands."""
        return ModelRequest(
            messages=self.messages,
            tools=self._set.definitions if self._tools is None else ToolSet(self._tools).definitions,
            server_tools=tuple(self._server_tools or ()),
            session_id=self.session_id,
            turn=turn,
        )

    def _check_message(self, message: Message) -> None:
        limits = self._live.agent.limits
        for call in message.tool_calls if isinstance(message, AssistantMessage) else ():
            copy_json(call.arguments, max_depth=limits.max_depth, path=f"the arguments of {call.name}")
        check_size(message, max_bytes=limits.max_event_bytes)

    def _append(self, event: ev.Event) -> None:
        live = self._live
        live.stamp(event)
        # A synchronous tool runs in a worker thread, and may be given this context there.
        live.agent.in_own_thread(partial(live.session.append, [event], run=live.id))
