"""The sweep: play one scenario, interfere at its k-th task step, check what must hold; for every k.

The scheduler is seeded and the clock virtual, so a finding is repeated by its `Case`. A case is one interference with
one store; `play` raises `Found` with the case in it. Knows nothing of how the runtime is made but its public entry and
the records of a session.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio
from trio.testing import MockClock

from actors import (
    Agent,
    AgentEventType,
    AgentRunConfig,
    AskUserExtension,
    ExternalEvent,
    ModelRequest,
    RuleViolation,
    RunCancelled,
    RunFailed,
    ScriptedModel,
    TodoWriteExtension,
    UserMessage,
    open_agent,
    tool,
)
from actors.agent.memory import MemoryStore
from actors.agent.session import Session
from actors.models.scripted import Step, call, say
from actors.runtime import System, open_system
from protocol import decisions
from protocol import events as ev
from protocol.errors import Code
from protocol.history import fold
from tests.faults.invariants import check_agent, check_answers, check_log, check_session
from tests.faults.stores import FailingStore, LyingStore, SlowStore

SESSION = "s"
ACTS = ("cancel", "outer", "answer", "answer cancel", "cancel answer", "answer outer", "outer answer", "close")
STORES = ("memory", "slow", "slow clock", "failing", "failing later")
NEVER = 10**9


@dataclass(frozen=True, slots=True)
class Case:
    """One interference.

    Attributes:
        act: Words of `ACTS`, done at once, one after the other; "" for none.
        step: Before which task step; `NEVER` for none.
        second: A further cancel so many steps later; 0 for none.
        seed: Of the scheduler.
        store: One of `STORES`, or "lying".
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
class _Stage:
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
    """The reader that `_Stage` is to a session."""

    def __init__(self, stage: _Stage) -> None:
        self.stage = stage

    def offer(self, event: ev.Event) -> bool:
        return self.stage.offer(event)

    def closed(self, code: Code, seq: int) -> None: ...


class _Interference(trio.abc.Instrument):
    def __init__(self, stage: _Stage) -> None:
        self.stage = stage

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        stage, case = self.stage, self.stage.case
        stage.steps += 1
        if stage.steps == case.step:
            stage.interfere(case.act)
        elif case.second and stage.steps == case.step + case.second:
            stage.interfere("cancel")


# ---- the scenario


def _turn(request: ModelRequest) -> Step | Sequence[Step]:
    last = next(m for m in reversed(request.messages) if isinstance(m, UserMessage))
    if last.content == "again":
        return say("fine")
    match request.turn:
        case 1:
            items = [("read", "in_progress"), ("write", "pending"), ("test", "pending")]
            plan = call("todo_write", {"todos": [{"content": c, "status": s} for c, s in items]}, id="t1")
            return [say("hm "), plan, call("fetch", {"n": 1}, id="f1"), call("fetch", {"n": 2}, id="f2")]
        case 2:
            return [call("ask_user", {"question": "Which?"}, id="q1"), call("ask_user", {"question": "Why?"}, id="q2")]
        case _:
            return say("done")


@tool
async def fetch(n: int) -> str:
    """Take a while.

    Args:
        n: Seconds.
    """
    await trio.sleep(n)
    return f"fetched {n}"


# Tools and extensions hold configuration only, so every case may use the same.
_TOOLS = (fetch,)
_EXTENSIONS = (TodoWriteExtension(), AskUserExtension())


def _make_store(case: Case, nursery: trio.Nursery) -> Any:
    match case.store:
        case "memory":
            return MemoryStore()
        case "slow" | "slow clock":
            store = SlowStore(checkpoints=2, delay_s=0.5 if case.store == "slow clock" else 0.0)
            nursery.start_soon(store.keep)
            return store
        case "failing":
            return FailingStore(case.fails_at)
        case "failing later":

            async def report(later: Callable[[], None]) -> None:
                await trio.lowlevel.checkpoint()
                later()

            return FailingStore(case.fails_at, later=lambda later: nursery.start_soon(report, later))
        case _:
            return LyingStore(case.fails_at)


async def _consume(stage: _Stage, agent: Agent) -> None:
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


async def _main(stage: _Stage) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    systems: list[System] = []
    async with trio.open_nursery() as keeping:
        store = _make_store(stage.case, keeping)
        with stage.outer:
            async with open_system() as system:
                systems.append(system)
                model = ScriptedModel([_turn], repeat=True)
                async with open_agent(
                    model, tools=_TOOLS, extensions=_EXTENSIONS, store=store, system=system
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


async def _scene(stage: _Stage, agent: Agent) -> None:
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
    logs = store._logs if isinstance(store, MemoryStore) else store.logs  # pyright: ignore[reportPrivateUsage]
    return list(logs[SESSION].events) if SESSION in logs else []


def _check(stage: _Stage, kept: list[ev.Event]) -> None:
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


def play(case: Case) -> int:
    """Play one case and return its number of task steps.

    Raises:
        Found: An invariant does not hold; names the case.
    """
    runner: Any = trio._core._run
    runner._ALLOW_DETERMINISTIC_SCHEDULING = True
    runner._r.seed(case.seed)
    stage = _Stage(case)
    ignored: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, ignored.append
    try:
        trio.run(_guarded, stage, clock=MockClock(autojump_threshold=0), instruments=[_Interference(stage)])
    except BaseException as error:
        raise Found(f"{case}: {_first(error)!r}") from error
    finally:
        sys.unraisablehook = hook
        runner._ALLOW_DETERMINISTIC_SCHEDULING = False
    if ignored:
        raise Found(f"{case}: ignored {ignored[0].exc_value!r} in {ignored[0].object!r}")
    return stage.steps


async def _guarded(stage: _Stage) -> None:
    with trio.fail_after(10_000):  # virtual: reached when every task waits for ever
        await _main(stage)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def sweep(cases: Iterator[Case]) -> tuple[int, list[Found]]:
    """Play cases; return how many, and what was found."""
    played, found = 0, list[Found]()
    for case in cases:
        played += 1
        try:
            play(case)
        except Found as error:
            found.append(error)
    return played, found


def every_step(
    *, stores: Sequence[str], acts: Sequence[str] = ACTS, seeds: Sequence[int] = (0,), stride: int = 1,
    seconds: Sequence[int] = (0,), fails_at: Sequence[int] = (0,),
) -> Iterator[Case]:  # fmt: skip
    """Yield a case for every `stride`-th step of the scenario, with an offset that differs from act to act."""
    for store in stores:
        for seed in seeds:
            for fails in fails_at:
                steps = play(Case(seed=seed, store=store, fails_at=fails))
                for number, act in enumerate(acts):
                    for second in seconds:
                        for step in range(1 + (number + seed) % stride, steps + 1, stride):
                            yield Case(act, step, second, seed, store, fails)
