"""What the tests of the command share."""

import logging
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from actors import AskUserExtension, ScriptedModel, open_agent
from actors.models.scripted import call, say
from actors.stores import SqliteStore


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """The command sets up logging for its process; the tests go on in theirs."""
    logger = logging.getLogger("actors")
    before = (logger.level, logger.propagate, list(logger.handlers))
    yield
    logger.level, logger.propagate, logger.handlers[:] = before


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command keeps is kept here and not in the folder of whoever runs the tests."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "platform", "linux")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store with three sessions: done, with an open question, and an empty one."""
    path = tmp_path / "store.db"
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    async def fill() -> None:
        ask = call("ask_user", {"question": "Which channel?", "options": ["stable", "beta"]})
        model = ScriptedModel([say("All **done**."), ask])
        async with open_agent(model, extensions=[AskUserExtension()], store=SqliteStore(path)) as agent:
            await agent.run("Ship it.", session_id="alpha")
            handle = agent.session("beta")
            await handle.prompt("Ask me.")
            await trio.testing.wait_all_tasks_blocked()
            await agent.open_session("gamma")

    trio.run(fill)
    yield str(path)
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def damage() -> Callable[[str, str], None]:
    """Something that damages a session's second record, given the store and the session."""

    def damage(store: str, session: str) -> None:
        connection = sqlite3.connect(store)
        (key,) = connection.execute("SELECT id FROM sessions WHERE name = ?", (session,)).fetchone()
        connection.execute("UPDATE events SET body = x'7b7d' WHERE session = ? AND seq = 2", (key,))
        connection.execute("DELETE FROM snapshots WHERE session = ?", (key,))
        connection.commit()
        connection.close()

    return damage
