"""The tool calls of a turn: each gets exactly one result, recorded when it is there, whatever becomes of the others.

Inline tools run first, in call order. A single other call runs in the run's own task; several run in a nursery. A call
with an open ask waits for it in its own task, so an ask never holds up its siblings.
"""

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

import msgspec
import trio

from actors.agent.context import CURRENT_CALL
from actors.agent.extension import AgentExtension, CallTool
from actors.agent.foreign import contain, fence
from actors.agent.tools import Tool, failure
from protocol import events as ev
from protocol.chat import CallOutcome, ToolCall, ToolMessage, ToolResult
from protocol.decisions import error_content, settle_call
from protocol.errors import Code, Detail, LocalProtocolError, RuleViolation, ToolError
from protocol.phases import Phase
from protocol.sendable import check_size, check_text

if TYPE_CHECKING:
    from actors.agent.run import LiveRun

logger = logging.getLogger("actors.run")


Ready = tuple[ToolCall, Tool]


async def start_calls(live: "LiveRun") -> list[Ready]:
    """Bring the calls that cannot run, and those of inline tools, to their results; return the others.

    A checkpoint where a hook is one or the caller's stream is full.
    """
    waiting: list[Ready] = []
    inline: list[Ready] = []
    for call in [record.call for record in (live.record.calls or {}).values() if record.result is None]:
        tool = await _prepare(live, call)
        if tool is None:
            continue
        (inline if tool.inline and not _asks(live, call) else waiting).append((call, tool))
    await live.enter(Phase.RUNNING_TOOL)
    for call, tool in inline:
        await perform_call(live, call, tool)
    return waiting


def wait_ask(live: "LiveRun", call: ToolCall) -> Awaitable[object] | None:
    """Return what to await before this call may start, if it has an ask. Check for cancellation afterwards."""
    return live.session.wait_settled(call.id) if _asks(live, call) else None


def _asks(live: "LiveRun", call: ToolCall) -> bool:
    asks = live.session.state.asks
    return asks is not None and call.id in asks


async def perform_together(live: "LiveRun", calls: list[Ready]) -> None:
    """Bring several calls to their results, each in a task of its own. A checkpoint."""

    async def perform(call: ToolCall, tool: Tool) -> None:
        ask = wait_ask(live, call)
        if ask is not None:
            live.resting += 1
            await ask
            live.resting -= 1
            if live.over:
                return
            await trio.lowlevel.checkpoint_if_cancelled()  # settled and stopped in one tick: nothing goes on
        await perform_call(live, call, tool)
        live.going -= 1

    live.going = len(calls)
    async with trio.open_nursery() as nursery:
        for call, tool in calls:
            nursery.start_soon(perform, call, tool, name=f"{live.id}/{call.name}")


async def _prepare(live: "LiveRun", call: ToolCall) -> Tool | None:
    """Return the tool of a call that may run. A call that may not gets its result here."""
    tool = live.context.tool(call.name)
    error: Exception | None = None
    if call.invalid:
        error = ToolError(call.invalid, code=Code.CALL_INVALID)
    elif tool is None:
        known = ", ".join(sorted(live.context.tools)) or "none"
        error = ToolError(f"there is no tool {call.name!r}; known: {known}", code=Code.TOOL_UNKNOWN)
    else:
        for extension in live.agent.hooks.before_tool:
            try:
                with contain(extension.name):
                    await extension.before_tool(live.context, call)
            except Exception as raised:
                error = raised
                break
    if error is None:
        return tool
    await _settle(live, call, None, error)
    return None


