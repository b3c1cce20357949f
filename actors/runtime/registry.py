"""Names of one system: each belongs to one actor, and goes with it.

It decides whether a name is free and whom it leads to. It must not know what actors do. A name is reserved when the
start begins, visible once the actor is ready, and free again before anybody can see that the actor has ended.
"""

from collections.abc import Iterator
from typing import Any

from actors.runtime.errors import NameTaken
from actors.runtime.ref import Ref


class Registry:
    """Finds actors by name. Look-ups never return an actor that is still starting for the first time, or has ended."""

    __slots__ = ("_refs", "_reserved")

    def __init__(self) -> None:
        self._reserved: set[str] = set()
        self._refs: dict[str, Ref[Any]] = {}

    def lookup(self, name: str) -> Ref[Any] | None:
        """Return the actor of this name, or None. No checkpoint."""
        return self._refs.get(name)

    def __len__(self) -> int:
        return len(self._refs)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names as they are now, in the order of becoming ready."""
        return iter(tuple(self._refs))

    def __contains__(self, name: str) -> bool:
        return name in self._refs

    def reserve(self, name: str) -> None:
        """Keep a name for an actor or supervisor that starts.

        Raises:
            NameTaken: It has not been released since it was reserved.
        """
        if name in self._reserved:
            raise NameTaken(name)
        self._reserved.add(name)

    def publish(self, ref: Ref[Any]) -> None:
        """Make the owner of a reserved name visible."""
        self._refs[ref.name] = ref

    def release(self, name: str) -> None:
        """Free a name. Only its owner calls it, as it ends."""
        self._reserved.discard(name)
        self._refs.pop(name, None)
