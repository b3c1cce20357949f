"""What can go wrong between actors, as types, and how a group of one becomes its one error.

It decides the words of these errors and nothing else; it must not know mailboxes, tasks or supervisors.
"""

import contextlib
from traceback import walk_tb
from types import FrameType
from typing import cast

import trio


class ActorError(Exception):
    """Base of what the actor runtime itself raises."""


class ActorGone(ActorError):
    """The actor has ended, or ended before it answered.

    Attributes:
        name: The actor's name.
        reason: Why it ended: `returned`, `drained`, `crashed`, `cancelled`, or what `stop(reason)` was given.
        cause: The error it crashed with, or None. It is `__cause__` too.
    """

    def __init__(self, name: str, reason: str, cause: BaseException | None = None) -> None:
        super().__init__(name, reason, cause)
        self.name = name
        self.reason = reason
        self.cause = cause
        self.__cause__ = cause

    def __str__(self) -> str:
        return f"actor {self.name!r} is gone: {self.reason}"


class AskTimeout(ActorError, trio.TooSlowError):
    """`ref.ask(..., within=)` ran out before the answer came.

    Attributes:
        name: The actor that was asked.
        within: What was allowed, in seconds.
        queued: How many messages waited in its mailbox at that moment.
        handling: The type name of the message it was busy with, or None when it was waiting for one.
    """

    def __init__(self, name: str, within: float, queued: int, handling: str | None) -> None:
        super().__init__(name, within, queued, handling)
        self.name = name
        self.within = within
        self.queued = queued
        self.handling = handling

    def __str__(self) -> str:
        busy = "waiting for a message" if self.handling is None else f"handling {self.handling}"
        return f"actor {self.name!r} did not answer within {self.within:g} s: {busy}, {self.queued} queued"


class NameTaken(ActorError):
    """The name belongs to an actor or supervisor that has not ended.

    Attributes:
        name: The name that was asked for.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"name {self.name!r} is taken by an actor that has not ended; join it first, or choose another name"


class NotAccepting(ActorError):
    """A supervisor or system that is closing, or has closed, was asked to start something.

    Attributes:
        name: The supervisor or system.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name!r} is closing and starts no more actors"


class MailboxFull(ActorError):
    """A mailbox whose policy is to reject had no room. The message was not accepted.

    Attributes:
        name: The actor's name; empty for a channel, which has none.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        whose = f"the mailbox of actor {self.name!r}" if self.name else "this mailbox"
        return f"{whose} is full and rejects what it has no room for; send it again later, or let it wait for room"


class MessageDropped(ActorError):
    """A request was accepted, and then dropped unhandled: a newer message took its place in the mailbox.

    Attributes:
        name: The actor that was asked.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"actor {self.name!r} did not see the request: its mailbox dropped it for a newer message"


class StashFull(ActorError):
    """An actor put a message aside that its stash has no room for. The message is still the one it has in hand.

    Attributes:
        name: The actor's name.
        limit: How many messages its stash holds.
    """

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(name, limit)
        self.name = name
        self.limit = limit

    def __str__(self) -> str:
        return f"the stash of actor {self.name!r} is full: it holds {self.limit}; unstash them, or handle this message"


class AskCycle(ActorError):
    """An ask that could never be answered: the actor it asks waits, over any number of others, for the asker.

    Attributes:
        path: The names from the asker to itself, each one asking the next: `("a", "b", "a")`.
    """

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        # Bare, as they read best; a name that could break the line, or pass for more than one, is quoted.
        names = (name if name.isprintable() and name and " " not in name else repr(name) for name in self.path)
        return f"ask cycle: {' asks '.join(names)}"


class TooManyChildren(ActorError):
    """A supervisor that bounds its children was asked to start one more.

    Attributes:
        name: The supervisor.
        limit: How many it may have at a time.
    """

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(name, limit)
        self.name = name
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.name!r} has all the {self.limit} children it may have; start one more when one has ended"


