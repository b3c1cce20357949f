"""The sequential todo policy: every rule, in the order in which it is checked."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Code, Detail, RuleViolation
from protocol.todos import TodoItem, TodoList, TodoStatus, TodoWriteResult, advanced, result, write_sequential

STATUS = {"p": TodoStatus.PENDING, "i": TodoStatus.IN_PROGRESS, "c": TodoStatus.COMPLETED}
NAMES = ("read", "write", "test", "ship", "rest")


def items(statuses: str, names: tuple[str, ...] = NAMES) -> list[TodoItem]:
    """`"cip"` is read completed, write in progress, test pending."""
    return [TodoItem(name, STATUS[status]) for name, status in zip(names, statuses, strict=False)]


def stored(statuses: str) -> TodoList:
    return TodoList(tuple(items(statuses)), 7)


def refusal(current: TodoList | None, submitted: list[TodoItem], **options: bool) -> Detail:
    before = msgspec.json.encode(current)
    with pytest.raises(RuleViolation) as refused:
        write_sequential(current, submitted, **options)
    assert refused.value.code is Code.TODO_REFUSED
    (detail,) = refused.value.details
    assert str(refused.value) == f"todo.refused: {detail.message}"
    assert msgspec.json.encode(current) == before
    return detail


# ---- what is accepted


@pytest.mark.parametrize("statuses", ["i", "ip", "ippp"])
def test_the_first_write_starts_the_first_item(statuses: str) -> None:
    assert write_sequential(None, items(statuses)) == TodoList(tuple(items(statuses)), 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [("ip", "ip"), ("ipp", "cip"), ("cip", "cci"), ("cci", "ccc"), ("i", "c"), ("cip", "cip"), ("ccc", "ccc")],
)
def test_a_later_write_repeats_the_list_or_completes_one_item(before: str, after: str) -> None:
    assert write_sequential(stored(before), items(after)) == TodoList(tuple(items(after)), 8)


def test_the_documented_progression() -> None:
    todos = None
    for statuses in ("ipp", "cip", "cci", "ccc"):
        todos = write_sequential(todos, items(statuses))
    assert todos == TodoList(tuple(items("ccc")), 4)


def test_equal_contents_are_different_items_by_their_place() -> None:
    twice = ("a", "a", "a")
    todos = write_sequential(None, items("ipp", twice))
    todos = write_sequential(todos, items("cip", twice))
    assert result(todos).in_progress_index == 1


def test_no_two_writes_have_one_revision_c07() -> None:
    todos = write_sequential(None, items("ip"))
    assert [todos.revision, write_sequential(todos, items("ip")).revision] == [1, 2]


# ---- what is refused; the rows of the policy


@pytest.mark.parametrize(
    ("submitted", "rule", "path", "message"),
    [
        ("pp", "shape", "todos[0].status", "the first unfinished item must be in_progress; item 0 is pending"),
        ("pi", "shape", "todos[0].status", "the first unfinished item must be in_progress; item 0 is pending"),
        ("p", "shape", "todos[0].status", "the first unfinished item must be in_progress; item 0 is pending"),
        ("cp", "shape", "todos[1].status", "the first unfinished item must be in_progress; item 1 is pending"),
        (
            "ii", "shape", "todos[1].status",
            "everything after the item in progress (item 0) must be pending; item 1 is in_progress",
        ),
        (
            "ipi", "shape", "todos[2].status",
            "everything after the item in progress (item 0) must be pending; item 2 is in_progress",
        ),
        (
            "ic", "shape", "todos[1].status",
            "everything after the item in progress (item 0) must be pending; item 1 is completed",
        ),
        (
            "cip", "first_write", "todos[0].status",
            "a new list starts with nothing completed; this one has 1 completed. Submit the first item as in_progress, "
            "the rest as pending",
        ),
        (
            "ccc", "first_write", "todos[2].status",
            "a new list starts with nothing completed; this one has 3 completed. Submit the first item as in_progress, "
            "the rest as pending",
        ),
    ],
)  # fmt: skip
def test_a_first_write_is_refused(submitted: str, rule: str, path: str, message: str) -> None:
    assert refusal(None, items(submitted)) == Detail(path, rule, message)


@pytest.mark.parametrize(
    ("before", "submitted", "rule", "path", "message"),
    [
        (
            "ipp", "cpp", "shape", "todos[1].status",
            "the first unfinished item must be in_progress; item 1 is pending",
        ),
        (
            "ipp", "pci", "shape", "todos[0].status",
            "the first unfinished item must be in_progress; item 0 is pending",
        ),
        (
            "ipp", "icp", "shape", "todos[1].status",
            "everything after the item in progress (item 0) must be pending; item 1 is completed",
        ),
        (
            "cip", "ppp", "shape", "todos[0].status",
            "the first unfinished item must be in_progress; item 0 is pending",
        ),
        (
            "ippp", "ccip", "several_completed", "todos[1].status",
            "one write completes one item; this one completes 2. Complete item 0 only, with the next one in_progress",
        ),
        (
            "cipp", "cccc", "several_completed", "todos[2].status",
            "one write completes one item; this one completes 3. Complete item 1 only, with the next one in_progress",
        ),
        (
            "cci", "cip", "reopened", "todos[1].status",
            "2 items are completed and stay so; this write has 1",
        ),
        (
            "cip", "ipp", "reopened", "todos[0].status",
            "1 items are completed and stay so; this write has 0",
        ),
        (
            "ip", "ipp", "length", "todos",
            "the list has 2 items and is fixed; this write has 3. Submit all of them in their order",
        ),
        (
            "ipp", "ip", "length", "todos",
            "the list has 3 items and is fixed; this write has 2. Submit all of them in their order",
        ),
        (
            "cc", "ci", "final", "todos",
            "the list is completed, which is final. Submit it unchanged or not at all",
        ),
        (
            "cc", "ip", "final", "todos",
            "the list is completed, which is final. Submit it unchanged or not at all",
        ),
        (
            "cc", "ipp", "length", "todos",
            "the list has 2 items and is fixed; this write has 3. Submit all of them in their order",
        ),
    ],
)  # fmt: skip
def test_a_later_write_is_refused(before: str, submitted: str, rule: str, path: str, message: str) -> None:
    assert refusal(stored(before), items(submitted)) == Detail(path, rule, message)


@pytest.mark.parametrize(
    ("before", "statuses", "names", "index", "message"),
    [
        ("ip", "ip", ("Read", "write"), 0, "item 0 is 'read', not 'Read'"),
        ("ip", "ip", ("write", "read"), 0, "item 0 is 'read', not 'write'"),
        ("ipp", "cip", ("read", "test", "write"), 1, "item 1 is 'write', not 'test'"),
        ("cc", "ip", ("other", "list"), 0, "item 0 is 'read', not 'other'"),
        ("i", "i", ("r" * 41,), 0, f"item 0 is 'read', not '{'r' * 39}…'"),
        ("i", "i", ("r" * 40,), 0, f"item 0 is 'read', not '{'r' * 40}'"),
    ],
)
def test_content_and_order_are_fixed(
    before: str, statuses: str, names: tuple[str, ...], index: int, message: str
) -> None:
    assert refusal(stored(before), items(statuses, names)) == Detail(
        f"todos[{index}].content", "content", f"content and order are fixed once the list is made; {message}"
    )


@pytest.mark.parametrize(
    ("current", "submitted", "names", "rule"),
    [
        (None, "cpc", NAMES, "shape"),  # before first_write
        ("ip", "ppp", NAMES, "shape"),  # before length
        ("ip", "cci", NAMES, "length"),  # before several_completed
        ("ip", "ipp", ("x", "y", "z"), "length"),  # before content
        ("cc", "ip", ("x", "y"), "content"),  # before final
        ("cip", "ipp", ("x", "y", "z"), "content"),  # before reopened
        ("cc", "ip", NAMES, "final"),  # before reopened
        ("ippp", "ccip", ("read", "x", "test", "ship"), "content"),  # before several_completed
    ],
)
def test_of_two_broken_rules_the_earlier_one_is_told(
    current: str | None, submitted: str, names: tuple[str, ...], rule: str
) -> None:
    assert refusal(stored(current) if current else None, items(submitted, names)).code == rule


@pytest.mark.parametrize("before", [None, "ip", "cc"])
def test_a_list_cannot_be_emptied_c27(before: str | None) -> None:
    assert refusal(stored(before) if before else None, []) == Detail(
        "todos", "empty", "a list has at least one item; it ends with the run and cannot be cleared"
    )


def test_revisions_go_on_after_a_list_was_forgotten() -> None:
    assert write_sequential(None, items("ip"), revision=7).revision == 8


# ---- several writes in one turn


def test_one_turn_may_complete_several_items_one_write_after_the_other_c11() -> None:
    assert write_sequential(stored("cip"), items("cci"), advanced_this_turn=True).items == tuple(items("cci"))


def test_where_one_advance_is_allowed_the_second_of_a_turn_is_refused() -> None:
    assert refusal(stored("cip"), items("cci"), one_advance=True, advanced_this_turn=True) == Detail(
        "todos[1].status",
        "one_advance_per_turn",
        "an item was completed in this turn already; complete the next one in the next turn",
    )


@pytest.mark.parametrize(("submitted", "already"), [("cip", True), ("cci", False)])
def test_where_one_advance_is_allowed_a_repeat_and_the_first_advance_are_fine(submitted: str, already: bool) -> None:
    written = write_sequential(stored("cip"), items(submitted), one_advance=True, advanced_this_turn=already)
    assert written.items == tuple(items(submitted))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(None, "ip", False), ("ip", "ip", False), ("ip", "ci", True), ("ci", "cc", True), ("cc", "cc", False)],
)
def test_an_advance_is_told_from_a_repeat(before: str | None, after: str, expected: bool) -> None:
    assert advanced(stored(before) if before else None, stored(after)) is expected


# ---- the result


def test_the_result_names_the_item_in_progress() -> None:
    assert result(stored("cip")) == TodoWriteResult(tuple(items("cip")), 1, items("cip")[1], False, 7)


def test_the_result_of_a_finished_list_names_none() -> None:
    assert result(stored("ccc")) == TodoWriteResult(tuple(items("ccc")), None, None, True, 7)


def test_the_documented_fields_on_the_wire() -> None:
    written = result(TodoList((TodoItem("a", TodoStatus.IN_PROGRESS, "doing a"),)))
    assert msgspec.json.decode(msgspec.json.encode(written)) == {
        "todos": [{"content": "a", "status": "in_progress", "activeForm": "doing a"}],
        "in_progress_index": 0,
        "in_progress": {"content": "a", "status": "in_progress", "activeForm": "doing a"},
        "completed": False,
        "revision": 1,
    }


# ---- all writes there are


@given(st.lists(st.text("pic", min_size=1, max_size=5), max_size=8))
def test_whatever_is_submitted_the_list_is_a_row_of_the_picture_and_moves_by_one(writes: list[str]) -> None:
    todos: TodoList | None = None
    for statuses in writes:
        try:
            written = write_sequential(todos, items(statuses))
        except RuleViolation:
            continue
        done = sum(item.status is TodoStatus.COMPLETED for item in written.items)
        row = ("c" * done + "i" + "p" * len(written.items))[: len(written.items)]
        assert written.items == tuple(items(row))
        if todos is None:
            assert done == 0
        else:
            before = sum(item.status is TodoStatus.COMPLETED for item in todos.items)
            assert done - before in (0, 1)
            assert [item.content for item in written.items] == [item.content for item in todos.items]
        todos = written