async def perform_call(live: "LiveRun", call: ToolCall, tool: Tool) -> None:
    """Run the tool of a call and record the result. A checkpoint where the tool is one, or the stream is full."""
    session = live.session
    await live.wait_room()
    started = ev.ToolStarted(call.id, call.name, run=live.id, path=live.record.path)
    # A tool may have effects, and so may who is around it: it starts when its start is kept.
    seq = session.append([started], run=live.id)
    if session.committed < seq and not (tool.on_record and not live.agent.hooks.on_tool_call):
        await session.wait_committed(seq)
    result: ToolResult | None = None
    error: Exception | None = None
    working = live.working = live.working or {}
    working[call.id] = call.name
    token = CURRENT_CALL.set(call.id)
    try:
        with contain(call.name, ToolError):
            if tool.inline and not live.agent.hooks.on_tool_call:
                result = tool.invoke_inline(live.context, _own_copy(call) if tool.function else call)
            else:
                with fence():
                    if live.agent.hooks.on_tool_call:
                        result = await _chain(live, tool)(_own_copy(call))
                    else:
                        result = await tool.invoke(live.context, _own_copy(call), live.agent.threads)
    except Exception as raised:
        error = raised
    finally:
        CURRENT_CALL.reset(token)
        working.pop(call.id, None)
    if error is None and not isinstance(result, ToolResult):
        error = LocalProtocolError(f"{call.name} was wrapped into {type(result).__name__}, which is no ToolResult")
    await _settle(live, call, result, error)


def _chain(live: "LiveRun", tool: Tool) -> CallTool:
    async def body(call: ToolCall) -> ToolResult:
        if tool.inline:
            return tool.invoke_inline(live.context, call)
        return await tool.invoke(live.context, call, live.agent.threads)

    call_next: CallTool = body
    for extension in reversed(live.agent.hooks.on_tool_call):
        call_next = _wrap(extension, live, call_next)
    return call_next


def _wrap(extension: AgentExtension, live: "LiveRun", call_next: CallTool) -> CallTool:
    def call_wrapped(call: ToolCall) -> Awaitable[ToolResult]:
        return extension.on_tool_call(live.context, call, call_next)  # by position: a subclass may rename parameters

    return call_wrapped


def _own_copy(call: ToolCall) -> ToolCall:
    """Return a call whose arguments may be changed without changing the history: what is not typed in a function's
    signature reaches it as it is. The models of inline handlers leave nothing open, and are spared this."""
    return msgspec.structs.replace(call, arguments=msgspec.json.decode(msgspec.json.encode(call.arguments)))


async def _settle(live: "LiveRun", call: ToolCall, result: ToolResult | None, error: Exception | None) -> None:
    """Record the one result of a call. A run that has ended has given the call its result already."""
    code = ""
    if error is not None:
        code, text, details = failure(error)
        result = ToolResult(error_content(code, text, details), success=False)
    assert result is not None
    for extension in live.agent.hooks.after_tool:
        try:
            with contain("it"):
                await extension.after_tool(live.context, call, result, error)
        except Exception as raised:
            code = str(Code.EXTENSION_FAILED)
            text = f"{extension.name} refused the result of {call.name}: {failure(raised)[1]}"
            result = ToolResult(error_content(code, text), success=False)
            break
    message, code = _message(live, call, result, code)
    session = live.session
    session.append(settle_call(session.state, live.record, message, code=code), run=live.id)
    logger.debug("session %s run %s: call %s of %s %s", session.id, live.id, call.id, call.name, message.outcome)


def _message(live: "LiveRun", call: ToolCall, result: ToolResult, code: str) -> tuple[ToolMessage, str]:
    """Return the result as it is stored: encodable and within the size limit, else an error that says why not."""
    if not isinstance(cast("object", result.content), str):
        # What a tool or a wrapper returned, or a hook left there: its own failure, not that of its siblings.
        text = f"{call.name} ran, but its result is {type(result.content).__name__}, not text"
        content = error_content(Code.TOOL_FAILED, text)
        return ToolMessage(call.id, call.name, content, CallOutcome.FAILED), str(Code.TOOL_FAILED)
    outcome = CallOutcome.COMPLETED if result.success else CallOutcome.FAILED
    message = ToolMessage(call.id, call.name, result.content, outcome)
    limit = live.agent.limits.max_event_bytes
    try:
        check_text(result.content, path=f"the result of {call.name}")
        if len(result.content) * 6 > limit:  # six bytes: the longest escape of one character
            check_size(message, max_bytes=limit)
    except RuleViolation as refused:
        text = f"{call.name} ran, but its result cannot be kept: {refused.message}"
        content = error_content(refused.code, text, (Detail("content", refused.code, refused.message),))
        return ToolMessage(call.id, call.name, content, CallOutcome.FAILED), str(refused.code)
    return message, code
