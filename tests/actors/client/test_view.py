"""The view is the fold of snapshot and events: what lasts is shown, what is over is said once."""

from typing import Any

import msgspec
import pytest

from actors.client.blocks import Ended, Mark, Noted, Prompted, Said, Settled
from actors.client.view import View
from protocol import events as ev
from protocol.asks import Ask, AskOutcome, Given, Question
from protocol.chat import AssistantMessage, CallOutcome, ToolCall, ToolMessage, UserMessage
from protocol.history import Status
from protocol.todos import TodoItem, TodoList, TodoStatus

DONE, ACTIVE, OPEN = TodoStatus.COMPLETED, TodoStatus.IN_PROGRESS, TodoStatus.PENDING


def todos(*statuses: TodoStatus, revision: int = 1) -> TodoList:
    return TodoList(tuple(TodoItem(f"step {n}", status) for n, status in enumerate(statuses, 1)), revision)


def started() -> View:
    view = View()
    assert view.apply(ev.RunStarted(UserMessage("go"), run="r1")) == [Prompted("go")]
    return view


def ask(number: int = 1, path: str = "") -> Ask:
    return Ask(f"a{number}", f"c{number}", (Question("q1", "Which?"),), path=path)


def test_waiting_for_a_person_is_not_being_idle_b03() -> None:
    view = View()
    assert view.status is Status.IDLE
    view = started()
    assert view.status is Status.RUNNING
    view.apply(ev.AskOpened(ask(), run="r1"))
    assert view.status is Status.WAITING
    view.apply(ev.CancelRequested(run="r1"))
    assert view.status is Status.CANCELLING


def test_each_step_that_is_completed_is_said_once() -> None:
    view = started()
    assert view.apply(ev.TodosChanged(todos(ACTIVE, OPEN), run="r1")) == []
    assert view.apply(ev.TodosChanged(todos(DONE, ACTIVE, revision=2), run="r1")) == [Noted(Mark.DONE, "step 1")]
    assert view.apply(ev.TodosChanged(todos(DONE, ACTIVE, revision=3), run="r1")) == []
    assert [item.content for item in view.items] == ["step 1", "step 2"]


def test_text_is_put_at_its_offset_so_that_a_piece_that_comes_twice_counts_once() -> None:
    view = started()
    for offset, text in ((0, "Hel"), (3, "lo"), (3, "lo"), (5, "!")):
        view.apply(ev.TextStreamed("r1.1", offset, text, run="r1"))
    assert view.partial == "Hello!"
    view.apply(ev.TextStreamed("r1.2", 0, "New", run="r1"))
    assert view.partial == "New"


def test_a_finished_message_replaces_what_was_streamed() -> None:
    view = started()
    view.apply(ev.TextStreamed("r1.1", 0, "Hel", run="r1"))
    said = view.apply(ev.ModelCompleted("r1.1", 1, AssistantMessage("Hello"), run="r1"))
    assert (said, view.partial, view.turns) == ([Said("Hello")], "", 1)
    assert view.apply(ev.ModelCompleted("r1.2", 2, AssistantMessage(" \n"), run="r1")) == []


def test_a_run_that_breaks_off_leaves_no_step_in_progress_c12() -> None:
    view = started()
    view.apply(ev.TodosChanged(todos(DONE, ACTIVE, OPEN), run="r1"))
    view.apply(ev.TextStreamed("r1.1", 0, "half a sen", run="r1"))
    blocks = view.apply(ev.RunCancelled("by a person", 2, todos(DONE, ACTIVE, OPEN), run="r1"))
    assert blocks == [
        Said("half a sen"),
        Noted(Mark.INTERRUPTED, "broken off"),
        Noted(Mark.INTERRUPTED, "step 2"),
        Noted(Mark.OPEN, "step 3"),
        Ended("cancelled", "r1", "run.cancelled", "by a person", 2, 1, 3),
    ]
    assert (view.items, view.run, view.partial) == ((), "", "")


def test_the_list_a_run_let_go_of_still_tells_how_far_it_came() -> None:
    view = started()
    view.apply(ev.TodosChanged(todos(DONE, DONE), run="r1"))
    view.apply(ev.TodosChanged(None, run="r1"))
    assert view.items == ()
    assert view.apply(ev.RunCompleted("r1.2", 2, run="r1")) == [Ended("completed", "r1", "", "", 2, 2, 2)]


