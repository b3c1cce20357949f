"""The state is the fold of the log: one writer, no event that cannot happen, the same after every replay."""

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocol import decisions
from protocol import events as ev
from protocol.asks import Ask, AskOutcome, AskRecord, Question, SettledAsk
from protocol.chat import AssistantMessage, CallOutcome, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from protocol.errors import Code, LocalProtocolError, RuleViolation
from protocol.history import Ack, CallRecord, QueuedRun, Run, State, Status, apply, fold
from protocol.ids import call_id, message_id
from protocol.limits import COMMANDS_KEPT, COMMANDS_KEPT_S, SETTLED_ASKS_KEPT
from protocol.steps import Step, next_step
from protocol.todos import TodoItem, TodoList, TodoStatus

GOLDEN = Path(__file__).parent / "golden"
GO, MORE, BRIEF = UserMessage("go"), UserMessage("and this"), SystemMessage("be brief")
QUESTION = (Question("q1", "Which?"),)
PENDING, DOING, DONE = TodoStatus.PENDING, TodoStatus.IN_PROGRESS, TodoStatus.COMPLETED


def stamp(state: State, *events: ev.Event, cause: str = "") -> list[ev.Event]:
    """Apply events as the one writer does, and return them as they are in the log."""
    log: list[ev.Event] = []
    for event in events:
        seq = state.seq + 1
        log.append(msgspec.structs.replace(event, seq=seq, time=float(seq), cause=cause or event.cause))
        apply(state, log[-1])
    return log


def opened(*events: ev.Event) -> State:
    state = State()
    stamp(state, ev.SessionOpened("s", "log"), *events)
    return state


def answer(*calls: str) -> AssistantMessage:
    return AssistantMessage("" if calls else "done", tuple(ToolCall(call, "f") for call in calls))


def asked(*calls: str) -> ev.Event:
    return ev.ModelCompleted("r2.1", 1, answer(*calls), run="r2")


def result(call: str, text: str = "x") -> ToolMessage:
    return ToolMessage(call, "f", text)


def bug(text: str) -> Any:
    return pytest.raises(LocalProtocolError, match=f"^{re.escape(text)}$")


STARTED = ev.RunStarted(GO, 3, run="r2")
OPEN_ASK = ev.AskOpened(Ask("a4", "c1", QUESTION), run="r2")


# ---- the log


@pytest.mark.parametrize("seq", [0, 1, 3, -2])
def test_records_follow_one_another_without_a_gap(seq: int) -> None:
    state = opened()
    with bug(f"record {seq} does not follow 1"):
        apply(state, ev.Custom("x", seq=seq))
    assert state == opened()


def test_a_log_of_a_newer_format_is_refused_by_name() -> None:
    with bug("the log of session 's' has format 2; known up to 1"):
        fold([ev.SessionOpened("s", "log", format=2, seq=1)])


def test_a_session_is_named_by_its_first_record() -> None:
    state = opened()
    assert (state.session_id, state.log_id, state.seq, state.status) == ("s", "log", 1, Status.IDLE)


def test_a_fold_goes_on_from_a_restored_state() -> None:
    state = State()
    log = stamp(state, ev.SessionOpened("s", "log"), STARTED, asked("c1"), OPEN_ASK)
    restored = msgspec.json.decode(msgspec.json.encode(fold(log[:2])), type=State)
    assert fold(log[2:], restored) == fold(log) == state


@pytest.mark.parametrize(
    "event",
    [ev.Custom("x", {"a": 1}), ev.BoardChanged("main", 1, {}), ev.StateDamaged("k", "unreadable")],
)
def test_what_is_only_told_moves_nothing_but_the_seq(event: ev.Event) -> None:
    expected = opened()
    expected.seq = 2
    assert opened(event) == expected


# ---- messages and state


def test_messages_enter_the_history_at_their_place() -> None:
    state = opened(ev.MessageAdded(GO), ev.MessageAdded(MORE), ev.MessageAdded(BRIEF, 0))
    assert state.messages == [BRIEF, GO, MORE]


def test_a_history_that_somebody_holds_only_grows_at_its_end() -> None:
    state = opened(STARTED, asked("c1"))
    stamp(state, ev.MessageAdded(MORE))
    held = state.messages
    before = list(held)
    stamp(state, ev.MessageAdded(BRIEF, 0), ev.ToolCompleted(result("c1"), run="r2"), ev.HistoryReplaced((GO,)))
    assert held[: len(before)] == before


