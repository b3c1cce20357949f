"""The checklist model: from a Markdown list to questions, calls, a list that advances and a summary.

The conversation is played by the real rules for todo lists and questions, with a new model at each turn: it has to go
on from the messages alone.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.models.checklist import ChecklistModel
from actors.models.checklist_report import HOW_TO
from actors.models.checklist_steps import MAX_MARKDOWN_CHARS
from protocol.asks import Option, check_question
from protocol.assembly import Assembler
from protocol.chat import (
    AssistantMessage,
    CallOutcome,
    Message,
    ModelRequest,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from protocol.errors import RuleViolation, error_payload
from protocol.limits import Limits
from protocol.todos import TodoItem, TodoList, TodoStatus, write_sequential

BOTH = ("todo_write", "ask_user")


class World:
    """Runs the model's calls as an agent would and keeps the conversation."""

    def __init__(
        self,
        *prompts: str,
        tools: tuple[str, ...] = BOTH,
        answers: Mapping[str, Any] | None = None,
        results: Mapping[str, Any] | None = None,
        one_advance: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self.messages: list[Message] = [SystemMessage("be brief")]
        self.tools = tools
        self.answers = answers or {}
        self.results = results or {}
        self.one_advance = one_advance
        self.limits = limits or Limits()
        self.used: set[str] = set()
        self.turns: list[AssistantMessage] = []
        self.asked: list[dict[str, Any]] = []
        self.override: Callable[[ToolCall], ToolMessage | None] = lambda call: None
        for prompt in prompts:
            self.todos: TodoList | None = None
            self.messages.append(UserMessage(prompt))

    async def run(self) -> str:
        for _ in range(self.limits.max_turns):
            message = await self.turn()
            if not message.tool_calls:
                return message.content
        raise AssertionError("the run used up its turns")

    async def turn(self) -> AssistantMessage:
        definitions = tuple(ToolDefinition(name, "", {}) for name in self.tools)
        assembler = Assembler()
        async for event in ChecklistModel(limits=self.limits).stream(ModelRequest(
            messages=self.messages, tools=definitions
        )):  # fmt: skip
            assembler.feed(event)
        message = assembler.finish(seq=len(self.messages), used_ids=self.used)
        assert all(not call.invalid for call in message.tool_calls)
        self.turns.append(message)
        self.messages.append(message)
        advanced = False
        for call in message.tool_calls:
            self.used.add(call.id)
            before = self.todos
            self.messages.append(self.override(call) or self.perform(call, advanced))
            advanced = advanced or (before is not None and self.todos is not before)
        return message

    def perform(self, call: ToolCall, advanced: bool) -> ToolMessage:
        if call.name == "todo_write":
            items = [TodoItem(one["content"], TodoStatus(one["status"])) for one in call.arguments["todos"]]
            assert all(set(one) == {"content", "status"} for one in call.arguments["todos"])
            try:
                self.todos = write_sequential(
                    self.todos, items, one_advance=self.one_advance, advanced_this_turn=advanced
                )
            except RuleViolation as refused:
                return failed(call, refused.message)
            return ToolMessage(call.id, call.name, "{}")
        if call.name == "ask_user":
            arguments = call.arguments
            self.asked.append(arguments)
            options = [Option(label) for label in arguments.get("options", [])]
            assert check_question(arguments["question"], options, multiple=arguments.get("allow_multiple", False)) == ()
            answer = self.answers.get(arguments["question"])
            if answer is None:
                return failed(call, "the user declined to answer")
            return ToolMessage(call.id, call.name, json.dumps({"tool_call_id": call.id, "answer": answer}))
        result = self.results.get(call.name, "done")
        return failed(call, str(result)) if isinstance(result, Exception) else ToolMessage(call.id, call.name, result)

    def shapes(self) -> list[list[str]]:
        """The calls of each turn: `2/3` writes a list of which two of three are completed."""
        return [[_shape(call) for call in message.tool_calls] for message in self.turns]


def _shape(call: ToolCall) -> str:
    if call.name != "todo_write":
        return call.name
    statuses = [one["status"] for one in call.arguments["todos"]]
    return f"{statuses.count('completed')}/{len(statuses)}"


def failed(call: ToolCall, message: str, outcome: CallOutcome = CallOutcome.FAILED) -> ToolMessage:
    return ToolMessage(call.id, call.name, json.dumps(error_payload("x", message)), outcome)


async def test_plain_steps_advance_one_a_turn() -> None:
    world = World("- a\n- b")
    assert await world.run() == "## Summary\n\n2 steps done.\n\n1. a\n2. b\n"
    assert world.shapes() == [["0/2"], ["1/2"], ["2/2"], []]
    assert [message.content for message in world.turns[:2]] == ["2 steps. First: a\n", "Done: a\n"]


async def test_consecutive_questions_and_tools_run_together_and_the_list_follows() -> None:
    world = World(
        '- a\n- Which?\n  - x\n  - y\n- And?\n  - [ ] p\n  - [ ] q\n- `build {"n": 1}`\n- `check`\n- b',
        tools=(*BOTH, "build", "check"),
        answers={"Which?": "x", "And?": ["p", "q"]},
        results={"build": "built *it*", "check": RuntimeError("RuntimeError: red")},
    )
    text = await world.run()
    assert world.shapes() == [
        ["0/6"], ["1/6", "ask_user", "ask_user"], ["2/6", "3/6", "build", "check"], ["4/6", "5/6"], ["6/6"], [],
    ]  # fmt: skip
    assert world.asked == [
        {"question": "Which?", "options": ["x", "y"]},
        {"question": "And?", "options": ["p", "q"], "allow_multiple": True},
    ]
    assert world.turns[1].content == "Done: a\n\nI have 2 questions.\n"
    assert world.turns[2].content == "- Done: Which?\n- Done: And?\n\nCalling `build`, `check`.\n"
    assert world.turns[3].content == '- Done: build {"n": 1}\n- Failed: check\n'
    assert text == (
        "## Summary\n\n5 of 6 steps done, 1 failed.\n\n1. a\n2. Which? — **x**\n3. And? — **p, q**\n"
        '4. build {"n": 1} — built \\*it\\*\n5. check — failed: RuntimeError: red\n6. b\n'
    )


async def test_a_declined_question_is_not_answered_and_the_run_goes_on() -> None:
    world = World("- Which?\n- b")
    assert await world.run() == (
        "## Summary\n\n1 of 2 steps done, 1 question not answered.\n\n"
        "1. Which? — not answered: the user declined to answer\n2. b\n"
    )
    assert world.shapes() == [["0/2"], ["ask_user"], ["1/2"], ["2/2"], []]
    assert world.turns[2].content == "Not answered: Which?\n"


async def test_the_headline_names_every_way_in_which_a_step_was_not_done() -> None:
    prompt = "- [x] old\n- a\n- b?\n- c?\n- d?\n- `build`\n- `check`\n- `gone`\n- `build {`\n"
    world = World(prompt, tools=(*BOTH, "build", "check"), answers={"b?": "y"}, results={"check": RuntimeError("red")})
    text = await world.run()
    assert text.splitlines()[2] == (
        "3 of 8 steps done, 1 failed, 2 not called, 2 questions not answered. 1 step had been done before."
    )
    assert world.todos is not None
    assert {item.status for item in world.todos.items} == {TodoStatus.COMPLETED}, "the list only says what is over"
    said = "".join(message.content for message in world.turns[:-1])
    assert [line.removeprefix("- ") for line in said.splitlines() if ": " in line] == [
        "8 steps. First: a", "Done: a", "Done: b?", "Not answered: c?", "Not answered: d?", "Done: build",
        "Failed: check", "Not called: gone", "Not called: build {",
    ]  # fmt: skip


async def test_lines_that_follow_each_other_stay_apart_in_markdown() -> None:
    world = World("- a?\n- b?\n- `build`", tools=(*BOTH, "build"), answers={"a?": "1", "b?": "2"})
    await world.run()
    for message in world.turns:
        paragraphs = message.content.rstrip("\n").split("\n\n")
        for paragraph in paragraphs:
            lines = paragraph.splitlines()
            assert len(lines) == 1 or all(re.match(r"- |\d+\. ", line) for line in lines), message.content


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ('{"answer": "two\\nlines_ of <b>"}', "two lines\\_ of \\<b\\>"),
        ('{"answer": []}', "none"),
        ('{"answer": {"a": 1}}', '{"a": 1}'),
        ('{"other": 1}', '{"other": 1}'),
        ("not JSON", "not JSON"),
        ("[" * 100_000, "\\[" * 999 + "…"),
        (json.dumps({"answer": "x" * 2_000}), "x" * 999 + "…"),
    ],
)
async def test_any_answer_can_be_shown(payload: str, shown: str) -> None:
    world = World("- Which?")
    world.override = lambda call: ToolMessage(call.id, call.name, payload) if call.name == "ask_user" else None
    assert await world.run() == f"## Summary\n\n1 step done.\n\n1. Which? — **{shown}**\n"