def test_a_failure_says_its_code_and_a_cancel_what_went_wrong_beside_it_a18() -> None:
    assert started().apply(ev.RunFailed("model.failed", "no key", run="r1")) == [
        Ended("failed", "r1", "model.failed", "no key")
    ]
    cancelled = ev.RunCancelled("stop", error="disk full", stuck=("dig",), run="r1")
    assert started().apply(cancelled) == [
        Ended("cancelled", "r1", "run.cancelled", "stop; disk full; still running: dig")
    ]


def test_the_end_of_another_run_ends_nothing_here() -> None:
    view = started()
    assert view.apply(ev.RunCancelled(run="r9")) == [Noted(Mark.INFO, "a queued run was cancelled")]
    assert view.apply(ev.RunCompleted(run="r5", path="agent/helper")) == [Noted(Mark.INFO, "agent/helper: completed")]
    assert view.run == "r1"


def test_all_open_questions_are_there_in_order_and_each_outcome_is_said_b14() -> None:
    view = started()
    for number in (1, 2, 3):
        view.apply(ev.AskOpened(ask(number), run="r1"))
    assert list(view.asks) == ["c1", "c2", "c3"]
    answered = ev.AskSettled("a2", "c2", AskOutcome.ANSWERED, {"answer": "x"}, {"q1": Given(("x", "y"))}, run="r1")
    assert view.apply(answered) == [Settled("Which?", AskOutcome.ANSWERED, "x, y")]
    timed_out = ev.AskSettled("a1", "c1", AskOutcome.TIMED_OUT, run="r1")
    assert view.apply(timed_out) == [Settled("Which?", AskOutcome.TIMED_OUT, "")]
    assert list(view.asks) == ["c3"]
    assert view.apply(timed_out) == []


def test_an_answer_of_another_shape_is_shown_as_it_is() -> None:
    view = started()
    view.apply(ev.AskOpened(ask(), run="r1"))
    settled = ev.AskSettled("a1", "c1", AskOutcome.ANSWERED, {"tool_call_id": "c1", "rows": [1]}, run="r1")
    assert view.apply(settled) == [Settled("Which?", AskOutcome.ANSWERED, '{"rows":[1]}')]


def test_a_question_of_a_nested_run_is_shown_with_its_path_b29() -> None:
    view = started()
    view.apply(ev.RunStarted(UserMessage("sub"), run="r5", path="agent/helper", parent="r1"))
    view.apply(ev.AskOpened(ask(1, "agent/helper"), run="r5", path="agent/helper"))
    assert (view.run, view.status) == ("r1", Status.WAITING)
    settled = ev.AskSettled("a1", "c1", AskOutcome.DECLINED, note="later", run="r5", path="agent/helper")
    assert view.apply(settled) == [Settled("Which?", AskOutcome.DECLINED, "later", "agent/helper")]


def test_a_nested_run_changes_neither_the_list_nor_the_text() -> None:
    view = started()
    view.apply(ev.TodosChanged(todos(ACTIVE), run="r1"))
    for event in (
        ev.TodosChanged(todos(ACTIVE, OPEN), run="r5", path="agent/helper"),
        ev.TextStreamed("r5.1", 0, "inner", run="r5", path="agent/helper"),
        ev.ModelCompleted("r5.1", 1, AssistantMessage("inner"), run="r5", path="agent/helper"),
    ):
        assert view.apply(event) == []
    assert (len(view.items), view.partial) == (1, "")


def test_tools_are_shown_while_they_run_and_their_result_once() -> None:
    view = started()
    view.apply(ev.ToolStarted("c1", "dig", run="r1"))
    view.apply(ev.ToolStarted("c2", "todo_write", run="r1"))
    assert view.tools == {"c1": "dig"}
    done = ev.ToolCompleted(ToolMessage("c1", "dig", "a\nhole"), run="r1")
    assert view.apply(done) == [Noted(Mark.TOOL, "dig: a hole")]
    assert view.tools == {}
    assert view.apply(ev.ToolCompleted(ToolMessage("c2", "todo_write", "{}"), run="r1")) == []


