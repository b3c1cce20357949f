"""The arguments a model wrote: one JSON object, or the reason why not."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.arguments import is_glued, parse_arguments
from protocol.limits import Limits


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"todos":[{"content":"a', "the arguments are not JSON: Unterminated string starting at at character 21"),
        ("", "the arguments are empty; a JSON object is expected"),
        (" \n", "the arguments are empty; a JSON object is expected"),
        ("null", "the arguments are a JSON null; an object is expected"),
        ("[]", "the arguments are a JSON array; an object is expected"),
        ('"text"', "the arguments are a JSON string; an object is expected"),
        ("true", "the arguments are a JSON boolean; an object is expected"),
        ("1.5", "the arguments are a JSON number; an object is expected"),
        ('{"a":1}}', "the arguments are not JSON: Extra data at character 7"),
        ('{"x":NaN}', "the arguments are not JSON that can be kept: NaN is not JSON"),
        ('{"x":-Infinity}', "the arguments are not JSON that can be kept: -Infinity is not JSON"),
        ('{"x":1e999}', "the arguments are not JSON that can be kept: a number is beyond what a float holds"),
        ('{"a":1,"a":2}', "the arguments are not JSON that can be kept: an object has a key twice"),
        ('{"n":' + "9" * 5000 + "}", "the arguments are not JSON that can be kept: an integer is beyond 64 bits"),
        ('{"n":9223372036854775808}', "the arguments are not JSON that can be kept: an integer is beyond 64 bits"),
        ("[" * 200_000 + "]" * 200_000, "the arguments are nested deeper than 64 levels"),
        ('{"a":' * 65 + "1" + "}" * 65, "the arguments are nested deeper than 64 levels"),
    ],
)
def test_invalid_arguments_give_an_empty_object_and_the_reason_f03(text: str, reason: str) -> None:
    assert parse_arguments(text) == ({}, reason)


def test_a_byte_order_mark_is_not_json_f03() -> None:
    arguments, reason = parse_arguments("\ufeff{}")
    assert arguments == {}
    assert reason.startswith("the arguments are not JSON: ")


def test_arguments_missing_their_last_brace_are_not_repaired_f04() -> None:
    arguments, reason = parse_arguments('{"todos":[{"content":"a","status":"pending"}]')
    assert arguments == {}
    assert reason == "the arguments are not JSON: Expecting ',' delimiter at character 45"


def test_text_in_another_notation_is_refused_and_not_evaluated_c25() -> None:
    arguments, reason = parse_arguments("[{'content': __import__('os').getcwd(), 'status': 'pending'}]")
    assert arguments == {}
    assert reason == ("the arguments are not JSON: Expecting property name enclosed in double quotes at character 2")


def test_half_a_character_is_refused_as_text_and_as_escape() -> None:
    assert parse_arguments('{"a":"\ud800"}')[1] == (
        "the arguments' text holds half a character (a lone surrogate) at 6"
    )
    assert "surrogates" in parse_arguments('{"a":"\\ud800"}')[1]
    assert parse_arguments('{"a":"\\ud83d\\ude00"}') == ({"a": "😀"}, "")


def test_a_control_character_in_a_text_is_not_json() -> None:
    assert parse_arguments('{"a":"\n"}')[1] == "the arguments are not JSON: Invalid control character at at character 6"


def test_size_is_checked_before_parsing() -> None:
    limits = Limits(max_arguments_chars=10)
    assert parse_arguments('{"a":12345}', limits) == ({}, "the arguments are over the limit of 10 characters")


def test_brackets_in_texts_are_not_levels() -> None:
    value = {"a": '[[[["\\' * 50, "b": "\\\\", "c": "{" * 100}
    assert parse_arguments(json.dumps(value)) == (value, "")


def test_the_deepest_allowed_object_is_taken() -> None:
    assert parse_arguments('{"a":' * 64 + "1" + "}" * 64)[1] == ""
    wide = {str(i): [[]] for i in range(500)}
    assert parse_arguments(json.dumps(wide)) == (wide, "")


def test_an_endless_text_is_measured_in_linear_time() -> None:
    started = time.perf_counter()
    parse_arguments('{"' + "\\" * 900_001)
    parse_arguments('"' * 100_001 + "[" * 65)
    assert time.perf_counter() - started < 5


def test_whitespace_around_the_object_is_allowed() -> None:
    assert parse_arguments(' \n{"a": -1, "b": 0.5, "c": null}\t') == ({"a": -1, "b": 0.5, "c": None}, "")


@pytest.mark.parametrize(
    ("text", "glued"),
    [("{}{}", True), (' {"a":"}{"} {"b', True), ("{}", False), ("{}}", False), ('{"a":1', False), ("", False)],
)
def test_glued_objects_are_seen(text: str, glued: bool) -> None:
    assert is_glued(text) is glued


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), _json, max_size=5), st.booleans())
def test_what_json_writes_is_read_back(value: dict[str, object], ascii_only: bool) -> None:
    assert parse_arguments(json.dumps(value, ensure_ascii=ascii_only)) == (value, "")


@settings(deadline=None)
@given(st.text())
def test_any_text_gives_an_object_or_a_reason(text: str) -> None:
    arguments, reason = parse_arguments(text)
    assert bool(reason) or json.loads(text) == arguments
    assert not (reason and arguments)
