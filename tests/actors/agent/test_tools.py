"""Tools: arguments checked, functions run, results rendered, failures named."""

import dataclasses
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pytest
import trio
from pydantic import BaseModel, ConfigDict

from actors.agent.ports import WorkerThreads
from actors.agent.tools import MAX_FAILURE_CHARS, Tool, failure, tool
from protocol.chat import ToolCall, ToolResult
from protocol.errors import Code, Detail, LocalProtocolError, ModelError, RuleViolation, ToolError

if TYPE_CHECKING:
    from actors.agent.context import AgentRunContext

T = TypeVar("T")


class NoThreads:
    """Runs what should run in a thread here, and counts."""

    def __init__(self) -> None:
        self.calls = 0

    async def run_sync(self, call: Callable[[], T]) -> T:
        self.calls += 1
        return call()


def a_call(name: str = "work", **arguments: Any) -> ToolCall:
    return ToolCall("c1", name, arguments)


async def run(made: Tool, context: Any = None, **arguments: Any) -> ToolResult:
    return await made.invoke(context, a_call(made.name, **arguments), NoThreads())


@tool
async def search(query: str, limit: int = 5) -> str:
    """Find things.

    Args:
        query: What to look for.
    """
    return f"{query}:{limit}"


async def test_a_typed_function_becomes_a_tool() -> None:
    assert (search.name, search.description, search.inline) == ("search", "Find things.", False)
    assert search.definition.parameters == {
        "additionalProperties": False,
        "properties": {
            "query": {"description": "What to look for.", "type": "string"},
            "limit": {"default": 5, "type": "integer"},
        },
        "required": ["query"],
        "type": "object",
    }
    assert await run(search, query="trio") == ToolResult("trio:5", data="trio:5")
    assert repr(search) == "<Tool 'search'>"


async def test_the_function_itself_can_still_be_called() -> None:
    assert search.function is not None
    assert await search.function("a", limit=1) == "a:1"


def test_the_definition_is_built_once() -> None:
    assert search.definition is search.definition
    assert search.definition.parameters is search.definition.parameters


def test_name_and_description_can_be_given() -> None:
    made = tool(name="find", description="Look.")(search.function)  # type: ignore[arg-type]
    assert (made.name, made.description) == ("find", "Look.")
    with pytest.raises(ValueError, match=r"^a tool's name is 1-64 letters, digits, '_' or '-', not '<lambda>'; pass"):
        tool(lambda: None)


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a.b", "a\n"])
def test_a_name_no_provider_takes_is_refused(name: str) -> None:
    async def work() -> None: ...

    with pytest.raises(ValueError, match=r"^a tool's name is 1-64 letters, digits"):
        tool(work, name=name)
    with pytest.raises(ValueError, match=r"^a tool's name is 1-64 letters, digits"):
        Tool.from_model(name, "", BaseModel, lambda context, call, arguments: ToolResult(""))


async def test_the_context_is_handed_over_and_is_not_the_models_to_give() -> None:
    @tool
    async def work(context: "AgentRunContext", a: int) -> str:
        return f"{context} {a}"

    assert (await run(work, context="CTX", a=1)).content == "CTX 1"
    with pytest.raises(ToolError):
        await run(work, context="CTX", a=1, ctx=2)
    with pytest.raises(ToolError) as caught:
        await work.invoke("CTX", ToolCall("c1", "work", {"a": 1, "context": "mine"}), NoThreads())
    assert caught.value.details == (Detail("context", "extra_forbidden", "Extra inputs are not permitted"),)


async def test_positional_only_parameters_and_defaults_are_the_functions_own() -> None:
    default: list[int] = []

    @tool
    async def work(a: int, b: list[int] = default, /, c: int = 7, *, d: int = 8) -> str:
        assert b is default
        return f"{a}{c}{d}"

    assert (await run(work, a=1, d=2)).content == "172"


async def test_arguments_that_do_not_fit_are_named_and_the_function_is_not_run() -> None:
    @tool
    async def work(n: int, x: float = 0.0) -> str:
        raise AssertionError

    with pytest.raises(ToolError) as caught:
        await run(work, n="secret", x=math.inf)
    error = caught.value
    assert error.code == Code.TOOL_INVALID_ARGS
    assert str(error) == "the arguments do not fit the schema of 'work': 2 problems"
    assert [(one.path, one.code) for one in error.details] == [("n", "int_parsing"), ("x", "finite_number")]
    assert "secret" not in str(error.details)
    assert "http" not in str(error.details)
    assert error.__context__ is None
    with pytest.raises(ToolError, match=r"^the arguments do not fit the schema of 'work': 1 problem$"):
        await run(work)


