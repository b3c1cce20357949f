"""Which questions may be put, and which answers settle them."""

import math
import re
from typing import Any

import msgspec
import pytest

from protocol.asks import (
    RESPONSE_EVENT,
    Ask,
    AskOutcome,
    Given,
    Option,
    Question,
    check_answer,
    check_question,
    given,
)
from protocol.errors import Code, Detail, RuleViolation
from protocol.limits import Limits

POSTGRES = (Option("Postgres"), Option("SQLite", value="sqlite3"))


def ask(*options: Option, multiple: bool = False, other: bool = True) -> Ask:
    return Ask("a5", "c4", (Question("q1", "Which?", options=options, multiple=multiple, other=other),))


def problems(question: str, *labels: str, multiple: bool = False, limits: Limits | None = None) -> list[Detail]:
    options = [Option(label) for label in labels]
    return list(check_question(question, options, multiple=multiple, limits=limits or Limits()))


# ---- questions


@pytest.mark.parametrize("question", ["?", " x ", "q" * 4_000])
def test_a_question_of_up_to_4000_characters_may_be_put(question: str) -> None:
    assert problems(question) == []


def test_a_question_may_have_up_to_20_options() -> None:
    assert problems("Which?", *map(str, range(20)), multiple=True) == []


@pytest.mark.parametrize(
    ("question", "labels", "multiple", "expected"),
    [
        ("", (), False, Detail("question", "blank", "the question is blank")),
        (" \u200b\u3164", (), False, Detail("question", "blank", "the question is blank")),
        ("q" * 4_001, (), False, Detail("question", "too_long", "the question is over 4000 characters")),
        ("?", tuple(map(str, range(21))), False, Detail("options", "too_many", "21 options are over the limit 20")),
        ("?", (), True, Detail("allow_multiple", "no_options", "allow_multiple needs options to choose from")),
        ("?", ("x" * 501,), False, Detail("options[0]", "too_long", "the option is over 500 characters")),
    ],
)
def test_a_question_that_may_not_be_put_says_why(
    question: str, labels: tuple[str, ...], multiple: bool, expected: Detail
) -> None:
    assert problems(question, *labels, multiple=multiple) == [expected]


def test_an_option_is_as_long_as_what_is_left_of_it_after_trimming() -> None:
    assert problems("?", " " + "x" * 500 + " ") == []


def test_blank_and_equal_options_are_refused_by_index_and_case_matters_b31() -> None:
    assert problems("?", "   ", "", "A", "A ", "a", "\u200b") == [
        Detail("options[0]", "blank", "the option is blank"),
        Detail("options[1]", "blank", "the option is blank"),
        Detail("options[3]", "duplicate", "the option is the same as options[2]"),
        Detail("options[5]", "blank", "the option is blank"),
    ]
    assert problems("?", "A", "a") == []


def test_labels_that_look_alike_are_different_options_b32() -> None:
    labels = ("C++", "C", "C#", "e\u0301t\u00e9", "\u00e9t\u00e9")
    assert problems("?", *labels) == []
    long = tuple("x" * 64 + end for end in "ab")
    assert problems("?", *long) == []


@pytest.mark.parametrize("label", ["C++", "C", "C#", "e\u0301t\u00e9", "\u00e9t\u00e9"], ids=ascii)
def test_the_chosen_label_comes_back_code_point_for_code_point_b32(label: str) -> None:
    question = ask(*map(Option, ("C++", "C", "C#", "e\u0301t\u00e9", "\u00e9t\u00e9")), other=False)
    payload = check_answer(question, {"tool_call_id": "c4", "answer": label})
    assert payload["answer"] == label
    assert given(question, payload) == {"q1": Given((label,))}


def test_limits_of_a_question_can_be_set() -> None:
    limits = Limits(max_question_chars=2, max_options=1, max_option_chars=3)
    found = problems("abc", "abcd", "e", limits=limits)
    assert [detail.code for detail in found] == ["too_long", "too_many", "too_long"]


# ---- answers


def refused(question: Ask, payload: object, limits: Limits | None = None) -> RuleViolation:
    with pytest.raises(RuleViolation) as caught:
        check_answer(question, payload, limits=limits or Limits())
    assert caught.value.code is Code.ASK_INVALID
    return caught.value


@pytest.mark.parametrize("value", [["   "], [], [""], None, ["\u00a0"]], ids=ascii)
@pytest.mark.parametrize("options", [(), POSTGRES], ids=["free text", "options"])
def test_an_answer_of_nothing_is_refused_b35(value: object, options: tuple[Option, ...]) -> None:
    assert [detail.code for detail in refused(ask(*options), {"answer": value}).details] == ["blank"]


@pytest.mark.parametrize("multiple", [False, True])
def test_an_answer_with_space_around_it_is_kept_as_it_is_b35(multiple: bool) -> None:
    question = ask(*POSTGRES, multiple=multiple)
    payload = check_answer(question, {"answer": [" Postgres "]})
    assert payload == {"answer": [" Postgres "]}
    assert given(question, payload) == {"q1": Given((" Postgres ",))}


@pytest.mark.parametrize(
    "word", ["null", "Null", "undefined", "NaN", "false", "0", "__dismissed__", "None", "{}", "timed_out", "declined"]
)
@pytest.mark.parametrize("options", [False, True])
def test_a_word_that_looks_like_no_answer_is_an_answer_b36(word: str, options: bool) -> None:
    question = ask(*((Option(word), Option("other")) if options else ()), other=not options)
    assert check_answer(question, {"answer": word}) == {"answer": word}
    assert given(question, {"answer": word}) == {"q1": Given((word,))}


