"""Tools: a typed function, its schema built once, and the one way its arguments are checked and its result rendered.

Decides which arguments fit, where the function runs (event loop or worker thread) and what text the model reads. It
must not know runs or records: it raises, and the run makes a result of that (`failure`).
"""

import inspect
import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, TypeVar, cast, overload

import msgspec
from pydantic import BaseModel, ValidationError

from actors.agent.ports import Threads
from actors.agent.schemas import Signature, build_schema, details, is_async, read_docstring, read_signature
from protocol.chat import ToolCall, ToolDefinition, ToolResult
from protocol.errors import Code, Detail, LocalProtocolError, ModelError, RuleViolation, ToolError
from protocol.ids import is_blank

A = TypeVar("A", bound=BaseModel)
Handler = Callable[[Any, ToolCall, Any], Any]

#: Whether a call that was interrupted may be made again: `never`, or `safe` with its idempotency key.
Retry = Literal["never", "safe"]

MAX_FAILURE_CHARS = 4_000
DONE, EMPTY = "done", "(empty)"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Tool:
    """Something a model may call. Make one with `@tool` or `Tool.from_model`.

    Attributes:
        definition: What the model is told; the same object for the tool's whole life.
        inline: The handler never blocks and runs in the event loop, in the order of the calls.
        function: The function behind `@tool`, for calling it directly; None for `from_model`.
        retry: `safe` - a call that had started when the session was interrupted is made again when it goes on; by
            `context.idempotency_key` it is the same one. `never` - the model is told that it was interrupted.
        on_record: All that it does is on the session's record. So it need not wait until its start is kept: what a
            crash takes back of it has not happened.
    """

    __slots__ = ("_arguments", "_handler", "_threaded", "definition", "function", "inline", "on_record", "retry")

    def __init__(
        self,
        definition: ToolDefinition,
        arguments: type[BaseModel],
        handler: Handler,
        *,
        inline: bool = False,
        threaded: bool = False,
        function: Callable[..., Any] | None = None,
        retry: Retry = "never",
        on_record: bool = False,
    ) -> None:
        """Join the parts; most callers want `@tool` or `from_model`.

        `handler` is called with the run's context, the call and what `arguments` made of it; `threaded` says that it
        blocks. The rest is described at the class.

        Raises:
            ValueError: The name is not 1-64 letters, digits, `_` or `-`; `retry` is none of the words.
        """
        _check_name(definition.name)
        if retry not in ("never", "safe"):
            raise ValueError(f"tool {definition.name!r}: retry is 'never' or 'safe', not {retry!r}")
        self.retry: Retry = retry
        self.on_record = on_record
        self.definition = definition
        self.inline = inline
        self.function = function
        self._arguments = arguments
        self._handler = handler
        self._threaded = threaded

    @classmethod
    def from_model(
        cls,
        name: str,
        description: str,
        arguments: type[A],
        handler: Callable[[Any, ToolCall, A], ToolResult | Awaitable[ToolResult]],
        *,
        inline: bool = False,
        retry: Retry = "never",
        on_record: bool = False,
    ) -> "Tool":
        """Make a tool of a pydantic model and a handler.

        Args:
            name: 1-64 letters, digits, `_` or `-`.
            description: What the model is told.
            arguments: The parameters. Its own configuration decides about unknown keys and infinite numbers.
            handler: Called in the event loop with the run's context, the call and the arguments.
            inline: The handler is synchronous and never blocks.
            retry: See the class.
            on_record: See the class.

        Raises:
            ValueError: The name or `retry` is not allowed; the schema has an array without an element type (names the
                path).
            TypeError: `inline` with an async handler.
        """
        _check_name(name)
        if inline and is_async(handler):
            raise TypeError(f"tool {name!r}: an inline handler runs to its end at once, so it cannot be async")
        definition = ToolDefinition(name, description, build_schema(arguments, name))
        return cls(definition, arguments, handler, inline=inline, retry=retry, on_record=on_record)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def description(self) -> str:
        return self.definition.description

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}{' inline' if self.inline else ''}>"

    async def invoke(self, context: Any, call: ToolCall, threads: Threads) -> ToolResult:
        """Check the call's arguments, run the function and render what it returned.

        A checkpoint exactly where the function is one, or runs in a worker thread (through `threads`).

        Raises:
            ToolError: As `parse`, or raised by the function, whose other exceptions are left as they are, too.
        """
        arguments = self.parse(call)
        if self._threaded:
            value = await threads.run_sync(partial(self._handler, context, call, arguments))
        else:
            value = self._handler(context, call, arguments)
        if type(value) is not ToolResult and inspect.isawaitable(value):
            value = await value
        return self._render(value)

    def invoke_inline(self, context: Any, call: ToolCall) -> ToolResult:
        """Like `invoke`, at once and without a checkpoint.

        Raises:
            LocalProtocolError: The tool is not inline, or its handler returned something to await.
        """
        if not self.inline:
            raise LocalProtocolError(f"tool {self.name!r} is not inline and has to be awaited")
        value = self._handler(context, call, self.parse(call))
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that it was never awaited
            raise LocalProtocolError(f"the inline handler of tool {self.name!r} returned a coroutine")
        return self._render(value)

    def parse(self, call: ToolCall) -> BaseModel:
        """Return the call's arguments, validated. Not a checkpoint.

        Raises:
            ToolError: `tool.invalid_args` - they do not fit, `details` say where; `call.invalid` - the call was never
                usable.
        """
        if call.invalid:
            raise ToolError(call.invalid, code=Code.CALL_INVALID)
        try:
            return self._arguments.model_validate(call.arguments)
        except ValidationError as error:
            count = error.error_count()
            text = f"the arguments do not fit the schema of {self.name!r}: {count} problem{'s' if count > 1 else ''}"
            found = details(error, call.arguments)
        # Outside the handler, so that the library's error with the model's values in it is not chained.
        raise ToolError(text, code=Code.TOOL_INVALID_ARGS, details=found)

    def _render(self, value: Any) -> ToolResult:
        if type(value) is ToolResult:
            return value
        if value is None:
            return ToolResult(DONE)
        if isinstance(value, str):
            return ToolResult(_sendable(value) or EMPTY, data=value)
        try:
            text = _encode(msgspec.to_builtins(value, builtin_types=(), str_keys=True, enc_hook=_to_builtin))
        except (TypeError, ValueError, RecursionError) as error:
            kind = type(value).__name__
            raise ToolError(f"tool {self.name!r} returned a {kind} that cannot be written as JSON: {error}") from error
        return ToolResult(_sendable(text), data=value)


