from typing import Any

import pytest

from actors import AgentEvent, AgentEventType, AskUserEvent
from actors.agent.view import ask_payload, to_agent_event
from protocol import events as ev
from protocol.asks import Ask, AskOutcome, Option, Question
from protocol.chat import AssistantMessage, ToolCall, ToolMessage, UserMessage
from protocol.todos import TodoItem, TodoList, TodoStatus, result

T = AgentEventType
USER = UserMessage("hi")
REPLY = AssistantMessage("yes", (ToolCall("c1", "search"),))
RESULT = ToolMessage("c1", "search", "found")
TODOS = TodoList((TodoItem("a", TodoStatus.IN_PROGRESS),))
ASK = Ask("a3", "c1", (Question("q1", "Which?", options=(Option("A"), Option("B", "the second")), multiple=True),))
CALL = (ToolCall("c1", "search"),)

ROWS: list[tuple[ev.Event, AgentEventType, dict[str, Any]]] = [
    (ev.SessionOpened("s", "log"), T.SESSION_OPENED, {}),
    (ev.MessageAdded(USER), T.MESSAGE_ADDED, {"message": USER}),
    (ev.HistoryReplaced((USER,)), T.HISTORY_REPLACED, {}),
    (ev.StateChanged("key", 1), T.STATE_CHANGED, {"payload": {"key": "key", "value": 1}}),
    (ev.StateDamaged("key", "bad", raw="x"), T.STATE_DAMAGED, {"error": "bad", "payload": {"key": "key", "raw": "x"}}),
    (ev.BoardChanged("b", 2, {"add": 1}), T.BOARD_CHANGED, {}),
    (ev.Custom("ping", {"n": 1}), T.CUSTOM, {"name": "ping", "payload": {"n": 1}}),
    (ev.RunQueued(USER), T.RUN_QUEUED, {"message": USER}),
    (ev.RunStarted(USER), T.RUN_STARTED, {"message": USER}),
    (ev.RunResumed(), T.RUN_RESUMED, {}),
    (ev.CancelRequested("why"), T.CANCEL_REQUESTED, {"error": "why"}),
    (ev.RunCompleted(todos=TODOS), T.RUN_COMPLETED, {"todos": result(TODOS)}),
    (ev.RunCompleted(), T.RUN_COMPLETED, {"todos": None}),
    (ev.RunFailed("x.y", "bad", todos=TODOS), T.RUN_FAILED, {"code": "x.y", "error": "bad", "todos": result(TODOS)}),
    (ev.RunCancelled("why"), T.RUN_CANCELLED, {"code": "run.cancelled", "error": "why"}),
    (ev.ModelCompleted("m1", 1, REPLY), T.MODEL_COMPLETED, {"response": REPLY, "message": REPLY, "tool_calls": CALL}),
    (ev.ToolStarted("c1", "search"), T.TOOL_STARTED, {"tool_calls": CALL}),
    (ev.ToolCompleted(RESULT), T.TOOL_COMPLETED, {"message": RESULT, "tool_calls": CALL}),
    (ev.ToolFailed(RESULT, "x.y"), T.TOOL_FAILED, {"message": RESULT, "code": "x.y", "error": "found"}),
    (ev.ToolSkipped(RESULT), T.TOOL_SKIPPED, {"message": RESULT, "tool_calls": CALL}),
    (
        ev.AskSettled("a3", "c1", AskOutcome.ANSWERED, {"answer": "A"}),
        T.ASK_SETTLED,
        {"code": "answered", "payload": {"answer": "A"}},
    ),
    (
        ev.AskSettled("a3", "c1", AskOutcome.DECLINED, note="no"),
        T.ASK_SETTLED,
        {"code": "declined", "payload": {"tool_call_id": "c1"}, "error": "no"},
    ),
    (ev.TodosChanged(TODOS), T.TODOS_CHANGED, {"todos": result(TODOS)}),
    (ev.TodosChanged(), T.TODOS_CHANGED, {"todos": None}),
    (ev.SteeringQueued(USER), T.STEERING_QUEUED, {"message": USER}),
    (ev.SteeringStarted(USER), T.STEERING_STARTED, {"message": USER}),
    (ev.SteeringCompleted(), T.STEERING_COMPLETED, {}),
    (ev.SteeringInterrupted(USER), T.STEERING_INTERRUPTED, {"message": USER}),
    (ev.CompactionStarted(), T.COMPACTION_STARTED, {}),
    (ev.CompactionCompleted(True, "x"), T.COMPACTION_COMPLETED, {"payload": {"applied": True}, "error": "x"}),
    (ev.ModelStarted("m1", 1), T.MODEL_STARTED, {}),
    (ev.ContentStarted("m1"), T.CONTENT_STARTED, {}),
    (ev.ContentCompleted("m1"), T.CONTENT_COMPLETED, {}),
    (ev.ReasoningStarted("m1"), T.REASONING_STARTED, {}),
    (ev.ReasoningCompleted("m1"), T.REASONING_COMPLETED, {}),
    (ev.TextStreamed("m1", 0, "te"), T.TEXT_DELTA, {"delta": "te"}),
    (ev.ReasoningStreamed("m1", 0, "hm"), T.REASONING_DELTA, {"delta": "hm"}),
    (ev.ToolCallStreamed("m1", 0, "search", "{"), T.TOOL_CALL_DELTA, {"delta": "{"}),
    (ev.ToolProgress("c1", 5), T.TOOL_PROGRESS, {"payload": {"value": 5}}),
    (ev.CompactionTextStreamed("te"), T.COMPACTION_TEXT_DELTA, {"delta": "te"}),
    (ev.CompactionReasoningStreamed("hm"), T.COMPACTION_REASONING_DELTA, {"delta": "hm"}),
    (ev.Draft("a3", {"answer": "A"}), T.DRAFT, {"payload": {"ask": "a3", "answer": "A"}}),
]


