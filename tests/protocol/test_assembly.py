"""From streamed pieces to one message."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.assembly import Assembler, parse_arguments
from protocol.chat import (
    AssistantMessage,
    ModelEvent,
    ReasoningDelta,
    Stop,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from protocol.errors import Code, RuleViolation
from protocol.limits import DEFAULT_LIMITS, Limits

D = ToolCallDelta


def assemble(
    events: Iterable[Any], *, stop: str | None = "tool_calls", used: Iterable[str] = (), limits: Limits = DEFAULT_LIMITS
) -> AssistantMessage:
    assembler = Assembler(limits)
    for event in events:
        assembler.feed(event)
    if stop is not None:
        assembler.feed(Stop(stop))
    return assembler.finish(seq=16, used_ids=set(used))


def refused(events: Iterable[Any], message: str, code: Code = Code.MODEL_INVALID, **options: Any) -> None:
    with pytest.raises(RuleViolation) as caught:
        assemble(events, **options)
    assert (caught.value.code, caught.value.message) == (code, message)


# ---- the message


def test_text_reasoning_and_usage_are_joined() -> None:
    events: list[ModelEvent] = [
        Usage(10, 1), TextDelta("Hel"), ReasoningDelta("th"), TextDelta(""), TextDelta("lo"), ReasoningDelta("ink"),
    ]  # fmt: skip
    message = assemble([*events, Stop("stop"), Usage(0, 7)], stop=None)
    assert message == AssistantMessage("Hello", (), "think", "stop", Usage(10, 7))


def test_text_so_far_can_be_read_in_between() -> None:
    assembler = Assembler()
    assert (assembler.text, assembler.reasoning) == ("", "")
    assembler.feed(TextDelta("a"))
    assembler.feed(TextDelta("b"))
    assembler.feed(ReasoningDelta("r"))
    assert (assembler.text, assembler.reasoning) == ("ab", "r")
    assembler.feed(TextDelta("c"))
    assert assembler.text == "abc"


@pytest.mark.parametrize(
    "pieces",
    [
        [D(0, "c1", "todo_write")],
        [D(0, "c1", "todo_write", '{"todos":')],
        [D(0, "c1", "todo_write", '{"todos":[]}')],
        [D(0, "c1", "a", "{}"), D(1, "c2", "b", '{"x"')],
        [TextDelta("half a sen")],
        [],
    ],
)
def test_a_stream_without_its_end_is_truncated_whatever_came_f06(pieces: list[ModelEvent]) -> None:
    refused(pieces, "the model's stream ended without its end mark", Code.MODEL_TRUNCATED, stop=None)


def test_an_announced_call_that_is_not_there_is_an_error_f10() -> None:
    refused([TextDelta("calling")], "the message ended with 'tool_calls' and has no tool call")


def test_the_end_comes_once_and_last() -> None:
    refused([Stop("stop"), Stop("length")], "the message ended twice, as 'stop' and as 'length'", stop=None)
    refused([Stop("stop"), TextDelta("x")], "text came after the message's end ('stop')", stop=None)
    refused(
        [Stop("stop"), D(0, "c1", "a", "{}")],
        "a piece of a tool call came after the message's end ('stop')",
        stop=None,
    )
    message = assemble([TextDelta("x"), Stop("stop"), TextDelta(""), D(0), Stop("stop")], stop=None)
    assert message.content == "x"


def test_a_stop_without_a_reason_is_a_stop() -> None:
    assert assemble([TextDelta("x")], stop="").stop == "stop"


def test_text_over_the_limit_and_half_characters_are_refused() -> None:
    limits = Limits(max_text_chars=5)
    pieces = [TextDelta("abc"), ReasoningDelta("def")]
    refused(pieces, "the message's text is over the limit of 5 characters", limits=limits)
    refused([TextDelta("a\ud800")], "the model's text holds half a character (a lone surrogate) at 1")


def test_what_is_no_model_event_is_refused_by_name() -> None:
    refused([{"type": "text"}], "a model streams the types of ModelEvent, not dict")
    refused([D("0", "c1", "a", "{}")], "the index of a tool call is an integer, not str")
    refused([D(0, 7, "a", "{}")], "the id of a message's piece is text, not int")
    refused([D(0, "c1", "a", {"x": 1})], "the arguments of a tool call are streamed as text, not dict")
    refused([D(0, "c1", "n\ud800")], "the name of a message's piece holds half a character (a lone surrogate) at 1")


# ---- which piece belongs to which call


def test_pieces_with_nulls_make_one_call_f10() -> None:
    message = assemble([D(0, "c1", "todo_write", None), D(0, None, "", '{"todos":'), D(0, arguments="[]}")])
    assert message.tool_calls == (ToolCall("c1", "todo_write", {"todos": []}),)


def test_the_first_id_and_name_win_over_null_and_empty_f11() -> None:
    message = assemble([D(0, "c1", "todo_write", ""), D(0, "null", "", "{}")])
    assert message.tool_calls == (ToolCall("c1", "todo_write", {}),)


def test_another_id_at_the_same_index_begins_another_call_f11() -> None:
    message = assemble([D(0, "c1", "a", "{}"), D(0, "c2", "b", '{"x":1}')])
    assert message.tool_calls == (ToolCall("c1", "a", {}), ToolCall("c2", "b", {"x": 1}))


def test_another_name_for_the_same_id_is_a_contradiction_f11() -> None:
    refused([D(0, "c1", "a", "{"), D(0, "c1", "b", "}")], "tool call 1 is named 'a' and then 'b'")


def test_an_id_may_come_after_the_name() -> None:
    message = assemble([D(0, None, "a", '{"x"'), D(0, "c1", None, ":1}")])
    assert message.tool_calls == (ToolCall("c1", "a", {"x": 1}),)


def test_cumulative_snapshots_give_each_call_once_f02() -> None:
    one, two, three = (D(i, f"c{i + 1}", "work", json.dumps({"n": i})) for i in range(3))
    message = assemble([one, one, two, one, two, three])
    assert [(call.id, call.arguments) for call in message.tool_calls] == [
        ("c1", {"n": 0}), ("c2", {"n": 1}), ("c3", {"n": 2}),
    ]  # fmt: skip


def test_snapshots_without_index_are_told_apart_by_id_f02() -> None:
    one, two = D(None, "c1", "work", '{"n":0}'), D(None, "c2", "work", '{"n":1}')
    assert [call.id for call in assemble([one, one, two]).tool_calls] == ["c1", "c2"]


def test_an_identical_call_at_another_index_is_folded_f02() -> None:
    message = assemble([D(0, "c1", "a", '{"x":1}'), D(1, "c1", "a", '{"x":1}')])
    assert message.tool_calls == (ToolCall("c1", "a", {"x": 1}),)


def test_pieces_without_id_and_index_are_joined_by_position_f13() -> None:
    message = assemble([D(name="todo_write"), D(arguments='{"todos"'), D(arguments=":[]}"), D()])
    assert message.tool_calls == (ToolCall("c16", "todo_write", {"todos": []}),)


def test_whole_calls_without_id_and_index_follow_each_other() -> None:
    message = assemble([D(name="a", arguments="{}"), D(name="a"), D(arguments='{"x":1}')])
    assert [(call.id, call.arguments) for call in message.tool_calls] == [("c16", {}), ("c16-2", {"x": 1})]


def test_ambiguous_interleaving_is_refused_f13() -> None:
    refused(
        [D(name="a"), D(name="b"), D(arguments="{}")],
        "a piece of a tool call fits two unfinished calls: it has neither an id nor an index of its own",
    )
    refused(
        [D(name="a", arguments='{"x"'), D(name="b", arguments="{}")],
        "a piece named 'b' came before 'a' was complete, and has no id of its own",
    )


def test_interleaved_pieces_go_by_index_f15() -> None:
    message = assemble([
        D(0, "c1", "a"), D(1, "c2", "b"), D(0, arguments='{"x":1'), D(1, arguments='{"y":2}'), D(0, arguments="}"),
    ])  # fmt: skip
    assert message.tool_calls == (ToolCall("c1", "a", {"x": 1}), ToolCall("c2", "b", {"y": 2}))


def test_calls_are_in_the_order_of_their_index() -> None:
    message = assemble([D(1, "c2", "b", "{}"), D(0, "c1", "a", "{}")])
    assert [call.id for call in message.tool_calls] == ["c1", "c2"]


def test_glued_calls_are_refused_as_a_whole_f14() -> None:
    glued = '{"todos":[]}{"question":"a}{b","options":[]}'
    refused(
        [D(0, "c1", "todo_writeask_user", glued)],
        "the calls of 'todo_writeask_user' and the next tool cannot be told apart "
        "(the arguments are not JSON: Extra data at character 12)",
    )
    same_name = [D(0, None, "a", "{}"), D(0, None, "a", "{}")]
    refused(
        same_name,
        "the calls of 'a' and the next tool cannot be told apart "
        "(the arguments are not JSON: Extra data at character 2)",
    )


def test_four_whole_calls_in_one_slot_are_split_by_name_f14() -> None:
    message = assemble([D(0, None, name, f'{{"n":"{name}"}}') for name in "abcd"])
    assert [(call.id, call.name, call.arguments["n"]) for call in message.tool_calls] == [
        ("c16", "a", "a"), ("c16-2", "b", "b"), ("c16-3", "c", "c"), ("c16-4", "d", "d"),
    ]  # fmt: skip


def test_calls_in_one_slot_are_not_split_where_a_part_is_incomplete_f14() -> None:
    refused(
        [D(0, None, "a", "{}"), D(0, None, "b", '{"x"')],
        "the calls of 'b' and the next tool cannot be told apart "
        "(the arguments are not JSON: Expecting ':' delimiter at character 4)",
    )
    refused(
        [D(0, None, "a", '{"x"'), D(0, None, "b", "{}")],
        "a piece named 'b' came before 'a' was complete, and has no id of its own",
    )


# ---- calls that cannot be used


def test_calls_that_are_nothing_are_left_out_and_the_rest_gets_ids_f09() -> None:
    assembler = Assembler()
    for piece in (D(0, ""), D(1, None, "", "{}"), D(2, None, "todo_write"), D(3), Stop("tool_calls")):
        assembler.feed(piece)
    message = assembler.finish(seq=16, used_ids=())
    assert message.tool_calls == (
        ToolCall("c16", "todo_write", invalid="the arguments are empty; a JSON object is expected"),
    )
    assert assembler.dropped == 3


def test_the_same_pieces_without_index_keep_their_calls_apart_f09() -> None:
    message = assemble([D(id=""), D(None, None, "", "{}"), D(name="todo_write"), D()])
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("todo_write", {})]
    assert message.tool_calls[0].invalid


def test_a_message_of_nameless_calls_only_ends_with_a_reason_f09() -> None:
    for stop in ("tool_calls", "stop"):
        refused([D(0, "c1"), D(1, None, "\u200b", "{}")], "none of the message's 2 tool calls has a name", stop=stop)
    refused([D(0, "c1", "", '{"todos":[]}')], "tool call 1 has arguments and no name")


def test_broken_arguments_are_kept_as_a_call_that_cannot_run_f03_f04() -> None:
    message = assemble([D(0, "c1", "todo_write", '{"todos":[{"content":"a'), D(1, "c2", "a", "{}")])
    first, second = message.tool_calls
    assert first.arguments == {}
    assert first.invalid == "the arguments are not JSON: Unterminated string starting at at character 21"
    assert (second.invalid, second.arguments) == ("", {})


def test_an_object_instead_of_a_list_is_an_object_of_one_call_c21() -> None:
    text = '{"todos":{"0":{"content":"a"}}}'
    message = assemble([D(0, "c1", "todo_write", ""), *(D(0, arguments=char) for char in text)])
    assert message.tool_calls[0].arguments == {"todos": {"0": {"content": "a"}}}


def test_a_message_cut_at_its_length_says_so_in_the_broken_call() -> None:
    message = assemble([D(0, "c1", "a", '{"x"')], stop="length")
    assert message.tool_calls[0].invalid == (
        "the message ended early (length): the arguments are not JSON: Expecting ':' delimiter at character 4"
    )


# ---- ids


def test_an_id_the_session_has_used_is_replaced_and_kept_beside() -> None:
    message = assemble([D(0, "c1", "a", "{}")], used=["c1"])
    assert message.tool_calls == (ToolCall("c16", "a", {}, provider_id="c1"),)


def test_two_calls_with_one_id_and_different_arguments_are_two_calls() -> None:
    message = assemble([D(0, "c1", "a", '{"x":1}'), D(1, "c1", "a", '{"x":2}')])
    assert message.tool_calls == (
        ToolCall("c1", "a", {"x": 1}),
        ToolCall("c16-2", "a", {"x": 2}, provider_id="c1"),
    )


def test_a_minted_id_is_neither_used_nor_the_providers() -> None:
    message = assemble([D(0, None, "a", "{}"), D(1, "c16", "b", "{}")], used=["c16-2"])
    assert [call.id for call in message.tool_calls] == ["c16-3", "c16"]


@pytest.mark.parametrize("odd", ["a\nb", "x" * 257])
def test_an_id_nobody_could_type_or_store_is_replaced(odd: str) -> None:
    assert assemble([D(0, odd, "a", "{}")]).tool_calls == (ToolCall("c16", "a", {}, provider_id=odd),)


# ---- limits


def test_limits_are_checked_while_the_pieces_come() -> None:
    assembler = Assembler(Limits(max_calls_per_turn=2, max_arguments_chars=4))
    assembler.feed(D(0, "c1", "a", "{}"))
    assembler.feed(D(1, "c2", "a", "{"))
    with pytest.raises(RuleViolation, match=r"^model\.invalid: the message has over 2 tool calls$"):
        assembler.feed(D(2, "c3", "a"))
    with pytest.raises(RuleViolation, match=r"^model\.invalid: a tool call's arguments are over the limit of 4 char"):
        assembler.feed(D(1, arguments="     }"))
    refused([D(0, "c1", "n" * 129)], "the name of a message's piece has 129 characters, over the limit of 128")


# ---- chunking


@st.composite
def _streams(draw: st.DrawFn) -> tuple[str, list[tuple[str | None, str, str]], str]:
    text = draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
    call = st.tuples(
        st.none() | st.sampled_from(["c1", "c2", "c16", "a\tb"]),
        st.sampled_from(["todo_write", "ask_user"]),
        st.sampled_from(["{}", '{"a":"é😀"}', '{"a":[1,{"b":null}]}', "[]", "", '{"a"', '{"a":1}}']),
    )
    return text, draw(st.lists(call, max_size=4)), draw(st.sampled_from(["stop", "length"]))


def _pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=5)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@settings(deadline=None)
@given(st.data(), _streams())
def test_however_the_pieces_are_cut_the_message_is_the_same(
    data: st.DataObject, stream: tuple[str, list[tuple[str | None, str, str]], str]
) -> None:
    text, calls, stop = stream
    whole: list[ModelEvent] = [TextDelta(text)]
    whole += [D(index, id_, name, arguments) for index, (id_, name, arguments) in enumerate(calls)]
    lanes: list[list[ModelEvent]] = [[TextDelta(piece) for piece in _pieces(data.draw, text)]]
    for index, (id_, name, arguments) in enumerate(calls):
        lanes.append([D(index, id_, name), *(D(index, arguments=piece) for piece in _pieces(data.draw, arguments))])
    mixed: list[ModelEvent] = []
    while any(lanes):
        lane = data.draw(st.sampled_from([lane for lane in lanes if lane]))
        mixed.append(lane.pop(0))
    used = {"c2"}
    assert assemble(mixed, stop=stop, used=used) == assemble(whole, stop=stop, used=used)


@settings(deadline=None)
@given(st.lists(st.builds(D, st.none() | st.integers(0, 2), st.none() | st.sampled_from(["c1", "c2", "null", ""]),
       st.none() | st.sampled_from(["a", "b", ""]), st.none() | st.sampled_from(["{", "}", "{}", '"x":1', "[]"])),
       max_size=8))  # fmt: skip
def test_any_pieces_give_a_message_with_unique_ids_or_a_refusal(pieces: list[ModelEvent]) -> None:
    try:
        message = assemble(pieces, stop="stop")
    except RuleViolation as error:
        refusal = error.code
    else:
        refusal = None
    if refusal is not None:
        assert refusal is Code.MODEL_INVALID
        return
    ids = [call.id for call in message.tool_calls]
    assert len(set(ids)) == len(ids)
    assert all(call.name and not (call.invalid and call.arguments) for call in message.tool_calls)


def test_parse_arguments_is_also_found_here() -> None:
    assert parse_arguments("{}") == ({}, "")
