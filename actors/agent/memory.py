"""The store of an agent that need not outlive its process: commits at once and forgets a session when it is closed."""

from collections.abc import Sequence

import trio
from msgspec import Struct

from actors.agent.ports import CommitSink, StoredSession, StoreError
from actors.runtime.system import System
from protocol.blobs import blob_name
from protocol.errors import Code, RuleViolation
from protocol.events import Event
from protocol.history import State, fold
from protocol.stored import decode_state, encode_state


class MemoryLog(Struct, frozen=True):
    """A log as `load` returns it."""

    log_id: str
    events: Sequence[Event]
    first: int = 1
    snapshot: State | None = None


class _Beside:
    """What few sessions have beside their log."""

    __slots__ = ("blobs", "created", "first", "snapshot", "snapshot_seq")

    def __init__(self) -> None:
        self.first = 1
        self.created: float | None = None
        self.snapshot = b""
        self.snapshot_seq = 0
        self.blobs: dict[str, bytes] = {}


class MemoryStore:
    """Keeps logs in memory. Every append is committed before it returns."""

    __slots__ = ("_beside", "_ids", "_logs")

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._logs: dict[str, list[Event]] = {}
        self._beside: dict[str, _Beside] = {}

    async def open(self, system: System) -> None:
        """There is nothing to start. Not a checkpoint."""

    def create(self, session_id: str, log_id: str) -> None:
        """Begin a log.

        Raises:
            RuleViolation: `store.failed` - the session has a log.
        """
        if session_id in self._ids:
            raise RuleViolation(Code.STORE_FAILED, f"session {session_id!r} has a log already")
        self._ids[session_id] = log_id
        self._logs[session_id] = []

    async def load(self, session_id: str) -> MemoryLog | None:
        """Return the log of a session that was not closed. Not a checkpoint: nothing has to be waited for."""
        log_id = self._ids.get(session_id)
        if log_id is None:
            return None
        log, beside = self._logs[session_id], self._beside.get(session_id)
        if beside is None or not beside.snapshot:
            return MemoryLog(log_id, log)
        behind = log[beside.snapshot_seq + 1 - beside.first :]
        return MemoryLog(log_id, behind, beside.first, decode_state(beside.snapshot))

    async def read(self, session_id: str, *, after: int, limit: int) -> Sequence[Event]:
        """Return at most `limit` records behind `after`. Not a checkpoint.

        Raises:
            StoreError: The first of them was trimmed.
        """
        beside = self._beside.get(session_id)
        first = 1 if beside is None else beside.first
        if after + 1 < first:
            raise StoreError(trimmed(session_id, after + 1, first), code=Code.STORE_DAMAGED)
        return self._logs.get(session_id, [])[after + 1 - first : after + 1 - first + limit]

    def append(self, session_id: str, events: Sequence[Event], sink: CommitSink) -> None:
        log = self._logs[session_id]
        if log and events[0].seq != log[-1].seq + 1:
            sink.store_failed(StoreError(misplaced(session_id, events[0].seq - 1)))
            return
        log.extend(events)
        sink.commit(events[-1].seq)

    def save_snapshot(self, session_id: str, state: State) -> None:
        """Keep a copy of the state."""
        beside = self._have_beside(session_id)
        beside.snapshot, beside.snapshot_seq = encode_state(state), state.seq

    def trim(self, session_id: str, first: int, *, before: float | None = None) -> None:
        """Forget the records before `first`, and before a time if one is given, as far as the snapshot covers them."""
        beside, log = self._have_beside(session_id), self._logs[session_id]
        count = min(first, beside.snapshot_seq + 1, log[-1].seq if log else 0) - beside.first  # the last one stays
        if before is not None:
            count = next((at for at, event in enumerate(log[: max(count, 0)]) if event.time >= before), count)
        if count > 0:
            beside.created = log[0].time if beside.created is None else beside.created
            # A new list: somebody may hold the old one, as `load` returned it.
            self._logs[session_id] = log[count:]
            beside.first += count

    def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep bytes until the session is forgotten."""
        name = blob_name(data)
        self._have_beside(session_id).blobs[name] = data
        return name

    async def get_blob(self, session_id: str, name: str) -> bytes | None:
        """Return bytes by their name. Not a checkpoint."""
        beside = self._beside.get(session_id)
        return None if beside is None else beside.blobs.get(name)

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> Sequence[StoredSession]:
        """Return sessions that have records, in the order of their ids. A checkpoint with each: it folds their logs."""
        found: list[StoredSession] = []
        for session_id in sorted(name for name in self._ids if name > after):
            if len(found) == limit:
                break
            await trio.lowlevel.checkpoint()
            loaded = await self.load(session_id)
            if loaded is None or not self._logs[session_id]:
                continue
            log, beside = self._logs[session_id], self._beside.get(session_id)
            created = log[0].time if beside is None or beside.created is None else beside.created
            state = fold(loaded.events, loaded.snapshot)
            asks = len(state.open_asks())
            found.append(StoredSession(session_id, loaded.log_id, state.seq, created, log[-1].time, state.status, asks))
        await trio.lowlevel.checkpoint()
        return found

    async def delete(self, session_id: str) -> bool:
        """Forget a session. Not a checkpoint."""
        return self._forget(session_id)

    async def release(self, session_id: str) -> None:
        """Forget a session. Not a checkpoint."""
        self._forget(session_id)

    async def aclose(self) -> None:
        """Forget everything. Not a checkpoint."""
        self._ids.clear()
        self._logs.clear()
        self._beside.clear()

    def _forget(self, session_id: str) -> bool:
        self._logs.pop(session_id, None)
        self._beside.pop(session_id, None)
        return self._ids.pop(session_id, None) is not None

    def _have_beside(self, session_id: str) -> _Beside:
        if session_id not in self._beside:
            self._beside[session_id] = _Beside()
        return self._beside[session_id]


def misplaced(session_id: str, after: int) -> str:
    """Say that a log does not end where its writer believes."""
    return f"the log of session {session_id!r} does not end at record {after}; somebody else has written to it"


def trimmed(session_id: str, seq: int, first: int) -> str:
    """Say that a record is not kept any more."""
    return f"record {seq} of session {session_id!r} is not kept any more; the oldest one is {first}"
