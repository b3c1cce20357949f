"""The embedded default model: works through a Markdown checklist. No network, no key, the same every time.

The last user message is the checklist. A step that ends in `?` is asked, its nested items are the options (boxes:
several may be chosen); a step that is one code span `tool {"arg": 1}` calls that tool; any other is simply done.
It acts only through `todo_write`, `ask_user` and the tools named.

It keeps no state. Each call reads from the conversation since that message what has been done, so it also goes on after
a restart. Its own calls are recognised by the ids it gives them: `step-3` acts on the third step, `list-3` is the write
after which three steps are completed.
"""

import json
from collections.abc import AsyncIterator, Sequence
from itertools import takewhile
from typing import Any

from actors.models.checklist_progress import ASK_TOOL, LIST_TOOL, Progress, read_progress
from actors.models.checklist_report import (
    HOW_TO,
    already_done,
    announcement,
    opening,
    summary,
    too_long,
    too_many,
    too_many_turns,
)
from actors.models.checklist_steps import MAX_MARKDOWN_CHARS, Step, StepKind, read_checklist
from protocol.chat import ModelEvent, ModelRequest, Stop, TextDelta, ToolCallDelta
from protocol.limits import DEFAULT_LIMITS, Limits

# Of all writes of a turn together: each holds the whole list, and the turn is one record.
_MAX_WRITTEN_CHARS = 100_000


class ChecklistModel:
    """A model that works through the checklist it is given. Any number of sessions may share one."""

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        """Make the model.

        Args:
            limits: Those of its agent: `max_turns`, and what a todo list and a question may hold.
        """
        self._limits = limits

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream the next message: text line by line, then the calls. Never a checkpoint, never fails."""
        text, calls = self._next_message(request)
        for line in text.splitlines(keepends=True):
            yield TextDelta(line)
        for index, (id_, name, arguments) in enumerate(calls):
            yield ToolCallDelta(index, id_, name, json.dumps(arguments, ensure_ascii=False))
        yield Stop("tool_calls" if calls else "stop")

    def _next_message(self, request: ModelRequest) -> tuple[str, list[tuple[str, str, dict[str, Any]]]]:
        progress = read_progress(request)
        if len(progress.markdown) > MAX_MARKDOWN_CHARS:
            return too_long(len(progress.markdown)), []
        checklist = read_checklist(progress.markdown, self._limits)
        steps = checklist.steps
        if checklist.beyond:
            return too_many(len(steps) + checklist.beyond, self._limits.max_todos), []
        if not steps:
            return already_done(checklist.already_done) if checklist.already_done else HOW_TO, []
        needed = _groups(steps, progress) + (3 if progress.has_list_tool else 1)  # the list's first and last write
        if needed > self._limits.max_turns:
            return too_many_turns(needed, self._limits.max_turns), []
        if progress.keeps_list and not progress.has_written:
            return opening(steps), [_write(steps, 0)]
        done, place = self._completed_now(steps, progress)
        next_up = _group(steps, place, progress)
        if not done and not next_up:
            return summary(checklist, progress), []
        writes = [_write(steps, place - len(done) + number) for number in range(1, len(done) + 1)]
        acts = [_act(step, place + number) for number, step in enumerate(next_up)]
        return announcement(done, place - len(done), next_up, progress), writes + acts

    def _completed_now(self, steps: Sequence[Step], progress: Progress) -> tuple[Sequence[Step], int]:
        """Return the steps to complete on the list in this turn, and the place of the step after them.

        What was asked or called is completed together. A plain step has a turn of its own, so that the list is seen to
        advance; only where a run's turns would not suffice do several share one.
        """
        if not progress.keeps_list:
            return (), next((i for i in range(len(steps)) if progress.is_due(steps, i)), len(steps))
        start = progress.completed
        ready = sum(1 for _ in takewhile(lambda i: not progress.is_due(steps, i), range(start, len(steps))))
        acted = sum(1 for _ in takewhile(progress.acted.__contains__, range(start, start + ready)))
        stride = _plain_per_turn(steps, progress, self._limits.max_turns)
        number = acted or 1 if stride == 1 else acted + stride
        room = 1 if progress.one_at_a_time else max(1, _MAX_WRITTEN_CHARS // sum(len(step.text) for step in steps))
        end = start + min(ready, number, room)
        return steps[start:end], end


def _plain_per_turn(steps: Sequence[Step], progress: Progress, max_turns: int) -> int:
    plain = sum(not progress.can_act(step) for step in steps)
    groups = _groups(steps, progress)
    if 2 + 2 * groups + plain <= max_turns:
        return 1
    # A stretch of plain steps may leave its last turn unfilled, once after each group.
    left = max_turns - 3 - 2 * groups
    return len(steps) if left < 1 else max(2, -(-plain // left))


def _groups(steps: Sequence[Step], progress: Progress) -> int:
    """Count the turns that ask or call."""
    kinds = [step.kind if progress.can_act(step) else StepKind.PLAIN for step in steps]
    return sum(
        kind is not StepKind.PLAIN and (place == 0 or kinds[place - 1] is not kind) for place, kind in enumerate(kinds)
    )


def _group(steps: Sequence[Step], place: int, progress: Progress) -> Sequence[Step]:
    """Return the steps to act on together: consecutive questions, or consecutive tools, from `place` on."""
    end = place
    while progress.is_due(steps, end) and steps[end].kind is steps[place].kind:
        end += 1
    return steps[place:end]


def _write(steps: Sequence[Step], completed: int) -> tuple[str, str, dict[str, Any]]:
    statuses = ["completed"] * completed + ["in_progress"] + ["pending"] * len(steps)
    todos = [{"content": step.text, "status": status} for step, status in zip(steps, statuses, strict=False)]
    return f"list-{completed}", LIST_TOOL, {"todos": todos}


def _act(step: Step, place: int) -> tuple[str, str, dict[str, Any]]:
    if step.kind is StepKind.TOOL:
        return f"step-{place + 1}", step.tool, step.arguments
    arguments: dict[str, Any] = {"question": step.question}
    if step.options:
        arguments["options"] = list(step.options)
    if step.multiple:
        arguments["allow_multiple"] = True
    return f"step-{place + 1}", ASK_TOOL, arguments
