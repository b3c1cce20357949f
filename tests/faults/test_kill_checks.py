"""What is compared after a server was killed: each kind of loss is found in logs that are made to have it."""

import msgspec
import pytest

from protocol import events as ev
from protocol.asks import Ask, AskOutcome, Question
from protocol.chat import UserMessage
from tests.faults.kill_checks import check_session
from tests.faults.kill_view import Command, Findings, View

SAID = UserMessage("c0.0 o")


def _log(*more: ev.Event) -> list[ev.Event]:
    """A log with a run that completes, and more in it."""
    events: list[ev.Event] = [
        ev.SessionOpened("s", "l"),
        ev.RunStarted(SAID, run="r2", cause="p1"),
        ev.MessageAdded(SAID, input=True, run="r2"),
        *more,
        ev.RunCompleted(run="r2"),
    ]
    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events, 1)]


def _found(
    log: list[ev.Event], *, acknowledged: tuple[int, str] = (2, "r2"), shown: list[ev.Event] | None = None
) -> str:
    """Return what is found where a client was shown the log, or `shown`."""
    findings = Findings()
    view = View("s", findings)
    view.attached("l", "tail", 0, None)
    for event in log if shown is None else shown:
        view.take(event)
    prompt = Command("p1", "s", "prompt", {}, SAID.content, ack=acknowledged)
    check_session("s", log, [view], [prompt], {}, findings)
    return "; ".join(findings.texts)


def _asked(outcome: AskOutcome) -> list[ev.Event]:
    opened = ev.AskOpened(Ask("a4", "q1", (Question("q1", "?"),)), run="r2")
    return [opened, ev.AskSettled("a4", "q1", outcome, run="r2")]


def test_a_log_as_it_should_be_is_found_to_be_so() -> None:
    assert _found(_log()) == ""


@pytest.mark.parametrize(
    ("log", "acknowledged", "shown", "found"),
    [
        (_log(), (2, "r2"), [*_log(), ev.Custom("x", seq=5)], "lost: s: record 5 was shown, the log ends at 4"),
        (_log(), (2, "r2"), [ev.SessionOpened("s", "m", seq=1)], "lost: s: record 1 was shown as SessionOpened("),
        (_log(), (2, "r2"), [_log()[0], _log()[2]], "gap: s: record 3 came behind 1"),
        (_log(), (9, "r9"), None, "lost: s: prompt p1 was acknowledged as 9, its records are [2]"),
        (
            _log(ev.MessageAdded(SAID, input=True, run="r2")), (2, "r2"), None,
            "duplicated: s: prompt p1 entered the history 2 times",
        ),
        (_log(*_asked(AskOutcome.CANCELLED)), (2, "r2"), None, "lost: s: nobody withdrew q1, and it was closed at 5"),
        (_log(*_asked(AskOutcome.DECLINED) * 2), (2, "r2"), None, "duplicated: s: q1 was asked again at 6"),
        (_log(ev.Custom("x", cause="p2")), (2, "r2"), None, "wrong: s: there are records of a command p2 that nobody"),
    ],
)  # fmt: skip
def test_what_should_not_be_is_found(
    log: list[ev.Event], acknowledged: tuple[int, str], shown: list[ev.Event] | None, found: str
) -> None:
    assert found in _found(log, acknowledged=acknowledged, shown=shown)
