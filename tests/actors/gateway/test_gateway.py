"""Hostile clients over real sockets: each gets its answer, the next good one is served, and nothing is left behind.

That nothing is left - no connection, task or descriptor - is checked by `served` when it closes.
"""

import logging
import struct
from typing import Any

import pytest
import trio
import trio.testing

from actors import ScriptedModel, open_agent
from actors.gateway import open_gateway
from actors.gateway.access import make_access, make_token
from actors.gateway.gateway import RESTARTING, Drain, Gateway, gateway_actor
from actors.gateway.link import Link
from actors.gateway.listener import open_listeners
from actors.models.scripted import call, pause, say
from actors.runtime import open_system
from protocol.limits import Limits

TEXT, CONTINUATION, BINARY, CLOSE, PING, PONG = 1, 0, 2, 8, 9, 10


# ---- before the upgrade


@pytest.mark.parametrize(
    ("drop", "extra", "status"),
    [
        (("Host",), ("Host: evil.example",), 421),
        (("Host",), ("Host: xn--0",), 421),
        (("Host",), ("Host: \xff",), 400),
        (("Host",), (), 400),
        ((), ("Host: 127.0.0.1",), 400),
        ((), ("Connection: \xff",), 400),
        ((), ("Sec-WebSocket-Protocol: \xe9",), 400),
        ((), ("Sec-WebSocket-Extensions: \xff",), 400),
        ((), ("X-Any: \x80",), 400),
        ((), ("Origin: http://evil.example",), 403),
        ((), ("Origin: null",), 403),
        ((), ("Origin: http://127.0.0.1:{port}.evil.example",), 403),
        ((), ("Origin: https://127.0.0.1:{port}",), 403),
        ((), ("Origin: http://127.0.0.1:{port}", "Origin: http://evil.example"), 400),
        (("Authorization",), (), 401),
        (("Authorization",), ("Authorization: Bearer wrong",), 401),
        (("Authorization",), ("Authorization: Basic {token}",), 401),
        ((), ("Sec-WebSocket-Protocol: bearer.wrong",), 401),
        (("Upgrade",), (), 426),
        (("Connection",), (), 426),
        (("Sec-WebSocket-Version",), ("Sec-WebSocket-Version: 8",), 426),
        (("Sec-WebSocket-Version",), (), 426),
        (("Sec-WebSocket-Key",), ("Sec-WebSocket-Key: short",), 400),
        (("Sec-WebSocket-Key",), (), 400),
        ((), ("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",), 400),
        (("Sec-WebSocket-Protocol",), (), 400),
        (("Sec-WebSocket-Protocol",), ("Sec-WebSocket-Protocol: chat",), 400),
        ((), ("Content-Length: 3",), 400),
        ((), ("Transfer-Encoding: chunked",), 400),
        ((), tuple(f"X-{n}: y" for n in range(101)), 431),
        ((), ("X-Long: " + "y" * 20_000,), 431),
        ((), ("no colon here",), 400),
    ],
)
async def test_a_request_that_breaks_a_rule_is_refused_and_the_next_is_served(
    served: Any, dial: Any, good: Any, drop: tuple[str, ...], extra: tuple[str, ...], status: int
) -> None:
    async with served() as (_, gateway):
        client = await dial(gateway)
        filled = [line.replace("{port}", str(gateway.port)).replace("{token}", gateway.token) for line in extra]
        await client.send(client.head(*filled, drop=drop))
        answered, head = await client.read_response()
        assert answered == status
        assert b"Connection: close" in head
        assert gateway.token.encode() not in head + await client.read_to_end()
        await client.aclose()
        await good(gateway)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 32 + b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", 404),
        (b"GET http://evil.example/ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", 404),
        (b"POST /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\n\r\n", 405),
        (b"GET /ws?token={token} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", 401),
        (b"GET /ws HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n", 426),
        (b"A" * 40_000, 431),
    ],
)
async def test_what_is_no_upgrade_of_ours_gets_its_status(
    served: Any, dial: Any, good: Any, raw: bytes, status: int
) -> None:
    async with served() as (_, gateway):
        client = await dial(gateway)
        await client.send(
            raw.replace(b"{port}", str(gateway.port).encode()).replace(b"{token}", gateway.token.encode())
        )
        assert (await client.read_response())[0] == status
        await client.aclose()
        await good(gateway)


