"""The scenario of the sweep, what interferes with it, and what must hold afterwards.

One run: a todo list and two parallel tools, then two asks, of which one is answered within its delivery and the other
late, then a final text; after it another prompt. Knows nothing of how the runtime is made but its public entry and the
records of a session.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import trio

from actors import (
    Agent,
    AgentEventType,
    AgentRunConfig,
    ExternalEvent,
    RuleViolation,
    RunCancelled,
    RunFailed,
    ScriptedModel,
    open_agent,
)
from actors.agent.memory import MemoryStore
from actors.agent.session import Session
from actors.runtime import System, open_system
from protocol import decisions
from protocol import events as ev
from protocol.errors import Code
from protocol.history import fold
from tests.faults.invariants import check_agent, check_answers, check_log, check_session
from tests.faults.script import EXTENSIONS, TOOLS, make_store, turn

SESSION = "s"
ACTS = ("cancel", "outer", "answer", "answer cancel", "cancel answer", "answer outer", "outer answer", "close")
NEVER = 10**9


@dataclass(frozen=True, slots=True)
class Case:
    """One interference.

    Attributes:
        act: Words of `ACTS`, done at once, one after the other; "" for none.
        step: Before which task step; `NEVER` for none.
        second: A further cancel so many steps later; 0 for none.
        seed: Of the scheduler.
        store: One of `script.STORES`, or "lying".
        fails_at: Which append fails, or lies.
    """

    act: str = ""
    step: int = NEVER
    second: int = 0
    seed: int = 0
    store: str = "memory"
    fails_at: int = 0


class Found(AssertionError):
    """An invariant does not hold."""


@dataclass(slots=True)
class Stage:
    """What the interference needs, and what was seen."""

    case: Case
    outer: trio.CancelScope = field(default_factory=trio.CancelScope)
    agent: Agent | None = None
    sessions: list[Session] = field(default_factory=list[Session])
    acknowledged: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    closed: bool = False
    errors: list[BaseException] = field(default_factory=list[BaseException])
    seen: list[ev.Event] = field(default_factory=list[ev.Event])
    steps: int = 0

    # ---- the interference; synchronous, between two task steps

    def interfere(self, words: str) -> None:
        try:
            for word in words.split():
                getattr(self, f"_{word}")()
        except RuleViolation as error:
            if error.code != Code.STORE_FAILED or "failing" not in self.case.store:
                self.errors.append(error)
        except Exception as error:  # an instrument that raises is only logged
            self.errors.append(error)

    @property
    def session(self) -> Session | None:
        return self.agent.find(SESSION) if self.agent is not None else None

    def _cancel(self) -> None:
        session = self.session
        if session is not None:
            session.act("", decisions.cancel, reason="swept")

    def _outer(self) -> None:
        self.outer.cancel(reason="swept")

    def _close(self) -> None:
        session = self.session
        if session is not None:
            self.closed = True
            session.shut(RuleViolation(Code.SESSION_CLOSED, "swept"))

    def _answer(self) -> None:
        session = self.session
        if session is not None:
            self.answer(session, "q2", "swept")

    def answer(self, session: Session, call_id: str, text: str) -> bool:
        """Answer, and note whether that was acknowledged: after commit, or where it was refused."""
        try:
            session.act("", decisions.answer, call_id, {"tool_call_id": call_id, "answer": text})
        except RuleViolation:
            self.refused.append((call_id, text))
            return False
        session.leave(self.acknowledged.append, (call_id, text))
        return True

    # ---- a client that answers within the delivery of the question

    def offer(self, event: ev.Event) -> bool:
        if event.durable:
            self.seen.append(event)
        if isinstance(event, ev.AskOpened) and event.ask.tool_call_id == "q1":
            try:
                self._answer_at_once()
            except Exception as error:
                self.errors.append(error)
        return True

    def _answer_at_once(self) -> None:
        session = self.session
        if session is None:
            return
        settled = session.state.settled or {}
        if not self.answer(session, "q1", "at once") and "q1" not in {**settled, **(session.state.asks or {})}:
            raise Found("an ask was seen before it could be answered")


class _Client:
    """The reader that `Stage` is to a session."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def offer(self, event: ev.Event) -> bool:
        return self.stage.offer(event)

    def closed(self, code: Code, seq: int) -> None: ...


class Interference(trio.abc.Instrument):
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        stage, case = self.stage, self.stage.case
        stage.steps += 1
        if stage.steps == case.step:
            stage.interfere(case.act)
        elif case.second and stage.steps == case.step + case.second:
            stage.interfere("cancel")


