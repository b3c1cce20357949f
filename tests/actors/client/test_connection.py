"""A connection over a real socket: calls find their answers, events their session, and every end is told."""

import json
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.client import ConnectFailed, Detached, LinkClosed, Refused, connect
from actors.client import connection as module
from protocol.errors import Detail
from protocol.events import TextStreamed, TodosChanged

Serve = Callable[[Callable[[Any], Awaitable[None]]], AbstractAsyncContextManager[str]]


def event(body: dict[str, Any], session: str = "s") -> dict[str, Any]:
    return {"method": "event", "params": {"session": session, "log_id": "l1", "event": body}}


def heartbeat(**heads: int) -> dict[str, Any]:
    return {"method": "heartbeat", "params": {"heads": heads}}


def durable(seq: int) -> dict[str, Any]:
    return {"type": "todos_changed", "seq": seq, "time": 1.0, "run": "r1", "todos": None}


async def test_the_token_is_sent_in_a_header_and_the_first_call_initializes(serve: Serve) -> None:
    seen: list[Any] = []

    async def served(peer: Any) -> None:
        seen.append(peer.headers["authorization"])
        seen.append(await peer.answer(result={"protocol": 1}))
        await peer.ignore()

    async with serve(served) as url, connect(url, "secret") as connection:
        assert connection.server == {"protocol": 1}
    assert seen[0] == "Bearer secret"
    assert (seen[1]["method"], seen[1]["params"]["capabilities"]) == ("initialize", {"batch": True})


