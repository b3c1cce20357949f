"""What a typed line, or a file of answers, means for a question. Pure.

Nothing is answered by default and nothing is guessed: a line that could be two things is refused with what to type
instead. Which text counts as an option is decided by the option, code point for code point.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from actors.client.text import one_line
from protocol.asks import Ask, Option, Question
from protocol.errors import ActorsError
from protocol.ids import is_blank

MAX_FILE_CHARS = 1_000_000
# Before a line that is meant literally, where it would otherwise be read as an option's number.
LITERAL = "="


class AnswersInvalid(ActorsError):
    """A file of answers has the wrong shape."""


@dataclass(frozen=True, slots=True)
class Given:
    """The values chosen or typed, for one question."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """The line answers nothing; `message` says what to type."""

    message: str


def value_of(option: Option) -> str:
    """Return what an answer says to choose this option."""
    return option.value or option.label


def read_line(question: Question, line: str) -> Given | NotUnderstood:
    """Return what `line` says to `question`.

    Numbers choose options, several of them separated by commas or spaces where several may be chosen; so do the
    options' own words. Anything else is an answer in free text where that is allowed. After `=` all is free text.
    """
    text = line.strip()
    if text.startswith(LITERAL) and question.other:
        literal = text.removeprefix(LITERAL).strip()
        return NotUnderstood("nothing is said after '='") if is_blank(literal) else Given((literal,))
    if is_blank(text):
        return NotUnderstood("a blank line answers nothing")
    options = question.options
    if not options:
        return Given((text,))
    named = _exact(options, text)
    if named is not None:
        return Given((value_of(named),))
    numbers = _numbers(text)
    if numbers:
        return _by_number(question, numbers, text)
    pieces = [_exact(options, piece.strip()) for piece in text.split(",")]
    if question.multiple and len(pieces) > 1 and all(pieces):
        return Given(tuple(dict.fromkeys(value_of(piece) for piece in pieces if piece)))
    if question.other:
        return Given((text,))
    return NotUnderstood(f"choose one of the options, 1 to {len(options)}")


def _by_number(question: Question, numbers: list[int], text: str) -> Given | NotUnderstood:
    count = len(question.options)
    unknown = next((number for number in numbers if not 1 <= number <= count), None)
    literally = f"; to answer with this text, type {LITERAL}{one_line(text, 20)}" if question.other else ""
    if unknown is not None:
        return NotUnderstood(f"there is no option {unknown}, only 1 to {count}{literally}")
    if len(numbers) > 1 and not question.multiple:
        return NotUnderstood(f"only one option may be chosen{literally}")
    return Given(tuple(dict.fromkeys(value_of(question.options[number - 1]) for number in numbers)))


def _numbers(text: str) -> list[int] | None:
    """Return the numbers `text` consists of, or None if it is anything else."""
    pieces = text.replace(",", " ").split()
    if not pieces or not all(piece.isascii() and piece.isdigit() and len(piece) <= 9 for piece in pieces):
        return None
    return [int(piece) for piece in pieces]


def _exact(options: Sequence[Option], text: str) -> Option | None:
    return next((option for option in options if text in (option.label, option.value) and text), None)


def answer_params(ask: Ask, given: Sequence[Given]) -> dict[str, Any]:
    """Return the parameters of `session/answer` for an ask whose questions got `given`, in order.

    One question: `answer` is a text, or a list of texts where several may be chosen. Several: one entry each under
    `answers` in the payload, by question id.
    """
    said = [
        list(one.values) if question.multiple else one.values[0]
        for question, one in zip(ask.questions, given, strict=True)
    ]
    if len(said) == 1:
        return {"answer": said[0]}
    return {"payload": {"answers": {question.id: value for question, value in zip(ask.questions, said, strict=True)}}}


Answer = str | list[str] | None


class AnswerFile:
    """Answers prepared beforehand: by question text or place, or in the order in which questions are opened.

    `null` declines. A question that is not in it has no answer; nothing stands in for one.
    """

    def __init__(self, content: dict[str, Answer] | list[Answer]) -> None:
        self._content = content
        self._opened = 0

    def take(self, question: Question) -> Answer:
        """Return the answer to the question that was opened next.

        Raises:
            KeyError: It is not in the file.
        """
        self._opened += 1
        if isinstance(self._content, list):
            if self._opened > len(self._content):
                raise KeyError(question.question)
            return self._content[self._opened - 1]
        for key in (question.question, question.question.strip(), str(self._opened)):
            if key in self._content:
                return self._content[key]
        raise KeyError(question.question)


def parse_answers(text: str) -> AnswerFile:
    """Return the answers of a JSON file.

    Raises:
        AnswersInvalid: Not JSON, a question twice, or anything but an object or array of texts, lists of texts, nulls.
    """
    if len(text) > MAX_FILE_CHARS:
        raise AnswersInvalid(f"has over {MAX_FILE_CHARS} characters")
    try:
        content: object = json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise AnswersInvalid(f"is not JSON: {reason}") from None
    if isinstance(content, dict):
        answers = cast("dict[str, object]", content)
        return AnswerFile({key: _checked(repr(one_line(key, 60)), answers[key]) for key in answers})
    if isinstance(content, list):
        return AnswerFile([_checked(f"answer {n}", v) for n, v in enumerate(cast("list[object]", content), 1)])
    raise AnswersInvalid("must be an object (question text to answer) or an array (answers in order)")


def _checked(which: str, answer: object) -> Answer:
    if answer is None:
        return None
    values = cast("list[object]", answer) if isinstance(answer, list) else [answer]
    if not values or not all(isinstance(value, str) and not is_blank(value) for value in values):
        raise AnswersInvalid(f"has for {which} neither a text, nor a list of texts, nor null to decline")
    return cast("Answer", answer)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise AnswersInvalid(f"answers {one_line(key, 60)!r} twice")
        found[key] = value
    return found
