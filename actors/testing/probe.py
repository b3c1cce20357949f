"""An actor for tests: it takes whatever comes, and the test says what should have come.

It decides when an expectation has failed, and what the error tells. It must not know what the messages mean.
"""

from collections import deque
from collections.abc import Generator
from types import TracebackType
from typing import Any, Protocol, TypeVar

import trio

from actors.runtime import Ctx, Ref, System

T = TypeVar("T")

#: As many messages as this are shown in an error; of each, so many characters.
_SHOWN = 5
_WIDTH = 200


class Probe:
    """Made by `open_probe`. One task at a time may expect something of it.

    It takes each message as soon as it is its turn, so that no sender ever waits for the test, and keeps all of them.
    """

    def __init__(self) -> None:
        self._ctx: Ctx[object] | None = None
        self._received: list[object] = []
        self._unseen: deque[object] = deque()
        self._news = trio.lowlevel.ParkingLot()
        self._busy = False
        self._ended = False

    def __repr__(self) -> str:
        return f"<Probe {self.ref.name!r}, {len(self._received)} received, {len(self._unseen)} not expected yet>"

    @property
    def ref(self) -> Ref[object]:
        """The actor's handle, to be given to others. It takes messages of any type."""
        return self._context.self

    @property
    def name(self) -> str:
        """The actor's name."""
        return self._context.name

    @property
    def received(self) -> tuple[object, ...]:
        """Everything that came so far, oldest first, expected or not.

        What was sent since the last checkpoint is not in it yet: the probe is a task like any other.
        """
        return tuple(self._received)

    async def expect(self, kind: type[T], *, within: float = 1.0) -> T:
        """Return the oldest message that was not expected yet, once there is one. A checkpoint.

        Args:
            kind: Its type, or a base of it; `object` takes any message.
            within: Seconds to wait for it, 0 or more.

        Raises:
            AssertionError: It is of another type, and still the next one afterwards; or none came, or the probe ended.
            BusyResourceError: Another task expects something of this probe.
        """
        __tracebackhide__ = True
        if not await self._wait(within):
            why = await self._why_nothing()
            raise AssertionError(f"{self._who} expected {_named(kind)} within {within:g} s, and nothing came{why}")
        message = self._unseen[0]
        if not isinstance(message, kind):
            raise AssertionError(f"{self._who} expected {_named(kind)}, and {_show(message)} came{self._behind()}")
        self._unseen.popleft()
        return message

    async def expect_nothing(self, *, within: float = 1.0) -> None:
        """Wait, and see that nothing comes, and that nothing is left that was not expected. A checkpoint.

        Args:
            within: Seconds to wait, 0 or more.

        Raises:
            AssertionError: Something came. It is the next message still.
            BusyResourceError: Another task expects something of this probe.
        """
        __tracebackhide__ = True
        began = trio.current_time()
        if await self._wait(within):
            after = trio.current_time() - began
            came = f"{_show(self._unseen[0])} came {f'after {after:g} s' if after else 'at once'}"
            raise AssertionError(f"{self._who} expected nothing for {within:g} s, and {came}{self._behind()}")

    def watch(self, ref: Ref[Any]) -> None:
        """Have the end of an actor come as a `Down`: `await probe.expect(Down)`. No checkpoint."""
        self._context.watch(ref)

    def unwatch(self, ref: Ref[Any]) -> None:
        """Take that back. No checkpoint."""
        self._context.unwatch(ref)

    async def aclose(self) -> None:
        """End the actor, and wait until it has. Idempotent, a checkpoint."""
        self.ref.stop("the probe is closed")
        await self.ref.join()

    async def take(self, ctx: Ctx[object]) -> None:
        """Take what comes, to the end of the actor. For `open_probe`."""
        self._ctx = ctx
        try:
            async for message in ctx:
                self._received.append(message)
                self._unseen.append(message)
                self._news.unpark_all()
        finally:
            self._ended = True
            self._news.unpark_all()

    async def _wait(self, within: float) -> bool:
        """Wait until there is a message that was not expected yet; False if the time or the probe ends first."""
        if self._busy:
            raise trio.BusyResourceError(f"another task expects something of {self._who} already")
        self._busy = True
        try:
            with trio.move_on_after(within):
                await self._catch_up()
                while not self._unseen and not self._ended:
                    await self._news.park()
            await self._catch_up()
        finally:
            self._busy = False
        return bool(self._unseen)

    async def _catch_up(self) -> None:
        """Let the actor take what was sent so far, so that it can be said what came. A checkpoint."""
        await trio.lowlevel.checkpoint()
        books = self.ref.statistics()
        while books.queued + books.handled > len(self._received) and not self._ended:
            await trio.lowlevel.checkpoint()
            books = self.ref.statistics()

    @property
    def _context(self) -> Ctx[object]:
        assert self._ctx is not None  # the system has started it
        return self._ctx

    @property
    def _who(self) -> str:
        return f"probe {self.name!r}"

    async def _why_nothing(self) -> str:
        if self._ended:
            return f": it has ended, {(await self.ref.join()).reason}"
        count = len(self._received)
        return f"; {count} came before, the last {_show(self._received[-1])}" if count else ", nor ever did"

    def _behind(self) -> str:
        behind = list(self._unseen)[1:]
        if not behind:
            return ""
        more = f" and {len(behind) - _SHOWN} more" if len(behind) > _SHOWN else ""
        return f"; behind it: {', '.join(map(_show, behind[:_SHOWN]))}{more}"


class open_probe:
    """Start a probe: `probe = await open_probe(system)`, or `async with open_probe(system) as probe`. A checkpoint.

    After a block the probe is closed; without one it lives as long as the system.

    Args:
        system: Where it lives.
        name: Unique in the system; by default `probe` and a number.
        mailbox_size: How many messages may wait for its turn.

    Raises:
        NameTaken, NotAccepting: As `system.spawn` does.
    """

    def __init__(self, system: System, *, name: str | None = None, mailbox_size: int = 1024) -> None:
        self._system = system
        self._name = name
        self._mailbox_size = mailbox_size
        self._probe = Probe()

    async def _open(self) -> Probe:
        async def probe(ctx: Ctx[object]) -> None:  # whose name is the beginning of the actor's
            await self._probe.take(ctx)

        await self._system.spawn(probe, name=self._name, mailbox_size=self._mailbox_size)
        return self._probe

    def __await__(self) -> Generator[object, None, Probe]:
        return self._open().__await__()

    async def __aenter__(self) -> Probe:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._probe.aclose()


class MakeProbe(Protocol):
    """What the fixture `probe` is: `open_probe` for the test's system."""

    def __call__(self, *, name: str | None = None, mailbox_size: int = 1024) -> open_probe:
        """Open a probe."""
        ...


def _named(kind: type[object]) -> str:
    return getattr(kind, "__name__", str(kind))  # a union of types has no name


def _show(message: object) -> str:
    try:
        text = repr(message)
    except Exception as error:
        text = f"<{type(message).__name__} whose repr raised {error!r}>"
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."