async def test_a_head_that_comes_too_slowly_is_cut_off(served: Any, dial: Any, good: Any) -> None:
    async with served(limits=Limits(head_deadline_s=0.2, close_deadline_s=0.2)) as (_, gateway):
        client = await dial(gateway)
        with trio.fail_after(2):
            async with trio.open_nursery() as nursery:

                async def drip() -> None:
                    for byte in client.head():
                        await client.send(bytes([byte]))
                        await trio.sleep(0.02)

                nursery.start_soon(drip)
                assert (await client.read_response())[0] == 408
                nursery.cancel_scope.cancel()
        await client.aclose()
        await good(gateway)


@pytest.mark.parametrize("how", ["close", "reset", "half a head", "reset in the head"])
async def test_a_client_that_leaves_before_its_head_is_complete_leaves_nothing(
    served: Any, dial: Any, good: Any, how: str
) -> None:
    async with served(limits=Limits(head_deadline_s=30)) as (_, gateway):
        for _ in range(20):
            client = await dial(gateway)
            if "head" in how:
                await client.send(client.head()[:60])
            if "reset" in how:
                client.reset()
            else:
                await client.aclose()
        await good(gateway)


@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:{port}", "http://localhost:{port}", "https://app.example"])
async def test_allowed_pages_and_programs_connect(served: Any, dial: Any, origin: str | None) -> None:
    async with served(origins=["https://app.example"]) as (_, gateway):
        client = await dial(gateway)
        await client.upgrade(*([] if origin is None else [f"Origin: {origin.replace('{port}', str(gateway.port))}"]))
        assert (await client.initialize())["protocol"] == 1
        await client.aclose()


async def test_a_browser_shows_its_token_as_a_subprotocol_and_gets_only_ours_back(served: Any, dial: Any) -> None:
    async with served(token="a-token-of-22-characters") as (_, gateway):
        client = await dial(gateway)
        protocols = f"Sec-WebSocket-Protocol: actors.v1, bearer.{gateway.token}"
        await client.send(client.head(protocols, drop=("Authorization", "Sec-WebSocket-Protocol")))
        status, head = await client.read_response()
        assert status == 101
        assert b"actors.v1" in head
        assert gateway.token.encode() not in head
        await client.aclose()


async def test_what_is_sent_right_behind_the_head_is_not_lost(served: Any, dial: Any, make_frame: Any) -> None:
    async with served() as (_, gateway):
        client = await dial(gateway)
        await client.send(
            client.head() + make_frame(TEXT, b'{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocol":1}}')
        )
        assert (await client.read_response())[0] == 101
        assert (await client.next_message())["id"] == 7
        await client.aclose()