async def test_without_the_tools_it_goes_on_and_says_so() -> None:
    world = World("- a\n- Which?\n- `build`\n- `gone`", tools=("build",), results={"build": "ok"})
    assert await world.run() == (
        "## Summary\n\n2 of 4 steps done, 1 not called, 1 question not asked.\n\n1. a\n"
        "2. Which? — not asked: there is no `ask_user` tool\n3. build — ok\n"
        "4. gone — not called: there is no tool `gone`\n\nNotes:\n\n"
        "- There is no `todo_write` tool, so no todo list was kept.\n"
    )
    assert world.shapes() == [["build"], []]


async def test_what_was_left_out_is_in_the_notes() -> None:
    world = World("- [x] old\n- Which?\n  - a\n  - a\n- `build {`", answers={"Which?": "a"})
    assert await world.run() == (
        "## Summary\n\n1 of 2 steps done, 1 not called. 1 step had been done before.\n\n1. Which? — **a**\n"
        "2. build { — not called: see the notes\n\nNotes:\n\n"
        "- Step 1: 1 option left out: there twice.\n- Step 2: `build` was not called: the arguments are not JSON: "
        "Expecting property name enclosed in double quotes at character 1.\n"
    )


async def test_a_message_without_a_list_is_told_how_to_write_one() -> None:
    for prompt in ("hello", "", "- \n-"):
        world = World(prompt)
        assert await world.run() == HOW_TO
        assert world.shapes() == [[]]


