"""Requests and their answers: one slot per ask, settled once.

It decides what happens to an answer: it reaches the asker that waits, or it is dropped and counted. It must not know
mailboxes, names or supervisors.

A slot is waiting -> settled, or waiting -> abandoned (the asker was cancelled or timed out). Both ends are final.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, Self, TypeGuard, TypeVar, cast

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

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
M_co = TypeVar("M_co", covariant=True)


class LateReplies(Protocol):
    """Who counts the answers that came too late."""

    def count_late_reply(self) -> None:
        """An answer came after its asker had gone."""
        ...


class OpenAsks:
    """The asks that wait for one actor. Each leaves when it is settled or given up, so that none outlives its asker."""

    __slots__ = ("_late", "_slots")

    def __init__(self, late: LateReplies) -> None:
        self._late = late
        self._slots: dict[Reply[Any], None] | None = None  # made when first needed: most actors have none

    def __len__(self) -> int:
        return len(self._slots or ())

    def __iter__(self) -> Iterator["Reply[Any]"]:
        """Iterate over the slots as they are now, oldest first."""
        return iter(tuple(self._slots or ()))

    def __contains__(self, slot: object) -> bool:
        return slot in (self._slots or ())

    def open(self, slot: "Reply[Any]") -> None:
        """An ask begins."""
        if self._slots is None:
            self._slots = {}
        self._slots[slot] = None

    def close(self, slot: "Reply[Any]") -> None:
        """An ask has ended, well or not."""
        if self._slots is not None:
            self._slots.pop(slot, None)
            if not self._slots:
                self._slots = None

    def late(self) -> None:
        """An answer came for an asker that has gone."""
        self._late.count_late_reply()


class Reply(Generic[R]):
    """Where the answer to one request goes. Made by `ref.ask`, found by the receiver at `msg.reply`.

    It may be kept and settled later, from any message or task of the actor. When the actor ends first, the asker gets
    `ActorGone`.
    """

    __slots__ = ("_late", "_outcome", "_owner", "_task", "abandoned")

    def __init__(self, owner: OpenAsks | None) -> None:
        self._owner = owner
        self._outcome: outcome.Outcome[R] | None = None
        self._task: Task | None = None
        self._late = False
        #: True when nobody waits for the answer any more, or nobody ever did: the message was told, not asked.
        self.abandoned = owner is None

    @property
    def settled(self) -> bool:
        """True when an answer or an error was taken."""
        return self._outcome is not None

    @enable_ki_protection
    def send(self, value: R) -> bool:
        """Answer. Never raises, no checkpoint.

        Returns:
            True if the asker gets it; False if the slot is settled or nobody waits for the answer, which is counted.
        """
        return self._settle(outcome.Value(value))

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
        if self._outcome is not None or owner is None:
            return False
        if self.abandoned:
            if not self._late:
                self._late = True
                owner.late()
            return False
        self._outcome = result
        owner.close(self)
        if self._task is not None:
            reschedule(self._task)
        return True

    def end(self, error: Exception) -> None:
        """Let an ask that still waits raise `error`; for the runtime, as nothing here counts as late. No checkpoint."""
        if not self.abandoned:
            self._settle(outcome.Error(error))

    def give_up(self) -> None:
        """The asker has gone: what still comes is late. No checkpoint."""
        if self._outcome is None and self._owner is not None and not self.abandoned:
            self.abandoned = True
            self._owner.close(self)

    async def wait(self) -> R:
        """Wait for the answer. Only the asker calls it, once. A checkpoint unless the slot is settled already.

        Raises:
            Exception: What the slot was failed with.
        """
        if self._outcome is None:
            self._task = current_task()
            await wait_task_rescheduled(self._abort)
        assert self._outcome is not None
        return self._outcome.unwrap()

    def _abort(self, _: RaiseCancelT) -> Abort:
        self._task = None
        self.give_up()
        return Abort.SUCCEEDED


#: The reply of a request that was told, not asked: what is sent to it goes nowhere.
NOBODY: Reply[Any] = Reply(None)


class AskOf(Protocol[M_co, R_co]):
    """What `ref.ask` takes: a message that is one of the actor's, with the type of its reply. For type checkers."""

    def asked_as(self) -> tuple[M_co, R_co]:
        """Name both types. Never called."""
        ...


class Replies(Generic[R]):
    """Base of a request: `class Add(Replies[int])` makes `await ref.ask(Add(...))` an int.

    It works as the base of a plain class, of a dataclass (frozen and with slots too) and of a `msgspec.Struct`.
    """

    __slots__ = ("_reply",)
    _reply: Reply[R]

    @property
    def reply(self) -> Reply[R]:
        """Where the answer goes; nowhere if the message was told."""
        try:
            return self._reply
        except AttributeError:
            return NOBODY

    def asked_as(self) -> tuple[Self, R]:
        """Tell type checkers the type of the reply. Never called.

        Raises:
            TypeError: Always.
        """
        raise TypeError("asked_as() exists for type checkers only")


# Frozen dataclasses and structs refuse setattr; the slot's own descriptor does not ask them.
_attach = cast("Callable[[object, Reply[Any]], None]", cast(Any, Replies)._reply.__set__)


def attach(message: Replies[R], owner: OpenAsks) -> Reply[R]:
    """Give a request the slot of a new ask, and return it.

    Raises:
        RuntimeError: The object carries an ask that was not answered. With one object in two asks the answer to one
            could settle the other.
    """
    before = message.reply
    if before is not NOBODY and not before.settled:
        kind = type(message).__name__
        raise RuntimeError(f"this {kind} was asked before and is not answered; make a new {kind} for each ask")
    slot: Reply[R] = Reply(owner)
    _attach(message, slot)
    return slot


def detach(message: Replies[Any]) -> None:
    """Take the slot off a request that was never accepted."""
    _attach(message, NOBODY)


def reply_of(message: object) -> Reply[Any]:
    """Return where the answer to a message goes; nowhere if it is no request, or was only told."""
    return message.reply if _is_request(message) else NOBODY


def _is_request(message: object) -> TypeGuard[Replies[Any]]:
    return isinstance(message, Replies)
