import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import (
    AgentExtension,
    AgentRunConfig,
    AskUserExtension,
    ExternalEvent,
    RuleViolation,
    RunCancelled,
    ScriptedModel,
    SystemMessage,
    TodoWriteExtension,
    open_agent,
    tool,
)
from actors.agent.memory import MemoryStore
from actors.agent.ports import TrioClock
from actors.models.scripted import call, say
from actors.runtime import open_system
from protocol.errors import Code
from protocol.limits import Limits
from tests.faults.stores import FailingStore, SlowStore
from tests.scenarios.staging import ask, check_system, staged, until_asked, write


@tool
async def echo() -> str:
    return "x"


async def test_without_a_session_id_calls_continue_one_conversation(autojump_clock: MockClock) -> None:
    async with staged([say("one"), say("two"), say("three")], name="ann") as agent:
        await agent.run("a")
        await agent.run("b")
        await agent.run("c", session_id="other")
        assert [m.content for m in agent.session().history] == ["a", "one", "b", "two"]
        assert agent.session_id.startswith("ann-") and agent.session().id == agent.session_id


async def test_the_instruction_is_the_first_message_of_each_session(autojump_clock: MockClock) -> None:
    async with staged([say("x")], instruction="Be brief.") as agent:
        await agent.run("go", session_id="s")
        assert agent.session("s").history[0] == SystemMessage("Be brief.")


async def test_what_is_given_by_argument_wins_over_the_config(autojump_clock: MockClock) -> None:
    config = AgentRunConfig(session_id="from-config", max_turns=1)
    async with staged([say("x"), say("y")]) as agent:
        assert agent.stream("go", config=config).session_id == "from-config"
        assert agent.stream("go", session_id="s", config=config).session_id == "s"
        await agent.run("go", config=config)
        with pytest.raises(ValueError, match=r"^max_turns is at least 1, not 0$"):
            agent.stream("go", config=AgentRunConfig(max_turns=0))


@pytest.mark.parametrize("session_id", ["", "a b", "x" * 129, "a\n", "\u200b"])
async def test_a_session_id_that_is_none_is_refused(session_id: str) -> None:
    async with staged([]) as agent:
        for use in (lambda: agent.stream("go", session_id=session_id), lambda: agent.session(session_id)):
            with pytest.raises(RuleViolation) as refused:
                use()
            assert refused.value.code == Code.SESSION_INVALID


async def test_a_blank_prompt_is_refused_before_anything_is_made() -> None:
    async with staged([]) as agent:
        with pytest.raises(RuleViolation, match=r"^command\.invalid: a message must not be blank$"):
            agent.stream(" \n")
        assert agent.open_sessions() == ([], False)


async def test_tools_and_extensions_are_checked_when_the_agent_is_opened() -> None:
    model = ScriptedModel([])
    bad: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"tools": [print]}, TypeError, "a tool is made with @tool or Tool.from_model, not <built-in function print>"),
        ({"tools": [echo, echo]}, ValueError, "two tools are named 'echo'"),
        ({"extensions": [TodoWriteExtension(), TodoWriteExtension()]}, ValueError, "two extensions are named "
         "'TodoWriteExtension'; assign one of them another name"),
    ]  # fmt: skip
    for options, kind, text in bad:
        with pytest.raises(kind) as raised:
            async with open_agent(model, **options):
                raise AssertionError("never opened")
        assert str(raised.value) == text


async def test_an_agent_whose_runs_could_call_no_model_is_refused() -> None:
    """Zero would mean no limit to whatever reads the record: a limit has no default of infinity."""
    for turns in (0, -1):
        with pytest.raises(ValueError, match=rf"^max_turns is at least 1, not {turns}$"):
            async with open_agent(ScriptedModel([]), max_turns=turns):
                pytest.fail("it was opened")


async def test_an_agent_that_cannot_be_opened_leaves_nothing_in_its_system() -> None:
    async with open_system() as system:
        with pytest.raises(ValueError, match="two tools"):
            async with open_agent(ScriptedModel([]), tools=[echo, echo], system=system):
                raise AssertionError("never opened")
        async with open_agent(ScriptedModel([]), tools=[echo], system=system):
            pass
        check_system(system)


