"""A value on its way to a task that waits for it: what trio's `reschedule` takes.

`outcome.Value` does the same and is a frozen class: making one takes longer than all else in handing a message over.
"""

from collections.abc import AsyncGenerator, Generator
from typing import Any, Generic, TypeVar

from outcome import Outcome

T = TypeVar("T")
R = TypeVar("R")


class Handed(Outcome[T], Generic[T]):
    """An outcome that is a value. Each is unwrapped once, by the task that it wakes."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def unwrap(self) -> T:
        """Return the value."""
        return self.value

    def send(self, gen: Generator[R, T, object]) -> R:
        """Send the value into a generator."""
        return gen.send(self.value)

    async def asend(self, agen: AsyncGenerator[R, T]) -> R:
        """Send the value into an async generator."""
        sent: Any = await agen.asend(self.value)
        return sent  # type: ignore[no-any-return]
