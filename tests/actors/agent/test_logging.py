"""What is logged: sessions, runs and outcomes by their ids; never what was said, asked, answered or given to a tool."""

import logging

import pytest
from trio.testing import MockClock

from actors import AskUserExtension, TodoWriteExtension, open_agent
from actors.models.scripted import ScriptedModel, call, say

SECRETS = ("the prompt", "the question", "the answer", "the item", "the text")


async def test_a_run_is_logged_by_its_ids_and_nothing_of_its_contents_is(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    todos = [{"content": "the item", "status": "in_progress"}]
    turns = [
        [call("todo_write", {"todos": todos}, id="c1"), call("ask_user", {"question": "the question"}, id="c2")],
        say("the text"),
    ]
    with caplog.at_level(logging.DEBUG, logger="actors"):
        extensions = [TodoWriteExtension(), AskUserExtension()]
        async with open_agent(ScriptedModel(turns), extensions=extensions) as agent:
            async with agent.stream("the prompt", session_id="s") as events:
                async for event in events:
                    if event.name == "ask_user":
                        await agent.session("s").answer("c2", "the answer")
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("actors.")]
    assert "session s run r2 started" in lines
    assert "session s run r2: call c1 of todo_write completed" in lines
    assert "session s run r2 completed after 2 turns" in lines
    assert not [line for line in lines for secret in SECRETS if secret in line]