# ---- after the upgrade


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ([(BINARY, b"x", {})], 1003),
        ([(TEXT, b"\xc3(", {})], 1007),
        ([(TEXT, b"\xc3", {"fin": False}), (CONTINUATION, b"(", {})], 1007),
        ([(3, b"", {})], 1002),
        ([(11, b"", {})], 1002),
        ([(0x40 | TEXT, b"x", {})], 1002),
        ([(TEXT, b"{}", {"masked": False})], 1002),
        ([(PING, b"x" * 126, {})], 1002),
        ([(PING, b"x", {"fin": False})], 1002),
        ([(CONTINUATION, b"x", {})], 1002),
        ([(CLOSE, b"\x03", {})], 1002),
        ([(CLOSE, b"\x03\xee", {})], 1002),
        ([(CLOSE, b"\x03\xe8\xff\xff", {})], 1007),
        ([(TEXT, b"", {"length": 100_001})], 1009),
        ([(TEXT, b"", {"length": 2**62})], 1009),
        ([(TEXT, b"x" * 60_000, {"fin": False}), (CONTINUATION, b"x" * 60_000, {})], 1009),
        ([(TEXT, "\u00e9".encode() * 50_001, {})], 1009),
        ([(TEXT, b"", {"fin": False}), *[(CONTINUATION, b"", {"fin": False})] * 1_100], 1008),
    ],
)
async def test_a_frame_that_breaks_the_rules_closes_its_connection_with_the_code_d21(
    served: Any, dial: Any, good: Any, make_frame: Any, sent: list[tuple[int, bytes, dict[str, Any]]], code: int
) -> None:
    async with served(limits=Limits(max_message_bytes=100_000, close_deadline_s=0.5)) as (_, gateway):
        client = await (await dial(gateway)).upgrade()
        bystander = await (await dial(gateway)).upgrade()
        await bystander.initialize()
        await client.send(b"".join(make_frame(opcode, payload, **options) for opcode, payload, options in sent))
        with trio.fail_after(2):
            closed, _ = await client.read_close()
        assert closed == code
        await client.aclose()
        assert (await bystander.call("session/list"))["more"] is False
        await bystander.aclose()
        await good(gateway)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", -32700),
        ("{", -32700),
        ("[]", -32600),
        ('[{"jsonrpc":"2.0","id":1,"method":"session/list"}]', -32600),
        ("[" * 50_000, -32600),
        ('{"a":' * 20_000, -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"limit":' + "9" * 5_000 + "}}", -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"limit":NaN}}', -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"no/such"}', -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"evil":1}}', -32602),
    ],
)
async def test_a_frame_that_is_no_call_is_answered_and_the_connection_goes_on(
    served: Any, dial: Any, text: str, code: int
) -> None:
    async with served() as (_, gateway):
        client = await (await dial(gateway)).upgrade()
        await client.initialize()
        await client.send_text(text)
        assert (await client.next_message())["error"]["code"] == code
        assert (await client.call("session/list"))["sessions"] == []
        await client.aclose()


@pytest.mark.parametrize("order", ["close,reset", "reset", "fin", "bad close,reset", "half a frame,reset"])
async def test_a_client_that_vanishes_is_forgotten_d13(
    served: Any, dial: Any, good: Any, make_frame: Any, order: str
) -> None:
    async with served() as (agent, gateway):
        for _ in range(10):
            client = await (await dial(gateway)).upgrade()
            await client.initialize()
            await client.call("session/open", {"session": "s"})
            await client.call("session/attach", {"session": "s"})
            if order.startswith("close"):
                await client.send(make_frame(CLOSE, b"\x03\xe8"))
            elif order.startswith("bad"):
                await client.send(make_frame(CLOSE, b"\x03"))
            elif order.startswith("half"):
                await client.send(make_frame(TEXT, b"{}")[:4])
            if "reset" in order:
                client.reset()
            else:
                await client.stream.send_eof()
                with trio.fail_after(1):
                    await client.read_close()
                await client.aclose()
        with trio.fail_after(1):
            await good(gateway)
        assert not agent.find("s").watched


async def test_a_flood_of_pings_holds_up_nobody_and_is_answered(
    served: Any, dial: Any, good: Any, make_frame: Any
) -> None:
    async with served() as (_, gateway):
        flooder = await (await dial(gateway)).upgrade()
        async with trio.open_nursery() as nursery:

            async def flood() -> None:
                while True:
                    await flooder.send(make_frame(PING, b"x") * 500)

            async def read() -> None:
                while True:
                    assert await flooder.read_frame() == (PONG, b"x")

            nursery.start_soon(flood)
            nursery.start_soon(read)
            for _ in range(3):
                await good_beside(gateway, dial)
            nursery.cancel_scope.cancel()
        flooder.reset()
        await good(gateway)


async def good_beside(gateway: Any, dial: Any) -> None:
    """A good client is served in good time while another one misbehaves."""
    with trio.fail_after(3):
        client = await (await dial(gateway)).upgrade()
        assert (await client.initialize())["protocol"] == 1
        await client.aclose()


async def test_a_client_that_pings_and_reads_nothing_is_let_go(
    served: Any, dial: Any, good: Any, make_frame: Any
) -> None:
    limits = Limits(write_deadline_s=0.2, close_deadline_s=0.2)
    async with served(limits=limits) as (_, gateway):
        client = await (await dial(gateway)).upgrade()
        with trio.fail_after(20), pytest.raises(trio.BrokenResourceError):
            while True:
                await client.send(make_frame(PING, b"x" * 125) * 500)
        await client.aclose()
        await good(gateway)


# ---- drain, limits, isolation


