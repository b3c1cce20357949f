"""Stores that behave badly in one way each, for tests: slow, failing, and one that lies; and one that does nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from actors.agent.ports import CommitSink, StoredLog, StoredSession
from actors.runtime import System
from protocol.events import Event
from protocol.history import State


@dataclass(slots=True)
class KeptLog:
    """A log as a store has it."""

    log_id: str
    events: list[Event]
    first: int = 1
    snapshot: State | None = None


class PlainStore:
    """What a store may leave out: it needs no start, has no snapshots, blobs and lists, and keeps a log for ever."""

    async def open(self, system: System) -> None: ...

    def create(self, session_id: str, log_id: str) -> None: ...

    async def load(self, session_id: str) -> StoredLog | None:
        return None

    async def read(self, session_id: str, *, after: int, limit: int) -> Sequence[Event]:
        return ()

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None: ...

    def save_snapshot(self, session_id: str, state: State) -> None: ...

    def trim(self, session_id: str, first: int, *, before: float | None = None) -> None: ...

    def put_blob(self, session_id: str, data: bytes) -> str:
        return ""

    async def get_blob(self, session_id: str, name: str) -> bytes | None:
        return None

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> Sequence[StoredSession]:
        return ()

    async def delete(self, session_id: str) -> bool:
        return False

    async def release(self, session_id: str) -> None: ...

    async def aclose(self) -> None: ...


class SlowStore(PlainStore):
    """Keeps what it was given later, from a task of its own, in order. Needs `keep` running in some nursery.

    Attributes:
        logs: What is kept, by session.
        delay_s: Virtual seconds before each batch is kept.
        checkpoints: Further trips through the scheduler before it is.
    """

    def __init__(self, *, delay_s: float = 0.0, checkpoints: int = 1) -> None:
        self.logs: dict[str, KeptLog] = {}
        self.delay_s = delay_s
        self.checkpoints = checkpoints
        self._work: list[tuple[str, Sequence[Event], CommitSink]] = []
        self._more = trio.Event()
        self._closing = False

    def create(self, session_id: str, log_id: str) -> None:
        assert session_id not in self.logs
        self.logs[session_id] = KeptLog(log_id, [])

    async def load(self, session_id: str) -> KeptLog | None:
        # What was taken before is part of the log, also where whoever appended it is gone.
        while any(waiting == session_id for waiting, _, _ in self._work):
            self._keep_one()
            await trio.lowlevel.checkpoint()
        for _ in range(self.checkpoints):
            await trio.lowlevel.checkpoint()
        return self.logs.get(session_id)

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        self._work.append((session_id, list(events), sink))
        self._more.set()

    async def release(self, session_id: str) -> None:
        await trio.lowlevel.checkpoint()
        self.logs.pop(session_id, None)

    async def aclose(self) -> None:
        self._closing = True
        while self._work:
            self._keep_one()
        await trio.lowlevel.checkpoint()

    async def keep(self) -> None:
        """Keep what comes, for ever."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            while self._work:
                if self.delay_s:
                    await trio.sleep(self.delay_s)
                for _ in range(self.checkpoints):
                    await trio.lowlevel.checkpoint()
                self._keep_one()

    def _keep_one(self) -> None:
        if not self._work:
            return
        session_id, events, sink = self._work.pop(0)
        if session_id in self.logs:
            self.logs[session_id].events.extend(events)
            sink.commit(events[-1].seq)


class FailingStore(PlainStore):
    """Keeps `good` appends and fails at the next one, once; afterwards it keeps again.

    Attributes:
        logs: What is kept, by session.
        failures: How often it has failed.
        later: Run the report of a failure at a later moment, instead of within `append`.
    """

    def __init__(self, good: int, *, later: Callable[[Callable[[], None]], None] | None = None) -> None:
        self.logs: dict[str, KeptLog] = {}
        self.good = good
        self.failures = 0
        self.later = later
        self._broken: set[CommitSink] = set()

    def create(self, session_id: str, log_id: str) -> None:
        self.logs[session_id] = KeptLog(log_id, [])

    async def load(self, session_id: str) -> KeptLog | None:
        await trio.lowlevel.checkpoint()
        log = self.logs.get(session_id)
        return log if log is not None and log.events else None

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        if sink in self._broken:
            return
        if self.good == 0:
            self.good = -1
            self.failures += 1
            self._broken.add(sink)

            def report() -> None:
                sink.store_failed(OSError("disk full"))

            if self.later is not None:
                self.later(report)
            else:
                report()
            return
        self.good -= 1
        self.logs[session_id].events.extend(events)
        sink.commit(events[-1].seq)

    async def release(self, session_id: str) -> None:
        await trio.lowlevel.checkpoint()
        self.logs.pop(session_id, None)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class LyingStore(FailingStore):
    """Says that it has kept the `lie`-th append and has not: what a test of durability must find."""

    def __init__(self, lie: int) -> None:
        super().__init__(-1)
        self.lie = lie
        self.appends = 0

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        self.appends += 1
        if self.appends == self.lie:
            sink.commit(events[-1].seq)
            return
        super().append(session_id, events, sink)
