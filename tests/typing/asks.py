# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""What type checkers know of asks and sends. Nothing here runs: the checkers read it.

A line with an ignore is wrong, and must be found wrong: an ignore that is not needed is an error.
"""

import dataclasses
from typing import Any, assert_type

import msgspec

from actors.runtime import Ref, Replies, Reply
from actors.runtime.reply import AskOf


class Add(Replies[int], msgspec.Struct):
    """A request that is a struct."""

    n: int


@dataclasses.dataclass(frozen=True, slots=True)
class Name(Replies[str | None]):
    """A request that is a dataclass."""

    of: int


class Pair(Replies[tuple[int, str]]):
    """A request that is a plain class."""


class Audit(Add):
    """A request that has its reply from a base."""


class Tick(msgspec.Struct, frozen=True):
    """No request."""


class Foreign(Replies[int]):
    """A request of another actor."""


async def asks(ref: Ref[Add | Name | Pair | Tick]) -> None:
    assert_type(await ref.ask(Add(1)), int)
    assert_type(await ref.ask(Audit(1)), int)
    assert_type(await ref.ask(Name(1), within=2.5), str | None)
    number, text = await ref.ask(Pair())
    assert_type(number, int)
    assert_type(text, str)
    assert_type(ref.tell(Tick()), bool)
    assert_type(ref.tell(Add(1)), bool)
    assert_type(ref.tell_threadsafe(Tick()), bool)
    await ref.send(Name(2))


async def wrong_asks(ref: Ref[Add | Name | Pair | Tick]) -> None:
    await ref.ask(Foreign())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await ref.ask(Tick())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await ref.ask("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await ref.ask(Add(1), 5.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await ref.ask(Add(1), within="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    answer = await ref.ask(Add(1))
    text: str = answer  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(text)


async def wrong_messages(ref: Ref[Add | Tick]) -> None:
    ref.tell("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ref.tell(Name(1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ref.tell(Tick)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ref.tell_threadsafe(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await ref.send(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def replies(add: Add, name: Name, slot: Reply[bytes]) -> None:
    assert_type(add.reply, Reply[int])
    assert_type(name.reply, Reply[str | None])
    assert_type(add.reply.send(3), bool)
    assert_type(add.reply.fail(ValueError("no")), bool)
    name.reply.send(None)
    slot.send(b"")
    add.reply.send("three")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add.reply.send(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    name.reply.send(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    slot.send("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add.reply.fail("no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add.reply.fail(KeyboardInterrupt())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add.reply = Reply[int]()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


async def slots() -> None:
    slot = Reply[int]()
    assert_type(await slot.wait(), int)
    assert_type(slot.settled, bool)


def contravariant(both: Ref[Add | Tick], anything: Ref[object], one: Ref[Add]) -> None:
    fewer: Ref[Tick] = both
    fewer.tell(Tick())
    also: Ref[Add | Tick] = anything
    also.tell(Add(1))
    derived: Ref[Audit] = one
    derived.tell(Audit(1))
    wider: Ref[Add | Tick | str] = both  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    any_of: Ref[object] = both  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    other: Ref[Tick] = one  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(wider, any_of, other)


async def forwards(ref: Ref[Add], untyped: Ref[Any], request: AskOf[Add, int]) -> None:
    assert_type(await ref.ask(request), int)
    assert_type(await untyped.ask(Add(1)), int)