async def test_drain_closes_all_with_its_code_in_bounded_time_d26(
    served: Any, dial: Any, make_frame: Any, until: Any
) -> None:
    async with served([call("ask_user", {"question": "Which?"})], say("done")) as (agent, gateway):
        clients = [await (await dial(gateway)).upgrade() for _ in range(20)]
        for client in clients:
            await client.initialize()
        asker = clients[0]
        await asker.call("session/open", {"session": "s"})
        await asker.call("session/prompt", {"session": "s", "text": "go"})
        half = await dial(gateway)  # in the middle of its handshake
        await half.send(half.head()[:40])
        await until(lambda: agent.find("s").state.open_asks())

        codes: list[int] = []

        async def watch(client: Any, mute: bool) -> None:
            if not mute:
                codes.append((await client.read_close())[0])
                # A ping that crossed the Close: it must not take anything down.
                await client.send(make_frame(PING, b"late") + make_frame(CLOSE, struct.pack("!H", codes[-1])))
            await client.read_to_end()

        with trio.fail_after(3):
            async with trio.open_nursery() as nursery:
                for position, client in enumerate(clients):
                    nursery.start_soon(watch, client, position == 19)
                await gateway.drain()
                assert gateway.connections == 0
        assert codes == [RESTARTING] * 19
        with pytest.raises(OSError, match="all attempts to connect"):
            await dial(gateway)
        assert agent.find("s").state.open_asks()  # sessions go on
        for client in (*clients, half):
            await client.aclose()


async def test_leaving_the_block_says_1001(dial: Any, served: Any) -> None:
    async with served() as (agent, _):
        async with open_gateway(agent, limits=Limits(close_deadline_s=0.2)) as second:
            client = await (await dial(second)).upgrade()
            await client.initialize()
        assert await client.read_close() == (1001, "")
        await client.aclose()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_close_that_nobody_answers_is_bounded_also_when_cancelled_d15(
    dial: Any, served: Any, cancelled: bool
) -> None:
    async with served() as (agent, _):
        started = trio.current_time()
        with trio.CancelScope() as scope:
            async with open_gateway(agent, limits=Limits(close_deadline_s=0.2, drain_deadline_s=0.2)) as second:
                client = await (await dial(second)).upgrade()
                if cancelled:
                    scope.cancel()
        assert trio.current_time() - started < 1.5
        assert second.connections == 0
        await client.aclose()


async def test_over_the_cap_a_connection_is_told_503_and_room_is_used_again(
    served: Any, dial: Any, good: Any, until: Any
) -> None:
    async with served(limits=Limits(max_connections=2, close_deadline_s=0.2)) as (_, gateway):
        held = [await (await dial(gateway)).upgrade() for _ in range(2)]
        surplus = await dial(gateway)
        assert (await surplus.read_response())[0] == 503
        assert gateway.connections == 2
        for client in (*held, surplus):
            await client.aclose()
        await until(lambda: not gateway.connections)
        await good(gateway)


async def test_what_fails_in_one_connection_reaches_no_other(
    served: Any, dial: Any, good: Any, caplog: Any, monkeypatch: Any
) -> None:
    async with served() as (agent, gateway):
        bystander = await (await dial(gateway)).upgrade()
        await bystander.initialize()

        def broken(*_: object, **__: object) -> object:
            raise ExceptionGroup("several", [ValueError("boom"), KeyError("x")])

        client = await (await dial(gateway)).upgrade()
        await client.initialize()
        with monkeypatch.context() as patch:
            patch.setattr(type(agent), "list_sessions", broken)
            failed = await client.call("session/list")
        assert failed == {"code": -32603, "message": "the server failed; it was logged"}
        assert [record.getMessage().endswith("session/list failed") for record in caplog.records] == [True]

        async def crash(_: object) -> None:
            await trio.lowlevel.checkpoint()
            raise RuntimeError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(Link, "_beat", crash)
            unlucky = await (await dial(gateway)).upgrade()
            assert (await unlucky.read_close())[0] in {1001, 1011}
        assert (await bystander.call("session/list"))["more"] is False
        for each in (bystander, client, unlucky):
            await each.aclose()
        await good(gateway)


