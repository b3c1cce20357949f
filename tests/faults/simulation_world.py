"""What all parts of a simulation share: the one source of chance, the store, the host while it is up, and the notes."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio.testing import MockClock

from actors.agent.agent import Agent
from actors.agent.handle import SessionHandle
from actors.agent.session import Session
from protocol import events as ev
from protocol.errors import RuleViolation
from protocol.snapshot import Snapshot
from tests.faults.simulation_checks import check_moment
from tests.faults.simulation_ledger import Ledger
from tests.faults.simulation_script import Witness
from tests.faults.simulation_store import SimulatedStore
from tests.faults.simulation_trace import Recorder

SESSIONS = tuple(f"s{number}" for number in range(20))
CLIENTS = 5


class World:
    """One simulation.

    Attributes:
        draw: Every random choice is drawn from it.
        clock: The virtual clock, which jumps.
        agent: The agent while its host is up.
        snapshots: All that were shown, to be compared with the logs.
        waiting: Calls that are no commands and have no reply yet.
    """

    def __init__(self, seed: int, clock: MockClock) -> None:
        self.draw = random.Random(seed)
        self.clock = clock
        self.recorder = Recorder()
        self.store = SimulatedStore()
        self.ledger = Ledger(self.recorder, self.store)
        self.witness = Witness(self.draw)
        self.agent: Agent | None = None
        self.snapshots: list[Snapshot] = []
        self.waiting = 0
        self._nursery: trio.Nursery | None = None

    # ---- the host

    def up(self, agent: Agent, nursery: trio.Nursery) -> None:
        """The host serves."""
        self.agent, self._nursery = agent, nursery

    def down(self) -> None:
        self.agent = self._nursery = None

    def start(self, task: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run something in the host, which goes on when the client that wanted it leaves."""
        if self._nursery is not None and not self._nursery.cancel_scope.cancel_called:
            self._nursery.start_soon(task, *args)

    def handle(self, session_id: str) -> SessionHandle | None:
        return self.agent.session(session_id) if self.agent is not None else None

    def find(self, session_id: str) -> Session | None:
        return self.agent.find(session_id) if self.agent is not None else None

    async def open_session(self, session_id: str) -> None:
        """Open a session, unless it cannot be read or the host leaves."""
        if self.agent is not None:
            try:
                await self.agent.open(session_id)
            except RuleViolation as refused:
                self.recorder.note("not opened", session_id, refused.code)

    async def close_session(self, session_id: str) -> None:
        if self.agent is not None:
            await self.agent.close_session(session_id)

    # ---- checks

    def look(self, session_id: str) -> None:
        """Check what must hold of a session at every checkpoint. From a task only, not from a reader or a reply."""
        agent = self.agent
        if agent is None:
            return
        session = agent.find(session_id)
        if session is not None:
            self.recorder.count("looks")
            try:
                check_moment(agent, session)
            except AssertionError as wrong:
                self.recorder.problem(f"{session_id}: {wrong}")

    def check_ask(self, session_id: str, opened: ev.AskOpened) -> None:
        """Check that a question that is seen can be answered, or has its outcome. Also from a reader."""
        session = self.find(session_id)
        if session is not None:
            state, call = session.state, opened.ask.tool_call_id
            known = {**(state.asks or {}), **(state.settled or {})}
            self.recorder.check(call in known, f"ask {call} of {session_id} was seen before it could be answered")