async def test_a_call_that_was_never_usable_is_not_run() -> None:
    with pytest.raises(ToolError, match=r"^not JSON$") as caught:
        await search.invoke(None, ToolCall("c1", "search", {"query": "a"}, invalid="not JSON"), NoThreads())
    assert caught.value.code == Code.CALL_INVALID


# ---- where it runs


async def test_a_synchronous_function_runs_in_a_worker_thread() -> None:
    here = threading.get_ident()

    @tool
    def work() -> bool:
        return threading.get_ident() != here

    assert (await work.invoke(None, a_call(), WorkerThreads())).data is True
    threads = NoThreads()
    await work.invoke(None, a_call(), threads)
    assert threads.calls == 1


async def test_an_async_function_runs_in_the_event_loop_and_can_be_cancelled() -> None:
    @tool
    async def work() -> None:
        await trio.sleep_forever()

    with trio.move_on_after(0) as scope:
        await work.invoke(None, a_call(), NoThreads())
    assert scope.cancelled_caught


async def test_a_function_that_returns_something_to_await_is_awaited() -> None:
    async def inner() -> str:
        return "later"

    @tool
    def work() -> Any:
        return inner()

    class Callable_:
        async def __call__(self, n: int) -> int:
            return n + 1

    assert (await run(work)).content == "later"
    made = tool(Callable_(), name="plus")
    assert (await run(made, n=1)).content == "2"


async def test_an_inline_tool_runs_at_once() -> None:
    @tool(inline=True)
    def work(n: int) -> int:
        return n

    assert work.inline
    assert repr(work) == "<Tool 'work' inline>"
    assert work.invoke_inline(None, a_call(n=1)) == ToolResult("1", data=1)
    threads = NoThreads()
    assert (await work.invoke(None, a_call(n=2), threads)).content == "2"
    assert threads.calls == 0
    with pytest.raises(LocalProtocolError, match=r"^tool 'search' is not inline and has to be awaited$"):
        search.invoke_inline(None, a_call(query="x"))


async def test_an_inline_handler_cannot_be_async() -> None:
    async def work() -> None: ...

    with pytest.raises(TypeError, match=r"^tool 'work': an inline function runs to its end at once, so it cannot be a"):
        tool(work, inline=True)

    @tool(inline=True)
    def sly() -> Any:
        return work()

    with pytest.raises(LocalProtocolError, match=r"^the inline handler of tool 'sly' returned a coroutine$"):
        sly.invoke_inline(None, a_call())


def test_a_function_that_yields_is_no_tool() -> None:
    def generator() -> Any:
        yield 1

    async def agenerator() -> Any:
        yield 1

    for function in (generator, agenerator):
        with pytest.raises(TypeError, match=r"^tool 'a?generator' yields; a tool returns its one result$"):
            tool(function)


# ---- from a model


class Arguments(BaseModel):
    """Not the tool's description."""

    model_config = ConfigDict(extra="forbid")

    n: int


async def test_a_tool_can_be_made_of_a_model_and_a_handler() -> None:
    def handler(context: Any, call: ToolCall, arguments: Arguments) -> ToolResult:
        return ToolResult(f"{context} {call.id} {arguments.n}")

    async def later(context: Any, call: ToolCall, arguments: Arguments) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return handler(context, call, arguments)

    made = Tool.from_model("count", "Counts.", Arguments, handler, inline=True)
    assert made.definition.parameters == {
        "additionalProperties": False, "properties": {"n": {"type": "integer"}}, "required": ["n"], "type": "object",
    }  # fmt: skip
    assert made.description == "Counts."
    assert made.function is None
    assert made.invoke_inline("CTX", a_call(n=1)).content == "CTX c1 1"
    assert made.parse(a_call(n=3)) == Arguments(n=3)
    threads = NoThreads()
    slow = Tool.from_model("count", "Counts.", Arguments, later)
    assert (await slow.invoke("CTX", a_call(n=2), threads)).content == "CTX c1 2"
    assert threads.calls == 0
    with pytest.raises(TypeError, match=r"^tool 'count': an inline handler runs to its end at once, so it cannot be a"):
        Tool.from_model("count", "Counts.", Arguments, later, inline=True)


