"""Sessions that write to a store until the power goes, and that know what must be there afterwards.

It decides what a store owes to who writes: what was acknowledged, and what a load has shown, is there; what was asked
for and not acknowledged is there whole or not at all; nothing else is. It must not know how the disk fails.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import trio

from actors.agent.ports import StoredLog, StoreError
from actors.stores import SqliteStore
from protocol import events as ev
from protocol.history import State, fold
from protocol.stored import encode_record, encode_state
from tests.actors.stores.keeping import Writing

#: A record longer than what stays in one page, and one with a text that is kept beside it.
_LONG, _LARGE = 10_000, 70_000
_STEPS = ("append", "blob", "snapshot", "trim", "delete", "load")


class Lost(AssertionError):
    """Something that was acknowledged is not there."""


@dataclass(slots=True)
class Log:
    """What one log has been given, and how much of it must be there.

    Attributes:
        events: Everything that was appended, in order.
        ends: Where an append has ended: a log ends at one of these.
        kept: Up to here it was acknowledged, or shown.
        first: Nothing from here on may have been trimmed.
        blobs: By name: the bytes, and the record that they were put behind.
        deleting: Somebody has asked to delete it, and was not answered yet.
    """

    log_id: str
    events: list[ev.Event] = field(default_factory=list[ev.Event])
    ends: set[int] = field(default_factory=lambda: {0})
    kept: int = 0
    first: int = 1
    blobs: dict[str, tuple[bytes, int]] = field(default_factory=dict[str, tuple[bytes, int]])
    deleting: bool = False


class Session(Writing):
    """Writes in one life after the other.

    Attributes:
        given: What there may be, and must be, of the log that it has now.
        script: What it does first; afterwards it does anything.
        counts: What has happened, for whoever checks that it did.
    """

    def __init__(self, name: str, counts: dict[str, int]) -> None:
        super().__init__(None, name)
        self.counts = counts
        self.generation = 0
        self.given = Log(f"{name}/0")
        self.script: list[str] = []
        self.refused: list[str] = []

    @property
    def said(self) -> list[str]:
        """What went wrong in this life, as it was told."""
        return self.errors + self.refused

    def commit(self, head: int) -> None:
        super().commit(head)
        assert head in self.given.ends, f"{self.name}: {head} was acknowledged, the appends end at {self.given.ends}"
        self.given.kept = head
        self.count("acknowledged")

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def append(self, *events: ev.Event) -> None:
        before = len(self.log)
        # Written down before the store hears of it, which may answer within the call.
        self.given.ends.add(self.state.seq + len(events))
        super().append(*events)
        self.given.events += self.log[before:]

    async def live(self, store: SqliteStore, rng: Random, steps: int) -> None:
        """Go on where the log ends, and write until enough is written or the store has failed."""
        self.store = store
        self.heads, self.errors, self.refused = [], [], []
        try:
            await self._resume(store)
            for _ in range(steps):
                if self.errors:
                    return
                await self._step(store, rng)
            await self.wait_head(self.state.seq)
        except StoreError as error:
            self.count("told of a failure")
            self.refused.append(str(error))

    async def _resume(self, store: SqliteStore) -> None:
        loaded = await store.load(self.name)
        self.state = self._check_loaded(loaded)
        if loaded is None:
            self._start_anew()
            return
        given = self.given
        # Shown from here on, so it is there from here on, also if nobody had heard of its commit.
        given.kept = self.state.seq
        given.events = given.events[: self.state.seq]
        given.ends = {end for end in given.ends if end <= self.state.seq}
        given.blobs = {name: blob for name, blob in given.blobs.items() if blob[1] < self.state.seq}
        given.deleting = False
        self.log = list(given.events)
        self.heads = [given.kept]
        self.count("resumed")

    def _start_anew(self) -> None:
        self.generation += 1
        self.state, self.log, self.given = State(), [], Log(f"{self.name}/{self.generation}")
        self.store.create(self.name, self.given.log_id)
        self.append(ev.SessionOpened(self.name, self.given.log_id))

    async def _step(self, store: SqliteStore, rng: Random) -> None:
        what = self.script.pop(0) if self.script else rng.choices(_STEPS, (12, 2, 2, 2, 1, 1))[0]
        self.count(what)
        match what:
            case "blob":
                data = rng.randbytes(rng.randint(1, 6_000))
                self.given.blobs[store.put_blob(self.name, data)] = data, self.state.seq
            case "snapshot":
                store.save_snapshot(self.name, self.state)
            case "trim":
                self.given.first = max(self.given.first, rng.randint(min(3, self.state.seq), self.state.seq))
                store.trim(self.name, self.given.first)
            case "delete":
                self.given.deleting = True
                assert await store.delete(self.name)
                self._start_anew()
            case "load":
                loaded = await store.load(self.name)
                assert loaded is not None
                assert encode_state(fold(loaded.events, loaded.snapshot)) == encode_state(self.state)
            case _:
                size = rng.choice((5, 5, 300, 300, 300, _LONG))
                text = ("x" * size) if rng.random() < 0.98 else rng.randbytes(_LARGE // 2).hex()
                self.append(*(ev.StateChanged("k", text, time=1.0) for _ in range(rng.randint(1, 3))))
        if rng.random() < 0.6:
            await self.wait_head(self.state.seq)
        else:
            await trio.lowlevel.checkpoint()

    def _check_loaded(self, loaded: StoredLog | None) -> State:
        """Return the state that was loaded, of which the snapshot is a part now."""
        given = self.given
        if loaded is None:
            if given.kept and not given.deleting:
                raise Lost(f"{self.name}: {given.kept} records were acknowledged, and there is no log")
            return State()
        if loaded.log_id != given.log_id:
            raise Lost(f"{self.name}: the log is {loaded.log_id}, which was deleted before {given.log_id}")
        state = fold(loaded.events, loaded.snapshot)
        if state.seq < given.kept:
            raise Lost(f"{self.name}: {given.kept} records were acknowledged, and {state.seq} are there")
        assert state.seq in given.ends, f"{self.name}: half an append is there, up to {state.seq}"
        assert encode_state(state) == encode_state(fold(given.events[: state.seq])), f"{self.name}: another state"
        assert loaded.first <= given.first, f"{self.name}: trimmed to {loaded.first}, allowed was {given.first}"
        return state

    async def check(self, store: SqliteStore, archived: dict[tuple[str, int], Any]) -> None:
        """Look at what is there.

        Args:
            store: Open, and of nobody else.
            archived: By log and seq: the records in the archive.

        Raises:
            Lost: Something is not there.
            AssertionError: It is there in part, or is something else.
        """
        given = self.given
        loaded = await store.load(self.name)
        state = self._check_loaded(loaded)
        if loaded is None:
            return
        kept = await store.read(self.name, after=loaded.first - 1, limit=1_000_000)
        assert list(kept) == given.events[loaded.first - 1 : state.seq], f"{self.name}: other records"
        for event in given.events[: loaded.first - 1]:
            if archived.get((given.log_id, event.seq)) != json.loads(encode_record(event)):
                raise Lost(f"{self.name}: record {event.seq} was trimmed, and is not in the archive")
        for name, (data, after) in given.blobs.items():
            if after < given.kept and await store.get_blob(self.name, name) != data:
                raise Lost(f"{self.name}: blob {name} is not there")


def read_archive(path: Path) -> dict[tuple[str, int], Any]:
    """Return the records of an archive by log and seq. A line that was cut off is none."""
    records: dict[tuple[str, int], Any] = {}
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            read = json.loads(line)
            records[read["log_id"], read["record"]["seq"]] = read["record"]
        except (ValueError, TypeError, KeyError):
            continue
    return records
