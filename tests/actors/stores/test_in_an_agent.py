"""The store in a file as an embedder uses it: handed to `open_agent`, which opens and closes it."""

from pathlib import Path

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import AskUserExtension, ScriptedModel, open_agent
from actors.agent.ports import StoreError
from actors.models.scripted import call, say
from actors.runtime import open_system
from actors.stores import SqliteStore

QUESTION = call("ask_user", {"question": "Which?"}, id="q1")


async def test_a_conversation_goes_on_in_the_next_process(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "s.db"
    async with open_agent(ScriptedModel([say("Hello.")]), store=SqliteStore(path)) as agent:
        await agent.run("Hi", session_id="s")
        handle = agent.session("s")
        log_id, seq = handle.log_id, handle.seq
    async with open_agent(ScriptedModel([say("Again.")]), store=SqliteStore(path)) as agent:
        await agent.run("And?", session_id="s")
        handle = agent.session("s")
        assert [message.content for message in handle.history] == ["Hi", "Hello.", "And?", "Again."]
        assert handle.log_id == log_id
        assert handle.seq > seq


async def test_the_list_says_what_a_session_does_and_asks(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = SqliteStore(tmp_path / "s.db")
    async with open_agent(ScriptedModel([QUESTION]), extensions=[AskUserExtension()], store=store) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        (line,) = await store.list_sessions()
        assert (line.id, line.status, line.asks) == ("s", "waiting", 1)
        await agent.session("s").answer("q1", "this one")
        await agent.session("s").wait_idle()


async def test_a_store_that_cannot_be_opened_is_said_before_anything_starts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "s.db"
    async with open_system() as system:
        async with open_agent(ScriptedModel([say("x")]), store=SqliteStore(path), system=system):
            with pytest.raises(StoreError, match=r"s\.db"):
                async with open_agent(ScriptedModel([say("x")]), name="other", store=SqliteStore(path), system=system):
                    pytest.fail("two have one file")
        # It was let go of, also where the block of the agent is left by an error.
        with pytest.raises(ZeroDivisionError):
            async with open_agent(ScriptedModel([say("x")]), store=SqliteStore(path), system=system):
                raise ZeroDivisionError
        async with open_agent(ScriptedModel([say("x")]), store=SqliteStore(path), system=system) as agent:
            assert (await agent.run("go")).content == "x"


async def test_an_agent_that_cannot_be_made_lets_go_of_its_store(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "s.db"
    async with open_system() as system:
        async with open_agent(ScriptedModel([say("x")]), system=system):
            with pytest.raises(Exception, match="agent/all sessions"):  # the name is taken
                async with open_agent(ScriptedModel([say("x")]), store=SqliteStore(path), system=system):
                    pytest.fail("two have one name")
        async with open_agent(ScriptedModel([say("x")]), store=SqliteStore(path), system=system) as agent:
            assert (await agent.run("go")).content == "x"
