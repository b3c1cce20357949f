"""What a person may say at a moment, and what a line they finish means. Pure.

One question is asked at a time, the one that was opened first; the others wait in view. While no question is open a
line is a prompt when the session is idle and steers the run otherwise. Declining is a key pressed twice, never a word:
every word can be an answer.
"""

from dataclasses import dataclass, field
from typing import Any

from actors.client.answers import AnswerFile, Given, NotUnderstood, answer_params, read_line
from actors.client.view import View
from protocol.asks import Ask, Question
from protocol.history import Status
from protocol.ids import is_blank

CANCEL_COMMAND = "/cancel"


@dataclass(frozen=True, slots=True)
class Send:
    """Call `method` with `params`; `ask` is the ask it settles, or ""."""

    method: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    ask: str = ""


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the person something; nothing is sent."""

    message: str


class Dialogue:
    """Keeps what belongs to the exchange with one person: answers half given, answers on their way."""

    def __init__(self) -> None:
        self._given: dict[str, list[Given]] = {}
        self._sent: set[str] = set()
        self._declining = ""
        self._shown: tuple[str, int] | None = None

    def asking(self, view: View) -> tuple[Ask, Question] | None:
        """Return the question the next line answers: the first that is open and not answered from here yet."""
        for key, ask in view.asks.items():
            if key not in self._sent:
                return ask, ask.questions[len(self._given.get(key, ()))]
        return None

    def waiting(self, view: View) -> list[Ask]:
        """Return the open asks behind the one being asked."""
        return [ask for key, ask in view.asks.items() if key not in self._sent][1:]

    def follow(self, view: View) -> bool:
        """Note what is asked now. True: that changed, and not through a line of this person.

        What stands half typed was meant for what was asked before and must not answer this.
        """
        for key in [key for key in self._given if key not in view.asks]:
            del self._given[key]
        self._sent &= view.asks.keys()
        before, self._shown = self._shown, self._place(view)
        return before != self._shown

    def _place(self, view: View) -> tuple[str, int] | None:
        asking = self.asking(view)
        if asking is None:
            return None
        key = asking[0].tool_call_id
        return key, len(self._given.get(key, ()))

    def submit(self, view: View, line: str) -> Send | Say | None:
        """Return what a finished line means; None where it means nothing."""
        self._declining = ""
        asking = self.asking(view)
        if asking is not None:
            done = self._answer(*asking, line)
            self._shown = self._place(view)
            return done
        if is_blank(line):
            return None
        if line.strip() == CANCEL_COMMAND:
            return Send("session/cancel", {"reason": "by a person"}) if view.run else Say("nothing is running")
        if view.status is Status.IDLE:
            return Send("session/prompt", {"text": line})
        if view.status is Status.CANCELLING:
            return Say("the run is being cancelled")
        return Send("session/steer", {"text": line})

    def _answer(self, ask: Ask, question: Question, line: str) -> Send | Say | None:
        if is_blank(line):
            return None
        said = read_line(question, line)
        if isinstance(said, NotUnderstood):
            return Say(said.message)
        key = ask.tool_call_id
        given = [*self._given.get(key, ()), said]
        if len(given) < len(ask.questions):
            self._given[key] = given
            return None
        self._given.pop(key, None)
        self._sent.add(key)
        return Send("session/answer", {"ask": key, **answer_params(ask, given)}, ask=key)

    def escape(self, view: View) -> Send | Say | None:
        """Return what the escape key means on an empty line: the second one in a row declines the question."""
        asking = self.asking(view)
        if asking is None:
            return None
        key = asking[0].tool_call_id
        if self._declining != key:
            self._declining = key
            return Say("Esc again leaves this question without an answer")
        self._declining = ""
        self._given.pop(key, None)
        self._sent.add(key)
        self._shown = self._place(view)
        return Send("session/answer", {"ask": key, "outcome": "declined"}, ask=key)

    def not_taken(self, view: View, ask: str) -> None:
        """The server refused what was sent for `ask`: it is asked again if it is still open."""
        self._sent.discard(ask)
        self._shown = self._place(view)

    def prepared(self, view: View, ask: Ask, file: AnswerFile) -> Send:
        """Return the answer that a file has for `ask`.

        Raises:
            KeyError: It has none; the text of the question is the argument.
        """
        given: list[Given] = []
        declined = False
        for question in ask.questions:
            answer = file.take(question)
            declined = declined or answer is None
            given.append(Given(tuple(answer) if isinstance(answer, list) else (answer or "",)))
        key = ask.tool_call_id
        self._sent.add(key)
        self._shown = self._place(view)
        if declined:
            return Send("session/answer", {"ask": key, "outcome": "declined"}, ask=key)
        if len(ask.questions) == 1 and len(given[0].values) > 1:
            # As it stands in the file: whether several are allowed is for the server to say.
            return Send("session/answer", {"ask": key, "answer": list(given[0].values)}, ask=key)
        return Send("session/answer", {"ask": key, **answer_params(ask, given)}, ask=key)


def hint(view: View, dialogue: Dialogue, *, once: bool) -> str:
    """Return the line that says what may be typed now. `once`: this is one run and not a conversation."""
    leave = "Ctrl-C cancels" if once else "Ctrl-C detaches"
    if view.cancelling:
        return "cancelling… Ctrl-C again ends at once" if once else f"cancelling… {leave}"
    asking = dialogue.asking(view)
    if asking is None:
        cancel = "" if once or not view.run else f" · {CANCEL_COMMAND}"
        return f"{'type to steer' if view.run else 'type a prompt'}{cancel} · {leave}"
    question = asking[1]
    parts: list[str] = []
    if question.options:
        parts.append("numbers choose, e.g. 1,2" if question.multiple else "a number chooses")
    if question.other or not question.options:
        parts.append("text answers freely" if question.options else "type the answer")
    return " · ".join((*parts, "Esc Esc declines", leave))
