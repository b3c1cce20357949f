"""Messages and what a model streams: shapes on the wire, and what they are told apart by."""

from dataclasses import FrozenInstanceError, replace

import msgspec
import pytest

from protocol.chat import (
    AssistantMessage,
    CallOutcome,
    ImagePart,
    Message,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Stop,
    SystemMessage,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolDefinition,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
    drop_orphans,
)

CALL = ToolCall("c1", "search", {"query": "trio", "n": [1, 2.5, None, True]}, provider_id="p", invalid="why")
MESSAGES: list[tuple[Message, str]] = [
    (SystemMessage("be brief"), '{"role":"system","content":"be brief"}'),
    (UserMessage("hi"), '{"role":"user","content":"hi"}'),
    (
        UserMessage("", (TextPart("a"), ImagePart("data:image/png;base64,AA=="))),
        '{"role":"user","content":"","parts":[{"type":"text","text":"a"},'
        '{"type":"image","url":"data:image/png;base64,AA=="}]}',
    ),
    (AssistantMessage(), '{"role":"assistant"}'),
    (
        AssistantMessage("x", (CALL,), "thought", "tool_calls", Usage(3, 4)),
        '{"role":"assistant","content":"x","tool_calls":[{"id":"c1","name":"search","arguments":{"query":"trio",'
        '"n":[1,2.5,null,true]},"provider_id":"p","invalid":"why"}],"reasoning":"thought","stop":"tool_calls",'
        '"usage":{"type":"usage","input_tokens":3,"output_tokens":4}}',
    ),
    (
        ToolMessage("c1", "search", "found"),
        '{"role":"tool","tool_call_id":"c1","name":"search","content":"found"}',
    ),
    (
        ToolMessage("c1", "search", "no", CallOutcome.DENIED),
        '{"role":"tool","tool_call_id":"c1","name":"search","content":"no","outcome":"denied"}',
    ),
]


@pytest.mark.parametrize(("message", "text"), MESSAGES)
def test_a_message_is_told_apart_by_its_role_and_reads_back_as_it_was(message: Message, text: str) -> None:
    assert msgspec.json.encode(message).decode() == text
    assert msgspec.json.decode(text, type=Message) == message


@pytest.mark.parametrize(
    "event",
    [TextDelta("a"), ReasoningDelta("b"), ToolCallDelta(0, "c1", "f", "{}"), ToolCallDelta(), Usage(1), Stop("length")],
)
def test_a_piece_of_a_stream_reads_back_as_it_was(event: ModelEvent) -> None:
    assert msgspec.json.decode(msgspec.json.encode(event), type=ModelEvent) == event


@pytest.mark.parametrize("outcome", list(CallOutcome))
def test_only_a_completed_call_is_a_success(outcome: CallOutcome) -> None:
    assert ToolMessage("c1", "f", "", outcome).success == (outcome == "completed")


def test_interrupted_and_not_run_are_two_kinds_a29() -> None:
    assert CallOutcome.INTERRUPTED != CallOutcome.SKIPPED
    assert CallOutcome.DENIED not in (CallOutcome.INTERRUPTED, CallOutcome.SKIPPED, CallOutcome.FAILED)


def test_a_history_that_is_cut_anywhere_has_no_result_without_its_call_f24() -> None:
    user = UserMessage("go")
    calls = AssistantMessage(tool_calls=(ToolCall("c1", "f"), ToolCall("c2", "f")))
    results = (ToolMessage("c1", "f", "1"), ToolMessage("c2", "f", "2"))
    whole = (user, calls, *results, AssistantMessage("done"))
    assert drop_orphans(whole) == whole == drop_orphans(list(whole))
    assert [drop_orphans(whole[start:]) for start in range(6)] == [
        whole, whole[1:], whole[4:], whole[4:], whole[4:], (),
    ]  # fmt: skip
    assert drop_orphans((calls, user, *results)) == (calls, user), "a result is right behind its call's message"
    assert drop_orphans((calls, results[0], results[0])) == (calls, results[0]), "a call has one result"


def test_calls_do_not_share_their_arguments() -> None:
    assert ToolCall("a", "f").arguments is not ToolCall("b", "f").arguments


def test_a_result_may_still_be_changed_before_it_is_stored() -> None:
    result = ToolResult("text")
    assert (result.success, result.data) == (True, None)
    result.content, result.success = "other", False
    assert result == ToolResult("other", success=False)


def test_a_request_is_frozen_and_can_be_replaced() -> None:
    request = ModelRequest(messages=[UserMessage("hi")], tools=(ToolDefinition("f", "does", {"type": "object"}),))
    assert (request.turn, request.session_id) == (1, "")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'turn'"):
        request.turn = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert replace(request, turn=2).turn == 2
    assert replace(request, turn=2).tools is request.tools
