"""Public failures of systems like this one around restarts, replayed over stores that last. Names have their ids."""

import json
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    Agent,
    AskUserExtension,
    ModelError,
    RuleViolation,
    TodoWriteExtension,
    tool,
)
from actors.agent.serving import Attached
from actors.models.scripted import call, fail, say, stall
from protocol import commands as cmd
from protocol import events as ev
from protocol.chat import ToolMessage
from protocol.errors import Code
from protocol.history import State, fold
from tests.faults.invariants import check_history, check_log
from tests.scenarios.lives import KINDS, Disk, life
from tests.scenarios.staging import ask, write


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return Disk(request.param, tmp_path)


class Client:
    """Whoever watches the session s: what it has applied, over all its connections.

    Attributes:
        sent: How many durable events it was sent, those twice that came twice.
        last: Which was the last one.
    """

    def __init__(self) -> None:
        self.log_id = ""
        self.sent = self.last = 0
        self.events: list[ev.Event] = []
        self.asks: list[str] = []

    def offer(self, event: ev.Event) -> bool:
        if event.durable:
            assert event.seq == self.last + 1, f"record {event.seq} follows {self.last}"
            self.sent += 1
            self.last = event.seq
            self.events.append(event)
        return True

    def closed(self, code: Code, seq: int) -> None: ...

    async def attach(self, agent: Agent) -> Attached:
        replies: list[Any] = []

        def attached(reply: Any) -> None:
            assert isinstance(reply, Attached), reply
            replies.append(reply)
            self.log_id, self.last = reply.log_id, reply.seq
            if reply.snapshot is not None:
                self.asks = [one.tool_call_id for one in reply.snapshot.asks]

        command = cmd.Attach(session="s", log_id=self.log_id, cursor=self.last)
        await agent.session("s").submit(command, attached, reader=self)
        await wait_all_tasks_blocked()
        assert len(replies) == 1
        return replies[0]  # type: ignore[no-any-return]


def results(state: State) -> dict[str, ToolMessage]:
    return {message.tool_call_id: message for message in state.messages if isinstance(message, ToolMessage)}


async def begin(agent: Agent) -> None:
    await agent.session("s").prompt("go")
    await wait_all_tasks_blocked()


async def kept_log(agent: Agent) -> list[ev.Event]:
    session = await agent.open("s")
    await session.wait_committed(session.state.seq)
    log = list(await agent.store.read("s", after=0, limit=10_000))
    check_log(log)
    assert fold(log) == session.state
    return log


async def test_a_question_survives_a_change_of_the_settings_b04(autojump_clock: MockClock, disk: Disk) -> None:
    async with life(disk, [ask("q1")], dies=True) as agent:
        await begin(agent)
    changed: dict[str, Any] = {"extensions": [AskUserExtension()], "instruction": "new", "max_turns": 7}
    async with life(disk, [say("fine")], **changed) as agent:
        assert await agent.session("s").wake()
        await agent.session("s").answer("q1", "Postgres")
        await agent.session("s").wait_idle()
        state = (await agent.open("s")).state
        assert json.loads(results(state)["q1"].content)["answer"] == "Postgres"
        check_history(state.messages)


async def test_a_question_whose_tool_is_gone_is_closed_with_a_reason_for_both_sides_b04(
    autojump_clock: MockClock, disk: Disk
) -> None:
    async with life(disk, [ask("q1")], dies=True) as agent:
        await begin(agent)
    async with life(disk, [say("without asking")], extensions=[]) as agent:
        assert await agent.session("s").wake()
        await agent.session("s").wait_idle()
        with pytest.raises(RuleViolation, match=r"^ask\.settled: ask 'q1' is cancelled$"):
            await agent.session("s").answer("q1", "Postgres")
        log = await kept_log(agent)
        (settled,) = [event for event in log if isinstance(event, ev.AskSettled)]
        assert (settled.outcome, settled.note) == ("cancelled", "its call failed")
        error = json.loads(results(fold(log))["q1"].content)["error"]
        assert error["message"] == "there is no tool 'ask_user'; known: none"
        assert isinstance(log[-1], ev.RunCompleted)


async def test_after_a_restart_the_next_question_is_seen_everywhere_and_the_one_before_nowhere_b06(
    autojump_clock: MockClock, disk: Disk
) -> None:
    async with life(disk, [ask("q1")], dies=True) as agent:
        await begin(agent)
    old, new = Client(), Client()
    async with life(disk, [ask("q2"), say("done")]) as agent:
        await old.attach(agent)
        assert old.asks == ["q1"]
        await agent.session("s").answer("q1", "yes")
        await wait_all_tasks_blocked()
        await new.attach(agent)
        assert new.asks == ["q2"]
        assert [event.ask.tool_call_id for event in old.events if isinstance(event, ev.AskOpened)] == ["q2"]
        assert [event.tool_call_id for event in old.events if isinstance(event, ev.AskSettled)] == ["q1"]
        assert [one.tool_call_id for one in agent.session("s").asks] == ["q2"]
        (listed,), _ = await agent.list_sessions()
        assert (listed.status, listed.open_asks) == ("waiting", 1)
        stored = await agent.store.load("s")
        assert stored is not None
        assert [record.ask.tool_call_id for record in fold(stored.events, stored.snapshot).open_asks()] == ["q2"]


