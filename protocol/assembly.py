"""From the pieces a model streams to one message, normalised once, at the door. Pure.

Decides which pieces belong to one call, which calls cannot be used, which messages are refused as a whole. What comes
out of here is run, stored, shown and replayed, so nothing is guessed and nothing that was cut off is repaired.

A piece belongs to the call its `id` names among those of its `index` (among all, where it has no index); without an
id, to the latest call there. Where two calls there are still unfinished, that would be a guess, and is refused.

OPEN -> STOPPED. After the stop only `Usage` may follow.
"""

from collections.abc import Container
from itertools import count
from typing import NoReturn, cast

from protocol.arguments import CallPieces, is_glued, parse_arguments
from protocol.chat import AssistantMessage, ModelEvent, ReasoningDelta, Stop, TextDelta, ToolCall, ToolCallDelta, Usage
from protocol.errors import Code, RuleViolation
from protocol.ids import call_id, is_blank
from protocol.limits import DEFAULT_LIMITS, Limits
from protocol.sendable import check_text

__all__ = ["MAX_ID_CHARS", "MAX_NAME_CHARS", "MAX_PROVIDER_ID_CHARS", "Assembler", "parse_arguments"]

MAX_NAME_CHARS = 128
MAX_ID_CHARS = 256
MAX_PROVIDER_ID_CHARS = 8_192

_STOPPED_FOR_CALLS = frozenset({"tool_calls", "tool_use", "function_call"})
_STOPPED_EARLY = frozenset({"length", "max_tokens", "content_filter"})


