"""Scenarios of runs that ask people: what becomes of answers, and of questions that nobody answers."""

from collections.abc import Callable
from functools import partial

import trio

from actors import AgentEvent, AskUserExtension, ExternalEvent, RuleViolation
from actors.models.scripted import Call, call, say
from actors.testing.sweep import Stage, scenario, twice
from protocol import events as ev
from protocol.asks import AskOutcome
from protocol.chat import CallOutcome
from protocol.errors import Code
from tests.sweeps.meddling import SESSION
from tests.sweeps.stage_agent import USUAL, Acting, acting
from tests.sweeps.tools import fetch

ASK = AskUserExtension()  # as `tools.PLAN`

TIED = [
    "answer", "answer,request", "request,answer", "answer,session", "answer,stop", "answer,cancel", "cancel,answer",
    "answer,close", "answer,leave", "answer+1:request", "answer+2:request", "answer+1:answer", "request+1:answer",
]  # fmt: skip


def question(call_id: str) -> Call:
    """Ask something, under this id."""
    return call("ask_user", {"question": f"What about {call_id}?", "options": ["this", "that"]}, id=call_id)


def is_asked(event: ev.Event, call_id: str) -> bool:
    """Return whether this event puts the question of that call."""
    return isinstance(event, ev.AskOpened) and event.ask.tool_call_id == call_id


def answer_both(agent: Acting, at_once: str, late: str = "") -> None:
    """Let a client answer the first question within its delivery, and a person the second one three seconds later.

    That person answers the first one too, where the client is gone.
    """

    def react(event: ev.Event) -> None:
        if is_asked(event, at_once) and not agent.answer(at_once, "at once"):
            session = agent.session
            if session is not None:
                known = {**(session.state.settled or {}), **(session.state.asks or {})}
                assert at_once in known, "an ask was seen before it could be answered"

    looks = [
        when_asked(agent, call_id, partial(agent.answer, call_id, "late")) for call_id in (at_once, late) if call_id
    ]

    def look(event: AgentEvent) -> None:
        for one in looks:
            one(event)

    agent.react, agent.look = react, look


def when_asked(agent: Acting, call_id: str, act: Callable[[], object]) -> Callable[[AgentEvent], None]:
    """Return a caller's look: when it has got the question, somebody acts three seconds later."""

    async def later() -> None:
        await trio.sleep(3)
        act()

    def look(event: AgentEvent) -> None:
        if event.name == "ask_user" and event.payload["tool_call_id"] == call_id:
            agent.nursery.start_soon(later, name="a person")

    return look


def check_answers_used(agent: Acting, *call_ids: str) -> None:
    """Check that a run which completed has the answers for its results."""
    if agent.ended == "run_completed" and agent.session is not None and not {"error"} & {*agent.stage.struck}:
        results = agent.results()
        for call_id in call_ids if results else ():
            assert results[call_id].outcome is CallOutcome.COMPLETED, f"{call_id} ended as {results[call_id]}"


@scenario(faults=[*USUAL, *twice("request"), *TIED], errors_in="r*")
async def three_asks(stage: Stage) -> None:
    """Of three questions at a time one is answered at once, one is declined, one is left until the run is cancelled."""
    async with acting(stage, [[question("q1"), question("q2"), question("q3")]], extensions=[ASK]) as agent:

        async def decline() -> None:
            try:
                await agent.agent.session(SESSION).decline("q2", note="not now")
            except RuleViolation as error:
                if error.code not in (Code.ASK_SETTLED, Code.ASK_UNKNOWN):
                    agent.excuse(error)

        answer_both(agent, "q1")
        agent.look = when_asked(agent, "q2", lambda: agent.nursery.start_soon(decline))
        agent.offer_answer("q3")
        agent.nursery.start_soon(agent.cancel_after, 10)
        await agent.watch()
        await agent.consume(expected="run_cancelled")
        if agent.undisturbed:
            outcomes = {key: past.outcome for key, past in (agent.session.state.settled or {}).items()}
            answered, declined, cancelled = AskOutcome.ANSWERED, AskOutcome.DECLINED, AskOutcome.CANCELLED
            assert outcomes == {"q1": answered, "q2": declined, "q3": cancelled}
        await agent.again()


@scenario(faults=[*USUAL, *TIED], errors_in="r*")
async def ask_beside_a_tool(stage: Stage) -> None:
    """A question does not hold up the tool beside it, and is answered late; after it another one, alone."""
    turns = [[question("q1"), call("fetch", {"n": 1}, id="f1")], [question("q2")], say("done")]
    async with acting(stage, turns, extensions=[ASK], tools=[fetch]) as agent:
        answer_both(agent, "q2", "q1")
        agent.offer_answer("q1")
        await agent.watch()
        await agent.consume()
        check_answers_used(agent, "q1", "f1")
        await agent.again()


@scenario(faults=[*USUAL, "answer,request", "request,answer"], errors_in="r*")
async def answers_from_a_channel(stage: Stage) -> None:
    """An attached memory channel brings the answer, as an external event, and then ends."""
    send, receive = trio.open_memory_channel[ExternalEvent](8)
    async with acting(stage, [[question("q1")], say("done")], extensions=[ASK]) as agent, send:

        def bring() -> None:
            payload = {"tool_call_id": "q1", "answer": "by channel"}
            for event in (ExternalEvent("noise"), ExternalEvent("ask_user_response", payload)):
                try:
                    send.send_nowait(event)
                except (trio.BrokenResourceError, trio.ClosedResourceError):  # the session was closed meanwhile
                    assert not agent.undisturbed

        agent.look = when_asked(agent, "q1", bring)
        agent.offer_answer("q1")
        try:
            await agent.agent.attach(receive, session_id=SESSION)
        except RuleViolation as error:
            agent.excuse(error)
        await agent.watch()
        agent.nursery.start_soon(agent.cancel_after, 20)  # where the channel went with the session that it fed
        await agent.consume()
        check_answers_used(agent, "q1")
        send.close()
        await agent.again()


@scenario(faults=[*USUAL, "request+1:request", "leave,request"], errors_in="r*")
async def answers_by_handle(stage: Stage) -> None:
    """Everything through the handle: prompt, answer, decline, wait; nobody reads a stream."""
    async with acting(stage, [[question("q1"), question("q2")], say("done")], extensions=[ASK]) as agent:
        handle = agent.agent.session(SESSION)
        await agent.watch()
        try:
            ack = await handle.prompt("go", command="c1")
            session = agent.session
            if session is not None:
                agent.acknowledge(session, ack.seq)
            await trio.sleep(1)
            await handle.answer("q1", "this", command="c2")
            await handle.decline("q2", command="c3")
            await handle.wait_idle()
            assert handle.todos is None and not handle.asks
        except RuleViolation as error:
            if agent.undisturbed or error.code not in (Code.ASK_SETTLED, Code.ASK_UNKNOWN, Code.SESSION_CLOSED):
                agent.excuse(error)
            await handle.wait_idle()
        await agent.again()
