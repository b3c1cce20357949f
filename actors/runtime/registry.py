"""Names of one system: each belongs to one actor, and goes with it.

It decides whether a name is free, whom it leads to, and who is woken when it comes to lead somewhere. It must not know
what actors do. A name is reserved when the start begins, visible once the actor is ready, and free again before anybody
can see that the actor has ended.
"""

from collections.abc import Iterator
from typing import Any

import outcome
from trio.lowlevel import (
    Abort,
    RaiseCancelT,
    Task,
    cancel_shielded_checkpoint,
    checkpoint_if_cancelled,
    current_task,
    enable_ki_protection,
    reschedule,
    wait_task_rescheduled,
)

from actors.runtime.errors import NameTaken, NotAccepting
from actors.runtime.ref import Ref


class Registry:
    """Finds actors by name. Look-ups never return an actor that is still starting for the first time, or has ended."""

    __slots__ = ("_closed", "_refs", "_reserved", "_waiting")

    def __init__(self) -> None:
        self._reserved: set[str] = set()
        self._refs: dict[str, Ref[Any]] = {}
        # Those who wait for each name, in the order of arrival; no name is here for whom nobody waits.
        self._waiting: dict[str, dict[Task, None]] = {}
        self._closed: str | None = None

    def lookup(self, name: str) -> Ref[Any] | None:
        """Return the actor of this name, or None. No checkpoint."""
        return self._refs.get(name)

    async def wait_for(self, name: str) -> Ref[Any]:
        """Return the actor of this name once it is ready; at once if it is. A checkpoint.

        It waits for as long as it takes: bound it with a cancel scope. Any number may wait for a name; each gets the
        first actor that has it from then on, also one that has ended again before the waiter comes to run.

        Raises:
            NotAccepting: There is none, and the system is closing.
        """
        await checkpoint_if_cancelled()
        ref = self._refs.get(name)
        if ref is not None:
            await cancel_shielded_checkpoint()
            return ref
        if self._closed is not None:
            await cancel_shielded_checkpoint()
            raise NotAccepting(self._closed)
        task = current_task()
        tasks = self._waiting.setdefault(name, {})
        tasks[task] = None

        def abort(_: RaiseCancelT) -> Abort:
            del tasks[task]
            if not tasks:
                del self._waiting[name]
            return Abort.SUCCEEDED

        found: Ref[Any] = await wait_task_rescheduled(abort)
        return found

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
        """Make the owner of a reserved name visible, and wake who waits for it, in the order of arrival."""
        self._refs[ref.name] = ref
        if self._waiting:
            self._wake(ref)

    @enable_ki_protection
    def _wake(self, ref: Ref[Any]) -> None:
        for task in self._waiting.pop(ref.name, ()):
            # The handle itself is handed over, not a signal to look it up: it may be another's by then.
            reschedule(task, outcome.Value(ref))

    def release(self, name: str) -> None:
        """Free a name. Only its owner calls it, as it ends."""
        self._reserved.discard(name)
        self._refs.pop(name, None)

    @enable_ki_protection
    def close(self, system_name: str) -> None:
        """Fail who waits for a name, now and from now on, as the system starts nothing more. Idempotent.

        Args:
            system_name: For their error.
        """
        self._closed = system_name
        waiting, self._waiting = self._waiting, {}
        for tasks in waiting.values():
            for task in tasks:
                reschedule(task, outcome.Error(NotAccepting(system_name)))
