import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import RuleViolation
from actors.agent.handle import SessionInfo
from actors.models.scripted import say
from protocol import commands as cmd
from tests.faults.stores import SlowStore
from tests.scenarios.staging import ask, staged, until_asked, write


async def test_a_handle_of_a_session_that_is_not_there_reads_as_empty(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        handle = agent.session("s")
        assert (handle.status, handle.asks, handle.todos, handle.history) == ("idle", (), None, ())
        assert (handle.log_id, handle.seq, handle.id) == ("", 0, "s")
        await handle.wait_idle()
        await handle.close()
        assert agent.find("s") is None, "reading makes no session"
        with pytest.raises(RuleViolation, match=r"^session\.unknown: there is no session 's'$"):
            await handle.submit(cmd.GetState(session="s"), lambda _: None)


async def test_a_handle_reads_the_state_as_it_is(autojump_clock: MockClock) -> None:
    async with staged([[write("ip"), ask("q1")], say("done")]) as agent:
        handle = agent.session("s")
        ack = await handle.prompt("go")
        assert (ack.seq, ack.run) == (2, "r2")
        await wait_all_tasks_blocked()
        assert handle.status == "waiting" and [a.tool_call_id for a in handle.asks] == ["q1"]
        assert handle.todos is not None and handle.todos.in_progress_index == 0
        assert handle.log_id and handle.seq == agent.find("s").state.seq  # type: ignore[union-attr]
        assert len(handle.history) == 2, "the results of the turn in flight are not there yet"
        assert agent.open_sessions() == ([SessionInfo("s", handle.status, handle.seq, 1)], False)
        await handle.answer(handle.asks[0].id, "by the ask's own id")
        await handle.wait_idle()
        assert len(handle.history) == 5 and handle.todos is None


async def test_an_answer_is_an_answer_or_a_payload(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        await wait_all_tasks_blocked()
        with pytest.raises(TypeError, match=r"^answer\(\) takes either an answer or a payload$"):
            await handle.answer("q1")
        with pytest.raises(TypeError):
            await handle.answer("q1", "x", payload={})
        await handle.answer("q1", payload={"answer": "x", "n": 1})
        await handle.wait_idle()
        assert handle.history[2].content == '{"tool_call_id":"q1","answer":"x","n":1}'


REFUSED = [("prompt", ("  ",), "command.invalid"), ("steer", ("hi",), "session.idle"),
           ("answer", ("q9", "x"), "ask.unknown"), ("decline", ("q9",), "ask.unknown")]  # fmt: skip


@pytest.mark.parametrize(("method", "arguments", "code"), REFUSED)
async def test_what_is_refused_says_why(
    autojump_clock: MockClock, method: str, arguments: tuple[str, ...], code: str
) -> None:
    async with staged([]) as agent:
        with pytest.raises(RuleViolation) as refused:
            await getattr(agent.session("s"), method)(*arguments)
        assert refused.value.code == code


async def test_a_cancel_names_a_run_or_takes_the_active_one(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), ask("q2")]) as agent:
        handle = agent.session("s")
        assert (await handle.cancel()).run == ""
        with pytest.raises(RuleViolation, match=r"^run\.unknown: "):
            await handle.cancel(run="r99")
        await handle.prompt("go")
        queued = await handle.prompt("next", when_busy="queue")
        await handle.cancel(run=queued.run)
        assert handle.status == "waiting", "the active run goes on"
        await wait_all_tasks_blocked()
        await handle.cancel("enough")
        assert handle.asks == (), "they are closed when the cancel returns"
        await handle.wait_idle()


async def test_a_command_returns_when_it_is_committed(autojump_clock: MockClock) -> None:
    store = SlowStore(delay_s=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        async with staged([say("x")], store=store) as agent:
            ack = await agent.session("s").prompt("go")
            assert store.logs["s"].events[-1].seq >= ack.seq
            await agent.session("s").wait_idle()
        nursery.cancel_scope.cancel()


async def test_a_full_mailbox_makes_the_sender_wait_and_a_closed_one_refuses(autojump_clock: MockClock) -> None:
    replies: list[object] = []
    async with staged([say("x")]) as agent:
        await agent.open("s")
        handle = agent.session("s")
        await handle.submit(cmd.GetState(session="s"), replies.append)
        await wait_all_tasks_blocked()
        assert len(replies) == 1
        ref = agent.ref("s")
        assert ref is not None
        ref.drain()
        with pytest.raises(RuleViolation, match=r"^session\.closed: session 's' is closed$"):
            await handle.submit(cmd.GetState(session="s"), replies.append)


async def test_max_turns_of_a_prompt_counts_for_its_run(autojump_clock: MockClock) -> None:
    async with staged([write("ip"), write("ip")]) as agent, agent.stream("warm up", session_id="other"):
        pass
    async with staged([ask("q1"), ask("q2")]) as agent:
        async with agent.stream("x", session_id="t") as events:
            await until_asked(events)
        await agent.session("s").prompt("go", max_turns=1)
        assert agent.find("s").state.run.max_turns == 1  # type: ignore[union-attr]
        await agent.session("s").cancel()
        await agent.session("s").wait_idle()


async def test_a_prompt_has_at_least_one_model_call(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        with pytest.raises(ValueError, match=r"^max_turns is at least 1, not 0$"):
            await agent.session("s").prompt("go", max_turns=0)


async def test_words_that_cannot_be_recorded_are_refused_and_end_nothing(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent:
        handle = agent.session("s")
        await handle.prompt("go")
        await wait_all_tasks_blocked()
        with pytest.raises(RuleViolation, match=r"^command\.invalid: the reason of a cancel holds half a character"):
            await handle.cancel("\ud800")
        with pytest.raises(RuleViolation, match=r"^command\.invalid: the note of an ask holds half a character"):
            await handle.decline("q1", note="\ud800")
        assert handle.status == "waiting"
        await handle.cancel()
