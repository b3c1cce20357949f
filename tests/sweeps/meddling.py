"""What can happen to an agent in a scenario, at any moment, and what may follow from it.

It decides which refusals and failures are excused by which fault. It must not know what runs, clients and callers do.
"""

from collections.abc import Sequence

import trio

from actors import Agent, RuleViolation, RunFailed
from actors.agent.session import Session
from actors.testing.sweep import Stage
from protocol import decisions
from protocol.errors import Code
from tests.sweeps.witness import Client, WitnessStore

SESSION = "s"
#: The faults that close the session.
CLOSING = frozenset(("session", "stop", "close", "cancel"))


class Meddling:
    """The faults of one play.

    Attributes:
        agent: The agent, once it is open.
        nursery: For tasks of the scenario; it is cancelled when the agent is closed.
        client: Who watches, if somebody does.
        given: Which answers were acknowledged: log, call and text. `refused` are the others.
        acknowledged: Which other commands were: log and seq.
        shut: The sessions whose record was ended in the middle.
    """

    def __init__(self, stage: Stage, store: WitnessStore, allowed: Sequence[Code]) -> None:
        self.stage = stage
        self.store = store
        self.agent: Agent = None  # type: ignore[assignment]
        self.nursery: trio.Nursery = None  # type: ignore[assignment]
        self.client: Client | None = None
        self.given: list[tuple[str, str, str]] = []
        self.refused: list[tuple[str, str, str]] = []
        self.acknowledged: list[tuple[str, int]] = []
        self.shut: list[Session] = []
        self.over = False
        self.leaving: trio.CancelScope | None = None
        self.left_at = 0.0
        self._allowed = frozenset(allowed)

    @property
    def session(self) -> Session | None:
        """The session, while it is open."""
        return self.agent.find(SESSION) if self.agent else None

    @property
    def undisturbed(self) -> bool:
        """Nothing has happened to it so far."""
        return not self.stage.struck

    # ---- what can happen; synchronous, at any moment

    def offer_faults(self) -> None:
        """Let all of it happen from here on."""
        for name in ("request", "session", "stop", "close", "leave", "disconnect", "detach"):
            self.stage.fault(name, getattr(self, f"_{name}"))

    def _request(self) -> None:
        session = self.session
        if session is not None:
            try:
                ack = session.cancel("", reason="swept")
            except RuleViolation as error:
                self.excuse(error)
            else:
                self.acknowledge(session, ack.seq)

    def _session(self) -> None:
        session = self.session
        if session is not None:
            self.shut.append(session)
            session.shut(RuleViolation(Code.SESSION_CLOSED, "swept"))

    def _stop(self) -> None:
        ref = self.agent.ref(SESSION)
        if ref is not None:
            ref.stop("swept")

    def _close(self) -> None:
        if not self.over:
            self.nursery.start_soon(self.agent.close_session, SESSION, name="whoever closes the session")

    def _leave(self) -> None:
        if self.leaving is not None and not self.leaving.cancel_called:
            self.left_at = trio.current_time()
            self.leaving.cancel(reason="swept")

    def _disconnect(self) -> None:
        if self.client is not None:
            self.client.refusing = True

    def _detach(self) -> None:
        if self.client is not None and self.session is not None:
            self.session.detach(self.client)

    def offer_answer(self, call_id: str) -> None:
        """Let an answer to this call come at any moment from here on."""
        self.stage.fault("answer", lambda: self.answer(call_id, f"swept {len(self.given) + len(self.refused)}"))

    def answer(self, call_id: str, text: str) -> bool:
        """Answer, and note whether that was acknowledged: after commit, or where it was refused."""
        session = self.session
        if session is None:
            return False
        given = (session.state.log_id, call_id, text)
        try:
            session.act("", decisions.answer, call_id, {"tool_call_id": call_id, "answer": text})
        except RuleViolation:
            self.refused.append(given)
            return False
        session.leave(self.given.append, given)
        return True

    def acknowledge(self, session: Session, seq: int) -> None:
        """A command was carried out in this session; it must be in the log once that is acknowledged."""
        session.leave(self.acknowledged.append, (session.state.log_id, seq))

    async def cancel_after(self, seconds: float) -> None:
        """Be somebody who has had enough of the run by then."""
        await trio.sleep(seconds)
        try:
            await self.agent.session(SESSION).cancel("enough")
        except RuleViolation as error:
            self.excuse(error)

    def excuse(self, error: RuleViolation | RunFailed) -> None:
        """Raise this again unless it may follow from what has happened."""
        struck, allowed = set(self.stage.struck), set(self._allowed)
        if struck & CLOSING:
            allowed.add(Code.SESSION_CLOSED)
        if "error" in struck:
            allowed |= {Code.EXTENSION_FAILED, Code.MODEL_FAILED}
        if error.code not in allowed:
            raise error
