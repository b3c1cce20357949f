"""What counts as a step in Markdown."""

import time

import pytest

from actors.models.checklist_steps import MAX_MARKDOWN_CHARS, Checklist, Step, StepKind, read_checklist
from protocol.limits import Limits


def steps(markdown: str, **limits: int) -> tuple[Step, ...]:
    return read_checklist(markdown, Limits(**limits)).steps  # type: ignore[arg-type]


def texts(markdown: str) -> list[str]:
    return [step.text for step in steps(markdown)]


def test_every_top_level_item_of_every_list_is_a_step() -> None:
    markdown = "# Plan\n\nFirst:\n\n- a\n* b\n\n## Then\n\n1. c\n2. d\n   - nested\n\nafter\n\n10) e\n"
    assert texts(markdown) == ["a", "b", "c", "d", "e"]


def test_lists_in_code_and_quotes_are_not_steps() -> None:
    assert texts("```\n- a\n```\n\n    - b\n\n> - c\n\n- d\n") == ["d"]
    assert texts("text - a\n\\- b") == []


def test_ticked_items_are_left_out_and_counted() -> None:
    checklist = read_checklist("- [x] a\n- [X] b\n- [ ] c\n- `[x]` d\n- [x](link) e\n- [x]f")
    assert [step.text for step in checklist.steps] == ["c", "[x] d", "x e", "[x]f"]
    assert checklist.already_done == 2


def test_empty_items_are_skipped() -> None:
    assert texts("-\n- [ ]\n- \u200b\n- a\n- ![](x.png)\n- ```\n  code\n  ```\n- - inner") == ["a"]


def test_a_steps_text_has_no_markup_and_is_one_line() -> None:
    markdown = (
        "- **Bump** the *[version](http://x)* `v1`\\\n  to <b>2</b> &amp; \\*go\\* ![logo](l.png)\n  now\n\n  More.\n"
    )
    assert texts(markdown) == ["Bump the version v1 to 2 & *go* logo now"]
    assert texts("- # Head\n- Line") == ["Head", "Line"]


def test_line_ends_do_not_matter() -> None:
    markdown = "- a\n- b?\n  - x\n  - y\n"
    assert steps(markdown.replace("\n", "\r\n")) == steps(markdown) == steps(markdown.replace("\n", "\r"))


def test_steps_of_the_same_text_are_numbered() -> None:
    assert texts("- a\n- a\n- a (2)\n- a") == ["a", "a (2)", "a (2) (2)", "a (3)"]


@pytest.mark.parametrize("mark", ["?", "？", "؟", "?**"])
def test_a_step_that_ends_in_a_question_mark_is_a_question(mark: str) -> None:
    start = "**" if mark.endswith("*") else ""
    (step,) = steps(f"- {start}Which one{mark}\n  1. a\n  2. **b**\n\n     more\n")
    assert (step.kind, step.options, step.multiple) == (StepKind.QUESTION, ("a", "b"), False)
    assert step.question == step.text


def test_boxes_below_a_question_allow_several_answers() -> None:
    (step,) = steps("- Which?\n  - [ ] a\n  - [x] b\n  - c")
    assert (step.options, step.multiple) == (("a", "b", "c"), True)
    (step,) = steps("- [ ] Which?\n  - [ ]\n")
    assert (step.options, step.multiple, step.notes) == ((), False, ("1 option left out: blank",))


def test_options_that_cannot_be_put_are_left_out_and_named() -> None:
    (step,) = steps("- Q?\n  - a\n  - a\n  -\n  - bbbbb\n  - c\n  - d\n  - e", max_options=2, max_option_chars=4)
    assert step.options == ("a", "c")
    assert step.notes == (
        "1 option left out: there twice",
        "1 option left out: blank",
        "1 option left out: over 4 characters",
        "2 options left out: over the limit of 2",
    )


def test_a_step_that_is_one_code_span_is_a_call() -> None:
    (step,) = steps('- [ ] `deploy {"to": ["a", 1]}`')
    assert (step.kind, step.tool, step.arguments) == (StepKind.TOOL, "deploy", {"to": ["a", 1]})
    (step,) = steps("- `  status `")
    assert (step.kind, step.tool, step.arguments) == (StepKind.TOOL, "status", {})
    assert [step.kind for step in steps("- run `status`\n- `a` `b`\n- `§ 5`")] == [StepKind.PLAIN] * 3


def test_a_call_with_bad_arguments_is_a_plain_step_that_says_why() -> None:
    (step,) = steps('- `deploy {"a": }`')
    assert step == Step(
        StepKind.PLAIN,
        'deploy {"a": }',
        tool="deploy",
        notes=("`deploy` was not called: the arguments are not JSON: Expecting value at character 6",),
    )


def test_long_texts_are_cut_and_named() -> None:
    long, question = steps("- abcdefgh\n- abcdefg?", max_todo_chars=6, max_question_chars=7)
    assert (long.text, long.notes) == ("abcde…", ("the step's text was cut to 6 characters",))
    assert (question.text, question.question) == ("ab (2)", "abcdef…")
    assert question.notes == (
        "the question was cut to 7 characters",
        "the step's text was cut to 6 characters",
    )


def test_steps_beyond_the_limit_are_only_counted() -> None:
    checklist = read_checklist("- a\n- b\n- [x] c\n- d", Limits(max_todos=2))
    assert ([step.text for step in checklist.steps], checklist.beyond, checklist.already_done) == (["a", "b"], 1, 1)


def test_no_list_is_an_empty_checklist() -> None:
    assert read_checklist("") == read_checklist("hello\n\n# world") == Checklist(())


@pytest.mark.parametrize("piece", ["- a\n", "- ", "*a **b ", "> ", "- a?\n  - b\n", "[", "`", "- [ ] \\"])
def test_hostile_text_is_read_in_bounded_time(piece: str) -> None:
    started = time.process_time()
    read_checklist(("- " + piece * MAX_MARKDOWN_CHARS)[:MAX_MARKDOWN_CHARS])
    assert time.process_time() - started < 10