async def test_a_session_is_opened_by_id_or_with_a_minted_one(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        handle, created = await agent.open_session()
        assert created and handle.id.startswith("s-")
        again, created = await agent.open_session(handle.id)
        assert not created and again.id == handle.id
        found = agent.find_session(handle.id)
        assert found is not None and found.id == handle.id and agent.find_session("other") is None


async def test_sessions_are_listed_in_pages(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        for name in ("c", "a", "b"):
            await agent.open(name)
        first, more = agent.open_sessions(limit=2)
        assert ([info.session for info in first], more) == (["a", "b"], True)
        rest, more = agent.open_sessions(after="b")
        assert ([info.session for info in rest], more) == (["c"], False)


async def test_a_session_that_is_closed_is_forgotten_by_the_memory_store(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with staged([say("x"), say("y")], store=store) as agent:
        await agent.run("go", session_id="s")
        first = agent.session("s").log_id
        await agent.session("s").close()
        assert agent.find("s") is None and agent.ref("s") is None
        await agent.run("go", session_id="s")
        assert agent.session("s").log_id != first and len(agent.session("s").history) == 2


async def test_a_store_that_cannot_begin_a_log_refuses_and_leaves_no_actor(autojump_clock: MockClock) -> None:
    async with staged([say("x")], store=FailingStore(0)) as agent:
        with pytest.raises(RuleViolation, match=r"^store\.failed: session 's' could not be stored$"):
            await agent.open("s")
        assert agent.find("s") is None and agent.ref("s") is None
        assert (await agent.run("go", session_id="s")).content == "x"


async def test_a_session_whose_tasks_do_not_end_is_not_opened_again(autojump_clock: MockClock) -> None:
    release = trio.Event()

    @tool
    async def deaf() -> str:
        with trio.CancelScope(shield=True):
            await release.wait()
        return "x"

    async with staged([call("deaf")], tools=[deaf]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        await agent.session("s").close()
        assert agent.find("s") is None
        with pytest.raises(RuleViolation, match=r"^session\.closed: session 's' is closed, and its tasks still run$"):
            await agent.open("s")
        release.set()
        await agent.open("s")


async def test_a_system_that_stops_meanwhile_refuses_with_a_code(autojump_clock: MockClock) -> None:
    async with open_system() as system, open_agent(ScriptedModel([]), system=system) as agent:
        system.stop("stopped")
        with pytest.raises(RuleViolation, match=r"^session\.closed: session 's' could not be opened: "):
            await agent.open("s")


async def test_events_go_to_every_extension_whatever_the_others_say(autojump_clock: MockClock) -> None:
    class Taking(AgentExtension):
        def accept(self, config: AgentRunConfig | None, event: ExternalEvent) -> bool:
            return True

    class Raising(AgentExtension):
        def accept(self, config: AgentRunConfig | None, event: ExternalEvent) -> bool:
            raise OSError

    second = Taking()
    second.name = "second"
    async with staged([], extensions=[Taking(), Raising(), second]) as agent:
        assert agent.emit_external_event(ExternalEvent("ping")) == ["Taking", "second"]
        await agent.open("s")
        config = AgentRunConfig(session_id="s")
        assert agent.broadcast(ExternalEvent("ping"), config, cause="e1") == ["Taking", "second"]
        agent.hooks = type(agent.hooks)(**dict.fromkeys(type(agent.hooks).__struct_fields__, ()))
        assert agent.broadcast(ExternalEvent("ping"), config, cause="e1") == ["Taking", "second"], "remembered"


async def test_a_list_is_cleared_for_one_session_only(autojump_clock: MockClock) -> None:
    todo = TodoWriteExtension()
    script = [[write("ip"), ask("q1")]]
    async with staged(ScriptedModel(script, repeat=True), extensions=[todo, AskUserExtension()]) as agent:
        for name in ("s1", "s2"):
            await agent.session(name).prompt("go")
        await wait_all_tasks_blocked()
        todo.clear("s1")
        todo.clear("s1")
        todo.clear("none")
        assert todo.todos("s1") is None and todo.todos("s2") is not None


async def test_closing_cancels_what_is_queued_too(autojump_clock: MockClock) -> None:
    ended: list[str] = []
    async with trio.open_nursery() as nursery:
        async with staged([ask("q1")]) as agent:

            async def caller(name: str) -> None:
                with pytest.raises(RunCancelled, match="the agent is being closed"):
                    async with agent.stream(name, session_id="s", when_busy="queue") as events:
                        await events.final()
                ended.append(name)

            for name in ("one", "two", "three"):
                nursery.start_soon(caller, name)
            await wait_all_tasks_blocked()
    assert sorted(ended) == ["one", "three", "two"]


async def test_closing_lets_out_what_a_slow_store_has_yet_to_keep(autojump_clock: MockClock) -> None:
    store = SlowStore(delay_s=1.0)
    seen: list[str] = []

    class Reader:
        def offer(self, event: Any) -> bool:
            seen.append(type(event).__name__)
            return True

        def closed(self, code: Code, seq: int) -> None: ...

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep)
        async with staged([ask("q1")], store=store, resume="never") as agent:
            session = await agent.open("s")
            session.attach(Reader())
            await agent.session("s").prompt("go")
            await trio.sleep(60)
            assert session.state.asks
        nursery.cancel_scope.cancel()
    assert seen[-1] == "RunCancelled"


async def test_many_sessions_are_cancelled_in_slices(autojump_clock: MockClock) -> None:
    """While an agent with many sessions closes, other tasks run in between."""
    ticks: list[int] = []
    async with trio.open_nursery() as nursery:
        async with staged(ScriptedModel([ask("q1")], repeat=True)) as agent:
            for number in range(200):
                await agent.session(f"s{number}").prompt("go")
            await wait_all_tasks_blocked()

            async def tick() -> None:
                while True:
                    ticks.append(sum(bool(info.open_asks) for info in agent.open_sessions(limit=300)[0]))
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(tick)
        nursery.cancel_scope.cancel()
    assert any(0 < left < 200 for left in ticks), "all were cancelled in one go"


def test_a_thread_that_is_late_is_told_that_the_loop_has_ended() -> None:
    async def main() -> Any:
        async with open_agent(ScriptedModel([]), extensions=[AskUserExtension()]) as agent:
            return agent

    agent = trio.run(main)
    raised: list[BaseException] = []

    def late() -> None:
        try:
            agent.emit_external_event(ExternalEvent("ping"))
        except trio.RunFinishedError as error:
            raised.append(error)

    thread = threading.Thread(target=late)
    thread.start()
    thread.join()
    assert len(raised) == 1


async def test_the_clock_is_unix_time_on_trios_clock(autojump_clock: MockClock) -> None:
    async with staged([], clock=TrioClock(1_000.0)) as agent:
        await trio.sleep(5)
        assert agent.clock.now() == pytest.approx(1_005.0)


async def test_an_error_in_the_block_goes_on_and_everything_ends(autojump_clock: MockClock) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with staged([ask("q1")]) as agent, agent.stream("go") as events:
            await until_asked(events)
            raise LookupError("mine")
    assert agent.closed and agent.active_runs == 0


async def test_a_channel_feeds_the_session_it_is_attached_to(autojump_clock: MockClock) -> None:
    send, receive = trio.open_memory_channel[ExternalEvent](1)
    async with staged([ask("q1"), say("done")]) as agent:
        await agent.attach(receive)
        async with agent.stream("go") as events:
            await until_asked(events)
            await send.send(ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": "x"}))
            assert (await events.final()).content == "done"
        with pytest.raises(RuleViolation, match=r"^session\.invalid: "):
            await agent.attach(receive, session_id="a b")
        await send.aclose()
        await wait_all_tasks_blocked()
        assert receive.statistics().open_receive_channels == 0


async def test_who_closes_a_session_that_is_being_opened_waits_for_it(autojump_clock: MockClock) -> None:
    class Slow(MemoryStore):
        async def load(self, session_id: str) -> Any:
            await trio.sleep(1)
            return await super().load(session_id)

    async with staged([], store=Slow()) as agent:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.open, "s")
            await wait_all_tasks_blocked()
            nursery.start_soon(agent.session("s").close)
        assert agent.find("s") is None, "it was closed once it was there"


async def test_the_limit_of_sessions_counts_those_being_opened(autojump_clock: MockClock) -> None:
    async with staged([], limits=Limits(max_sessions=1)) as agent:
        await agent.open("a")
        with pytest.raises(RuleViolation, match=r"^session\.limit: agent 'agent' has 1 sessions open$"):
            await agent.open("b")


async def test_a_stored_session_is_recovered_when_it_is_opened(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with staged([ask("q1"), say("done")], store=store, resume="never") as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        session = await agent.open("s")
        session.shut(RuleViolation(Code.SESSION_CRASHED))
        again = await agent.open("s")
        assert again.state.log_id == session.state.log_id and not again.state.root
    async with staged([], store=SlowStore()) as agent:
        agent.closed = True
        with pytest.raises(RuleViolation, match=r"^session\.closed: agent 'agent' is closed$"):
            await agent.open("s")


async def test_a_queued_run_keeps_to_the_pace_of_its_own_caller(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("one"), say("two")]) as agent, agent.stream("first") as first:
        await until_asked(first)
        async with agent.stream("second", when_busy="queue") as second:
            await agent.session().answer("q1", "x")
            await first.final()
            await wait_all_tasks_blocked()
            session = agent.find(agent.session_id)
            assert session is not None and session.callers is None
            live = session.live(second.run_id)
            assert live is not None and live.caller is second
            assert (await second.final()).content == "two"


async def test_a_run_that_a_reader_cancels_as_it_starts_never_begins_a25(autojump_clock: MockClock) -> None:
    class Spoiler:
        def offer(self, event: Any) -> bool:
            if type(event).__name__ == "RunStarted":
                session.cancel_run(event.run, "seen")
            return True

        def closed(self, code: Code, seq: int) -> None: ...

    async with staged([say("never")]) as agent:
        session = await agent.open("s")
        spoiler = Spoiler()
        session.attach(spoiler)
        await agent.session("s").prompt("go")
        await agent.session("s").wait_idle()
        session.detach(spoiler)
        assert agent.model.requests == []  # type: ignore[attr-defined]


async def test_an_answer_is_taken_for_the_session_it_names_and_once_by_command(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("done")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        event = ExternalEvent("ask_user_response", {"tool_call_id": "q1", "answer": "x"})
        config = AgentRunConfig(session_id="s")
        assert agent.emit_external_event(event) == [], "not the agent's own session"
        assert agent.broadcast(event, config, cause="e1") == ["AskUserExtension"]
        assert agent.broadcast(event, config, cause="e1") == ["AskUserExtension"]
        assert agent.emit_external_event(event, config=config) == []
        await agent.session("s").wait_idle()


async def test_an_agent_that_closes_while_a_log_is_loaded_makes_no_session(autojump_clock: MockClock) -> None:
    class Slow(MemoryStore):
        async def load(self, session_id: str) -> Any:
            await trio.sleep(1)
            return await super().load(session_id)

    refused: list[str] = []
    async with trio.open_nursery() as nursery:
        async with staged([], store=Slow()) as agent:

            async def opener() -> None:
                try:
                    await agent.open("s")
                except RuleViolation as error:
                    refused.append(str(error))

            nursery.start_soon(opener)
            await wait_all_tasks_blocked()
    assert refused == ["session.closed: agent 'agent' is closed"]


async def test_an_event_emitted_while_another_is_offered_does_not_end_the_offer(autojump_clock: MockClock) -> None:
    seen: list[tuple[str, str | None]] = []

    class Emits(AgentExtension):
        def accept(self, config: AgentRunConfig | None, event: ExternalEvent) -> bool:
            return event.name == "outer" and agent.emit_external_event(ExternalEvent("inner"), config=config) != []

    class Sees(AgentExtension):
        def accept(self, config: AgentRunConfig | None, event: ExternalEvent) -> bool:
            seen.append((event.name, agent.emitting))
            return True

    async with staged([], extensions=[Emits(), Sees()]) as agent:
        await agent.open("s")
        config = AgentRunConfig(session_id="s")
        assert agent.broadcast(ExternalEvent("outer"), config, cause="k1") == ["Emits", "Sees"]
        assert agent.emitting is None
    assert seen == [("inner", ""), ("outer", "k1")], "by its command's id an extension's answer is acknowledged once"
