"""Extensions: what they may override, and in which order it is called.

An extension instance holds configuration only. What must survive is recorded as an event, the rest is
`context.slot(self, factory)`, which goes with the run. So one instance may serve many agents and sessions, and none of
its hooks has to remember to clean up.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from protocol.chat import AssistantMessage, Message, ModelEvent, ModelRequest, ToolCall, ToolResult
from protocol.phases import Phase

if TYPE_CHECKING:
    from actors.agent.agent import Agent
    from actors.agent.context import AgentRunContext

CallNext = Callable[[ModelRequest], AsyncIterator[ModelEvent]]
CallTool = Callable[[ToolCall], Awaitable[ToolResult]]


class AgentRunConfig(Struct, frozen=True, kw_only=True):
    """What one run may be told.

    Attributes:
        session_id: The session; None means the agent's own.
        max_turns: Model calls before the run fails with `run.max_turns`; None means the agent's setting.
    """

    session_id: str | None = None
    max_turns: int | None = None


class ExternalEvent(Struct, frozen=True):
    """Something from outside, for whichever extension recognises it.

    Raises:
        TypeError: The name is not text, or the payload is not a mapping with text keys.
        ValueError: The name is blank.
    """

    name: str
    payload: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        name, payload = cast("object", self.name), cast("object", self.payload)
        if not isinstance(name, str):
            raise TypeError(f"an external event's name is text, not {type(name).__name__}")
        if not name.strip():
            raise ValueError("an external event's name must not be blank")
        if not isinstance(payload, Mapping):
            raise TypeError(f"an external event's payload is a mapping, not {type(payload).__name__}")
        for key in cast("Mapping[object, object]", payload):
            if not isinstance(key, str):
                raise TypeError(f"the payload's keys are text, not {type(key).__name__}")


class RunCancelledEvent(Struct, frozen=True):
    """Internal event: the run is being cancelled. The only way in which a hook learns of it."""

    run_id: str
    reason: str = ""


class PhaseTransition(Struct, frozen=True):
    """Internal event: the run went from one phase to the next."""

    run_id: str
    old: Phase
    new: Phase


class MessageAppended(Struct, frozen=True):
    """Internal event: a message entered the history."""

    run_id: str
    message: Message


class AgentExtension:
    """Base of all extensions. Override what you need; a hook that is not overridden costs nothing.

    Order: `priority` ascending, then registration; wrappers nest, the first outermost. A hook that raises fails the run
    with `extension.failed` (the code of a `ToolError`, `ModelError` or `RuleViolation` is kept), except where it says
    otherwise.
    """

    priority: int = 100
    _name: str = ""
    _agents: "tuple[Agent, ...]" = ()

    @property
    def name(self) -> str:
        """Unique among an agent's extensions: the concrete class's name, a class attribute, or assigned."""
        return self._name or type(self).__name__

    @name.setter
    def name(self, value: str) -> None:
        self._name = value

    @property
    def pending(self) -> bool:
        """A run that uses this instance is active, in any agent and session."""
        return any(agent.active_runs for agent in self._agents)

    def bind(self, agent: "Agent") -> None:
        """An agent with this extension was opened."""
        self._agents = (*self._agents, agent)

    def unbind(self, agent: "Agent") -> None:
        """That agent is closed."""
        self._agents = tuple(other for other in self._agents if other is not agent)

    def accept(self, config: AgentRunConfig | None, event: ExternalEvent) -> bool:
        """Take an external event, or leave it. Synchronous; every extension is asked, whatever the others say.

        Neither argument may be modified.
        """
        return False

    async def on_tool(self, context: "AgentRunContext") -> None:
        """Register tools for this run: `context.register_tool(tool)`."""

    async def on_state(self, context: "AgentRunContext") -> None:
        """Restore history, before the input is looked at."""

    async def on_message(self, context: "AgentRunContext") -> None:
        """Replace `context.input_message` if need be; the runtime appends it exactly once, afterwards."""

    async def before_run(self, context: "AgentRunContext") -> None:
        """The input is appended and published."""

    async def before_turn(self, context: "AgentRunContext") -> None:
        """A model call is about to be prepared."""

    async def before_model(self, context: "AgentRunContext", request: ModelRequest) -> None:
        """See the request. Change it through the context; it is rebuilt before the next hook and the call."""

    def on_model_request(
        self, context: "AgentRunContext", request: ModelRequest, call_next: CallNext
    ) -> AsyncIterator[ModelEvent]:
        """Wrap the model's stream, as an async generator. Pass the request, or a changed one, to `call_next`."""
        return call_next(request)

    async def after_model(self, context: "AgentRunContext", response: AssistantMessage) -> None:
        """The complete message is appended."""

    async def before_tool(self, context: "AgentRunContext", call: ToolCall) -> None:
        """Called for each call of a turn, in call order. May open an ask, must not wait. Raising fails that call."""

    async def on_tool_call(self, context: "AgentRunContext", call: ToolCall, call_next: CallTool) -> ToolResult:
        """Wrap one tool: change the call, answer it without `call_next`, change its result, or raise."""
        return await call_next(call)

    async def after_tool(
        self, context: "AgentRunContext", call: ToolCall, result: ToolResult, error: BaseException | None
    ) -> None:
        """See a result before it is stored; what is changed in it is what is stored. Raising fails that call."""

    async def after_turn(self, context: "AgentRunContext", result: AssistantMessage) -> None:
        """Every call of the turn has its result. Not called for a turn that failed or was cancelled."""

    async def after_run(self, context: "AgentRunContext", result: AssistantMessage) -> None:
        """The final answer is appended."""

    async def on_success(self, context: "AgentRunContext", result: AssistantMessage) -> None:
        """All `after_run` are through. Raising fails the run."""

    async def on_error(self, context: "AgentRunContext", error: BaseException) -> None:
        """The run failed. All extensions are told, each under its own deadline; what they raise is noted on `error`."""

    async def on_event(self, context: "AgentRunContext", event: object) -> None:
        """See internal events: `PhaseTransition`, `MessageAppended`, `RunCancelledEvent`."""

    async def on_compact(self, context: "AgentRunContext") -> None:
        """Summarise the restored history when a caller asks for it."""


