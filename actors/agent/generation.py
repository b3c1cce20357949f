"""One model message: iterates the stream, shows its pieces as they come, assembles the message, closes the stream."""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, cast

import trio

from actors.agent.foreign import contain
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

    __slots__ = ("assembler", "live", "message_id", "reasoning_chars", "text_chars")

    def __init__(self, live: "LiveRun", message_id: str) -> None:
        self.live = live
        self.message_id = message_id
        self.assembler = Assembler(live.agent.limits)
        # Counted also while nobody watches: whoever attaches in the middle is told offsets from the message's start.
        self.text_chars = 0
        self.reasoning_chars = 0

    def show_started(self, turn: int) -> None:
        self._show(ev.ModelStarted, self.message_id, turn)

    def show_completed(self) -> None:
        if self.reasoning_chars:
            self._show(ev.ReasoningCompleted, self.message_id)
        if self.text_chars:
            self._show(ev.ContentCompleted, self.message_id)

    def take(self, event: ModelEvent, *, watched: bool) -> None:
        """Count a piece, and show it if somebody watches."""
        kind = type(event)
        if kind is TextDelta:
            text, offset = cast("TextDelta", event).text, self.text_chars
            self.text_chars = offset + len(text)
            if watched and text:
                if not offset:
                    self._show(ev.ContentStarted, self.message_id)
                self._show(ev.TextStreamed, self.message_id, offset, text)
        elif kind is ReasoningDelta:
            text, offset = cast("ReasoningDelta", event).text, self.reasoning_chars
            self.reasoning_chars = offset + len(text)
            if watched and text:
                if not offset:
                    self._show(ev.ReasoningStarted, self.message_id)
                self._show(ev.ReasoningStreamed, self.message_id, offset, text)
        elif kind is ToolCallDelta and watched:
            delta = cast("ToolCallDelta", event)
            self._show(ev.ToolCallStreamed, self.message_id, delta.index, delta.name or "", delta.arguments or "")

    def _show(self, kind: Callable[..., ev.Ephemeral], *fields: Any) -> None:
        live = self.live
        session = live.session
        now = live.agent.clock.now()
        session.show(kind(*fields, run=live.id, path=live.record.path, base=session.state.seq, time=now))


def open_stream(open_it: Callable[[], AsyncIterator[ModelEvent]]) -> AsyncIterator[ModelEvent]:
    """Return the model's stream, of which nothing is read yet.

    Raises:
        RuleViolation, ModelError: As `stream_message`, where the model raised at once.
    """
    try:
        with contain("the model", ModelError):
            return open_it()
    except (RuleViolation, ModelError):
        raise
    except Exception as error:
        raise ModelError(f"the model raised {failure(error)[1]}") from error


async def stream_message(
    live: "LiveRun", events: AsyncIterator[ModelEvent], message_id: str, turn: int
) -> AssistantMessage:
    """Return the complete, normalised message.

    A checkpoint where the model is one, where the caller's stream is full, and at every 64th piece.

    Raises:
        RuleViolation: `model.truncated` or `model.invalid`; nothing of the message is recorded.
        ModelError: What the model raised.
    """
    session, caller = live.session, live.caller
    partial = live.partial = Partial(live, message_id)
    if session.watched:
        partial.show_started(turn)
    feed = partial.assembler.feed
    pieces = 0
    try:
        with contain("the model", ModelError):
            async for event in events:
                feed(event)
                partial.take(event, watched=session.watched)
                if caller is not None and caller.full:
                    await live.wait_taken()
                pieces += 1
                if pieces % _YIELD_EVERY == 0:
                    await trio.lowlevel.checkpoint()
    except (RuleViolation, ModelError):
        raise
    except Exception as error:
        raise ModelError(f"the model raised {failure(error)[1]}") from error
    finally:
        # The generator's own cleanup. Unshielded: it has seen the cancel, if there is one, and its grace is the run's.
        await close_stream(events)  # noqa: ASYNC102
    if session.watched:
        partial.show_completed()
    return partial.assembler.finish(seq=session.state.seq + 1, used_ids=session.used_ids())


async def close_stream(events: AsyncIterator[ModelEvent]) -> None:
    """Close the model's generator here and now, in the run's task, so that its `finally` blocks run in order."""
    close: Any = getattr(events, "aclose", None)
    if close is None:
        if hasattr(events, "__anext__"):
            return  # a plain iterator object holds nothing
        raise LocalProtocolError(f"a model's stream is an async iterator, not {type(events).__name__}")
    await close()
