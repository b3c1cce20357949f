"""One model message: iterates the stream, shows its pieces as they come, assembles the message, closes the stream."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

import trio

from actors.agent.foreign import describe_foreign, is_foreign
from actors.agent.tools import failure
from protocol import events as ev
from protocol.assembly import Assembler
from protocol.chat import AssistantMessage, ModelEvent, ReasoningDelta, TextDelta, ToolCallDelta
from protocol.errors import LocalProtocolError, ModelError, RuleViolation

if TYPE_CHECKING:
    from actors.agent.run import LiveRun

_YIELD_EVERY = 64


class Partial:
    """The message that is being streamed: what a client that attaches now has to be told."""

    __slots__ = ("assembler", "message_id", "reasoning_chars", "text_chars")

    def __init__(self, message_id: str, assembler: Assembler) -> None:
        self.message_id = message_id
        self.assembler = assembler
        self.text_chars = 0
        self.reasoning_chars = 0


async def stream_message(
    live: "LiveRun", events: AsyncIterator[ModelEvent], message_id: str, turn: int
) -> AssistantMessage:
    """Return the complete, normalised message.

    A checkpoint where the model is one, where the caller's stream is full, and at every 64th piece.

    Raises:
        RuleViolation: `model.truncated` or `model.invalid`; nothing of the message is recorded.
        ModelError: What the model raised.
    """
    session = live.session
    partial = live.partial = Partial(message_id, Assembler(live.agent.limits))
    if session.watched:
        live.show(ev.ModelStarted(message_id, turn))
    feed = partial.assembler.feed
    pieces = 0
    try:
        async for event in events:
            feed(event)
            _count_and_show(live, partial, event, watched=session.watched)
            if live.caller is not None and live.caller.full:
                await live.wait_taken()
            pieces += 1
            if pieces % _YIELD_EVERY == 0:
                await trio.lowlevel.checkpoint()
    except (RuleViolation, ModelError):
        raise
    except Exception as error:
        raise ModelError(f"the model raised {failure(error)[1]}") from error
    except BaseException as error:
        if not is_foreign(error):
            raise
        raise ModelError(f"the model {describe_foreign(error)}") from error
    finally:
        await close_stream(events)
    if session.watched:
        if partial.reasoning_chars:
            live.show(ev.ReasoningCompleted(message_id))
        if partial.text_chars:
            live.show(ev.ContentCompleted(message_id))
    return partial.assembler.finish(seq=session.state.seq + 1, used_ids=session.state.call_ids or ())


def _count_and_show(live: "LiveRun", partial: Partial, event: ModelEvent, *, watched: bool) -> None:
    # Counted also while nobody watches: whoever attaches in the middle is told offsets from the message's start.
    kind = type(event)
    if kind is TextDelta:
        text = cast("TextDelta", event).text
        if text:
            offset = partial.text_chars
            partial.text_chars = offset + len(text)
            if watched:
                if not offset:
                    live.show(ev.ContentStarted(partial.message_id))
                live.show(ev.TextStreamed(partial.message_id, offset, text))
    elif kind is ReasoningDelta:
        text = cast("ReasoningDelta", event).text
        if text:
            offset = partial.reasoning_chars
            partial.reasoning_chars = offset + len(text)
            if watched:
                if not offset:
                    live.show(ev.ReasoningStarted(partial.message_id))
                live.show(ev.ReasoningStreamed(partial.message_id, offset, text))
    elif kind is ToolCallDelta and watched:
        delta = cast("ToolCallDelta", event)
        live.show(ev.ToolCallStreamed(partial.message_id, delta.index, delta.name or "", delta.arguments or ""))


async def close_stream(events: AsyncIterator[ModelEvent]) -> None:
    """Close the model's generator here and now, in the run's task, so that its `finally` blocks run in order."""
    close: Any = getattr(events, "aclose", None)
    if close is None:
        if hasattr(events, "__anext__"):
            return  # a plain iterator object holds nothing
        raise LocalProtocolError(f"a model's stream is an async iterator, not {type(events).__name__}")
    await close()
