"""The sessions of an agent by their ids: opened once, closed once, found, listed."""

import contextlib
import logging
import secrets
from bisect import bisect_left, bisect_right, insort
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVarTuple, cast

import trio

from actors.agent import recovery
from actors.agent.handle import SessionHandle, SessionInfo
from actors.agent.ports import SessionStore
from actors.agent.serving import Request, session_actor
from actors.agent.session import Session
from actors.runtime import ActorError, Ctx, Ref, Supervisor
from protocol import events as ev
from protocol.chat import SystemMessage
from protocol.errors import Code, RuleViolation
from protocol.history import Ack, Status
from protocol.ids import check_session_id
from protocol.limits import Limits
from protocol.sendable import check_text

if TYPE_CHECKING:
    from actors.agent.agent import Agent

Ts = TypeVarTuple("Ts")
logger = logging.getLogger("actors.agent")

_SLICE = 64
#: Of how many sessions that have left memory it is remembered which commands led to no record.
_NOTES_KEPT = 10_000


class AgentSessions:
    """The part of an agent that holds its sessions.

    Attributes:
        name: The agent's, also part of the names of its actors.
        instruction: The system message at the start of each history.
        closed: Nothing is opened any more.
    """

    __slots__ = (
        "_closing", "_notes", "_opening", "_order", "_refs", "_sessions", "_supervisor", "closed", "instruction",
        "limits", "name", "store",
    )  # fmt: skip

    def __init__(
        self, supervisor: Supervisor, *, name: str, instruction: str, store: SessionStore, limits: Limits
    ) -> None:
        self.name = name
        self.instruction = instruction
        self.store = store
        self.limits = limits
        self.closed = False
        self._supervisor = supervisor
        self._sessions: dict[str, Session] = {}
        self._order: list[str] = []  # their ids, sorted
        self._notes: dict[str, dict[str, Ack]] = {}
        self._refs: dict[str, Ref[Request]] = {}
        self._opening: dict[str, trio.Event] = {}
        self._closing: dict[str, trio.Event] = {}

    @property
    def _agent(self) -> "Agent":
        return cast("Agent", self)

    def find(self, session_id: str) -> Session | None:
        """Return the session if it is open. Never a checkpoint."""
        return self._sessions.get(session_id)

    def ref(self, session_id: str) -> Ref[Request] | None:
        return self._refs.get(session_id)

    async def open(self, session_id: str) -> Session:
        """Return the session, made or loaded where it is not open. A checkpoint only then.

        Raises:
            RuleViolation: `session.closed` - the agent is closed; `session.limit`; `store.failed`.
        """
        session = self._sessions.get(session_id)
        if session is None or session_id in self._opening or session_id in self._closing:
            session, _ = await self._open(session_id)
        session.quiet = 0
        return session

    async def _open(self, session_id: str, *, known: bool = False) -> tuple[Session, bool]:
        """`open`, and whether it was this call that began the log; `known` - only one that the store has."""
        made = False
        while True:
            changing = self._opening.get(session_id, self._closing.get(session_id))
            session = self._sessions.get(session_id)
            if changing is not None:
                await changing.wait()
            elif session is None:
                made = await self._make(session_id, known=known)
            else:
                return session, made

    async def _make(self, session_id: str, *, known: bool) -> bool:
        """Let a session be there: return whether it is a new one, and not one that the store had."""
        if self.closed:
            raise RuleViolation(Code.SESSION_CLOSED, f"agent {self.name!r} is closed")
        if len(self._sessions) + len(self._opening) >= self.limits.max_sessions:
            raise RuleViolation(Code.SESSION_LIMIT, f"agent {self.name!r} has {self.limits.max_sessions} sessions open")
        self._opening[session_id] = opening = trio.Event()
        try:
            await self._wait_name_free(session_id)
            session, created = await self._load(session_id, known=known)
            self._refs[session_id] = await self._supervisor.spawn(
                session_actor,
                session,
                name=f"{self.name}/{session_id}",
                mailbox_size=self.limits.mailbox_size,
                own_nursery=True,
                on_end=session.actor_ended,
            )
            if session.closed is not None:
                raise session.closed
            self._sessions[session_id] = session
            insort(self._order, session_id)
            self._notes.pop(session_id, None)
            self._go_on(session)
            logger.info("session %s opened at seq %d", session_id, session.state.seq)
            return created
        except ActorError as error:
            raise RuleViolation(Code.SESSION_CLOSED, f"session {session_id!r} could not be opened: {error}") from None
        finally:
            if session_id not in self._sessions:
                self._refs.pop(session_id, None)
            del self._opening[session_id]
            opening.set()

    def _go_on(self, session: Session) -> None:
        try:
            recovery.go_on(session)
        except Exception:
            text = f"the runs of session {session.id!r} could not go on"
            session.shut(RuleViolation(Code.SESSION_CRASHED, text))  # else it would be busy, and nobody at work
            raise
        if session.closed is not None:
            raise session.closed

    async def _load(self, session_id: str, *, known: bool) -> tuple[Session, bool]:
        """Return the session that the store has, or a new one, and which; a new one only if any was wanted."""
        session = Session(self._agent, session_id)
        try:
            stored = await self.store.load(session_id)
            if self.closed:
                raise RuleViolation(Code.SESSION_CLOSED, f"agent {self.name!r} is closed")
            if stored is not None:
                recovery.recover(session, stored)
                session.noted = self._notes.get(session_id)
            elif known:
                raise RuleViolation(Code.SESSION_UNKNOWN, f"there is no session {session_id!r}")
            else:
                session.open_log(secrets.token_hex(8))
                if self.instruction:
                    session.append([ev.MessageAdded(SystemMessage(self.instruction))])
        except RuleViolation:
            raise
        except Exception as error:
            logger.exception("session %s could not be loaded", session_id)
            text = f"session {session_id!r} could not be loaded: {type(error).__name__}"
            raise RuleViolation(Code.STORE_FAILED, text) from error
        return session, stored is None

    async def _wait_name_free(self, session_id: str) -> None:
        """Wait for the actor of a session that was shut and still unwinds. A checkpoint only where it waits."""
        before = self._supervisor.system.registry.lookup(f"{self.name}/{session_id}")
        if before is not None:
            with trio.move_on_after(self.limits.close_grace_s):
                await before.join()
                return
            raise RuleViolation(Code.SESSION_CLOSED, f"session {session_id!r} is closed, and its tasks still run")

    async def open_session(self, session_id: str | None = None) -> tuple[SessionHandle, bool]:
        """Return a session's handle and whether its log was begun now, and is kept. May be a checkpoint.

        Args:
            session_id: Which one; without an id, one is minted.

        Raises:
            RuleViolation: As `open`; `session.invalid`.
        """
        wanted = f"s-{secrets.token_hex(8)}" if session_id is None else check_session_id(session_id)
        session, created = await self._open(wanted)
        await session.wait_committed(1)  # else a process that is killed takes back a log that was named to somebody
        return SessionHandle(self._agent, wanted), created

    def start_beside(self, body: Callable[[Ctx[None], *Ts], Awaitable[None]], *args: *Ts, name: str) -> None:
        """Start an actor that ends with the agent's sessions. Never a checkpoint.

        Raises:
            ActorError: They are at their end, or there are as many as there may be.
        """
        self._supervisor.spawn_nowait(body, *args, name=name)

    def find_session(self, session_id: str) -> SessionHandle | None:
        """Return the handle of a session that is open, else None."""
        return SessionHandle(self._agent, session_id) if session_id in self._sessions else None

    async def wake_session(self, session_id: str) -> SessionHandle | None:
        """Return the handle of a session that is open, or that the store has and is opened now. A checkpoint only then.

        Raises:
            RuleViolation: As `open`; `store.damaged`.
        """
        try:
            session, _ = await self._open(session_id, known=True)
        except RuleViolation as refused:
            if refused.code is Code.SESSION_UNKNOWN:
                return None
            raise
        session.quiet = 0
        return SessionHandle(self._agent, session_id)

    def open_sessions(self, *, after: str = "", limit: int = 100) -> tuple[list[SessionInfo], bool]:
        """Return the sessions in memory after `after` in the order of their ids, and whether there are more."""
        first = bisect_right(self._order, after)
        infos = [_info(self._sessions[session_id]) for session_id in self._order[first : first + limit]]
        return infos, len(self._order) > first + limit

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> tuple[list[SessionInfo], bool]:
        """Return all sessions after `after`, also those that only the store has, and whether there are more.

        In the order of their ids. Of those in memory it says how they are now, of others how they were kept: whatever
        runs there is interrupted. A checkpoint where the store is one.

        Raises:
            RuleViolation: `store.failed`.
        """
        stored = await self.store.list_sessions(after=after, limit=limit + 1)
        here, _ = self.open_sessions(after=after, limit=limit + 1)
        infos = {one.id: SessionInfo(one.id, Status(one.status), one.seq, one.asks) for one in stored}
        infos.update((info.session, info) for info in here)
        # Each of the two has its first ones, so the first ones of both are among them.
        ids = sorted(infos)
        return [infos[session_id] for session_id in ids[:limit]], len(ids) > limit

    async def close_session(self, session_id: str) -> None:
        """Cancel what runs in a session, wait for it within the grace, let go of the session. A checkpoint.

        One that only the store has is brought back first: what was interrupted there would go on later.
        """
        try:
            await trio.lowlevel.checkpoint()
            if session_id not in self._sessions and self._agent.keeps_runs and not self.closed:
                # Where that fails there is nothing that goes on.
                with contextlib.suppress(RuleViolation):
                    await self._open(session_id, known=True)
            while (changing := self._opening.get(session_id, self._closing.get(session_id))) is not None:
                await changing.wait()
            session, ref = self._sessions.get(session_id), self._refs.get(session_id)
            # Whoever opens it meanwhile waits: the log they would load is about to be released.
            self._closing[session_id] = closing = trio.Event()
            try:
                if session is not None and ref is not None:
                    await self._end_session(session, ref)
                elif not self.closed:
                    await self.store.release(session_id)  # it may have left memory
            finally:
                del self._closing[session_id]
                closing.set()
        finally:
            # Where this was cancelled, however early, the session goes on; nobody else is closing it.
            left = self._sessions.get(session_id)
            if left is not None and session_id not in self._closing:
                left.closing = left.actor is None  # unless it has come to its end by itself

    async def _end_session(self, session: Session, ref: Ref[Request]) -> None:
        self._cancel_all(session, "the session is being closed")
        with trio.move_on_after(self.limits.close_grace_s):
            await session.wait_kept()
        ref.drain()
        with trio.move_on_after(self.limits.close_grace_s):
            await ref.join()
        session.shut(RuleViolation(Code.SESSION_CLOSED, f"session {session.id!r} is closed"))
        await self.store.release(session.id)

    def _cancel_all(self, session: Session, reason: str) -> None:
        session.closing = True  # first: nothing may start behind what is cancelled here
        for queued in list(session.state.queue or ()):
            session.cancel_run(queued.id, reason)
        session.cancel_run(session.state.root, reason)

    async def cancel_all(self, reason: str = "") -> int:
        """Cancel every run, active or queued, of every open session; return how many there were. A checkpoint.

        In slices, so that the event loop is never held for long; a run that starts meanwhile may be left out. As with
        `SessionHandle.cancel`, tools may still be cleaning up when this returns (`SessionHandle.wait_idle`).
        """
        check_text(reason, path="the reason")
        cancelled = 0
        sessions = list(self._sessions.values())
        for position, session in enumerate(sessions):
            runs = [queued.id for queued in session.state.queue or ()]  # first: they would start behind the active one
            for run in (*runs, session.state.root):
                if run and session.closed is None:
                    session.cancel_run(run, reason)
                    cancelled += 1
            if position % _SLICE == _SLICE - 1:
                await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        for position, session in enumerate(sessions):
            with contextlib.suppress(RuleViolation):  # its store failed, or it was closed: so were its runs
                await session.wait_committed(session.state.seq)
            if position % _SLICE == _SLICE - 1:
                await trio.lowlevel.checkpoint()
        return cancelled

    def sessions(self) -> Iterable[Session]:
        """The sessions in memory."""
        return self._sessions.values()

    def let_go(self, session: Session) -> None:
        """Let a session that is at rest leave memory; its store has it. Never a checkpoint.

        Whoever opens it meanwhile waits until it has left, and gets it back.
        """
        if self._sessions.get(session.id) is not session or session.id in self._closing:
            return
        if session.saved_seq < session.state.seq:
            recovery.save_snapshot(session, at_once=True)
        if session.noted:
            self._notes[session.id] = session.noted
            if len(self._notes) > _NOTES_KEPT:
                del self._notes[next(iter(self._notes))]
        session.passive = True
        self._closing[session.id] = trio.Event()
        self._refs[session.id].stop("it was idle")

    def forget(self, session: Session) -> None:
        """A session has shut. Called by it."""
        if session.passive:
            self._closing.pop(session.id).set()
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
            del self._order[bisect_left(self._order, session.id)]
            logger.info("session %s left memory (%s)", session.id, session.closed.code if session.closed else "closed")
            self._refs.pop(session.id, None)

    async def aclose(self) -> None:
        """Close all sessions: cancel in slices, so that the event loop is never held, then wait within the grace.

        Runs that the store keeps are not cancelled: they are interrupted, and go on in the next life.
        """
        self.closed = True
        sessions = list(self._sessions.values())
        for position, session in enumerate(sessions):
            if self._agent.keeps_runs:
                session.closing = True
                continue
            self._cancel_all(session, "the agent is being closed")
            if position % _SLICE == _SLICE - 1:
                await trio.lowlevel.checkpoint()
        with trio.move_on_after(self.limits.close_grace_s):
            for position, session in enumerate(sessions):
                if self._agent.keeps_runs:
                    with contextlib.suppress(RuleViolation):
                        await session.wait_committed(session.state.seq)
                else:
                    await session.wait_kept()
                if position % _SLICE == _SLICE - 1:
                    await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()


def _info(session: Session) -> SessionInfo:
    return SessionInfo(session.id, session.state.status, session.state.seq, len(session.state.open_asks()))
