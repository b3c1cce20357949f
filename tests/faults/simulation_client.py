"""One client of a simulation: what it sees of each session it is attached to, and what it does next.

It speaks as a link of the gateway does: commands go through a session's mailbox, events come to a reader that may stop
taking them, a disconnect loses the replies on their way, and what was not replied to is repeated under the same id.
"""

from collections.abc import Callable, Sequence
from typing import Any

import trio

from actors.agent.handle import SessionHandle
from actors.agent.serving import Attached, StateResult
from protocol import commands as cmd
from protocol import events as ev
from protocol.asks import RESPONSE_EVENT
from protocol.errors import Code, RuleViolation
from tests.faults.simulation_ledger import Attempt, Command
from tests.faults.simulation_seat import Seat
from tests.faults.simulation_world import World

THINK_S = 100.0
#: Clients react in steps, so that several of them often do so in the same instant.
_REACTIONS_S = (0, 0, 1, 1, 5, 5, 20, 60)


class Client:
    """One client and its connection.

    Attributes:
        seats: Its attachments, by session.
        cursors: Log and seq it knows of sessions that it is not attached to.
    """

    def __init__(self, world: World, name: str, sessions: Sequence[str]) -> None:
        self.world = world
        self.name = name
        self.seats: dict[str, Seat] = {}
        self.cursors: dict[str, tuple[str, int]] = {}
        self._sessions = sessions
        self._sent: list[Command] = []
        self._asked: list[tuple[str, str]] = []
        self._made = 0
        self._connection = 0
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Think and act, until cancelled."""
        draw = self.world.draw
        try:
            async with trio.open_nursery() as self._nursery:
                while True:
                    await trio.sleep(draw.choice((0, 1, 1)) * round(draw.expovariate(1 / THINK_S)))
                    for _ in range(draw.choice((1, 1, 1, 2))):
                        await self.step()
        finally:
            self.disconnect()

    # ---- what it does

    async def step(self) -> None:
        """Do one thing. A checkpoint."""
        draw = self.world.draw
        await trio.lowlevel.checkpoint()
        session = draw.choice(self._sessions)
        handle = self.world.handle(session)
        if handle is None:
            return
        if session not in self.seats:
            await self._attach(handle, session)
        else:
            (act,) = draw.choices(_ACTS, _WEIGHTS)
            await act(self, handle, session)
        self.world.look(session)

    async def _attach(self, handle: SessionHandle, session: str) -> None:
        draw = self.world.draw
        log_id, cursor = self.cursors.get(session, ("", 0))
        if draw.random() < 0.1:
            log_id = draw.choice(("", "another"))
        room = draw.randrange(4, 60) if draw.random() < 0.25 else -1
        seat = Seat(self.world, self.name, session, room, self._react)
        connection = self._connection

        def attached(result: Any) -> None:
            seat.replied()
            self.world.recorder.note(self.name, session, _outcome(result))
            if isinstance(result, RuleViolation):
                seat.ended = True
                return
            assert isinstance(result, Attached)
            if connection != self._connection or self._over:
                seat.ended = True
                self.world.start(self._drop_later, seat)  # the session adds the reader after this reply
                return
            self._drop(self.seats.get(session))
            seat.begin(result)
            self.seats[session] = seat
            self.world.recorder.count(f"attached {result.mode}")

        params = cmd.Attach(session=session, log_id=log_id, cursor=cursor if log_id else 0)
        if await self._submit(handle, params, attached, reader=seat):
            self.world.waiting += 1

    async def _prompt(self, handle: SessionHandle, session: str) -> None:
        draw = self.world.draw
        text = f"please {self.name} {self._made} {draw.randrange(10**9)}"
        when_busy = draw.choice(("reject", "reject", "queue", "steer"))
        await self._command(handle, session, cmd.Prompt, text, text=text, when_busy=when_busy)

    async def _steer(self, handle: SessionHandle, session: str) -> None:
        text = f"rather {self.name} {self._made}"
        await self._command(handle, session, cmd.Steer, text, text=text)

    async def _cancel(self, handle: SessionHandle, session: str) -> None:
        run = self.seats[session].run if self.world.draw.random() < 0.3 else ""
        await self._command(handle, session, cmd.Cancel, run=run, reason=f"said {self.name}")

    async def _answer_again(self, handle: SessionHandle, session: str) -> None:
        """Answer some ask that was seen at some time, perhaps settled long ago, perhaps another session's."""
        if self._asked:
            target, call = self.world.draw.choice(self._asked[-8:])
            there = self.world.handle(target)
            if there is not None and target in self.seats:
                await self._answer(there, target, call)

    async def _answer(self, handle: SessionHandle, session: str, call: str) -> None:
        draw, text = self.world.draw, f"{self.name} says {self._made}"
        match draw.randrange(10):
            case 0:
                await self._command(handle, session, cmd.Answer, ask=call, outcome="declined", note="not now")
            case 1:
                await self._command(handle, session, cmd.Answer, ask=call, answer=" ")
            case 2 | 3 | 4:
                payload = {"tool_call_id": call, "answer": text}
                await self._command(handle, session, cmd.ExternalEvent, text, name=RESPONSE_EVENT, payload=payload)
            case _:
                await self._command(handle, session, cmd.Answer, text, ask=call, answer=text)

    async def _repeat(self, handle: SessionHandle, session: str) -> None:
        """Send again what had no reply, or what had one: at least once on the wire."""
        unsure = [command for command in self._sent[-20:] if not command.seen] or self._sent[-5:]
        if unsure:
            command = self.world.draw.choice(unsure)
            there = self.world.handle(command.session)
            if there is not None:
                self.world.recorder.count("repeats")
                await self._send(there, command)

    async def _ask_state(self, handle: SessionHandle, session: str) -> None:
        def shown(result: Any) -> None:
            self.world.waiting -= 1
            self.world.recorder.note(self.name, session, _outcome(result))
            if isinstance(result, StateResult):
                self.world.snapshots.append(result.snapshot)

        params = self.world.draw.choice((cmd.GetState(session=session), cmd.GetHistory(session=session, limit=5)))
        if await self._submit(handle, params, shown):
            self.world.waiting += 1

    async def _close(self, handle: SessionHandle, session: str) -> None:
        def begun(result: Any) -> None:
            self.world.waiting -= 1
            if not isinstance(result, RuleViolation):
                self.world.recorder.count("sessions closed")
                self.world.start(self.world.close_session, session)

        if await self._submit(handle, cmd.Close(session=session), begun):
            self.world.waiting += 1

    async def _leave(self, handle: SessionHandle, session: str) -> None:
        self._drop(self.seats.pop(session, None))

    async def _disconnect(self, handle: SessionHandle, session: str) -> None:
        self.world.recorder.count("disconnects")
        self.disconnect()

    # ---- how

    @property
    def _over(self) -> bool:
        return self._nursery is None or self._nursery.cancel_scope.cancel_called

    def disconnect(self) -> None:
        """Lose the connection: no session knows this client any more, and no reply reaches it."""
        self._connection += 1
        for seat in list(self.seats.values()):
            self._drop(seat)
        self.seats.clear()

    def forget(self, seat: Seat) -> None:
        """A seat has ended: go on later from what was applied, which may be less than what was sent."""
        if self.seats.get(seat.session) is seat:
            del self.seats[seat.session]
        if seat.log_id:
            lost = self.world.draw.choice((0, 0, 1, 3))
            self.cursors[seat.session] = (seat.log_id, max(seat.seq - lost, 0))

    def _drop(self, seat: Seat | None) -> None:
        if seat is not None:
            seat.ended = True
            session = self.world.find(seat.session)
            if session is not None:
                session.detach(seat)
            self.forget(seat)

    async def _drop_later(self, seat: Seat) -> None:
        await trio.lowlevel.checkpoint()
        session = self.world.find(seat.session)
        if session is not None:
            session.detach(seat)

    async def _command(
        self, handle: SessionHandle, session: str, kind: Callable[..., Any], text_: str = "", **params: Any
    ) -> None:
        self._made += 1
        made = kind(session=session, command=f"{self.name}-{self._made}", **params)
        command = self.world.ledger.command(session, made, text_)
        self._sent.append(command)
        await self._send(handle, command)

    async def _send(self, handle: SessionHandle, command: Command) -> None:
        attempt, connection = Attempt(self.world.ledger, command), self._connection

        def reply(result: Any) -> None:
            attempt(result)
            command.seen = command.seen or connection == self._connection

        arrived = False
        try:
            arrived = await self._submit(handle, command.params, reply)
        finally:
            if not arrived:  # refused at the door, or this client was cancelled in front of it
                attempt.settle()

    async def _submit(self, handle: SessionHandle, params: Any, reply: Any, reader: Any = None) -> bool:
        """Put it into the mailbox; False where it did not get there. A checkpoint.

        Sometimes it may not wait for room: a client that is gone takes with it what has not been taken from it.
        """
        patience_s = 0.0 if self.world.draw.random() < 0.05 else 10.0
        with trio.move_on_after(patience_s):
            try:
                await handle.submit(params, reply, reader=reader)
            except RuleViolation as refused:
                self.world.recorder.note(self.name, "not sent", refused.code)
                if refused.code == Code.SESSION_UNKNOWN:
                    self.world.start(self.world.open_session, handle.id)
                return False
            return True
        self.world.recorder.count("commands withdrawn")
        return False

    def _react(self, seat: Seat, event: ev.Event | None) -> None:
        """A seat has seen a question, or (None) its end."""
        if event is None:
            self.forget(seat)
        elif isinstance(event, ev.AskOpened) and not self._over:
            call = event.ask.tool_call_id
            self._asked.append((seat.session, call))
            if self.world.draw.random() < 0.7:
                assert self._nursery is not None
                self._nursery.start_soon(self._answer_soon, seat.session, call)

    async def _answer_soon(self, session: str, call: str) -> None:
        await trio.sleep(self.world.draw.choice(_REACTIONS_S))
        handle = self.world.handle(session)
        if handle is not None and session in self.seats:  # whoever answers watches the session
            await self._answer(handle, session, call)


def _outcome(result: Any) -> str:
    if isinstance(result, RuleViolation):
        return str(result.code)
    return f"{type(result).__name__} {getattr(result, 'seq', '')} {getattr(result, 'mode', '')}"


_CHOICES: dict[Callable[[Client, SessionHandle, str], Any], int] = {
    Client._prompt: 40,  # pyright: ignore[reportPrivateUsage]
    Client._steer: 4,  # pyright: ignore[reportPrivateUsage]
    Client._cancel: 16,  # pyright: ignore[reportPrivateUsage]
    Client._answer_again: 8,  # pyright: ignore[reportPrivateUsage]
    Client._repeat: 10,  # pyright: ignore[reportPrivateUsage]
    Client._ask_state: 5,  # pyright: ignore[reportPrivateUsage]
    Client._close: 2,  # pyright: ignore[reportPrivateUsage]
    Client._leave: 3,  # pyright: ignore[reportPrivateUsage]
    Client._disconnect: 5,  # pyright: ignore[reportPrivateUsage]
}
_ACTS, _WEIGHTS = list(_CHOICES), list(_CHOICES.values())