async def _consume(stage: Stage, agent: Agent) -> None:
    """The caller of the run: looks at everything, and answers the second question late."""
    ended: list[AgentEventType] = []
    try:
        async with agent.stream("go", session_id=SESSION) as events:
            async with trio.open_nursery() as nursery:
                async for event in events:
                    assert not ended, f"{event.type} came after the terminal event"
                    if event.type.value in ("run_completed", "run_failed", "run_cancelled"):
                        ended.append(event.type)
                    if event.name == "ask_user" and event.payload.get("tool_call_id") == "q2":
                        nursery.start_soon(_answer_late, agent)
                nursery.cancel_scope.cancel()
    except* (RuleViolation, RunFailed) as group:
        for error in _leaves(group):
            allowed = (Code.STORE_FAILED,) if "failing" in stage.case.store else ()
            if stage.closed:
                allowed = (Code.SESSION_CLOSED, *allowed)
            if error.code not in allowed:
                raise
    else:
        assert ended, "the stream ended without a terminal event"


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[Any]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _answer_late(agent: Agent) -> None:
    await trio.sleep(10)
    event = ExternalEvent("ask_user_response", {"tool_call_id": "q2", "answer": "late"})
    agent.emit_external_event(event, config=AgentRunConfig(session_id=SESSION))


async def perform(stage: Stage) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    systems: list[System] = []
    async with trio.open_nursery() as keeping:
        store = make_store(stage.case.store, stage.case.fails_at, keeping)
        with stage.outer:
            async with open_system() as system:
                systems.append(system)
                model = ScriptedModel([turn], repeat=True)
                async with open_agent(
                    model, tools=TOOLS, extensions=EXTENSIONS, store=store, system=system
                ) as agent:  # fmt: skip
                    stage.agent = agent
                    await _scene(stage, agent)
        kept = _kept(store)
        keeping.cancel_scope.cancel()
    after = trio.lowlevel.current_statistics().tasks_living
    assert after == before, f"{after - before} tasks are left"
    if stage.agent is not None:
        check_agent(stage.agent)
    for system in systems:
        assert len(system.registry) == 0 and system.statistics().actors == 0, "actors are left"
    _check(stage, kept)


async def _scene(stage: Stage, agent: Agent) -> None:
    client = _Client(stage)
    try:
        session = await agent.open(SESSION)
    except RuleViolation as error:
        if error.code != Code.STORE_FAILED:
            raise
    else:
        stage.sessions.append(session)
        session.attach(client)
        await _consume(stage, agent)
        session.detach(client)
    # Whatever was done to it, the session takes the next prompt. A cancel of it may still be on its way.
    for _ in range(3):
        try:
            answer = await agent.run("again", session_id=SESSION)
        except RunCancelled:
            continue
        except (RuleViolation, RunFailed) as error:
            if error.code in (Code.STORE_FAILED, Code.SESSION_CLOSED):
                continue
            raise
        assert answer.content == "fine"
        break
    else:
        raise Found("the session does not take the next prompt")
    last = agent.find(SESSION)
    if last is not None:  # else it was closed, or its store failed, right now
        if last not in stage.sessions:
            stage.sessions.append(last)
        await last.wait_kept()
        if last.closed is None:
            check_session(last)


def _kept(store: Any) -> list[ev.Event]:
    """What a store still has when the agent is closed; the memory store has forgotten it."""
    if isinstance(store, MemoryStore) or SESSION not in store.logs:
        return []
    return list(store.logs[SESSION].events)


def _check(stage: Stage, kept: list[ev.Event]) -> None:
    for error in stage.errors:
        raise Found(f"the interference met {error!r}") from error
    failing = "failing" in stage.case.store
    outer = stage.outer.cancelled_caught
    for session in stage.sessions:
        if session.closed is None or not (failing or stage.closed):
            check_log(session.log)
            assert fold(session.log) == session.state, "the fold of the log is not the live state"
        assert not session.lives and not session.callers, "runs are left"
        assert not session._waiters and not session._outbox, "waiters are left"  # pyright: ignore[reportPrivateUsage]
        assert not session._readers, "readers are left"  # pyright: ignore[reportPrivateUsage]
    if stage.case.store != "memory":
        check_log(kept, over=not (outer and (failing or stage.closed)))
        check_answers(kept, stage.acknowledged, stage.refused)
        if stage.seen:
            start = stage.seen[0].seq - 1
            assert stage.seen == kept[start : start + len(stage.seen)], "a client saw what is not kept"
    elif not stage.closed and stage.sessions:
        check_answers(stage.sessions[-1].log, stage.acknowledged, stage.refused)
