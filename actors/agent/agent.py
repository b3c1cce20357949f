"""The agent: what its sessions share, and the sessions themselves by their ids. `open_agent` is the way in."""

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TypeVar, cast

import trio

from actors.agent.context import ToolSet
from actors.agent.directory import AgentSessions
from actors.agent.extension import AgentExtension, AgentRunConfig, ExternalEvent, collect_hooks, in_order
from actors.agent.grace import CancelGrace
from actors.agent.handle import SessionHandle
from actors.agent.late import Late, wait_for_session
from actors.agent.memory import MemoryStore
from actors.agent.passivation import Passivation
from actors.agent.ports import Clock, Model, SessionStore, Threads, TrioClock
from actors.agent.run import LiveRun
from actors.agent.session import Session
from actors.agent.stream import RunStream
from actors.agent.tools import Tool
from actors.runtime import Supervisor, System, open_system
from protocol import decisions
from protocol import events as ev
from protocol.chat import AssistantMessage, UserMessage
from protocol.decisions import WhenBusy
from protocol.errors import Code, RuleViolation
from protocol.history import Ack, State
from protocol.ids import check_session_id
from protocol.limits import DEFAULT_LIMITS, Limits, Retention
from protocol.resume import ResumeMode

T = TypeVar("T")
logger = logging.getLogger("actors.agent")


