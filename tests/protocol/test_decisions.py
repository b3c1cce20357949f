"""Deciders: what a wish leads to in each state, and what is refused. None of them changes anything."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from protocol import decisions
from protocol import events as ev
from protocol.asks import Ask, AskOutcome, Given, Question
from protocol.chat import AssistantMessage, CallOutcome, ImagePart, ToolCall, ToolMessage, UserMessage
from protocol.errors import Code, Detail, RuleViolation
from protocol.history import Run, State, apply
from protocol.ids import message_id
from protocol.limits import Limits
from protocol.todos import TodoItem, TodoList, TodoStatus

GO = UserMessage("go")
MORE = UserMessage("and this")
QUESTION = (Question("q1", "Which?"),)
TODOS = TodoList((TodoItem("a", TodoStatus.IN_PROGRESS),))
CANCELLED = AskOutcome.CANCELLED


class Session:
    """A state and how it came about; records what deciders return, as the one writer does."""

    def __init__(self) -> None:
        self.state = State()
        self.record(decisions.open_session("s", "log"))

    def record(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            seq = self.state.seq + 1
            apply(self.state, msgspec.structs.replace(event, seq=seq, time=float(seq)))

    @property
    def run(self) -> Run:
        assert self.state.run is not None
        return self.state.run

    def start(self, *calls: str, max_turns: int = 3) -> Run:
        """Start a run whose model has made these calls."""
        self.record(decisions.prompt(self.state, GO, max_turns=max_turns))
        if calls:
            self.turn(*calls)
        return self.run

    def turn(self, *calls: str) -> None:
        run = self.run
        message = AssistantMessage("", tuple(ToolCall(call, f"tool_{call}") for call in calls))
        name = message_id(run.id, run.turn + 1)
        self.record([ev.ModelCompleted(name, run.turn + 1, message, run=run.id)])

    def ask(self, call: str, *, answers_call: bool = True) -> None:
        self.record(decisions.open_ask(self.state, self.run, call, QUESTION, answers_call=answers_call))

    def nest(self, name: str, parent: str, call: str) -> None:
        """Start a run below another one, and in it a call that asks."""
        path = f"path/{name}"
        message = AssistantMessage("", (ToolCall(call, "ask_user"),))
        self.record([
            ev.RunStarted(GO, 3, parent=parent, run=name, path=path),
            ev.ModelCompleted(f"{name}.1", 1, message, run=name, path=path),
        ])  # fmt: skip
        self.record(decisions.open_ask(self.state, self.state.runs[name], call, QUESTION))

    def answer(self, call: str, text: str = "yes") -> None:
        self.record(decisions.answer(self.state, call, {"tool_call_id": call, "answer": text}))

    def call_started(self, call: str) -> None:
        self.record([ev.ToolStarted(call, f"tool_{call}", run=self.run.id)])


def refused(code: Code, text: str) -> Any:
    return pytest.raises(RuleViolation, match=f"^{re.escape(f'{code}: {text}')}$")


def test_a_decider_changes_nothing() -> None:
    session = Session()
    session.start("c1", "c2")
    session.ask("c1")
    before = msgspec.json.encode(session.state)
    state, run = session.state, session.run
    decisions.prompt(state, GO, max_turns=1, when_busy="queue")
    decisions.steer(state, MORE)
    decisions.open_ask(state, run, "c2", QUESTION)
    decisions.answer(state, "c1", {"answer": "yes"})
    decisions.settle_ask(state, "c1", AskOutcome.DECLINED)
    decisions.write_todos(run, TODOS)
    decisions.cancel(state)
    decisions.finish(state, run, "completed")
    assert msgspec.json.encode(session.state) == before


def test_a_log_begins_with_its_session() -> None:
    assert decisions.open_session("s-42", "l") == [ev.SessionOpened("s-42", "l", format=1)]


# ---- what a person says


@pytest.mark.parametrize("text", ["hi", " hi ", "null", "x" * 1_000_000])
def test_text_becomes_a_message_as_it_is(text: str) -> None:
    assert decisions.user_message(text) == UserMessage(text)


def test_a_message_with_parts_needs_no_text() -> None:
    image = ImagePart("data:image/png;base64,AA==")
    assert decisions.user_message(" ", [image]) == UserMessage(" ", (image,))


@pytest.mark.parametrize(
    ("text", "parts", "limits", "message"),
    [
        (None, (), Limits(), "a message is text, not NoneType"),
        (b"hi", (), Limits(), "a message is text, not bytes"),
        ("", (), Limits(), "a message must not be blank"),
        (" \u200b\u00a0\n", (), Limits(), "a message must not be blank"),
        ("abcd", (), Limits(max_prompt_chars=3), "a message has at most 3 characters, not 4"),
        ("a\ud800", (), Limits(), "the message holds half a character (a lone surrogate) at 1"),
        ("abc", (), Limits(max_event_bytes=20), "31 bytes are over the limit of 20"),
    ],
)
def test_a_message_is_refused(text: object, parts: Sequence[ImagePart], limits: Limits, message: str) -> None:
    with refused(Code.COMMAND_INVALID, message):
        decisions.user_message(text, parts, limits=limits)


def test_a_part_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(RuleViolation, match=r"^command\.invalid: cannot be written as JSON: "):
        decisions.user_message("hi", [ImagePart("\ud800")])


# ---- starting, queueing, steering


def test_a_run_is_named_after_the_record_that_starts_it() -> None:
    session = Session()
    assert decisions.prompt(session.state, GO, max_turns=3) == [ev.RunStarted(GO, 3, run="r2")]
    assert session.start().id == "r2"


def test_a_session_has_one_run_at_a_time() -> None:
    session = Session()
    session.start()
    with refused(Code.SESSION_BUSY, "run r2 is active; cancel it, steer it, or queue behind it"):
        decisions.prompt(session.state, GO, max_turns=3)


def test_a_run_can_wait_behind_the_active_one() -> None:
    session = Session()
    session.start()
    assert decisions.prompt(session.state, MORE, max_turns=5, when_busy="queue") == [ev.RunQueued(MORE, 5, run="r3")]


def test_not_more_runs_wait_than_may() -> None:
    session, limits = Session(), Limits(max_queued_runs=2)
    session.start()
    for _ in range(2):
        session.record(decisions.prompt(session.state, GO, max_turns=1, when_busy="queue", limits=limits))
    with refused(Code.SESSION_BUSY, "2 runs are queued already"):
        decisions.prompt(session.state, GO, max_turns=1, when_busy="queue", limits=limits)


def test_a_prompt_can_steer_the_active_run() -> None:
    session = Session()
    session.start()
    assert decisions.prompt(session.state, MORE, max_turns=5, when_busy="steer") == [ev.SteeringQueued(MORE, run="r2")]


@pytest.mark.parametrize("when_busy", ["reject", "queue", "steer"])
def test_an_idle_session_starts_at_once_whatever_was_to_be_done_if_busy(when_busy: decisions.WhenBusy) -> None:
    started = decisions.prompt(Session().state, GO, max_turns=3, when_busy=when_busy)
    assert started == [ev.RunStarted(GO, 3, run="r2")]


def test_the_run_that_waited_longest_starts_next_under_its_own_id() -> None:
    session = Session()
    session.start()
    session.record(decisions.prompt(session.state, GO, max_turns=4, when_busy="queue"))
    session.record(decisions.prompt(session.state, MORE, max_turns=5, when_busy="queue"))
    assert decisions.start_queued(session.state) == []
    session.record(decisions.finish(session.state, session.run, "completed"))
    assert decisions.start_queued(session.state) == [ev.RunStarted(GO, 4, run="r3")]
    session.record(decisions.start_queued(session.state))
    session.record(decisions.finish(session.state, session.run, "completed"))
    assert decisions.start_queued(session.state) == [ev.RunStarted(MORE, 5, run="r4")]


def test_nothing_starts_where_nothing_waits() -> None:
    assert decisions.start_queued(Session().state) == []


def test_steering_needs_a_run_that_goes_on() -> None:
    session = Session()
    with refused(Code.SESSION_IDLE, "no run is active that could be steered"):
        decisions.steer(session.state, MORE)
    session.start()
    session.record(decisions.cancel(session.state))
    with refused(Code.SESSION_IDLE, "no run is active that could be steered"):
        decisions.steer(session.state, MORE)


def test_not_more_steering_messages_wait_than_may() -> None:
    session, limits = Session(), Limits(max_queued_steers=1)
    session.start()
    session.record(decisions.steer(session.state, MORE, limits=limits))
    with refused(Code.SESSION_BUSY, "1 steering messages wait already"):
        decisions.steer(session.state, MORE, limits=limits)


def test_steering_messages_reach_the_model_one_by_one_in_their_order() -> None:
    session = Session()
    run = session.start()
    assert decisions.start_steering(run) == []
    for text in ("first", "second"):
        session.record(decisions.steer(session.state, UserMessage(text)))
    assert decisions.start_steering(run) == [ev.SteeringStarted(UserMessage("first"), run="r2")]
    session.record(decisions.start_steering(run))
    assert decisions.start_steering(run) == [ev.SteeringStarted(UserMessage("second"), run="r2")]


# ---- cancelling


def test_a_cancel_closes_the_open_asks_in_the_same_step_a23() -> None:
    session = Session()
    session.start("c1", "c2", "c3")
    for call in ("c1", "c2"):
        session.ask(call)
    session.answer("c1")
    assert decisions.cancel(session.state, reason="enough") == [
        ev.CancelRequested("enough", run="r2"),
        ev.AskSettled("a5", "c2", CANCELLED, run="r2"),
    ]


def test_a_second_cancel_is_no_event() -> None:
    session = Session()
    session.start()
    session.record(decisions.cancel(session.state, reason="enough"))
    assert decisions.cancel(session.state, reason="really") == []
    assert decisions.cancel(session.state, "r2") == []


def test_a_cancel_without_a_run_is_no_event() -> None:
    assert decisions.cancel(Session().state) == []


def test_a_run_can_be_cancelled_by_name() -> None:
    session = Session()
    session.start()
    assert decisions.cancel(session.state, "r2", reason="x") == [ev.CancelRequested("x", run="r2")]


def test_a_run_that_waits_is_cancelled_before_it_begins_a25() -> None:
    session = Session()
    session.start()
    session.record(decisions.prompt(session.state, GO, max_turns=1, when_busy="queue"))
    assert decisions.cancel(session.state, "r3", reason="no") == [ev.RunCancelled("no", run="r3")]
    session.record(decisions.cancel(session.state, "r3"))
    assert session.state.queue is None
    assert session.state.root == "r2"


@pytest.mark.parametrize("run", ["r0", "r4", "r99", "r", "rr", "c2", "2", "r-1", "a\u200b"])
def test_only_a_run_that_is_there_can_be_cancelled(run: str) -> None:
    session = Session()
    session.start()
    session.record(decisions.prompt(session.state, GO, max_turns=1, when_busy="queue"))
    with refused(Code.RUN_UNKNOWN, f"no run {run!r} is active or queued"):
        decisions.cancel(session.state, run)


def test_a_run_that_has_ended_in_the_meantime_is_cancelled_without_complaint() -> None:
    session = Session()
    session.record(decisions.finish(session.state, session.start(), "completed"))
    assert decisions.cancel(session.state, "r2", reason="too late") == []


def test_a_prompt_that_would_steer_a_run_being_cancelled_is_told_that_the_session_is_busy() -> None:
    session = Session()
    session.start()
    session.record(decisions.cancel(session.state))
    with refused(Code.SESSION_BUSY, "run r2 is active; cancel it, steer it, or queue behind it"):
        decisions.prompt(session.state, MORE, max_turns=3, when_busy="steer")


def test_a_cancel_reaches_every_run_below_the_deepest_first_b29() -> None:
    session = Session()
    session.start("c1")
    session.ask("c1")
    for name, parent, call in (("r50", "r2", "c50"), ("r60", "r50", "c60"), ("r70", "r2", "c70")):
        session.nest(name, parent, call)
    session.record(decisions.cancel(session.state, "r70"))
    expected = [
        ev.CancelRequested("no", run="r60", path="path/r60"),
        ev.AskSettled("a10", "c60", CANCELLED, run="r60", path="path/r60"),
        ev.CancelRequested("no", run="r50", path="path/r50"),
        ev.AskSettled("a7", "c50", CANCELLED, run="r50", path="path/r50"),
    ]
    assert decisions.cancel(session.state, "r50", reason="no") == expected
    root = [ev.CancelRequested("no", run="r2"), ev.AskSettled("a4", "c1", CANCELLED, run="r2")]
    session.record(events := decisions.cancel(session.state, reason="no"))
    assert events == [*expected, *root]
    assert session.state.open_asks() == []


def test_the_runs_below_end_before_the_run_does() -> None:
    session = Session()
    run = session.start("c1")
    for name, parent, call in (("r50", "r2", "c50"), ("r60", "r50", "c60")):
        session.nest(name, parent, call)
    events = decisions.finish(session.state, run, "completed")
    session.record(events)
    assert [(type(event), event.run) for event in events if isinstance(event, ev.RUN_ENDS)] == [
        (ev.RunCancelled, "r60"), (ev.RunCancelled, "r50"), (ev.RunCompleted, "r2"),
    ]  # fmt: skip
    assert [event.reason for event in events if isinstance(event, ev.RunCancelled)] == ["run r50 ended", "run r2 ended"]
    assert (session.state.runs, session.state.asks, session.state.root) == ({}, None, "")


def test_one_nested_run_is_cancelled_with_its_asks_and_no_others_f23() -> None:
    session = Session()
    session.start("c1")
    session.ask("c1")
    session.nest("r50", "r2", "c50")
    session.nest("r60", "r2", "c60")
    session.record(events := decisions.cancel(session.state, "r60", reason="no"))
    assert events == [
        ev.CancelRequested("no", run="r60", path="path/r60"),
        ev.AskSettled("a10", "c60", CANCELLED, run="r60", path="path/r60"),
    ]
    assert [record.ask.tool_call_id for record in session.state.open_asks()] == ["c1", "c50"]
    assert decisions.cancel(session.state, "r60") == []


# ---- ending


def test_a_run_completes_with_its_answer_turns_and_list() -> None:
    session = Session()
    run = session.start()
    session.record(decisions.write_todos(run, TODOS, "c1"))
    session.turn()
    assert decisions.finish(session.state, run, "completed") == [ev.RunCompleted("r2.1", 1, TODOS, run="r2")]


def test_a_run_fails_with_code_and_message() -> None:
    session = Session()
    run = session.start()
    assert decisions.finish(session.state, run, "failed", code="model.failed", message="down") == [
        ev.RunFailed("model.failed", "down", 0, None, run="r2")
    ]


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_a_run_whose_cancel_was_acknowledged_ends_cancelled_whatever_happened_a24(how: Any) -> None:
    session = Session()
    run = session.start()
    session.record(decisions.cancel(session.state, reason="enough"))
    assert decisions.finish(session.state, run, how, code="x.y", message="m", error="disk full", stuck=("slow",)) == [
        ev.RunCancelled("enough", 0, None, ("slow",), "disk full", run="r2")
    ]


def test_a_run_that_is_torn_down_ends_cancelled_with_the_reason_it_is_told() -> None:
    session = Session()
    run = session.start()
    assert decisions.finish(session.state, run, "cancelled", message="the session was cancelled") == [
        ev.RunCancelled("the session was cancelled", run="r2")
    ]


def test_at_the_end_each_call_gets_the_result_that_its_record_says() -> None:
    session = Session()
    run = session.start("c1", "c2", "c3", "c4", "c5", "c6")
    session.record([ev.ToolCompleted(ToolMessage("c1", "tool_c1", "done"), run="r2")])
    session.call_started("c2")
    session.ask("c3")
    session.answer("c3", "Postgres")
    session.ask("c4")
    session.ask("c5", answers_call=False)
    session.answer("c5")
    session.ask("c6")
    session.record(decisions.settle_ask(session.state, "c6", AskOutcome.DECLINED))
    interrupted = (
        '{"error":{"code":"call.interrupted","message":"tool_c2 was interrupted when the run ended; it may have had '
        'effects."}}'
    )

    def skipped(call: str) -> ev.Event:
        text = decisions.error_content("call.skipped", f"tool_{call} was not run: the run ended before it started.")
        return ev.ToolSkipped(ToolMessage(call, f"tool_{call}", text, CallOutcome.SKIPPED), run="r2")

    assert decisions.finish(session.state, run, "failed", code="x.y", message="m") == [
        ev.AskSettled("a8", "c4", CANCELLED, run="r2"),
        ev.ToolFailed(ToolMessage("c2", "tool_c2", interrupted, CallOutcome.INTERRUPTED), "call.interrupted", run="r2"),
        ev.ToolCompleted(ToolMessage("c3", "tool_c3", '{"tool_call_id":"c3","answer":"Postgres"}'), run="r2"),
        skipped("c4"),
        skipped("c5"),
        skipped("c6"),
        ev.RunFailed("x.y", "m", 1, None, run="r2"),
    ]


def test_an_answer_that_was_given_survives_the_cancel_b21() -> None:
    session = Session()
    run = session.start("c1")
    session.ask("c1")
    session.answer("c1", "yes")
    session.record(decisions.cancel(session.state))
    session.record(decisions.finish(session.state, run, "cancelled"))
    assert session.state.messages[-1] == ToolMessage("c1", "tool_c1", '{"tool_call_id":"c1","answer":"yes"}')


def test_steering_that_was_not_answered_is_told_as_interrupted() -> None:
    session = Session()
    run = session.start()
    for text in ("first", "second", "third"):
        session.record(decisions.steer(session.state, UserMessage(text)))
    session.record(decisions.start_steering(run))
    assert decisions.finish(session.state, run, "failed", code="x.y", message="m") == [
        ev.SteeringInterrupted(UserMessage("first"), run="r2"),
        ev.SteeringInterrupted(UserMessage("second"), run="r2"),
        ev.SteeringInterrupted(UserMessage("third"), run="r2"),
        ev.RunFailed("x.y", "m", 0, None, run="r2"),
    ]


def test_the_end_of_a_nested_run_carries_its_path() -> None:
    session = Session()
    session.start()
    session.record([ev.RunStarted(GO, 3, parent="r2", run="r3", path="child")])
    session.record([ev.ModelCompleted("r3.1", 1, AssistantMessage("", (ToolCall("c9", "f"),)), run="r3")])
    events = decisions.finish(session.state, session.state.runs["r3"], "completed")
    assert [(type(event), event.run, event.path) for event in events] == [
        (ev.ToolSkipped, "r3", "child"), (ev.RunCompleted, "r3", "child"),
    ]  # fmt: skip


# ---- asks


def test_an_ask_is_named_after_its_record_and_belongs_to_one_call_b12() -> None:
    session = Session()
    session.start("c1", "c2")
    assert decisions.open_ask(session.state, session.run, "c1", QUESTION) == [
        ev.AskOpened(Ask("a4", "c1", QUESTION), run="r2")
    ]
    session.ask("c1")
    assert decisions.open_ask(session.state, session.run, "c2", QUESTION, answers_call=False) == [
        ev.AskOpened(Ask("a5", "c2", QUESTION, answers_call=False), run="r2")
    ]


def test_an_ask_needs_an_open_call_of_the_turn() -> None:
    session = Session()
    run = session.start()
    with refused(Code.CALL_INVALID, "'c1' is no call of run r2 that has yet to start"):
        decisions.open_ask(session.state, run, "c1", QUESTION)
    session.turn("c1", "c2", "c3")
    session.record([ev.ToolCompleted(ToolMessage("c1", "f", "x"), run="r2")])
    session.call_started("c2")
    for call in ("c1", "c2", "c9"):
        with refused(Code.CALL_INVALID, f"{call!r} is no call of run r2 that has yet to start"):
            decisions.open_ask(session.state, run, call, QUESTION)


def test_an_ask_asks_something_that_can_be_recorded() -> None:
    session = Session()
    run = session.start("c1")
    with refused(Code.CALL_INVALID, "the ask for 'c1' has no question"):
        decisions.open_ask(session.state, run, "c1", ())
    with refused(Code.EVENT_TOO_LARGE, "77 bytes are over the limit of 76"):
        decisions.open_ask(session.state, run, "c1", QUESTION, limits=Limits(max_event_bytes=76))
    with pytest.raises(RuleViolation, match=r"^event\.unsendable: cannot be written as JSON: "):
        decisions.open_ask(session.state, run, "c1", (Question("q1", "\ud800"),))


def test_a_call_has_one_ask_even_after_that_is_settled() -> None:
    session = Session()
    session.start("c1")
    session.ask("c1")
    with refused(Code.ASK_SETTLED, "call 'c1' has its ask already"):
        decisions.open_ask(session.state, session.run, "c1", QUESTION)
    session.answer("c1")
    with refused(Code.ASK_SETTLED, "call 'c1' has its ask already"):
        decisions.open_ask(session.state, session.run, "c1", QUESTION)


def test_nobody_is_asked_by_a_run_that_is_being_cancelled() -> None:
    session = Session()
    run = session.start("c1")
    session.record(decisions.cancel(session.state))
    with refused(Code.RUN_SETTLED, "run r2 is being cancelled"):
        decisions.open_ask(session.state, run, "c1", QUESTION)


@pytest.mark.parametrize("target", ["c2", "a5"])
def test_an_ask_is_found_by_its_call_or_by_its_id(target: str) -> None:
    session = Session()
    session.start("c1", "c2")
    session.ask("c1")
    session.ask("c2")
    assert decisions.find_ask(session.state, target).ask.tool_call_id == "c2"


@pytest.mark.parametrize("target", ["c9", "a9", "C1", "c1 "])
def test_an_ask_that_never_was_is_unknown(target: str) -> None:
    session = Session()
    with refused(Code.ASK_UNKNOWN, f"session 's' has no ask {target!r}"):
        decisions.find_ask(session.state, target)
    session.start("c1")
    session.ask("c1")
    with refused(Code.ASK_UNKNOWN, f"session 's' has no ask {target!r}"):
        decisions.find_ask(session.state, target)


OUTCOMES = [AskOutcome.DECLINED, AskOutcome.TIMED_OUT, AskOutcome.CANCELLED, AskOutcome.NO_RESPONDER]


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("target", ["c1", "a4"])
@pytest.mark.parametrize("ended", [False, True])
def test_a_settled_ask_says_how_also_after_its_run_b20(outcome: AskOutcome, target: str, ended: bool) -> None:
    session = Session()
    run = session.start("c1")
    session.ask("c1")
    session.record(decisions.settle_ask(session.state, target, outcome, note="note"))
    assert run.calls is not None
    if ended:
        session.record(decisions.finish(session.state, run, "completed"))
    for late in (
        lambda: decisions.answer(session.state, target, {"answer": "late"}),
        lambda: decisions.settle_ask(session.state, target, AskOutcome.DECLINED),
    ):
        with refused(Code.ASK_SETTLED, f"ask {target!r} is {outcome}") as caught:
            late()
        assert caught.value.details == (Detail("ask", outcome, f"it is {outcome}"),)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_ask_is_settled_without_an_answer(outcome: AskOutcome) -> None:
    session = Session()
    session.start("c1")
    session.ask("c1")
    assert decisions.settle_ask(session.state, "c1", outcome, note="why") == [
        ev.AskSettled("a4", "c1", outcome, note="why", run="r2")
    ]


@pytest.mark.parametrize("target", ["c1", "a4"])
def test_an_answer_settles_its_ask_whole_and_copied(target: str) -> None:
    session = Session()
    session.start("c1", "c2")
    session.ask("c1")
    session.ask("c2")
    payload: dict[str, Any] = {"tool_call_id": "c1", "answer": ["yes"], "extra": {"n": 1}}
    events = decisions.answer(session.state, target, payload, via="AskUserExtension")
    payload["extra"]["n"] = 2
    whole = {"tool_call_id": "c1", "answer": ["yes"], "extra": {"n": 1}}
    assert events == [
        ev.AskSettled("a4", "c1", AskOutcome.ANSWERED, whole, {"q1": Given(("yes",))}, via="AskUserExtension", run="r2")
    ]


@pytest.mark.parametrize("target", [None, 7, "", " ", "\u200b", ["c1"], b"c1"], ids=repr)
def test_an_answer_names_its_ask(target: object) -> None:
    session = Session()
    session.start("c1")
    session.ask("c1")
    with refused(Code.ASK_INVALID, "an answer names its ask by `tool_call_id`"):
        decisions.answer(session.state, target, {"answer": "yes"})


def test_an_answer_that_does_not_fit_leaves_the_ask_open_b35() -> None:
    session = Session()
    session.start("c1")
    session.ask("c1")
    with refused(Code.ASK_INVALID, "a blank answer answers nothing"):
        decisions.answer(session.state, "c1", {"answer": " "})
    with refused(Code.ASK_INVALID, "17 bytes are over the limit of 3"):
        decisions.answer(session.state, "c1", {"answer": "yes!"}, limits=Limits(max_answer_bytes=3))
    session.answer("c1")
    assert session.state.asks is not None
    assert session.state.asks["c1"].outcome is AskOutcome.ANSWERED


def test_the_first_answer_stands_b24() -> None:
    session = Session()
    session.start("c1")
    session.ask("c1")
    session.answer("c1", "Postgres")
    with refused(Code.ASK_SETTLED, "ask 'c1' is answered"):
        decisions.answer(session.state, "c1", {"answer": "SQLite"})
    with refused(Code.ASK_SETTLED, "ask 'c1' is answered"):
        decisions.settle_ask(session.state, "c1", AskOutcome.DECLINED)
    assert (session.state.asks or {})["c1"].payload == {"tool_call_id": "c1", "answer": "Postgres"}


def test_an_answer_after_the_cancel_is_told_so_b21() -> None:
    session = Session()
    session.start("c1")
    session.ask("c1")
    session.record(decisions.cancel(session.state))
    with refused(Code.ASK_SETTLED, "ask 'c1' is cancelled"):
        decisions.answer(session.state, "c1", {"answer": "yes"})


def test_every_answer_reaches_its_own_call_in_any_order_b13() -> None:
    session = Session()
    session.start("c1", "c2", "c3", "c4")
    for call in ("c1", "c2", "c3", "c4"):
        session.ask(call)
    for call in ("c3", "c1", "c4", "c2"):
        session.answer(call, f"for {call}")
    session.record(decisions.finish(session.state, session.run, "completed"))
    assert [message.content for message in session.state.messages[-4:]] == [
        f'{{"tool_call_id":"{call}","answer":"for {call}"}}' for call in ("c1", "c2", "c3", "c4")
    ]


# ---- results


def test_a_result_is_recorded_as_what_it_is() -> None:
    session = Session()
    run = session.start("c1", "c2")
    good, bad = ToolMessage("c1", "f", "x"), ToolMessage("c2", "f", "no", CallOutcome.FAILED)
    assert decisions.settle_call(session.state, run, good) == [ev.ToolCompleted(good, run="r2")]
    assert decisions.settle_call(session.state, run, bad) == [ev.ToolFailed(bad, "tool.failed", run="r2")]
    assert decisions.settle_call(session.state, run, bad, code="x.y") == [ev.ToolFailed(bad, "x.y", run="r2")]


def test_an_ask_is_withdrawn_before_the_result_of_its_call() -> None:
    session = Session()
    run = session.start("c1")
    session.ask("c1")
    bad = ToolMessage("c1", "f", "no", CallOutcome.FAILED)
    session.record(events := decisions.settle_call(session.state, run, bad, withdrawn="policy"))
    assert events == [
        ev.AskSettled("a4", "c1", CANCELLED, note="policy", run="r2"),
        ev.ToolFailed(bad, "tool.failed", run="r2"),
    ]
    with refused(Code.ASK_SETTLED, "ask 'c1' is cancelled"):
        decisions.answer(session.state, "c1", {"answer": "late"})


def test_an_ask_that_was_answered_stays_so_whatever_becomes_of_its_call_b11() -> None:
    session = Session()
    run = session.start("c1")
    session.ask("c1")
    session.answer("c1")
    bad = ToolMessage("c1", "f", "no", CallOutcome.FAILED)
    assert decisions.settle_call(session.state, run, bad) == [ev.ToolFailed(bad, "tool.failed", run="r2")]


# ---- what the model reads


def test_an_error_is_short_json_with_its_details() -> None:
    text = decisions.error_content("todo.refused", "no", (Detail("todos[0].status", "shape", "no"),))
    assert text == (
        '{"error":{"code":"todo.refused","message":"no",'
        '"details":[{"path":"todos[0].status","code":"shape","message":"no"}]}}'
    )


def test_an_answer_reaches_the_model_unchanged() -> None:
    session = Session()
    session.start("c1")
    session.ask("c1")
    session.record(decisions.answer(session.state, "c1", {"b": 1, "answer": "e\u0301", "a": [None, 2.5]}))
    assert decisions.answer_content(record_of(session)) == '{"b":1,"answer":"e\u0301","a":[null,2.5]}'


def record_of(session: Session) -> Any:
    return (session.state.asks or {})["c1"]


def test_a_list_is_recorded_with_the_call_that_wrote_it() -> None:
    session = Session()
    run = session.start()
    assert decisions.write_todos(run, TODOS, "c1") == [ev.TodosChanged(TODOS, "c1", run="r2")]
    assert decisions.write_todos(run, None) == [ev.TodosChanged(None, run="r2")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("\ud800", " holds half a character (a lone surrogate) at 0"),
        ("x" * 4_001, " has at most 4000 characters, not 4001"),
    ],
)
def test_words_that_cannot_be_recorded_refuse_the_command_and_change_nothing(words: str, message: str) -> None:
    session = Session()
    with pytest.raises(RuleViolation) as raised:
        decisions.cancel(session.state, reason=words)
    assert (raised.value.code, raised.value.message) == ("command.invalid", f"the reason of a cancel{message}")
    with pytest.raises(RuleViolation) as raised:
        decisions.settle_ask(session.state, "c1", AskOutcome.DECLINED, note=words)
    assert (raised.value.code, raised.value.message) == ("command.invalid", f"the note of an ask{message}")


def test_a_run_id_of_any_length_is_a_run_that_is_not_known() -> None:
    with pytest.raises(RuleViolation, match=r"^run\.unknown: no run 'r9999"):
        decisions.cancel(Session().state, "r" + "9" * 5_000)


def test_a_run_at_rest_ends_with_its_cancel() -> None:
    session = Session()
    session.start("c1", "c2")
    for call in ("c1", "c2"):
        session.ask(call)
    session.answer("c1")
    events = decisions.cancel(session.state, reason="enough", at_rest=True)
    kinds = [type(event) for event in events]
    # An answer that was given is used, the other question is closed, and the end is the last.
    assert kinds == [ev.CancelRequested, ev.AskSettled, ev.ToolCompleted, ev.ToolSkipped, ev.RunCancelled]
    assert events[-1] == ev.RunCancelled("enough", 1, run="r2")
    session.record(events)
    assert session.state.runs == {}
    assert decisions.cancel(session.state, "r2", at_rest=True) == []


def test_a_run_with_nested_ones_is_never_at_rest() -> None:
    session = Session()
    session.start("c1")
    session.nest("r50", "r2", "c50")
    assert decisions.cancel(session.state, at_rest=True) == decisions.cancel(session.state)
