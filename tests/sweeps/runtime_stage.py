"""What the scenarios of the plain actor runtime share: a system that is told of every end, and who must have ended."""

from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio

from actors.runtime import (
    ActorError,
    ActorGone,
    Backoff,
    Crash,
    Ctx,
    Down,
    NotAccepting,
    Replies,
    System,
    open_system,
)
from actors.testing import check_conservation
from actors.testing.sweep import Stage

AT_ONCE = Backoff(first_s=0.0, jitter=0.0)
SOON = Backoff(first_s=0.5, jitter=0.0)


class Get(Replies[str]):
    """Ask for the name."""


class Crashed(Exception):
    """What a worker raises when it is told to."""


class Tally:
    """Who began and who ended, and what was told of it.

    Attributes:
        begun: How many of each kind began.
        ended: How many of them ended.
        downs: The end of each actor.
        crashes: Each crash that a supervisor has seen.
        system: The system, once it is open.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.begun: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.downs: list[Down] = []
        self.crashes: list[Crash] = []
        self.system: System | None = None

    @contextmanager
    def living(self, what: str) -> Generator[None]:
        """Count what runs in the block."""
        self.begun[what] += 1
        try:
            yield
        finally:
            self.ended[what] += 1

    async def worker(self, ctx: Ctx[Any]) -> None:
        """Answers, crashes when it is told to, and takes anything else."""
        with self.living(ctx.name):
            async for message in ctx:
                if isinstance(message, Get):
                    message.reply.send(ctx.name)
                elif message == "crash":
                    raise Crashed(ctx.name)

    async def careful(self, ctx: Ctx[Any]) -> None:
        """A worker that takes its time to clean up."""

        async def clean() -> None:
            with self.living("cleanup"):
                await trio.sleep(1)

        ctx.on_stop(clean)
        await self.worker(ctx)

    def tell(self, name: str, message: object) -> None:
        """Tell an actor something, if it is there."""
        ref = self.system.registry.lookup(name) if self.system is not None else None
        if ref is not None:
            ref.tell(message)

    def stop(self, name: str) -> None:
        """Stop an actor, if it is there."""
        ref = self.system.registry.lookup(name) if self.system is not None else None
        if ref is not None:
            ref.stop("struck")

    @contextmanager
    def attempt(self, *struck: str) -> Generator[None]:
        """What may fail because an actor has ended: after one of these faults, or an error in an actor."""
        try:
            yield
        except (ActorGone, NotAccepting):
            if not {*struck, "error", "system"} & {*self.stage.struck}:
                raise

    def check(self) -> None:
        """Check that all have ended who began, once each, and that no message is missing."""
        assert self.begun == self.ended, f"still there: {self.begun - self.ended}"
        if self.system is not None:
            check_conservation(self.system)


@asynccontextmanager
async def tallied(stage: Stage) -> AsyncGenerator[tuple[System, Tally]]:
    """Open a system, offer its stop as a fault, and check in the end that everybody has ended."""
    tally = Tally(stage)
    stage.afterwards(tally.check)
    async with open_system(on_down=tally.downs.append, on_crash=tally.crashes.append) as system:
        tally.system = system
        stage.fault("system", lambda: system.stop("struck"))
        try:
            yield system, tally
        except ActorError:
            if "system" not in stage.struck:
                raise
