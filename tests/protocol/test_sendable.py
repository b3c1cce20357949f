"""What may enter the log: JSON values, on a copy, with the path of what is wrong."""

import enum
import math
import re
from collections import OrderedDict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Code, RuleViolation
from protocol.sendable import check_size, check_text, copy_json, encode


class Text(str):
    """A text with a type of its own."""


class Word(enum.StrEnum):
    YES = "yes"


class Number(enum.IntEnum):
    ONE = 1


class Fraction(float):
    """A float with a type of its own."""


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)  # fmt: skip


def refusal(text: str) -> str:
    return f"^event.unsendable: {re.escape(text)}$"


@given(JSON_VALUES)
def test_what_is_json_is_copied_unchanged_and_can_be_written(value: Any) -> None:
    copied = copy_json(value, max_depth=64)
    assert copied == value
    assert msgspec.json.decode(encode(copied)) == value


def test_the_copy_does_not_follow_what_the_caller_does_to_its_own() -> None:
    mine: dict[str, Any] = {"list": [1, {"a": "b"}]}
    copied = copy_json(mine, max_depth=8)
    mine["list"][1]["a"] = "changed"
    mine["new"] = 1
    assert copied == {"list": [1, {"a": "b"}]}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, (2,)), [1, [2]]),
        (OrderedDict(a=1), {"a": 1}),
        (Number.ONE, 1),
        (Word.YES, "yes"),
        (Text("t"), "t"),
        ({Text("k"): Text("v")}, {"k": "v"}),
        (Fraction(0.5), 0.5),
        (True, True),
        (-(2**63), -(2**63)),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_what_stands_for_json_becomes_plain(value: object, plain: object) -> None:
    copied = copy_json(value, max_depth=8)
    assert copied == plain
    assert type(copied) is type(plain)
    assert encode(copied) == encode(plain)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "payload is nan, which JSON cannot say"),
        ({"a": [0.0, math.inf]}, "payload.a[1] is inf, which JSON cannot say"),
        ([-math.inf], "payload[0] is -inf, which JSON cannot say"),
        (2**63, "payload is an integer beyond 64 bits"),
        ({"n": -(2**63) - 1}, "payload.n is an integer beyond 64 bits"),
        ({"a": {1: 2}}, "payload.a has a key of type int, not text"),
        ({"a": {1, 2}}, "payload.a is of type set, which JSON cannot say"),
        (b"bytes", "payload is of type bytes, which JSON cannot say"),
        ([object()], "payload[0] is of type object, which JSON cannot say"),
        ("a\ud800", "payload holds half a character (a lone surrogate) at 1"),
        ({"a": "\udfff"}, "payload.a holds half a character (a lone surrogate) at 0"),
        ({"\ud800": 1}, "a key of payload holds half a character (a lone surrogate) at 0"),
        ({"\ud800": math.nan}, "a key of payload holds half a character (a lone surrogate) at 0"),
        ([[[1]]], "payload[0][0] is nested too deeply"),
        ({"a": {"b": {}}}, "payload.a.b is nested too deeply"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(value: object, text: str) -> None:
    with pytest.raises(RuleViolation, match=refusal(text)) as refused:
        copy_json(value, max_depth=2)
    assert refused.value.code is Code.EVENT_UNSENDABLE
    refused.value.message.encode()  # a refusal can itself be sent


def test_a_value_that_contains_itself_ends_at_the_depth() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(RuleViolation, match=r"is nested too deeply$"):
        copy_json(circle, max_depth=64)


def test_the_depth_counts_levels_and_not_values() -> None:
    assert copy_json([[], [], 1], max_depth=2) == [[], [], 1]
    assert copy_json("text", max_depth=0) == "text"


def test_the_path_starts_with_what_it_is_told() -> None:
    with pytest.raises(RuleViolation, match=refusal("key[0] is nan, which JSON cannot say")):
        copy_json([math.nan], max_depth=2, path="key")


@pytest.mark.parametrize("text", ["", "ascii", "\u00e9\u4e2d\U0001f600"], ids=ascii)
def test_text_that_can_be_written_is_returned_as_it_is(text: str) -> None:
    assert check_text(text) is text


def test_text_with_half_a_character_is_refused() -> None:
    with pytest.raises(RuleViolation, match=refusal("the note holds half a character (a lone surrogate) at 3")):
        check_text("abc\ud83d", path="the note")


def test_what_cannot_be_written_is_a_refusal_and_no_crash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (object(), {1.5j: 1}, "\ud800", deep):
        with pytest.raises(RuleViolation, match=r"^event\.unsendable: cannot be written as JSON: "):
            encode(value)


def test_the_limit_counts_bytes_as_they_are_written() -> None:
    check_size("\u00e9\u00e9", max_bytes=6)
    with pytest.raises(RuleViolation, match=r"^event.too_large: 6 bytes are over the limit of 5$") as refused:
        check_size("\u00e9\u00e9", max_bytes=5)
    assert refused.value.code is Code.EVENT_TOO_LARGE
