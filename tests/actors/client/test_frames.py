"""Frames are read leniently and refused by name when they are none."""

import msgspec
import pytest

from actors.client.frames import EventParams, RpcError, call_frame, read_frame, read_part, refusal
from protocol.errors import Detail, RemoteProtocolError


def test_a_call_is_one_json_rpc_message() -> None:
    assert call_frame(3, "session/open", {"session": "s"}) == (
        '{"jsonrpc":"2.0","id":3,"method":"session/open","params":{"session":"s"}}'
    )


def test_a_frame_is_one_message_or_an_array_of_them() -> None:
    one = read_frame('{"jsonrpc":"2.0","id":1,"result":{},"extra":1}')
    many = read_frame(' [{"id":1,"result":null},{"method":"event","params":{}}]')
    assert [incoming.id for incoming in one] == [1]
    assert [incoming.method for incoming in many] == ["", "event"]


@pytest.mark.parametrize("frame", ["", "nope", "[1]", '{"id":{}}', "[" * 100_000, '"x"'])
def test_what_is_not_json_rpc_is_refused(frame: str) -> None:
    with pytest.raises(RemoteProtocolError, match=r"^the server sent what is not JSON-RPC: "):
        read_frame(frame)


def test_a_binary_frame_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match=r"^the server sent a binary frame; this protocol has text only$"):
        read_frame(b"{}")


def test_a_part_of_another_shape_is_refused_by_name() -> None:
    with pytest.raises(RemoteProtocolError, match=r"^the server sent a EventParams that cannot be read: "):
        read_part(msgspec.Raw(b"{}"), EventParams)


def test_a_refusal_has_its_stable_code_and_details() -> None:
    data = msgspec.Raw(b'{"code":"session.busy","details":[{"path":"x","message":"y"}],"more":1}')
    assert refusal(RpcError(-32000, "busy", data)) == ("session.busy", (Detail("x", "", "y"),))


@pytest.mark.parametrize("data", [b"null", b"[]", b"{}", b'{"code":7}'])
def test_an_error_without_a_code_is_named_by_its_number(data: bytes) -> None:
    assert refusal(RpcError(-32601, "no such method", msgspec.Raw(data))) == ("rpc-32601", ())