def test_outcomes_are_kinds_of_their_own_b36() -> None:
    assert [str(outcome) for outcome in AskOutcome] == [
        "answered", "declined", "timed_out", "cancelled", "no_responder",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        (ask(), "", [Detail("answer", "blank", "a blank answer answers nothing")]),
        (ask(), [], [Detail("answer", "blank", "the answer names nothing")]),
        (ask(), {}, [Detail("answer", "blank", "the answer is empty")]),
        (ask(), ["a", "b"], [Detail("answer", "too_many", "one answer is wanted, not 2")]),
        (
            ask(*POSTGRES, multiple=True),
            ["Postgres", " ", None],
            [
                Detail("answer[1]", "blank", "a blank answer answers nothing"),
                Detail("answer[2]", "blank", "a blank answer answers nothing"),
            ],
        ),
        (
            ask(*POSTGRES, other=False),
            "postgres",
            [Detail("answer", "not_an_option", "only the options may be chosen: Postgres, SQLite, sqlite3")],
        ),
        (
            ask(*POSTGRES, other=False, multiple=True),
            ["Postgres", "MySQL"],
            [Detail("answer[1]", "not_an_option", "only the options may be chosen: Postgres, SQLite, sqlite3")],
        ),
    ],
)
def test_an_answer_that_does_not_fit_says_where_and_why(question: Ask, answer: object, expected: list[Detail]) -> None:
    violation = refused(question, {"answer": answer})
    assert list(violation.details) == expected
    assert str(violation) == f"ask.invalid: {expected[0].message}"


@pytest.mark.parametrize("answer", [5, True, 0.5, {"a": 1}, [["Postgres"]], [{}]], ids=repr)
def test_where_only_the_options_may_be_chosen_nothing_else_gets_through(answer: object) -> None:
    assert [detail.code for detail in refused(ask(*POSTGRES, other=False), {"answer": answer}).details] == [
        "not_an_option"
    ]


@pytest.mark.parametrize("answer", ["Postgres", "SQLite", "sqlite3", ["sqlite3"]])
def test_an_option_is_chosen_by_its_label_or_its_value(answer: object) -> None:
    assert check_answer(ask(*POSTGRES, other=False), {"answer": answer}) == {"answer": answer}


@pytest.mark.parametrize(
    "payload",
    [
        {"answer": False},
        {"answer": 0},
        {"answer": 1.5},
        {"answer": {"city": ""}},
        {"answer": ["a", "b"], "note": "both"},
        {"choice": 3},
        {},
        {"tool_call_id": "c4", "parts": []},
    ],
    ids=repr,
)
def test_the_rest_of_a_payload_is_the_applications_own(payload: dict[str, Any]) -> None:
    assert check_answer(ask(*POSTGRES, multiple=True), payload) == payload


def test_the_payload_is_copied_so_that_later_changes_reach_nobody() -> None:
    payload: dict[str, Any] = {"answer": ["Postgres"]}
    copied = check_answer(ask(*POSTGRES), payload)
    payload["answer"].append("SQLite")
    assert copied == {"answer": ["Postgres"]}


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "an answer is an object, not NoneType"),
        (["Postgres"], "an answer is an object, not list"),
        ("Postgres", "an answer is an object, not str"),
        ({"answer": math.nan}, "payload.answer is nan, which JSON cannot say"),
        ({"answer": {"a"}}, "payload.answer is of type set, which JSON cannot say"),
        ({"answer": "\ud800"}, "payload.answer holds half a character (a lone surrogate) at 0"),
    ],
)
def test_a_payload_that_cannot_be_kept_leaves_the_ask_open(payload: object, text: str) -> None:
    violation = refused(ask(), payload)
    assert str(violation) == f"ask.invalid: {text}"
    assert violation.details == ()


def test_a_payload_over_the_limit_leaves_the_ask_open() -> None:
    limits = Limits(max_answer_bytes=20)
    assert check_answer(ask(), {"answer": "x" * 7}, limits=limits) == {"answer": "x" * 7}
    violation = refused(ask(), {"answer": "x" * 8}, limits)
    assert re.fullmatch(r"ask\.invalid: 21 bytes are over the limit of 20", str(violation))


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({}, {}),
        ({"answer": "a"}, {"q1": Given(("a",))}),
        ({"answer": ["a", "b"]}, {"q1": Given(("a", "b"))}),
        ({"answer": 5}, {"q1": Given()}),
        ({"answer": [1, "b"]}, {"q1": Given(("b",))}),
    ],
)
def test_answers_are_kept_by_question_id_as_far_as_they_are_text(
    payload: dict[str, Any], expected: dict[str, Given]
) -> None:
    assert given(ask(), payload) == expected


# ---- on the wire


def test_an_ask_leaves_out_what_it_has_not() -> None:
    assert msgspec.json.decode(msgspec.json.encode(ask(Option("A")))) == {
        "id": "a5",
        "tool_call_id": "c4",
        "questions": [{"id": "q1", "question": "Which?", "options": [{"label": "A"}]}],
    }


def test_an_ask_reads_back_as_it_was() -> None:
    whole = Ask(
        "a5", "c4", (Question("q1", "?", "H", (Option("A", "d", "v", "p"),), True, False, False),), "sub", 12.5, False
    )
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Ask) == whole


def test_the_documented_name_of_an_answers_event() -> None:
    assert RESPONSE_EVENT == "ask_user_response"
