"""`SessionHandle`: one session as an embedder, or a link of the gateway, speaks to it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio
from msgspec import UNSET, Struct

from actors.agent.context import MessagesView
from actors.agent.extension import AgentRunConfig, ExternalEvent
from actors.agent.outbox import Reader
from actors.agent.serving import Reply, Request, decide_answer
from actors.runtime import ActorGone
from protocol import commands as cmd
from protocol import decisions
from protocol.asks import Ask, AskOutcome
from protocol.chat import Message
from protocol.decisions import WhenBusy
from protocol.errors import Code, RuleViolation
from protocol.history import Ack, Status
from protocol.sendable import check_text
from protocol.todos import TodoWriteResult, result

if TYPE_CHECKING:
    from actors.agent.agent import Agent


class SessionInfo(Struct, frozen=True, omit_defaults=True):
    """One line of a list of sessions."""

    session: str
    status: Status
    seq: int
    open_asks: int = 0


class SessionHandle:
    """One session by its id. Cheap to make; the session itself is made at the first use.

    Commands are decided in memory at once and return when they are committed. Each takes `command`, an id of yours: a
    repeat with the same id is not carried out again and gets the first acknowledgement.

    The properties say what is in memory. A session that only the store has, as after a restart, comes back when it is
    first addressed: by any command, or by `wake`. Until then they say nothing of it.
    """

    __slots__ = ("_agent", "id")

    def __init__(self, agent: "Agent", session_id: str) -> None:
        self._agent = agent
        self.id = session_id

    async def prompt(
        self, text: str, *, when_busy: WhenBusy = "reject", max_turns: int | None = None, command: str = ""
    ) -> Ack:
        """Start a run and return its acknowledgement, with the run's id. A checkpoint.

        Args:
            text: What the user says.
            when_busy: While a run is active: refuse, wait behind it, or steer it.
            max_turns: Model calls before the run fails; None means the agent's setting.
            command: See the class.

        Raises:
            RuleViolation: `session.busy`, `command.invalid`, `session.closed`, `store.failed`.
            ValueError: `max_turns` is below 1.
        """
        agent = self._agent
        if max_turns is not None and max_turns < 1:
            raise ValueError(f"max_turns is at least 1, not {max_turns}")
        message = decisions.user_message(text, limits=agent.limits)
        turns = agent.max_turns if max_turns is None else max_turns
        return await self._act(
            command, decisions.prompt, message, max_turns=turns, when_busy=when_busy, limits=agent.limits
        )

    async def steer(self, text: str, *, command: str = "") -> Ack:
        """Say something to the active run; the model sees it before its next call. A checkpoint.

        Raises:
            RuleViolation: `session.idle`, `session.busy`, `command.invalid`, `session.closed`, `store.failed`.
        """
        message = decisions.user_message(text, limits=self._agent.limits)
        return await self._act(command, decisions.steer, message, limits=self._agent.limits)

    async def answer(
        self, ask: str, answer: Any = UNSET, *, payload: Mapping[str, Any] | None = None, command: str = ""
    ) -> Ack:
        """Answer an open ask. A checkpoint.

        Args:
            ask: Its `tool_call_id`, or its id.
            answer: Text, or a list of texts where several may be chosen.
            payload: Instead of `answer`: the whole payload, which reaches the model unchanged.
            command: See the class.

        Raises:
            RuleViolation: `ask.unknown`, `ask.settled` (the details name the outcome), `ask.invalid`.
        """
        if (answer is UNSET) == (payload is None):
            raise TypeError("answer() takes either an answer or a payload")
        whole = {"answer": answer} if payload is None else dict(payload)
        return await self._act(command, decide_answer, ask, whole, limits=self._agent.limits)

    async def decline(self, ask: str, *, note: str = "", command: str = "") -> Ack:
        """Settle an open ask without an answer; the model is told so. A checkpoint.

        Raises:
            RuleViolation: `ask.unknown` or `ask.settled`.
        """
        return await self._act(command, decisions.settle_ask, ask, AskOutcome.DECLINED, note=note)

    async def cancel(self, reason: str = "", *, run: str = "", command: str = "") -> Ack:
        """Cancel a run, by default the active one; without one this does nothing. A checkpoint.

        Its open asks are closed when this returns; its tools may still be cleaning up (`wait_idle`).

        Raises:
            RuleViolation: `run.unknown` - `run` is neither active nor queued.
        """
        await trio.lowlevel.checkpoint()
        session = await self._agent.open(self.id)
        ack = session.cancel(command, run, reason)
        await session.wait_committed(ack.seq)
        return ack

    async def emit(self, event: ExternalEvent, *, command: str = "") -> tuple[str, ...]:
        """Offer an event to every extension; return the names of those that accepted it. A checkpoint.

        As `Agent.emit_external_event`, and the session is in memory when they are asked.

        Raises:
            RuleViolation: `command.invalid`, `session.closed`, `store.failed`.
        """
        await trio.lowlevel.checkpoint()
        check_text(command, path="a command's id")
        session = await self._agent.open(self.id)
        accepted = self._agent.broadcast(event, AgentRunConfig(session_id=self.id), cause=command)
        await session.wait_committed(session.state.seq)
        return tuple(accepted)

    async def wake(self) -> bool:
        """Bring back a session that only the store has; what was interrupted in it goes on. A checkpoint.

        Returns:
            Whether it is in memory now; False where there is no such session.

        Raises:
            RuleViolation: `session.closed`, `session.limit`, `store.failed`, `store.damaged`.
        """
        await trio.lowlevel.checkpoint()
        return await self._agent.wake_session(self.id) is not None

    async def wait_idle(self) -> None:
        """Wait until no run is active or queued, also of a session that only the store has. A checkpoint.

        Raises:
            RuleViolation: As `wake`, except where the agent is closed: then nothing runs.
        """
        await trio.lowlevel.checkpoint()
        if self._agent.find(self.id) is None and not self._agent.closed:
            await self._agent.wake_session(self.id)
        session = self._agent.find(self.id)
        if session is not None:
            await session.wait_idle()

    async def close(self) -> None:
        """Cancel what runs, wait for it within `close_grace_s`, and let go of the session. A checkpoint."""
        await self._agent.close_session(self.id)

    async def _act(self, command: str, decide: Any, *args: Any, **options: Any) -> Ack:
        await trio.lowlevel.checkpoint()
        session = await self._agent.open(self.id)
        ack = session.act(command, decide, *args, **options)
        await session.wait_committed(ack.seq)
        return ack

    # ---- reading; all of it is the state as it is now, never a checkpoint

    @property
    def status(self) -> Status:
        session = self._agent.find(self.id)
        return session.state.status if session is not None else Status.IDLE

    @property
    def asks(self) -> tuple[Ask, ...]:
        """The open asks, in the order they were opened."""
        session = self._agent.find(self.id)
        return tuple(record.ask for record in session.state.open_asks()) if session is not None else ()

    @property
    def todos(self) -> TodoWriteResult | None:
        """The active run's list."""
        session = self._agent.find(self.id)
        run = session.state.run if session is not None else None
        return result(run.todos) if run is not None and run.todos is not None else None

    @property
    def history(self) -> Sequence[Message]:
        """The messages so far. The results of a turn in flight appear when all of them are there."""
        session = self._agent.find(self.id)
        return MessagesView(session.state.messages) if session is not None else ()

    @property
    def log_id(self) -> str:
        session = self._agent.find(self.id)
        return session.state.log_id if session is not None else ""

    @property
    def seq(self) -> int:
        session = self._agent.find(self.id)
        return session.state.seq if session is not None else 0

    @property
    def committed(self) -> int:
        """The last record that is kept, whatever becomes of the process."""
        session = self._agent.find(self.id)
        return session.committed if session is not None else 0

    # ---- the mailbox

    async def submit(self, command: cmd.Params, reply: Reply, *, reader: Reader | None = None) -> None:
        """Put a command into the session's mailbox; waits while it is full. See `Request` for `reply`.

        Raises:
            RuleViolation: `session.unknown` - there is no such session, or no longer.
        """
        while True:
            session, ref = self._agent.find(self.id), self._agent.ref(self.id)
            if session is None or ref is None or session.passive:
                if await self._agent.wake_session(self.id) is None:
                    raise RuleViolation(Code.SESSION_UNKNOWN, f"there is no session {self.id!r}")
                continue
            try:
                await ref.send(Request(command, reply, reader))
                return
            except ActorGone:
                if not session.passive:  # else it has left memory while this waited for room
                    raise RuleViolation(Code.SESSION_CLOSED, f"session {self.id!r} is closed") from None