def test_a_history_can_be_replaced() -> None:
    assert opened(ev.MessageAdded(GO), ev.HistoryReplaced((BRIEF, MORE))).messages == [BRIEF, MORE]


def test_state_is_set_and_removed_by_key() -> None:
    state = opened(ev.StateChanged("a", 1), ev.StateChanged("b", [2]), ev.StateChanged("a", 3))
    assert state.state == {"a": 3, "b": [2]}
    stamp(state, ev.StateChanged("a"), ev.StateChanged("never there"))
    assert state.state == {"b": [2]}


# ---- runs


def test_a_run_starts_and_is_the_root() -> None:
    state = opened(STARTED)
    assert state.run == Run("r2", GO, 3)
    assert (state.root, state.status) == ("r2", Status.RUNNING)


def test_a_second_root_run_cannot_start() -> None:
    with bug("run r3 starts while r2 is active"):
        opened(STARTED, ev.RunStarted(GO, 3, run="r3"))


def test_a_nested_run_starts_below_it_and_ends_alone() -> None:
    state = opened(STARTED, ev.RunStarted(MORE, 5, "r2", run="r3", path="child"))
    assert state.runs["r3"] == Run("r3", MORE, 5, path="child", parent="r2")
    assert state.root == "r2"
    stamp(state, ev.RunCompleted(run="r3"))
    assert (list(state.runs), state.root) == (["r2"], "r2")


def test_runs_wait_in_order_and_leave_the_queue_when_they_start_or_are_cancelled() -> None:
    state = opened(STARTED, ev.RunQueued(GO, 1), ev.RunQueued(MORE, 2), ev.RunQueued(GO, 3))
    assert state.queue == [QueuedRun("r3", GO, 1), QueuedRun("r4", MORE, 2), QueuedRun("r5", GO, 3)]
    stamp(state, ev.RunCancelled(run="r4"), ev.RunCompleted(run="r2"), ev.RunStarted(GO, 1, run="r3"))
    assert state.queue == [QueuedRun("r5", GO, 3)]
    stamp(state, ev.RunCancelled(run="r5"))
    assert state.queue is None


@pytest.mark.parametrize("end", [ev.RunCompleted(), ev.RunFailed("x.y", "m"), ev.RunCancelled()])
def test_an_end_leaves_nothing_of_the_run_behind(end: ev.Event) -> None:
    state = opened(STARTED, ev.MessageAdded(GO, run="r2"), ev.TodosChanged(TodoList(()), run="r2"))
    stamp(state, msgspec.structs.replace(end, run="r2"))
    assert (state.runs, state.root, state.run, state.asks, state.status) == ({}, "", None, None, Status.IDLE)
    assert state.messages == [GO]


@pytest.mark.parametrize("end", [ev.RunCompleted(), ev.RunFailed("x.y", "m"), ev.RunCancelled()])
@pytest.mark.parametrize("queued", [False, True])
def test_a_run_ends_once(end: ev.Event, queued: bool) -> None:
    waiting = [ev.RunQueued(GO, 1)] if queued else []
    state = opened(STARTED, *waiting, ev.RunCompleted(run="r2"))
    with bug(f"record {state.seq + 1} ends run 'r2', which is neither active nor queued"):
        stamp(state, msgspec.structs.replace(end, run="r2"))


OF_A_RUN: list[ev.Event] = [
    ev.CancelRequested(), asked(), ev.ToolStarted("c1", "f"), ev.ToolCompleted(result("c1")), OPEN_ASK,
    ev.TodosChanged(), ev.SteeringQueued(GO), ev.SteeringStarted(GO), ev.SteeringCompleted(),
    ev.SteeringInterrupted(GO),
]  # fmt: skip


@pytest.mark.parametrize("event", OF_A_RUN, ids=lambda event: type(event).__name__)
def test_nothing_more_is_recorded_of_a_run_that_has_ended(event: ev.Event) -> None:
    state = opened(STARTED, ev.RunCompleted(run="r2"))
    with bug("record 4 belongs to run 'r2', which is not active"):
        stamp(state, msgspec.structs.replace(event, run="r2"))


def test_compaction_belongs_to_its_run_or_to_none() -> None:
    state = opened(STARTED, ev.CompactionStarted(run="r2"))
    assert state.runs["r2"].compacting
    stamp(state, ev.CompactionCompleted(run="r2"))
    assert not state.runs["r2"].compacting
    stamp(state, ev.CompactionStarted(), ev.CompactionCompleted())
    assert not state.runs["r2"].compacting


