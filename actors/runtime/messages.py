"""An actor's messages, one by one: `async for message in ctx`.

It decides when a body that drains its mailbox checks for cancellation and gives way to others. It must not know how
actors start, end or restart.

A trip through trio's scheduler costs ten times what the rest of a message costs. So there is one only when there is
nothing to do, or at least every 32 messages; cancellation is checked with every message all the same.
"""

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import trio
from trio.lowlevel import Task, checkpoint, checkpoint_if_cancelled, current_task

from actors.runtime import waits

if TYPE_CHECKING:
    from actors.runtime.actor import Actor

M = TypeVar("M")

#: How many messages a body may take in a row without letting other tasks run: 32 messages of 1 us hold the others up
#: for less than 0.1 ms.
BURST = 32
_NOTHING: Any = object()


class PlainMessages(Generic[M]):
    """The iterator, by trio's public means: each message costs a coroutine for the check, and a look at the clock."""

    __slots__ = ("_actor", "_left")

    def __init__(self, actor: "Actor[M]") -> None:
        self._actor = actor
        self._left = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        # A plain method, no async generator: one that is left behind would be closed by the garbage collector.
        await checkpoint_if_cancelled()
        if self._left:
            self._left -= 1
        else:
            await _begin(self._actor)
            self._left = BURST - 1
        actor = self._actor
        try:
            # Polled: a caught `WouldBlock` would keep its frame for as long as the actor waits.
            message = actor.mailbox.poll(_NOTHING)
            if message is _NOTHING:
                actor.current = None
                message = await actor.mailbox.park()
                self._left = BURST - 1
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        actor.since = actor.system.wheel.stamp()
        actor.current = message
        return message


class QuickMessages(Generic[M]):
    """The same, reading two things that trio keeps for each task and has no public name for: whether it is cancelled,
    and how often it has let others run. The clock is read, and the burst begins anew, only when that has changed.

    The message in hand is therefore as old as it seems or younger, by what up to 31 messages took that were handled
    without letting anybody else run.
    """

    __slots__ = ("_actor", "_left", "_mailbox", "_now", "_task", "_turns")

    def __init__(self, actor: "Actor[M]") -> None:
        self._actor = actor
        self._mailbox = actor.mailbox
        self._now = actor.system.wheel.stamp
        self._task = current_task()
        self._turns = -1
        self._left = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        task: Any = self._task
        mailbox = self._mailbox
        if mailbox.queue or mailbox.lanes is not None or not self._left or not mailbox.senders:
            if task._cancel_status.effectively_cancelled:
                await checkpoint()
            if self._left and task._schedule_points == self._turns:
                self._left -= 1
            else:
                await self._next_burst(task)
            queue = mailbox.queue
            if queue and not mailbox.look:
                # `poll`, written out: this line is where a busy actor spends its time.
                mailbox.handled += 1
                message = self._actor.current = queue.popleft()
                return message
            try:
                # Polled: a caught `WouldBlock` would keep its frame for as long as the actor waits.
                message = mailbox.poll(_NOTHING)
            except trio.EndOfChannel:
                raise StopAsyncIteration from None
            if message is not _NOTHING:
                self._actor.current = message
                return message
        # Nothing is there. To wait lets others run, and sees a cancel, by itself.
        actor = self._actor
        actor.current = None
        # Looked up: were it another task that has got this iterator, trio would wake the wrong one.
        task = self._task = current_task()
        try:
            message = await mailbox.park(task)
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        self._turns = task._schedule_points
        self._left = BURST - 1
        actor.since = self._now()
        actor.current = message
        return message

    async def _next_burst(self, task: Any) -> None:
        # A new iterator: its task is perhaps not the one that received before, and a body that makes one for each
        # message must let others run too (test_a_loop_for_each_message_lets_others_run).
        if self._turns < 0 or self._turns == task._schedule_points:
            await _begin(self._actor)
            task = self._task = current_task()
        self._turns = task._schedule_points
        self._left = BURST - 1
        self._actor.since = self._now()


def note_receiver(actor: "Actor[Any]") -> None:
    """The current task receives. The first receive of a start says that it is done."""
    actor.receives_elsewhere = waits.bodies.get(current_task()) is not actor
    actor.mark_ready(None)


async def _begin(actor: "Actor[Any]") -> None:
    was_ready = actor.ready
    note_receiver(actor)
    if was_ready:
        await checkpoint()


def _trio_has_them() -> bool:
    task: Any = Task
    status: Any = getattr(getattr(trio, "_core", None), "_run", None)
    return hasattr(task, "_cancel_status") and hasattr(task, "_schedule_points") and hasattr(
        getattr(status, "CancelStatus", None), "effectively_cancelled"
    )  # fmt: skip


Messages: type[PlainMessages[Any]] | type[QuickMessages[Any]] = QuickMessages if _trio_has_them() else PlainMessages
