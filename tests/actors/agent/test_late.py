"""An event that finds its session out of memory waits until it is back, and is dropped where there is none."""

import logging
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    AgentExtension,
    AgentRunConfig,
    AskUserExtension,
    ExternalEvent,
    MemoryStore,
    ScriptedModel,
    open_agent,
)
from actors.agent.ports import StoreError
from actors.models.scripted import say, stall
from actors.stores import SqliteStore
from protocol.limits import Limits
from tests.scenarios.lives import Crash
from tests.scenarios.staging import ask

S = AgentRunConfig(session_id="s")


def answer(tool_call_id: object = "q1", text: str = "yes") -> ExternalEvent:
    return ExternalEvent("ask_user_response", {"tool_call_id": tool_call_id, "answer": text})


class Asked(AgentExtension):
    """Notes what it was offered, and takes what it is to take."""

    def __init__(self, takes: str = "") -> None:
        self.offered: list[str] = []
        self.takes = takes

    def accept(self, config: AgentRunConfig | None, event: ExternalEvent) -> bool:
        self.offered.append(event.name)
        return event.name == self.takes


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store with the session s, whose process has died while a question was open."""
    try:
        async with open_agent(
            ScriptedModel([ask("q1")]), store=SqliteStore(tmp_path / "s.db"), extensions=[AskUserExtension()]
        ) as agent:
            await agent.session("s").prompt("go")
            await wait_all_tasks_blocked()
            raise Crash
    except* Crash:
        pass
    return tmp_path / "s.db"


async def test_an_answer_brings_its_session_back_and_is_used_once(autojump_clock: MockClock, path: Path) -> None:
    model, extensions = ScriptedModel([say("done")]), [AskUserExtension()]
    async with open_agent(model, store=SqliteStore(path), extensions=extensions) as agent:
        assert agent.emit_external_event(answer(), config=S) == [], "nobody has it in memory"
        assert agent.emit_external_event(answer(text="no"), config=S) == []
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None and not session.state.root
        assert '"answer":"yes"' in session.state.messages[-2].content and session.state.messages[-1].content == "done"
        assert not agent.late
        assert agent.emit_external_event(answer(), config=S) == [], "it was answered"


async def test_from_another_thread_it_does_the_same(autojump_clock: MockClock, path: Path) -> None:
    async with open_agent(
        ScriptedModel([say("done")]), store=SqliteStore(path), extensions=[AskUserExtension()]
    ) as agent:
        emit = agent.emit_external_event
        assert await trio.to_thread.run_sync(lambda: emit(answer(), config=S)) == []
        await wait_all_tasks_blocked()
        assert agent.session("s").history[-1].content == "done"


@pytest.mark.parametrize(
    ("event", "config"),
    [
        (answer(), None),
        (answer(), AgentRunConfig()),
        (answer(7), S),
        (ExternalEvent("deployed", {}), S),
    ],
)
async def test_a_broadcast_and_what_names_no_call_reach_what_is_in_memory(
    event: ExternalEvent, config: AgentRunConfig | None, autojump_clock: MockClock, path: Path
) -> None:
    asked = Asked()
    async with open_agent(ScriptedModel([]), store=SqliteStore(path), extensions=[asked, AskUserExtension()]) as agent:
        assert agent.emit_external_event(event, config=config) == []
        await wait_all_tasks_blocked()
        assert agent.find("s") is None and asked.offered == [event.name]


async def test_what_somebody_has_accepted_is_offered_once(autojump_clock: MockClock, path: Path) -> None:
    asked = Asked("ask_user_response")
    async with open_agent(ScriptedModel([]), store=SqliteStore(path), extensions=[asked]) as agent:
        assert agent.emit_external_event(answer(), config=S) == ["Asked"]
        await wait_all_tasks_blocked()
        assert agent.find("s") is None and len(asked.offered) == 1


async def test_without_a_store_that_lasts_there_is_nothing_to_bring_back(autojump_clock: MockClock) -> None:
    asked = Asked()
    async with open_agent(ScriptedModel([]), extensions=[asked]) as agent:
        assert agent.emit_external_event(answer(), config=S) == []
        await wait_all_tasks_blocked()
        assert len(asked.offered) == 1 and not agent.late


async def test_an_event_for_a_session_that_is_nowhere_is_dropped(autojump_clock: MockClock, path: Path) -> None:
    asked = Asked()
    async with open_agent(ScriptedModel([]), store=SqliteStore(path), extensions=[asked]) as agent:
        agent.emit_external_event(answer(), config=AgentRunConfig(session_id="other"))
        await wait_all_tasks_blocked()
        assert agent.find("other") is None and len(asked.offered) == 1 and not agent.late


class Held(MemoryStore):
    """Loads when it is let, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.let = trio.Event()
        self.error: Exception | None = None

    async def load(self, session_id: str) -> Any:
        await self.let.wait()
        if self.error is not None:
            raise self.error
        return await super().load(session_id)


async def test_only_so_many_events_wait_for_one_session(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store, asked = Held(), Asked()
    async with open_agent(
        ScriptedModel([]), store=store, extensions=[asked], limits=Limits(mailbox_size=3)
    ) as agent:
        for _ in range(5):
            agent.emit_external_event(answer(), config=S)
        assert len(agent.late["s"]) == 3
        store.let.set()
        await wait_all_tasks_blocked()
    assert len(asked.offered) == 5 and not agent.late, "there is no such session, so nothing is offered again"
    assert caplog.messages.count("session s: 3 events wait for it already, one more is dropped") == 2


async def test_a_store_that_fails_is_told_of(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    store = Held()
    store.error = StoreError("the disk is full")
    store.let.set()
    async with open_agent(ScriptedModel([]), store=store, extensions=[Asked()]) as agent:
        agent.emit_external_event(answer(), config=S)
        await wait_all_tasks_blocked()
        assert not agent.late
    assert "session s was not brought back for an event: store.failed: the disk is full" in caplog.messages


async def test_an_agent_that_closes_does_not_wait_for_them(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with open_agent(ScriptedModel([stall()]), store=Held(), extensions=[Asked()]) as agent:
        agent.emit_external_event(answer(), config=S)
        await wait_all_tasks_blocked()
        assert list(agent.late) == ["s"]
    assert not agent.late
    assert agent.emit_external_event(answer(), config=S) == [] and not agent.late


async def test_where_there_are_as_many_actors_as_may_be_it_is_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_agent(
        ScriptedModel([]), store=MemoryStore(), extensions=[Asked()], limits=Limits(max_sessions=1)
    ) as agent:
        await agent.open("other")
        agent.emit_external_event(answer(), config=S)
        assert not agent.late
    assert "session s was not brought back for an event: " in caplog.text
