"""What must hold in a simulation at every checkpoint, when a host has gone, and at the end.

Raises `AssertionError` with a sentence.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from actors.agent.agent import Agent
from actors.agent.session import Session
from protocol import events as ev
from protocol.history import State, apply
from protocol.snapshot import Snapshot, snapshot

Log = Sequence[ev.Event]
Told = Counter[tuple[Session, str, str]]


def check_moment(agent: Agent, session: Session) -> None:
    """Check what must hold of a session at every checkpoint, cheaply."""
    state = session.state
    assert state.seq == len(session.log), f"the state is at {state.seq}, the log at {len(session.log)}"
    assert session.committed <= state.seq, f"{session.committed} of {state.seq} records are committed"
    assert {live.id for live in session.lives} == set(state.runs), f"{session.lives} is not {list(state.runs)}"
    if not state.root:
        assert not state.runs and not state.asks, f"no run is active, and these are left: {state.runs} {state.asks}"
        assert not state.queue, f"no run is active, and {state.queue} wait"
    for record in state.open_asks():
        run = state.runs[record.run]
        assert not run.cancelling, f"ask {record.ask.id} is open while run {run.id} is cancelled"
    waiters = set(session._waiters or ())  # pyright: ignore[reportPrivateUsage]
    open_asks = {record.ask.tool_call_id for record in state.open_asks()}
    assert waiters <= open_asks, f"somebody waits for {waiters - open_asks}, which are settled"
    if not agent._opening:  # pyright: ignore[reportPrivateUsage] - a session that is not there yet may have a run
        lives = sum(len(other.lives) for other in agent._sessions.values())  # pyright: ignore[reportPrivateUsage]
        assert lives == agent.active_runs, f"{agent.active_runs} runs are counted, and there are {lives}"


def check_told(sessions: Mapping[Session, int], told: Told) -> int:
    """Check that extensions were told of the end of every run that was started, and of one end only.

    Args:
        sessions: Sessions whose runs have all ended, with the last of their tasks, and the seq each began with.
        told: How often, of which run of them, what.

    Returns:
        How many runs that were.
    """
    runs = 0
    for session, first in sessions.items():
        mine = session.log[first - 1 :]
        started = {event.run for event in mine if isinstance(event, ev.RunStarted)}
        for end in mine:
            if isinstance(end, ev.RUN_ENDS) and end.run in started:
                good = told[session, end.run, "completed"]
                bad = told[session, end.run, "cancelled"] + told[session, end.run, "failed"]
                # A cancel may come while extensions are told that all is well: the run ends as cancelled.
                wanted = (1, 0) if isinstance(end, ev.RunCompleted) else (min(good, 1), 1)
                assert (good, bad) == wanted, f"of {end} extensions were told {good} times as good, {bad} as bad"
                runs += 1
    return runs


def check_snapshots(log: Log, seen: Iterable[Snapshot]) -> None:
    """Check that what was shown at a seq is what the log says at it; the text in flight is not in the log."""
    wanted: dict[int, list[Snapshot]] = {}
    for shown in seen:
        wanted.setdefault(shown.seq, []).append(shown)
    state = State()
    for event in log:
        apply(state, event)
        for shown in wanted.pop(event.seq, ()):
            assert _without_partial(shown) == snapshot(state), f"a snapshot at {event.seq} is not what the log says"
    assert not wanted, f"snapshots were shown at {list(wanted)}, and the log ends at {len(log)}"


def _without_partial(shown: Snapshot) -> Snapshot:
    if shown.run is None or shown.run.partial is None:
        return shown
    return msgspec.structs.replace(shown, run=msgspec.structs.replace(shown.run, partial=None))
