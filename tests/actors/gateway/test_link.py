"""One connection as an actor, on a socket and an agent of the test's own, in virtual time."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.gateway.link import Link, clean
from actors.gateway.watch import EventEncoder
from actors.gateway.websocket import SocketClosed
from protocol import events as ev
from protocol.limits import Limits

Running = Callable[..., AbstractAsyncContextManager[Link]]


@pytest.fixture
def running(fake_socket: Any) -> Running:
    """Run a link until the end of the block; `link.result` is how it closed."""

    @asynccontextmanager
    async def run(agent: Any, limits: Limits | None = None, **initialize: Any) -> AsyncGenerator[Link, None]:
        async with trio.open_nursery() as nursery:
            link = Link(fake_socket, agent, limits or Limits(), EventEncoder(), nursery)

            async def live() -> None:
                link.result = await link.run()  # type: ignore[attr-defined]

            nursery.start_soon(live)
            fake_socket.call("initialize", {"protocol": 1, **initialize})
            await wait_all_tasks_blocked()
            fake_socket.sent.clear()
            yield link
            fake_socket.to_link.send_nowait(SocketClosed(1000))

    return run


async def attached(socket: Any, *sessions: str) -> None:
    for session in sessions:
        socket.call("session/attach", {"session": session})
    await wait_all_tasks_blocked()
    socket.sent.clear()


def seqs(socket: Any) -> list[int]:
    return [m["params"]["event"]["seq"] for m in socket.messages if m.get("method") == "event"]


async def test_each_message_is_a_frame_and_arrays_only_where_negotiated(
    running: Running, fake_socket: Any, fake_agent: Any
) -> None:
    for batch in (False, True):
        agent = fake_agent("s")
        async with running(agent, capabilities={"batch": batch}):
            await attached(fake_socket, "s")
            for seq in range(2, 102):
                agent.sessions["s"].emit(ev.Custom("e", seq=seq))
            await wait_all_tasks_blocked()
            assert seqs(fake_socket) == list(range(2, 102))
            assert len(fake_socket.sent) == (2 if batch else 100)  # 64 to an array
            fake_socket.sent.clear()


async def test_an_array_is_bounded_in_bytes(running: Running, fake_socket: Any, fake_agent: Any) -> None:
    agent = fake_agent("s")
    async with running(agent, capabilities={"batch": True}):
        await attached(fake_socket, "s")
        for seq in range(2, 12):
            agent.sessions["s"].emit(ev.Custom("e", {"x": "x" * 100_000}, seq=seq))
        await wait_all_tasks_blocked()
        assert seqs(fake_socket) == list(range(2, 12))
        assert max(map(len, fake_socket.sent)) < 300_000


async def test_a_client_that_stops_reading_is_cut_off_at_the_bound_and_nobody_else_is_d01(
    fake_agent: Any, fake_socket: Any, running: Running, autojump_clock: MockClock
) -> None:
    agent = fake_agent("s")
    session = agent.sessions["s"]
    limits = Limits(max_outbox_bytes=100_000)
    async with running(agent, limits) as link, trio.open_nursery() as nursery:
        others = [type(fake_socket)() for _ in range(9)]
        encoder = EventEncoder()
        for other in others:
            nursery.start_soon(Link(other, agent, limits, encoder, nursery).run)
            other.call("initialize", {"protocol": 1})
            other.call("session/attach", {"session": "s"})
        await attached(fake_socket, "s")
        session.emit(ev.Custom("seen", seq=2))
        await wait_all_tasks_blocked()
        fake_socket.stalled = trio.Event()
        most = 0
        for seq in range(3, 2_003):
            session.emit(ev.Custom("e", {"x": "x" * 1_000}, seq=seq))  # the session never waits
            most = max(most, link._outbox.queued_bytes)  # pyright: ignore[reportPrivateUsage]
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
        assert most <= limits.max_outbox_bytes
        assert len(session.readers) == 9
        fake_socket.stalled.set()  # it reads again, in time to be told
        await wait_all_tasks_blocked()
        assert fake_socket.closed_with == (4008, "link.too_slow")
        assert fake_socket.messages[-1] == {
            "jsonrpc": "2.0",
            "method": "detached",
            "params": {"session": "s", "code": "link.too_slow", "seq": 3},
        }
        assert seqs(fake_socket) == [2, 3]  # 3 was being written when the client stopped; who reads on has it first
        for other in others:
            assert seqs(other) == list(range(2, 2_003))
            other.to_link.send_nowait(SocketClosed(1000))
    assert link.result.code == 4008  # type: ignore[attr-defined]


async def test_a_client_that_never_reads_again_is_let_go_in_bounded_time_d01(
    fake_agent: Any, fake_socket: Any, running: Running, autojump_clock: MockClock
) -> None:
    agent = fake_agent("s")
    async with running(agent, Limits(max_outbox_bytes=1_000)) as link:
        await attached(fake_socket, "s")
        fake_socket.stalled = trio.Event()
        for seq in range(2, 50):
            agent.sessions["s"].emit(ev.Custom("e", {"x": "x" * 100}, seq=seq))
            await trio.lowlevel.checkpoint()
        started = trio.current_time()
        while not link._ended:  # pyright: ignore[reportPrivateUsage]  # noqa: ASYNC110
            await trio.sleep(1)
        assert trio.current_time() - started <= 8
        assert agent.sessions["s"].readers == []


async def test_one_event_over_the_bound_cuts_off_although_pings_are_answered_d02(
    fake_agent: Any, fake_socket: Any, running: Running
) -> None:
    agent = fake_agent("s")
    async with running(agent, Limits(max_outbox_bytes=10_000)) as link:
        await attached(fake_socket, "s")
        agent.sessions["s"].emit(ev.Custom("e", {"x": "x" * 10_000}, seq=2))
        await wait_all_tasks_blocked()
        assert fake_socket.closed_with == (4008, "link.too_slow")
        assert fake_socket.messages[-1]["params"]["seq"] == 1
    assert link.result.code == 4008  # type: ignore[attr-defined]


async def test_a_replay_over_the_bound_stops_and_goes_on_from_where_it_stopped_d02(
    fake_agent: Any, fake_socket: Any, running: Running
) -> None:
    agent = fake_agent("s")
    session = agent.sessions["s"]
    log = [ev.Custom("e", {"x": "x" * 1_000}, seq=seq) for seq in range(1, 101)]
    cursor, attempts = 0, 0
    async with running(agent, Limits(max_outbox_bytes=20_000)):
        while cursor < 100:
            attempts += 1
            session.seq, session.replay = cursor, log[cursor:]
            fake_socket.sent.clear()
            fake_socket.call("session/attach", {"session": "s", "log_id": "l", "cursor": cursor})
            await wait_all_tasks_blocked()
            assert seqs(fake_socket) == list(range(cursor + 1, cursor + 1 + len(seqs(fake_socket))))
            cursor = seqs(fake_socket)[-1]
            if cursor < 100:
                assert fake_socket.messages[-1]["params"] == {"session": "s", "code": "link.too_slow", "seq": cursor}
                assert session.readers == []
        assert fake_socket.closed_with is None
        assert 1 < attempts < 10
        session.emit(ev.Custom("live", seq=101))
        await wait_all_tasks_blocked()
        assert seqs(fake_socket)[-1] == 101


async def test_a_snapshot_larger_than_the_bound_arrives_and_the_events_behind_it_too_d02(
    fake_agent: Any, fake_socket: Any, running: Running
) -> None:
    agent = fake_agent("s")
    async with running(agent, Limits(max_outbox_bytes=10_000)):
        await attached(fake_socket, "s")
        agent.sessions["s"].result = {"snapshot": "x" * 100_000}
        fake_socket.call("session/state", {"session": "s"}, call_id=9)
        fake_socket.stalled = trio.Event()
        await wait_all_tasks_blocked()
        for seq in range(2, 20):
            agent.sessions["s"].emit(ev.Custom("e", seq=seq))
        fake_socket.stalled.set()
        await wait_all_tasks_blocked()
        assert fake_socket.messages[0]["id"] == 9
        assert seqs(fake_socket) == list(range(2, 20))


async def test_a_reply_keeps_its_place_among_the_events(fake_agent: Any, fake_socket: Any, running: Running) -> None:
    agent = fake_agent("s")
    session = agent.sessions["s"]
    async with running(agent):
        await attached(fake_socket, "s")
        session.holding = True
        fake_socket.call("session/prompt", {"session": "s", "text": "x"}, call_id=7)
        await wait_all_tasks_blocked()
        session.emit(ev.Custom("before", seq=2))
        session.submitted[-1][1]({"seq": 2})
        session.emit(ev.Custom("after", seq=3))
        await wait_all_tasks_blocked()
        assert [m.get("id") or m["params"]["event"]["seq"] for m in fake_socket.messages] == [2, 7, 3]


async def test_a_notification_is_carried_out_and_answered_nothing(
    fake_agent: Any, fake_socket: Any, running: Running
) -> None:
    agent = fake_agent("s")
    async with running(agent):
        for params in ({"session": "s"}, {"session": "unknown"}, {"evil": 1}):
            text = {"jsonrpc": "2.0", "method": "session/cancel", "params": params}
            fake_socket.to_link.send_nowait(json.dumps(text))
        fake_socket.to_link.send_nowait('{"jsonrpc":"2.0","method":"no/such"}')
        await wait_all_tasks_blocked()
        assert len(agent.sessions["s"].submitted) == 1
        assert fake_socket.sent == []


async def test_an_unknown_method_is_answered_with_the_known_ones_and_not_repeated(
    fake_agent: Any, fake_socket: Any, running: Running
) -> None:
    async with running(fake_agent()):
        fake_socket.call("evil\u202e")
        await wait_all_tasks_blocked()
        (answer,) = fake_socket.messages
        assert answer["error"]["code"] == -32601
        assert answer["error"]["message"].startswith("no such method; there are initialize, session/open")
        assert "evil" not in fake_socket.sent[0]


async def test_a_result_that_cannot_be_written_is_an_error_not_a_hole(
    fake_agent: Any, fake_socket: Any, running: Running
) -> None:
    agent = fake_agent("s")
    agent.sessions["s"].result = {"x": object()}
    async with running(agent):
        fake_socket.call("session/state", {"session": "s"}, call_id=3)
        await wait_all_tasks_blocked()
        assert fake_socket.messages[0]["error"]["data"]["code"] == "event.unsendable"


async def test_a_bug_is_answered_and_logged_without_what_the_client_sent(
    fake_agent: Any, fake_socket: Any, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    agent = fake_agent("s")

    async def bug(*_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("a bug")

    agent.sessions["s"].submit = bug
    async with running(agent):
        fake_socket.call("session/prompt", {"session": "s", "text": "private"}, call_id=3)
        await wait_all_tasks_blocked()
        assert fake_socket.messages == [
            {"jsonrpc": "2.0", "id": 3, "error": {"code": -32603, "message": "the server failed; it was logged"}}
        ]
        assert [record.getMessage() for record in caplog.records] == ["link: session/prompt failed"]
        assert "private" not in caplog.text


async def test_binary_frames_are_not_spoken(fake_agent: Any, fake_socket: Any, running: Running) -> None:
    async with running(fake_agent()) as link:
        fake_socket.to_link.send_nowait(b"{}")
        await wait_all_tasks_blocked()
        assert fake_socket.closed_with == (1003, "only text frames are spoken here")
        assert link.ended


async def test_heartbeats_tell_the_heads_and_pings_keep_the_link_d18(
    fake_agent: Any, fake_socket: Any, running: Running, autojump_clock: MockClock
) -> None:
    agent = fake_agent("s")
    async with running(agent):
        await attached(fake_socket, "s")
        agent.sessions["s"].emit(ev.Custom("e", seq=2))
        await trio.sleep(600)  # a person thinks
        beats = [m["params"] for m in fake_socket.messages if m.get("method") == "heartbeat"]
        assert beats == [{"heads": {"s": 2}}] * len(beats)
        assert 28 <= len(beats) <= 30
        assert fake_socket.closed_with is None


async def test_without_a_pong_the_link_ends_within_interval_and_timeout_d27(
    fake_agent: Any, fake_socket: Any, running: Running, autojump_clock: MockClock
) -> None:
    agent = fake_agent("s")
    fake_socket.answers_pings = False
    async with running(agent) as link:
        await attached(fake_socket, "s")
        await trio.sleep(39)
        assert agent.sessions["s"].readers
        await trio.sleep(2)
        assert not agent.sessions["s"].readers
    assert (link.result.code, link.result.reason) == (1006, "no answer to a ping")  # type: ignore[attr-defined]


async def test_a_client_that_is_downloading_is_not_dead(
    fake_agent: Any, fake_socket: Any, running: Running, autojump_clock: MockClock
) -> None:
    fake_socket.answers_pings = False
    fake_socket.sending = True
    async with running(fake_agent()) as link:
        await trio.sleep(100)
        assert not link.ended
        fake_socket.sending = False
        await trio.sleep(100)
        assert link.ended


async def test_close_sends_what_is_queued_first_and_takes_nothing_more(
    fake_agent: Any, fake_socket: Any, running: Running
) -> None:
    agent = fake_agent("s")
    async with running(agent) as link:
        await attached(fake_socket, "s")
        agent.sessions["s"].emit(ev.Custom("last", seq=2))
        link.close(1012, "again")
        link.close(1001, "too late to say so")
        agent.sessions["s"].emit(ev.Custom("dropped", seq=3))
        await wait_all_tasks_blocked()
        assert seqs(fake_socket) == [2]
        assert fake_socket.closed_with == (1012, "again")
        assert agent.sessions["s"].readers == []
    assert link.result.code == 1012  # type: ignore[attr-defined]


async def test_a_session_that_ends_is_said_and_the_link_goes_on(
    fake_agent: Any, fake_socket: Any, running: Running
) -> None:
    agent = fake_agent("s", "t")
    async with running(agent) as link:
        await attached(fake_socket, "s", "t")
        fake_socket.call("session/close", {"session": "s"}, call_id=5)
        await wait_all_tasks_blocked()
        assert [m.get("method") or m["id"] for m in fake_socket.messages] == ["detached", 5]
        assert fake_socket.messages[0]["params"] == {"session": "s", "code": "session.closed", "seq": 1}
        assert list(link.watches) == ["t"]
        fake_socket.call("session/answer", {"session": "s", "ask": "a"}, call_id=6)
        await wait_all_tasks_blocked()
        assert fake_socket.messages[-1]["error"]["data"]["code"] == "link.not_attached"


@pytest.mark.parametrize("text", ["evil\x1b[2J", "a\r\nb", "\u202eabc", "\u2066x", "\x00", "\u200b"])
def test_a_log_line_holds_nothing_that_moves_the_cursor(text: str) -> None:
    assert clean(text).isprintable()
    assert len(clean("x" * 1_000)) == 83


async def test_a_long_call_that_fails_is_answered_and_logged_and_ends_nothing(
    fake_agent: Any, fake_socket: Any, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    agent = fake_agent("s")

    async def bug(_: str) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("a bug")

    agent.close_session = bug
    async with running(agent) as link:
        fake_socket.call("session/close", {"session": "s"}, call_id=3)
        await wait_all_tasks_blocked()
        assert [record.getMessage() for record in caplog.records] == ["link: a call failed"]
        assert fake_socket.messages == [
            {"jsonrpc": "2.0", "id": 3, "error": {"code": -32603, "message": "the server failed; it was logged"}}
        ], "whoever called does not wait for ever"
        assert not link.ended


async def test_replies_that_pile_up_cut_off_too(fake_agent: Any, fake_socket: Any, running: Running) -> None:
    agent = fake_agent("s")
    agent.sessions["s"].result = {"snapshot": "x" * 100_000}
    async with running(agent, Limits(max_outbox_bytes=10_000)):
        fake_socket.stalled = trio.Event()
        for call_id in range(2, 6):
            fake_socket.call("session/state", {"session": "s"}, call_id=call_id)
        await wait_all_tasks_blocked()
        fake_socket.stalled.set()
        await wait_all_tasks_blocked()
        assert fake_socket.closed_with == (4008, "link.too_slow")
        assert len(fake_socket.messages) == 1


async def test_a_reply_that_comes_when_the_link_is_closing_goes_nowhere(
    fake_agent: Any, fake_socket: Any, running: Running
) -> None:
    agent = fake_agent("s")
    agent.sessions["s"].holding = True
    async with running(agent) as link:
        fake_socket.call("session/state", {"session": "s"}, call_id=3)
        await wait_all_tasks_blocked()
        link.close(1012)
        agent.sessions["s"].submitted[0][1]({"late": True})
        await wait_all_tasks_blocked()
        assert fake_socket.sent == []


async def test_what_is_read_after_the_goodbye_is_not_carried_out(
    fake_agent: Any, fake_socket: Any, running: Running
) -> None:
    agent = fake_agent("s")
    async with running(agent) as link:
        link.close(1012)
        fake_socket.call("session/cancel", {"session": "s"})
        await wait_all_tasks_blocked()
        assert agent.sessions["s"].submitted == []