def test_a_failed_tool_says_why_also_a_quiet_one() -> None:
    error = '{"error":{"code":"todo.refused","message":"one at a time"}}'
    view = started()
    failed = ev.ToolFailed(ToolMessage("c1", "todo_write", error, CallOutcome.FAILED), run="r1")
    assert view.apply(failed) == [Noted(Mark.FAILED, "todo_write failed: one at a time")]
    plain = ev.ToolFailed(ToolMessage("c2", "dig", "boom", CallOutcome.DENIED), run="r1")
    assert view.apply(plain) == [Noted(Mark.FAILED, "dig denied: boom")]


def test_the_call_of_a_declined_question_says_nothing_once_more() -> None:
    view = started()
    denied = ev.ToolFailed(ToolMessage("c3", "ask_user", "{}", CallOutcome.DENIED), run="r1")
    assert view.apply(denied) == []
    declined = ev.ToolFailed(ToolMessage("c4", "ask_user", "{}", CallOutcome.FAILED), run="r1", code="ask.declined")
    assert view.apply(declined) == []
    unasked = ev.ToolFailed(ToolMessage("c5", "ask_user", "no", CallOutcome.FAILED), run="r1", code="tool.invalid_args")
    assert view.apply(unasked) == [Noted(Mark.FAILED, "ask_user failed: no")]


def test_the_rest_is_told_in_one_line_each() -> None:
    view = started()
    assert view.apply(ev.RunQueued(UserMessage("next"), run="r7")) == [Noted(Mark.INFO, "queued: next")]
    assert view.apply(ev.SteeringStarted(UserMessage("shorter"), run="r1")) == [Prompted("shorter")]
    assert view.apply(ev.StateDamaged("board", "bad json")) == [
        Noted(Mark.FAILED, "stored state board could not be read: bad json")
    ]
    assert view.apply(ev.CompactionCompleted(applied=True)) == [Noted(Mark.INFO, "the conversation was compacted")]
    assert view.apply(ev.CompactionCompleted(error="x")) == [Noted(Mark.FAILED, "compaction failed: x")]
    assert view.apply(ev.CompactionCompleted()) == []
    assert view.apply(ev.Custom("weather")) == []


def snapshot(**fields: Any) -> dict[str, Any]:
    return msgspec.to_builtins({"seq": 9, "status": "running", "messages": [], "asks": [], "queue": [], **fields})


def test_a_snapshot_has_partial_text_open_questions_and_running_tools() -> None:
    view = View()
    call = {"call": ToolCall("c1", "dig"), "started": True}
    partial = {"message": "r1.2", "text": "Hel"}
    run = {"id": "r1", "turn": 1, "input": UserMessage("go"), "calls": [call], "partial": partial}
    blocks = view.restore(
        snapshot(
            run=run, todos=todos(ACTIVE), asks=[ask()],
            messages=[UserMessage("go"), AssistantMessage("Hi"), ToolMessage("c0", "dig", "x"), {"role": "later"}],
        )
    )  # fmt: skip
    assert blocks == [Prompted("go"), Said("Hi")]
    assert (view.run, view.tools, view.partial, list(view.asks)) == ("r1", {"c1": "dig"}, "Hel", ["c1"])
    view.apply(ev.TextStreamed("r1.2", 3, "lo", run="r1"))
    assert view.partial == "Hello"


def test_a_snapshot_replaces_everything_that_was_known() -> None:
    view = started()
    view.apply(ev.AskOpened(ask(), run="r1"))
    view.apply(ev.TodosChanged(todos(ACTIVE), run="r1"))
    assert view.restore(snapshot(status="idle")) == []
    assert (view.status, view.items, view.asks, view.run) == (Status.IDLE, (), {}, "")


def test_a_snapshot_of_a_run_being_cancelled_shows_that() -> None:
    view = View()
    view.restore(snapshot(status="cancelling", run={"id": "r1"}))
    assert view.status is Status.CANCELLING


def test_fields_of_a_later_version_are_passed_over() -> None:
    view = View()
    view.restore(snapshot(mood="fine", run={"id": "r1", "speed": 3}))
    assert view.run == "r1"


def test_what_is_no_snapshot_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        View().restore({"messages": 5})
