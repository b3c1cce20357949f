"""Rules of frames: what is a call, what it costs to find out, how answers are written."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import events as ev
from protocol.errors import Code, Detail, RuleViolation
from protocol.jsonrpc import (
    INTERNAL_ERROR,
    BadFrame,
    Notification,
    Request,
    bad_frame,
    error,
    event_frame,
    join,
    notification,
    read_frame,
    refusal,
    response,
)

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)


def write(**members: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **members})


def test_a_request_has_id_method_and_params_as_they_came() -> None:
    read = read_frame(write(id="a", method="session/prompt", params={"text": 'q"[{', "n": [1, 2]}))
    assert isinstance(read, Request)
    assert (read.id, read.method) == ("a", "session/prompt")
    assert json.loads(bytes(read.params)) == {"text": 'q"[{', "n": [1, 2]}


def test_without_an_id_it_is_a_notification_and_without_params_they_are_empty() -> None:
    read = read_frame('{"jsonrpc":"2.0","method":"ask/typing"}')
    assert isinstance(read, Notification)
    assert bytes(read.params) == b"{}"


@pytest.mark.parametrize("call_id", ["", "x" * 128, 0, -1, 2**53 - 1, 1 - 2**53])
def test_an_id_is_text_or_an_integer_that_a_browser_counts(call_id: str | int) -> None:
    read = read_frame(write(id=call_id, method="m"))
    assert isinstance(read, Request)
    assert read.id == call_id


@pytest.mark.parametrize("call_id", [None, True, 1.5, 2**53, -(2**53), [], {}, "x" * 129])
def test_another_id_is_refused_and_not_repeated(call_id: Any) -> None:
    assert read_frame(write(id=call_id, method="m")) == BadFrame(
        -32600, "an id is a string of at most 128 characters or an integer below 2**53"
    )


@pytest.mark.parametrize(
    ("text", "code", "message", "call_id"),
    [
        ("", -32700, "the frame is not JSON", None),
        ("nonsense", -32700, "the frame is not JSON", None),
        ('{"jsonrpc":"2.0","id":1,"method":"m"', -32700, "the frame is not JSON", None),
        ('{"jsonrpc":"2.0","id":1,"method":"m"} {}', -32700, "the frame is not JSON", None),
        ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}', -32700, "the frame is not JSON", None),
        ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":-Infinity}}', -32700, "the frame is not JSON", None),
        ('{"a":"', -32700, "the frame is not JSON", None),
        ('{"a":"\\', -32700, "the frame is not JSON", None),
        ("\ud800", -32700, "a frame is text in UTF-8; this one is not", None),
        ("null", -32600, "a call is a JSON object", None),
        ('"text"', -32600, "a call is a JSON object", None),
        ("[]", -32600, "a client sends one call per frame, not an array of them", None),
        (' [{"jsonrpc":"2.0","id":1,"method":"m"}]', -32600,
         "a client sends one call per frame, not an array of them", None),
        ("{}", -32600, 'a call says "jsonrpc": "2.0"', None),
        ('{"jsonrpc":"1.0","id":1,"method":"m"}', -32600, 'a call says "jsonrpc": "2.0"', 1),
        ('{"jsonrpc":2.0,"id":1,"method":"m"}', -32600, 'a call says "jsonrpc": "2.0"', 1),
        ('{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}', -32600, "a member of the call is given twice", None),
        ('{"jsonrpc":"2.0","id":1,"method":"m","\\u006d\\u0065thod":"n"}', -32600,
         "a member of the call is given twice", None),
        ('{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', -32600, "a member of the call is given twice", None),
        ('{"jsonrpc":"2.0","id":1}', -32600, "a call names its method in 1-128 characters", 1),
        ('{"jsonrpc":"2.0","id":1,"method":""}', -32600, "a call names its method in 1-128 characters", 1),
        ('{"jsonrpc":"2.0","id":1,"method":7}', -32600, "a call names its method in 1-128 characters", 1),
        ('{"jsonrpc":"2.0","id":1,"result":{}}', -32600, "a call names its method in 1-128 characters", 1),
        ('{"jsonrpc":"2.0","id":1,"method":"m","evil":1}', -32600,
         "a call has no other members than id, jsonrpc, method, params", 1),
        ('{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', -32602, "params are an object, by name", 1),
        ('{"jsonrpc":"2.0","id":1,"method":"m","params":null}', -32602, "params are an object, by name", 1),
    ],
)  # fmt: skip
def test_what_is_no_call_says_what_is_missing(text: str, code: int, message: str, call_id: int | None) -> None:
    assert read_frame(text) == BadFrame(code, message, call_id)


def test_bytes_that_are_no_text_are_refused() -> None:
    assert read_frame(b'{"a":"\xff"}') == BadFrame(-32700, "a frame is text in UTF-8; this one is not")


def test_the_size_is_counted_in_bytes() -> None:
    text = write(id=1, method="\u00e9" * 10)
    raw = text.encode().decode("unicode_escape").encode()
    assert isinstance(read_frame(raw, max_bytes=len(raw)), Request)
    assert read_frame(raw, max_bytes=len(raw) - 1) == BadFrame(
        -32600, f"a frame has at most {len(raw) - 1} bytes, not {len(raw)}"
    )


def test_the_depth_counts_the_frame_itself_and_not_what_stands_in_strings() -> None:
    def nested(depth: int) -> str:
        return '{"jsonrpc":"2.0","id":1,"method":"[[[[","params":{"a":' + "[" * depth + "]" * depth + "}}"

    assert isinstance(read_frame(nested(3), max_depth=5), Request)
    assert read_frame(nested(4), max_depth=5) == BadFrame(-32600, "a frame nests at most 5 deep")


def test_a_number_of_thousands_of_digits_is_refused_but_not_as_text() -> None:
    digits = "7" * 5_000
    assert read_frame(write(id=1, method="m", params={}).replace("{}", f'{{"n":{digits}}}')) == BadFrame(
        -32600, "a number has at most 400 digits"
    )
    assert isinstance(read_frame(write(id=1, method="m", params={"n": digits})), Request)


@pytest.mark.parametrize(
    "text",
    ["[" * 1_000_000, '{"a":' * 200_000, '"\\"' * 330_000, '"' + '\\"' * 500_000, '"a",' * 250_000, "[]," * 330_000,
     "\\" * 1_000_000, "9" * 1_000_000, "1." * 500_000, '{"a":[' + "1," * 500_000 + "1]}"],
)  # fmt: skip
def test_no_frame_costs_more_than_one_pass(text: str) -> None:
    started = time.process_time()
    assert isinstance(read_frame(text), BadFrame)
    assert time.process_time() - started < 2  # quadratic work on a million characters takes hours


@given(ANY_JSON)
def test_nothing_raises_and_what_was_sent_is_never_repeated(value: Any) -> None:
    text = json.dumps(value)
    read = read_frame(text)
    assert isinstance(read, BadFrame)
    msgspec.json.decode(bad_frame(read))


@given(st.text())
def test_text_that_is_no_json_never_raises(text: str) -> None:
    assert isinstance(read_frame(text), BadFrame)


@given(st.dictionaries(st.text(max_size=9), ANY_JSON, max_size=4))
def test_params_arrive_as_they_were_sent(params: dict[str, Any]) -> None:
    read = read_frame(write(id=1, method="m", params=params))
    assert isinstance(read, Request)
    assert json.loads(bytes(read.params)) == params


# ---- writing


def test_a_result_and_an_error_carry_the_id_of_their_call() -> None:
    assert json.loads(response("a", {"seq": 3})) == {"jsonrpc": "2.0", "id": "a", "result": {"seq": 3}}
    assert json.loads(error(None, INTERNAL_ERROR, "it failed")) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32603, "message": "it failed"},
    }


def test_a_refusal_says_its_code_and_details() -> None:
    refused = RuleViolation(Code.ASK_SETTLED, "ask 'c1' is answered", Detail("ask", "answered", "it is answered"))
    assert json.loads(refusal(4, refused))["error"] == {
        "code": -32000,
        "message": "ask 'c1' is answered",
        "data": {
            "code": "ask.settled",
            "details": [{"path": "ask", "code": "answered", "message": "it is answered"}],
        },
    }


def test_wrong_parameters_have_the_code_that_the_standard_gives_them() -> None:
    assert json.loads(refusal(4, RuleViolation(Code.COMMAND_INVALID, "no")))["error"]["code"] == -32602


def test_an_error_is_short_whatever_it_says() -> None:
    assert len(json.loads(error(1, -32000, "x" * 100_000))["error"]["message"]) == 1_000


def test_what_cannot_be_written_is_refused_not_sent_in_part() -> None:
    with pytest.raises(RuleViolation, match=r"^event\.unsendable: cannot be written as JSON"):
        response(1, object())
    with pytest.raises(RuleViolation, match=r"^event\.unsendable: cannot be written as JSON"):
        notification("event", "\ud800")


def test_an_event_frame_names_session_and_log() -> None:
    assert json.loads(event_frame("s", "l", ev.Custom("progress", {"done": 1}, seq=7, run="r2"))) == {
        "jsonrpc": "2.0",
        "method": "event",
        "params": {
            "session": "s",
            "log_id": "l",
            "event": {"type": "custom", "name": "progress", "payload": {"done": 1}, "seq": 7, "run": "r2"},
        },
    }


def test_an_array_is_made_of_frames_as_they_are() -> None:
    frames = [response(1, {}), notification("heartbeat", {"heads": {}})]
    assert json.loads(join(frames)) == [json.loads(frame) for frame in frames]
    assert frames[0] in join(frames)
