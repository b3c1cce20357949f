"""What becomes of runs that were interrupted is read from the record alone, however often that happened."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import decisions
from protocol import events as ev
from protocol.asks import Ask, AskOutcome, Question
from protocol.chat import AssistantMessage, CallOutcome, ToolCall, ToolMessage, UserMessage
from protocol.errors import RuleViolation
from protocol.history import State, Status, apply, fold
from protocol.ids import call_id, message_id
from protocol.resume import QUESTION, interrupt_calls, resume, settle_held
from tests.faults.invariants import check_log

GO, WHICH = UserMessage("go"), (Question("q1", "Which?"),)
OPENED = ev.SessionOpened("s", "log")
STARTED = ev.RunStarted(GO, 3, run="r2")
MODEL = ev.ModelCompleted("r2.1", 1, AssistantMessage("", (ToolCall("c1", "f"), ToolCall("c2", "g"))), run="r2")
ASKED = ev.AskOpened(Ask("a4", "c1", WHICH), run="r2")
ANSWERED = ev.AskSettled("a4", "c1", AskOutcome.ANSWERED, {"answer": "A"}, run="r2")
BEGUN = ev.ToolStarted("c1", "f", run="r2")
CANCELLING = ev.CancelRequested("enough", run="r2")
RESUMED = ev.RunResumed(run="r2")
CHILD = ev.RunStarted(GO, 3, "r2", run="r9", path="sub")


class Log:
    """A log and the state that it leads to."""

    def __init__(self, *events: ev.Event) -> None:
        self.events: list[ev.Event] = []
        self.state = State()
        self.add(OPENED, *events)

    def add(self, *events: ev.Event) -> None:
        for event in events:
            seq = self.state.seq + 1
            self.events.append(msgspec.structs.replace(event, seq=seq, time=float(seq)))
            apply(self.state, self.events[-1])


def kinds(events: list[ev.Event]) -> list[str]:
    return [type(event).__name__ for event in events]


ROWS: list[tuple[str, list[ev.Event], str, list[str]]] = [
    ("nothing ran", [], "auto", []),
    ("nothing ran, never", [], "never", []),
    ("it had begun", [STARTED], "auto", ["RunResumed"]),
    ("a call had begun", [STARTED, MODEL, BEGUN], "auto", ["RunResumed"]),
    ("an ask was open", [STARTED, MODEL, ASKED], "auto", ["RunResumed"]),
    ("it had begun, never", [STARTED], "never", ["RunFailed"]),
    ("a call had begun, never", [STARTED, MODEL, BEGUN], "never", ["ToolFailed", "ToolSkipped", "RunFailed"]),
    ("an ask was open, never", [STARTED, MODEL, ASKED], "never",
     ["AskSettled", "ToolSkipped", "ToolSkipped", "RunFailed"]),
    ("answered, never", [STARTED, MODEL, ASKED, ANSWERED], "never", ["ToolCompleted", "ToolSkipped", "RunFailed"]),
    ("it was being cancelled", [STARTED, CANCELLING], "auto", ["RunCancelled"]),
    ("it was being cancelled, ask", [STARTED, CANCELLING], "ask", ["RunCancelled"]),
    ("it was being cancelled, never", [STARTED, CANCELLING], "never", ["RunCancelled"]),
    ("a run below it", [STARTED, CHILD], "auto", ["RunCancelled", "RunResumed"]),
    ("a run below it, never", [STARTED, CHILD], "never", ["RunCancelled", "RunFailed"]),
    ("three times in a row", [STARTED, RESUMED, RESUMED, RESUMED], "auto", ["RunFailed"]),
    ("three times, and it came further", [STARTED, RESUMED, RESUMED, RESUMED, MODEL], "auto", ["RunResumed"]),
    ("three times, ask", [STARTED, RESUMED, RESUMED, RESUMED], "ask", ["RunFailed"]),
    ("often, waiting for a person", [STARTED, MODEL, ASKED, *[RESUMED] * 9], "auto", ["RunResumed"]),
    ("it had begun, ask", [STARTED], "ask", ["AskOpened"]),
    ("a call had begun, ask", [STARTED, MODEL, BEGUN], "ask", ["AskOpened"]),
    ("it only waits for a person, ask", [STARTED, MODEL, ASKED], "ask", ["RunResumed"]),
]  # fmt: skip


@pytest.mark.parametrize(("events", "mode", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_becomes_of_a_run(events: list[ev.Event], mode: Any, expected: list[str]) -> None:
    log = Log(*events)
    made = resume(log.state, mode=mode)
    assert kinds(made) == expected
    log.add(*made)
    if expected and expected[-1] in ("RunResumed", "AskOpened"):
        assert log.state.root == "r2" and list(log.state.runs) == ["r2"]
    else:
        assert log.state.status is Status.IDLE and not log.state.runs


def test_a_run_that_is_not_continued_says_why() -> None:
    (failed,) = resume(Log(STARTED).state, mode="never")
    assert isinstance(failed, ev.RunFailed)
    assert (failed.code, failed.message) == ("session.crashed", "the session was interrupted")
    (failed,) = resume(Log(STARTED, RESUMED).state, max_resumes=1)
    assert isinstance(failed, ev.RunFailed) and failed.code == "session.crashed"
    assert failed.message == "the session was interrupted 2 times in a row, and the run came no further"


# ---- a person decides


def held(*more: ev.Event) -> Log:
    log = Log(STARTED, MODEL, BEGUN)
    log.add(*resume(log.state, mode="ask"))
    log.add(*more)
    return log


def said(payload: dict[str, Any], outcome: AskOutcome = AskOutcome.ANSWERED, note: str = "") -> ev.Event:
    return ev.AskSettled("a5", "resume-a5", outcome, payload, note=note, run="r2")


def test_the_question_is_open_under_an_id_that_no_call_has_or_will_have() -> None:
    log = held()
    (record,) = log.state.open_asks()
    assert record.ask == Ask("a5", "resume-a5", (QUESTION,), answers_call=False)
    assert "resume-a5" in (log.state.call_ids or ()) and log.state.status is Status.WAITING
    taken = Log(STARTED)
    taken.state.call_ids = ["resume-a3", "resume-a3_"]
    (opened,) = resume(taken.state, mode="ask")
    assert isinstance(opened, ev.AskOpened) and opened.ask.tool_call_id == "resume-a3__"


@pytest.mark.parametrize("answer", ["continue", "Continue", ["continue"], ["Continue"]])
def test_only_the_word_continues(answer: Any) -> None:
    log = held()
    log.add(*decisions.answer(log.state, "resume-a5", {"answer": answer}))
    assert settle_held(log.state, log.state.runs["r2"]) == [RESUMED]


@pytest.mark.parametrize(
    ("settled", "reason"),
    [
        (said({"answer": "stop"}), "it was interrupted, and was not to be continued"),
        (said({"words": "continue"}), "it was interrupted, and was not to be continued"),
        (said({}, AskOutcome.DECLINED, "no more"), "no more"),
        (said({"answer": "continue"}, AskOutcome.NO_RESPONDER), "it was interrupted, and was not to be continued"),
    ],
)
def test_anything_else_ends_the_run(settled: ev.Event, reason: str) -> None:
    log = held(settled)
    made = settle_held(log.state, log.state.runs["r2"])
    assert kinds(made) == ["ToolFailed", "ToolSkipped", "RunCancelled"]
    assert isinstance(made[-1], ev.RunCancelled) and made[-1].reason == reason
    log.add(*made)
    check_log(log.events)


def test_other_words_than_those_offered_are_refused() -> None:
    with pytest.raises(RuleViolation, match=r"^ask\.invalid: only the options may be chosen: Continue, Stop, continue"):
        decisions.answer(held().state, "resume-a5", {"answer": "perhaps"})


def test_a_question_that_is_open_when_it_is_interrupted_again_stays_open_b07() -> None:
    assert resume(held().state, mode="ask") == []


def test_an_answer_that_was_given_right_before_it_was_interrupted_again_is_used() -> None:
    for mode in ("auto", "ask"):
        assert resume(held(said({"answer": "continue"})).state, mode=mode) == [RESUMED]
        assert kinds(resume(held(said({"answer": "stop"})).state, mode=mode))[-1] == "RunCancelled"


def test_a_process_that_does_not_ask_withdraws_the_question() -> None:
    made = resume(held().state, mode="auto")
    assert kinds(made) == ["AskSettled", "RunResumed"]
    assert kinds(resume(held().state, mode="never"))[-1] == "RunFailed"


# ---- calls


def test_a_call_that_had_begun_is_interrupted_unless_it_may_be_made_again() -> None:
    log = Log(STARTED, MODEL, BEGUN, ev.ToolStarted("c2", "g", run="r2"), RESUMED)
    (made,) = interrupt_calls(log.state, log.state.runs["r2"], retryable=lambda name: name == "g")
    assert isinstance(made, ev.ToolFailed)
    assert (made.result.tool_call_id, made.result.outcome, made.code) == ("c1", "interrupted", "call.interrupted")
    text = "f was interrupted when the session was interrupted; it may have had effects."
    assert made.result.content == f'{{"error":{{"code":"call.interrupted","message":"{text}"}}}}'


def test_a_call_that_had_not_begun_or_has_its_result_is_left() -> None:
    log = Log(STARTED, MODEL, BEGUN, ev.ToolCompleted(ToolMessage("c1", "f", "x"), run="r2"), RESUMED)
    assert interrupt_calls(log.state, log.state.runs["r2"], retryable=lambda _: False) == []


def test_a_call_whose_answer_is_on_the_record_has_it_for_its_result() -> None:
    log = Log(STARTED, MODEL, ASKED, ANSWERED, BEGUN, RESUMED)
    (made,) = interrupt_calls(log.state, log.state.runs["r2"], retryable=lambda _: False)
    assert made == ev.ToolCompleted(ToolMessage("c1", "f", '{"answer":"A"}'), run="r2")


def test_a_question_put_again_by_a_run_that_goes_on_is_the_one_that_is_there() -> None:
    log = Log(STARTED, MODEL, ASKED)
    run = log.state.runs["r2"]
    with pytest.raises(RuleViolation, match=r"^ask\.settled: call 'c1' has its ask already$"):
        decisions.open_ask(log.state, run, "c1", WHICH)
    log.add(RESUMED)
    assert decisions.open_ask(log.state, run, "c1", WHICH) == []
    for other in ((Question("q1", "Which other?"),), WHICH):
        with pytest.raises(RuleViolation, match=r"^ask\.settled: "):
            decisions.open_ask(log.state, run, "c1", other, answers_call=other is not WHICH)
    log.add(ANSWERED, BEGUN)
    assert decisions.open_ask(log.state, run, "c1", WHICH) == [], "also for a call that is made again"


# ---- any log, cut anywhere


class AnyLog(Log):
    """Moves in any order, through the deciders."""

    def move(self, what: int, number: int) -> None:
        """Do one thing, if it can be done now."""
        state, run, seq = self.state, self.state.run, self.state.seq + 1
        calls = [record for record in (run.calls or {}).values() if record.result is None] if run is not None else []
        call = calls[number % len(calls)] if calls else None
        if what <= 1:
            self.add(*decisions.prompt(state, GO, max_turns=9, when_busy="queue" if what else "steer"))
        elif run is None:
            self.add(*decisions.start_queued(state))
        elif what <= 3 and not run.calls and not run.cancelling:
            made = tuple(ToolCall(call_id(seq, index), "fg"[index % 2]) for index in range(number))
            turn = run.turn + 1
            self.add(ev.ModelCompleted(message_id(run.id, turn), turn, AssistantMessage("", made), run=run.id))
        elif what <= 5 and call is not None:
            self.add(*decisions.open_ask(state, run, call.call.id, WHICH, answers_call=number % 2 == 0))
        elif what == 6 and call is not None:
            self.add(*decisions.answer(state, call.call.id, {"answer": "A"}))
        elif what == 7 and call is not None and not call.started:
            self.add(ev.ToolStarted(call.call.id, call.call.name, run=run.id))
        elif what == 8 and call is not None and call.started:
            self.add(*decisions.settle_call(state, run, ToolMessage(call.call.id, call.call.name, "x")))
        elif what == 9 and number == 0:
            self.add(*decisions.cancel(state, reason="enough"))
        elif what == 10 and number == 0:
            self.add(*decisions.finish(state, run, "completed"))
        elif what == 11 and number == 0 and len(state.runs) == 1:
            self.add(ev.RunStarted(GO, 3, run.id, run=f"r{seq}", path="sub"))

    def end(self) -> None:
        """Bring what is active to its end, as the loop does."""
        while (run := self.state.run) is not None or self.state.queue:
            if run is not None:
                self.add(*decisions.finish(self.state, run, "completed"))
            self.add(*decisions.start_queued(self.state))


MOVES = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3)), min_size=5, max_size=40)


def _results(log: Log) -> dict[str, ToolMessage]:
    kept = (ev.ToolCompleted, ev.ToolFailed, ev.ToolSkipped)
    return {event.result.tool_call_id: event.result for event in log.events if isinstance(event, kept)}


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(MOVES, st.integers(0, 1_000), st.sampled_from(["auto", "ask", "never"]), st.integers(1, 3))
def test_any_log_that_is_cut_anywhere_goes_on(moves: list[Any], at: int, mode: Any, times: int) -> None:
    whole = AnyLog(STARTED)
    for what, number in moves:
        try:
            whole.move(what, number)
        except RuleViolation:
            continue
    cut = AnyLog()
    cut.add(*whole.events[1 : 1 + at % len(whole.events)])
    run, results = cut.state.run, _results(cut)
    asks = {key: (record.ask, record.outcome) for key, record in (cut.state.asks or {}).items()
            if run is not None and record.run == run.id}  # fmt: skip
    for _ in range(times):
        made = resume(fold(cut.events), mode=mode)
        assert made == resume(cut.state, mode=mode), "it is read from the log alone"
        cut.add(*made)
    now = cut.state.run
    if now is not None:
        assert run is not None and now.id == run.id and not run.cancelling
        found = {key: (record.ask, record.outcome) for key, record in (cut.state.asks or {}).items()}
        assert {key: found[key] for key in asks} == asks, "its questions are as they were"
        if now.resumed:
            cut.add(*interrupt_calls(cut.state, now, retryable=lambda name: name == "g"))
        interrupted = [result for key, result in _results(cut).items() if key not in results]
        assert not [one for one in interrupted if one.outcome is CallOutcome.INTERRUPTED and one.name == "g"
                    and not [c for c in cut.events if isinstance(c, ev.RunStarted) and c.parent]]  # fmt: skip
    assert {key: _results(cut)[key] for key in results} == results, "what had its result keeps it"
    check_log(cut.events, over=False)
    cut.end()
    check_log(cut.events)
