"""What the scenarios of agents share: an agent that is watched, what can happen to it, and what must hold whatever did.

It decides what a caller, a client and a store may meet after which fault. It must not know what the runs do.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from actors import (
    RuleViolation,
    RunCancelled,
    RunFailed,
    ToolMessage,
    open_agent,
)
from actors.agent.memory import MemoryStore
from actors.agent.ports import Model, SessionStore
from actors.agent.view import AgentEvent
from actors.models.scripted import Turn
from actors.testing.sweep import Stage, twice
from protocol import events as ev
from protocol.decisions import WhenBusy
from protocol.errors import Code
from tests.faults.invariants import check_agent, check_answers, check_session
from tests.faults.stores import SlowStore
from tests.sweeps.meddling import SESSION, Meddling
from tests.sweeps.script import script
from tests.sweeps.witness import Client, WitnessStore

ENDS = ("run_completed", "run_failed", "run_cancelled")

#: Whatever a scenario is about, this can happen to it.
USUAL = ["cancel", "request", "session", "stop", "close", "leave", "disconnect", "error"]
#: And two things in one moment, or shortly after each other.
TOGETHER = [
    *twice("request"), *twice("request", "cancel", distances=range(1, 4)), "detach", "request,session",
    "session,request", "request,stop", "stop,request", "close,request", "leave,request",
]  # fmt: skip


class Acting(Meddling):
    """One agent in one play.

    Attributes:
        react: Called with each record when the client is shown it, within the session's own step.
        look: Called with each event when the caller has got it.
        ended: How the run ended that `consume` has read: the type of its last event, or "".
        leaving_took_s: How long it took the caller to get out of its stream, where it left that early.
        keeping: Of the task of a store that has one.
    """

    def __init__(self, stage: Stage, store: WitnessStore, allowed: Sequence[Code]) -> None:
        super().__init__(stage, store, allowed)
        self.react: Callable[[ev.Event], object] = lambda event: None
        self.look: Callable[[AgentEvent], object] = lambda event: None
        self.ended = ""
        self.leaving_took_s = 0.0
        self.keeping = trio.CancelScope(shield=True)
        self._clients: list[Client] = []

    # ---- those who take part

    async def watch(self) -> None:
        """Open the session and let a client watch it."""
        try:
            session = await self.agent.open(SESSION)
        except RuleViolation as error:
            self.excuse(error)
            return
        self.client = Client(session, self._see)
        self._clients.append(self.client)
        session.attach(self.client)

    def _see(self, event: ev.Event) -> None:
        self.react(event)

    async def consume(self, prompt: str = "go", *, expected: str = "run_completed", **options: Any) -> None:
        """Be the caller of a run, to its end; undisturbed that is the one which is expected."""
        self.ended, told = "", False
        with trio.CancelScope() as self.leaving:
            try:
                async with self.agent.stream(prompt, session_id=SESSION, **options) as events:
                    async for event in events:
                        assert not self.ended, f"{event.type} came after the terminal event"
                        if event.type.value in ENDS:
                            self.ended = event.type.value
                            self._check_end(event, expected)
                        self.look(event)
            except (RuleViolation, RunFailed) as error:
                self.excuse(error)
                told = True
        left = self.leaving.cancelled_caught
        self.leaving_took_s = trio.current_time() - self.left_at if left else 0.0
        self.leaving = None
        assert self.ended or told or left, "the stream ended without a terminal event"
        if self.undisturbed:
            assert self.ended == expected, f"undisturbed, the run ended with {self.ended!r}"

    def _check_end(self, event: AgentEvent, expected: str) -> None:
        if self.ended == "run_failed" != expected:
            self.excuse(RunFailed(event.code, event.error))
        elif self.ended == "run_cancelled" != expected:
            assert not self.undisturbed, "a run was cancelled that nobody disturbed"

    async def again(self, *, when_busy: WhenBusy = "reject") -> None:
        """Whatever was done to it, the session takes the next prompt and answers it.

        A fault may come only now, and a tool that does not let itself be cancelled may have to end first.
        """
        for _ in range(4):
            try:
                if when_busy == "reject":
                    answer = await self.agent.run("again", session_id=SESSION)
                else:
                    async with self.agent.stream("again", session_id=SESSION, when_busy=when_busy) as events:
                        answer = await events.final()
            except RunCancelled:
                assert not self.undisturbed, "a run was cancelled that nobody disturbed"
            except (RuleViolation, RunFailed) as error:
                if self.undisturbed:
                    raise
                self.excuse(error)
            else:
                assert answer.content == "fine", f"the next prompt was answered with {answer.content!r}"
                break
            await trio.sleep(30)
        else:
            raise AssertionError("the session does not take the next prompt")
        session = self.session
        if session is not None:  # else it was closed right now
            if self.client is not None:
                session.detach(self.client)
            await session.wait_kept()
            if session.closed is None:
                check_session(session)

    async def perform(self, *, expected: str = "run_completed", when_busy: WhenBusy = "reject") -> None:
        """Watch, be the caller, and prompt again."""
        await self.watch()
        await self.consume(expected=expected)
        await self.again(when_busy=when_busy)

    def results(self) -> dict[str, ToolMessage]:
        """Return the results in the history, by the ids of their calls."""
        history = self.agent.session(SESSION).history
        return {message.tool_call_id: message for message in history if isinstance(message, ToolMessage)}

    # ---- what must hold

    def check(self) -> None:
        """Check what is left when everything has ended."""
        if self.agent:
            check_agent(self.agent)
        self.store.check(shut=self.shut)
        for client in self._clients:
            client.check(self.store)
        for log in self.store.logs:
            given = [(call, text) for log_id, call, text in self.given if log_id == log.log_id]
            refused = [(call, text) for log_id, call, text in self.refused if log_id == log.log_id]
            # A run whose session was ended in the middle has not come to the result.
            check_answers(log.kept, given, refused)
        for log_id, seq in self.acknowledged:
            assert seq <= self.store.log(log_id).committed, f"{seq} was acknowledged and is not kept"

    def close(self) -> None:
        """The agent is closed; nothing happens any more."""
        self.over = True
        self.keeping.cancel()
        self.nursery.cancel_scope.cancel()


@asynccontextmanager
async def acting(
    stage: Stage,
    turns: Sequence[Turn] | Model,
    *,
    store: SessionStore | None = None,
    allowed: Sequence[Code] = (),
    **options: Any,
) -> AsyncGenerator[Acting]:
    """Open an agent for a scenario, with all that can happen to it.

    Args:
        stage: The sweep.
        turns: What the model says in each turn; to the prompt `again` it says `fine`.
        store: Around which a witness is put; the usual one, unless named.
        allowed: Codes with which runs and commands may fail also where nothing has happened.
        options: For `open_agent`.
    """
    inner = MemoryStore() if store is None else store
    # Whether the session goes on with its runs is another matter, with scenarios of its own.
    options.setdefault("resume", "never")
    performance = Acting(stage, WitnessStore(inner), allowed)
    stage.afterwards(performance.check)
    model = script(turns) if isinstance(turns, Sequence) else turns
    async with trio.open_nursery() as nursery:
        performance.nursery = nursery
        if isinstance(inner, SlowStore):
            nursery.start_soon(_keep, inner, performance.keeping)
        try:
            async with open_agent(model, store=performance.store, **options) as agent:
                performance.agent = agent
                performance.offer_faults()
                yield performance
        finally:
            performance.close()


async def _keep(store: SlowStore, scope: trio.CancelScope) -> None:
    # It goes on whatever becomes of those who use it, as a thread or another process would.
    with scope:
        await store.keep()
