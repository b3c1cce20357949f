"""What a client that attaches is told."""

import msgspec
import pytest

from protocol import events as ev
from protocol.asks import Ask, AskOutcome, Question
from protocol.chat import AssistantMessage, ToolCall, ToolMessage, UserMessage
from protocol.history import CallRecord, QueuedRun, State, Status, apply
from protocol.snapshot import PartialMessage, RunSnapshot, Snapshot, snapshot
from protocol.todos import TodoItem, TodoList, TodoStatus

GO, NEXT = UserMessage("go"), UserMessage("next")
FIRST, SECOND = ToolCall("c1", "ask_user", {"question": "?"}), ToolCall("c2", "ask_user")
ASKS = [Ask("a4", "c1", (Question("q1", "?"),)), Ask("a5", "c2", (Question("q1", "!"),))]
TODOS = TodoList((TodoItem("a", TodoStatus.IN_PROGRESS),))
ANSWER = AssistantMessage("", (FIRST, SECOND))


def folded(*events: ev.Event) -> State:
    state = State()
    for event in (ev.SessionOpened("s", "l"), *events):
        apply(state, msgspec.structs.replace(event, seq=state.seq + 1))
    return state


BUSY = (
    ev.RunStarted(GO, 3, run="r2"),
    ev.MessageAdded(GO, run="r2"),
    ev.ModelCompleted("r2.1", 1, ANSWER, run="r2"),
    ev.AskOpened(ASKS[0], run="r2"),
    ev.AskOpened(ASKS[1], run="r2"),
    ev.TodosChanged(TODOS, run="r2"),
    ev.RunQueued(NEXT, 5),
)


def test_a_fresh_session_has_nothing_but_its_name() -> None:
    assert snapshot(folded()) == Snapshot("s", 1, Status.IDLE)


def test_a_session_that_waits_shows_its_run_questions_list_and_queue() -> None:
    assert snapshot(folded(*BUSY)) == Snapshot(
        "s", 8, Status.WAITING, (GO, ANSWER),
        RunSnapshot("r2", 1, GO, (CallRecord(FIRST), CallRecord(SECOND))),
        (ASKS[0], ASKS[1]), TODOS, (QueuedRun("r8", NEXT, 5),),
    )  # fmt: skip


def test_all_open_questions_are_shown_in_their_order_and_settled_ones_not_b14() -> None:
    assert [ask.id for ask in snapshot(folded(*BUSY)).asks] == ["a4", "a5"]
    settled = ev.AskSettled("a4", "c1", AskOutcome.ANSWERED, {"answer": "x"}, run="r2")
    seen = snapshot(folded(*BUSY, settled))
    assert [ask.id for ask in seen.asks] == ["a5"]
    assert seen.status is Status.WAITING


def test_a_run_that_is_being_cancelled_shows_why() -> None:
    seen = snapshot(folded(*BUSY, ev.CancelRequested("enough", run="r2")))
    assert seen.status is Status.CANCELLING
    assert seen.run is not None
    assert seen.run.reason == "enough"


def test_what_waits_to_steer_the_run_and_a_compaction_are_shown() -> None:
    seen = snapshot(folded(*BUSY[:2], ev.SteeringQueued(NEXT, run="r2"), ev.CompactionStarted(run="r2")))
    assert seen.run == RunSnapshot("r2", 0, GO, steers=(NEXT,), compacting=True)


def test_the_message_in_flight_is_shown_as_far_as_it_is() -> None:
    partial = PartialMessage("r2.1", "Hel", "hm")
    seen = snapshot(folded(*BUSY[:2]), partial)
    assert seen.run == RunSnapshot("r2", 0, GO, partial=partial)
    assert seen.todos is None


def test_an_idle_session_has_no_message_in_flight() -> None:
    assert snapshot(folded(), PartialMessage("r2.1", "late")).run is None


def test_a_snapshot_does_not_change_when_the_session_goes_on() -> None:
    state = folded(*BUSY)
    seen = snapshot(state)
    before = msgspec.json.encode(seen)
    for event in (
        ev.ToolStarted("c1", "ask_user", run="r2"),
        ev.ToolCompleted(ToolMessage("c1", "ask_user", "x"), run="r2"),
        ev.ToolCompleted(ToolMessage("c2", "ask_user", "x"), run="r2"),
        ev.TodosChanged(None, run="r2"),
        ev.RunCompleted(run="r2"),
    ):
        apply(state, msgspec.structs.replace(event, seq=state.seq + 1))
    assert msgspec.json.encode(seen) == before


@pytest.mark.parametrize("events", [(), BUSY], ids=["idle", "busy"])
def test_a_snapshot_reads_back_as_it_was(events: tuple[ev.Event, ...]) -> None:
    seen = snapshot(folded(*events), PartialMessage("r2.2", "Hel"))
    assert msgspec.json.decode(msgspec.json.encode(seen), type=Snapshot) == seen
