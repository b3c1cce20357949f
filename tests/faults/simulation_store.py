"""The store of a simulation: slow at times, failing for one session at a time, dead with its host, then good again.

Its logs outlive the host. What it has kept is the truth that clients and acknowledgements are held to.
"""

from collections import defaultdict, deque
from collections.abc import Sequence

import trio

from actors.agent.ports import CommitSink
from protocol.events import Event
from tests.faults.stores import KeptLog, PlainStore

FAULTS = ("raises", "reports", "reports later", "keeps and raises", "does not load")


class PlannedFault(OSError):
    """A fault of the simulation."""


class SimulatedStore(PlainStore):
    """Keeps logs in memory, at once or later. Needs `keep` running in some nursery.

    Attributes:
        logs: What is kept, by session.
        caused: The kept records that a command led to, by session and the command's id.
        sinks: Who appended last, by session.
        firsts: The first seq that each of all who ever appended did.
        delay_s: Virtual seconds before what was taken is kept; 0 keeps it at once.
        doubtful: Ids of commands that were kept although the store said that it had failed.
        failures: How often it has failed.
    """

    def __init__(self) -> None:
        self.logs: dict[str, KeptLog] = {}
        self.caused: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
        self.sinks: dict[str, CommitSink] = {}
        self.firsts: dict[CommitSink, int] = {}
        self.delay_s = 0.0
        self.doubtful: set[str] = set()
        self.failures = 0
        self._dead = False
        self._faults: dict[str, str] = {}
        self._broken: set[CommitSink] = set()
        self._work: deque[tuple[str, Sequence[Event], CommitSink]] = deque()
        self._reports: deque[CommitSink] = deque()
        self._more = trio.Event()

    # ---- faults

    def arm(self, session_id: str, fault: str) -> None:
        """Let the next append, or load, of a session fail: one of `FAULTS`."""
        self._faults[session_id] = fault

    def disarm(self) -> None:
        """Be good from now on."""
        self._faults.clear()
        self.delay_s = 0.0

    def die(self) -> None:
        """Lose what is not kept and keep nothing more, as when the host's process is killed."""
        self._dead = True
        self._broken.update(sink for _, _, sink in self._work)
        self._work.clear()

    def revive(self) -> None:
        self._dead = False

    def broken(self, session_id: str) -> bool:
        """Whether something of whoever appended last to this session was lost, so that its runs may have no end."""
        return self.sinks[session_id] in self._broken

    # ---- the port

    def create(self, session_id: str, log_id: str) -> None:
        assert not self._kept(session_id), f"session {session_id!r} has a log already"
        self.logs[session_id] = KeptLog(log_id, [])

    async def load(self, session_id: str) -> KeptLog | None:
        # What was taken before is part of the log, also where whoever appended it is gone.
        self._flush(session_id)
        await trio.lowlevel.checkpoint()
        if self._faults.get(session_id) == "does not load":
            del self._faults[session_id]
            self.failures += 1
            raise PlannedFault("cannot be read")
        self._flush(session_id)
        return self.logs[session_id] if self._kept(session_id) else None

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        self.sinks[session_id] = sink
        self.firsts.setdefault(sink, events[0].seq)
        if sink in self._broken:
            return
        if self._dead:
            self._broken.add(sink)
            raise PlannedFault("the host is dead")
        fault = self._faults.get(session_id, "")
        if fault and fault != "does not load":
            del self._faults[session_id]
            self._fail(fault, session_id, events, sink)
        elif self.delay_s or self._waits(session_id):
            self._work.append((session_id, list(events), sink))
            self._more.set()
        else:
            self._keep(session_id, events, sink)

    async def release(self, session_id: str) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.flush()
        await trio.lowlevel.checkpoint()

    # ---- its own task

    async def keep(self) -> None:
        """Keep what comes, for ever."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            await trio.sleep(self.delay_s)
            while self._reports:
                self._reports.popleft().store_failed(PlannedFault("disk full, as was found later"))
            self.flush()

    def flush(self) -> None:
        """Keep all that was taken."""
        while self._work:
            self._keep(*self._work.popleft())

    def _flush(self, session_id: str) -> None:
        mine = [item for item in self._work if item[0] == session_id]
        self._work = deque(item for item in self._work if item[0] != session_id)
        for item in mine:
            self._keep(*item)

    def _keep(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        self._write(session_id, events)
        sink.commit(events[-1].seq)

    def _write(self, session_id: str, events: Sequence[Event]) -> None:
        log = self.logs[session_id].events
        assert events[0].seq == len(log) + 1, f"record {events[0].seq} of {session_id} does not follow {len(log)}"
        log.extend(events)
        for event in events:
            if event.cause:
                self.caused[session_id, event.cause].append(event)

    def _kept(self, session_id: str) -> bool:
        return session_id in self.logs and bool(self.logs[session_id].events)

    def _waits(self, session_id: str) -> bool:
        return any(waiting == session_id for waiting, _, _ in self._work)

    def _fail(self, fault: str, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        self.failures += 1
        self._broken.add(sink)
        lost = [item for item in self._work if item[2] is sink]
        self._work = deque(item for item in self._work if item[2] is not sink)
        if fault == "keeps and raises":
            for batch in (*(batch for _, batch, _ in lost), events):
                self._write(session_id, batch)
                self.doubtful.update(event.cause for event in batch if event.cause)
        if fault == "reports":
            sink.store_failed(PlannedFault("disk full"))
        elif fault == "reports later":
            self._reports.append(sink)
            self._more.set()
        else:
            raise PlannedFault("disk full")
