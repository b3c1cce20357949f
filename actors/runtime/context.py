"""What an actor's own body sees: its messages, its timers and tasks, its name, its system.

It decides what a body may order, and that all of it ends with the incarnation. It must not know how actors start, end
or restart.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple

import trio

from actors.runtime.errors import StashFull
from actors.runtime.messages import Messages, note_receiver
from actors.runtime.parts import ChildTask, Timer, call_later
from actors.runtime.ref import Down, Ref

if TYPE_CHECKING:
    from actors.runtime.actor import Actor
    from actors.runtime.system import System

M = TypeVar("M")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Ctx(Generic[M]):
    """Given to the body: `async for message in ctx`. One task at a time may receive."""

    __slots__ = ("_actor",)

    def __init__(self, actor: "Actor[M]") -> None:
        self._actor = actor

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

    def __aiter__(self) -> AsyncIterator[M]:
        messages: AsyncIterator[M] = Messages(self._actor)
        return messages

    async def receive(self) -> M:
        """Wait for the next message. A checkpoint: unlike `async for`, it lets others run each time.

        Raises:
            EndOfChannel: The actor was told to drain, and nothing is left.
            BusyResourceError: Another task of the actor is receiving.
        """
        actor = self._actor
        note_receiver(actor)
        actor.current = None
        message = actor.current = await actor.mailbox.get()
        actor.since = actor.system.wheel.stamp()
        return message

    def receive_nowait(self) -> M:
        """Take the next message if there is one. No checkpoint: a loop of these must have its own.

        Raises:
            WouldBlock: There is none.
            EndOfChannel: There is none, and the actor was told to drain.
        """
        actor = self._actor
        note_receiver(actor)
        message = actor.mailbox.take()
        actor.since = actor.system.wheel.stamp()
        actor.current = message
        return message

    # Later, beside, and at the end. All of it ends with this incarnation: a restarted body orders it anew.

    def after(self, seconds: float, message: M) -> Timer:
        """Have a message come once, in its turn, also if the mailbox is full or drains. No checkpoint.

        Args:
            seconds: From now, 0 or more.
            message: What comes.

        Raises:
            ValueError: `seconds` is negative, or no number.
        """
        if not seconds >= 0:
            raise ValueError(f"a timer is due in 0 s or more, not in {seconds} s")
        return self._actor.parts.add_timer(message, seconds, 0)

    def every(self, seconds: float, message: M, *, first: float | None = None) -> Timer:
        """Have a message come again and again, in its turn. No checkpoint.

        At most one of them waits in the mailbox: a busy actor finds one, not all that it has missed. It ends with
        `drain()`. The n-th is due
        `first + (n - 1) * seconds` from now, however late the ones before were handled.

        Args:
            seconds: Between two of them, above 0.
            message: What comes: the same object each time.
            first: Seconds until the first one, 0 or more; by default `seconds`.

        Raises:
            ValueError: A time is out of its range.
        """
        if not 0 < seconds < math.inf:
            raise ValueError(f"the period of a timer is above 0 s and finite, not {seconds} s")
        if first is not None and not first >= 0:
            raise ValueError(f"a timer is first due in 0 s or more, not in {first} s")
        return self._actor.parts.add_timer(message, seconds if first is None else first, seconds)

    def spawn(
        self,
        fn: Callable[[*Ts], Awaitable[T]],
        *args: *Ts,
        result: Callable[[T], M],
        error: Callable[[Exception], M] | None = None,
        name: str | None = None,
    ) -> ChildTask:
        """Run a task of this actor, whose result comes back as a message. No checkpoint.

        The actor goes on with its messages meanwhile. When it ends, crashes or is restarted, its tasks are cancelled
        and have finished before anybody hears of it; when it drains, it waits for their results first.

        Args:
            fn: An async function.
            args: Given to it.
            result: Makes the message from what `fn` returned.
            error: Makes the message from what `fn` raised; without it that is the actor's crash.
            name: For logs; by default the function's.
        """
        parts = self._actor.parts
        task = ChildTask(parts, call_later(fn, args), result, error, name or str(getattr(fn, "__name__", "task")))
        parts.add_task(task)
        return task

    def watch(self, ref: Ref[Any], to: Callable[[Down], M] | None = None) -> None:
        """Have the end of another actor come as one `Down`, before all other messages. No checkpoint.

        It comes at once if that actor has ended already. A restart is no end. A second watch of the same actor takes
        the place of the first.

        Args:
            ref: Whom to watch.
            to: Makes the message from the `Down`; by default the `Down` is the message.
        """
        self._actor.parts.watch(ref.for_runtime(), to)

    def unwatch(self, ref: Ref[Any]) -> None:
        """Take a watch back; a `Down` that is in the mailbox already still comes. Idempotent, no checkpoint."""
        self._actor.parts.unwatch(ref.for_runtime())

    def stash(self, message: M) -> None:
        """Put the message in hand aside, for a state in which it can be handled. No checkpoint.

        Args:
            message: The one that was received last.

        Raises:
            StashFull: As many are stashed as the mailbox holds (at least 1 may be).
            ValueError: It is another message, or was stashed already.
        """
        actor = self._actor
        if message is not actor.current:
            raise ValueError(f"actor {self.name!r} can put aside the message it received last, and only once")
        limit = max(1, self._actor.mailbox.capacity)
        try:
            self._actor.mailbox.stash(message, limit)
        except StashFull:
            raise StashFull(self.name, limit) from None
        actor.current = None

    def unstash(self) -> None:
        """Put all stashed messages back, before all others and in the order they were stashed. No checkpoint."""
        self._actor.mailbox.unstash()

    def on_stop(self, fn: Callable[[*Ts], Awaitable[None]], *args: *Ts, within: float = 5.0) -> None:
        """Register cleanup that runs when this incarnation ends, however it ends. No checkpoint.

        What was registered last runs first, after the actor's tasks have finished, shielded from cancellation. What it
        raises, or that it ran out of time, is logged and noted on the error the actor ended with, if there is one.

        Args:
            fn: An async function.
            args: Given to it.
            within: Seconds it may take, above 0 and finite.

        Raises:
            ValueError: `within` is out of its range.
        """
        if not 0 < within < math.inf:
            raise ValueError(f"cleanup has a time above 0 s and finite, not {within} s")
        self._actor.parts.add_hook(call_later(fn, args), within, getattr(fn, "__name__", "cleanup"))
