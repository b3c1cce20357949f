"""A session behind nothing but `trio.open_memory_channel`: events, commands, replies and what it tells its readers.

The "gateway" of these tests is a task and a few plain channels. What passes here over trio's own channels passes over
the mailbox as well, since both take part: a command goes through the channel, then through the mailbox.
"""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import AgentExtension, AskUserExtension, ExternalEvent, RuleViolation
from actors.models.scripted import say
from protocol import commands as cmd
from protocol import events as ev
from protocol.asks import AskOutcome
from protocol.errors import Code
from tests.scenarios.channels import ChannelReader, plain
from tests.scenarios.staging import ask, staged

QUESTIONS = [ask("q1", "First?"), ask("q2", "Second?"), ask("q3", "Third?")]
ANSWERS = {"q1": "one", "q2": "two", "q3": "three"}
UNRELATED = {
    "another-name": ExternalEvent("progress", {"tool_call_id": "q1", "answer": "x"}),
    "no-id": ExternalEvent("ask_user_response", {"answer": "x"}),
    "nothing": ExternalEvent("ask_user_response", {}),
    "blank": ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": " \n"}),
    "null": ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": None}),
    "id-of-another-type": ExternalEvent("ask_user_response", {"tool_call_id": ["q1"], "answer": "x"}),
    "unknown-id": ExternalEvent("ask_user_response", {"tool_call_id": "q9", "answer": "x"}),
    "id-in-another-case": ExternalEvent("ask_user_response", {"tool_call_id": "Q1", "answer": "x"}),
    "not-sendable": ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": float("inf")}),
}


async def test_events_from_a_plain_channel_answer_out_of_order_and_once(autojump_clock: MockClock) -> None:
    async with plain(QUESTIONS, say("done")) as it:
        await it.do(cmd.Prompt(session="s", text="go"))
        await it.until_asked(3)
        await it.answer("q3", ANSWERS["q3"])
        assert it.open == ["q1", "q2"]
        await it.answer("q3", "a duplicate")
        await it.answer("q1", ANSWERS["q1"])
        assert it.open == ["q2"]
        await it.answer("q1", "too late")
        await it.answer("q2", ANSWERS["q2"])
        taken = await it.until(*ev.RUN_ENDS)
        assert type(taken[-1]) is ev.RunCompleted
        settled = [event.tool_call_id for event in taken if isinstance(event, ev.AskSettled)]
        assert settled == ["q3", "q1", "q2"]
        assert it.answers == ANSWERS
        await it.answer("q2", "stale")
        assert it.answers == ANSWERS


@pytest.mark.parametrize("kind", UNRELATED)
async def test_an_event_that_answers_nothing_is_passed_over_and_changes_nothing(
    autojump_clock: MockClock, kind: str
) -> None:
    async with plain(ask("q1"), say("done")) as it:
        await it.do(cmd.Prompt(session="s", text="go"))
        await it.until_asked(1)
        before = it.agent.session("s").seq
        await it.external.send(UNRELATED[kind])
        await wait_all_tasks_blocked()
        assert (it.open, it.agent.session("s").seq) == (["q1"], before)
        await it.answer("q1", ANSWERS["q1"])
        await it.until(ev.RunCompleted)
        assert it.answers == {"q1": "one"}


async def test_an_answer_of_the_applications_own_shape_reaches_the_model_whole(autojump_clock: MockClock) -> None:
    payload = {"tool_call_id": "q1", "choice": {"row": 2, "column": "b"}}
    async with plain(ask("q1"), say("done")) as it:
        await it.do(cmd.Prompt(session="s", text="go"))
        await it.until_asked(1)
        await it.external.send(ExternalEvent("ask_user_response", payload))
        await it.until(ev.RunCompleted)
        assert json.loads(it.agent.session("s").history[2].content) == payload


async def test_an_event_of_the_application_reaches_its_extension_through_the_channel(
    autojump_clock: MockClock,
) -> None:
    heard: list[tuple[str, str | None]] = []

    class Listener(AgentExtension):
        def accept(self, config: Any, event: ExternalEvent) -> bool:
            heard.append((event.name, config.session_id))
            return event.name == "noise"

    async with plain(ask("q1"), say("done"), extensions=[Listener(), AskUserExtension()]) as it:
        await it.do(cmd.Prompt(session="s", text="go"))
        await it.until_asked(1)
        await it.external.send(ExternalEvent("noise"))
        await it.answer("q1", ANSWERS["q1"])
        await it.until(ev.RunCompleted)
    assert heard == [("noise", "s"), ("ask_user_response", "s")]


