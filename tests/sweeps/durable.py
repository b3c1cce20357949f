"""Scenarios of sessions that outlive their process: whatever ends it, another one goes on from what was kept.

The store is a file. After each play another agent opens it, and the run of the first one comes to its end there.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import trio

from actors import Agent, AgentExtension, AgentRunContext, RuleViolation, open_agent, tool
from actors.models.scripted import call, say
from actors.stores import SqliteStore
from actors.testing.sweep import Stage, scenario
from protocol import events as ev
from protocol.chat import AssistantMessage
from protocol.errors import Code
from protocol.history import Ack, fold
from protocol.resume import QUESTION, ResumeMode
from tests.faults.invariants import check_answers, check_log
from tests.sweeps.asks import ASK, question
from tests.sweeps.meddling import SESSION
from tests.sweeps.script import script
from tests.sweeps.tools import PLAN, PLANNED
from tests.sweeps.witness import check_cancelled

TURNS = [
    PLANNED[0],
    [question("q1"), call("once", id="o1"), call("safely", id="s1")],
    [question("q2")],
    call("once", id="o2"),
    say("done"),
]
FAULTS = [
    "cancel", "request", "session", "stop", "error", "session,request", "request,session", "request,stop",
    "session+1:cancel", "request+1:cancel", "session+3:session",
]  # fmt: skip
IDLE_S = 60.0


class Listener(AgentExtension):
    """Takes a moment for every event, and for the end of every turn."""

    async def on_event(self, context: AgentRunContext, event: object) -> None:
        await trio.lowlevel.checkpoint()

    async def after_turn(self, context: AgentRunContext, result: AssistantMessage) -> None:
        await trio.lowlevel.checkpoint()


class Lives:
    """One session, and all who serve it one after the other.

    Attributes:
        agent: Who serves it now.
        effects: What tools did, with the key they did it under.
        given: The answers that were acknowledged.
        acknowledged: The commands that were.
    """

    def __init__(self, path: Path, resume: ResumeMode, extensions: Sequence[AgentExtension]) -> None:
        self.agent: Agent | None = None
        self.effects: list[tuple[str, str]] = []
        self.given: dict[str, str] = {}
        self.acknowledged: list[Ack] = []
        self._path = path
        self._resume: ResumeMode = resume
        self._extensions = [PLAN, ASK, *extensions]

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[Agent]:
        """Be a process, with somebody who answers what is asked."""

        @tool
        async def once(context: AgentRunContext) -> str:
            """Do what must not be done twice."""
            self.effects.append(("once", context.idempotency_key))
            for _ in range(5):
                await trio.sleep(0.2)
            return "done"

        @tool(retry="safe")
        async def safely(context: AgentRunContext) -> str:
            """Do what may be done again."""
            self.effects.append(("safely", context.idempotency_key))
            await trio.sleep(1)
            return "done"

        tools: list[Any] = [once, safely]
        async with open_agent(
            script(TURNS), store=SqliteStore(self._path), tools=tools, extensions=self._extensions, idle_s=IDLE_S,
            resume=self._resume,
        ) as agent:  # fmt: skip
            self.agent = agent
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._answer, agent, name="a person")
                yield agent
                nursery.cancel_scope.cancel()

    async def _answer(self, agent: Agent) -> None:
        while True:
            await trio.sleep(3)
            for one in agent.session(SESSION).asks:
                text = "continue" if one.questions == (QUESTION,) else f"this, {len(self.given)}"
                try:
                    await agent.session(SESSION).answer(one.tool_call_id, text)
                except RuleViolation as error:
                    excuse(error)
                else:
                    self.given[one.tool_call_id] = text

    # ---- what can happen

    def request(self) -> None:
        """Somebody cancels the run."""
        session = self.agent.find(SESSION) if self.agent is not None else None
        if session is not None and session.state.root:
            session.leave(self.acknowledged.append, session.cancel("", reason="swept"))

    def shut(self) -> None:
        """The record of the session is ended in the middle."""
        session = self.agent.find(SESSION) if self.agent is not None else None
        if session is not None:
            session.shut(RuleViolation(Code.SESSION_CLOSED, "swept"))

    def stop(self) -> None:
        """The session's actor is stopped."""
        ref = self.agent.ref(SESSION) if self.agent is not None else None
        if ref is not None:
            ref.stop("swept")

    # ---- what must hold

    async def check(self) -> None:
        """Let another process go on, and look at all that was kept."""
        async with self.serve() as agent:
            handle = await agent.wake_session(SESSION)
            if handle is None:
                assert not self.effects and not self.acknowledged, "what has happened is not kept"
                return
            await handle.wait_idle()
            session = await agent.open(SESSION)
            await session.wait_committed(session.state.seq)
            log = list(await agent.store.read(SESSION, after=0, limit=100_000))
            assert fold(log) == session.state, "the fold of the log is not the state"
        check_log(log)
        check_cancelled(log)
        check_answers(log, self.given.items())
        assert all(ack.seq <= len(log) for ack in self.acknowledged)
        done = Counter(self.effects)
        assert all(count == 1 for (name, _), count in done.items() if name == "once"), "a call was run twice"
        started = {event.tool_call_id for event in log if isinstance(event, ev.ToolStarted)}
        log_id = session.state.log_id
        assert {key for _, key in done} <= {f"{log_id}/{call_id}" for call_id in started}, "a call had another key"