class Agent(AgentSessions):
    """A model with tools and extensions, and the sessions that use it. Made by `open_agent`.

    Attributes:
        name: Also part of the names of its actors.
        max_turns: Model calls per run before it fails, unless a run says otherwise.
        session_id: The agent's own session, used where none is named.
        active_runs: Runs that have started and have no end yet.
        stuck_tools: Runs of tools that did not end within the cancel grace, so far. Each may still be running.
        resume: What becomes of a run whose session was interrupted; see `open_agent`.
        keeps_runs: A run whose session is stopped around it has no end in the log: it goes on in the next life.
        retention: Which records are kept behind a snapshot; None for all.
        durable: The store outlives the agent, so it may have sessions that were never in memory.
        late: Events that wait for a session which is being brought back.
    """

    __slots__ = (
        "_thread", "_token", "active_runs", "clock", "durable", "emitting", "extensions", "grace", "hooks",
        "keeps_runs", "late", "max_turns", "model", "resume", "retention", "session_id", "stuck_tools", "threads",
        "tool_set", "usual_tools",
    )  # fmt: skip

    def __init__(
        self,
        model: Model,
        supervisor: Supervisor,
        *,
        name: str,
        instruction: str,
        tools: Sequence[Tool],
        extensions: Sequence[AgentExtension],
        store: SessionStore,
        limits: Limits,
        max_turns: int,
        clock: Clock,
        threads: Threads,
        resume: ResumeMode,
        durable: bool,
        retention: Retention | None,
    ) -> None:
        super().__init__(supervisor, name=name, instruction=instruction, store=store, limits=limits)
        self.model = model
        self.tool_set = self.usual_tools = ToolSet(_by_name(tools))
        self.extensions = in_order(extensions)
        self.hooks = collect_hooks(self.extensions)
        self.max_turns = max_turns
        self.clock = clock
        self.threads = threads
        self.grace = CancelGrace(supervisor.system, limits.cancel_grace_s)
        self.resume: ResumeMode = resume
        self.durable = durable
        self.keeps_runs = durable and resume != "never"
        self.late: Late = {}
        self.retention = retention
        self.active_runs = 0
        self.stuck_tools = 0
        self.session_id = f"{name}-{secrets.token_hex(4)}"
        # While an external event is offered to the extensions: the id of the command that brought it, or "".
        self.emitting: str | None = None
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The agent's own tools by name; a run has those that extensions register as well."""
        return MappingProxyType(self.tool_set.tools)

    # ---- for applications

    def stream(
        self,
        prompt: str,
        *,
        session_id: str | None = None,
        config: AgentRunConfig | None = None,
        when_busy: WhenBusy = "reject",
    ) -> RunStream:
        """Return a run to be entered: `async with agent.stream("...") as events: async for event in events: ...`.

        Args:
            prompt: What the user says.
            session_id: The session, made where it does not exist; None means the agent's own.
            config: The same and more; `session_id` wins.
            when_busy: While the session has a run: refuse, wait behind it, or steer it.

        Raises:
            RuleViolation: `command.invalid` or `session.invalid`; entering may raise `session.busy` and others.
        """
        message = decisions.user_message(prompt, limits=self.limits)
        wanted = session_id if session_id is not None else config.session_id if config is not None else None
        turns = config.max_turns if config is not None and config.max_turns is not None else self.max_turns
        if turns < 1:
            raise ValueError(f"max_turns is at least 1, not {turns}")
        target = self.session_id if wanted is None else check_session_id(wanted)
        return RunStream(self, message, target, turns, when_busy)

    async def run(
        self, prompt: str, *, session_id: str | None = None, config: AgentRunConfig | None = None
    ) -> AssistantMessage:
        """Run to the end and return the final answer. A checkpoint.

        Raises:
            RunFailed: The run failed.
            RunCancelled: Somebody else cancelled it.
            RuleViolation: It could not be started; see `stream`.
        """
        async with self.stream(prompt, session_id=session_id, config=config) as events:
            return await events.final()

    def session(self, session_id: str | None = None) -> SessionHandle:
        """Return the handle of a session; None means the agent's own. Never a checkpoint.

        Raises:
            RuleViolation: `session.invalid`.
        """
        return SessionHandle(self, self.session_id if session_id is None else check_session_id(session_id))

    def emit_external_event(self, event: ExternalEvent, *, config: AgentRunConfig | None = None) -> list[str]:
        """Offer an event to every extension and return the names of those that accepted it.

        Synchronous, and decided in memory. May be called from any thread; from another one than the agent's it waits
        for the agent's event loop.

        Nobody accepts an answer in a session that is not in memory. Where `config` names one and the store has it, as
        after a restart, it is brought back, and the event is offered once more: an answer reaches its question.
        `SessionHandle.emit` waits for that and says who accepted. An event without `config` reaches what is in memory.

        Args:
            event: What happened.
            config: Names the session; None means the agent's own.

        Raises:
            trio.RunFinishedError: Called from another thread when the agent's event loop has ended.
        """
        return self.in_own_thread(partial(self._emit, event, config))

    def _emit(self, event: ExternalEvent, config: AgentRunConfig | None) -> list[str]:
        accepted = self.broadcast(event, config)
        if not accepted:
            wait_for_session(self, event, config)
        return accepted

    def in_own_thread(self, call: Callable[[], T]) -> T:
        """Call a synchronous function in the agent's thread, from whichever thread this is; another one waits for it.

        Raises:
            trio.RunFinishedError: From another thread, when the agent's event loop has ended.
        """
        if threading.get_ident() == self._thread:
            return call()
        return trio.from_thread.run_sync(call, trio_token=self._token)

    async def attach(self, channel: trio.MemoryReceiveChannel[ExternalEvent], *, session_id: str | None = None) -> None:
        """Feed a session from a memory channel, until the channel ends or the session does. A checkpoint.

        Raises:
            RuleViolation: `session.closed`, `session.limit`, `store.failed`; the channel is as it was.
        """
        await trio.lowlevel.checkpoint()
        session = await self.open(self.session_id if session_id is None else check_session_id(session_id))
        config = AgentRunConfig(session_id=session.id)

        async def pump() -> None:
            # An end that its owner closed is an end: it is not the session's fault.
            with contextlib.suppress(trio.ClosedResourceError):
                async with channel:
                    async for event in channel:
                        self.broadcast(event, config)

        if session.nursery is None:
            raise RuleViolation(Code.SESSION_CLOSED, f"session {session.id!r} is ending, nothing is started in it")
        session.nursery.start_soon(pump, name=f"{session.id}/external events")

    # ---- called by sessions

    def decide_prompt(
        self, state: State, message: UserMessage, *, max_turns: int, when_busy: WhenBusy
    ) -> list[ev.Event]:
        return decisions.prompt(state, message, max_turns=max_turns, when_busy=when_busy, limits=self.limits)

    def start_run(self, session: Session, run_id: str) -> None:
        """The record says that a run has started: give it its task, in the session's nursery."""
        live = LiveRun(self, session, session.state.runs[run_id])
        session.add_live(live)
        if session.callers is not None:
            live.caller = session.callers.pop(run_id, None)
            session.callers = session.callers or None
        self.active_runs += 1
        assert session.nursery is not None
        session.nursery.start_soon(live.execute, name=run_id)
        logger.info("session %s run %s started", session.id, run_id)
        if live.record.cancelling:  # by a reader, while it was offered the start
            live.cancel()

    def run_ended(self, live: LiveRun) -> None:
        """The record says that a run has ended."""
        self.active_runs -= 1
        self.grace.ended(live)

    def broadcast(self, event: ExternalEvent, config: AgentRunConfig | None, *, cause: str = "") -> list[str]:
        """`emit_external_event` in the agent's own thread. One extension that raises does not hide the event."""
        session = self._sessions.get(config.session_id or self.session_id) if config is not None else None
        if cause and session is not None and (known := session.known(cause)) is not None:
            return list(known.accepted)
        accepted: list[str] = []
        # A reader that is shown the answer may emit an event of its own, in here.
        outer, self.emitting = self.emitting, cause
        try:
            for extension in self.hooks.accept:
                try:
                    if extension.accept(config, event):
                        accepted.append(extension.name)
                except Exception:
                    logger.exception("accept() of %s raised; the others are asked all the same", extension.name)
        finally:
            self.emitting = outer
        if cause and session is not None and session.known(cause) is None:
            session.note(cause, Ack(session.state.seq, accepted=tuple(accepted)))
        return accepted

    def answer_now(self, session_id: str | None, tool_call_id: object, payload: object, *, via: str) -> bool:
        """Answer an ask on behalf of an extension; False where the ask does not take it. Never a checkpoint."""
        session = self._sessions.get(self.session_id if session_id is None else session_id)
        cause = self.emitting or ""
        if session is None or (cause and session.known(cause) is not None):
            return False
        try:
            session.act(cause, decisions.answer, tool_call_id, payload, via=via, limits=self.limits)
        except RuleViolation:
            return False
        return True

    def clear_todos(self, session_id: str) -> None:
        """Forget the list of the session's active run. Never a checkpoint."""
        session = self._sessions.get(session_id)
        run = session.state.run if session is not None else None
        if session is not None and run is not None and run.todos is not None:
            session.append(decisions.write_todos(run, None), run=run.id)


