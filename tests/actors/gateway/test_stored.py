"""A client meets sessions of an earlier process: they are listed, and come back when they are addressed."""

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import AskUserExtension, RuleViolation, ScriptedModel, open_agent
from actors.gateway.calls import perform
from actors.gateway.watch import EventEncoder, Watch
from actors.models.scripted import say
from actors.stores import SqliteStore
from protocol import commands as cmd
from protocol import link as rules
from protocol.errors import Code
from tests.scenarios.lives import Crash
from tests.scenarios.staging import ask


class Caller:
    """A link that notes what it is told."""

    def __init__(self) -> None:
        self.state = rules.Link(protocol=1)
        self.watches: dict[str, Watch] = {}
        self.joining: Watch | None = None
        self.ended = False
        self.encoder = EventEncoder()
        self.frames: list[bytes] = []

    def identify(self, client: str) -> None: ...

    def start(self, task: Any) -> None: ...

    def queue_event(self, watch: Watch, frame: bytes, seq: int) -> bool:
        self.frames.append(frame)
        return True

    def watch_closed(self, watch: Watch, code: Code, seq: int) -> None: ...


async def test_a_client_answers_a_question_of_an_earlier_process_b07(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    path, extensions = tmp_path / "store", [AskUserExtension()]
    try:
        async with open_agent(ScriptedModel([ask("q1")]), store=SqliteStore(path), extensions=extensions) as agent:
            await agent.session("s").prompt("go")
            await wait_all_tasks_blocked()
            raise Crash
    except* Crash:
        pass
    async with open_agent(ScriptedModel([say("done")]), store=SqliteStore(path), extensions=extensions) as agent:
        caller, replies = Caller(), list[Any]()

        async def call(params: cmd.Params) -> Any:
            await perform(agent, caller, params, replies.append)
            await wait_all_tasks_blocked()
            return replies.pop()

        listed = await call(cmd.List())
        assert [(info.session, info.status, info.open_asks) for info in listed["sessions"]] == [("s", "waiting", 1)]
        attached = await call(cmd.Attach(session="s"))
        assert attached.mode == "snapshot" and [one.tool_call_id for one in attached.snapshot.asks] == ["q1"]
        await call(cmd.Answer(session="s", ask="q1", answer="yes"))
        assert b"run_completed" in caller.frames[-1]
        with pytest.raises(RuleViolation, match=r"^session\.unknown: no session has this id; "):
            await call(cmd.GetState(session="other"))
        agent.find("s").detach(caller.watches["s"])  # type: ignore[union-attr]