# ---- status


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], Status.IDLE),
        ([STARTED], Status.RUNNING),
        ([STARTED, asked("c1"), OPEN_ASK], Status.WAITING),
        ([STARTED, asked("c1"), OPEN_ASK, ev.CancelRequested(run="r2")], Status.CANCELLING),
        (
            [STARTED, asked("c1"), OPEN_ASK, ev.AskSettled("a4", "c1", AskOutcome.DECLINED, run="r2")],
            Status.RUNNING,
        ),
    ],
)  # fmt: skip
def test_waiting_for_a_person_is_not_being_idle_b03(events: list[ev.Event], status: Status) -> None:
    assert opened(*events).status is status


# ---- turns


def test_the_results_of_a_turn_enter_the_history_in_call_order_once_all_are_there() -> None:
    state = opened(STARTED, asked("c1", "c2", "c3"))
    for call in ("c3", "c1"):
        stamp(state, ev.ToolCompleted(result(call), run="r2"))
        assert state.messages == [answer("c1", "c2", "c3")]
    stamp(state, ev.ToolFailed(ToolMessage("c2", "f", "no", CallOutcome.FAILED), "x.y", run="r2"))
    assert [getattr(message, "tool_call_id", "") for message in state.messages] == ["", "c1", "c2", "c3"]
    assert state.runs["r2"].calls is None
    assert state.call_ids == ["c1", "c2", "c3"]


def test_what_was_added_meanwhile_comes_behind_the_results_f07() -> None:
    state = opened(STARTED, asked("c1"), ev.MessageAdded(BRIEF), ev.ToolCompleted(result("c1"), run="r2"))
    assert state.messages == [answer("c1"), result("c1"), BRIEF]


@pytest.mark.parametrize("left", [(), (GO,), (GO, answer("c9"), result("c9"), answer())])
def test_results_without_their_calls_do_not_enter_a_replaced_history_f26(left: tuple[Message, ...]) -> None:
    state = opened(STARTED, asked("c1"), ev.HistoryReplaced(left), ev.ToolCompleted(result("c1"), run="r2"))
    assert state.messages == list(left)
    assert state.runs["r2"].calls is None


def test_a_replaced_history_that_kept_the_calls_gets_their_results_f25() -> None:
    replaced = ev.HistoryReplaced((BRIEF, answer("c1"), MORE))
    state = opened(STARTED, asked("c1"), replaced, ev.ToolCompleted(result("c1"), run="r2"))
    assert state.messages == [BRIEF, answer("c1"), result("c1"), MORE]


def test_a_call_is_started_and_settled_on_its_record() -> None:
    state = opened(STARTED, asked("c1", "c2"), ev.ToolStarted("c1", "f", run="r2"))
    calls = state.runs["r2"].calls
    assert calls == {"c1": CallRecord(ToolCall("c1", "f"), started=True), "c2": CallRecord(ToolCall("c2", "f"))}
    stamp(state, ev.ToolSkipped(result("c1"), run="r2"))
    assert calls["c1"].result == result("c1")


@pytest.mark.parametrize("event", [ev.ToolStarted("c1", "f"), ev.ToolCompleted(result("c1", "again"))])
def test_a_call_has_one_result_and_does_not_start_after_it(event: ev.Event) -> None:
    state = opened(STARTED, asked("c1", "c2"), ev.ToolCompleted(result("c1"), run="r2"))
    with bug("record 5: call 'c1' has its result already"):
        stamp(state, msgspec.structs.replace(event, run="r2"))


@pytest.mark.parametrize("event", [ev.ToolStarted("c9", "f"), ev.ToolCompleted(result("c9"))])
@pytest.mark.parametrize("calls", [(), ("c1",)])
def test_only_the_calls_of_the_turn_have_results_f26(event: ev.Event, calls: tuple[str, ...]) -> None:
    state = opened(STARTED, asked(*calls))
    with bug("record 4: 'c9' is no call of the turn in flight"):
        stamp(state, msgspec.structs.replace(event, run="r2"))


def test_the_model_does_not_speak_while_calls_have_no_result() -> None:
    state = opened(STARTED, asked("c1"))
    with bug("record 4: calls of run r2 are still without their results"):
        stamp(state, asked())


