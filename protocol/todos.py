"""The sequential todo policy: one list per run, written whole, advancing one item at a time.

    [in_progress, pending,     pending]
    [completed,   in_progress, pending]
    [completed,   completed,   in_progress]
    [completed,   completed,   completed]      final

The first write starts the first item. Each later write repeats the state or completes exactly one item, whereupon the
next is in progress. Content and order are fixed once the list is made. A refused write changes nothing, and wrong
statuses are refused, never corrected.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from protocol.errors import Code, Detail, RuleViolation


class TodoStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class TodoItem(Struct, frozen=True, omit_defaults=True, gc=False):
    """One item. `content` is its text and, in a sequential list, its identity together with its place."""

    content: str
    status: TodoStatus
    activeForm: str = ""


class TodoList(Struct, frozen=True, gc=False):
    """A validated list and how often it was written; two writes never have the same revision."""

    items: tuple[TodoItem, ...]
    revision: int = 1


class TodoWriteResult(Struct, frozen=True, gc=False):
    """What a successful write returns.

    Attributes:
        todos: The whole list.
        in_progress_index: 0-based place of the item in progress, or None when the list is completed.
        in_progress: That item, or None.
        completed: Every item is completed.
        revision: Counts the writes of this list, from 1.
    """

    todos: tuple[TodoItem, ...]
    in_progress_index: int | None
    in_progress: TodoItem | None
    completed: bool
    revision: int


def result(todos: TodoList) -> TodoWriteResult:
    for index, item in enumerate(todos.items):
        if item.status is TodoStatus.IN_PROGRESS:
            return TodoWriteResult(todos.items, index, item, False, todos.revision)
    return TodoWriteResult(todos.items, None, None, True, todos.revision)


def write_sequential(
    current: TodoList | None,
    items: Sequence[TodoItem],
    *,
    advanced_this_turn: bool = False,
    one_advance: bool = False,
    revision: int = 0,
) -> TodoList:
    """Return the list after this write.

    Checked in this order: shape, then for a first write that nothing is completed, for a later one length, content,
    finality, reopening, several completions at once.

    Args:
        current: The list the write before left, or None before the first write.
        items: The whole list as the model submits it, content already stripped.
        advanced_this_turn: An earlier write of the same turn completed an item.
        one_advance: Refuse a second completion in one turn.
        revision: The last revision of the list before, where `current` is None because it was forgotten.

    Raises:
        RuleViolation: `todo.refused` - one detail says which rule, at which item, and what to submit instead.
    """
    if not items:
        raise _refused("empty", "todos", "a list has at least one item; it ends with the run and cannot be cleared")
    done = _check_shape(items)
    if current is None:
        if done:
            raise _refused("first_write", f"todos[{done - 1}].status", f"a new list starts with nothing completed; "
                           f"this one has {done} completed. Submit the first item as in_progress, the rest as pending")
        return TodoList(tuple(items), revision + 1)
    before = sum(item.status is TodoStatus.COMPLETED for item in current.items)
    if len(items) != len(current.items):
        raise _refused("length", "todos", f"the list has {len(current.items)} items and is fixed; this write has "
                       f"{len(items)}. Submit all of them in their order")
    for index, (old, new) in enumerate(zip(current.items, items, strict=True)):
        if old.content != new.content:
            raise _refused("content", f"todos[{index}].content", f"content and order are fixed once the list is made; "
                           f"item {index} is {_short(old.content)}, not {_short(new.content)}")
    if done != before and before == len(items):
        raise _refused("final", "todos", "the list is completed, which is final. Submit it unchanged or not at all")
    if done < before:
        raise _refused("reopened", f"todos[{done}].status", f"{before} items are completed and stay so; this write "
                       f"has {done}")
    if done > before + 1:
        raise _refused("several_completed", f"todos[{before + 1}].status", f"one write completes one item; this one "
                       f"completes {done - before}. Complete item {before} only, with the next one in_progress")
    if done > before and one_advance and advanced_this_turn:
        raise _refused("one_advance_per_turn", f"todos[{before}].status", "an item was completed in this turn already;"
                       " complete the next one in the next turn")
    return TodoList(tuple(items), current.revision + 1)


def advanced(before: TodoList | None, after: TodoList) -> bool:
    """Say whether going from `before` to `after` completed an item."""
    if before is None or before.items == after.items:
        return False
    return result(before).in_progress_index != result(after).in_progress_index


def _check_shape(items: Sequence[TodoItem]) -> int:
    """Return how many items are completed, having checked: completed*, then one in_progress, then pending*."""
    done = 0
    while done < len(items) and items[done].status is TodoStatus.COMPLETED:
        done += 1
    if done < len(items) and items[done].status is not TodoStatus.IN_PROGRESS:
        raise _refused("shape", f"todos[{done}].status", f"the first unfinished item must be in_progress; item {done} "
                       f"is {items[done].status}")
    for index in range(done + 1, len(items)):
        if items[index].status is not TodoStatus.PENDING:
            raise _refused("shape", f"todos[{index}].status", f"everything after the item in progress (item {done}) "
                           f"must be pending; item {index} is {items[index].status}")
    return done


def _refused(rule: str, path: str, message: str) -> RuleViolation:
    return RuleViolation(Code.TODO_REFUSED, message, Detail(path, rule, message))


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
