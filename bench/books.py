"""What the log of a session must say, read while it is written: one end for each run, one outcome for each ask.

It decides what is a violation; it must not know who cancels, answers or prompts, nor when.
"""

from actors.agent.session import Session
from protocol import events as ev
from protocol.asks import AskOutcome


class Violation(RuntimeError):
    """A rule was broken: what was measured is worth nothing."""


class Books:
    """The runs and asks of one session object, from its first record to its last.

    Attributes:
        session: What is read.
        cancelled: Runs that ended as cancelled.
        completed: Runs that ended otherwise.
        promised: Runs whose cancel was acknowledged: no other end is right.
        outcomes: Of the asks that have one, by their `tool_call_id`.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.cancelled = 0
        self.completed = 0
        self.promised: set[str] = set()
        self.outcomes: dict[str, AskOutcome] = {}
        self._position = 0
        self._running: set[str] = set()
        self._ended: set[str] = set()
        self._asks: set[str] = set()

    def read(self) -> int:
        """Read what is new and return how many runs ended as cancelled in it.

        Raises:
            Violation: A run has two ends, or something after its end; it failed, or completed though its cancel was
                acknowledged; an ask has two outcomes.
        """
        before = self.cancelled
        for event in self.session.log[self._position :]:
            self._take(event)
        self._position = len(self.session.log)
        return self.cancelled - before

    def close(self) -> int:
        """Read the rest of a session that has ended, and return the same.

        Raises:
            Violation: As `read`, or a run has no end, or an ask is open.
        """
        cancelled = self.read()
        if self._running:
            raise self._violation(f"the runs {', '.join(sorted(self._running))} have no end")
        if self._asks:
            raise self._violation(f"the asks of {', '.join(sorted(self._asks))} are open")
        return cancelled

    def _take(self, event: ev.Event) -> None:
        if event.run and event.run in self._ended:
            raise self._violation(f"{type(event).__name__} {event.seq} comes after the end of run {event.run}")
        match event:
            case ev.RunStarted() | ev.RunQueued():
                self._running.add(event.run)
            case ev.RunCancelled() | ev.RunCompleted() | ev.RunFailed():
                self._end(event)
            case ev.AskOpened():
                self._asks.add(event.ask.tool_call_id)
            case ev.AskSettled():
                self._settle(event)
            case _:
                pass

    def _end(self, event: ev.RunCancelled | ev.RunCompleted | ev.RunFailed) -> None:
        if event.run not in self._running:
            raise self._violation(f"run {event.run} ended and never began")
        self._running.remove(event.run)
        self._ended.add(event.run)
        if isinstance(event, ev.RunFailed):
            raise self._violation(f"run {event.run} failed: {event.code} {event.message}")
        if isinstance(event, ev.RunCancelled):
            self.cancelled += 1
            self.promised.discard(event.run)
            return
        if event.run in self.promised:
            raise self._violation(f"the cancel of run {event.run} was acknowledged, and it completed")
        self.completed += 1

    def _settle(self, event: ev.AskSettled) -> None:
        if event.tool_call_id not in self._asks:
            raise self._violation(f"the ask of {event.tool_call_id} was not open when it became {event.outcome}")
        self._asks.remove(event.tool_call_id)
        self.outcomes[event.tool_call_id] = event.outcome

    def _violation(self, text: str) -> Violation:
        return Violation(f"session {self.session.id}: {text}")
