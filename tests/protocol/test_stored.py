"""Records and states are read back as they were written, by this version and by later ones."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import decisions, stored
from protocol import events as ev
from protocol.asks import Ask, AskOutcome, AskRecord, Question, SettledAsk
from protocol.blobs import Texts, take_out
from protocol.chat import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from protocol.errors import LocalProtocolError, RuleViolation
from protocol.history import Ack, CallRecord, QueuedRun, Run, State, apply, fold
from protocol.ids import call_id, message_id
from protocol.stored import STATE_FORMAT, decode_record, decode_state, encode_record, encode_state, record_time
from protocol.todos import TodoItem, TodoList, TodoStatus

GOLDEN = Path(__file__).parent / "golden"
QUESTION = (Question("q1", "Which?"),)
LATER = b'{"type":"of_a_later_version","seq":7,"time":1.5,"run":"r2","path":"sub","cause":"k1","payload":[1]}'

TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MOVES = st.tuples(st.sampled_from(range(14)), st.integers(0, 3), TEXT, JSON)


class Writer:
    """Carries moves out as the one writer of a session does."""

    def __init__(self) -> None:
        self.state = State()
        self.log: list[ev.Event] = []
        self.record(decisions.open_session("s", "log"))

    def record(self, events: list[ev.Event], cause: str = "") -> None:
        for event in events:
            seq = self.state.seq + 1
            self.log.append(msgspec.structs.replace(event, seq=seq, time=seq / 4, cause=cause))
            apply(self.state, self.log[-1])

    def move(self, what: int, number: int, text: str, value: Any) -> None:
        """Do one thing, if it can be done now; `text` and `value` are what somebody said."""
        state, run, seq = self.state, self.state.run, self.state.seq + 1
        calls = list((run.calls or {}).values()) if run is not None else []
        call = calls[number % len(calls)] if calls else None
        if what <= 2:
            busy: Any = ("queue", "steer", "reject")[what]
            message = UserMessage(text or "go")
            self.record(decisions.prompt(state, message, max_turns=3, when_busy=busy), f"k{seq}" if number else "")
        elif what == 3:
            self.record([ev.StateChanged(text, value), ev.Custom(text, {"value": value})])
        elif what == 4:
            self.record([ev.MessageAdded(SystemMessage(text), 0 if number else None)])
        elif run is None:
            return
        elif what <= 6 and not run.calls and not run.cancelling:
            made = tuple(ToolCall(call_id(seq, index), "f", {"x": value}) for index in range(number))
            self.record([ev.ModelCompleted(message_id(run.id, run.turn + 1), run.turn + 1,
                                           AssistantMessage(text, made), run=run.id)])  # fmt: skip
        elif what == 7 and call is not None:
            self.record(decisions.open_ask(state, run, call.call.id, QUESTION))
        elif what == 8 and call is not None:
            self.record(decisions.answer(state, call.call.id, {"answer": text}), f"k{seq}")
        elif what <= 10 and call is not None and call.result is None:
            self.record(decisions.settle_call(state, run, ToolMessage(call.call.id, "f", text)))
        elif what == 11:
            self.record(decisions.cancel(state, reason="enough"), f"k{seq}")
        elif what == 12:
            self.record([ev.TodosChanged(TodoList((TodoItem(text or "a", TodoStatus.PENDING),), number), run=run.id)])
        elif what == 13 and number == 0:
            self.record(decisions.finish(state, run, "completed"))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(MOVES, max_size=25))
def test_a_stored_log_folds_to_the_live_state_at_every_seq_also_from_any_snapshot(moves: list[Any]) -> None:
    writer, snapshots, bodies = Writer(), [], []
    written = 0
    for what, number, text, value in [(0, 1, "go", None), (5, 2, "", None), *moves]:
        try:
            writer.move(what, number, text, value)
        except RuleViolation:
            continue
        bodies += [encode_record(event) for event in writer.log[written:]]
        written = len(writer.log)
        snapshots.append(encode_state(writer.state))
        assert decode_state(snapshots[-1]) == writer.state
    log = [decode_record(body) for body in bodies]
    assert log == writer.log
    live = State()
    for event in writer.log:
        apply(live, event)
        assert fold(log[: event.seq]) == live
    for snapshot in snapshots:
        state = decode_state(snapshot)
        assert state is not None
        assert fold(log[state.seq :], state) == live


# ---- the log of release 0.1


def canonical(value: Any) -> Any:
    """Leave out what is empty: a field that a later version adds does not change what an old log says."""
    if isinstance(value, dict):
        return {key: kept for key, item in value.items() if (kept := canonical(item)) not in (None, "", 0, [], {})}
    return [canonical(item) for item in value] if isinstance(value, list) else value


def test_the_log_of_release_0_1_folds_to_the_same_hash() -> None:
    lines = (GOLDEN / "log-0.1.jsonl").read_bytes().splitlines()
    log = [decode_record(line) for line in lines]
    assert [encode_record(event) for event in log] == lines
    assert {type(event) for event in log} == {*ev.DurableEvent.__args__, ev.Unknown}
    state = json.dumps(canonical(msgspec.to_builtins(fold(log))), sort_keys=True)
    assert hashlib.sha256(state.encode()).hexdigest() == (GOLDEN / "log-0.1.sha256").read_text().strip()


def test_a_state_of_another_shape_has_another_number() -> None:
    kinds = (State, Run, CallRecord, QueuedRun, Ack, AskRecord, SettledAsk, Ask, Question, TodoList, TodoItem)
    shape = {kind.__name__: [field.name for field in msgspec.structs.fields(kind)] for kind in kinds}
    digest = hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16]
    assert (STATE_FORMAT, digest) == SHAPE, "a snapshot says what it said: raise STATE_FORMAT, then write both here"


SHAPE = (2, "fd832845153439c3")


# ---- records


def test_a_type_that_is_not_known_keeps_its_place_and_its_words() -> None:
    event = decode_record(LATER)
    assert event == ev.Unknown("of_a_later_version", LATER.decode(), seq=7, time=1.5, run="r2", path="sub", cause="k1")
    assert encode_record(event) == LATER


def test_a_type_that_is_not_known_changes_nothing_but_the_seq_and_is_remembered_as_a_command() -> None:
    state = fold([ev.SessionOpened("s", "log", seq=1)])
    apply(state, decode_record(LATER.replace(b'"seq":7', b'"seq":2')))
    expected = fold([ev.SessionOpened("s", "log", seq=1), ev.Custom("x", seq=2, time=1.5, run="r2", cause="k1")])
    assert state == expected
    assert state.commands == {"k1": Ack(2, "r2", time=1.5)}


def test_no_reader_of_the_wire_knows_a_record_of_a_later_version() -> None:
    assert ev.decode_event(msgspec.json.encode(decode_record(LATER))) is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "a record is no event: Input data was truncated"),
        (b"[]", "a record is no event: Expected `object`, got `array`"),
        (b'{"seq":3}', "a record is no event: Object missing required field `type`"),
        (b'{"type":"custom","seq":3}', "record 3 is no custom: Object missing required field `name`"),
        (b'{"type":"text_delta","seq":3}', "record 3 is no text_delta: Invalid value 'text_delta' - at `$.type`"),
        (b'{"type":"later","a":' + b"[" * 200_000, "a record is no event: "),
        (b'{"type":"session_opened","session_id":"s","log_id":"l","format":2}',
         "the log of session 's' has format 2; known up to 1"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused_by_its_place(body: bytes, text: str) -> None:
    with pytest.raises(LocalProtocolError) as refused:
        decode_record(body)
    assert str(refused.value).startswith(text)


def test_bytes_that_are_no_text_are_no_record() -> None:
    with pytest.raises(LocalProtocolError, match=r"^a record is no event: "):
        decode_record(b'{"type":"later","a":"\xff"}')


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (ev.TextStreamed("r2.1", 0, "x"), "an event of type TextStreamed is never stored"),
        (ev.StateChanged("k", object(), seq=3), "record 3 cannot be written: "),
        (ev.StateChanged("k", {1.5: 2, (1,): 3}, seq=3), "record 3 cannot be written: "),
        (ev.Custom("\ud800", seq=3), "record 3 cannot be written: "),
    ],
)
def test_what_cannot_be_stored_is_refused(event: ev.Event, text: str) -> None:
    with pytest.raises(LocalProtocolError) as refused:
        encode_record(event)
    assert str(refused.value).startswith(text)


def test_a_record_of_an_older_shape_is_made_one_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "name": fields["title"]}

    monkeypatch.setitem(stored.UPCASTERS, "custom", renamed)
    assert decode_record(b'{"type":"custom","title":"x","seq":3}') == ev.Custom("x", seq=3)
    assert decode_record(b'{"type":"custom","name":"y","seq":3}') == ev.Custom("y", seq=3)


def test_an_older_record_that_cannot_be_made_one_of_today_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unchanged: Callable[[dict[str, Any]], dict[str, Any]] = dict
    monkeypatch.setitem(stored.UPCASTERS, "custom", unchanged)
    with pytest.raises(LocalProtocolError, match=r"^a record is no event: "):
        decode_record(b'{"type":"custom","title":"x","seq":3}')


# ---- states


@pytest.mark.parametrize("body", [b"", b"{}", b'{"format":2,"state":7}', b'{"format":3,"state":{}}'])
def test_a_state_of_another_shape_is_left_aside(body: bytes) -> None:
    assert decode_state(body) is None


def test_a_stored_state_shares_nothing_with_the_live_one() -> None:
    state = State(state={"k": [1]}, asks={"c1": AskRecord(Ask("a1", "c1", QUESTION), "r2", AskOutcome.DECLINED)})
    body = encode_state(state)
    assert state.state is not None
    state.state["k"].append(2)
    restored = decode_state(body)
    assert restored is not None
    assert restored.state == {"k": [1]}


def test_the_time_of_a_record_is_read_without_the_rest() -> None:
    body = encode_record(ev.Custom("x", {"text": "y" * 200}, seq=3, time=12.5))
    assert record_time(body) == 12.5
    texts: Texts = {}
    assert record_time(take_out(body, larger_than=100, texts=texts)) == 12.5 and texts
    assert record_time(b'{"type":"custom"}') == 0.0
    assert record_time(b"[1]") is None and record_time(b"no") is None
