from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import Agent, RuleViolation
from actors.agent import serving
from actors.agent.serving import (
    Accepted,
    Acknowledged,
    Attached,
    HistoryResult,
    Request,
    StateResult,
    serve,
    session_actor,
    take_snapshot,
)
from actors.agent.session import Session
from actors.models.scripted import say, stall
from actors.runtime import open_system
from protocol import commands as cmd
from protocol import events as ev
from protocol.errors import Code
from tests.faults.stores import SlowStore
from tests.scenarios.staging import ask, staged


class Reader:
    """Notes what it is offered, between the replies."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def offer(self, event: ev.Event) -> bool:
        self.notes.append(event.seq)
        return True

    def closed(self, code: Code, seq: int) -> None:
        self.notes.append(code)


async def _submit(agent: Agent, command: cmd.Params, **options: Any) -> Any:
    """Put a command into the mailbox of session s and return its reply."""
    replies: list[Any] = []
    await agent.session("s").submit(command, replies.append, **options)
    await wait_all_tasks_blocked()
    (reply,) = replies
    return reply


async def test_each_command_is_answered_from_the_record(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("one")]) as agent:
        await agent.open("s")
        prompted = await _submit(agent, cmd.Prompt(session="s", text="go", max_turns=5, command="p"))
        assert prompted == Acknowledged(2, "r2")
        assert await _submit(agent, cmd.Prompt(session="s", text="go", command="p")) == prompted
        busy = await _submit(agent, cmd.Prompt(session="s", text="go"))
        assert isinstance(busy, RuleViolation) and busy.code == "session.busy"
        steered = await _submit(agent, cmd.Steer(session="s", text="faster"))
        assert steered.run == "r2"
        answered = await _submit(agent, cmd.Answer(session="s", ask="q1", answer="x"))
        assert answered.run == "r2"
        await agent.session("s").wait_idle()
        state = await _submit(agent, cmd.GetState(session="s"))
        assert isinstance(state, StateResult) and state.snapshot.seq == agent.session("s").seq
        history = await _submit(agent, cmd.GetHistory(session="s", offset=1, limit=2))
        assert isinstance(history, HistoryResult) and len(history.messages) == 2 and history.total == 5
        cancelled = await _submit(agent, cmd.Cancel(session="s", reason="x"))
        assert cancelled == Acknowledged(agent.session("s").seq)


ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"answer": "x"}, '{"tool_call_id":"q1","answer":"x"}'),
    ({"payload": {"answer": "x", "n": 1}}, '{"tool_call_id":"q1","answer":"x","n":1}'),
    ({"payload": {"answer": "x", "tool_call_id": "own"}}, '{"tool_call_id":"own","answer":"x"}'),
    (
        {"outcome": "declined", "note": "busy"},
        '{"error":{"code":"ask.declined","message":"the user declined to answer: busy"}}',
    ),
]


@pytest.mark.parametrize(("fields", "content"), ANSWERS)
async def test_an_answer_reaches_the_model(autojump_clock: MockClock, fields: dict[str, Any], content: str) -> None:
    async with staged([ask("q1"), say("done")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        assert isinstance(await _submit(agent, cmd.Answer(session="s", ask="q1", **fields)), Acknowledged)
        await agent.session("s").wait_idle()
        assert agent.session("s").history[2].content == content


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "command.invalid: an answer has either `answer` or `payload`"),
    ({"answer": "x", "payload": {}}, "command.invalid: an answer has either `answer` or `payload`"),
    (
        {"outcome": "declined", "answer": "x"},
        "command.invalid: a declined ask has no answer; put words into `note`",
    ),
    (
        {"outcome": "declined", "payload": {}},
        "command.invalid: a declined ask has no answer; put words into `note`",
    ),
    ({"answer": " "}, "ask.invalid: a blank answer answers nothing"),
]


@pytest.mark.parametrize(("fields", "text"), WRONG)
async def test_an_answer_that_is_none_leaves_the_ask_open(
    autojump_clock: MockClock, fields: dict[str, Any], text: str
) -> None:
    async with staged([ask("q1")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        assert str(await _submit(agent, cmd.Answer(session="s", ask="q1", **fields))) == text
        assert agent.session("s").status == "waiting"


async def test_an_external_event_names_who_took_it_and_is_taken_once(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        payload = {"tool_call_id": "q1", "answer": "x"}
        event = cmd.ExternalEvent(session="s", name="ask_user_response", payload=payload, command="e1")
        assert await _submit(agent, event) == Accepted(("AskUserExtension",))
        assert await _submit(agent, event) == Accepted(("AskUserExtension",))
        noise = cmd.ExternalEvent(session="s", name="noise", command="e2")
        assert await _submit(agent, noise) == Accepted(())
        await agent.session("s").wait_idle()


async def test_attaching_replies_first_and_then_sends_what_follows(autojump_clock: MockClock) -> None:
    async with staged([say("one")]) as agent:
        session = await agent.open("s")
        notes: list[Any] = []
        reader = Reader(notes)
        await agent.session("s").submit(cmd.Attach(session="s"), notes.append, reader=reader)
        await wait_all_tasks_blocked()
        await agent.session("s").prompt("go")
        await agent.session("s").wait_idle()
        reply, *seqs = notes
        assert isinstance(reply, Attached) and reply.seq == 1 and reply.snapshot is not None
        assert [seq for seq in seqs if seq] == list(range(2, session.state.seq + 1))
        session.detach(reader)


async def test_attaching_with_a_cursor_sends_only_what_is_missing(autojump_clock: MockClock) -> None:
    async with staged([say("one")]) as agent:
        session = await agent.open("s")
        await agent.run("go", session_id="s")
        notes: list[Any] = []
        reader = Reader(notes)
        attach = cmd.Attach(session="s", log_id=session.state.log_id, cursor=3)
        await agent.session("s").submit(attach, notes.append, reader=reader)
        await wait_all_tasks_blocked()
        reply, *seqs = notes
        assert (reply.mode, reply.seq, reply.snapshot) == ("tail", 3, None)
        assert seqs == list(range(4, session.state.seq + 1))
        session.detach(reader)


async def test_attaching_without_a_reader_is_refused(autojump_clock: MockClock) -> None:
    async with staged([say("one")]) as agent:
        await agent.open("s")
        reply = await _submit(agent, cmd.Attach(session="s"))
        assert str(reply) == "command.invalid: attaching needs a reader"


async def test_a_command_that_is_not_a_sessions_is_refused(autojump_clock: MockClock) -> None:
    async with staged([say("one")]) as agent:
        await agent.open("s")
        reply = await _submit(agent, cmd.List())
        assert str(reply) == "command.invalid: a session does not take List"


async def test_a_reply_waits_for_the_commit_and_a_refusal_keeps_its_place(autojump_clock: MockClock) -> None:
    store = SlowStore(delay_s=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        async with staged([ask("q1")], store=store) as agent:
            session = await agent.open("s")
            replies: list[Any] = []
            serve(session, Request(cmd.Prompt(session="s", text="go"), replies.append))
            serve(session, Request(cmd.Prompt(session="s", text="again"), replies.append))
            assert replies == []
            await trio.sleep(3)
            first, second = replies
            assert isinstance(first, Acknowledged) and second.code == "session.busy"
        nursery.cancel_scope.cancel()


async def test_a_store_that_fails_answers_what_was_not_committed(autojump_clock: MockClock) -> None:
    store = SlowStore(delay_s=1_000.0)
    async with staged([ask("q1")], store=store) as agent:
        session = await agent.open("s")
        replies: list[Any] = []
        serve(session, Request(cmd.Prompt(session="s", text="go"), replies.append))
        serve(session, Request(cmd.Attach(session="s"), replies.append, Reader([])))
        session.store_failed(OSError("disk"))
        assert [reply.code for reply in replies] == ["store.failed", "store.failed"]


async def test_a_snapshot_has_the_message_in_flight(autojump_clock: MockClock) -> None:
    async with staged([[say("half"), stall()]]) as agent:
        session = await agent.open("s")
        assert take_snapshot(session).run is None
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        run = take_snapshot(session).run
        assert run is not None and run.partial is not None and run.partial.text == "half"
        await agent.session("s").cancel()
        await agent.session("s").wait_idle()


async def test_a_session_that_is_closed_before_its_actor_serves_nothing(autojump_clock: MockClock) -> None:
    async with staged([]) as agent, open_system() as system:
        session = Session(agent, "s")
        session.open_log("log")
        session.shut(RuleViolation(Code.STORE_FAILED))
        ref = await system.spawn(session_actor, session, own_nursery=True)
        assert str((await ref.join()).kind) == "returned"


async def test_a_bug_in_serving_is_the_sessions_crash_and_its_readers_are_told(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def boom(session: Session, request: Request) -> None:
        raise LookupError("a bug")

    notes: list[Any] = []
    async with staged([]) as agent:
        session = await agent.open("s")
        session.attach(Reader(notes))
        monkeypatch.setattr(serving, "serve", boom)
        with caplog.at_level(60):
            await agent.session("s").submit(cmd.GetState(session="s"), notes.append)
            await wait_all_tasks_blocked()
        assert notes == ["session.crashed"]
        assert str(session.closed) == "session.crashed: the actor of session 's' failed with LookupError"


async def test_what_is_in_the_mailbox_of_a_session_that_ends_is_answered(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        replies: list[Any] = []
        ref = agent.ref("s")
        assert ref is not None
        for _ in range(3):
            assert ref.tell(Request(cmd.GetState(session="s"), replies.append))
        session.shut(RuleViolation(Code.STORE_FAILED, "gone"))
        await wait_all_tasks_blocked()
        answered = [reply for reply in replies if isinstance(reply, StateResult)]
        assert len(replies) == 3
        assert [reply.code for reply in replies[len(answered) :]] == ["store.failed"] * (3 - len(answered))


async def test_a_blank_event_is_refused_and_ends_nothing(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        refused = await _submit(agent, cmd.ExternalEvent(session="s", name=" "))
        assert str(refused) == "command.invalid: an external event's name must not be blank"
        assert agent.find("s") is session