def note(error: BaseException, text: str) -> None:
    """Add a note, unless the error has it: the same object may be raised by one incarnation after the other."""
    with contextlib.suppress(Exception):  # one that takes no attributes, like a frozen dataclass, takes no notes
        if text not in getattr(error, "__notes__", ()):
            error.add_note(text)


def own_part(
    error: BaseException, *, cancelled: bool
) -> tuple[BaseException | None, BaseException | None]:
    """Split what left an actor's body into its own crash and what goes on through it.

    A Cancelled must go on to the scope that sent it. One that leaves a body while no scope around the actor is
    cancelled has no such scope; let out, it would end every actor of the system. It is a crash like any other.

    Args:
        error: What the body let out.
        cancelled: A scope around the actor is cancelled.
    """
    if isinstance(error, trio.Cancelled):
        return (None, error) if cancelled else (stray_cancel(error), None)
    if isinstance(error, Exception):
        return unwrap(error), None
    failed, rest = _split(error)
    if not cancelled and rest is not None and (stray := _only_cancelled(rest)) is not None:
        return (stray_cancel(stray) if failed is None else unwrap(failed)), None
    # The errors would reach everybody with the Cancelled.
    return (unwrap(failed), rest) if failed is not None and rest is not None else (None, error)


def _only_cancelled(error: BaseException) -> trio.Cancelled | None:
    """Return one of them, if there is nothing but Cancelled in a group."""
    if not isinstance(error, BaseExceptionGroup):
        return None
    found, others = cast("BaseExceptionGroup[BaseException]", error).split(trio.Cancelled)
    first: BaseException | None = found
    while isinstance(first, BaseExceptionGroup):
        first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
    return first if others is None and isinstance(first, trio.Cancelled) else None


def raise_rest(rest: BaseException | None) -> None:
    """Raise what goes on, if there is anything.

    In a frame of its own: a frame that keeps what it raises is garbage that only the collector finds.
    """
    if rest is not None:
        try:
            raise rest from None
        finally:
            del rest


def _split(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    if not isinstance(error, BaseExceptionGroup):
        return None, error
    return cast("BaseExceptionGroup[BaseException]", error).split(Exception)


def stray_cancel(cancelled: trio.Cancelled | None) -> RuntimeError:
    """Return the crash of an actor whose body let out a `Cancelled` that no scope around it takes."""
    error = RuntimeError("the body let out a Cancelled of a scope that is not around it")
    error.__cause__ = cancelled
    return error


def unwrap(error: BaseException) -> BaseException:
    """Return the one error inside groups of one; real plurality, and anything that is no group, comes back as it is.

    The notes of the groups that are taken away move to the error that stays.
    """
    while (inner := _only_member(error)) is not None:
        for note in getattr(error, "__notes__", ()):
            inner.add_note(note)
        error = inner
    return error


def _only_member(error: BaseException) -> BaseException | None:
    if not isinstance(error, BaseExceptionGroup):
        return None
    members = cast("tuple[BaseException, ...]", error.exceptions)
    return members[0] if len(members) == 1 else None


def cut_off_error(cancelled: BaseException) -> BaseException | None:
    """Return the error that was on its way out of a body when a Cancelled in its cleanup took its place, or None.

    Source of the trap: python-trio/trio#455. An error that the body was handling when it was cancelled looks the same;
    one that the canceller was handling does not, as none of the body's frames has seen it.

    Args:
        cancelled: What left the body instead: a Cancelled, or a group of them.
    """
    frames: set[FrameType] = set()
    todo: list[BaseException | None] = [cancelled]
    known: set[int] = set()
    while todo:
        error = todo.pop()
        if error is None or id(error) in known:
            continue
        known.add(id(error))
        if isinstance(error, Exception):
            if error.__traceback__ is not None and error.__traceback__.tb_frame in frames:
                return error
        elif isinstance(error, BaseExceptionGroup | trio.Cancelled):
            frames.update(frame for frame, _ in walk_tb(error.__traceback__))
            todo.append(error.__context__)
            if isinstance(error, BaseExceptionGroup):
                todo.extend(cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return None