@pytest.mark.parametrize("what", ["the model fails", "the process dies", "the process dies before the result is kept"])
async def test_an_approved_effect_happens_once_whatever_fails_behind_it_b39(
    what: str, autojump_clock: MockClock, disk: Disk
) -> None:
    """In the gap between the effect and its record nobody knows, and that is what the model is told."""
    effects: list[str] = []

    @tool
    async def deploy() -> str:
        """Have an effect."""
        effects.append("deployed")
        return "deployed"

    options: dict[str, Any] = {"tools": [deploy], "extensions": [AskUserExtension()]}
    async with life(disk, [ask("q1")], dies=True, **options) as agent:
        await begin(agent)
    behind = fail(ModelError("overloaded")) if what == "the model fails" else stall()
    # Kept are: it goes on, the answer, the start and the result of its call, the next message, and that deploy starts.
    after = 6 if "before" in what else None
    async with life(disk, [call("deploy", id="d1"), behind], dies=True, after=after, **options) as agent:
        assert await agent.session("s").wake()
        await agent.session("s").answer("q1", "yes")
        await wait_all_tasks_blocked()
    assert effects == ["deployed"]
    async with life(disk, [say("fine"), say("fine")], **options) as agent:
        assert await agent.session("s").wake()
        await agent.session("s").wait_idle()
        assert (await agent.run("again", session_id="s")).content == "fine"
        log = await kept_log(agent)
        result = results(fold(log))["d1"]
        assert result.outcome == ("interrupted" if after else "completed")
        assert "may have had effects" in result.content or not after
        ends = [type(event) for event in log if isinstance(event, ev.RUN_ENDS)]
        assert ends == [ev.RunFailed if what == "the model fails" else ev.RunCompleted, ev.RunCompleted]
    assert effects == ["deployed"]


async def test_a_list_that_was_emptied_stays_empty_over_a_restart_c06_c26(
    autojump_clock: MockClock, disk: Disk
) -> None:
    """And a write that was refused is not taken for the list: what counts is the record of the owner."""
    bad = call("todo_write", "{bad", id="bad")
    async with life(disk, [write("ipp"), write("cip"), bad, ask("q1"), ask("q2")], dies=True) as agent:
        await begin(agent)
        extension = _todo(agent)
        before = extension.todos("s")
        assert before is not None and [item.status for item in before.todos] == ["completed", "in_progress", "pending"]
        extension.clear("s")
        await agent.session("s").answer("q1", "x")
        await wait_all_tasks_blocked()
        assert extension.todos("s") is None
    async with life(disk, [say("done")]) as agent:
        assert await agent.session("s").wake()
        assert _todo(agent).todos("s") is None and agent.session("s").todos is None
        await agent.session("s").answer("q2", "x")
        await agent.session("s").wait_idle()


async def test_a_list_comes_back_item_by_item_with_its_run_c06(autojump_clock: MockClock, disk: Disk) -> None:
    async with life(disk, [write("ipp"), write("cip"), ask("q1")], dies=True) as agent:
        await begin(agent)
        before = _todo(agent).todos("s")
    async with life(disk, [say("done")]) as agent:
        assert await agent.session("s").wake()
        assert before is not None and _todo(agent).todos("s") == before


def _todo(agent: Agent) -> TodoWriteExtension:
    (extension,) = [one for one in agent.extensions if isinstance(one, TodoWriteExtension)]
    return extension


async def test_twenty_restarts_send_each_event_once_d07_d10(autojump_clock: MockClock, disk: Disk) -> None:
    """One client goes through all of them: one log, in one order, none of it twice."""
    client = Client()
    for number in range(20):
        async with life(disk, [say("fine")] * 3, dies=True) as agent:
            await agent.open("s")
            attached = await client.attach(agent)
            assert attached.mode == ("tail" if number else "snapshot")
            for _ in range(3):
                await agent.run("go", session_id="s")
    async with life(disk, []) as agent:
        await agent.open("s")
        await client.attach(agent)
        log = await kept_log(agent)
        assert client.events == log[-client.sent :] and client.sent == len(log) - 1
        assert client.last == log[-1].seq


async def test_what_happened_while_nobody_watched_is_there_after_a_restart_d09(
    autojump_clock: MockClock, disk: Disk
) -> None:
    old, new = Client(), Client()
    async with life(disk, [say("fine")] * 30, dies=True) as agent:
        await agent.open("s")
        await old.attach(agent)
        (await agent.open("s")).detach(old)
        for _ in range(30):
            await agent.run("go", session_id="s")
    async with life(disk, []) as agent:
        assert (await old.attach(agent)).mode == "tail" and old.sent == 120
        snapshot = (await new.attach(agent)).snapshot
        assert snapshot is not None and len(snapshot.messages) == 60 and new.sent == 0
        assert old.last == new.last == agent.session("s").seq
