"""What of a long or large session stays in its store, and that whoever comes later misses nothing of it."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import Agent, AskUserExtension, MemoryStore, Retention, RuleViolation, ScriptedModel, open_agent, tool
from actors.agent.ports import SessionStore
from actors.models.scripted import call, say
from actors.stores import SqliteStore
from protocol import events as ev
from protocol.chat import ToolMessage
from protocol.errors import Code
from protocol.history import fold
from protocol.limits import Limits
from tests.scenarios.lives import Crash, attach
from tests.scenarios.staging import ask

LIMITS = Limits(snapshot_records=20)
PICTURE = "data:image/png;base64," + "iVBORw0K" * 12_500


class Watcher:
    """Notes what it is shown."""

    def __init__(self) -> None:
        self.seen: list[ev.Event] = []

    def offer(self, event: ev.Event) -> bool:
        self.seen.append(event)
        return True

    def closed(self, code: Code, seq: int) -> None: ...


def archived(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["record"] for line in path.read_text().splitlines()]


# ---- retention


async def talk(agent: Agent, count: int) -> None:
    for _ in range(count):
        await agent.run("go", session_id="s")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_last_records_stay_behind_a_snapshot_and_the_older_ones_go_to_the_archive(
    kind: str, autojump_clock: MockClock, tmp_path: Path
) -> None:
    archive = tmp_path / "old.jsonl"
    store: SessionStore = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "s.db", archive=archive)
    model = ScriptedModel([say("fine")], repeat=True)
    async with open_agent(model, store=store, limits=LIMITS, retention=Retention(records=30)) as agent:
        await talk(agent, 50)
        head, log_id = agent.session("s").seq, agent.session("s").log_id
        state = (await agent.open("s")).state
        assert head > 150
        loaded = await store.load("s")
        assert loaded is not None and head - 80 <= loaded.first <= head - 29, "not as many as are to be kept"
        assert fold(loaded.events, loaded.snapshot) == state
        assert len(await store.read("s", after=head - 30, limit=100)) == 30
        with pytest.raises(RuleViolation, match=r"^store\.damaged: record 1 of session 's' is not kept any more; "):
            await store.read("s", after=0, limit=100)
        first = loaded.first
    if kind == "memory":
        return
    assert [record["seq"] for record in archived(archive)] == list(range(1, first))
    async with open_agent(ScriptedModel([]), store=SqliteStore(tmp_path / "s.db"), limits=LIMITS) as agent:
        behind, before = Watcher(), Watcher()
        attached = await attach(agent, before, log_id, cursor=5)
        assert attached.mode == "snapshot" and attached.snapshot is not None
        assert [message.content for message in attached.snapshot.messages] == ["go", "fine"] * 50
        assert (await attach(agent, behind, log_id, cursor=head - 1)).mode == "tail"
        assert [event.seq for event in behind.seen] == [head]


async def test_young_records_stay_however_many_they_are(autojump_clock: MockClock, tmp_path: Path) -> None:
    archive, retention = tmp_path / "old.jsonl", Retention(records=5, age_s=3_600)
    store = SqliteStore(tmp_path / "s.db", archive=archive)
    model = ScriptedModel([say("fine")], repeat=True)
    async with open_agent(model, store=store, limits=LIMITS, retention=retention) as agent:
        await talk(agent, 30)
        assert await store.read("s", after=0, limit=1)
        last_of_the_first_hour = agent.session("s").seq
        await trio.sleep(3_601)
        await talk(agent, 15)
        loaded = await store.load("s")
        assert loaded is not None and loaded.first == last_of_the_first_hour + 1
    assert archived(archive)[-1]["seq"] == last_of_the_first_hour


async def test_everything_stays_where_nothing_is_said_of_it(autojump_clock: MockClock, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    async with open_agent(ScriptedModel([say("fine")], repeat=True), store=store, limits=LIMITS) as agent:
        await talk(agent, 30)
        assert fold(await store.read("s", after=0, limit=10_000)) == (await agent.open("s")).state


async def test_a_session_that_leaves_memory_keeps_what_is_to_be_kept(autojump_clock: MockClock, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    model = ScriptedModel([say("fine")], repeat=True)
    async with open_agent(model, store=store, idle_s=60, retention=Retention(records=2)) as agent:
        await talk(agent, 3)
        state = (await agent.open("s")).state
        await trio.sleep(120)
        assert agent.find("s") is None
        loaded = await store.load("s")
        assert loaded is not None and loaded.first == state.seq - 1
        await talk(agent, 1)
        assert len(agent.session("s").history) == 8


# ---- large parts


def rows(path: Path, query: str) -> Any:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


async def test_large_texts_of_results_and_answers_are_kept_beside_the_records_and_nobody_sees_a_difference(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    long_answer = "because " * 12_500

    @tool
    async def draw() -> str:
        """Draw a picture."""
        return PICTURE

    path, extensions, live = tmp_path / "s.db", [AskUserExtension()], Watcher()
    turns = [call("draw", id="c1"), ask("q1"), ask("q2")]
    try:
        store = SqliteStore(path)
        async with open_agent(ScriptedModel(turns), store=store, tools=[draw], extensions=extensions) as agent:
            await agent.open("s")
            await attach(agent, live)
            await agent.session("s").prompt("go")
            await wait_all_tasks_blocked()
            await agent.session("s").answer("q1", long_answer)
            await wait_all_tasks_blocked()
            state = (await agent.open("s")).state
            raise Crash
    except* Crash:
        pass
    assert rows(path, "SELECT max(length(body)) FROM events")[0][0] < 5_000
    assert rows(path, "SELECT count(*) FROM blobs")[0][0] >= 2
    async with open_agent(ScriptedModel([say("done")]), store=SqliteStore(path), extensions=extensions) as agent:
        log = await agent.store.read("s", after=0, limit=100)
        assert [event for event in log if event.seq > 1] == [event for event in live.seen if event.durable]
        assert fold(log) == state
        again = Watcher()
        attached = await attach(agent, again)
        assert attached.snapshot is not None
        results = [message.content for message in attached.snapshot.messages if isinstance(message, ToolMessage)]
        assert results[0] == PICTURE and long_answer in results[1]
        await agent.session("s").answer("q2", "yes")
        await agent.session("s").wait_idle()
