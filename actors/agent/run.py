"""A run in motion: performs, step by step, what the run's record says comes next.

It keeps no state of the loop in locals: each step is read from the record (`protocol.steps`), each effect is recorded
before the next. How a run ends is read from the record too, in one synchronous step that no second cancel can split.
"""

import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import trio
from msgspec.structs import force_setattr

from actors.agent import recovery
from actors.agent.calls import perform_call, perform_together, start_calls, wait_ask
from actors.agent.context import AgentRunContext
from actors.agent.extension import MessageAppended, PhaseTransition, RunCancelledEvent
from actors.agent.foreign import contain
from actors.agent.generation import close_stream, open_stream, stream_message
from actors.agent.stream import RunStream
from actors.agent.tools import failure
from protocol import decisions, phases
from protocol import events as ev
from protocol.chat import AssistantMessage, ModelEvent, ModelRequest
from protocol.errors import Code, RuleViolation, RunFailed, ToolError
from protocol.history import Run
from protocol.ids import message_id
from protocol.phases import Phase
from protocol.sendable import check_size
from protocol.steps import Step, next_step

if TYPE_CHECKING:
    from actors.agent.agent import Agent
    from actors.agent.session import Session

logger = logging.getLogger("actors.run")


class LiveRun:
    """The task side of a run.

    Attributes:
        record: The run's record. After its end it is no longer in the session's state, and nothing changes it.
        scope: What a cancel cancels.
        caller: The stream of whoever started the run in this process, if it is watched.
        partial: The text of the message that is being streamed, and its id.
        working: Names of the tools whose bodies are running, by call id.
        going: Calls of the turn that have tasks, or the run's own, and have not been performed.
        resting: Those of them that wait for their ask.
        over: It has ended while it was at rest: what wakes has nothing more to do.
    """

    __slots__ = (
        "agent", "caller", "context", "gave_up", "going", "id", "over", "partial", "phase", "record", "resting",
        "scope", "session", "working",
    )  # fmt: skip

    def __init__(self, agent: "Agent", session: "Session", record: Run) -> None:
        self.agent = agent
        self.session = session
        self.record = record
        self.id = record.id
        self.scope = trio.CancelScope()
        self.caller: RunStream | None = None
        self.context = AgentRunContext(self, record.input)
        self.phase = Phase.CREATED
        self.partial: Any = None
        self.working: dict[str, str] | None = None
        self.going = 0
        self.resting = 0
        self.gave_up = self.over = False

    @property
    def at_rest(self) -> bool:
        """Return whether all of it waits for answers and no hook wants to know of a cancel: no code would see one."""
        return 0 < self.resting == self.going and not self.agent.hooks.on_event

    # ---- called by the session, synchronously

    def cancel(self) -> None:
        """The record says that a cancel was requested."""
        if self.id in self.session.state.runs:
            self.scope.cancel(reason=self.record.reason or f"run {self.id} was cancelled")
            self.agent.grace.watch(self)
        else:
            # It was at rest and has ended with its cancel. Its asks are closed, which wakes all of it: to return is
            # half as dear as to unwind.
            self.over = True
            self.phase = Phase.CANCELLED

    def abandon(self, why: RuleViolation) -> None:
        """The session is closed; nothing of this run can be recorded any more."""
        self.scope.cancel(reason=str(why))
        self.ended()

    def ended(self) -> None:
        """The record has its terminal event, or never will."""
        self.agent.run_ended(self)

    def give_up(self) -> None:
        """The cancel grace is over: record the end without the tools that go on, and name them."""
        if self.id in self.session.state.runs and self.session.closed is None:
            stuck = tuple(sorted(set((self.working or {}).values()))) or ("a hook or the model",)
            logger.warning(
                "session %s run %s: still running after the cancel grace: %s", self.session.id, self.id, stuck
            )
            self.gave_up = True
            self.agent.stuck_tools += len(self.working or ())
            self.session.append(decisions.finish(self.session.state, self.record, "cancelled", stuck=stuck))

    def stamp(self, event: ev.Event) -> None:
        """Write on an event whose it is."""
        force_setattr(event, "run", self.id)
        if self.record.path:
            force_setattr(event, "path", self.record.path)

    # ---- the task

    async def execute(self) -> None:
        """Run to the end. The scope of the run is here; what it owns goes with it."""
        how: Literal["completed", "failed"] = "failed"
        error: BaseException | None = None
        try:
            with self.scope:
                try:
                    with contain("a hook"):
                        await trio.lowlevel.checkpoint_if_cancelled()  # cancelled before it began: nothing runs
                        await self._loop()
                        how = "completed"
                except Exception:
                    # The record takes the todo list with it: first the caller sees the last turn's.
                    await self.wait_taken()  # noqa: ASYNC120 - cancelled here, the run ends as cancelled
                    raise
        except* Exception as errors:
            error = errors  # on the record, not the session's crash; Cancelled goes on to its scope
        finally:
            cancelled = self.record.cancelling or (how == "failed" and _cancelled_from_outside())
            # Hooks that are told of the end are asynchronous, so shielded with a deadline; the record is not.
            try:
                if how == "failed" or cancelled:
                    await self._tell_end(error, cancelled=cancelled)  # noqa: ASYNC102 - shielded in there
            finally:
                self._finish("cancelled" if cancelled else how, error)

    def _finish(self, how: Literal["completed", "failed", "cancelled"], error: BaseException | None) -> None:
        session = self.session
        if session.closed is not None:
            return  # while it was unwinding
        if self.id not in session.state.runs:
            if self.gave_up:
                text = "session %s run %s: what outlived its end is over; nothing of it was kept"
                logger.info(text, session.id, self.id)
            return
        code, message, detail = str(Code.SESSION_CRASHED), "the run was torn down", ""
        if error is not None:
            code, message = _describe(_unwrap(error))
        if how == "cancelled":
            message, detail = "the session was cancelled", message if error is not None else ""
        self.phase = phases.enter(self.phase, Phase(how))
        if how == "cancelled" and not self.record.cancelling and self.agent.keeps_runs:
            # Nobody has cancelled the run: its session was stopped around it, and will go on with it.
            logger.info("session %s run %s was interrupted after %d turns", session.id, self.id, self.record.turn)
            return
        session.append(decisions.finish(session.state, self.record, how, code=code, message=message, error=detail))
        # Codes and counts: what was said, asked and answered is nobody's business here.
        ended = f"failed ({code})" if how == "failed" else how
        logger.info("session %s run %s %s after %d turns", session.id, self.id, ended, self.record.turn)

    async def _tell_end(self, error: BaseException | None, *, cancelled: bool) -> None:
        hooks = self.agent.hooks
        if cancelled:
            told = [(ext, partial(ext.on_event, self.context, RunCancelledEvent(self.id, self.record.reason)))
                    for ext in hooks.on_event]  # fmt: skip
        else:
            reason = _unwrap(error) if error is not None else RunFailed(Code.SESSION_CRASHED, "the run was torn down")
            told = [(ext, partial(ext.on_error, self.context, reason)) for ext in hooks.on_error]
        for extension, tell in told:
            try:
                with contain("its hook"), trio.move_on_after(self.agent.limits.cleanup_s, shield=True) as scope:
                    await tell()
                if scope.cancelled_caught:
                    logger.warning("%s did not finish its cleanup in time", extension.name)
            except Exception as raised:
                note = f"{extension.name} raised while it was told of the end: {type(raised).__name__}: {raised}"
                logger.warning("session %s run %s: %s", self.session.id, self.id, note)
                if error is not None:
                    error.add_note(note)

    async def _loop(self) -> None:
        hooks, record = self.agent.hooks, self.record
        if record.held and not await recovery.wait_continued(self):
            return
        settled = await self._set_up()
        response = recovery.last_response(self)
        if settled:
            await self._end_turn(response)
        while True:
            step = next_step(record)
            if step is Step.CALL_MODEL:
                if record.turn:
                    await self.wait_taken()
                response = await self._call_model()
                if not response.tool_calls:
                    await self._end_turn(response)
            elif step is Step.RUN_CALLS:
                # What an open ask keeps waiting, it keeps here: ten thousand of them would keep every frame more.
                calls = await start_calls(self)
                if len(calls) == 1:
                    call, tool = calls.pop()
                    ask = wait_ask(self, call)
                    if ask is not None:
                        self.going = self.resting = 1
                        await ask
                        self.going = self.resting = 0
                        if self.over:
                            return
                        await trio.lowlevel.checkpoint_if_cancelled()  # settled and stopped in one tick
                    await perform_call(self, call, tool)
                elif calls:
                    await perform_together(self, calls)
                    if self.over:
                        return
                await trio.lowlevel.checkpoint_if_cancelled()
                await self.enter(Phase.READY)
                await self._end_turn(response)
            elif step is Step.STEER:
                await self._steer()
            elif step is Step.GIVE_UP:
                raise RuleViolation(Code.RUN_MAX_TURNS, f"no final answer after {record.max_turns} model calls")
            else:
                # Whoever reads the answer may still steer: the run is over once its caller has dealt with it.
                await self.wait_taken()
                if next_step(record) is Step.COMPLETE:
                    break
        for extension in hooks.after_run:
            await extension.after_run(self.context, response)
        for extension in hooks.on_success:
            await extension.on_success(self.context, response)
        if hooks.on_event:
            await self._notify(PhaseTransition(self.id, self.phase, Phase.COMPLETED))
        if hooks.after_run or hooks.on_success or hooks.on_event:
            await self.wait_taken()
        # Completed is the end of a run that nobody cancelled: an acknowledged cancel comes first.
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _set_up(self) -> bool:
        """Let the run enter, or enter again; return whether that has settled the last calls of its turn."""
        hooks, context, record = self.agent.hooks, self.context, self.record
        # If its input is there already, it entered in a life before; what is not recorded is restored in each life.
        entered = record.entered
        await self.enter(Phase.LOADING_CONTEXT)
        for extension in hooks.on_tool:
            await extension.on_tool(context)
        context.share_tools()
        settled = recovery.interrupt_calls(self) if record.resumed else False
        for extension in hooks.on_state:
            await extension.on_state(context)
        if entered:
            await self.enter(Phase.READY)
            return settled
        for extension in hooks.on_message:
            await extension.on_message(context)
        message = context.input_message
        if message is not record.input:
            check_size(message, max_bytes=self.agent.limits.max_event_bytes)
        self.session.append([ev.MessageAdded(message, input=True, run=self.id, path=record.path)], run=self.id)
        if hooks.on_event:
            await self._notify(MessageAppended(self.id, message))
        await self.enter(Phase.READY)
        for extension in hooks.before_run:
            await extension.before_run(context)
        return settled

    async def _end_turn(self, response: AssistantMessage) -> None:
        if self.record.steers:
            await self._steer()
        for extension in self.agent.hooks.after_turn:
            await extension.after_turn(self.context, response)

    async def _steer(self) -> None:
        """Let the steering message that waited longest enter the history, if one waits."""
        for steering in (self.record.steers or ())[:1]:
            self.session.append(decisions.start_steering(self.record), run=self.id)
            if self.agent.hooks.on_event:
                await self._notify(MessageAppended(self.id, steering))

    # ---- one model call

    async def _call_model(self) -> AssistantMessage:
        hooks, context, session, record = self.agent.hooks, self.context, self.session, self.record
        for extension in hooks.before_turn:
            await extension.before_turn(context)
        turn = record.turn + 1
        request = context.request(turn)
        for extension in hooks.before_model:
            await extension.before_model(context, request)
            request = context.request(turn)
        await self.enter(Phase.GENERATING)
        events = open_stream(partial(self._open_model, request))
        message = await stream_message(self, events, message_id(self.id, turn), turn)
        await trio.lowlevel.checkpoint_if_cancelled()
        if message.tool_calls or len(message.content) * 6 > self.agent.limits.max_event_bytes:
            check_size(message, max_bytes=self.agent.limits.max_event_bytes)
        completed = ev.ModelCompleted(message_id(self.id, turn), turn, message, run=self.id, path=record.path)
        records: list[ev.Event] = [completed]
        if record.steering is not None:
            records.append(ev.SteeringCompleted(run=self.id, path=record.path))
        self.partial = None
        session.append(records, run=self.id)
        await self.enter(Phase.READY)
        if hooks.on_event:
            await self._notify(MessageAppended(self.id, message))
        for extension in hooks.after_model:
            await extension.after_model(context, message)
        return message

    def _open_model(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        call_next = self.agent.model.stream
        for extension in reversed(self.agent.hooks.on_model_request):
            call_next = partial(_wrapped, extension.on_model_request, self.context, call_next=call_next)
        return call_next(request)

    # ---- small helpers

    async def enter(self, phase: Phase) -> None:
        old, self.phase = self.phase, phases.enter(self.phase, phase)
        if self.agent.hooks.on_event:
            await self._notify(PhaseTransition(self.id, old, phase))

    async def _notify(self, event: object) -> None:
        for extension in self.agent.hooks.on_event:
            await extension.on_event(self.context, event)

    async def wait_room(self) -> None:
        """Wait while the caller's stream is full. A checkpoint only where it waits."""
        if self.caller is not None and self.caller.full:
            await self.wait_taken()

    async def wait_taken(self) -> None:
        """Wait until the caller has dealt with what was emitted. A checkpoint only where it waits."""
        if self.caller is not None:
            if self.session.committed < self.session.state.seq:
                await self.session.wait_committed(self.session.state.seq)
            await self.caller.wait_taken()


async def _wrapped(
    hook: Any, context: AgentRunContext, request: ModelRequest, *, call_next: Any
) -> AsyncIterator[ModelEvent]:
    """One wrapper's stream; whatever layer is inside it is closed before it, in the same task."""
    opened: list[AsyncIterator[ModelEvent]] = []

    def call_inner(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        inner = call_next(request)
        opened.append(inner)
        return cast("AsyncIterator[ModelEvent]", inner)

    events = hook(context, request, call_inner)
    try:
        async for event in events:
            yield event
    finally:
        await _close_all([*reversed(opened), events])  # noqa: ASYNC102 - as in `stream_message`


async def _close_all(layers: list[AsyncIterator[ModelEvent]]) -> None:
    """Close every layer in order, also behind one that raises."""
    try:
        if layers:
            await close_stream(layers[0])
    finally:
        if layers[1:]:
            await _close_all(layers[1:])  # noqa: ASYNC102


def _cancelled_from_outside() -> bool:
    return trio.current_effective_deadline() == float("-inf")


def _describe(error: Exception) -> tuple[str, str]:
    """Return code and message of what ended a run. What a tool raised never gets here, so the rest is a hook's."""
    code, message, _ = failure(error)
    if code == Code.TOOL_FAILED and not isinstance(error, ToolError):
        code = str(Code.EXTENSION_FAILED)
    return code, message


def _unwrap(error: BaseException) -> Exception:
    """Return the one error of a group of one, else the group itself."""
    while isinstance(error, BaseExceptionGroup):
        members = cast("BaseExceptionGroup[BaseException]", error).exceptions
        if len(members) != 1:
            break
        error = members[0]
    return cast("Exception", error)
