"""Large texts leave what is stored and come back to their places."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.blobs import Texts, blob_name, is_parted, names_in, put_back, take_out
from protocol.errors import LocalProtocolError

LARGE = "large " * 20
NAME = blob_name(LARGE.encode())
KEYS = st.text(max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def taken(value: Any, larger_than: int = 100) -> tuple[bytes, Texts]:
    texts: Texts = {}
    return take_out(written(value), larger_than=larger_than, texts=texts), texts


@given(value=st.dictionaries(KEYS, VALUES, max_size=5), larger_than=st.integers(1, 40))
def test_what_is_taken_out_comes_back_to_its_place(value: dict[str, Any], larger_than: int) -> None:
    body, texts = taken(value, larger_than)
    assert all(len(data) > larger_than and blob_name(data) == name for name, data in texts.items())
    assert names_in(body) == set(texts) and is_parted(body) == bool(texts)
    assert json.loads(put_back(body, texts.get)) == value
    rest, again = taken(json.loads(body)[1] if texts else value, larger_than)
    assert not again and not is_parted(rest), "a large text is left"


def test_a_text_goes_out_when_its_bytes_are_more_than_the_limit() -> None:
    assert taken({"a": "x" * 100})[1] == {}
    assert list(taken({"a": "x" * 101})[1].values()) == [b"x" * 101]
    assert taken({"a": "é" * 50})[1] == {}
    assert list(taken({"a": "é" * 51})[1].values()) == ["é".encode() * 51]


def test_a_text_that_stands_in_two_places_is_kept_once() -> None:
    body, texts = taken({"a": LARGE, "b": [{"c": LARGE}], "d": "small"})
    assert texts == {NAME: LARGE.encode()}
    assert json.loads(body) == [[[["a"], NAME], [["b", 0, "c"], NAME]], {"a": "", "b": [{"c": ""}], "d": "small"}]


def test_what_has_no_large_text_stays_byte_for_byte_as_it_is() -> None:
    body = b'{ "a" : [1.0, "' + b'", "'.join([b"x" * 90] * 3) + b'"] }'
    texts: Texts = {}
    assert take_out(body, larger_than=100, texts=texts) is body and not texts
    assert put_back(body, texts.get) is body and names_in(body) == frozenset()


def test_what_cannot_be_taken_apart_stays_whole() -> None:
    body = b'{"deep":' + b"[" * 100_000 + b"]" * 100_000 + b',"text":"' + LARGE.encode() + b'"}'
    texts: Texts = {}
    assert take_out(body, larger_than=100, texts=texts) is body and not texts


def test_a_number_comes_back_exactly() -> None:
    value = {"large": 10**30, "small": 1e-300, "negative": -(2**63), "text": LARGE}
    body, texts = taken(value)
    assert texts and json.loads(put_back(body, texts.get)) == value


def test_no_text_is_taken_for_a_place_that_something_was_taken_out_of() -> None:
    said = json.dumps([[[["a"], NAME]], {"a": ""}])
    body, texts = taken({"a": said + LARGE})
    assert json.loads(put_back(body, texts.get)) == {"a": said + LARGE}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[", "it is neither an object nor one with texts taken out: Input data was truncated"),
        (b"[[],3", "it is neither an object nor one with texts taken out: Input data was truncated"),
        (b"[1,{}]", "it is neither an object nor one with texts taken out: "),
        (b'[[[["a"],"00"]],{"a":""}]', "blob 00, which is part of it, is missing"),
        (b'[[[["a","b"],"%s"]],{"a":""}]' % NAME.encode(), "large texts do not fit where they were taken out: "),
        (b'[[[["b",0],"%s"]],{"a":""}]' % NAME.encode(), "large texts do not fit where they were taken out: 'b'"),
        (b'[[[[],"%s"]],{"a":""}]' % NAME.encode(), "large texts do not fit where they were taken out: "),
    ],
)
def test_what_take_out_has_not_made_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        put_back(body, {NAME: LARGE.encode()}.get)
    assert str(caught.value).startswith(message)


def test_bytes_that_are_no_text_are_refused() -> None:
    body, texts = taken({"a": LARGE})
    with pytest.raises(LocalProtocolError, match=r"^large texts do not fit where they were taken out: 'utf-8' codec"):
        put_back(body, dict.fromkeys(texts, b"\xff").get)
