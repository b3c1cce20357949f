"""A line or a file answers exactly what it says, or is refused with what to do instead."""

import pytest

from actors.client.answers import (
    AnswersInvalid,
    Given,
    NotUnderstood,
    answer_params,
    parse_answers,
    read_line,
)
from protocol.asks import Ask, Option, Question, check_answer

CHANNELS = (Option("stable"), Option("beta", value="b"), Option("nightly"))


def question(*options: Option, multiple: bool = False, other: bool = True, text: str = "Which?") -> Question:
    return Question("q1", text, options=options, multiple=multiple, other=other)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("1", ("stable",)), (" 2 ", ("b",)), ("beta", ("b",)), ("b", ("b",)), ("something else", ("something else",)),
        ("=7", ("7",)), ("=1", ("1",)), ("Stable", ("Stable",)), ("1.5", ("1.5",)), ("-", ("-",)), ("Null", ("Null",)),
    ],
)  # fmt: skip
def test_a_line_chooses_by_number_or_word_and_is_free_text_otherwise(line: str, values: tuple[str, ...]) -> None:
    assert read_line(question(*CHANNELS), line) == Given(values)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("1,3", ("stable", "nightly")), ("3 1", ("nightly", "stable")), ("1, 1", ("stable",)), ("2", ("b",)),
        ("stable, beta", ("stable", "b")), ("stable, perhaps", ("stable, perhaps",)),
    ],
)  # fmt: skip
def test_several_are_chosen_where_several_may_be(line: str, values: tuple[str, ...]) -> None:
    assert read_line(question(*CHANNELS, multiple=True), line) == Given(values)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("7", "there is no option 7, only 1 to 3; to answer with this text, type =7"),
        ("0", "there is no option 0, only 1 to 3; to answer with this text, type =0"),
        ("1,2", "only one option may be chosen; to answer with this text, type =1,2"),
        ("=", "nothing is said after '='"),
        ("  ", "a blank line answers nothing"),
        ("\u200b", "a blank line answers nothing"),
    ],
)
def test_what_could_be_two_things_is_refused_with_what_to_type(line: str, message: str) -> None:
    assert read_line(question(*CHANNELS), line) == NotUnderstood(message)


def test_only_options_answer_where_nothing_else_may() -> None:
    closed = question(*CHANNELS, other=False)
    assert read_line(closed, "perhaps") == NotUnderstood("choose one of the options, 1 to 3")
    assert read_line(closed, "9") == NotUnderstood("there is no option 9, only 1 to 3")
    assert read_line(closed, "=x") == NotUnderstood("choose one of the options, 1 to 3")


def test_without_options_a_number_is_a_text() -> None:
    assert read_line(question(), "5") == Given(("5",))


def test_an_option_reaches_the_model_code_point_for_code_point_b32() -> None:
    composed, decomposed = Option("caf\u00e9"), Option("cafe\u0301")
    assert read_line(question(composed, decomposed), "2") == Given(("cafe\u0301",))
    assert read_line(question(composed, decomposed), "cafe\u0301") == Given(("cafe\u0301",))


def test_options_that_differ_in_case_only_stay_two_options_b31() -> None:
    assert read_line(question(Option("A"), Option("a")), "a") == Given(("a",))


@pytest.mark.parametrize("word", ["Null", "null", "None", "cancel", "declined", "timed_out", "-"])
def test_no_word_is_taken_for_no_answer_b36(word: str) -> None:
    ask = Ask("a1", "c1", (question(),))
    said = read_line(ask.questions[0], word)
    assert said == Given((word,))
    assert check_answer(ask, answer_params(ask, [Given((word,))])) == {"answer": word}


def test_one_question_is_answered_by_a_text_and_a_choice_of_several_by_a_list() -> None:
    assert answer_params(Ask("a", "c", (question(*CHANNELS),)), [Given(("b",))]) == {"answer": "b"}
    assert answer_params(Ask("a", "c", (question(*CHANNELS, multiple=True),)), [Given(("b",))]) == {"answer": ["b"]}


def test_several_questions_keep_their_slots_b37() -> None:
    ask = Ask("a", "c", (Question("q1", "Name?"), Question("q2", "name?"), Question("q3", "Name ?")))
    assert answer_params(ask, [Given(("x",)), Given(("y",)), Given(("z",))]) == {
        "payload": {"answers": {"q1": "x", "q2": "y", "q3": "z"}}
    }


def test_a_file_answers_by_text_by_place_or_in_order() -> None:
    by_text = parse_answers('{"Which?": "beta", "2": ["a", "b"], "Why?": null}')
    assert by_text.take(question()) == "beta"
    assert by_text.take(question(text="Unnamed?")) == ["a", "b"]
    assert by_text.take(question(text="Why?")) is None
    in_order = parse_answers('\ufeff["one", "two"]')
    assert [in_order.take(question()), in_order.take(question())] == ["one", "two"]


def test_a_question_that_is_not_in_the_file_has_no_answer() -> None:
    with pytest.raises(KeyError, match="Which"):
        parse_answers('{"which?": "x"}').take(question())
    with pytest.raises(KeyError, match="Which"):
        parse_answers("[]").take(question())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[" * 100_000, "is not JSON: it is nested too deeply"),
        ('"x"', "must be an object (question text to answer) or an array (answers in order)"),
        ('{"Which?": 5}', "has for 'Which?' neither a text, nor a list of texts, nor null to decline"),
        ('{"Which?": " "}', "has for 'Which?' neither a text, nor a list of texts, nor null to decline"),
        ('["x", []]', "has for answer 2 neither a text, nor a list of texts, nor null to decline"),
        ('{"Which?": {"a": 1}}', "has for 'Which?' neither a text, nor a list of texts, nor null to decline"),
        ('{"Which?": "a", "Which?": "b"}', "answers 'Which?' twice"),
    ],
)
def test_a_file_of_another_shape_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(AnswersInvalid) as refused:
        parse_answers(text)
    assert str(refused.value) == message


def test_a_file_has_a_limit() -> None:
    with pytest.raises(AnswersInvalid, match=r"^has over 1000000 characters$"):
        parse_answers(" " * 1_000_001)
