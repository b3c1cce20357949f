"""What the checklist model says, as Markdown: how to write a list, what comes next, what came of it."""

import json
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from re import compile as pattern
from typing import Any, cast

from actors.models.checklist_progress import ASK_TOOL, LIST_TOOL, Progress, error_text, json_object
from actors.models.checklist_steps import MAX_MARKDOWN_CHARS, Checklist, Step, StepKind
from protocol.chat import ToolMessage

MAX_STEP_CHARS = 200
MAX_ANSWER_CHARS = 1_000

HOW_TO = """\
I work through a checklist, and this message has none. Write each step as a list item:

```markdown
- Update the changelog
- Which channel?
  - stable
  - beta
- Which platforms?
  - [ ] Linux
  - [ ] macOS
- `search {"query": "open issues"}`
```

A step that ends in `?` is asked, its nested items are the options, and boxes allow several of them. A step that is one
code span calls that tool. Anything else is ticked off in turn, and `- [x]` is done already.
"""

# Whatever would be read as markup; an underscore only where it is not inside a word.
_MARKUP = pattern(r"[\\`*\[\]<>]|(?<!\w)_|_(?!\w)")


class Fate(Enum):
    """What became of a step, in the words that say so. Being completed on the todo list is not being done."""

    DONE = "done"
    FAILED = "failed"
    NOT_CALLED = "not called"
    NOT_ANSWERED = "not answered"
    NOT_ASKED = "not asked"


_QUESTION_FATES = (Fate.NOT_ANSWERED, Fate.NOT_ASKED)


def opening(steps: Sequence[Step]) -> str:
    return f"{_steps(len(steps))}. First: {plain(steps[0].text)}\n"


def announcement(over: Sequence[Step], place: int, next_up: Sequence[Step], progress: Progress) -> str:
    """Say what came of the steps that are over, and what is asked or called now.

    Args:
        over: The steps completed on the list now.
        place: The place of the first of them, from 0.
        next_up: The steps to ask or call now, all of one kind.
        progress: Where the work stands.
    """
    # Lines that follow each other are one paragraph in Markdown; items of a list stay apart, there and in plain text.
    mark = "- " if len(over) > 1 else ""
    lines = [
        f"{mark}{_fate(step, place + number, progress).value.capitalize()}: {plain(step.text)}\n"
        for number, step in enumerate(over)
    ]
    if over and next_up:
        lines.append("\n")
    if next_up and next_up[0].kind is StepKind.QUESTION:
        lines.append("I have a question.\n" if len(next_up) == 1 else f"I have {len(next_up)} questions.\n")
    elif next_up:
        lines.append(f"Calling {', '.join(f'`{step.tool}`' for step in next_up)}.\n")
    return "".join(lines)


def already_done(number: int) -> str:
    return f"Nothing is left to do: {_steps(number)} of the list {'is' if number == 1 else 'are'} done already.\n"


def too_long(chars: int) -> str:
    return f"This message has {chars} characters; a checklist has at most {MAX_MARKDOWN_CHARS}. I did nothing of it.\n"


def too_many(number: int, limit: int) -> str:
    return f"This list has {_steps(number)}, and I can keep {limit}. I did nothing of it; please make it shorter.\n"


def too_many_turns(needed: int, limit: int) -> str:
    return (
        f"This list takes {needed} turns, and a run may have {limit}. I did nothing of it; please put questions next "
        "to questions and tools next to tools, or make it shorter.\n"
    )


def summary(checklist: Checklist, progress: Progress) -> str:
    """Return the final message: every step, with its answer or result, and what could not be done as written."""
    steps = checklist.steps
    lines = [f"## Summary\n\n{_headline(checklist, progress)}\n\n"]
    lines += [f"{number}. {_line(step, number, progress)}\n" for number, step in enumerate(steps, 1)]
    notes = [f"Step {number}: {note}." for number, step in enumerate(steps, 1) for note in step.notes]
    if not progress.has_list_tool:
        notes.append(f"There is no `{LIST_TOOL}` tool, so no todo list was kept.")
    elif progress.list_problem:
        notes.append(f"The todo list was given up: {plain(progress.list_problem)}")
    if notes:
        lines.append("\nNotes:\n\n")
        lines += [f"- {note}\n" for note in notes]
    return "".join(lines)


def _headline(checklist: Checklist, progress: Progress) -> str:
    """Count what was done, and by name whatever was not."""
    steps, before = checklist.steps, checklist.already_done
    fates = Counter(_fate(step, place, progress) for place, step in enumerate(steps))
    done = fates.pop(Fate.DONE, 0)
    if not fates:
        return f"{_steps(done)} done{f', and {_steps(before)} had been before' if before else ''}."
    others = [_counted(fates[fate], fate) for fate in Fate if fate in fates]
    earlier = f" {_steps(before)} had been done before." if before else ""
    return f"{done} of {_steps(len(steps))} done, {', '.join(others)}.{earlier}"


def _counted(number: int, fate: Fate) -> str:
    if fate in _QUESTION_FATES:
        return f"{number} question{'' if number == 1 else 's'} {fate.value}"
    return f"{number} {fate.value}"


def _fate(step: Step, place: int, progress: Progress) -> Fate:
    """Say what became of a step that is over. A plain step that names a tool is a call that could not be read."""
    if step.kind is StepKind.PLAIN:
        return Fate.NOT_CALLED if step.tool else Fate.DONE
    question = step.kind is StepKind.QUESTION
    if not progress.can_act(step):
        return Fate.NOT_ASKED if question else Fate.NOT_CALLED
    result = progress.acted.get(place)
    if result is not None and result.success:
        return Fate.DONE
    return Fate.NOT_ANSWERED if question else Fate.FAILED


def _line(step: Step, number: int, progress: Progress) -> str:
    text = plain(step.text, MAX_STEP_CHARS)
    if step.kind is StepKind.PLAIN:
        return f"{text} — not called: see the notes" if step.tool else text
    if step.kind is StepKind.QUESTION and ASK_TOOL not in progress.tools:
        return f"{text} — not asked: there is no `{ASK_TOOL}` tool"
    if step.kind is StepKind.TOOL and step.tool not in progress.tools:
        return f"{text} — not called: there is no tool `{step.tool}`"
    result = progress.acted.get(number - 1)
    if step.kind is StepKind.QUESTION:
        return f"{text} — {_answer(result)}"
    if result is None:
        return f"{text} — failed: no result"
    if not result.success:
        return f"{text} — failed: {plain(error_text(result), MAX_ANSWER_CHARS)}"
    return f"{text} — {plain(result.content, MAX_ANSWER_CHARS)}"


def _answer(result: ToolMessage | None) -> str:
    if result is None:
        return "not answered"
    if not result.success:
        return f"not answered: {plain(error_text(result), MAX_ANSWER_CHARS)}"
    payload = json_object(result.content)
    return f"**{plain(_shown(payload.get('answer', payload or result.content)), MAX_ANSWER_CHARS)}**"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in cast("Sequence[Any]", value)) or "none"
    return json.dumps(value, ensure_ascii=False)


def plain(text: str, max_chars: int = MAX_STEP_CHARS) -> str:
    """Return `text` on one line, at most `max_chars` characters of it, with nothing in it read as markup."""
    text = " ".join(text.split())
    if len(text) > max_chars:
        text = text[: max_chars - 1] + "…"
    return _MARKUP.sub(lambda match: f"\\{match[0]}", text)


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"