def test_a_message_without_calls_is_an_answer() -> None:
    state = opened(STARTED, ev.ModelCompleted("r2.1", 1, answer(), run="r2"))
    run = state.runs["r2"]
    assert (run.turn, run.message_id, run.answered, run.calls) == (1, "r2.1", True, None)
    assert state.call_ids is None


def test_steering_starts_a_new_budget_and_asks_the_model_again() -> None:
    state = opened(STARTED, asked(), ev.SteeringQueued(GO, run="r2"), ev.SteeringQueued(MORE, run="r2"))
    run = state.runs["r2"]
    assert (run.steers, run.answered) == ([GO, MORE], True)
    stamp(state, ev.SteeringStarted(GO, run="r2"))
    assert (run.steers, run.steering, run.answered, run.budget_from) == ([MORE], GO, False, 1)
    assert state.messages[-1] == GO
    stamp(state, ev.SteeringCompleted(run="r2"), ev.SteeringStarted(MORE, run="r2"))
    assert (run.steers, run.steering) == (None, MORE)
    stamp(state, ev.SteeringInterrupted(MORE, run="r2"))
    assert run.steering is None


# ---- todo lists


def test_the_list_hangs_on_its_run_and_remembers_in_which_turn_it_advanced() -> None:
    items = [TodoItem("a", DOING), TodoItem("b", PENDING)]
    first = TodoList(tuple(items))
    second = TodoList((TodoItem("a", DONE), TodoItem("b", DOING)), 2)
    state = opened(STARTED, asked("c1"), ev.TodosChanged(first, run="r2"))
    run = state.runs["r2"]
    assert (run.todos, run.advanced_in) == (first, 0)
    stamp(state, ev.TodosChanged(second, run="r2"))
    assert (run.todos, run.advanced_in) == (second, 1)
    stamp(state, ev.TodosChanged(None, run="r2"))
    assert run.todos is None


# ---- asks


def test_an_ask_is_on_record_with_its_run_until_that_ends() -> None:
    state = opened(STARTED, asked("c1"), OPEN_ASK)
    assert state.asks == {"c1": AskRecord(Ask("a4", "c1", QUESTION), run="r2")}
    stamp(state, ev.AskSettled("a4", "c1", AskOutcome.DECLINED, note="no", run="r2"))
    assert state.asks == {"c1": AskRecord(Ask("a4", "c1", QUESTION), "r2", AskOutcome.DECLINED, note="no")}
    assert state.open_asks() == []
    stamp(state, ev.RunCompleted(run="r2"))
    assert state.asks is None
    assert state.settled == {"c1": SettledAsk("a4", AskOutcome.DECLINED, 6.0)}


def test_the_asks_of_other_runs_stay_when_one_ends_b26() -> None:
    state = opened(STARTED, asked("c1"), OPEN_ASK, ev.RunStarted(GO, 3, "r2", run="r5"))
    stamp(state, ev.ModelCompleted("r5.1", 1, answer("c6"), run="r5"))
    stamp(state, ev.AskOpened(Ask("a7", "c6", QUESTION), run="r5"), ev.RunCompleted(run="r5"))
    assert [record.ask.id for record in state.open_asks()] == ["a4"]
    assert list(state.settled or {}) == ["c6"]


def test_an_ask_settles_once() -> None:
    state = opened(STARTED, asked("c1"), OPEN_ASK, ev.AskSettled("a4", "c1", AskOutcome.ANSWERED, {"answer": "x"}))
    with bug("record 6: ask a4 is settled already, as answered"):
        stamp(state, ev.AskSettled("a4", "c1", AskOutcome.CANCELLED))


@pytest.mark.parametrize("events", [[], [OPEN_ASK]])
def test_only_an_ask_that_was_put_is_settled(events: list[ev.Event]) -> None:
    state = opened(STARTED, asked("c1"), *events)
    with bug(f"record {state.seq + 1}: call 'c9' has no ask"):
        stamp(state, ev.AskSettled("a9", "c9", AskOutcome.CANCELLED))


def test_a_call_has_one_ask() -> None:
    state = opened(STARTED, asked("c1"), OPEN_ASK)
    with bug("record 5: call 'c1' has its ask already"):
        stamp(state, OPEN_ASK)