def excuse(error: RuleViolation) -> None:
    """Raise this again, unless it may come of a session that ends or goes on elsewhere."""
    if error.code not in (Code.SESSION_CLOSED, Code.SESSION_BUSY, Code.ASK_SETTLED, Code.ASK_UNKNOWN):
        raise error


@asynccontextmanager
async def lives(
    stage: Stage, *, resume: ResumeMode = "auto", extensions: Sequence[AgentExtension] = ()
) -> AsyncGenerator[Lives]:
    """Offer the faults, and have it checked what is left afterwards."""
    folder = Path(mkdtemp())
    one = Lives(folder / "sessions.sqlite", resume, extensions)

    async def check() -> None:
        try:
            await one.check()
        finally:
            rmtree(folder)

    stage.afterwards(check)
    stage.fault("request", one.request)
    stage.fault("session", one.shut)
    stage.fault("stop", one.stop)
    yield one


@scenario(faults=FAULTS, errors_in="r*")
async def run_that_outlives_its_process(stage: Stage) -> None:
    """A list, questions and tools, one of which must not be run twice; addressed again until all of it is over."""
    async with lives(stage) as one, one.serve() as agent:
        await _work(stage, agent)


@scenario(faults=FAULTS, errors_in="r*")
async def run_that_a_person_continues(stage: Stage) -> None:
    """The same, and it is cut off while the tools are at work; each time a person says that it is to go on.

    Somebody hears of each phase, and takes a moment for it: also when a run enters again.
    """
    async with lives(stage, resume="ask", extensions=[Listener()]) as one, one.serve() as agent:

        async def cut_off() -> None:
            await trio.sleep(0.5)
            one.shut()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_off)
            await _work(stage, agent)


async def _work(stage: Stage, agent: Agent) -> None:
    handle = agent.session(SESSION)
    for _ in range(6):
        try:
            await handle.prompt("go", command="p1")
        except RuleViolation as error:
            excuse(error)
        await handle.wait_idle()
        await trio.sleep(30)
    log = await agent.store.read(SESSION, after=0, limit=1_000)
    ends = [event for event in log if isinstance(event, ev.RUN_ENDS)]
    assert len(ends) == 1, "the run has not come to its one end"
    if not stage.struck:
        assert isinstance(ends[0], ev.RunCompleted)


@scenario(faults=FAULTS, errors_in="r*")
async def session_that_leaves_memory(stage: Stage) -> None:
    """It is idle for a while, comes back with the next prompt, and leaves again.

    In the end its process leaves in order, while the last record is on its way to the disk.
    """
    async with lives(stage) as one, one.serve() as agent:
        handle = agent.session(SESSION)
        for number in range(3):
            for _ in range(4):
                try:
                    await handle.prompt("again", command=f"p{number}")
                    break
                except RuleViolation as error:
                    excuse(error)
            await handle.wait_idle()
            await trio.sleep(2 * IDLE_S)
            session = agent.find(SESSION)
            # One that waits, or was cut off right now, is there.
            assert session is None or session.state.root or stage.struck, "it is idle and did not leave memory"
        try:
            (await agent.open(SESSION)).append([ev.Custom("the last one")])
        except RuleViolation as error:
            excuse(error)
