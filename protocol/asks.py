"""Ask rules: a question to a person settles once.

OPEN -> ANSWERED | DECLINED | TIMED_OUT | CANCELLED | NO_RESPONDER. The ends are final, and they are kinds: no word a
person types can be mistaken for one. Only a client's answer answers; blank is not an answer; nothing is answered by
default. Pure: knows no time but what is handed in, and not who is connected.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType

from protocol.errors import Code, Detail, RuleViolation
from protocol.ids import is_blank
from protocol.limits import DEFAULT_LIMITS, Limits
from protocol.sendable import check_size, copy_json

RESPONSE_EVENT = "ask_user_response"


class AskOutcome(StrEnum):
    ANSWERED = "answered"
    DECLINED = "declined"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    NO_RESPONDER = "no_responder"


class Option(Struct, frozen=True, omit_defaults=True, gc=False):
    """A choice. `value` is what an answer may say instead of the label; without one the label is the value."""

    label: str
    description: str = ""
    value: str = ""
    preview: str = ""


class Question(Struct, frozen=True, omit_defaults=True, gc=False):
    """One question. `id` is positional (`q1`), never made of its text; `other` allows an answer outside the options."""

    id: str
    question: str
    header: str = ""
    options: tuple[Option, ...] = ()
    multiple: bool = False
    other: bool = True
    required: bool = True


class Ask(Struct, frozen=True, omit_defaults=True, gc=False):
    """What one tool call wants to know. `tool_call_id` names exactly one ask of its session.

    `answers_call`: the answer is the call's result. False where the ask only guards the call.
    """

    id: str
    tool_call_id: str
    questions: tuple[Question, ...]
    path: str = ""
    deadline: float | None = None
    answers_call: bool = True


class Given(Struct, frozen=True, omit_defaults=True, gc=False):
    """The answer to one question: the values chosen or typed, code point for code point."""

    values: tuple[str, ...] = ()


class AskRecord(Struct, omit_defaults=True):
    """An ask as the session's record holds it; `outcome` is None while it is open."""

    ask: Ask
    run: str = ""
    outcome: AskOutcome | None = None
    payload: dict[str, Any] | None = None
    note: str = ""


class SettledAsk(Struct, frozen=True, gc=False):
    """What is remembered of an ask after its run ended."""

    ask: str
    outcome: AskOutcome
    time: float


def check_question(
    question: str, options: Sequence[Option], *, multiple: bool, limits: Limits = DEFAULT_LIMITS
) -> tuple[Detail, ...]:
    """Return everything that is wrong with a question as it was put; empty when it may be shown.

    Options must be visible and differ after trimming. Case and composition matter: `A` and `a` are two options.
    """
    wrong: list[Detail] = []
    if is_blank(question):
        wrong.append(Detail("question", "blank", "the question is blank"))
    elif len(question) > limits.max_question_chars:
        wrong.append(Detail("question", "too_long", f"the question is over {limits.max_question_chars} characters"))
    if len(options) > limits.max_options:
        wrong.append(Detail("options", "too_many", f"{len(options)} options are over the limit {limits.max_options}"))
    if multiple and not options:
        wrong.append(Detail("allow_multiple", "no_options", "allow_multiple needs options to choose from"))
    first_at: dict[str, int] = {}
    for index, option in enumerate(options):
        label, path = option.label.strip(), f"options[{index}]"
        if is_blank(label):
            wrong.append(Detail(path, "blank", "the option is blank"))
        elif len(label) > limits.max_option_chars:
            wrong.append(Detail(path, "too_long", f"the option is over {limits.max_option_chars} characters"))
        elif label in first_at:
            wrong.append(Detail(path, "duplicate", f"the option is the same as options[{first_at[label]}]"))
        else:
            first_at[label] = index
    return tuple(wrong)


def check_answer(ask: Ask, payload: object, *, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Return a copy of an answer's payload if it settles this ask.

    The payload is application-defined and reaches the model whole. Only its `answer` is looked at, and only where it
    is present: text, or a list of texts where several may be chosen; none of them blank.

    Raises:
        RuleViolation: `ask.invalid` - with what is wrong in `details`; the ask stays open.
    """
    if not isinstance(payload, Mapping):
        raise RuleViolation(Code.ASK_INVALID, f"an answer is an object, not {type(payload).__name__}")
    try:
        copied: dict[str, Any] = copy_json(cast("object", payload), max_depth=limits.max_depth)
        check_size(copied, max_bytes=limits.max_answer_bytes)
    except RuleViolation as refused:
        raise RuleViolation(Code.ASK_INVALID, refused.message) from None
    if "answer" in copied:
        wrong = _wrong_values(ask.questions[0], copied["answer"])
        if wrong:
            raise RuleViolation(Code.ASK_INVALID, wrong[0].message, *wrong)
    return copied


def _wrong_values(question: Question, answer: object) -> tuple[Detail, ...]:
    if answer == {}:
        return (Detail("answer", "blank", "the answer is empty"),)
    values = cast("list[object]", answer) if isinstance(answer, list) else [answer]
    if not values:
        return (Detail("answer", "blank", "the answer names nothing"),)
    if isinstance(answer, list) and len(values) > 1 and not question.multiple:
        return (Detail("answer", "too_many", f"one answer is wanted, not {len(values)}"),)
    wrong: list[Detail] = []
    allowed = {text for option in question.options for text in (option.label, option.value) if text}
    for index, value in enumerate(values):
        path = f"answer[{index}]" if isinstance(answer, list) else "answer"
        if value is None or (isinstance(value, str) and is_blank(value)):
            wrong.append(Detail(path, "blank", "a blank answer answers nothing"))
        elif not question.other and not (isinstance(value, str) and value in allowed):
            wrong.append(Detail(path, "not_an_option", f"only the options may be chosen: {', '.join(sorted(allowed))}"))
    return tuple(wrong)


def given(ask: Ask, payload: Mapping[str, Any]) -> dict[str, Given]:
    """Return the answers by question id as far as the payload's `answer` tells them."""
    answer: object = payload.get("answer", UNSET)
    if isinstance(answer, UnsetType):
        return {}
    values = cast("list[object]", answer) if isinstance(answer, list) else [answer]
    return {ask.questions[0].id: Given(tuple(v for v in values if isinstance(v, str)))}