async def test_commands_from_a_plain_channel_answer_out_of_order_and_once(autojump_clock: MockClock) -> None:
    async with plain(QUESTIONS, say("done")) as it:
        run = (await it.do(cmd.Prompt(session="s", text="go"))).run
        await it.until_asked(3)
        for call in ("q2", "q3", "q1"):
            assert (await it.do(cmd.Answer(session="s", ask=call, answer=ANSWERS[call]))).run == run
            refused = await it.do(cmd.Answer(session="s", ask=call, answer="again"))
            assert isinstance(refused, RuleViolation)
            assert (refused.code, refused.details[0].code) == (Code.ASK_SETTLED, "answered")
        await it.until(ev.RunCompleted)
        assert it.answers == ANSWERS


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (cmd.Answer(session="s", ask="q9", answer="x"), "ask.unknown"),
        (cmd.Answer(session="s", ask="q1", answer="  "), "ask.invalid"),
        (cmd.Answer(session="s", ask="q1"), "command.invalid"),
        (cmd.Prompt(session="s", text="more"), "session.busy"),
        (cmd.Cancel(session="s", run="r99"), "run.unknown"),
    ],
)
async def test_a_command_that_is_refused_is_answered_so_and_changes_nothing(
    autojump_clock: MockClock, command: cmd.Params, code: str
) -> None:
    async with plain(ask("q1"), say("done")) as it:
        await it.do(cmd.Prompt(session="s", text="go"))
        await it.until_asked(1)
        before = it.agent.session("s").seq
        refused = await it.do(command)
        assert isinstance(refused, RuleViolation) and refused.code == code
        assert (it.open, it.agent.session("s").seq) == (["q1"], before)
        await it.do(cmd.Answer(session="s", ask="q1", answer="one"))
        await it.until(ev.RunCompleted)


async def test_a_cancel_through_the_channel_closes_the_questions_and_the_next_prompt_runs(
    autojump_clock: MockClock,
) -> None:
    async with plain(QUESTIONS, say("fine")) as it:
        run = (await it.do(cmd.Prompt(session="s", text="go"))).run
        await it.until_asked(3)
        await it.answer("q2", ANSWERS["q2"])
        assert (await it.do(cmd.Cancel(session="s", reason="enough"))).run == run
        assert it.open == []
        await it.answer("q1", "late")
        refused = await it.do(cmd.Answer(session="s", ask="q3", answer="late"))
        assert (refused.code, refused.details[0].code) == (Code.ASK_SETTLED, "cancelled")
        taken = await it.until(*ev.RUN_ENDS)
        assert type(taken[-1]) is ev.RunCancelled
        outcomes = {event.tool_call_id: event.outcome for event in taken if isinstance(event, ev.AskSettled)}
        assert outcomes == {"q2": AskOutcome.ANSWERED, "q1": AskOutcome.CANCELLED, "q3": AskOutcome.CANCELLED}
        assert it.answers == {"q2": "two"}
        await it.do(cmd.Prompt(session="s", text="again"))
        rest = await it.until(*ev.RUN_ENDS)
        assert type(rest[-1]) is ev.RunCompleted
        assert not any(event.run == run for event in rest), "nothing of a run comes after its end"


async def test_closing_the_channels_leaves_the_question_to_others(autojump_clock: MockClock) -> None:
    async with plain(ask("q1"), say("done")) as it:
        await it.do(cmd.Prompt(session="s", text="go"))
        await it.until_asked(1)
        it.commands.close()
        it.external.close()
        await wait_all_tasks_blocked()
        assert it.open == ["q1"]
        await it.agent.session("s").answer("q1", "one")
        await it.until(ev.RunCompleted)


async def test_cancelling_the_pump_of_commands_leaves_the_session_whole(autojump_clock: MockClock) -> None:
    commands, to_do = trio.open_memory_channel[cmd.Params](0)
    replies: list[Any] = []
    async with staged([ask("q1"), say("done")]) as agent:
        await agent.open("s")
        handle = agent.session("s")

        async def pump() -> None:
            async with to_do:
                async for command in to_do:
                    await handle.submit(command, replies.append)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump)
            await commands.send(cmd.Prompt(session="s", text="go"))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel(reason="the gateway stops")
        with pytest.raises(trio.BrokenResourceError):
            await commands.send(cmd.Cancel(session="s"))
        assert len(replies) == 1 and handle.status == "waiting"
        await handle.answer("q1", "one")
        await handle.wait_idle()
        commands.close()


async def test_closing_the_session_ends_every_channel_and_names_why(autojump_clock: MockClock) -> None:
    async with plain(ask("q1")) as it:
        await it.do(cmd.Prompt(session="s", text="go"))
        await it.until_asked(1)
        await it.agent.session("s").close()
        told = [event async for event in it.events]
        assert type(told[-1]) is ev.RunCancelled
        assert it.reader.ended == (Code.SESSION_CLOSED, told[-1].seq)
        with pytest.raises(trio.BrokenResourceError):
            await it.external.send(ExternalEvent("noise"))
        refused = await it.do(cmd.Prompt(session="s", text="more"))
        assert isinstance(refused, RuleViolation) and refused.code == Code.SESSION_UNKNOWN


async def test_a_reader_whose_channel_is_full_is_cut_off_and_the_run_goes_on(autojump_clock: MockClock) -> None:
    told, events = trio.open_memory_channel[ev.Event](2)
    slow = ChannelReader(told)
    async with plain([say("a b c d", chunks=7), ask("q1")], say("done")) as it:
        replies: list[Any] = []
        await it.agent.session("s").submit(cmd.Attach(session="s"), replies.append, reader=slow)
        await it.do(cmd.Prompt(session="s", text="go"))
        await it.until_asked(1)
        await it.answer("q1", ANSWERS["q1"])
        await it.until(ev.RunCompleted)
        kept = [event.seq async for event in events]
        assert kept == [replies[0].seq + 1, replies[0].seq + 2]
        assert slow.ended == (Code.LINK_TOO_SLOW, kept[-1]), "it can go on from there"
    events.close()
