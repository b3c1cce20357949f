"""Reads a checklist out of Markdown: which steps it has, which of them ask, which call a tool.

Decides what a step is; knows neither conversations nor models. Only list items at the top level are steps: what is in
quotes, code blocks and other items is not.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from re import DOTALL
from re import compile as pattern
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from protocol.arguments import parse_arguments
from protocol.ids import is_blank
from protocol.limits import DEFAULT_LIMITS, Limits

# The parser is quadratic for hostile text, and runs in the event loop.
MAX_MARKDOWN_CHARS = 20_000

_LISTS = ("bullet_list", "ordered_list")
_BOX = pattern(r"\[([ xX])\](?:\s+|$)")
_TOOL = pattern(r"([A-Za-z0-9_-]{1,64})(?:\s+(.*))?", DOTALL)
_QUESTION_MARKS = ("?", "？", "؟")
_markdown = MarkdownIt("commonmark")


class StepKind(Enum):
    PLAIN = "plain"
    QUESTION = "question"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Step:
    """One item of a checklist.

    Attributes:
        kind: What is to be done with it.
        text: Its text without markup, on one line, within `limits.max_todo_chars`, and no other step's.
        question: The question, within `limits.max_question_chars`.
        options: Answers to choose from; none blank, too long or twice.
        multiple: Several options may be chosen.
        tool: The tool to call; of a plain step, the one whose arguments could not be read.
        arguments: What to call it with.
        notes: What was cut or left out, and why, as sentences.
    """

    kind: StepKind
    text: str
    question: str = ""
    options: tuple[str, ...] = ()
    multiple: bool = False
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checklist:
    """What is to be done.

    Attributes:
        steps: The first `limits.max_todos` steps.
        already_done: How many items were ticked off already.
        beyond: How many steps there are besides.
    """

    steps: tuple[Step, ...]
    already_done: int = 0
    beyond: int = 0


@lru_cache(maxsize=64)
def read_checklist(markdown: str, limits: Limits = DEFAULT_LIMITS) -> Checklist:
    """Return the steps in `markdown`, which has at most `MAX_MARKDOWN_CHARS` characters.

    Remembered, because a model that keeps no state reads the same message again at each of its turns.
    """
    steps: list[Step] = []
    taken: dict[str, int] = {}
    done = beyond = 0
    root = SyntaxTreeNode(_markdown.parse(markdown))
    for item in _items(root):
        head = _head(item)
        if head is None:
            continue
        box, text = _split_box(head)
        if is_blank(text):
            continue
        if box in ("x", "X"):
            done += 1
        elif len(steps) == limits.max_todos:
            beyond += 1
        else:
            steps.append(_make_unique(_read_step(item, head, text, limits), taken, limits.max_todo_chars))
    return Checklist(tuple(steps), done, beyond)


def _read_step(item: SyntaxTreeNode, head: SyntaxTreeNode, text: str, limits: Limits) -> Step:
    span = _only_code_span(head)
    if span is not None and (match := _TOOL.fullmatch(span.strip())):
        arguments, reason = parse_arguments(match[2] or "{}", limits)
        if reason:
            return Step(StepKind.PLAIN, text, tool=match[1], notes=(f"`{match[1]}` was not called: {reason}",))
        return Step(StepKind.TOOL, text, tool=match[1], arguments=arguments)
    if text.endswith(_QUESTION_MARKS):
        return _read_question(item, text, limits)
    return Step(StepKind.PLAIN, text)


def _read_question(item: SyntaxTreeNode, text: str, limits: Limits) -> Step:
    options: list[str] = []
    left_out: dict[str, int] = {}
    boxes = False
    for nested in _items(item):
        head = _head(nested)
        box, label = _split_box(head) if head is not None else ("", "")
        boxes = boxes or bool(box)
        if is_blank(label):
            reason = "blank"
        elif len(label) > limits.max_option_chars:
            reason = f"over {limits.max_option_chars} characters"
        elif label in options:
            reason = "there twice"
        elif len(options) >= limits.max_options:
            reason = f"over the limit of {limits.max_options}"
        else:
            options.append(label)
            continue
        left_out[reason] = left_out.get(reason, 0) + 1
    notes = [f"{_count(number, 'option')} left out: {reason}" for reason, number in left_out.items()]
    question = text
    if len(text) > limits.max_question_chars:
        question = text[: limits.max_question_chars - 1] + "…"
        notes.append(f"the question was cut to {limits.max_question_chars} characters")
    multiple = boxes and bool(options)
    return Step(StepKind.QUESTION, text, question, tuple(options), multiple, notes=tuple(notes))


def _make_unique(step: Step, taken: dict[str, int], max_chars: int) -> Step:
    """Number a text that is there already: in a list of todos the text is what tells items apart."""
    text, notes = step.text, step.notes
    if len(text) > max_chars:
        text = text[: max_chars - 1] + "…"
        notes = (*notes, f"the step's text was cut to {max_chars} characters")
    base = text
    while text in taken:
        taken[base] += 1
        suffix = f" ({taken[base]})"
        text = base[: max_chars - len(suffix)] + suffix
    taken[text] = 1
    return replace(step, text=text, notes=notes)


def _items(node: SyntaxTreeNode) -> Iterator[SyntaxTreeNode]:
    for child in node.children:
        if child.type in _LISTS:
            yield from child.children


def _head(item: SyntaxTreeNode) -> SyntaxTreeNode | None:
    """Return the inline content of an item's first paragraph or heading; None where the item begins with neither."""
    first = item.children[0] if item.children else None
    if first is None or first.type not in ("paragraph", "heading"):
        return None
    return first.children[0] if first.children else None


def _split_box(head: SyntaxTreeNode) -> tuple[str, str]:
    """Return the character in an item's box, "" without a box, and the item's text without markup."""
    text = " ".join(_plain(head.children).split())
    # The source decides: `[x]` in a code span is text.
    box = _BOX.match(head.content)
    return (box[1], text[3:].strip()) if box else ("", text)


def _only_code_span(head: SyntaxTreeNode) -> str | None:
    parts = [part for part in head.children if part.type != "text" or not is_blank(_BOX.sub("", part.content, count=1))]
    return parts[0].content if len(parts) == 1 and parts[0].type == "code_inline" else None


def _plain(nodes: Iterable[SyntaxTreeNode]) -> str:
    pieces: list[str] = []
    for node in nodes:
        if node.type in ("text", "code_inline", "image"):  # an image's content is its description
            pieces.append(node.content)
        elif node.type in ("softbreak", "hardbreak"):
            pieces.append(" ")
        elif node.type != "html_inline":
            pieces.append(_plain(node.children))
    return "".join(pieces)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
