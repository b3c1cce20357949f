"""What a line means depends on what is asked at that moment, and never on what was asked before."""

import pytest

from actors.client.answers import parse_answers
from actors.client.dialogue import Dialogue, Say, Send, hint
from actors.client.view import View
from protocol import events as ev
from protocol.asks import Ask, AskOutcome, Option, Question
from protocol.chat import UserMessage


def ask(number: int, *questions: Question) -> Ask:
    return Ask(f"a{number}", f"c{number}", questions or (Question("q1", f"Question {number}?"),))


def running(*asks: Ask) -> View:
    view = View()
    view.apply(ev.RunStarted(UserMessage("go"), run="r1"))
    for one in asks:
        view.apply(ev.AskOpened(one, run="r1"))
    return view


def settle(view: View, number: int, outcome: AskOutcome = AskOutcome.ANSWERED) -> None:
    view.apply(ev.AskSettled(f"a{number}", f"c{number}", outcome, run="r1"))


def answer(number: int, text: str) -> Send:
    return Send("session/answer", {"ask": f"c{number}", "answer": text}, ask=f"c{number}")


def test_each_line_answers_its_own_of_several_open_asks_b12_b14() -> None:
    view, dialogue = running(ask(1), ask(2), ask(3)), Dialogue()
    assert [one.id for one in dialogue.waiting(view)] == ["a2", "a3"]
    assert dialogue.submit(view, "one") == answer(1, "one")
    assert dialogue.submit(view, "two") == answer(2, "two")
    settle(view, 2)
    assert dialogue.submit(view, "three") == answer(3, "three")
    assert dialogue.asking(view) is None


def test_a_refused_answer_is_asked_for_again() -> None:
    view, dialogue = running(ask(1)), Dialogue()
    dialogue.submit(view, "one")
    assert dialogue.asking(view) is None
    dialogue.not_taken(view, "c1")
    assert dialogue.submit(view, "again") == answer(1, "again")


def test_a_question_settled_elsewhere_is_closed_here_and_its_half_typed_answer_goes_b20_b24() -> None:
    view, dialogue = running(ask(1), ask(2)), Dialogue()
    dialogue.follow(view)
    assert dialogue.follow(view) is False
    settle(view, 1, AskOutcome.TIMED_OUT)
    assert dialogue.follow(view) is True
    asking = dialogue.asking(view)
    assert asking is not None
    assert asking[0].id == "a2"


def test_answering_does_not_count_as_a_change_from_elsewhere() -> None:
    view, dialogue = running(ask(1), ask(2)), Dialogue()
    dialogue.follow(view)
    dialogue.submit(view, "one")
    assert dialogue.follow(view) is False
    settle(view, 1)
    assert dialogue.follow(view) is False


def test_a_question_that_opens_while_a_line_is_typed_does_not_take_the_line() -> None:
    view, dialogue = running(), Dialogue()
    dialogue.follow(view)
    view.apply(ev.AskOpened(ask(1), run="r1"))
    assert dialogue.follow(view) is True


def test_questions_of_one_ask_are_answered_one_after_the_other() -> None:
    view, dialogue = running(ask(1, Question("q1", "A?"), Question("q2", "B?", options=(Option("x"),)))), Dialogue()
    assert dialogue.submit(view, "first") is None
    asking = dialogue.asking(view)
    assert asking is not None
    assert asking[1].id == "q2"
    assert dialogue.submit(view, "1") == Send(
        "session/answer", {"ask": "c1", "payload": {"answers": {"q1": "first", "q2": "x"}}}, ask="c1"
    )


@pytest.mark.parametrize("line", ["", "   ", "\u200b"])
def test_a_blank_line_answers_nothing_b35(line: str) -> None:
    view, dialogue = running(ask(1)), Dialogue()
    assert dialogue.submit(view, line) is None
    assert dialogue.asking(view) is not None


def test_only_the_escape_key_twice_declines() -> None:
    view, dialogue = running(ask(1)), Dialogue()
    assert dialogue.escape(view) == Say("Esc again leaves this question without an answer")
    assert dialogue.escape(view) == Send("session/answer", {"ask": "c1", "outcome": "declined"}, ask="c1")
    assert dialogue.escape(view) is None


def test_a_line_between_two_escapes_starts_over() -> None:
    view, dialogue = running(ask(1, Question("q1", "A?"), Question("q2", "B?"))), Dialogue()
    dialogue.escape(view)
    dialogue.submit(view, "x")
    assert dialogue.escape(view) == Say("Esc again leaves this question without an answer")


def test_without_a_question_a_line_prompts_or_steers() -> None:
    dialogue = Dialogue()
    assert dialogue.submit(View(), "hello") == Send("session/prompt", {"text": "hello"})
    assert dialogue.submit(View(), "/cancel") == Say("nothing is running")
    view = running()
    assert dialogue.submit(view, "shorter, please") == Send("session/steer", {"text": "shorter, please"})
    assert dialogue.submit(view, " /cancel ") == Send("session/cancel", {"reason": "by a person"})
    view.apply(ev.CancelRequested(run="r1"))
    assert dialogue.submit(view, "more") == Say("the run is being cancelled")


def test_a_file_answers_an_ask_or_declines_it_or_has_no_answer() -> None:
    view, dialogue = running(ask(1), ask(2)), Dialogue()
    file = parse_answers('{"Question 1?": "yes", "Question 2?": null}')
    assert dialogue.prepared(view, ask(1), file) == answer(1, "yes")
    assert dialogue.prepared(view, ask(2), file).params == {"ask": "c2", "outcome": "declined"}
    assert dialogue.asking(view) is None
    with pytest.raises(KeyError, match="Question 3"):
        dialogue.prepared(view, ask(3), file)


def test_a_list_in_a_file_goes_as_it_stands() -> None:
    file = parse_answers('[["a", "b"], ["a"]]')
    many = ask(2, Question("q1", "Which?", options=(Option("a"),), multiple=True))
    assert Dialogue().prepared(View(), ask(1), file).params["answer"] == ["a", "b"]
    assert Dialogue().prepared(View(), many, file).params["answer"] == ["a"]


def test_the_hint_says_what_may_be_typed() -> None:
    dialogue = Dialogue()
    several = Question("q1", "Which?", options=(Option("x"),), multiple=True)
    assert hint(View(), dialogue, once=False) == "type a prompt · Ctrl-C detaches"
    assert hint(running(), dialogue, once=True) == "type to steer · Ctrl-C cancels"
    assert hint(running(), dialogue, once=False) == "type to steer · /cancel · Ctrl-C detaches"
    assert hint(running(ask(1)), dialogue, once=True) == "type the answer · Esc Esc declines · Ctrl-C cancels"
    assert hint(running(ask(1, several)), dialogue, once=True) == (
        "numbers choose, e.g. 1,2 · text answers freely · Esc Esc declines · Ctrl-C cancels"
    )
    view = running()
    view.apply(ev.CancelRequested(run="r1"))
    assert hint(view, dialogue, once=True) == "cancelling… Ctrl-C again ends at once"
    assert hint(view, dialogue, once=False) == "cancelling… Ctrl-C detaches"