async def test_answers_find_their_calls_in_any_order(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.answer()
        first, second = await peer.read(), await peer.read()
        await peer.send({"id": second["id"], "result": "second"}, {"id": first["id"], "result": "first"})
        await peer.ignore()

    answers: dict[str, Any] = {}
    async with serve(served) as url, connect(url) as connection:
        async with trio.open_nursery() as nursery:

            async def ask(name: str) -> None:
                answers[name] = await connection.call("session/list", after=name)

            nursery.start_soon(ask, "a")
            await wait_all_tasks_blocked(0.01)
            nursery.start_soon(ask, "b")
    assert answers == {"a": "first", "b": "second"}


async def test_a_refusal_is_raised_with_code_message_and_details(serve: Serve) -> None:
    data = {"code": "session.busy", "details": [{"path": "session", "message": "m"}]}

    async def served(peer: Any) -> None:
        await peer.answer()
        call = await peer.read()
        await peer.send({"id": call["id"], "error": {"code": -32000, "message": "it is busy", "data": data}})
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        with pytest.raises(Refused, match=r"^session\.busy: it is busy$") as refused:
            await connection.call("session/prompt", session="s", text="x")
    assert refused.value.details == (Detail("session", "", "m"),)


async def test_a_cancelled_call_leaves_the_connection_whole(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.answer()
        late = await peer.read()
        other = await peer.read()
        await peer.send({"id": late["id"], "result": "late"}, {"id": other["id"], "result": "in time"})
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        with trio.move_on_after(0.05) as scope:
            await connection.call("session/list")
        assert scope.cancelled_caught
        assert await connection.call("session/list") == "in time"


async def test_events_that_come_in_the_frame_of_the_attach_result_are_not_lost_d04(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(durable(8), durable(9), seq=7)
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        attachment = await connection.attach("s")
        assert (attachment.log_id, attachment.cursor, attachment.snapshot) == ("l1", 7, {"seq": 7})
        assert [(await attachment.receive()).seq, (await anext(attachment)).seq] == [8, 9]
        assert attachment.cursor == 9
        with pytest.raises(trio.WouldBlock):
            attachment.receive_nowait()


async def test_the_cursor_is_sent_along_and_moves_only_when_an_event_is_taken(serve: Serve) -> None:
    calls: list[Any] = []

    async def served(peer: Any) -> None:
        calls.append(await peer.attached(durable(6), seq=5, mode="tail", snapshot=None))
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        attachment = await connection.attach("s", log_id="l1", cursor=5)
        assert (attachment.mode, attachment.snapshot, attachment.cursor) == ("tail", None, 5)
        await wait_all_tasks_blocked(0.01)
        assert attachment.cursor == 5
        await attachment.receive()
        assert attachment.cursor == 6
    assert calls[0]["params"] == {"session": "s", "log_id": "l1", "cursor": 5}


async def test_types_and_fields_of_a_later_version_are_passed_over_and_the_cursor_advances(serve: Serve) -> None:
    later = {"type": "mood_changed", "seq": 1, "mood": "fine"}
    known = {**durable(2), "colour": "red"}
    delta = {"type": "text_delta", "base": 2, "run": "r1", "message": "r1.1", "offset": 0, "text": "x", "speed": 3}

    async def served(peer: Any) -> None:
        await peer.attached(later, {"type": "flicker"}, known, delta)
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        attachment = await connection.attach("s")
        assert isinstance(await attachment.receive(), TodosChanged)
        assert isinstance(await attachment.receive(), TextStreamed)
        assert attachment.cursor == 2


async def test_an_event_delivered_twice_is_taken_once_d28(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(durable(1), durable(1), durable(2), durable(1), durable(3))
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        attachment = await connection.attach("s")
        assert [(await attachment.receive()).seq for _ in range(3)] == [1, 2, 3]


async def test_a_gap_ends_the_connection_rather_than_pass_unseen_d29(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(durable(1), durable(3))
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        attachment = await connection.attach("s")
        assert (await attachment.receive()).seq == 1
        with pytest.raises(LinkClosed, match=r"^the connection ended \(1002\): event 3 of session s does not follow 1"):
            await attachment.receive()
        assert attachment.cursor == 1


async def test_a_stream_nobody_takes_from_ends_with_its_cursor_and_others_go_on_d01(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(*(durable(seq) for seq in range(1, 6)))
        await peer.answer(result="fine")
        await peer.ignore()

    async with serve(served) as url, connect(url, max_events=3) as connection:
        attachment = await connection.attach("s")
        assert await connection.call("session/list") == "fine"
        assert [(await attachment.receive()).seq for _ in range(3)] == [1, 2, 3]
        with pytest.raises(Detached, match=r"^detached from session s after seq 3: link\.too_slow$"):
            await attachment.receive()


async def test_a_session_that_ends_ends_its_stream_only(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(durable(1), seq=0)
        await peer.send({"method": "detached", "params": {"session": "s", "code": "session.closed", "seq": 1}})
        await peer.answer(result="fine")
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        attachment = await connection.attach("s")
        assert (await attachment.receive()).seq == 1
        with pytest.raises(Detached) as detached:
            await attachment.receive()
        assert (detached.value.code, detached.value.cursor) == ("session.closed", 1)
        assert await connection.call("session/list") == "fine"


async def test_detaching_ends_the_stream_and_the_session_can_be_attached_again(serve: Serve) -> None:
    methods: list[str] = []

    async def served(peer: Any) -> None:
        await peer.attached()
        methods.append((await peer.answer())["method"])
        methods.append((await peer.answer(result={"session": "s", "log_id": "l1", "seq": 4, "mode": "tail"}))["method"])
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        attachment = await connection.attach("s")
        with pytest.raises(ValueError, match=r"^this connection is attached to session 's' already; detach first$"):
            await connection.attach("s")
        await attachment.detach()
        await attachment.detach()
        with pytest.raises(Detached, match=r"detached$"):
            await attachment.receive()
        assert (await connection.attach("s")).cursor == 4
    assert methods == ["session/detach", "session/attach"]


@pytest.mark.parametrize("code", ["link.not_attached", "access.denied"])
async def test_detaching_from_a_session_that_has_just_let_go_is_detaching(serve: Serve, code: str) -> None:
    async def served(peer: Any) -> None:
        await peer.attached()
        call = await peer.read()
        await peer.send({"id": call["id"], "error": {"code": -32000, "message": "no", "data": {"code": code}}})
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        attachment = await connection.attach("s")
        if code == "link.not_attached":
            await attachment.detach()
        else:
            with pytest.raises(Refused, match=r"^access\.denied: no$"):
                await attachment.detach()
        with pytest.raises(Detached, match=r"detached$"):
            await attachment.receive()


async def test_a_refused_attach_leaves_nothing_attached(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.answer()
        for _ in range(2):
            call = await peer.read()
            error = {"code": -32000, "message": "none", "data": {"code": "session.unknown"}}
            await peer.send({"id": call["id"], "error": error})
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        for _ in range(2):
            with pytest.raises(Refused, match=r"^session\.unknown: none$"):
                await connection.attach("s")


async def test_the_servers_close_code_reaches_calls_and_streams(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached()
        await peer.read()
        await peer.socket.aclose(1012, "back soon")

    async with serve(served) as url, connect(url) as connection:
        attachment = await connection.attach("s")
        with pytest.raises(LinkClosed, match=r"^the connection ended \(1012\): back soon$"):
            await connection.call("session/list")
        with pytest.raises(LinkClosed, match="1012"):
            await attachment.receive()
        with pytest.raises(LinkClosed, match="1012"):
            await connection.call("session/list")
        assert connection.closed is not None


async def test_a_server_that_just_vanishes_is_noticed_d13(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached()
        await trio.aclose_forcefully(peer.socket._stream)

    async with serve(served) as url, connect(url) as connection:
        attachment = await connection.attach("s")
        with trio.fail_after(5):
            with pytest.raises(LinkClosed, match=r"^the connection ended \(1006\): "):
                await attachment.receive()


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        ("nope", 1002, "the server sent what is not JSON-RPC: "),
        (b"{}", 1003, "the server sent a binary frame"),
        (json.dumps(event({"type": "text_delta"})), 1002, "the server sent a text_delta event that cannot be read: "),
        (json.dumps({"method": "event", "params": 5}), 1002, "the server sent a EventParams that cannot be read: "),
        (json.dumps({"id": 3}), 1002, "the server sent a response with neither result nor error"),
    ],
)
async def test_a_server_that_breaks_the_protocol_is_left(serve: Serve, frame: str, code: int, reason: str) -> None:
    async def served(peer: Any) -> None:
        await peer.attached()
        await peer.read()
        await peer.socket.send_message(frame)
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        await connection.attach("s")
        with pytest.raises(LinkClosed) as closed:
            await connection.call("session/list")
    assert closed.value.close_code == code
    assert closed.value.reason.startswith(reason)


async def test_an_attach_answered_with_another_shape_ends_the_connection(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.answer()
        await peer.answer(result={"session": "s"})
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        with pytest.raises(LinkClosed, match=r"the server sent a _Attached that cannot be read: "):
            await connection.attach("s")


async def test_answers_to_nobody_and_events_of_other_sessions_are_passed_over(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.answer()
        await peer.send({"id": 99, "result": 1}, {"id": "x", "result": 1}, {"id": None, "error": {"code": -32600}})
        await peer.send(event(durable(1), "other"), {"method": "heartbeat", "params": {"heads": {}}})
        await peer.send({"method": "detached", "params": {"session": "other"}}, {"method": "fanfare", "params": 1})
        await peer.answer(result="fine")
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        assert await connection.call("session/list") == "fine"


async def test_a_heartbeat_advances_the_cursor_of_a_session_that_is_idle(serve: Serve) -> None:
    """Behind what came before it: a cursor never passes an event that was not taken."""
    async def served(peer: Any) -> None:
        await peer.answer()
        await peer.answer(result={"session": "s", "log_id": "l1", "seq": 4, "mode": "tail"})
        await peer.send(event(durable(5)), heartbeat(s=7, other=3), heartbeat(s=6))
        await peer.answer()
        await peer.send(event(durable(8)), event(durable(10)))
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        attached = await connection.attach("s", log_id="l1", cursor=4)
        assert (await attached.receive()).seq == 5
        assert attached.cursor == 5, "what the heartbeat says is behind the event"
        with trio.move_on_after(0.05):
            await attached.receive()
        assert attached.cursor == 7, "whoever waits for events does not fall behind"
        await connection.call("session/list")
        assert (await attached.receive()).seq == 8
        with pytest.raises(LinkClosed, match=r"event 10 of session s does not follow 8$"):
            await attached.receive()


async def test_a_heartbeat_is_for_those_who_are_attached_and_have_room(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.answer()
        call = await peer.read()
        await peer.send(heartbeat(s=9))  # of the attachment before this one
        result = {"session": "s", "log_id": "l1", "seq": 4, "mode": "tail"}
        await peer.send({"id": call["id"], "result": result}, event(durable(5)), heartbeat(s=6), event(durable(6)))
        await peer.ignore()

    async with serve(served) as url, connect(url, max_events=1) as connection:
        attached = await connection.attach("s")
        assert (await attached.receive()).seq == 5
        assert attached.cursor == 5
        with pytest.raises(Detached, match="too_slow"):
            await attached.receive()


async def test_a_heartbeat_of_another_shape_ends_the_connection(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.answer()
        await peer.send({"method": "heartbeat", "params": {"heads": {"s": "x"}}})
        await peer.ignore()

    async with serve(served) as url, connect(url) as connection:
        with pytest.raises(LinkClosed, match=r"the server sent a HeartbeatParams that cannot be read: "):
            await connection.call("session/list")


async def test_an_error_in_the_block_comes_out_as_itself(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.answer()
        await peer.ignore()

    cause = ValueError("why")
    async with serve(served) as url:
        with pytest.raises(KeyError, match="mine") as raised:
            async with connect(url):
                raise KeyError("mine") from cause
    assert raised.value.__cause__ is cause


async def test_leaving_takes_no_longer_than_its_deadline_when_the_server_says_no_goodbye_d27(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.05)
    done = trio.Event()

    async def served(peer: Any) -> None:
        await peer.answer()
        peer.socket._wsproto.receive_data = lambda data: None  # deaf from here on
        await done.wait()

    async with serve(served) as url:
        with trio.fail_after(2):
            async with connect(url):
                pass
        done.set()


async def test_nobody_there_is_said_in_one_line() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    with pytest.raises(ConnectFailed, match=rf"^cannot connect to ws://127\.0\.0\.1:{port}/ws: "):
        async with connect(f"ws://127.0.0.1:{port}"):
            pass


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", r" refused the connection \(401\): the token"),
        (b"HTTP/1.1 418 I\r\nContent-Length: 0\r\n\r\n", r" refused the connection \(418\): it is not a gateway"),
        (b"SSH-2.0-OpenSSH\r\n", r"^cannot connect to ws://"),
        (b"", r"^cannot connect to ws://"),
    ],
)
async def test_a_server_that_does_not_upgrade_is_said_in_one_line(reply: bytes, message: str) -> None:
    async def refuse(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        if reply:
            await stream.send_all(reply)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, refuse, 0)
        port = listeners[0].socket.getsockname()[1]
        with trio.fail_after(5), pytest.raises(ConnectFailed, match=message) as failed:
            async with connect(f"ws://127.0.0.1:{port}", "the-token"):
                pass
        assert "the-token" not in str(failed.value)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("taken", [0, 10])
async def test_a_server_that_is_killed_during_the_upgrade_is_noticed_at_once(taken: int) -> None:
    """Its system resets the connection then: whoever waits for the upgrade waits for nothing."""

    async def reset(stream: trio.SocketStream) -> None:
        if taken:
            await stream.receive_some(taken)  # and the rest was never read
        else:
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.socket.close()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, reset, 0)
        port = listeners[0].socket.getsockname()[1]
        for _ in range(20):  # it may be noticed by what is sent, or by what is received
            with trio.fail_after(5), pytest.raises(ConnectFailed, match=r"^cannot connect to ws://"):
                async with connect(f"ws://127.0.0.1:{port}", "the-token"):
                    pass
        nursery.cancel_scope.cancel()


async def test_a_server_that_does_not_speak_tls_is_said_in_one_line() -> None:
    async def refuse(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, refuse, 0)
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(ConnectFailed, match=rf"^cannot connect to wss://127\.0\.0\.1:{port}/ws with TLS: \w+$"):
            async with connect(f"wss://127.0.0.1:{port}"):
                pass
        nursery.cancel_scope.cancel()


async def test_a_refused_initialize_is_the_error_of_connecting(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        call = await peer.read()
        data = {"code": "protocol.unsupported"}
        await peer.send({"id": call["id"], "error": {"code": -32000, "message": "known: 7", "data": data}})
        await peer.ignore()

    async with serve(served) as url:
        with pytest.raises(Refused, match=r"^protocol\.unsupported: known: 7$"):
            async with connect(url):
                pass


async def test_command_ids_differ_within_and_between_connections(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.answer()
        await peer.ignore()

    async with serve(served) as url, connect(url) as one, connect(url) as other:
        assert len({one.new_command(), one.new_command(), other.new_command()}) == 3


async def test_what_still_comes_of_an_attachment_before_is_not_taken_for_the_new_one_d04(serve: Serve) -> None:
    async def served(peer: Any) -> None:
        await peer.attached(durable(8), durable(9), durable(10), seq=7)
        again = await peer.read()
        assert again["params"] == {"session": "s", "log_id": "l1", "cursor": 8}
        detached = {"session": "s", "code": "x.y", "seq": 11}
        await peer.send(event(durable(11)), {"method": "detached", "params": detached})
        result = {"session": "s", "log_id": "l1", "seq": 8, "mode": "tail", "snapshot": None}
        await peer.send({"id": again["id"], "result": result}, *(event(durable(seq)) for seq in range(9, 13)))
        await peer.ignore()

    async with serve(served) as url, connect(url, max_events=1) as connection:
        slow = await connection.attach("s")
        assert (await slow.receive()).seq == 8
        with pytest.raises(Detached, match="too_slow"):
            while True:
                await slow.receive()
        quick = await connection.attach("s", log_id=slow.log_id, cursor=8)
        assert connection.closed is None
        assert (await quick.receive()).seq == 9


async def test_a_server_that_says_nothing_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def served(peer: Any) -> None:
        await peer.ignore()

    async with serve(served) as url:
        monkeypatch.setattr(module, "CONNECT_S", 0.1)
        with pytest.raises(ConnectFailed, match=r"^the server did not answer within 0\.1 s$"), trio.fail_after(5):
            async with connect(url):
                pytest.fail("it is connected")