HOOKS = (
    "on_tool", "on_state", "on_message", "before_run", "before_turn", "before_model", "on_model_request", "after_model",
    "before_tool", "on_tool_call", "after_tool", "after_turn", "after_run", "on_success", "on_error", "on_event",
    "on_compact", "accept",
)  # fmt: skip


class Hooks(Struct, frozen=True, kw_only=True):
    """For each hook the extensions that override it, in the order in which they are called."""

    on_tool: tuple[AgentExtension, ...]
    on_state: tuple[AgentExtension, ...]
    on_message: tuple[AgentExtension, ...]
    before_run: tuple[AgentExtension, ...]
    before_turn: tuple[AgentExtension, ...]
    before_model: tuple[AgentExtension, ...]
    on_model_request: tuple[AgentExtension, ...]
    after_model: tuple[AgentExtension, ...]
    before_tool: tuple[AgentExtension, ...]
    on_tool_call: tuple[AgentExtension, ...]
    after_tool: tuple[AgentExtension, ...]
    after_turn: tuple[AgentExtension, ...]
    after_run: tuple[AgentExtension, ...]
    on_success: tuple[AgentExtension, ...]
    on_error: tuple[AgentExtension, ...]
    on_event: tuple[AgentExtension, ...]
    on_compact: tuple[AgentExtension, ...]
    accept: tuple[AgentExtension, ...]


def in_order(extensions: Sequence[AgentExtension]) -> tuple[AgentExtension, ...]:
    """Return extensions by priority, then registration.

    Raises:
        TypeError: Something is not an extension.
        ValueError: Two of them have the same name, or a name is blank.
    """
    seen: set[str] = set()
    for extension in cast("Sequence[object]", extensions):
        if not isinstance(extension, AgentExtension):
            raise TypeError(f"an extension is an AgentExtension, not {extension!r}")
        if not extension.name.strip():
            raise ValueError(f"the name of {type(extension).__name__} is blank")
        if extension.name in seen:
            raise ValueError(f"two extensions are named {extension.name!r}; assign one of them another name")
        seen.add(extension.name)
    return tuple(sorted(extensions, key=lambda extension: extension.priority))


def collect_hooks(extensions: Sequence[AgentExtension]) -> Hooks:
    """Return which extension overrides which hook, in the order in which they are called."""

    def overriding(hook: str) -> tuple[AgentExtension, ...]:
        return tuple(
            extension
            for extension in extensions
            if getattr(type(extension), hook) is not getattr(AgentExtension, hook) or hook in vars(extension)
        )

    return Hooks(**{hook: overriding(hook) for hook in HOOKS})
