"""A scripted client of a server that is killed: it goes on, in each life of the server, where it was before.

It prompts, steers, answers, declines, cancels, leaves and comes back, and repeats what nobody has acknowledged, under
the id that it had. What it does is drawn from its own seed; what it sees goes into views. It must not know when the
server is killed, nor look at what the server keeps.
"""

import random
from collections.abc import Awaitable, Callable

import trio

from actors.client.connection import Attachment, ConnectFailed, Connection, Detached, LinkClosed, Refused, connect
from tests.faults.kill_script import draw_plan
from tests.faults.kill_town import Town
from tests.faults.kill_view import Command, View

#: The server was ending: whether the command was carried out is not said.
_UNSURE = ("session.closed", "session.crashed", "store.failed")
#: How long a client thinks, times the number of clients: many together do as much as few.
_THINK_S = (0.0, 0.0001, 0.0005, 0.0015)
_POLL_S = 0.0005
_AGAIN_S = 0.05


class Client:
    """One client.

    Attributes:
        views: What it has seen, by session; the first session is its own, which it brings to its end.
    """

    def __init__(self, town: Town, name: str, sessions: list[str], seed: int, *, pace: float) -> None:
        """Be a client that is not connected.

        Args:
            town: What it shares with the others.
            name: Its name, part of all that it says.
            sessions: What it watches, its own first.
            seed: Of all that it draws.
            pace: How often longer it thinks than one that is alone.
        """
        self.name = name
        town.clients += 1
        self._pace = pace
        self.views = {session: View(session, town.findings) for session in sessions}
        self._home = sessions[0]
        self._town = town
        self._draw = random.Random(seed)
        self._sent: list[Command] = []
        self._made = 0
        self._attachments: dict[str, Attachment] = {}
        self._nursery: trio.Nursery | None = None

    async def live(self, *, first: bool) -> None:
        """Be connected to this life of the server until it ends, or until all is at its end.

        Args:
            first: Be the first to attach; all others wait until that is answered.
        """
        town = self._town
        if not first:
            await town.answered.wait()
        done = False
        while not done and not town.over:
            done = await self._be_connected()

    async def _be_connected(self) -> bool:
        """Be connected once; say whether all is at its end."""
        done = False
        try:
            async with connect(self._town.url, self._town.token) as connection:
                async with trio.open_nursery() as self._nursery:
                    await self._work(connection)
                    done = True
                    self._nursery.cancel_scope.cancel(reason="all is at its end")
        except* (ConnectFailed, LinkClosed) as errors:
            if not self._town.over:
                self._town.cut_off[f"cut off: {str(errors.exceptions[0])[:80]}"] += 1
                await trio.sleep(_AGAIN_S)
        finally:
            self._attachments.clear()
        return done

    async def _work(self, connection: Connection) -> None:
        for view in self.views.values():
            await self._open(connection, view)
        self._town.join()
        for command in [command for command in self._sent if command.unsure]:
            await self._send(connection, command)
        while not self._town.finishing:
            await self._think()
            (view,) = self._draw.choices(list(self.views.values()), [3, *[1] * (len(self.views) - 1)])
            if view.session not in self._attachments:
                await self._open(connection, view)
            else:
                await self._act(connection, view)
        while not await self._at_end(connection, self.views[self._home]):  # noqa: ASYNC110 - the server knows
            await trio.sleep(_POLL_S * self._pace)

    # ---- attaching

    async def _open(self, connection: Connection, view: View) -> None:
        """Attach where the view ends, or a few records before: those are to be the same once more."""
        try:
            view.opened(await connection.call("session/open", session=view.session))
            view.cursor = max(view.cursor - self._draw.choice((0, 0, 0, 1, 4)), 0)
            attachment = await connection.attach(view.session, log_id=view.log_id, cursor=view.cursor)
        except Refused as refused:
            self._unexpected(view, "attach", refused)
            return
        self._town.attach_answered()
        view.attached(attachment.log_id, attachment.mode, attachment.cursor, attachment.snapshot)
        self._attachments[view.session] = attachment
        assert self._nursery is not None
        self._nursery.start_soon(self._follow, view, attachment)
        if self._draw.random() < 0.3:
            await self._look(connection, view)

    async def _follow(self, view: View, attachment: Attachment) -> None:
        try:
            async for event in attachment:
                if self._attachments.get(view.session) is not attachment:
                    break  # it has left, and perhaps attached again a few records before
                view.take(event)
        except (Detached, LinkClosed):
            pass
        finally:
            if self._attachments.get(view.session) is attachment:
                del self._attachments[view.session]

    async def _leave(self, connection: Connection, view: View) -> None:
        await self._attachments.pop(view.session).detach()

    async def _look(self, connection: Connection, view: View) -> bool:
        """Read the state, and say whether nothing is active or queued in it."""
        try:
            shown = view.show((await connection.call("session/state", session=view.session))["snapshot"])
        except Refused as refused:
            self._unexpected(view, "state", refused)
            return False
        return shown.run is None and not shown.queue

    def _unexpected(self, view: View, what: str, refused: Refused) -> None:
        if refused.code not in _UNSURE:
            self._town.findings.add("wrong", f"{view.session}: {what} was refused: {refused}")

    # ---- acting

    async def _act(self, connection: Connection, view: View) -> None:
        if view.asks and self._draw.random() < 0.5:
            await self._answer(connection, view)
        elif not view.runs and self._draw.random() < 0.6:
            await self._prompt(connection, view, "reject")
        else:
            (act,) = self._draw.choices([act for act, _ in _ACTS], [weight for _, weight in _ACTS])
            await act(self, connection, view)

    async def _prompt(self, connection: Connection, view: View, when_busy: str) -> None:
        text = f"{self.name}.{self._made} {draw_plan(self._draw)}"
        await self._command(connection, view, "prompt", text, text=text, when_busy=when_busy)

    async def _queue(self, connection: Connection, view: View) -> None:
        await self._prompt(connection, view, "queue")

    async def _steer(self, connection: Connection, view: View) -> None:
        text = f"{self.name}.{self._made} MIND IT"
        await self._command(connection, view, "steer", text, text=text)

    async def _cancel(self, connection: Connection, view: View) -> None:
        run = next(iter(view.runs), "") if self._draw.random() < 0.5 else ""
        await self._command(connection, view, "cancel", run=run, reason=f"said {self.name}")

    async def _answer(self, connection: Connection, view: View) -> None:
        """Answer what is open, several questions at the same time, now and then one that somebody cancels."""
        async with trio.open_nursery() as nursery:
            for ask in list(view.asks)[: self._draw.choice((1, 1, 2, 4))]:
                if self._draw.random() < 0.1:
                    nursery.start_soon(self._decline, connection, view, ask)
                else:
                    nursery.start_soon(self._answer_one, connection, view, ask)
            if self._draw.random() < 0.03 and not self._town.finishing:
                nursery.start_soon(self._cancel, connection, view)

    async def _answer_one(self, connection: Connection, view: View, ask: str) -> None:
        text = f"{self.name}.{self._made} is what"
        await self._command(connection, view, "answer", text, ask=ask, answer=text)

    async def _decline(self, connection: Connection, view: View, ask: str) -> None:
        await self._command(connection, view, "answer", ask=ask, outcome="declined", note=f"no, said {self.name}")

    async def _repeat(self, connection: Connection, view: View) -> None:
        """Send once more what was acknowledged: nothing comes of it.

        Not a cancel: one that found nothing to cancel left no record, so in the next life it may find something.
        """
        done = [command for command in self._sent[-30:]
                if command.ack and command.method != "cancel" and command.session in self._attachments]  # fmt: skip
        if done:
            await self._send(connection, self._draw.choice(done))

    async def _do_nothing(self, connection: Connection, view: View) -> None:
        await self._think()

    async def _think(self) -> None:
        await trio.sleep(self._draw.choice(_THINK_S) * self._pace)

    async def _command(self, connection: Connection, view: View, method: str, text_: str = "", **params: str) -> None:
        command = Command(f"{self.name}-{self._made}", view.session, method, params, text_)
        self._made += 1
        self._sent.append(command)
        self._town.commands.append(command)
        await self._send(connection, command)

    async def _send(self, connection: Connection, command: Command) -> None:
        try:
            result = await connection.call(
                f"session/{command.method}", session=command.session, command=command.id, **command.params
            )
        except Refused as refused:
            if refused.code not in (*_UNSURE, "link.not_attached"):
                command.refuse(refused.code, self._town.findings)
        else:
            command.acknowledged(result, self._town.findings)

    async def _at_end(self, connection: Connection, home: View) -> bool:
        """Do what is left to do; say whether nothing is."""
        if home.session not in self._attachments:
            await self._open(connection, home)
        for command in [command for command in self._sent if command.unsure]:
            await self._send(connection, command)
        if any(command.unsure for command in self._sent):
            return False
        self._town.sure.add(self.name)
        if len(self._town.sure) < self._town.clients:
            return False  # a neighbour may repeat a prompt of its life before
        if home.asks:
            await self._answer(connection, home)
        return not home.runs and await self._look(connection, home)


_ACTS: list[tuple[Callable[[Client, Connection, View], Awaitable[None]], int]] = [
    (Client._queue, 2),  # pyright: ignore[reportPrivateUsage]
    (Client._steer, 2),  # pyright: ignore[reportPrivateUsage]
    (Client._cancel, 2),  # pyright: ignore[reportPrivateUsage]
    (Client._repeat, 4),  # pyright: ignore[reportPrivateUsage]
    (Client._leave, 3),  # pyright: ignore[reportPrivateUsage]
    (Client._do_nothing, 20),  # pyright: ignore[reportPrivateUsage]
]