# ---- results


class Point(msgspec.Struct):
    x: int


@dataclasses.dataclass
class Pair:
    point: Point
    model: Arguments


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", "(empty)"),
        (None, "done"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": ["ä", None]}, '{"a":["ä",null]}'),
        ((1, 2), "[1,2]"),
        ({3: "x"}, '{"3":"x"}'),
        (Point(1), '{"x":1}'),
        (Arguments(n=2), '{"n":2}'),
        ([Pair(Point(1), Arguments(n=2))], '[{"point":{"x":1},"model":{"n":2}}]'),
        (b"ab", '"YWI="'),
    ],
)
async def test_what_a_function_returns_is_rendered(value: Any, content: str) -> None:
    @tool
    async def work() -> Any:
        return value

    result = await run(work)
    assert (result.content, result.success, result.data) == (content, True, value)


async def test_a_result_of_its_own_is_left_as_it_is() -> None:
    mine = ToolResult("x", success=False, data=1)

    @tool
    async def work() -> ToolResult:
        return mine

    assert await run(work) is mine


async def test_half_characters_in_a_result_are_replaced() -> None:
    @tool
    async def work() -> Any:
        return "caf\udce9 \ud83d\ude00"

    @tool
    async def structured() -> Any:
        return ["caf\udce9"]

    assert (await run(work)).content == "caf\ufffd 😀"
    assert (await run(structured)).content == '["caf\ufffd"]'


@pytest.mark.parametrize("value", [object(), [math.nan], {1: {2: math.inf}}])
async def test_a_result_that_is_not_json_is_a_failure_that_names_it(value: Any) -> None:
    @tool
    async def work() -> Any:
        return value

    with pytest.raises(ToolError, match=r"^tool 'work' returned a \w+ that cannot be written as JSON: "):
        await run(work)


async def test_a_result_that_contains_itself_is_a_failure() -> None:
    loop: list[Any] = []
    loop.append(loop)

    @tool
    async def work() -> Any:
        return loop

    with pytest.raises(ToolError, match=r"^tool 'work' returned a list that cannot be written as JSON: "):
        await run(work)


async def test_what_the_function_raises_is_left_as_it_is() -> None:
    error = KeyError("x")

    @tool
    async def work() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        await run(work)
    assert caught.value is error


# ---- failures


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (ValueError(" \u200b"), "ValueError"),
        (Unspeakable(), "Unspeakable"),
        (ToolError(""), "ToolError"),
        (ExceptionGroup("g", [ValueError("one")]), "ValueError: one"),
        (ExceptionGroup("g", [ValueError("one"), TypeError()]), "2 errors: ValueError: one; TypeError"),
        (ValueError("caf\udce9"), "ValueError: caf\ufffd"),
    ],
)
def test_a_failure_always_has_a_text_f20(error: Exception, message: str) -> None:
    assert failure(error) == ("tool.failed", message, ())


def test_errors_of_ours_keep_their_code_and_details() -> None:
    detail = Detail("a", "b", "c")
    assert failure(ToolError("no", code="x.y", details=(detail,))) == ("x.y", "no", (detail,))
    assert failure(RuleViolation(Code.ASK_SETTLED, "late", detail)) == ("ask.settled", "late", (detail,))
    assert failure(ExceptionGroup("g", [ModelError("m", code="q")])) == ("q", "m", ())


def test_an_endless_failure_is_cut() -> None:
    assert failure(ValueError("x" * 10_000))[1] == "ValueError: " + "x" * (MAX_FAILURE_CHARS - 13) + "…"


# ---- calls that may be made again


def test_a_tool_says_whether_a_call_of_it_may_be_made_again() -> None:
    class Nothing(BaseModel):
        """No arguments."""

    def handler(context: Any, call: ToolCall, arguments: Any) -> ToolResult:
        return ToolResult("x")

    async def work() -> str:
        """Work."""
        return "x"

    assert tool(work).retry == "never" and tool(retry="safe")(work).retry == "safe"
    made = Tool.from_model("f", "Do f.", Nothing, handler, retry="safe")
    assert made.retry == "safe" and Tool.from_model("f", "Do f.", Nothing, handler).retry == "never"
    with pytest.raises(ValueError, match=r"^tool 'work': retry is 'never' or 'safe', not 'always'$"):
        tool(work, retry="always")  # type: ignore[call-overload]