@pytest.mark.parametrize(("event", "type_", "fields"), ROWS, ids=lambda row: getattr(row, "value", ""))
def test_each_event_has_its_flat_view(event: ev.Event, type_: AgentEventType, fields: dict[str, Any]) -> None:
    view = to_agent_event("s", event)
    assert view.type is type_
    assert {name: getattr(view, name) for name in fields} == fields


def test_every_event_has_a_view_and_every_type_an_event() -> None:
    kinds = {*ev.DurableEvent.__args__, *ev.EphemeralEvent.__args__}
    assert {type(row[0]) for row in ROWS} | {ev.AskOpened} == kinds
    assert {row[1] for row in ROWS} == set(AgentEventType)


def test_the_envelope_is_taken_over() -> None:
    view = to_agent_event("s", ev.Custom("ping", seq=7, time=2.5, run="r3", path="a/b"))
    assert (view.session_id, view.run_id, view.path, view.seq, view.time) == ("s", "r3", "a/b", 7, 2.5)


def test_only_custom_events_have_a_name() -> None:
    for event, type_, _ in ROWS:
        assert bool(to_agent_event("s", event).name) == (type_ is T.CUSTOM)


def test_an_open_ask_looks_like_the_documented_custom_event() -> None:
    view = to_agent_event("s", ev.AskOpened(ASK, run="r3", seq=9))
    assert isinstance(view, AskUserEvent) and isinstance(view, AgentEvent)
    assert (view.type, view.name, view.ask, view.run_id, view.seq) == (T.CUSTOM, "ask_user", ASK, "r3", 9)
    assert view.tool_calls == (ToolCall("c1", "ask_user"),)
    assert (
        view.payload
        == ask_payload("s", ASK)
        == {
            "session_id": "s",
            "tool_call_id": "c1",
            "question": "Which?",
            "options": ["A", "B"],
            "allow_multiple": True,
            "response_event": "ask_user_response",
        }
    )