def test_the_last_settled_asks_are_remembered_and_no_more() -> None:
    state = opened()
    for number in range(SETTLED_ASKS_KEPT + 3):
        run, call = f"r{state.seq + 1}", f"c{number}"
        stamp(
            state,
            ev.RunStarted(GO, 3, run=run),
            ev.ModelCompleted(f"{run}.1", 1, answer(call), run=run),
            ev.AskOpened(Ask(f"a{number}", call, QUESTION), run=run),
            ev.AskSettled(f"a{number}", call, AskOutcome.ANSWERED, {}, run=run),
            ev.RunCompleted(run=run),
        )
    assert list(state.settled or {}) == [f"c{number}" for number in range(3, SETTLED_ASKS_KEPT + 3)]


# ---- commands


def test_a_command_is_remembered_with_its_first_acknowledgement() -> None:
    state = opened()
    stamp(state, STARTED, cause="k1")
    assert state.commands == {"k1": Ack(2, "r2", time=2.0)}
    stamp(state, *decisions.cancel(state), cause="k2")
    stamp(state, ev.RunCancelled(run="r2"))
    assert state.commands == {"k1": Ack(2, "r2", time=2.0), "k2": Ack(3, "r2", time=3.0)}


def test_a_command_of_several_records_is_acknowledged_by_the_last_with_all_who_took_it() -> None:
    state = opened(STARTED, asked("c1", "c2"), OPEN_ASK, ev.AskOpened(Ask("a5", "c2", QUESTION), run="r2"))
    settle = [
        ev.AskSettled(ask, call, AskOutcome.ANSWERED, {}, via=via, run="r2")
        for ask, call, via in (("a4", "c1", "First"), ("a5", "c2", "Second"))
    ]
    stamp(state, *settle, ev.Custom("x"), cause="k1")
    assert state.commands == {"k1": Ack(8, "r2", ("First", "Second"), 8.0)}


def test_an_answer_that_no_extension_took_names_none() -> None:
    state = opened(STARTED, asked("c1"), OPEN_ASK)
    stamp(state, ev.AskSettled("a4", "c1", AskOutcome.DECLINED, run="r2"), cause="k1")
    assert state.commands == {"k1": Ack(5, "r2", time=5.0)}


def test_the_last_commands_are_remembered_and_no_more() -> None:
    state = opened()
    for number in range(COMMANDS_KEPT + 3):
        stamp(state, ev.Custom("x"), cause=f"k{number}")
    assert list(state.commands or {}) == [f"k{number}" for number in range(3, COMMANDS_KEPT + 3)]


def test_a_command_is_remembered_for_a_day_and_the_last_one_for_ever() -> None:
    state = opened()

    def at(time: float, cause: str) -> None:
        apply(state, ev.Custom("x", seq=state.seq + 1, time=time, cause=cause))

    at(10.0, "k1")
    at(20.0, "k2")
    at(10.0 + COMMANDS_KEPT_S, "k3")
    assert list(state.commands or {}) == ["k1", "k2", "k3"]
    at(10.5 + COMMANDS_KEPT_S, "k4")
    assert list(state.commands or {}) == ["k2", "k3", "k4"]
    at(21.0 + COMMANDS_KEPT_S, "k3")
    assert list(state.commands or {}) == ["k4", "k3"], "one that led to another record is as young as that"
    at(9e9, "k5")
    assert list(state.commands or {}) == ["k5"]


# ---- a run that goes on


def test_a_run_has_entered_once_its_own_input_is_in_the_history() -> None:
    state = opened(STARTED, ev.MessageAdded(BRIEF, run="r2"), ev.MessageAdded(GO))
    assert not state.runs["r2"].entered
    stamp(state, ev.MessageAdded(MORE, input=True, run="r2"))
    assert state.runs["r2"].entered
    assert opened(STARTED, asked("c1")).runs["r2"].entered, "in an older log the input is not marked"


def test_a_run_counts_how_often_it_was_resumed_since_its_last_message() -> None:
    state = opened(STARTED, ev.RunResumed(run="r2"), ev.RunResumed(run="r2"))
    assert state.runs["r2"].resumed == 2
    stamp(state, asked("c1"))
    assert state.runs["r2"].resumed == 0


def test_an_ask_of_no_call_holds_its_run_until_that_is_resumed() -> None:
    state = opened(STARTED, asked("c1"), ev.AskOpened(Ask("a4", "x", QUESTION), run="r2"))
    assert (state.runs["r2"].held, state.call_ids) == ("x", ["c1", "x"])
    stamp(state, ev.AskSettled("a4", "x", AskOutcome.ANSWERED, {}, run="r2"), ev.RunResumed(run="r2"))
    assert state.runs["r2"].held == ""
    assert opened(STARTED, asked("c1"), OPEN_ASK).runs["r2"].held == ""


