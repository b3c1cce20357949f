"""What is drawn fits the terminal, says the same without colour, and never carries a control character of others."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from actors.client.blocks import Block, Ended, Mark, Noted, Prompted, Said, Settled
from actors.client.dialogue import Dialogue
from actors.client.render import LiveArea, outcome_line, plain, rich_block, signs
from actors.client.view import View
from protocol import events as ev
from protocol.asks import Ask, AskOutcome, Option, Question
from protocol.chat import UserMessage
from protocol.todos import TodoItem, TodoList, TodoStatus

MARKS = signs("utf-8")
ACTIVE, OPEN = TodoStatus.IN_PROGRESS, TodoStatus.PENDING


def drawn(thing: object, width: int = 60, height: int = 24) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False, highlight=False)
    console.print(thing, end="")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(cell_len(line) <= width for line in text.splitlines())
    return text


def busy(items: int = 3, active: int = 1, options: int = 2) -> LiveArea:
    view = View()
    view.apply(ev.RunStarted(UserMessage("go"), run="r1"))
    statuses = [
        TodoStatus.COMPLETED if n < active else TodoStatus.IN_PROGRESS if n == active else TodoStatus.PENDING
        for n in range(items)
    ]
    todos = tuple(TodoItem(f"step {n}", status) for n, status in enumerate(statuses))
    view.apply(ev.TodosChanged(TodoList(todos), run="r1"))
    for number in (1, 2):
        choices = tuple(Option(f"option {n}", description="why not") for n in range(1, options + 1))
        question = Question("q1", f"Question {number}?", header="Pick", options=choices)
        view.apply(ev.AskOpened(Ask(f"a{number}", f"c{number}", (question,)), run="r1"))
    view.apply(ev.ToolStarted("c9", "dig", run="r1"))
    view.apply(ev.TextStreamed("r1.1", 0, "Streaming\ntext", run="r1"))
    area = LiveArea(view, Dialogue(), MARKS, once=True)
    area.typed, area.notice = "half an ans", "mind the gap"
    return area


def test_the_live_area_shows_text_tools_list_question_and_input() -> None:
    assert [line.rstrip() for line in drawn(busy()).splitlines()] == [
        "",
        "Streaming",
        "text",
        "⚙ dig…",
        "",
        "1 of 3 done",
        "✔ step 0",
        "▶ step 1",
        "○ step 2",
        "",
        "? Pick: Question 1?",
        "  1  option 1 — why not",
        "  2  option 2 — why not",
        "1 more to answer after this one",
        "  Question 2?",
        "",
        "mind the gap",
        "› half an ans▏",
        "a number chooses · text answers freely · Esc Esc declines ·",
        "Ctrl-C cancels",
    ]


def test_nothing_to_show_is_the_input_alone() -> None:
    assert drawn(LiveArea(View(), Dialogue(), MARKS, once=False)).splitlines() == [
        "", "› ▏", "type a prompt · Ctrl-C detaches"
    ]  # fmt: skip


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize("height", [5, 8, 12, 24, 50])
@pytest.mark.parametrize(("items", "options"), [(3, 2), (100, 20)])
def test_the_live_area_never_outgrows_the_terminal(width: int, height: int, items: int, options: int) -> None:
    area = busy(items, items // 2, options)
    area.typed = "日本語 " * 40
    lines = drawn(area, width, height).splitlines()
    assert len(lines) <= height - 1
    assert "▏" in "".join(lines)


def test_a_long_list_is_shown_around_its_active_item() -> None:
    lines = drawn(busy(50, 25), 60, 24)
    assert "▶ step 25" in lines
    assert "before" in lines
    assert "step 0\n" not in lines


def test_the_active_form_is_shown_while_an_item_is_active() -> None:
    area = busy()
    items = (TodoItem("Build", ACTIVE, activeForm="Building"), TodoItem("Ship", OPEN, activeForm="Shipping"))
    area.view.todos = TodoList(items)
    text = drawn(area)
    assert "▶ Building" in text
    assert "○ Ship" in text
    assert "Shipping" not in text


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (Prompted("# Release 2\n- a"), "> Release 2 …"),
        (Prompted("hello"), "> hello"),
        (Said("One line."), "One line."),
        (Said("# Two\n\nlines\n"), "\n# Two\n\nlines\n"),
        (Noted(Mark.DONE, "built"), "✔ built"),
        (Settled("Which?", AskOutcome.ANSWERED, "this"), "? Which?\n  this"),
        (Settled("Which?", AskOutcome.ANSWERED, "declined", "a/b"), "? [a/b] Which?\n  declined"),
        (Settled("Which?", AskOutcome.DECLINED, ""), "? Which?\n  (declined)"),
        (Settled("Which?", AskOutcome.NO_RESPONDER, ""), "? Which?\n  (nobody there to answer)"),
        (Ended("completed", "r1", "", "", 2, 3, 3), "✔ completed · 3 of 3 done · 2 turns"),
        (Ended("failed", "r1", "model.failed", "no key", 1), "✖ failed · 1 turn (model.failed): no key"),
        (Ended("cancelled", "r1", "run.cancelled", "stop"), "■ cancelled: stop"),
    ],
)
def test_blocks_as_plain_lines(block: Block, text: str) -> None:
    assert plain(block, MARKS) == text


def test_an_answer_and_an_outcome_of_the_same_word_look_different_b36() -> None:
    answered = Settled("Which?", AskOutcome.ANSWERED, "declined")
    assert plain(answered, MARKS) != plain(Settled("Which?", AskOutcome.DECLINED, ""), MARKS)


def test_blocks_on_a_terminal_render_markdown_and_nothing_of_rich_markup() -> None:
    assert drawn(rich_block(Said("Some *fine* `code` [red]x[/red]"), MARKS)).strip() == "Some fine code [red]x[/red]"
    assert drawn(rich_block(Noted(Mark.TOOL, "dig: [bold]x"), MARKS)) == "⚙ dig: [bold]x"


@pytest.mark.parametrize(
    "block",
    [
        Prompted("\x1b]0;title\x07x"), Noted(Mark.TOOL, "\x1b[2J\u202e"),
        Said("\x1b[2J **x** &#27;[2J &#x202E;x \u202e"),
        Settled("\x1b[2J?", AskOutcome.ANSWERED, "\x9b2J", "\x1b["), Ended("failed", "r1", "x", "\x1b[31m\u202e"),
    ],
)  # fmt: skip
def test_no_control_character_of_others_reaches_the_terminal(block: Block) -> None:
    for text in (plain(block, MARKS), drawn(rich_block(block, MARKS))):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)


def test_the_live_area_is_as_clean_as_what_stays() -> None:
    area = busy()
    area.view.write("r1.9", 0, "\x1b[2Jtext")
    area.view.tools["c9"] = "di\x1b[2Jg"
    area.view.todos = TodoList((TodoItem("\x1b[2Jstep", TodoStatus.IN_PROGRESS),))
    question = Question("q1", "\x1b[2J?", options=(Option("\x1b[2J", description="\u202e"),))
    area.view.asks = {"c1": Ask("a1", "c1", (question,), path="\x1b")}
    text = drawn(area)
    assert not {"\x1b", "\u202e"} & set(text)
    assert text.count("␛[2J") == 5


def test_a_terminal_without_unicode_gets_other_signs() -> None:
    marks = signs("ascii")
    assert plain(Noted(Mark.DONE, "built"), marks) == "x built"
    assert signs("no such encoding") == marks
    area = busy()
    area.marks = marks
    assert "> half an ans_" in drawn(area)


def test_the_outcome_line_has_only_what_there_is() -> None:
    assert outcome_line(Ended("completed", "r1")) == (Mark.DONE, "completed")