async def test_the_example_it_gives_is_one_it_can_read() -> None:
    world = World(HOW_TO.split("```")[1].removeprefix("markdown\n"), tools=(*BOTH, "search"))
    await world.run()
    assert world.shapes()[1:3] == [["1/4", "ask_user", "ask_user"], ["2/4", "3/4", "search"]]


async def test_without_a_user_message_it_also_says_how() -> None:
    assert await World().run() == HOW_TO


async def test_a_list_that_is_done_is_left_alone() -> None:
    assert await World("- [x] a").run() == "Nothing is left to do: 1 step of the list is done already.\n"


async def test_lists_that_are_too_long_are_refused_without_doing_anything() -> None:
    world = World("- a\n" * 101)
    text = "This list has 101 steps, and I can keep 100. I did nothing of it; please make it shorter.\n"
    assert await world.run() == text
    world = World("x" * (MAX_MARKDOWN_CHARS + 1))
    assert (await world.run()).startswith("This message has 20001 characters; a checklist has at most 20000.")
    world = World("- a?\n- b\n" * 34)
    assert (await world.run()).startswith("This list takes 37 turns, and a run may have 36. I did nothing of it;")
    assert world.shapes() == [[]]


@pytest.mark.parametrize(
    "prompt",
    ["- a\n" * 100, "- a?\n" * 100, "- a?\n- b\n" * 33, "- a\n" * 60 + "- b?\n- c\n" * 12, "- c\n- b?\n- a\n" * 33],
)
async def test_the_longest_lists_fit_into_a_runs_turns(prompt: str) -> None:
    world = World(prompt)
    assert re.search(r" steps done(, \d+ questions not answered)?\.\n", await world.run())
    assert world.todos is not None
    assert all(item.status is TodoStatus.COMPLETED for item in world.todos.items)


async def test_the_writes_of_one_turn_stay_small() -> None:
    world = World(f"- {'x' * 600}?\n" * 30)
    await world.run()
    sizes = [sum(len(json.dumps(call.arguments)) for call in message.tool_calls) for message in world.turns]
    assert max(sizes) < 200_000
    assert len(world.asked) == 30


async def test_steps_of_the_same_text_are_told_apart() -> None:
    world = World("- a?\n- a?\n- a", answers={"a?": "y"})
    assert await world.run() == "## Summary\n\n3 steps done.\n\n1. a? — **y**\n2. a? (2) — **y**\n3. a\n"