async def test_one_line_per_connection_and_never_the_token_or_what_moves_a_cursor(
    served: Any, dial: Any, caplog: Any, until: Any
) -> None:
    caplog.set_level(logging.INFO, "actors.gateway")
    async with served() as (_, gateway):
        client = await (await dial(gateway)).upgrade()
        await client.initialize(client={"name": "evil\u202e\x1b[31m\r\nGET"})
        await client.aclose()
        await until(lambda: not gateway.connections)
        lines = [record.getMessage() for record in caplog.records if record.name == "actors.gateway"]
        assert len(lines) == 1
        assert "(evil??[31m??GET) closed: 1006; 1 in, 1 out" in lines[0]
        assert gateway.token not in caplog.text


async def test_a_client_that_is_back_supersedes_its_older_connections_d08(served: Any, dial: Any) -> None:
    async with served() as (agent, gateway):
        clients = []
        for _ in range(4):
            client = await (await dial(gateway)).upgrade()
            await client.initialize(client={"name": "editor", "id": "editor-1"})
            await client.call("session/open", {"session": "s"})
            await client.call("session/attach", {"session": "s"})
            clients.append(client)
        for older in clients[:3]:
            assert (await older.read_close())[0] == 4009
        session = agent.find("s")
        with trio.fail_after(1):
            await clients[3].send_call("session/prompt", {"session": "s", "text": "go"})
            seen = []
            while not seen or seen[-1]["type"] != "run_completed":
                message = await clients[3].next_message()
                if message.get("method") == "event" and "seq" in message["params"]["event"]:
                    seen.append(message["params"]["event"])
        assert [event["seq"] for event in seen] == list(range(2, session.state.seq + 1))
        for client in clients:
            await client.aclose()


async def test_two_clients_without_an_id_are_two(served: Any, dial: Any) -> None:
    async with served() as (_, gateway):
        first, second = [await (await dial(gateway)).upgrade() for _ in range(2)]
        await first.initialize(client={"name": "editor"})
        await second.initialize(client={"name": "editor"})
        assert (await first.call("session/list"))["more"] is False
        await first.aclose()
        await second.aclose()


async def test_a_session_that_waits_for_a_person_keeps_its_client_d18(served: Any, dial: Any, make_frame: Any) -> None:
    limits = Limits(ping_interval_s=0.05, ping_timeout_s=0.5, close_deadline_s=0.2)
    async with served(call("ask_user", {"question": "Which?"}), say("done"), limits=limits) as (_, gateway):
        client = await (await dial(gateway)).upgrade()
        await client.initialize()
        await client.call("session/open", {"session": "s"})
        await client.call("session/attach", {"session": "s"})
        await client.send_call("session/prompt", {"session": "s", "text": "go"})
        asked: dict[str, Any] = {}
        while not asked:
            message = await client.next_message()
            event = message.get("params", {}).get("event", {})
            asked = event.get("ask", {}) if event.get("type") == "ask_opened" else {}
        heads = []
        with trio.fail_after(3):
            while len(heads) < 3:  # the person thinks; both sides ping
                await client.send(make_frame(PING, b"there?"))
                message = await client.next_message()
                heads += [message["params"]["heads"]] if message.get("method") == "heartbeat" else []
        assert heads[0] == heads[2]
        assert heads[0]["s"] > 1
        answered = await client.call(
            "session/answer", {"session": "s", "ask": asked["tool_call_id"], "answer": "Markdown"}
        )
        assert answered["run"]
        await client.aclose()


async def test_a_client_that_answers_no_ping_is_let_go_d27(served: Any, dial: Any, good: Any, until: Any) -> None:
    limits = Limits(ping_interval_s=0.1, ping_timeout_s=0.2, close_deadline_s=0.2)
    async with served(limits=limits) as (agent, gateway):
        client = await (await dial(gateway)).upgrade()
        await client.initialize()
        await client.call("session/open", {"session": "s"})
        await client.call("session/attach", {"session": "s"})
        assert agent.find("s").watched
        await until(lambda: not gateway.connections)
        assert not agent.find("s").watched
        await client.aclose()
        await good(gateway)


