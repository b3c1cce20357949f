"""What an actor's own body sees: its messages, its name, its system.

It decides when a body that drains its mailbox gives way to others. It must not know how actors start, end or restart.
"""

from typing import TYPE_CHECKING, Generic, Self, TypeVar

import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled

from actors.runtime.ref import Ref

if TYPE_CHECKING:
    from actors.runtime.actor import Actor
    from actors.runtime.system import System

M = TypeVar("M")

#: How many messages a body may take in a row without letting other tasks run. A trip through the scheduler costs ten
#: times what the rest of a message costs; 32 messages of 1 us hold the others up for less than 0.1 ms.
BURST = 32


class Ctx(Generic[M]):
    """Given to the body: `async for message in ctx`. One task at a time may receive."""

    __slots__ = ("_actor", "_left", "_mailbox")

    def __init__(self, actor: "Actor[M]") -> None:
        self._actor = actor
        self._mailbox = actor.mailbox
        self._left = 0

    @property
    def name(self) -> str:
        """The actor's name."""
        return self._actor.name

    @property
    def self(self) -> Ref[M]:
        """The actor's own handle, to give to others."""
        return self._actor.ref

    @property
    def system(self) -> "System":
        """The system it lives in."""
        return self._actor.system

    @property
    def nursery(self) -> trio.Nursery:
        """The actor's own nursery: its tasks are cancelled when the body has ended.

        Raises:
            RuntimeError: It was not spawned with `own_nursery=True`.
        """
        nursery = self._actor.nursery
        if nursery is None:
            raise RuntimeError(f"actor {self.name!r} has no nursery; spawn it with own_nursery=True")
        return nursery

    def ready(self, value: object = None) -> None:
        """Say that start-up is done: `spawn` returns, the name can be found. The first receive says it too.

        Args:
            value: Kept as `ref.started_with`. Only the first call of a start counts.
        """
        self._actor.mark_ready(value)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        # A plain method, no async generator: one that is left behind would be closed by the garbage collector. What it
        # shares with `receive` is written out, as a coroutine between costs every idle actor its memory.
        await checkpoint_if_cancelled()
        if self._left:
            self._left -= 1
        else:
            await self._give_way()
        # Asked first: a caught `WouldBlock` would keep its frame for as long as the actor waits.
        if not self._mailbox.would_block:
            try:
                message = self._actor.current = self._mailbox.take()
                return message
            except trio.EndOfChannel:
                raise StopAsyncIteration from None
        self._actor.current = None
        self._left = BURST
        try:
            message = self._actor.current = await self._mailbox.park()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        return message

    async def receive(self) -> M:
        """Wait for the next message. It checks for cancellation each time, and lets others run at least every 32.

        Raises:
            EndOfChannel: The actor was told to drain, and nothing is left.
            BusyResourceError: Another task of the actor is receiving.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise trio.EndOfChannel from None

    def receive_nowait(self) -> M:
        """Take the next message if there is one. No checkpoint: a loop of these must have its own.

        Raises:
            WouldBlock: There is none.
            EndOfChannel: There is none, and the actor was told to drain.
        """
        self._actor.mark_ready(None)
        message = self._actor.current = self._mailbox.take()
        return message

    async def _give_way(self) -> None:
        if self._actor.ready:
            await checkpoint()
        else:
            self._actor.mark_ready(None)
        self._left = BURST - 1