class Assembler:
    """Puts one model message together."""

    __slots__ = (
        "_calls",
        "_chars",
        "_dropped",
        "_limits",
        "_max_chars",
        "_reasoning",
        "_slots",
        "_stop",
        "_text",
        "_usage",
    )

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._max_chars = limits.max_text_chars
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._chars = 0
        self._calls: list[CallPieces] = []
        self._slots: dict[int, list[CallPieces]] = {}
        self._dropped = 0
        self._usage: Usage | None = None
        self._stop: str | None = None

    @property
    def text(self) -> str:
        """The text so far."""
        return _join(self._text)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return _join(self._reasoning)

    @property
    def dropped(self) -> int:
        """How many nameless, empty calls `finish` left out."""
        return self._dropped

    def feed(self, event: ModelEvent) -> None:
        """Take the next piece.

        Raises:
            RuleViolation: `model.invalid` - the pieces cannot become a message: over a limit, after the stop, not
                text, or of a call that cannot be told from another one.
        """
        kind = type(event)
        if kind is TextDelta:
            text = cast("TextDelta", event).text
            if text:
                self._take_text(self._text, text)
        elif kind is ToolCallDelta:
            self._take_call(cast("ToolCallDelta", event))
        elif kind is ReasoningDelta:
            text = cast("ReasoningDelta", event).text
            if text:
                self._take_text(self._reasoning, text)
        elif kind is Usage:
            self._take_usage(cast("Usage", event))
        elif kind is Stop:
            self._take_stop(cast("Stop", event).reason)
        else:
            _refuse(f"a model streams the types of ModelEvent, not {kind.__name__}")

    def finish(self, *, seq: int, used_ids: Container[str]) -> AssistantMessage:
        """Return the message. The same pieces, cut differently, give the same message.

        Args:
            seq: The seq under which the message will be recorded; minted ids are made of it.
            used_ids: The call ids the session has already.

        Raises:
            RuleViolation: `model.truncated` - no `Stop` came; `model.invalid` - the stop announces calls and there are
                none, no call has a name, or calls are glued together.
        """
        if self._stop is None:
            raise RuleViolation(Code.MODEL_TRUNCATED, "the model's stream ended without its end mark")
        calls = self._usable_calls()
        if not calls and self._dropped:
            _refuse(f"none of the message's {self._dropped} tool calls has a name")
        if not calls and self._stop in _STOPPED_FOR_CALLS:
            _refuse(f"the message ended with {self._stop!r} and has no tool call")
        tool_calls = self._settle_calls(calls, seq, used_ids)
        return AssistantMessage(self.text, tool_calls, self.reasoning, self._stop, self._usage)

    # ---- pieces

    def _take_text(self, pieces: list[str], text: str) -> None:
        if not text.isascii():
            _check_utf8(text, "the model's text")
        self._chars += len(text)
        if self._chars > self._max_chars:
            _refuse(f"the message's text is over the limit of {self._max_chars} characters")
        if self._stop is not None:
            _refuse(f"text came after the message's end ({self._stop!r})")
        pieces.append(text)

    def _take_usage(self, usage: Usage) -> None:
        # Providers send running totals, and input and output apart: the largest of each is the last of each.
        old = self._usage or Usage()
        self._usage = Usage(
            max(old.input_tokens, usage.input_tokens or 0), max(old.output_tokens, usage.output_tokens or 0)
        )

    def _take_stop(self, reason: str) -> None:
        reason = _text(reason, "stop reason", MAX_NAME_CHARS) or "stop"
        if self._stop is not None and self._stop != reason:
            _refuse(f"the message ended twice, as {self._stop!r} and as {reason!r}")
        self._stop = reason

    def _take_call(self, piece: ToolCallDelta) -> None:
        index = piece.index
        if index is not None and type(index) is not int:
            _refuse(f"the index of a tool call is an integer, not {type(index).__name__}")
        new_id = _text(piece.id, "id", MAX_PROVIDER_ID_CHARS)
        new_id = "" if new_id == "null" else new_id  # what some servers make of a missing id
        name = _text(piece.name, "name", MAX_NAME_CHARS)
        arguments = piece.arguments or ""
        if type(arguments) is not str:
            _refuse(f"the arguments of a tool call are streamed as text, not {type(arguments).__name__}")
        if self._stop is not None:
            if new_id or name or arguments:
                _refuse(f"a piece of a tool call came after the message's end ({self._stop!r})")
            return
        if index is None and not (new_id or name or arguments):
            return
        call = self._find(index, new_id, name, bool(arguments))
        call.id = call.id or new_id
        if name and call.name and name != call.name:
            _refuse(f"tool call {self._calls.index(call) + 1} is named {call.name!r} and then {name!r}")
        call.name = call.name or name
        # A server that sends the whole message each time repeats what was complete.
        again = new_id and call.chars == len(arguments) and call.joined() == arguments and call.is_whole(self._limits)
        if arguments and not again:
            call.add(arguments)
            if call.chars > self._limits.max_arguments_chars:
                _refuse(f"a tool call's arguments are over the limit of {self._limits.max_arguments_chars} characters")

    def _find(self, index: int | None, new_id: str, name: str, arguments: bool) -> CallPieces:
        """Return the call a piece belongs to, a new one where it begins one."""
        here = self._calls if index is None else self._slots.get(index, [])
        if not here:
            return self._open(index)
        last = here[-1]
        if new_id:
            for call in here:
                if call.id == new_id:
                    return call
            if last.id or (name and last.name and name != last.name):
                return self._open(index)
            return last  # the id comes late
        if name and index is None and not last.name and last.chars:
            return self._open(index)  # a name comes before its arguments
        if name and last.name and (index is None or name != last.name):
            if last.chars and not last.is_whole(self._limits):
                _refuse(f"a piece named {name!r} came before {last.name!r} was complete, and has no id of its own")
            opened = self._open(index)
            opened.split = last.split = True
            return opened
        if arguments and any(call is not last and not call.is_whole(self._limits) for call in here):
            _refuse("a piece of a tool call fits two unfinished calls: it has neither an id nor an index of its own")
        return last

    def _open(self, index: int | None) -> CallPieces:
        if len(self._calls) >= self._limits.max_calls_per_turn:
            _refuse(f"the message has over {self._limits.max_calls_per_turn} tool calls")
        call = CallPieces(index)
        self._calls.append(call)
        if index is not None:
            self._slots.setdefault(index, []).append(call)
        return call

    # ---- the end

    def _usable_calls(self) -> list[CallPieces]:
        """Leave out calls that are nothing; refuse the message where a call's name, not the whole call, is missing."""
        usable: list[CallPieces] = []
        self._dropped = 0
        for number, call in enumerate(self._calls, 1):
            if call.name:
                usable.append(call)
            elif call.joined().strip() in ("", "{}", "null"):
                self._dropped += 1
            else:
                _refuse(f"tool call {number} has arguments and no name")
        if all(call.index is not None for call in usable):
            usable.sort(key=lambda call: call.index or 0)
        return usable

    def _settle_calls(self, calls: list[CallPieces], seq: int, used_ids: Container[str]) -> tuple[ToolCall, ...]:
        settled: list[ToolCall] = []
        by_id: dict[str, CallPieces] = {}
        taken: set[str] = {call.id for call in calls}
        for call in calls:
            text = call.joined()
            arguments, reason = parse_arguments(text, self._limits)
            if reason and (call.split or is_glued(text)):
                _refuse(f"the calls of {call.name!r} and the next tool cannot be told apart ({reason})")
            first = by_id.setdefault(call.id, call) if call.id else call
            if first is not call and first.name == call.name and first.joined() == text:
                continue  # the same call once more
            if reason and self._stop in _STOPPED_EARLY:
                reason = f"the message ended early ({self._stop}): {reason}"
            usable = first is call and _is_usable_id(call.id) and call.id not in used_ids
            own = call.id if usable else _mint(seq, len(settled), taken, used_ids)
            settled.append(ToolCall(own, call.name, arguments, "" if usable else call.id, reason))
        return tuple(settled)


def _mint(seq: int, index: int, taken: set[str], used_ids: Container[str]) -> str:
    for number in count(index):
        minted = call_id(seq, number)
        if minted not in taken and minted not in used_ids:
            taken.add(minted)
            return minted
    raise AssertionError("the numbers ended")  # pragma: no cover


def _is_usable_id(value: str) -> bool:
    return 0 < len(value) <= MAX_ID_CHARS and value.isprintable() and not is_blank(value)


def _text(value: str | None, what: str, max_chars: int) -> str:
    """Return a short text of a piece, "" where it is missing or blank."""
    if not value:
        return ""
    if type(value) is not str:
        _refuse(f"the {what} of a message's piece is text, not {type(value).__name__}")
    if len(value) > max_chars:
        _refuse(f"the {what} of a message's piece has {len(value)} characters, over the limit of {max_chars}")
    _check_utf8(value, f"the {what} of a message's piece")
    return "" if is_blank(value) else value


def _check_utf8(text: str, what: str) -> None:
    try:
        check_text(text, path=what)
    except RuleViolation as refused:
        raise RuleViolation(Code.MODEL_INVALID, refused.message) from None


def _join(pieces: list[str]) -> str:
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pieces[0] if pieces else ""


def _refuse(message: str) -> NoReturn:
    raise RuleViolation(Code.MODEL_INVALID, message)
