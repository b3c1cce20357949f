"""What must hold when all lives are over: what clients saw, and what was acknowledged to them, is what was kept.

Everything is looked at from outside: the logs as another process reads them, the views of the clients, and what the
tools have noted. It must not know when, or how often, the server was killed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from protocol import events as ev
from protocol.asks import AskOutcome
from protocol.errors import LocalProtocolError
from tests.faults.invariants import check_answers, check_log
from tests.faults.kill_script import ACTING, ONCE
from tests.faults.kill_view import Command, Findings, Kind, View
from tests.faults.simulation_checks import check_snapshots

Log = Sequence[ev.Event]
Effects = Mapping[str, Mapping[str, Sequence[str]]]
_RESULTS = (ev.ToolCompleted, ev.ToolFailed, ev.ToolSkipped)


def check_session(
    session: str, log: Log, views: Iterable[View], commands: Sequence[Command], effects: Effects, findings: Findings
) -> None:
    """Check one session whose runs have all ended.

    Args:
        session: Its id.
        log: All of it.
        views: What clients saw of it.
        commands: What they sent, to any session.
        effects: What tools noted, see `read_effects`.
        findings: Gets what does not hold.
    """
    views = list(views)
    mine = [command for command in commands if command.session == session]
    _hold("wrong", session, findings, lambda: check_log(log))
    _hold("wrong", session, findings, lambda: check_snapshots(log, [one for view in views for one in view.snapshots]))
    answers = [(command.params["ask"], command.text) for command in mine if command.method == "answer" and command.ack]
    said = [(call, text) for call, text in answers if text]
    _hold("lost", session, findings, lambda: check_answers(log, said))
    for view in views:
        _check_view(view, log, findings)
    _check_commands(session, log, mine, findings)
    _check_asks(session, log, findings)
    _check_tools(session, log, effects, findings)


def _hold(kind: Kind, session: str, findings: Findings, check: Callable[[], None]) -> None:
    try:
        check()
    except (AssertionError, LocalProtocolError) as error:
        findings.add(kind, f"{session}: {error}")


def _check_view(view: View, log: Log, findings: Findings) -> None:
    """What was shown is in the log, as it was shown."""
    for seq, event in view.events.items():
        if seq > len(log):
            findings.add("lost", f"{view.session}: record {seq} was shown, the log ends at {len(log)}")
            return
        if log[seq - 1] != event:
            findings.add("lost", f"{view.session}: record {seq} was shown as {event}, and is {log[seq - 1]}")
            return
    if log and isinstance(log[0], ev.SessionOpened) and view.log_id not in ("", log[0].log_id):
        findings.add("lost", f"{view.session}: {view.log_id} was shown, the log is {log[0].log_id}")


def _check_commands(session: str, log: Log, commands: Sequence[Command], findings: Findings) -> None:
    caused: dict[str, list[ev.Event]] = {}
    for event in log:
        if event.cause:
            caused.setdefault(event.cause, []).append(event)
    inputs = Counter(event.message.content for event in log if isinstance(event, ev.MessageAdded) and event.input)
    for command in commands:
        events = caused.pop(command.id, [])
        where = f"{session}: {command.method} {command.id}"
        if command.refused and not command.ack and events:
            findings.add("wrong", f"{where} was refused with {command.refused}, and there is {events[0]}")
        if command.unsure:
            findings.add("wrong", f"{where} was never replied to")
        if command.ack:
            _check_acknowledged(where, command, command.ack, events, log, findings)
        if command.method == "prompt" and inputs[command.text] > 1:
            findings.add("duplicated", f"{where} entered the history {inputs[command.text]} times")
    for cause in caused:
        findings.add("wrong", f"{session}: there are records of a command {cause} that nobody has sent")


def _check_acknowledged(
    where: str, command: Command, ack: tuple[int, str], events: Sequence[ev.Event], log: Log, findings: Findings
) -> None:
    seq, run = ack
    if command.method == "cancel" and not events:
        if run and _goes_on(log, run, seq):
            findings.add("lost", f"{where} was acknowledged at {seq}, and run {run} was not cancelled by then")
        return
    if seq not in [event.seq for event in events]:
        findings.add("lost", f"{where} was acknowledged as {seq}, its records are {[event.seq for event in events]}")
        return
    if command.method in ("prompt", "steer"):
        first = [event for event in events if isinstance(event, ev.RunStarted | ev.RunQueued | ev.SteeringQueued)]
        texts = [e.message.content if isinstance(e, ev.SteeringQueued) else e.input.content for e in first]
        if texts != [command.text]:
            findings.add("lost" if not texts else "duplicated", f"{where} says {command.text!r}, its records {texts}")
    elif command.method == "answer":
        ends = [event for event in events if isinstance(event, ev.AskSettled)]
        wanted = AskOutcome.ANSWERED if command.text else AskOutcome.DECLINED
        if [(end.tool_call_id, end.outcome) for end in ends] != [(command.params["ask"], wanted)]:
            findings.add("lost" if not ends else "duplicated", f"{where} was to be {wanted}: {ends}")
    else:
        end = next((event for event in log if isinstance(event, ev.RUN_ENDS) and event.run == events[0].run), None)
        if not isinstance(end, ev.RunCancelled):
            findings.add("lost", f"{where} was acknowledged, and run {events[0].run} ended with {end}")


def _goes_on(log: Log, run: str, seq: int) -> bool:
    """Return whether a run had begun by a record, and was neither cancelled nor at its end."""
    mine = [event for event in log[:seq] if event.run == run]
    over = any(isinstance(event, (ev.CancelRequested, *ev.RUN_ENDS)) for event in mine)
    return any(isinstance(event, ev.RunStarted | ev.RunQueued) for event in mine) and not over


def _check_asks(session: str, log: Log, findings: Findings) -> None:
    """A question is put once, and is not withdrawn but by a cancel: what was open at a kill is open afterwards."""
    opened: set[str] = set()
    cancelled: set[str] = set()
    for event in log:
        if isinstance(event, ev.CancelRequested):
            cancelled.add(event.run)
        elif isinstance(event, ev.AskOpened):
            if event.ask.tool_call_id in opened:
                findings.add("duplicated", f"{session}: {event.ask.tool_call_id} was asked again at {event.seq}")
            opened.add(event.ask.tool_call_id)
        elif isinstance(event, ev.AskSettled) and event.outcome is AskOutcome.CANCELLED and event.run not in cancelled:
            findings.add("lost", f"{session}: nobody withdrew {event.tool_call_id}, and it was closed at {event.seq}")


def _check_tools(session: str, log: Log, effects: Effects, findings: Findings) -> None:
    """A call has effects after its start is kept, and again only after an interruption, if its tool allows it."""
    log_id = log[0].log_id if log and isinstance(log[0], ev.SessionOpened) else ""
    noted: Mapping[str, Sequence[str]] = effects.get(log_id) or {}
    starts: Counter[str] = Counter()
    names: dict[str, str] = {}
    running: set[str] = set()
    interrupted: set[str] = set()
    for event in log:
        if isinstance(event, ev.ToolStarted):
            call = event.tool_call_id
            if starts[call] and (event.name in ONCE or call not in interrupted):
                findings.add("tool twice", f"{session}: {event.name} {call} was started again at {event.seq}")
            starts[call] += 1
            names[call] = event.name
            running.add(call)
            interrupted.discard(call)
        elif isinstance(event, ev.RunResumed):
            interrupted |= running
        elif isinstance(event, _RESULTS):
            call = event.result.tool_call_id
            running.discard(call)
            acts = isinstance(event, ev.ToolCompleted) and names.get(call) in ACTING
            if acts and list(noted.get(call, ())[-2:]) != ["begin", "end"]:
                findings.add("lost", f"{session}: {call} is completed, and it noted {noted.get(call)}")
    for call, what in noted.items():
        begun = what.count("begin")
        if begun > (1 if names.get(call) in ONCE else starts[call]):
            findings.add("tool twice", f"{session}: {names.get(call)} {call} acted {begun} times: {what}")
        if not starts[call]:
            findings.add("wrong", f"{session}: {call} acted, and its start is not in the log")