async def test_long_closing_of_a_session_holds_up_no_other_call(served: Any, dial: Any) -> None:
    async with served(pause(60), limits=Limits(close_grace_s=0.5, close_deadline_s=0.2)) as (_, gateway):
        client = await (await dial(gateway)).upgrade()
        await client.initialize()
        await client.call("session/open", {"session": "s"})
        await client.call("session/attach", {"session": "s"})
        await client.call("session/prompt", {"session": "s", "text": "go"})
        closing = await client.send_call("session/close", {"session": "s"})
        assert "sessions" in await client.call("session/list")
        last = {}
        seen = []
        while last.get("id") != closing:
            last = await client.next_message()
            seen.append(last)
        assert last["result"] == {"session": "s"}
        detached = [message["params"] for message in seen if message.get("method") == "detached"]
        assert [each["code"] for each in detached] == ["session.closed"]
        await client.aclose()


async def test_the_gateway_refuses_a_weak_token_before_it_listens(served: Any) -> None:
    async with served() as (agent, _):
        with pytest.raises(ValueError, match=r"^a token has 22-512 characters, this one has 5$"):
            async with open_gateway(agent, token="short"):
                raise AssertionError("it must not open")
        with pytest.raises(ValueError, match=r"needs `hosts`"):
            async with open_gateway(agent, host="0.0.0.0"):
                raise AssertionError("it must not open")


async def test_the_url_names_no_token_and_can_be_dialled(served: Any) -> None:
    async with served() as (agent, gateway):
        assert gateway.url == f"ws://127.0.0.1:{gateway.port}/ws"
        async with open_gateway(agent, host="::1") as six:
            assert six.url == f"ws://[::1]:{six.port}/ws"
        async with open_gateway(agent, host="0.0.0.0", hosts=["desk.example"]) as wide:
            assert wide.url == f"ws://127.0.0.1:{wide.port}/ws"


async def test_what_the_block_raises_comes_out_as_it_is(served: Any) -> None:
    async with served() as (agent, _):
        cause = KeyError("why")
        with pytest.raises(ValueError, match=r"^mine$") as raised:
            async with open_gateway(agent):
                raise ValueError("mine") from cause
        assert raised.value.__cause__ is cause


async def test_a_head_that_is_completed_while_draining_is_told_503(served: Any, dial: Any) -> None:
    async with served() as (_, gateway):
        mute = await (await dial(gateway)).upgrade()  # keeps the drain going
        half = await dial(gateway)
        head = half.head()
        await half.send(head[:40])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gateway.drain)
            assert (await mute.read_close())[0] == RESTARTING
            await half.send(head[40:])
            assert (await half.read_response())[0] == 503
            await half.aclose()
            await mute.aclose()


async def test_a_client_that_resets_during_the_upgrade_is_no_error(
    served: Any, dial: Any, good: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as (_, gateway):
        for _ in range(30):
            client = await dial(gateway)
            await client.send(client.head())
            client.reset()
        await good(gateway)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_the_gateway_is_an_actor_that_drains_when_it_is_asked_to() -> None:
    """Its own system, so that nothing of it outlives its block: the listeners and links are tasks in its nursery."""
    async with open_system() as system, open_agent(ScriptedModel([])) as agent:
        listeners = await open_listeners("127.0.0.1", 0)
        port = listeners[0].socket.getsockname()[1]
        limits = Limits(drain_deadline_s=0.1)  # this client never says who it is
        gateway = Gateway(agent, make_access("127.0.0.1", port, make_token()), limits, "127.0.0.1", port)
        links = await system.supervise(name="links", max_children=10)
        ref = await system.spawn(gateway_actor, gateway, listeners, links, own_nursery=True)
        await trio.testing.wait_all_tasks_blocked()
        client = await trio.open_tcp_stream("127.0.0.1", port)
        with trio.fail_after(10):
            await ref.ask(Drain())
        assert gateway.connections == 0
        await client.aclose()
        with pytest.raises(OSError, match="onnect"):
            await trio.open_tcp_stream("127.0.0.1", port)
        ref.stop()


async def test_two_who_drain_at_once_both_return_when_the_last_client_has_gone(served: Any, dial: Any) -> None:
    limits = Limits(drain_deadline_s=30, close_deadline_s=30, head_deadline_s=30)
    async with served(limits=limits) as (_, gateway):
        mute = await dial(gateway)
        with trio.fail_after(3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(gateway.drain)
                nursery.start_soon(gateway.drain)
                await trio.testing.wait_all_tasks_blocked(0.05)
                await mute.aclose()
