"""Following one session for somebody: events into the view, lines and signals into calls. Knows no terminal.

Who answers questions is settled at the start: a file, a person, both (the file first), or nobody. With nobody a run of
our own is cancelled at its first question; somebody else's run is only looked at.
"""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import msgspec
import trio

from actors.client.answers import AnswerFile
from actors.client.attachment import Attachment
from actors.client.blocks import Block, Ended
from actors.client.connection import Connection
from actors.client.dialogue import Dialogue, Send
from actors.client.errors import LinkClosed, Refused, plain_errors
from actors.client.text import one_line
from actors.client.view import View
from protocol.asks import Ask
from protocol.errors import Code
from protocol.events import AskOpened, Event


class Output(Protocol):
    """Where what happens is shown. Synchronous: it never holds up the events."""

    def block(self, block: Block) -> None:
        """Say this once."""
        ...

    def opened(self, ask: Ask) -> None:
        """A question waits for a person, who may be somebody else."""
        ...

    def notice(self, text: str) -> None:
        """Tell the person here something."""
        ...

    def changed(self) -> None:
        """The view is another one now."""
        ...


class Watch:
    """One session being followed.

    Attributes:
        view: The session.
        dialogue: The exchange with the person here.
        ended: How the run ended, once it has.
        unanswered: The question that nobody could answer, or "".
        aborted: Whoever watches wants to leave at once.
    """

    def __init__(
        self,
        connection: Connection,
        attachment: Attachment,
        *,
        once: bool,
        person: bool,
        answers: AnswerFile | None = None,
        on_abort: Callable[[], None] = lambda: None,
    ) -> None:
        self.view = View()
        self.dialogue = Dialogue()
        self.ended: Ended | None = None
        self.unanswered = ""
        self.aborted = False
        self.once = once
        self._connection = connection
        self._attachment = attachment
        self._person = person
        self._answers = answers
        self._on_abort = on_abort
        self._interrupts = 0
        self._nursery: trio.Nursery | None = None

    async def run(self, output: Output, *tasks: Callable[[], Awaitable[None]]) -> Ended | None:
        """Follow until the run ends (`once`) or the person leaves; return how the run ended.

        Raises:
            Detached: The session sends no more.
            LinkClosed: The connection ended.
        """
        caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        with plain_errors(), trio.open_signal_receiver(*caught) as signals:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._take_signals, signals, output)
                for task in tasks:
                    nursery.start_soon(task)
                self._begin(output)
                await self._follow(output)
                nursery.cancel_scope.cancel(reason="there is nothing more to follow")
        return self.ended

    def _begin(self, output: Output) -> None:
        if self._attachment.snapshot is not None:
            try:
                blocks = self.view.restore(self._attachment.snapshot)
            except msgspec.ValidationError as error:
                raise LinkClosed(1002, f"the server sent a snapshot that cannot be read: {error}") from None
            for block in blocks:
                output.block(block)
        for ask in list(self.view.asks.values()):
            self._opened(ask, output)
        self.dialogue.follow(self.view)
        output.changed()

    async def _follow(self, output: Output) -> None:
        while not (self.once and self.ended):
            self._take(await self._attachment.receive(), output)

    def _take(self, event: Event, output: Output) -> None:
        for block in self.view.apply(event):
            if isinstance(block, Ended):
                self.ended = block
            output.block(block)
        if isinstance(event, AskOpened):
            self._opened(event.ask, output)
        output.changed()

    def _opened(self, ask: Ask, output: Output) -> None:
        if self._answers is not None:
            try:
                self.perform(self.dialogue.prepared(self.view, ask, self._answers), output)
                return
            except KeyError:
                pass
        if self._person or not self.once:
            output.opened(ask)
        else:
            self._nobody(ask.questions[0].question, output)

    def _nobody(self, question: str, output: Output) -> None:
        if not self.unanswered:
            self.unanswered = one_line(question)
            self.perform(Send("session/cancel", {"reason": str(Code.NO_RESPONDER)}), output)

    # ---- what the person here does

    def perform(self, send: Send, output: Output) -> None:
        """Make a call in the background; a refusal is told, and a refused answer can be given again."""
        assert self._nursery is not None
        self._nursery.start_soon(self._call, send, output)

    async def _call(self, send: Send, output: Output) -> None:
        command = self._connection.new_command()
        try:
            await self._connection.call(send.method, session=self._attachment.session, **send.params, command=command)
        except LinkClosed:
            pass  # whoever follows the events learns it too, and says it
        except Refused as refused:
            if send.method == "session/cancel" and refused.code in (Code.SESSION_IDLE, Code.RUN_SETTLED):
                return
            self._refused(send, refused, output)

    def _refused(self, send: Send, refused: Refused, output: Output) -> None:
        ask = self.view.asks.get(send.ask)
        self.dialogue.not_taken(self.view, send.ask)
        over = refused.code in (Code.ASK_SETTLED, Code.ASK_UNKNOWN)
        if ask is not None and not over and not self._person and self.once:
            self._nobody(f"{ask.questions[0].question} ({refused.message})", output)
            return
        output.notice(refused.message)
        output.changed()

    def leave(self) -> None:
        """Stop following; the session goes on."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel(reason="the person left")

    def interrupt(self, output: Output) -> None:
        """Do what Ctrl-C does: leave, or cancel our own run; the second time leave it at once."""
        self._interrupts += 1
        if self.once and self._interrupts == 1:
            self.perform(Send("session/cancel", {"reason": "interrupted"}), output)
            output.notice("cancelling…")
            output.changed()
            return
        if self.once:
            self.abort()
        self.leave()

    def abort(self) -> None:
        """Leave without waiting for what does not end by itself. Idempotent."""
        if not self.aborted:
            self.aborted = True
            self._on_abort()
        self.leave()

    async def _take_signals(self, signals: AsyncIterator[int], output: Output) -> None:
        async for number in signals:
            if number == signal.SIGHUP:
                self.abort()
            else:
                self.interrupt(output)
