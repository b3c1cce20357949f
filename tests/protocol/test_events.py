"""Every event on the wire and in the log: names, envelope, reading what another version wrote."""

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from protocol import events as ev
from protocol.asks import Ask, AskOutcome, Given, Option, Question
from protocol.chat import AssistantMessage, CallOutcome, ImagePart, SystemMessage, ToolCall, ToolMessage, UserMessage
from protocol.todos import TodoItem, TodoList, TodoStatus

USER = UserMessage("hi", (ImagePart("data:image/png;base64,AA=="),))
CALL = ToolCall("c4", "ask_user", {"question": "?", "options": ["a", None, 1.5, [{}]]})
RESULT = ToolMessage("c4", "ask_user", '{"answer":"a"}')
FAILED = ToolMessage("c4", "ask_user", "no", CallOutcome.FAILED)
TODOS = TodoList((TodoItem("a", TodoStatus.IN_PROGRESS, "doing a"), TodoItem("b", TodoStatus.PENDING)), 3)
ASK = Ask("a5", "c4", (Question("q1", "?", options=(Option("a"),), multiple=True),), "sub", 99.5)

DURABLE: dict[str, ev.Event] = {
    "session_opened": ev.SessionOpened("s-42", "log"),
    "message_added": ev.MessageAdded(SystemMessage("be brief"), 0),
    "history_replaced": ev.HistoryReplaced((SystemMessage("a"), USER, AssistantMessage("b"), RESULT), "compacted"),
    "state_changed": ev.StateChanged("k", {"a": [1, None]}),
    "state_damaged": ev.StateDamaged("k", "unreadable", [1]),
    "board_changed": ev.BoardChanged("main", 3, {"added": 1}),
    "custom": ev.Custom("progress", {"percent": 12.5}),
    "run_queued": ev.RunQueued(USER, 3),
    "run_resumed": ev.RunResumed(),
    "run_started": ev.RunStarted(USER, 3, "r1"),
    "cancel_requested": ev.CancelRequested("enough"),
    "run_completed": ev.RunCompleted("r2.1", 1, TODOS),
    "run_failed": ev.RunFailed("model.failed", "down", 1, TODOS),
    "run_cancelled": ev.RunCancelled("enough", 1, TODOS, ("slow",), "disk full"),
    "model_completed": ev.ModelCompleted("r2.1", 1, AssistantMessage("", (CALL,), "hm", "tool_calls")),
    "tool_started": ev.ToolStarted("c4", "ask_user"),
    "tool_completed": ev.ToolCompleted(RESULT),
    "tool_failed": ev.ToolFailed(FAILED, "tool.failed"),
    "tool_skipped": ev.ToolSkipped(ToolMessage("c4", "ask_user", "", CallOutcome.SKIPPED)),
    "ask_opened": ev.AskOpened(ASK),
    "ask_settled": ev.AskSettled(
        "a5", "c4", AskOutcome.ANSWERED, {"answer": ["a"]}, {"q1": Given(("a",))}, "note", "AskUserExtension"
    ),
    "todos_changed": ev.TodosChanged(TODOS, "c4"),
    "steering_queued": ev.SteeringQueued(USER),
    "steering_started": ev.SteeringStarted(USER),
    "steering_completed": ev.SteeringCompleted(),
    "steering_interrupted": ev.SteeringInterrupted(USER),
    "compaction_started": ev.CompactionStarted(automatic=True),
    "compaction_completed": ev.CompactionCompleted(applied=True, error="x"),
}
EPHEMERAL: dict[str, ev.Event] = {
    "model_started": ev.ModelStarted("r2.1", 1),
    "content_started": ev.ContentStarted("r2.1"),
    "content_completed": ev.ContentCompleted("r2.1"),
    "reasoning_started": ev.ReasoningStarted("r2.1"),
    "reasoning_completed": ev.ReasoningCompleted("r2.1"),
    "text_delta": ev.TextStreamed("r2.1", 5, "more"),
    "reasoning_delta": ev.ReasoningStreamed("r2.1", 0, "hm"),
    "tool_call_delta": ev.ToolCallStreamed("r2.1", 0, "f", "{"),
    "tool_progress": ev.ToolProgress("c4", {"percent": 5}),
    "compaction_text_delta": ev.CompactionTextStreamed("a"),
    "compaction_reasoning_delta": ev.CompactionReasoningStreamed("b"),
    "draft": ev.Draft("a5", {"answer": "Postg"}),
}
ALL = DURABLE | EPHEMERAL


def stamped(event: ev.Event) -> ev.Event:
    return msgspec.structs.replace(event, seq=12, time=1_700_000_000.25, run="r2", path="sub", cause="k1")


@pytest.mark.parametrize("name", ALL)
def test_an_event_reads_back_as_it_was(name: str) -> None:
    event = stamped(ALL[name])
    assert ev.decode_event(msgspec.json.encode(event)) == event


