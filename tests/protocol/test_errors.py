"""The codes are a promise: listed once, each explained, each error says what it is."""

import re

import pytest

from protocol.errors import (
    MEANINGS,
    ActorsError,
    Code,
    Detail,
    LocalProtocolError,
    ModelError,
    RemoteProtocolError,
    RuleViolation,
    RunCancelled,
    RunFailed,
    ToolError,
    error_payload,
)


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_a_meaning_that_is_a_sentence(code: Code) -> None:
    assert re.fullmatch(r"[A-Z].*\.", MEANINGS[code])


def test_no_meaning_is_left_of_a_code_that_is_gone() -> None:
    assert list(MEANINGS) == list(Code)


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.NO_RESPONDER])
def test_a_code_is_a_noun_and_a_reason(code: Code) -> None:
    assert re.fullmatch(r"[a-z_]+\.[a-z_]+", code)


def test_codes_are_in_alphabetical_order_so_that_the_table_is() -> None:
    assert [code.name for code in Code] == sorted(code.name for code in Code)


def test_a_refusal_starts_with_its_code_and_keeps_its_parts() -> None:
    detail = Detail("a.b", "blank", "it is blank")
    refused = RuleViolation(Code.ASK_INVALID, "the answer is blank", detail)
    assert str(refused) == "ask.invalid: the answer is blank"
    assert (refused.code, refused.message, refused.details) == (Code.ASK_INVALID, "the answer is blank", (detail,))


def test_a_refusal_without_words_of_its_own_takes_the_meaning() -> None:
    refused = RuleViolation(Code.RUN_UNKNOWN)
    assert str(refused) == "run.unknown"
    assert refused.message == "No run of that session has this id."
    assert refused.details == ()


def test_a_remote_protocol_error_closes_with_1002_unless_told_otherwise() -> None:
    assert RemoteProtocolError("bad").close_code == 1002
    assert RemoteProtocolError("too long", close_code=1009).close_code == 1009


def test_a_model_error_has_the_code_it_is_given() -> None:
    assert (ModelError("down").code, ModelError("down").message) == ("model.failed", "down")
    assert ModelError("slow down", code="model.rate").code == "model.rate"
    assert type(ModelError("cut", code=Code.MODEL_TRUNCATED).code) is str


def test_a_tool_error_has_code_message_and_details() -> None:
    detail = Detail("path", "missing", "no such file")
    error = ToolError("not found", code=Code.TOOL_INVALID_ARGS, details=(detail,))
    assert (str(error), error.code, error.message, error.details) == (
        "not found", "tool.invalid_args", "not found", (detail,),
    )  # fmt: skip
    assert (ToolError("x").code, ToolError("x").details) == ("tool.failed", ())


def test_a_failed_run_says_code_and_message() -> None:
    failed = RunFailed("model.failed", "the model is down")
    assert str(failed) == "model.failed: the model is down"
    assert (failed.code, failed.message) == ("model.failed", "the model is down")


@pytest.mark.parametrize(("reason", "text"), [("enough", "enough"), ("", "the run was cancelled")])
def test_a_cancelled_run_says_its_reason(reason: str, text: str) -> None:
    cancelled = RunCancelled(reason)
    assert (str(cancelled), cancelled.reason) == (text, reason)


@pytest.mark.parametrize(
    "kind", [RuleViolation, LocalProtocolError, RemoteProtocolError, ModelError, ToolError, RunFailed, RunCancelled]
)
def test_whatever_is_raised_on_purpose_has_one_base(kind: type[Exception]) -> None:
    assert issubclass(kind, ActorsError)


def test_an_error_has_one_shape_for_the_model() -> None:
    assert error_payload(Code.TOOL_UNKNOWN, "no such tool") == {
        "error": {"code": "tool.unknown", "message": "no such tool"}
    }


def test_details_of_an_error_leave_out_what_they_do_not_say() -> None:
    payload = error_payload("x.y", "wrong", (Detail("todos[2]", "blank", "it is blank"), Detail(message="and more")))
    assert payload["error"]["details"] == [
        {"path": "todos[2]", "code": "blank", "message": "it is blank"},
        {"message": "and more"},
    ]
