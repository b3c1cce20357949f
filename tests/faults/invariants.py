"""What must hold of a session's log and of what is left when its runs have ended, whatever was done to it.

Raises `AssertionError` with a sentence. Knows nothing of how the state was reached.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from actors.agent.agent import Agent
from actors.agent.session import Session
from protocol import events as ev
from protocol.asks import Ask, AskOutcome, AskRecord
from protocol.chat import AssistantMessage, Message, ToolMessage
from protocol.decisions import answer_content
from protocol.history import fold

Log = Sequence[ev.Event]
_RESULTS = (ev.ToolCompleted, ev.ToolFailed, ev.ToolSkipped)


def check_log(log: Log, *, over: bool = True) -> None:
    """Check one log.

    Args:
        log: From its first record.
        over: Every run in it has ended.
    """
    assert [event.seq for event in log] == list(range(1, len(log) + 1)), "the log has a gap"
    _check_runs(log, over=over)
    _check_calls(log, over=over)
    _check_asks(log, over=over)
    if over:
        check_history(fold(log).messages)


def _check_runs(log: Log, *, over: bool) -> None:
    begun = {event.run for event in log if isinstance(event, ev.RunStarted | ev.RunQueued)}
    ended: set[str] = set()
    for event in log:
        assert event.run not in ended, f"{type(event).__name__} {event.seq} comes after the end of run {event.run}"
        if isinstance(event, ev.RUN_ENDS):
            ended.add(event.run)
    assert ended <= begun, f"runs {ended - begun} ended and never began"
    if over:
        assert ended == begun, f"runs {begun - ended} have no end"


def _check_calls(log: Log, *, over: bool) -> None:
    calls = Counter(
        call.id for event in log if isinstance(event, ev.ModelCompleted) for call in event.message.tool_calls
    )
    assert not calls or max(calls.values()) == 1, f"call ids are not unique: {calls}"
    results = Counter(event.result.tool_call_id for event in log if isinstance(event, _RESULTS))
    assert results <= calls, f"calls with more results than one, or unknown: {results - calls}"
    if over:
        assert results == calls, f"calls without a result: {calls - results}"


def _check_asks(log: Log, *, over: bool) -> None:
    opened = Counter(event.ask.tool_call_id for event in log if isinstance(event, ev.AskOpened))
    settled = Counter(event.tool_call_id for event in log if isinstance(event, ev.AskSettled))
    assert settled <= opened, f"asks settled twice: {settled - opened}"
    if over:
        assert settled == opened, f"asks that stayed open: {opened - settled}"


def check_history(messages: Sequence[Message]) -> None:
    """Check that the results of each message's calls follow it, in call order, and that there are no others."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert waiting, f"a result of {message.tool_call_id!r} without its call"
            assert waiting.pop(0) == message.tool_call_id, "a result out of call order"
        else:
            assert not waiting, f"calls {waiting} have no result before the next message"
            if isinstance(message, AssistantMessage):
                waiting = [call.id for call in message.tool_calls]
    assert not waiting, f"calls {waiting} have no result"


def check_answers(log: Log, acknowledged: Iterable[tuple[str, str]], refused: Iterable[tuple[str, str]] = ()) -> None:
    """Check that what was acknowledged is in the log, and became the result; what was refused is not in it.

    Args:
        log: From its first record.
        acknowledged: Tool call ids and answers that were accepted.
        refused: The same of those that were not.
    """
    given = {
        event.tool_call_id: (event.payload or {}).get("answer")
        for event in log
        if isinstance(event, ev.AskSettled) and event.outcome is AskOutcome.ANSWERED
    }
    for call, text in acknowledged:
        assert given.get(call) == text, f"{text!r} for {call} was acknowledged and is not in the log: {given}"
    for call, text in refused:
        assert given.get(call) != text, f"{text!r} for {call} was refused and is in the log"
    records = {event.ask.tool_call_id: event.ask for event in log if isinstance(event, ev.AskOpened)}
    state = fold(log)
    results = {m.tool_call_id: m for m in state.messages if isinstance(m, ToolMessage)}
    settled = {event.tool_call_id: event for event in log if isinstance(event, ev.AskSettled)}
    for call in given:
        if call in results and records[call].answers_call:
            wanted = answer_content(_as_record(records[call], settled[call]))
            assert results[call].content == wanted, f"the result of {call} is not its answer: {results[call]}"


def _as_record(ask: Ask, settled: ev.AskSettled) -> AskRecord:
    return AskRecord(ask, settled.run, settled.outcome, settled.payload, settled.note)


def check_session(session: Session) -> None:
    """Check a session whose runs have all ended: log and state agree, and nothing of the runs is left."""
    state, first = session.state, session.log_base + 1
    if first == 1:
        check_log(session.log)
        assert fold(session.log) == state, "the fold of the log is not the live state"
    assert [event.seq for event in session.log] == list(range(first, state.seq + 1)), "the end of the log has a gap"
    assert not state.root and not state.runs and not state.queue, f"runs are left: {state.runs} {state.queue}"
    assert not state.open_asks() and not state.asks, f"asks are left: {state.asks}"
    assert not session.lives, f"live runs are left: {session.lives}"
    assert not session.callers, f"callers are left: {session.callers}"
    assert not session._waiters, f"waiters are left: {session._waiters}"  # pyright: ignore[reportPrivateUsage]
    assert not session._outbox, f"the outbox is not empty: {session._outbox}"  # pyright: ignore[reportPrivateUsage]
    assert not session._readers, f"readers are left: {session._readers}"  # pyright: ignore[reportPrivateUsage]


def check_agent(agent: Agent) -> None:
    """Check an agent none of whose runs is active: no count, no deadline is left."""
    assert agent.active_runs == 0, f"{agent.active_runs} runs are still counted as active"
    assert not agent.grace._due, f"runs are still watched: {agent.grace._due}"  # pyright: ignore[reportPrivateUsage]
