"""What a view says once and leaves standing: the pieces that scroll by. Pure data, text as it came."""

from dataclasses import dataclass
from enum import StrEnum

from protocol.asks import AskOutcome


class Mark(StrEnum):
    """What a line is about; each way of showing has a sign of its own for it."""

    DONE = "done"
    ACTIVE = "active"
    OPEN = "open"
    INTERRUPTED = "interrupted"
    TOOL = "tool"
    FAILED = "failed"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Prompted:
    """What a person said to the session."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """A finished message of the assistant, Markdown."""

    text: str


@dataclass(frozen=True, slots=True)
class Noted:
    """One line about something that happened."""

    mark: Mark
    text: str


@dataclass(frozen=True, slots=True)
class Settled:
    """A question and what became of it."""

    question: str
    outcome: AskOutcome
    answer: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The run's end. `kind` is completed, failed or cancelled; `code` and `message` say why."""

    kind: str
    run: str
    code: str = ""
    message: str = ""
    turns: int = 0
    done: int = 0
    total: int = 0


Block = Prompted | Said | Noted | Settled | Ended