async def test_a_second_list_in_the_same_session_starts_anew() -> None:
    world = World("- a?\n- b", answers={"a?": "y", "c?": "z"})
    await world.run()
    world.todos = None
    world.messages.append(UserMessage("- c?\n- d"))
    assert await world.run() == "## Summary\n\n2 steps done.\n\n1. c? — **z**\n2. d\n"
    assert len(world.used) == sum(len(message.tool_calls) for message in world.turns)


async def test_a_list_that_takes_one_advance_a_turn_is_kept_that_way() -> None:
    world = World("- a?\n- b?\n- c?\n- d", answers={"a?": "1", "b?": "2", "c?": "3"}, one_advance=True)
    text = await world.run()
    assert "given up" not in text
    assert world.todos is not None
    assert world.todos.items[-1].status is TodoStatus.COMPLETED
    assert world.shapes()[2:4] == [["1/4", "2/4", "3/4"], ["2/4"]]


async def test_a_list_that_is_refused_is_given_up_and_named() -> None:
    world = World("- a\n- b?\n- c", answers={"b?": "y"})
    world.override = lambda call: failed(call, "no *room*") if call.name == "todo_write" else None
    assert await world.run() == (
        "## Summary\n\n3 steps done.\n\n1. a\n2. b? — **y**\n3. c\n\nNotes:\n\n"
        "- The todo list was given up: no \\*room\\*\n"
    )
    assert world.shapes() == [["0/3"], ["ask_user"], []]


async def test_an_interrupted_write_is_made_again_and_an_interrupted_call_is_not() -> None:
    world = World("- `build`\n- b", tools=(*BOTH, "build"))
    seen: list[str] = []

    def interrupt(call: ToolCall) -> ToolMessage | None:
        seen.append(_shape(call))
        if seen.count(_shape(call)) > 1 or _shape(call) == "2/2":
            return None
        return failed(call, "the run was interrupted", CallOutcome.INTERRUPTED)

    world.override = interrupt
    assert "1. build — failed: the run was interrupted\n2. b\n" in await world.run()
    assert seen == ["0/2", "0/2", "build", "1/2", "1/2", "2/2"]


async def test_calls_that_are_not_its_own_are_no_progress() -> None:
    world = World("- a?\n- b", answers={"a?": "y"})
    foreign = AssistantMessage("", (ToolCall("step-x", "other"), ToolCall("7", "todo_write")))
    world.messages += [foreign, ToolMessage("step-x", "other", "1"), ToolMessage("7", "todo_write", "{}")]
    assert await world.run() == "## Summary\n\n2 steps done.\n\n1. a? — **y**\n2. b\n"


async def test_a_result_that_is_missing_or_says_nothing_does_not_stop_it() -> None:
    world = World("- a?\n- `build`", tools=("build", "ask_user"))
    world.messages.append(AssistantMessage("", (ToolCall("step-1", "ask_user"), ToolCall("step-2", "build"))))
    assert "1. a? — not answered\n2. build — failed: no result\n" in await world.run()
    world.messages[-1:] = [
        ToolMessage("step-1", "ask_user", "[]", CallOutcome.DENIED),
        ToolMessage("step-2", "build", '{"error": "no"}', CallOutcome.FAILED),
    ]
    assert "1. a? — not answered: denied\n2. build — failed: no\n" in await world.run()


async def test_text_is_streamed_line_by_line() -> None:
    request = ModelRequest(messages=[UserMessage("hello")])
    pieces = [event.text async for event in ChecklistModel().stream(request) if isinstance(event, TextDelta)]
    assert "".join(pieces) == HOW_TO
    assert len(pieces) == len(HOW_TO.splitlines())


async def test_the_release_example_can_be_worked_through_with_its_answers() -> None:
    examples = Path(__file__).parents[3] / "docs" / "examples"
    answers = json.loads((examples / "release-answers.json").read_text())
    world = World((examples / "release.md").read_text(), answers=answers)
    text = await world.run()
    assert {asked["question"] for asked in world.asked} == set(answers)
    assert "not answered" not in text
    assert "6 steps done, and 1 step had been before." in text
    for asked in world.asked:
        given = answers[asked["question"]]
        assert set(given if isinstance(given, list) else [given]) <= set(asked["options"])
