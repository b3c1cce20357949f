"""What the checklist model says, as Markdown: how to write a list, what comes next, what came of it."""

import json
from collections.abc import Sequence
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


def opening(steps: Sequence[Step]) -> str:
    return f"{_steps(len(steps))}. First: {plain(steps[0].text)}\n"


def announcement(done: Sequence[Step], next_up: Sequence[Step]) -> str:
    """Say what was just done and what is asked or called now."""
    lines = [f"Done: {plain(step.text)}\n" for step in done]
    if next_up and next_up[0].kind is StepKind.QUESTION:
        ahead = "I have a question.\n" if len(next_up) == 1 else f"I have {len(next_up)} questions.\n"
        lines.append(f"\n{ahead}" if lines else ahead)  # a paragraph of its own where it is shown as Markdown
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
    before = f", and {_steps(checklist.already_done)} had been before" if checklist.already_done else ""
    lines = [f"## Summary\n\n{_steps(len(steps))} done{before}.\n\n"]
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


def _line(step: Step, number: int, progress: Progress) -> str:
    text = plain(step.text, MAX_STEP_CHARS)
    if step.kind is StepKind.PLAIN:
        return text
    if step.kind is StepKind.QUESTION and ASK_TOOL not in progress.tools:
        return f"{text} — not asked: there is no `{ASK_TOOL}` tool"
    if step.kind is StepKind.TOOL and step.tool not in progress.tools:
        return f"{text} — not called: there is no tool `{step.tool}`"
    result = progress.acted.get(number - 1)
    if step.kind is StepKind.QUESTION:
        return f"{text} — {_answer(result)}"
    if result is None:
        return f"{text} — no result"
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
