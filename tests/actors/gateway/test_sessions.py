"""What clients see of real sessions: nothing lost, nothing twice, whenever they attach and however they leave."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.agent.agent import Agent, open_agent
from actors.client.connection import connect
from actors.client.errors import Refused
from actors.extensions.ask_user import AskUserExtension
from actors.gateway import open_gateway
from actors.gateway.link import Link
from actors.gateway.watch import EventEncoder
from actors.gateway.websocket import SocketClosed
from actors.models.scripted import ScriptedModel, call, say, stall
from protocol.limits import Limits

LIMITS = Limits()


@asynccontextmanager
async def linked(agent: Agent, socket: Any) -> AsyncGenerator[Link, None]:
    async with trio.open_nursery() as nursery:
        link = Link(socket, agent, LIMITS, EventEncoder(), nursery)
        nursery.start_soon(link.run)
        socket.call("initialize", {"protocol": 1, "capabilities": {"batch": True}}, call_id=1)
        yield link
        socket.to_link.send_nowait(SocketClosed(1000))


def durable(socket: Any) -> list[dict[str, Any]]:
    events = [m["params"]["event"] for m in socket.messages if m.get("method") == "event"]
    return [event for event in events if event.get("seq")]


def result(socket: Any, call_id: int) -> Any:
    return next(m.get("result", m.get("error")) for m in socket.messages if m.get("id") == call_id)


async def test_whenever_a_client_attaches_it_sees_all_that_follows_its_snapshot_d04(
    fake_socket: Any, autojump_clock: MockClock
) -> None:
    """400 moments of a run, each with one client; nothing else happens afterwards that could hide a loss."""
    async with open_agent(ScriptedModel([say("some text here", chunks=4)] * 400)) as agent:
        for seed in range(400):
            rng = random.Random(seed)
            socket = type(fake_socket)()
            async with linked(agent, socket):
                socket.call("session/open", {"session": f"s{seed}"}, call_id=2)
                await wait_all_tasks_blocked()
                socket.call("session/prompt", {"session": f"s{seed}", "text": "go"}, call_id=3)
                for _ in range(rng.randrange(12)):
                    await trio.lowlevel.checkpoint()
                socket.call("session/attach", {"session": f"s{seed}"}, call_id=4)
                await wait_all_tasks_blocked()
            session = agent.find(f"s{seed}")
            assert session is not None
            assert session.state.status == "idle"
            attached = result(socket, 4)
            seqs = [event["seq"] for event in durable(socket)]
            assert seqs == list(range(attached["seq"] + 1, session.state.seq + 1)), seed
            assert attached["snapshot"]["seq"] == attached["seq"]


async def test_what_is_said_right_behind_an_attach_is_seen_d05(fake_socket: Any) -> None:
    async with open_agent(ScriptedModel([say("done")])) as agent, linked(agent, fake_socket):
        fake_socket.call("session/open", {"session": "s"}, call_id=2)
        fake_socket.call("session/attach", {"session": "s"}, call_id=3)
        fake_socket.call("session/prompt", {"session": "s", "text": "go"}, call_id=4)
        await wait_all_tasks_blocked()
        assert [event["type"] for event in durable(fake_socket)] == [
            "run_started", "message_added", "model_completed", "run_completed",
        ]  # fmt: skip


async def test_twenty_reconnects_resend_nothing_that_was_applied_d07_d28(fake_socket: Any) -> None:
    async with open_agent(ScriptedModel([say("done")] * 1_000)) as agent:
        applied, log_id, received = 0, "", 0
        for attempt in range(20):
            socket = type(fake_socket)()
            async with linked(agent, socket):
                socket.call("session/open", {"session": "s"}, call_id=2)
                await wait_all_tasks_blocked()
                socket.call("session/attach", {"session": "s", "log_id": log_id, "cursor": applied}, call_id=3)
                for _ in range(5):
                    socket.call("session/prompt", {"session": "s", "text": "go", "when_busy": "queue"}, call_id=4)
                await wait_all_tasks_blocked()
                attached = result(socket, 3)
                assert attached["mode"] == ("tail" if attempt else "snapshot")
                if not attempt:
                    applied, log_id = attached["seq"], attached["log_id"]
                events = durable(socket)
                assert events[0]["seq"] == applied + 1
                # The connection breaks: what was written last may have been lost on its way.
                kept = events[: len(events) - attempt % 7]
                received += len(events)
                applied = kept[-1]["seq"]
        session = agent.find("s")
        assert session is not None
        assert received <= session.state.seq + 20 * 7


async def test_what_happens_while_nobody_watches_is_there_for_old_and_new_clients_d09(fake_socket: Any) -> None:
    async with open_agent(ScriptedModel([say("done")] * 100)) as agent:
        async with linked(agent, fake_socket):
            fake_socket.call("session/open", {"session": "s"}, call_id=2)
            await wait_all_tasks_blocked()
            fake_socket.call("session/attach", {"session": "s"}, call_id=3)
            await wait_all_tasks_blocked()
        known = result(fake_socket, 3)
        for _ in range(30):
            async with agent.stream("go", session_id="s") as run:
                async for _event in run:
                    pass
        session = agent.find("s")
        assert session is not None
        old, new = type(fake_socket)(), type(fake_socket)()
        async with linked(agent, old), linked(agent, new):
            old.call("session/attach", {"session": "s", "log_id": known["log_id"], "cursor": known["seq"]}, call_id=2)
            new.call("session/attach", {"session": "s"}, call_id=2)
            await wait_all_tasks_blocked()
        assert [event["seq"] for event in durable(old)] == list(range(known["seq"] + 1, session.state.seq + 1))
        assert len(result(new, 2)["snapshot"]["messages"]) == 60


async def test_a_question_is_answered_over_the_wire_once(fake_socket: Any) -> None:
    model = ScriptedModel([call("ask_user", {"question": "Which?"}), say("done")])
    async with open_agent(model, extensions=[AskUserExtension()]) as agent, linked(agent, fake_socket):
        fake_socket.call("session/open", {"session": "s"}, call_id=2)
        fake_socket.call("session/attach", {"session": "s"}, call_id=3)
        fake_socket.call("session/prompt", {"session": "s", "text": "go"}, call_id=4)
        await wait_all_tasks_blocked()
        (asked,) = [event["ask"] for event in durable(fake_socket) if event["type"] == "ask_opened"]
        answer = {"session": "s", "ask": asked["tool_call_id"], "answer": "Markdown", "command": "c1"}
        fake_socket.call("session/answer", answer, call_id=5)
        fake_socket.call("session/answer", answer, call_id=6)  # repeated: the first acknowledgement again
        fake_socket.call("session/answer", {**answer, "command": "c2"}, call_id=7)
        await wait_all_tasks_blocked()
        assert result(fake_socket, 5)["seq"] == result(fake_socket, 6)["seq"]
        assert result(fake_socket, 7)["data"]["code"] == "ask.settled"
        types = [event["type"] for event in durable(fake_socket)]
        assert types.count("ask_settled") == 1
        assert types[-1] == "run_completed"


async def test_an_external_event_answers_too_and_names_who_took_it(fake_socket: Any) -> None:
    model = ScriptedModel([call("ask_user", {"question": "Which?"}), say("done")])
    async with open_agent(model, extensions=[AskUserExtension()]) as agent, linked(agent, fake_socket):
        fake_socket.call("session/open", {"session": "s"}, call_id=2)
        fake_socket.call("session/attach", {"session": "s"}, call_id=3)
        fake_socket.call("session/prompt", {"session": "s", "text": "go"}, call_id=4)
        await wait_all_tasks_blocked()
        (asked,) = [event["ask"] for event in durable(fake_socket) if event["type"] == "ask_opened"]
        payload = {"tool_call_id": asked["tool_call_id"], "answer": "Markdown"}
        event = {"session": "s", "name": "ask_user_response", "payload": payload}
        fake_socket.call("session/event", event, call_id=5)
        fake_socket.call("session/event", event, call_id=6)
        await wait_all_tasks_blocked()
        assert result(fake_socket, 5) == {"accepted": ["AskUserExtension"]}
        assert result(fake_socket, 6) == {"accepted": []}


async def test_links_that_come_and_go_leave_no_reader_behind_d19(served: Any, dial: Any, until: Any) -> None:
    async with served([call("ask_user", {"question": "Which?"})]) as (agent, gateway):
        first = await (await dial(gateway)).upgrade()
        await first.initialize()
        for session in ("asking", "idle"):
            await first.call("session/open", {"session": session})
        await first.call("session/prompt", {"session": "asking", "text": "go"})
        await first.aclose()
        for number in range(150):
            client = await (await dial(gateway)).upgrade()
            await client.initialize()
            for session in ("asking", "idle"):
                await client.call("session/attach", {"session": session})
            if number % 3 == 0:
                await client.send(b"\x88\x82\0\0\0\0\x03\xe8")
                await client.read_close()
            if number % 3 == 1:
                client.reset()
            await client.aclose()
        await until(lambda: not gateway.connections)
        assert not agent.find("asking").watched
        assert not agent.find("idle").watched


@pytest.mark.parametrize("mode", ["reset", "tail"])
async def test_a_client_of_another_log_is_told_to_forget_d10(fake_socket: Any, mode: str) -> None:
    async with open_agent(ScriptedModel([say("done")])) as agent, linked(agent, fake_socket):
        fake_socket.call("session/open", {"session": "s"}, call_id=2)
        await wait_all_tasks_blocked()
        log_id = "another" if mode == "reset" else result(fake_socket, 2)["log_id"]
        fake_socket.call("session/attach", {"session": "s", "log_id": log_id, "cursor": 1}, call_id=3)
        await wait_all_tasks_blocked()
        attached = result(fake_socket, 3)
        assert attached["mode"] == mode
        assert ("snapshot" in attached) is (mode == "reset")


async def test_a_client_that_leaves_while_its_attach_is_on_its_way_is_not_kept_d19(fake_socket: Any) -> None:
    async with open_agent(ScriptedModel([say("done")])) as agent, trio.open_nursery() as nursery:
        await agent.open_session("s")
        for _ in range(20):
            socket = type(fake_socket)()
            link = Link(socket, agent, LIMITS, EventEncoder(), nursery)
            socket.call("initialize", {"protocol": 1}, call_id=1)
            socket.call("session/attach", {"session": "s"}, call_id=2)
            socket.to_link.send_nowait(SocketClosed(1006))
            nursery.start_soon(link.run)
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        assert not session.watched


async def test_a_close_is_carried_out_behind_what_was_called_before_it() -> None:
    """Pipelined: the prompt before it is acknowledged and cancelled, the one behind it is refused."""
    async with open_agent(ScriptedModel([[stall()]], repeat=True)) as agent, open_gateway(agent) as gateway:
        async with connect(gateway.url, gateway.token) as client:
            await client.call("session/open", session="s")
            results: dict[str, object] = {}

            async def send(name: str, method: str, **params: object) -> None:
                try:
                    results[name] = await client.call(method, session="s", **params)
                except Refused as refused:
                    results[name] = refused.code

            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    for name, method, params in (
                        ("before", "session/prompt", {"text": "go"}),
                        ("close", "session/close", {}),
                        ("behind", "session/prompt", {"text": "again"}),
                    ):
                        nursery.start_soon(partial(send, name, method, **params))
                        await wait_all_tasks_blocked()  # the frames leave in this order, the replies come when they do
            assert results["close"] == {"session": "s"}
            assert results["behind"] in ("session.closed", "session.unknown")
            assert agent.find("s") is None