def test_a_compaction_that_was_cut_off_is_over_when_the_run_goes_on() -> None:
    state = opened(STARTED, ev.CompactionStarted(run="r2"), ev.RunResumed(run="r2"))
    assert not state.runs["r2"].compacting


# ---- the log of version 1


def test_the_log_of_version_1_is_still_read_as_it_was_written() -> None:
    lines = (GOLDEN / "log-v1.jsonl").read_bytes().splitlines()
    log = [ev.decode_event(line) for line in lines]
    events = [event for event in log if event is not None]
    assert len(events) == len(lines)
    assert [msgspec.json.encode(event) for event in events] == lines
    expected = msgspec.json.decode((GOLDEN / "state-v1.json").read_bytes(), type=State)
    assert fold(events) == expected


def test_the_log_of_version_1_has_every_durable_event() -> None:
    log = [ev.decode_event(line) for line in (GOLDEN / "log-v1.jsonl").read_bytes().splitlines()]
    assert {type(event) for event in log} == set(ev.DurableEvent.__args__)


# ---- any session there is


class AnySession(RuleBasedStateMachine):
    """Wishes in any order, through the deciders, against what a naive observer of the log would say."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State()
        self.log: list[ev.Event] = []
        self.given: dict[str, str] = {}  # the answer that was accepted, by call
        self.acks: dict[str, Ack] = {}
        self.record(decisions.open_session("s", "log"))

    def record(self, events: Sequence[ev.Event], *, cause: str = "") -> None:
        self.log += stamp(self.state, *events, cause=cause)

    def command(self, decide: Callable[[], list[ev.Event]]) -> bool:
        """Carry a command out once, then send it again: the repeat is known by its id."""
        cause = f"k{len(self.acks)}"
        try:
            events = decide()
        except RuleViolation:
            return False
        if events:
            self.record(events, cause=cause)
            self.acks[cause] = (self.state.commands or {})[cause]
            assert self.acks[cause].seq == self.state.seq
        return True

    def calls(self) -> list[tuple[Run, CallRecord]]:
        return [(run, call) for run in self.state.runs.values() for call in (run.calls or {}).values()]

    def at(self, number: int) -> tuple[Run, CallRecord]:
        calls = self.calls()
        return calls[number % len(calls)]

    @property
    def active(self) -> Run:
        assert self.state.run is not None
        return self.state.run

    # -- wishes of people

    @initialize(count=st.integers(1, 3), asks=st.integers(0, 3))
    def begin(self, count: int, asks: int) -> None:
        """Most of what can go wrong needs a run with calls, so there is one from the start."""
        self.prompt("reject")
        self.model_speaks(self.active, count)
        for number in range(min(asks, count)):
            self.call_moves(*self.at(number), "ask")

    @rule(when_busy=st.sampled_from(["reject", "queue", "steer"]))
    def prompt(self, when_busy: decisions.WhenBusy) -> None:
        self.command(lambda: decisions.prompt(self.state, GO, max_turns=3, when_busy=when_busy))

    @rule()
    def steer(self) -> None:
        accepted = self.command(lambda: decisions.steer(self.state, MORE))
        assert accepted == (self.state.run is not None and not self.active.cancelling)

    @rule(number=st.integers(0, 10))
    def cancel(self, number: int) -> None:
        names = [*self.state.runs, *(queued.id for queued in self.state.queue or ()), "", "r9999"]
        name = names[number % len(names)]
        assert self.command(lambda: decisions.cancel(self.state, name, reason="enough")) == (name != "r9999")

    @rule(number=st.integers(0, 10), text=st.sampled_from(["yes", "no", " "]), by_ask_id=st.booleans())
    def answer(self, number: int, text: str, by_ask_id: bool) -> None:
        everything = [*(self.state.asks or {}), *(self.state.settled or {}), "c0"]
        call = everything[number % len(everything)]
        record = (self.state.asks or {}).get(call)
        target = record.ask.id if record is not None and by_ask_id else call
        is_open = record is not None and call not in self.settlements()
        accepted = self.command(lambda: decisions.answer(self.state, target, {"answer": text}))
        assert accepted == (is_open and bool(text.strip()))
        if accepted:
            self.given[call] = text

    @rule(number=st.integers(0, 10), outcome=st.sampled_from(["declined", "timed_out", "no_responder"]))
    @precondition(lambda self: self.state.asks)
    def settle_without_an_answer(self, number: int, outcome: str) -> None:
        calls = list(self.state.asks or {})
        call = calls[number % len(calls)]
        was_open = call not in self.settlements()
        assert self.command(lambda: decisions.settle_ask(self.state, call, AskOutcome(outcome))) == was_open

    # -- what runs do

    def model_speaks(self, run: Run, count: int) -> None:
        seq = self.state.seq + 1
        message = answer(*(call_id(seq, index) for index in range(count)))
        self.record([ev.ModelCompleted(message_id(run.id, run.turn + 1), run.turn + 1, message, run=run.id)])

    def call_moves(self, run: Run, call: CallRecord, move: str) -> None:
        name, asks = call.call.id, self.state.asks or {}
        waits = name in asks and asks[name].outcome is None
        if move == "ask":
            may = not (call.started or call.result or run.cancelling or name in asks)
            with nullcontext() if may else pytest.raises(RuleViolation):
                self.record(decisions.open_ask(self.state, run, name, QUESTION))
        elif call.result is not None:
            return
        elif move == "start":
            if not call.started and not waits:
                self.record([ev.ToolStarted(name, "f", run=run.id)])
        else:
            success = move == "complete" and not waits
            text = self.given.get(name, "x") if success else "failed"
            outcome = CallOutcome.COMPLETED if success else CallOutcome.FAILED
            self.record(decisions.settle_call(self.state, run, ToolMessage(name, "f", text, outcome)))

    @rule(number=st.integers(0, 10), move=st.sampled_from(["ask", "start", "complete", "fail"]))
    @precondition(lambda self: self.calls())
    def a_call_moves(self, number: int, move: str) -> None:
        self.call_moves(*self.at(number), move)

    @rule(number=st.integers(0, 3), count=st.integers(0, 3))
    @precondition(lambda self: self.state.runs)
    def a_run_goes_on(self, number: int, count: int) -> None:
        runs = list(self.state.runs.values())
        run = runs[number % len(runs)]
        step = next_step(run)
        if step is Step.RUN_CALLS:
            waiting = [record for record in (run.calls or {}).values() if record.result is None]
            for record in waiting[count:]:
                self.call_moves(run, record, "complete")
        elif step is Step.STEER:
            self.record(decisions.start_steering(run))
        elif step is Step.CALL_MODEL and not run.cancelling:
            self.model_speaks(run, count)
        else:
            self.record(decisions.finish(self.state, run, "completed"))

    @rule(how=st.sampled_from(["completed", "failed", "cancelled"]), number=st.integers(0, 3))
    @precondition(lambda self: len(self.log) > 15 and self.state.runs)
    def a_run_breaks_off(self, how: Any, number: int) -> None:
        runs = list(self.state.runs.values())
        self.record(decisions.finish(self.state, runs[number % len(runs)], how, code="x.y", message="m"))

    @rule(number=st.integers(0, 3), count=st.integers(1, 2))
    @precondition(lambda self: self.calls() and len(self.state.runs) < 4)
    def a_run_nests(self, number: int, count: int) -> None:
        runs = list(self.state.runs.values())
        name = f"r{self.state.seq + 1}"
        self.record([ev.RunStarted(GO, 3, parent=runs[number % len(runs)].id, run=name, path="child")])
        self.model_speaks(self.state.runs[name], count)
        self.call_moves(self.state.runs[name], self.calls()[-1][1], "ask")

    @rule()
    @precondition(lambda self: self.state.queue)
    def the_next_starts(self) -> None:
        self.record(decisions.start_queued(self.state))

    @rule()
    @precondition(lambda self: self.calls())
    def an_extension_adds_a_message(self) -> None:
        self.record([ev.MessageAdded(BRIEF)])

    # -- what an observer of the log sees

    def settlements(self) -> dict[str, list[ev.AskSettled]]:
        found: dict[str, list[ev.AskSettled]] = {}
        for event in self.log:
            if isinstance(event, ev.AskSettled):
                found.setdefault(event.tool_call_id, []).append(event)
        return found

    @invariant()
    def the_state_is_the_fold_of_the_log(self) -> None:
        assert fold(self.log) == self.state
        written = [msgspec.json.encode(event) for event in self.log]
        assert [ev.decode_event(line) for line in written] == self.log
        assert msgspec.json.decode(msgspec.json.encode(self.state), type=State) == self.state

    @invariant()
    def a_run_has_one_end_and_it_is_its_last_event(self) -> None:
        assert all(run.parent in self.state.runs or run.id == self.state.root for run in self.state.runs.values())
        begun = {event.run for event in self.log if isinstance(event, ev.RunStarted | ev.RunQueued)}
        waiting = {queued.id for queued in self.state.queue or ()}
        assert begun >= waiting | set(self.state.runs)
        for run in begun:
            own = [event for event in self.log if event.run == run]
            ends = [event for event in own if isinstance(event, ev.RUN_ENDS)]
            if run in waiting or run in self.state.runs:
                assert ends == []
            else:
                assert ends == own[-1:]
                if any(isinstance(event, ev.CancelRequested) for event in own):
                    assert isinstance(own[-1], ev.RunCancelled)

    @invariant()
    def a_call_has_one_result_and_the_history_has_it_behind_its_call(self) -> None:
        in_flight = {call.call.id for _, call in self.calls()}
        results = [
            event.result for event in self.log if isinstance(event, ev.ToolCompleted | ev.ToolFailed | ev.ToolSkipped)
        ]
        ids = [found.tool_call_id for found in results]
        assert len(ids) == len(set(ids))
        messages = self.state.messages
        for place, message in enumerate(messages):
            if isinstance(message, AssistantMessage) and message.tool_calls:
                calls = [call.id for call in message.tool_calls]
                behind = messages[place + 1 : place + 1 + len(calls)]
                if in_flight & set(calls):
                    assert not any(isinstance(other, ToolMessage) and other.tool_call_id in calls for other in messages)
                else:
                    assert [getattr(other, "tool_call_id", None) for other in behind] == calls
                    assert all(other in results for other in behind)

    @invariant()
    def an_ask_settles_once_and_at_the_latest_with_its_run_or_call(self) -> None:
        settled = self.settlements()
        open_now = {record.ask.tool_call_id for record in self.state.open_asks()}
        put = {event.ask.tool_call_id: event.run for event in self.log if isinstance(event, ev.AskOpened)}
        for call, run in put.items():
            assert len(settled.get(call, [])) == (0 if call in open_now else 1)
            if call in open_now:
                assert run in self.state.runs
                assert not self.state.runs[run].cancelling
                assert (self.state.runs[run].calls or {})[call].result is None
        assert set(settled) <= set(put)

    @invariant()
    def an_answer_that_was_accepted_is_never_lost(self) -> None:
        settled = self.settlements()
        for call, text in self.given.items():
            assert settled[call][0].payload == {"answer": text}
        answered = {
            event.result.tool_call_id: event.result
            for event in self.log
            if isinstance(event, ev.ToolCompleted | ev.ToolFailed | ev.ToolSkipped)
        }
        for call, text in self.given.items():
            if call in answered and answered[call].outcome is CallOutcome.COMPLETED:
                assert text in answered[call].content
            elif call in answered:
                assert answered[call].content == "failed"  # the call itself failed after its answer was there

    @invariant()
    def a_command_keeps_its_acknowledgement(self) -> None:
        for cause, ack in list(self.acks.items())[-COMMANDS_KEPT:]:
            assert (self.state.commands or {})[cause] == ack

    @invariant()
    def the_status_says_what_the_record_says(self) -> None:
        run = self.state.run
        expected = Status.IDLE
        if run is not None:
            waits = Status.WAITING if self.state.open_asks() else Status.RUNNING
            expected = Status.CANCELLING if run.cancelling else waits
        assert self.state.status is expected


AnySession.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, derandomize=True, database=None
)


class TestAnySession(AnySession.TestCase):  # type: ignore[misc]
    """Runs the state machine."""


def test_a_refusal_changes_nothing() -> None:
    state = opened(STARTED, asked("c1"), OPEN_ASK)
    before = msgspec.json.encode(state)
    wishes: list[Callable[[], object]] = [
        lambda: decisions.prompt(state, GO, max_turns=3),
        lambda: decisions.answer(state, "c1", {"answer": ""}),
        lambda: decisions.answer(state, "c9", {"answer": "x"}),
        lambda: decisions.open_ask(state, state.runs["r2"], "c1", QUESTION),
        lambda: decisions.cancel(state, "r99"),
    ]
    for wish in wishes:
        with pytest.raises(RuleViolation) as refused:
            wish()
        assert refused.value.code in Code
    assert msgspec.json.encode(state) == before
