"""How a session becomes what its store says. How its runs go on is in the scenarios."""

from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import RuleViolation, ScriptedModel, open_agent
from actors.agent import recovery
from actors.agent.memory import MemoryLog, MemoryStore
from actors.agent.session import Session
from actors.models.scripted import stall
from protocol import events as ev
from protocol.chat import AssistantMessage, ImagePart, ToolCall, ToolMessage, UserMessage
from protocol.errors import Code
from protocol.history import fold
from protocol.limits import Limits
from tests.scenarios.staging import staged

LOG: list[ev.Event] = [
    ev.SessionOpened("s", "log", seq=1),
    ev.Custom("a", seq=2),
    ev.RunStarted(UserMessage("go"), 3, run="r3", seq=3),
    ev.Custom("b", seq=4),
]


async def test_a_session_is_the_fold_of_snapshot_and_tail(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = Session(agent, "s")
        recovery.recover(session, MemoryLog("log", LOG[2:], 1, fold(LOG[:2])))
        assert session.state == fold(LOG) and session.log == LOG[2:]
        assert (session.log_base, session.committed, session.saved_seq) == (2, 4, 2)
        whole = Session(agent, "s")
        recovery.recover(whole, MemoryLog("log", LOG))
        assert whole.state == fold(LOG) and (whole.log_base, whole.saved_seq) == (0, 0)


async def test_runs_that_cannot_go_on_do_not_leave_a_session_that_is_busy_for_ever(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise LookupError("a bug")

    async with open_agent(ScriptedModel([stall()], repeat=True), store=MemoryStore()) as agent:
        await agent.session("s").prompt("go")
        session = agent.find("s")
        assert session is not None
        session.shut(RuleViolation(Code.SESSION_CLOSED))
        await wait_all_tasks_blocked()
        with monkeypatch.context() as patch:
            patch.setattr(recovery.resume, "resume", broken)
            for _ in range(2):
                with pytest.raises(LookupError, match=r"^a bug$"):
                    await agent.open("s")
                assert agent.find("s") is None
        again = await agent.open("s")
        assert again.state.runs["r2"].resumed == 1 and len(again.lives) == 1


async def test_a_store_that_fails_when_a_run_goes_on_refuses_to_open(autojump_clock: MockClock) -> None:
    class Failing(MemoryStore):
        fails = False

        def append(self, session_id: str, events: Any, sink: Any) -> None:
            if self.fails:
                raise OSError("disk")
            super().append(session_id, events, sink)

    store = Failing()
    async with open_agent(ScriptedModel([stall()], repeat=True), store=store) as agent:
        await agent.session("s").prompt("go")
        session = agent.find("s")
        assert session is not None
        session.shut(RuleViolation(Code.SESSION_CLOSED))
        store.fails = True
        with pytest.raises(RuleViolation, match=r"^store\.failed: session 's' could not be stored$"):
            await agent.open("s")
        store.fails = False
        assert (await agent.open("s")).state.runs["r2"].resumed == 1
        assert agent.active_runs == 1


SIZES: list[tuple[ev.Event, int]] = [
    (ev.MessageAdded(UserMessage("abc", (ImagePart("data:12"),))), 10),
    (ev.ModelCompleted("m", 1, AssistantMessage("ab", (ToolCall("c", "f", {"x": "1234", "n": 5}),), "hm")), 8),
    (ev.HistoryReplaced((UserMessage("ab"), ToolMessage("c", "f", "abc"))), 5),
    (ev.ToolCompleted(ToolMessage("c", "f", "abc")), 3),
    (ev.ToolFailed(ToolMessage("c", "f", "abcd")), 4),
]


@pytest.mark.parametrize(("event", "chars"), SIZES)
def test_the_text_of_large_events_is_counted(event: ev.Event, chars: int) -> None:
    assert recovery.TEXT_OF[type(event)](event) == chars


async def test_a_long_history_is_saved_less_often(autojump_clock: MockClock) -> None:
    async with staged([], limits=Limits(snapshot_records=4)) as agent:
        session = await agent.open("s")
        session.append([ev.MessageAdded(UserMessage("x")) for _ in range(40)])
        assert session.saved_seq == 41
        for _ in range(11):
            session.append([ev.Custom("x")])
        assert session.saved_seq == 41
        session.append([ev.Custom("x")])
        assert session.saved_seq == 53


async def test_much_text_is_saved_earlier(autojump_clock: MockClock) -> None:
    async with staged([], limits=Limits(snapshot_bytes=1_000)) as agent:
        session = await agent.open("s")
        session.append([ev.MessageAdded(UserMessage("x" * 999)), *[ev.Custom("x") for _ in range(30)]])
        assert (session.saved_seq, session.unsaved_chars) == (0, 999)
        session.append([ev.MessageAdded(UserMessage("x")), *[ev.Custom("x") for _ in range(30)]])
        assert session.saved_seq == 0, "it is not looked at after each record"
        session.append([ev.Custom("x")])
        assert (session.saved_seq, session.unsaved_chars) == (64, 0)