@pytest.mark.parametrize("name", ALL)
def test_an_event_names_its_type_first(name: str) -> None:
    assert msgspec.json.encode(ALL[name]).startswith(b'{"type":"%s"' % name.encode())


@pytest.mark.parametrize("name", ALL)
def test_a_field_that_a_newer_version_added_is_ignored(name: str) -> None:
    fields = {**json.loads(msgspec.json.encode(stamped(ALL[name]))), "of a newer version": {"a": [1]}}
    assert ev.decode_event(json.dumps(fields)) == stamped(ALL[name])


@pytest.mark.parametrize("name", ALL)
def test_the_envelope_and_fields_with_defaults_may_be_missing(name: str) -> None:
    kind = type(ALL[name])
    needed = {
        field.encode_name: json.loads(msgspec.json.encode(getattr(ALL[name], field.name)))
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    event = ev.decode_event(json.dumps({"type": name, **needed}))
    assert type(event) is kind
    assert (event.seq, event.time, event.run, event.path, event.cause) == (0, 0.0, "", "", "")


def test_what_is_listed_here_is_all_there_is() -> None:
    assert set(ALL) == ev.KNOWN_TYPES
    assert {type(event) for event in DURABLE.values()} == set(ev.DurableEvent.__args__)
    assert {type(event) for event in EPHEMERAL.values()} == set(ev.EphemeralEvent.__args__)


def test_an_event_says_whether_it_is_stored() -> None:
    assert all(event.durable for event in DURABLE.values())
    assert not any(event.durable for event in EPHEMERAL.values())


def test_an_ephemeral_event_says_after_which_record_it_comes() -> None:
    event = msgspec.structs.replace(EPHEMERAL["text_delta"], base=7)
    assert b'"base":7' in msgspec.json.encode(event)
    assert ev.decode_event(msgspec.json.encode(event)) == event


def test_the_ends_of_a_run_are_three() -> None:
    assert (ev.RunCompleted, ev.RunFailed, ev.RunCancelled) == ev.RUN_ENDS


@pytest.mark.parametrize("data", [b'{"type":"of a newer version","seq":3}', '{"seq":3,"type":"x","payload":[1]}'])
def test_a_type_that_is_not_known_is_skipped(data: bytes | str) -> None:
    assert ev.decode_event(data) is None
    raw = msgspec.Raw(data if isinstance(data, bytes) else data.encode())
    assert ev.decode_event(raw) is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"type":"custom"}', "Object missing required field `name`"),
        (b'{"type":"custom","name":7}', r"Expected `str`, got `int` - at `\$.name`"),
        (b'{"type":"ask_settled","ask":"a","tool_call_id":"c","outcome":"maybe"}', "Invalid enum value 'maybe'"),
        (b"[]", "Expected `object`, got `array`"),
        (b"7", "Expected `object`, got `int`"),
        (b'{"seq":1}', "Object missing required field `type`"),
        (b'{"type":7}', "Expected `str`, got `int`"),
        (b"", "Input data was truncated"),
        (b'{"type":"custom"', "Input data was truncated"),
        (b"\xff", "JSON is malformed"),
        (b'{"type":"custom","name":"x","payload":{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}}", "nested too deeply"),
        (b'{"type":"unknown","a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
    ],
)
def test_what_is_no_event_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(msgspec.MsgspecError, match=text):
        ev.decode_event(data)


def test_a_log_says_how_it_is_written() -> None:
    assert ev.LOG_FORMAT == 1
    assert ev.SessionOpened("s", "l").format == 1
    newer = ev.decode_event(b'{"type":"session_opened","session_id":"s","log_id":"l","format":2}')
    assert isinstance(newer, ev.SessionOpened)
    assert newer.format == 2


def test_events_do_not_share_what_they_carry() -> None:
    assert ev.Custom("a").payload is not ev.Custom("a").payload


PURITY = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"trio", "logging", "random", "secrets", "socket", "actors", "asyncio", "ssl"}:
            raise ImportError(f"{name} is imported by a pure module")
sys.meta_path.insert(0, Blocked())
import pkgutil, protocol
for module in pkgutil.iter_modules(protocol.__path__):
    __import__(f"protocol.{module.name}")
    print(module.name)
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_no_rule_knows_the_outside_world() -> None:
    done = subprocess.run([sys.executable, "-S", "-c", _with_path(PURITY)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    *modules, loaded = done.stdout.splitlines()
    assert {"asks", "decisions", "events", "history", "ids", "todos", "commands", "link"} <= set(modules)
    assert not {"trio", "logging", "random", "socket", "actors"} & set(loaded.split())


def _with_path(code: str) -> str:
    # Without site no start-up hook of the environment imports anything behind our back.
    paths: list[Any] = [path for path in sys.path if path]
    return f"import sys; sys.path[:] = {paths!r}\n{code}"
