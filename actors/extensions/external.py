"""`ExternalEventExtension`: the base for extensions that put a question and wait for an event from outside.

Routing, waiting, wake-up and cleanup are the session's: the question is an ask on its record, so there is nothing here
that could be forgotten. A subclass opens the ask in `before_tool` and may narrow `accept`.
"""

from actors.agent.context import AgentRunContext
from actors.agent.extension import AgentExtension, AgentRunConfig, ExternalEvent
from protocol.asks import RESPONSE_EVENT, AskOutcome
from protocol.chat import ToolCall, ToolResult
from protocol.decisions import answer_content
from protocol.errors import Code, ToolError


class ExternalEventExtension(AgentExtension):
    """Claims events named `response_event` whose payload names, by `tool_call_id`, an open ask of the session."""

    response_event: str = RESPONSE_EVENT

    def accept(self, config: AgentRunConfig | None, event: ExternalEvent) -> bool:
        """Answer the ask that the payload names.

        False for another event, a payload without a usable `tool_call_id`, an answer that does not fit, and an ask that
        is unknown, answered, cancelled or over. `SessionHandle.answer` says which.
        """
        if event.name != self.response_event or not self._agents:
            return False
        session_id = config.session_id if config is not None else None
        tool_call_id = event.payload.get("tool_call_id")
        # Of several agents that share this instance, the one that emits; called directly, whichever has the ask.
        emitting = [agent for agent in self._agents if agent.emitting is not None]
        return any(
            agent.answer_now(session_id, tool_call_id, event.payload, via=self.name)
            for agent in emitting or self._agents
        )

    def outcome(self, context: AgentRunContext, call: ToolCall) -> ToolResult:
        """Return the result of a call whose answer is its result, from the record.

        Raises:
            ToolError: The ask was not answered; the code is `ask.` and the outcome.
        """
        record = (context.session.state.asks or {}).get(call.id)
        if record is None or record.outcome is None:
            raise ToolError(f"{call.name} was called without its question being put", code=Code.ASK_UNKNOWN)
        if record.outcome is AskOutcome.ANSWERED:
            return ToolResult(answer_content(record), data=record.payload)
        text = {
            AskOutcome.DECLINED: "the user declined to answer",
            AskOutcome.TIMED_OUT: "nobody answered in time",
            AskOutcome.NO_RESPONDER: "nobody is there who could answer",
            AskOutcome.CANCELLED: "the question was withdrawn",
        }[record.outcome]
        raise ToolError(f"{text}: {record.note}" if record.note else text, code=f"ask.{record.outcome}")
