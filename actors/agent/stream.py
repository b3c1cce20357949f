"""`RunStream`: one run as its own caller sees it, as a scope and an iterator of `AgentEvent`.

Events never wait: they are handed over in a shared buffer and the caller is woken once. The run waits instead, for room
before it goes on, and before each next turn until its caller has taken what there is.
"""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING

import outcome
import trio

from actors.agent.view import AgentEvent, to_agent_event
from protocol import events as ev
from protocol.chat import AssistantMessage, UserMessage
from protocol.decisions import WhenBusy
from protocol.errors import Code, RuleViolation, RunCancelled, RunFailed

if TYPE_CHECKING:
    from actors.agent.agent import Agent
    from actors.agent.session import Session

_YIELD_EVERY = 32
_LEFT = "this stream was left"


class RunStream:
    """A run in progress. Made by `agent.stream(...)`; enter it with `async with`.

    Leaving the block early cancels the run, and returns when its cleanup has finished. A stream that only steered a run
    that was active before lets it go on.

    Attributes:
        session_id: The session; known once entered.
        run_id: The run; known once entered.
    """

    __slots__ = (
        "_agent",
        "_buffer",
        "_consumer",
        "_end",
        "_entered",
        "_left",
        "_max_turns",
        "_message",
        "_position",
        "_response",
        "_runs",
        "_session",
        "_since_yield",
        "_steers",
        "_waiting",
        "_when_busy",
        "run_id",
        "session_id",
    )

    def __init__(
        self, agent: "Agent", message: UserMessage, session_id: str, max_turns: int, when_busy: WhenBusy
    ) -> None:
        self._agent = agent
        self._message = message
        self._max_turns = max_turns
        self._when_busy: WhenBusy = when_busy
        self._entered = False
        self._left = False
        self._steers = False
        self._buffer: list[ev.Event] = []
        self._position = 0
        self._since_yield = 0
        self._consumer: trio.lowlevel.Task | None = None
        self._waiting: list[trio.lowlevel.Task] | None = None
        self._response: AssistantMessage | None = None
        self._end: ev.Event | Code | None = None
        self._session: Session | None = None
        self.session_id = session_id
        self.run_id = ""

    # ---- the scope

    async def __aenter__(self) -> "RunStream":
        """Start the run. A checkpoint only if the session has to be made or waits for its store.

        Raises:
            RuleViolation: `session.busy`, `session.closed`, ...: nothing was started.
        """
        if self._entered:
            raise RuntimeError("this stream was entered already; call agent.stream(...) for another run")
        self._entered = True
        self._session = session = await self._agent.open(self.session_id)
        active = session.state.root
        session.attach(self, failed=lambda why: self.closed(why.code, 0))
        try:
            ack = session.act(
                "",
                self._agent.decide_prompt,
                self._message,
                max_turns=self._max_turns,
                when_busy=self._when_busy,
            )
        except RuleViolation:
            session.detach(self)
            raise
        self.run_id = ack.run
        self._steers = ack.run == active
        self._keep_own_events()
        session.call_for(ack.run, self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        session = self._session
        assert session is not None
        if self._end is None and self._steers:
            session.leave_run(self.run_id, self)
            self.closed(Code.SESSION_CLOSED, 0)  # whoever waits for this caller need not any more
        elif self._end is None:
            self._left = True
            session.cancel_run(self.run_id, "its caller left")
            # The caller may be cancelled itself. A run that does not end within its grace is given up, so this ends.
            limits = self._agent.limits
            with trio.move_on_after(limits.cancel_grace_s + limits.close_grace_s, shield=True):
                await self._drain()
            if self._end is None and (live := session.live(self.run_id)) is not None:
                live.give_up()  # both were due in one instant: the block does not end before its run
        session.detach(self)

    def _keep_own_events(self) -> None:
        # Before the run had an id nothing could be told apart; a run that was queued sees only its own events.
        self._buffer = [event for event in self._buffer if event.run == self.run_id]
        for event in self._buffer:
            self._note(event)

    def _note(self, event: ev.Event) -> None:
        if isinstance(event, ev.ModelCompleted):
            self._response = event.message
        elif isinstance(event, ev.RUN_ENDS):
            self._end = event

    async def _drain(self) -> None:
        reader, self._consumer = self._consumer, None
        if reader is not None:  # another task reads what its owner is leaving
            trio.lowlevel.reschedule(reader, outcome.Error(trio.ClosedResourceError(_LEFT)))
        while self._end is None:
            self._position = len(self._buffer)
            self._notify_taken()
            await self._park()

    # ---- the reader (called by the session, synchronously)

    def offer(self, event: ev.Event) -> bool:
        run_id = self.run_id
        if run_id and event.run != run_id:
            return True
        self._buffer.append(event)
        if run_id and type(event) in _NOTED:
            self._note(event)
        if self._consumer is not None:
            self._wake()
        return True

    def closed(self, code: Code, seq: int) -> None:
        if self._end is None:
            self._end = code
        if self._consumer is not None:
            self._wake()
        self._notify_taken()

    def _wake(self) -> None:
        task, self._consumer = self._consumer, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    # ---- what the run waits for

    @property
    def full(self) -> bool:
        return len(self._buffer) - self._position >= self._agent.limits.stream_high_water

    async def wait_taken(self) -> None:
        """Wait until the caller has asked for more than was emitted, so has dealt with all of it."""
        while (self._position < len(self._buffer) or self._consumer is None) and self._end is None:
            task = trio.lowlevel.current_task()
            if self._waiting is None:
                self._waiting = []
            self._waiting.append(task)

            def stop_waiting(_: object, task: trio.lowlevel.Task = task) -> trio.lowlevel.Abort:
                if self._waiting is not None:
                    self._waiting.remove(task)
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(stop_waiting)

    def _notify_taken(self) -> None:
        waiting, self._waiting = self._waiting, None
        for task in waiting or ():
            trio.lowlevel.reschedule(task)

    # ---- the iterator

    def __aiter__(self) -> AsyncIterator[AgentEvent]:
        if not self._entered:
            raise RuntimeError(
                "a run's stream is a scope; write\n"
                "    async with agent.stream(...) as events:\n"
                "        async for event in events: ..."
            )
        return self

    async def __anext__(self) -> AgentEvent:
        """Return the next event. Cancellation is checked at each one; every 32nd yields to the scheduler.

        Raises:
            RunFailed: `store.failed`, or the session was closed: there will be no terminal event.
        """
        self._since_yield += 1
        if self._since_yield >= _YIELD_EVERY:
            self._since_yield = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            position = self._position
            if position < len(self._buffer):
                event = self._buffer[position]
                if position >= _YIELD_EVERY:
                    del self._buffer[: position + 1]
                    self._position = 0
                else:
                    self._position = position + 1
                return to_agent_event(self.session_id, event)
            if self._end is not None:
                if isinstance(self._end, Code):
                    raise RunFailed(self._end, f"session {self.session_id!r} ended before its run did")
                raise StopAsyncIteration
            if self._left:
                raise trio.ClosedResourceError(_LEFT)
            self._since_yield = 0
            await self._park()

    async def _park(self) -> None:
        if self._consumer is not None:
            raise trio.BusyResourceError("another task is reading this stream")
        if self._buffer:
            self._buffer.clear()
            self._position = 0

        self._consumer = trio.lowlevel.current_task()
        if self._waiting is not None:
            self._notify_taken()
        await trio.lowlevel.wait_task_rescheduled(self._stop_reading)

    def _stop_reading(self, _: object) -> trio.lowlevel.Abort:
        self._consumer = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def final(self) -> AssistantMessage:
        """Take what is left and return the final answer.

        Raises:
            RunFailed: The run failed.
            RunCancelled: It was cancelled.
        """
        async for _ in self:
            pass
        end = self._end
        if isinstance(end, ev.RunFailed):
            raise RunFailed(end.code, end.message)
        if isinstance(end, ev.RunCancelled):
            raise RunCancelled(end.reason)
        assert isinstance(end, ev.RunCompleted)
        return self._response or AssistantMessage()


_NOTED = frozenset((*ev.RUN_ENDS, ev.ModelCompleted))
