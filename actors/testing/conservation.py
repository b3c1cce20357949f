"""The books of actors: every message that was sent is accounted for, and nothing outlives a system.

It decides which sums must come out, and who is named where they do not. It must not know how messages were lost.
"""

import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

from actors.runtime import Down, System, observe
from actors.runtime.actor import Actor

_ENDS = ("handled", "expired", "dropped", "returned", "queued")


class _Books(Protocol):
    """What a mailbox and a system both count."""

    @property
    def sent(self) -> int: ...
    @property
    def rejected(self) -> int: ...
    @property
    def accepted(self) -> int: ...
    @property
    def handled(self) -> int: ...
    @property
    def expired(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def returned(self) -> int: ...
    @property
    def queued(self) -> int: ...


def check_conservation(system: System) -> None:
    """Check that no message of a system is lost or counted twice: of each actor that lives, and of all there ever were.

    At every moment `sent == rejected + accepted`, and `accepted == handled + expired + dropped + returned + queued`. It
    may be called at any time, also after the system's block. No checkpoint.

    Raises:
        AssertionError: An equation does not hold; with one line for each actor concerned.
    """
    problems = [*_wrong_books(system)]
    if problems:
        raise AssertionError("\n".join(problems))


@contextmanager
def conserving() -> Generator[None]:
    """Check every system that opens in the block: its books when each of its actors ends, and what is left at the end.

    An actor, a name, a supervisor or a timer that is there when its system has closed is left over.

    Raises:
        AssertionError: With one line for each problem. If the block itself raises, they are in a note of its error.
    """
    watch = Watch()
    try:
        yield
    except BaseException as error:
        problems = watch.end()
        if problems:
            error.add_note(problems)
        raise
    problems = watch.end()
    if problems:
        raise AssertionError(problems)


#: The innermost is the last: what it has said need not be said again further out, and may have been expected.
_active: "list[Watch]" = []


class Watch:
    """Notes what is wrong with each system that opens, when it can be seen; from when it is made until `end`.

    Watches nest, and only the innermost one sees a system. It keeps none alive: a property test may open thousands.
    """

    def __init__(self) -> None:
        self._found: dict[str, None] = {}  # a set, in order
        self._systems: weakref.WeakSet[System] = weakref.WeakSet()
        self._unlisten = observe.listen(on_open=self._opened, on_close=self._closed)
        _active.append(self)

    def end(self) -> str:
        """Look once more, and return one line for each problem; nothing if there is none. Call it once."""
        _active.remove(self)
        self._unlisten()
        for system in sorted(self._systems, key=lambda system: system.name):
            self._note(_wrong_books(system))  # something may have been sent to its actors since it closed
        return "\n".join(self._found)

    def _opened(self, system: System) -> None:
        if _active[-1] is not self:
            return
        self._systems.add(system)
        end = system.actor_ended

        def actor_ended(actor: Actor[Any], down: Down) -> None:
            # Afterwards its figures are only part of a sum.
            self._note(_wrong_actor(system, actor))
            end(actor, down)

        system.actor_ended = actor_ended  # type: ignore[method-assign]  # for this one system, while it is tested

    def _closed(self, system: System) -> None:
        if system in self._systems:
            vars(system).pop("actor_ended", None)  # what `_opened` has put over it, and what keeps it alive
            self._note(_left(system))
            self._note(_wrong_books(system))

    def _note(self, problems: Iterator[str]) -> None:
        self._found.update(dict.fromkeys(problems))


def _wrong_books(system: System) -> Iterator[str]:
    for actor in system.actors():
        yield from _wrong_actor(system, actor)
    yield from _unbalanced(f"all actors of system {system.name!r} together", system.statistics())


def _wrong_actor(system: System, actor: Actor[Any]) -> Iterator[str]:
    return _unbalanced(f"actor {actor.name!r} of system {system.name!r}", actor.mailbox.statistics())


def _unbalanced(who: str, books: _Books) -> Iterator[str]:
    if books.sent != books.rejected + books.accepted:
        total = books.rejected + books.accepted
        yield f"{who}: sent {books.sent}, but rejected {books.rejected} + accepted {books.accepted} = {total}"
    ends = {end: cast(int, getattr(books, end)) for end in _ENDS}
    total = sum(ends.values())
    if books.accepted != total:
        parts = " + ".join(f"{end} {count}" for end, count in ends.items())
        yield f"{who}: accepted {books.accepted}, but {parts} = {total}"


def _left(system: System) -> Iterator[str]:
    """What is there after its block."""
    statistics = system.statistics()
    names = sorted(system.registry._reserved)  # pyright: ignore[reportPrivateUsage]
    left = {
        f"{statistics.actors} actors": statistics.actors,
        f"{statistics.supervisors} supervisors": statistics.supervisors,
        f"the names {', '.join(map(repr, names))}": len(names),
        f"{len(system.wheel)} timers": len(system.wheel),
    }
    for what, count in left.items():
        if count:
            yield f"system {system.name!r} has closed, and {what} are left"