def _by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in cast("Sequence[object]", tools):
        if not isinstance(tool, Tool):
            raise TypeError(f"a tool is made with @tool or Tool.from_model, not {tool!r}")
        if tool.name in named:
            raise ValueError(f"two tools are named {tool.name!r}")
        named[tool.name] = tool
    return named


@asynccontextmanager
async def open_agent(
    model: Model,
    *,
    name: str = "agent",
    instruction: str = "",
    tools: Sequence[Tool] = (),
    extensions: Sequence[AgentExtension] = (),
    store: SessionStore | None = None,
    limits: Limits = DEFAULT_LIMITS,
    max_turns: int | None = None,
    clock: Clock | None = None,
    threads: Threads | None = None,
    system: System | None = None,
    resume: ResumeMode = "auto",
    idle_s: float | None = None,
    retention: Retention | None = None,
) -> AsyncGenerator[Agent]:
    """Open an agent for the length of a block. Everything it starts ends with the block.

    A session that a store has comes back when it is first addressed. What ran in it when its actor or its process ended
    goes on there as `resume` says, from what is recorded: questions are open again under their ids, calls that have
    their result keep it, one that had started and not finished is told to the model as interrupted, unless its tool
    may be called again (`@tool(retry="safe")`), and the message that was being streamed is asked for again. To leave
    the block interrupts what runs in the same way; without a store, or with `resume="never"`, it cancels it.

    Args:
        model: What generates the messages.
        name: Names the agent and its actors.
        instruction: The system message at the start of each session's history; "" for none.
        tools: What the model may call, beside what the extensions register.
        extensions: See `AgentExtension`; their names must differ.
        store: Where logs are kept; opened and closed with the block. None keeps them in memory and forgets a session
            when it is closed.
        limits: See `protocol.limits`.
        max_turns: Model calls per run; None means `limits.max_turns`.
        clock: Unix time; None reads it once and goes on with trio's clock.
        threads: Where blocking tools run; None means where those of the system do: see `open_system`.
        system: An actor system to live in; None opens one.
        resume: What becomes of a run that was interrupted. `auto`: it goes on. `ask`: it goes on when a person has said
            so. `never`: it ends as failed, `session.crashed`.
        idle_s: Seconds after which a session that is idle and that nobody watches leaves memory, until it is addressed;
            None keeps all that are open.
        retention: Which records the store keeps when it saves a snapshot; None keeps all. Those that go are gone,
            unless the store has an archive for them.

    Raises:
        StoreError: The store cannot be opened; the text says what to do.
        TypeError, ValueError: Tools or extensions that are none, or share a name; `max_turns` is below 1; `idle_s` is
            not above 0; `resume` is none of the words.
    """
    if max_turns is not None and max_turns < 1:
        raise ValueError(f"max_turns is at least 1, not {max_turns}")
    if resume not in ("auto", "ask", "never"):
        raise ValueError(f"resume is 'auto', 'ask' or 'never', not {resume!r}")
    if idle_s is not None and not idle_s > 0:
        raise ValueError(f"idle_s is above 0, not {idle_s}")
    durable = store is not None
    if store is None:
        store = MemoryStore()
    # Refused before anything is started in a system that may be the caller's.
    _by_name(tools)
    in_order(extensions)
    async with AsyncExitStack() as stack:
        if system is None:
            system = await stack.enter_async_context(open_system(name=name))
        await store.open(system)
        stack.push_async_callback(_close_store, store, limits.close_grace_s)
        # No session has a space in its id, so none has the name of its supervisor.
        supervisor = await system.supervise(name=f"{name}/all sessions", max_children=limits.max_sessions)
        agent = Agent(
            model,
            supervisor,
            name=name,
            instruction=instruction,
            tools=tools,
            extensions=extensions,
            store=store,
            limits=limits,
            max_turns=limits.max_turns if max_turns is None else max_turns,
            clock=clock or TrioClock(time.time()),
            threads=threads or system.threads,
            resume=resume,
            durable=durable,
            retention=retention,
        )
        passivation = None if idle_s is None else Passivation(system, idle_s, agent.sessions, agent.let_go)
        for extension in agent.extensions:
            extension.bind(agent)
        try:
            yield agent
            await agent.aclose()
        finally:
            agent.closed = True
            if passivation is not None:
                passivation.stop()
            for extension in agent.extensions:
                extension.unbind(agent)
            supervisor.stop("the agent is closed")
            with trio.move_on_after(limits.close_grace_s, shield=True):
                await supervisor.join()  # its names are free when the block ends


async def _close_store(store: SessionStore, within_s: float) -> None:
    with trio.move_on_after(within_s, shield=True):
        await store.aclose()
