"""The commands of a simulation's clients: each attempt has one reply, and what it says agrees with the log.

A command keeps its id over all its attempts, so at most one of them is carried out.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from actors.agent.serving import Accepted, Acknowledged
from protocol import commands as cmd
from protocol import events as ev
from protocol.asks import AskOutcome
from protocol.errors import Code, RuleViolation
from tests.faults.simulation_store import SimulatedStore
from tests.faults.simulation_trace import Found, Recorder

Log = Sequence[ev.Event]
#: The session ended before its store had said anything: the command may be in the log or not.
_UNKNOWN = (Code.SESSION_CLOSED, Code.SESSION_CRASHED)
_PROMPTS = (ev.RunStarted, ev.RunQueued, ev.SteeringQueued)


@dataclass(slots=True, eq=False)
class Command:
    """One command.

    Attributes:
        text: What its prompt or answer says, unlike any other's.
        acks: Seq and run of each acknowledgement.
        refusals: Why its attempts were refused.
        seen: A reply has reached the client.
    """

    session: str
    params: Any
    text: str = ""
    acks: list[Acknowledged | Accepted] = field(default_factory=list[Acknowledged | Accepted])
    refusals: list[Code] = field(default_factory=list[Code])
    seen: bool = False

    @property
    def id(self) -> str:
        return str(self.params.command)

    @property
    def kind(self) -> str:
        return type(self.params).__name__


class Attempt:
    """One sending of a command; the session calls it with the reply."""

    def __init__(self, ledger: "Ledger", command: Command) -> None:
        self._ledger = ledger
        self.command = command
        self.open = True
        ledger.waiting += 1

    def settle(self) -> None:
        """It has its reply, or has not reached the session."""
        if not self.open:
            self._ledger.recorder.problem(f"command {self.command.id} of {self.command.session} has two replies")
        self.open = False
        self._ledger.waiting -= 1

    def __call__(self, result: Any) -> None:
        self.settle()
        self._ledger.replied(self.command, result)


class Ledger:
    """All commands, and what in-process callers were told of their answers.

    Attributes:
        waiting: Attempts without a reply.
        acknowledged, refused: Tool call ids and texts of answers, by session.
    """

    def __init__(self, recorder: Recorder, store: SimulatedStore) -> None:
        self.recorder = recorder
        self.waiting = 0
        self.commands: list[Command] = []
        self.acknowledged: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self.refused: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self._store = store

    def command(self, session_id: str, params: Any, text: str = "") -> Command:
        made = Command(session_id, params, text)
        self.commands.append(made)
        return made

    def replied(self, command: Command, result: Any) -> None:
        """Take a reply down, and hold it to what is kept."""
        recorder, kind = self.recorder, command.kind.lower()
        if isinstance(result, RuleViolation):
            recorder.note("refused", command.id, result.code)
            recorder.count(f"{kind} refused")
            command.refusals.append(result.code)
            return
        recorder.count(f"{kind} acknowledged")
        recorder.note("acknowledged", command.id, result)
        kept = self._store.logs[command.session].events
        if isinstance(result, Acknowledged):
            recorder.check(
                result.seq <= len(kept), f"{command.id} was acknowledged with {result.seq} of {len(kept)} kept records"
            )
        if not self._store.caused[command.session, command.id]:
            # Nothing had to be recorded: no answer was taken, or there was nothing to cancel.
            if isinstance(result, Accepted):
                recorder.check(not result.accepted, f"{command.id} was accepted and is not in the log")
                command.refusals.append(Code.ASK_UNKNOWN)
            return
        if command.acks:
            recorder.count("repeats acknowledged as before")
            recorder.check(
                command.acks[0] == result, f"{command.id} was acknowledged with {command.acks[0]}, then with {result}"
            )
        command.acks.append(result)

    def check(self) -> None:
        """Hold every command to the logs as they are at the end.

        Raises:
            Found: An acknowledged command is not in the log exactly once, or a refused one is.
        """
        if self.waiting:
            raise Found(f"{self.waiting} attempts were never replied to")
        for command in self.commands:
            self._check(command, self._store.caused[command.session, command.id])

    def _check(self, command: Command, events: Log) -> None:
        unknown = command.id in self._store.doubtful or any(code in _UNKNOWN for code in command.refusals)
        if command.acks and not _carried_out(command, events):
            raise Found(f"{command.params} was acknowledged, and the log has {events}")
        if events and not command.acks:
            if not unknown:  # without a refusal, the client was gone before any attempt got to the session
                raise Found(f"{command.params} was refused, {command.refusals}, and the log has {events}")
            if not _carried_out(command, events):
                raise Found(f"{command.params} was carried out twice, or in part: {events}")
            self.recorder.count("refused as closed or failed, and in the log")
        answer = _answer(command)
        if answer and command.acks:
            self.acknowledged[command.session].append(answer)
        elif answer and command.refusals and not unknown and not events:
            self.refused[command.session].append(answer)


def _carried_out(command: Command, events: Log) -> bool:
    """Whether the records of a command are those of its being carried out once."""
    match command.params:
        case cmd.Prompt() | cmd.Steer():
            return len(events) == 1 and isinstance(events[0], _PROMPTS) and _text_of(events[0]) == command.text
        case cmd.Answer() | cmd.ExternalEvent():
            return len(events) == 1 and isinstance(events[0], ev.AskSettled)
        case _:
            requested = [event for event in events if isinstance(event, ev.CancelRequested | ev.RunCancelled)]
            rest = [event for event in events if event not in requested]
            closed = all(isinstance(event, ev.AskSettled) and event.outcome is AskOutcome.CANCELLED for event in rest)
            return len(requested) == 1 and closed


def _text_of(event: ev.Event) -> str:
    if isinstance(event, ev.SteeringQueued):
        return event.message.content
    return event.input.content if isinstance(event, ev.RunStarted | ev.RunQueued) else ""


def _answer(command: Command) -> tuple[str, str] | None:
    match command.params:
        case cmd.Answer(outcome="answered", ask=ask):
            return ask, command.text
        case cmd.ExternalEvent(payload=payload):
            return payload["tool_call_id"], command.text
        case _:
            return None
