"""Requests and their answers: one slot per ask, settled once.

It decides what happens to an answer: it reaches the asker that waits, or it is dropped and counted. It must not know
mailboxes, names or supervisors.

A slot is waiting -> settled, or waiting -> abandoned (the asker was cancelled or timed out). Both ends are final.
"""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Generic, Protocol, Self, TypeGuard, TypeVar, cast

import outcome
from trio.lowlevel import (
    Abort,
    RaiseCancelT,
    Task,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from actors.runtime.handed import Handed

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
M_co = TypeVar("M_co", covariant=True)


class Asked(Protocol):
    """Who is asked, as far as a slot sees it."""

    #: The asks that wait for it, oldest first; each leaves when it is settled or given up.
    asks: "dict[Reply[Any], None]"

    def ask_given_up(self) -> None:
        """An asker has gone; its message may still be queued."""
        ...

    def ask_late(self) -> None:
        """An answer came for an asker that has gone."""
        ...

    def ask_timeout(self, within: float) -> Exception:
        """The time of an ask has run out: return the error for its asker."""
        ...

    def withdraw(self, task: Task, error: Exception) -> bool:
        """Wake an asker that waits for room, with the error; False if it has got its place already."""
        ...


class Reply(Generic[R]):
    """Where the answer to one request goes. Made by `ref.ask`, found by the receiver at `msg.reply`.

    It may be kept and settled later, from any message or task of the actor. When the actor ends first, the asker gets
    `ActorGone`. `Reply()` makes one for two tasks that are no actors: one awaits `wait()`, once, the other settles it.

    Attributes:
        active: True while the asker waits, or will.
        settled: True when an answer or an error was taken.
        within: For the runtime: how many seconds the asker allows. Set if it is limited.
    """

    # What an ask with an answer in time does not need is not set from the start: one is made for every ask.
    __slots__ = ("_late", "_owner", "_result", "_sending", "_task", "active", "settled", "within")

    def __init__(self, owner: Asked | None = None) -> None:
        self._late: bool
        self._owner = owner
        self._task: Task | None = None
        self._sending = False
        self.active = True
        self.settled = False
        self.within: float

    @property
    def abandoned(self) -> bool:
        """True when nobody waits for the answer any more, or nobody ever did: the message was told, not asked."""
        return not self.active and not self.settled

    @enable_ki_protection
    def send(self, value: R) -> bool:
        """Answer. Never raises, no checkpoint.

        Returns:
            True if the asker gets it; False if the slot is settled or nobody waits for the answer, which is counted.
        """
        return self._settle(Handed(value))

    @enable_ki_protection
    def fail(self, error: Exception) -> bool:
        """Let the ask raise `error`. Returns what `send` returns; no checkpoint.

        Raises:
            TypeError: `error` is no `Exception`. A `Cancelled` belongs to the scope that sent it, never to an asker.
        """
        if not isinstance(error, Exception):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a reply fails with an Exception, not with {type(error).__name__}")
        return self._settle(outcome.Error(error))

    def _settle(self, result: "outcome.Outcome[R]") -> bool:
        owner = self._owner
        if not self.active:
            if not self.settled and owner is not None and self._late:
                self._late = False
                owner.ask_late()
            return False
        self.active = False
        self.settled = True
        if owner is not None:
            owner.asks.pop(self, None)
        task = self._task
        if task is None or self._sending:
            self._result = result
        else:
            self._task = None
            reschedule(task, result)
        return True

    def end(self, error: Exception) -> None:
        """Let an ask that still waits raise `error`; for the runtime, as nothing here counts as late. No checkpoint."""
        if self.active:
            self._settle(outcome.Error(error))

    def give_up(self) -> None:
        """The asker has gone: what still comes is late. No checkpoint."""
        if self.active:
            self.active = False
            self._late = True  # the first answer that comes now is counted
            self._task = None
            owner = self._owner
            if owner is not None:
                owner.asks.pop(self, None)
                owner.ask_given_up()

    async def wait(self) -> R:
        """Wait for the answer. Only the asker calls it, once. A checkpoint unless the slot is settled already.

        Cancelled, it is abandoned.

        Raises:
            Exception: What the slot was failed with.
        """
        if not self.active:  # settled, or out of time, before the asker came to wait
            return self._result.unwrap()
        answer: R = await self.park(current_task())
        return answer

    # For the runtime.

    def park(self, task: Task) -> Awaitable[R]:
        """Wait in the current task for the answer, which has not come: await the result at once. A checkpoint."""
        self._task = task
        self._sending = False
        return wait_task_rescheduled(self._abort)  # noqa: ASYNC105

    def sending(self, task: Task) -> None:
        """The asker, the current task, waits for room from now on: a deadline finds it there."""
        self._task = task
        self._sending = True

    def due(self) -> None:
        """The time of the ask has run out. Called by the wheel."""
        task, owner = self._task, self._owner
        if task is not None and owner is not None:
            error = owner.ask_timeout(self.within)
            self.give_up()
            if not self._sending:
                reschedule(task, outcome.Error(error))
            elif not owner.withdraw(task, error):
                self._result = outcome.Error(error)  # it has its place, and has not run since

    def _abort(self, _: RaiseCancelT) -> Abort:
        self.give_up()
        return Abort.SUCCEEDED


def _nobody() -> Reply[Any]:
    reply: Reply[Any] = Reply()
    reply.give_up()
    return reply


#: The reply of a request that was told, not asked: what is sent to it goes nowhere.
NOBODY = _nobody()


class AskOf(Protocol[M_co, R_co]):
    """What `ref.ask` takes: a message that is one of the actor's, with the type of its reply. For type checkers."""

    def asked_as(self) -> tuple[M_co, R_co]:
        """Name both types. Never called."""
        ...


class Replies(Generic[R]):
    """Base of a request: `class Add(Replies[int])` makes `await ref.ask(Add(...))` an int.

    It works as the base of a plain class, of a dataclass (frozen and with slots too) and of a `msgspec.Struct`.

    A request whose asker has gone when it reaches the front of the mailbox is skipped and counted; a class that says
    `handle_abandoned = True` is handled all the same (source of the rule: erlang/otp#11245).
    """

    __slots__ = ("_reply",)
    _reply: Reply[R]
    handle_abandoned: ClassVar[bool] = False

    @property
    def reply(self) -> Reply[R]:
        """Where the answer goes; nowhere if the message was told."""
        return getattr(self, "_reply", NOBODY)

    def asked_as(self) -> tuple[Self, R]:
        """Tell type checkers the type of the reply. Never called.

        Raises:
            TypeError: Always.
        """
        raise TypeError("asked_as() exists for type checkers only")


# Frozen dataclasses and structs refuse setattr; the slot's own descriptor does not ask them.
_attach = cast("Callable[[object, Reply[Any]], None]", cast(Any, Replies)._reply.__set__)


def attach(message: Replies[R], owner: Asked) -> Reply[R]:
    """Give a request the slot of a new ask, and return it.

    Raises:
        RuntimeError: The object carries an ask that was not answered. With one object in two asks the answer to one
            could settle the other.
        TypeError: It is no request.
    """
    before = getattr(message, "_reply", None)
    if before is not None and before is not NOBODY and not before.settled:
        kind = type(message).__name__
        raise RuntimeError(f"this {kind} was asked before and is not answered; make a new {kind} for each ask")
    slot: Reply[R] = Reply(owner)
    try:
        _attach(message, slot)
    except TypeError:
        kind = type(message).__name__
        raise TypeError(f"an ask takes a request, whose class derives from Replies[...], not a {kind}") from None
    owner.asks[slot] = None
    return slot


def detach(message: Replies[Any]) -> None:
    """Take the slot off a request that was never accepted."""
    _attach(message, NOBODY)


def reply_of(message: object) -> Reply[Any]:
    """Return where the answer to a message goes; nowhere if it is no request, or was only told."""
    return message.reply if _is_request(message) else NOBODY


def _is_request(message: object) -> TypeGuard[Replies[Any]]:
    return isinstance(message, Replies)


def is_expired(message: object) -> bool:
    """Return whether a message is a request that nobody waits for any more, and that need not be handled then."""
    if not _is_request(message) or message.handle_abandoned:
        return False
    reply = message.reply
    return reply.abandoned and reply is not NOBODY
