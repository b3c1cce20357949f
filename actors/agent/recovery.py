"""How a session comes back from its store: what it was, what becomes of its runs, and snapshots for the next time.

What becomes of runs is decided in `protocol.resume`. It must not know how a store keeps things.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from actors.agent.ports import StoredLog
from protocol import decisions, resume
from protocol import events as ev
from protocol.chat import AssistantMessage, ImagePart, Message, UserMessage
from protocol.history import State, fold
from protocol.limits import Limits

if TYPE_CHECKING:
    from actors.agent.run import LiveRun
    from actors.agent.session import Session

logger = logging.getLogger("actors.session")


def recover(session: "Session", stored: StoredLog) -> None:
    """Become what a store says. Its runs are left as they were: see `go_on`.

    Raises:
        LocalProtocolError: The log is not one of ours.
    """
    tail = list(stored.events)
    session.become(fold(tail, stored.snapshot or State()), tail)


def go_on(session: "Session") -> None:
    """Decide about the runs that a log which was cut off has left, and start what goes on. Never a checkpoint.

    Called once the session is there for everybody: where whoever opens it is cancelled, nothing has begun.
    """
    agent, state = session.agent, session.state
    if session.nursery is None:
        return  # its actor was stopped at once
    if state.runs:
        session.append(resume.resume(state, mode=agent.resume, max_resumes=agent.limits.max_resumes))
    for run_id in list(state.runs) if session.closed is None else ():
        if session.live(run_id) is None:  # else it has waited behind the one that was interrupted, which is no more
            agent.start_run(session, run_id)
    if session.closed is None:
        session.append(decisions.start_queued(state))


# ---- a run that goes on


async def wait_continued(live: "LiveRun") -> bool:
    """Wait until a person has said whether a run goes on; if not, it has ended. A checkpoint where it waits."""
    session, record = live.session, live.record
    live.going = live.resting = 1
    await session.wait_settled(record.held)
    live.going = live.resting = 0
    if live.over:
        return False
    await trio.lowlevel.checkpoint_if_cancelled()  # settled and stopped in one tick
    session.append(resume.settle_held(session.state, record), run=live.id)
    live.over = live.id not in session.state.runs
    return not live.over


def interrupt_calls(live: "LiveRun") -> bool:
    """Settle the calls that had started, now that the run has its tools and it is known which may be made again.

    Returns:
        Whether these were the last ones of the turn, which is over by that.
    """

    def may_retry(name: str) -> bool:
        tool = live.context.tool(name)
        return tool is not None and tool.retry == "safe"

    session, record = live.session, live.record
    before = record.calls
    session.append(resume.interrupt_calls(session.state, record, retryable=may_retry), run=live.id)
    return bool(before) and not record.calls


def last_response(live: "LiveRun") -> AssistantMessage:
    """Return what the model said last in a run, in this life or in one before."""
    messages = live.session.state.messages if live.record.turn else []
    return next((said for said in reversed(messages) if isinstance(said, AssistantMessage)), AssistantMessage())


# ---- snapshots

#: After how many records it is looked whether a snapshot is wanted.
_WEIGH = 32


def weigh_after(limits: Limits) -> int:
    """After how many records the text of a session is weighed."""
    return min(_WEIGH, limits.snapshot_records)


def weigh(session: "Session") -> None:
    """Save a snapshot if so much was recorded since the last one that reading it again would take long."""
    limits, seq = session.agent.limits, session.state.seq
    for event in session.log[max(session.weighed - session.log_base, 0) :]:
        chars = TEXT_OF.get(type(event))
        if chars is not None:
            session.unsaved_chars += chars(event)
    session.weighed, session.weigh_at = seq, seq + weigh_after(limits)
    if seq - session.saved_seq >= limits.snapshot_records or session.unsaved_chars >= limits.snapshot_bytes:
        save_snapshot(session)


def save_snapshot(session: "Session", *, at_once: bool = False) -> None:
    """Let the store keep the state as it is, which is that after the last record appended.

    If that fails, the log is longer to read: nothing else is lost. Unless it is wanted `at_once`, it waits in a long
    history: else each snapshot would cost more than all that was recorded since the one before.
    """
    if session.state.seq - session.saved_seq < len(session.state.messages) // 4 and not at_once:
        return
    session.saved_seq, session.unsaved_chars = session.state.seq, 0
    try:
        session.agent.store.save_snapshot(session.id, session.state)
        _trim(session)
    except Exception:
        logger.warning("session %s: no snapshot was saved", session.id, exc_info=True)


def _trim(session: "Session") -> None:
    """Let the store forget the records that are not to be kept behind the snapshot which was just saved."""
    agent = session.agent
    if agent.retention is None:
        return
    first = session.state.seq + 1 - agent.retention.records
    if first > 1:
        age_s = agent.retention.age_s
        agent.store.trim(session.id, first, before=None if age_s is None else agent.clock.now() - age_s)


def _message(message: Message) -> int:
    chars = len(message.content)
    if isinstance(message, AssistantMessage):
        chars += len(message.reasoning)
        for call in message.tool_calls:
            chars += sum(len(value) for value in call.arguments.values() if type(value) is str)
    elif isinstance(message, UserMessage):
        chars += sum(len(part.url if isinstance(part, ImagePart) else part.text) for part in message.parts)
    return chars


def _added(event: ev.MessageAdded | ev.ModelCompleted) -> int:
    return _message(event.message)


def _replaced(event: ev.HistoryReplaced) -> int:
    return sum(map(_message, event.messages))


def _result(event: ev.ToolCompleted | ev.ToolFailed) -> int:
    return len(event.result.content)


#: About how many characters the events that may be large add to a log.
TEXT_OF: dict[type[ev.Event], Callable[[Any], int]] = {
    ev.MessageAdded: _added,
    ev.ModelCompleted: _added,
    ev.HistoryReplaced: _replaced,
    ev.ToolCompleted: _result,
    ev.ToolFailed: _result,
}
