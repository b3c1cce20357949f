"""What a client of a killed server has seen, and what was acknowledged to it: kept over all lives of the server.

It notes at once what contradicts itself; what contradicts the log is found at the end, in `kill_checks`. It must not
know sockets or processes.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from protocol import events as ev
from protocol.snapshot import Snapshot

Kind = Literal["lost", "duplicated", "gap", "tool twice", "wrong"]
Mode = Literal["tail", "snapshot", "reset"]


class Findings:
    """What was found, and how often of each kind; the text of the first few.

    Attributes:
        counts: By kind.
        texts: Sentences.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.texts: list[str] = []

    def add(self, kind: Kind, text: str) -> None:
        self.counts[kind] += 1
        if len(self.texts) < 100:
            self.texts.append(f"{kind}: {text}")


@dataclass
class Command:
    """A command with its effect.

    Attributes:
        id: Made by the client; a repeat has the same.
        text: What a prompt or an answer says; unique, or "".
        ack: What was acknowledged at first, `(seq, run)`.
        refused: The code of a refusal that is final.
    """

    id: str
    session: str
    method: str
    params: dict[str, Any]
    text: str = ""
    ack: tuple[int, str] | None = None
    refused: str = ""

    @property
    def unsure(self) -> bool:
        """Nobody has said what became of it."""
        return self.ack is None and not self.refused

    def acknowledged(self, result: dict[str, Any], findings: Findings) -> None:
        """Take an acknowledgement; a repeat must bring the first one again."""
        ack = int(result["seq"]), str(result.get("run", ""))
        if self.ack is not None and self.ack != ack and self.method in ("prompt", "answer"):
            findings.add("lost", f"{self.session}: {self.id} was acknowledged as {self.ack}, a repeat as {ack}")
        self.ack = self.ack or ack

    def refuse(self, code: str, findings: Findings) -> None:
        """Take a refusal; what was acknowledged cannot be refused afterwards."""
        if self.ack is not None and self.method in ("prompt", "answer"):
            findings.add("lost", f"{self.session}: {self.id} was acknowledged, a repeat refused with {code}")
        self.refused = self.refused or code


@dataclass
class View:
    """What one client has seen of one session.

    Attributes:
        cursor: The last record it has taken, from where it attaches again.
        known: The last record that asks and runs are told of.
        events: Every record it was shown.
        snapshots: Every state it was shown.
        asks: Call ids of the open questions.
        runs: Runs that are active or queued.
        modes: How often it was attached in which way.
    """

    session: str
    findings: Findings
    log_id: str = ""
    cursor: int = 0
    known: int = 0
    events: dict[int, ev.Event] = field(default_factory=dict[int, ev.Event])
    snapshots: list[Snapshot] = field(default_factory=list[Snapshot])
    asks: dict[str, None] = field(default_factory=dict[str, None])
    runs: dict[str, None] = field(default_factory=dict[str, None])
    modes: Counter[str] = field(default_factory=Counter[str])

    def opened(self, result: dict[str, Any]) -> None:
        """Take the result of `session/open`. What it names is there, and stays."""
        if self.log_id and (result["created"] or result["log_id"] != self.log_id or result["seq"] < self.known):
            self.findings.add("lost", f"{self.session}: {self.log_id} was seen up to {self.known}, now {result}")
        self.log_id = self.log_id or result["log_id"]

    def attached(self, log_id: str, mode: Mode, seq: int, snapshot: dict[str, Any] | None) -> None:
        """Take the result of `session/attach`, made with this view's log and cursor."""
        self.modes[mode] += 1
        if self.log_id and (mode == "reset" or log_id != self.log_id):
            self.findings.add(
                "lost", f"{self.session}: {self.log_id} was seen up to {self.cursor}, and now {log_id} is at {seq}"
            )
        if mode == "tail" and seq != self.cursor:
            self.findings.add("gap", f"{self.session}: attached behind {seq}, not {self.cursor}")
        self.log_id = log_id
        self.cursor = seq
        if snapshot is not None:
            shown = self.show(snapshot)
            self.known = shown.seq
            self.asks = dict.fromkeys(ask.tool_call_id for ask in shown.asks)
            self.runs = dict.fromkeys([*([shown.run.id] if shown.run else []), *(one.id for one in shown.queue)])

    def show(self, raw: dict[str, Any]) -> Snapshot:
        """Take a snapshot."""
        shown = msgspec.convert(raw, Snapshot)
        self.snapshots.append(shown)
        return shown

    def take(self, event: ev.Event) -> None:
        """Take what an attachment brings."""
        if not event.durable:
            return
        if event.seq != self.cursor + 1:
            self.findings.add("gap", f"{self.session}: record {event.seq} came behind {self.cursor}")
        self.cursor = event.seq
        before = self.events.setdefault(event.seq, event)
        if before != event:
            self.findings.add("lost", f"{self.session}: record {event.seq} was {before}, and now is {event}")
        if event.seq > self.known:
            self.known = event.seq
            self._apply(event)

    def _apply(self, event: ev.Event) -> None:
        if isinstance(event, ev.AskOpened):
            self.asks[event.ask.tool_call_id] = None
        elif isinstance(event, ev.AskSettled):
            self.asks.pop(event.tool_call_id, None)
        elif isinstance(event, ev.RunStarted | ev.RunQueued):
            self.runs[event.run] = None
        elif isinstance(event, ev.RUN_ENDS):
            self.runs.pop(event.run, None)