@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    inline: bool = False,
    retry: Retry = "never",
) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, inline: bool = False, retry: Retry = "never"
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    inline: bool = False,
    retry: Retry = "never",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a `Tool` of a typed function: `@tool` or `@tool(name=...)`.

    The schema comes from the annotations, descriptions from the docstring's first paragraph and its `Args:` section.
    An async function runs in the event loop, a synchronous one in a worker thread. A parameter annotated
    `AgentRunContext` is given the run's context and is not in the schema. What the function returns becomes the result:
    text as it is, None as "done", anything else as JSON.

    Args:
        function: Its parameters all have annotations; no `*args`, no `**kwargs`.
        name, description: Instead of the function's own name and the docstring's first paragraph.
        inline: Run a synchronous function in the event loop. It must never block.
        retry: `safe` - it may be called again for a call that was interrupted; see `Tool`.

    Raises:
        TypeError: The function cannot be a tool; says why.
        ValueError: The name or `retry` is not allowed; the schema has an array without an element type (names the
            path).
    """
    if function is None:
        return partial(_from_function, name=name, description=description, inline=inline, retry=retry)
    return _from_function(function, name=name, description=description, inline=inline, retry=retry)


def failure(error: Exception) -> tuple[str, str, tuple[Detail, ...]]:
    """Return code, message and details of what a tool raised. The message is never blank.

    A `ToolError`, `RuleViolation` or `ModelError` speaks for itself; of anything else the model reads the type and the
    text, at most `MAX_FAILURE_CHARS` characters of it. A group of one is taken for its member.
    """
    members = _members(error)
    if len(members) == 1:
        return failure(members[0])
    code, found = str(Code.TOOL_FAILED), ()
    if members:
        message = f"{len(members)} errors: " + "; ".join(failure(member)[1] for member in members)
    elif isinstance(error, ToolError | RuleViolation | ModelError):
        code, message, found = str(error.code), error.message, getattr(error, "details", ())
    else:
        message = _describe(error)
    message = type(error).__name__ if is_blank(message) else _sendable(message)
    if len(message) > MAX_FAILURE_CHARS:
        message = message[: MAX_FAILURE_CHARS - 1] + "…"
    return code, message, found


def _members(error: BaseException) -> tuple[Exception, ...]:
    return cast("ExceptionGroup[Exception]", error).exceptions if isinstance(error, ExceptionGroup) else ()


def _describe(error: Exception) -> str:
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception:  # an exception whose text cannot be made is still named
        return kind
    return kind if is_blank(text) else f"{kind}: {text}"


def _from_function(
    function: Callable[..., Any], *, name: str | None, description: str | None, inline: bool, retry: Retry
) -> Tool:
    if name is None:
        name = str(getattr(getattr(function, "func", function), "__name__", ""))
    _check_name(name)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"tool {name!r} yields; a tool returns its one result")
    asynchronous = is_async(function)
    if inline and asynchronous:
        raise TypeError(f"tool {name!r}: an inline function runs to its end at once, so it cannot be async")
    signature = read_signature(function, name)
    summary, documented = read_docstring(getattr(function, "func", function))
    schema = build_schema(signature.model, name, documented)
    definition = ToolDefinition(name, summary if description is None else description, schema)
    handler = _caller(function, signature)
    threaded = not (asynchronous or inline)
    return Tool(
        definition, signature.model, handler, inline=inline, threaded=threaded, function=function, retry=retry
    )


def _caller(function: Callable[..., Any], signature: Signature) -> Handler:
    def call_function(context: Any, call: ToolCall, arguments: BaseModel) -> Any:
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        given = arguments.model_fields_set
        for parameter, field in signature.parameters:
            value = context if field is None else getattr(arguments, field) if field in given else parameter.default
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                keywords[parameter.name] = value
        return function(*positional, **keywords)

    return call_function


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"a tool's name is 1-64 letters, digits, '_' or '-', not {name!r}; pass name=")


def _to_builtin(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _sendable(text: str) -> str:
    """Replace lone surrogates (a file name that is not UTF-8 has them): no log or socket would take them."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
