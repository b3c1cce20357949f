"""`store/*`: what it costs that nothing leaves a session before it is on the disk.

The reference is the same work in bare `sqlite3`: one commit for each record, or the same rows read. Store and reference
use the same kind of file in the same folder for temporary files, in turn.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TypeVar

import trio

from actors.runtime import open_system
from actors.stores import SqliteStore
from actors.stores.connecting import connect
from actors.stores.records import Append
from actors.stores.writing import Writer
from bench.harness import Goal, Row
from protocol.events import Custom, Event
from protocol.history import fold
from protocol.stored import encode_record

T = TypeVar("T")

#: A record of 300 bytes as JSON.
_PAYLOAD = {"text": "x" * 211}
_COMMITS_EACH = 200
_RATE = 2_000


def append_grouped(*, quick: bool) -> list[Row]:
    """Durable appends of 300 B, of 1,000 sessions that each wait for the commit."""
    sessions, n = (50, 1_000) if quick else (1_000, 30_000)
    return [
        Row(
            bench="store/append_grouped", case=case, n=n, unit="records/s", samples=n, repeats=1 if quick else 3,
            measure=partial(appends_per_second, n, sessions),
            against="bare sqlite3: WAL, synchronous=FULL, one commit for each record, each awaited in a worker thread",
            refer=partial(commits_per_second, 20 if quick else _COMMITS_EACH),
            goal=goal,
            note="until the last session was told; each has one record on the way",
        )
        for case, goal in (
            (f"{sessions} sessions", Goal(value=25_000, at_most=False)),
            (f"{sessions} sessions, beside one commit each", Goal(value=20, at_most=False, of="ratio")),
        )
    ]  # fmt: skip


def latency(*, quick: bool) -> list[Row]:
    """From an append to its commit, while 2,000 records come each second."""
    n = 200 if quick else 6_000
    return [
        Row(
            bench="store/latency", case=f"p{percent} at {_RATE}/s", n=n, unit="ms", samples=n,
            repeats=1 if quick else 3,
            measure=partial(commit_ms, n, percent),
            against=f"bare sqlite3: p{percent} of one commit of one record, one after the other",
            refer=partial(one_commit_ms, 20 if quick else _COMMITS_EACH, percent),
            goal=Goal(value=goal, at_most=True, scales=False),
            note="open loop: records come at their time, whether or not those before are kept",
        )
        for percent, goal in ((50, 3.0), (99, 15.0))
    ]  # fmt: skip


def reload(*, quick: bool) -> list[Row]:
    """A session of 10,000 records without a snapshot, from the file to its state."""
    n = 500 if quick else 10_000
    return [
        Row(
            bench="store/reload", case=f"{n} records", n=n, unit="ms", samples=n, repeats=1 if quick else 5,
            measure=partial(reload_ms, n),
            against="bare sqlite3: the same rows, neither checked nor decoded",
            refer=partial(read_rows_ms, n),
            goal=Goal(value=30, at_most=True),
            note="load and fold; the file is in the system's cache",
        )
    ]  # fmt: skip


def reopen(*, quick: bool) -> list[Row]:
    """A store of 100,000 records, opened as a killed process has left it."""
    n = 1_000 if quick else 100_000
    return [
        Row(
            bench="store/open", case=f"{n} records", n=n, unit="ms", samples=n, repeats=1 if quick else 3,
            measure=partial(open_ms, n),
            against="bare sqlite3: connect and read the first row of the same file, its log moved already",
            refer=partial(connect_ms, n),
            goal=Goal(value=250, at_most=True),
            note="with the write-ahead log as it was when the process ended",
        )
    ]  # fmt: skip


# ---- measures


class _Appending:
    """A session that appends the next record when the one before is kept."""

    def __init__(self, store: SqliteStore, name: str, count: int, done: Callable[[], object]) -> None:
        self._store = store
        self._name = name
        self._left = count
        self._done = done
        store.create(name, name)

    def start(self) -> None:
        self._append(1)

    def commit(self, head: int) -> None:
        self._left -= 1
        if self._left:
            self._append(head + 1)
        else:
            self._done()

    def store_failed(self, error: Exception) -> None:
        raise error

    def _append(self, seq: int) -> None:
        self._store.append(self._name, [record(seq)], self)


class _Timed:
    """Notes when each record was kept."""

    def __init__(self, n: int) -> None:
        self.taken = [0.0] * n
        self.kept = [0.0] * n
        self._left = n
        self.through = trio.Event()

    def commit(self, head: int) -> None:
        self.kept[head - 1] = perf_counter()
        self._left -= 1
        if not self._left:
            self.through.set()

    def store_failed(self, error: Exception) -> None:
        raise error


def record(seq: int) -> Event:
    """Return a record of 300 bytes."""
    return Custom("progress", _PAYLOAD, seq=seq, time=1_700_000_000.25)


def appends_per_second(n: int, sessions: int) -> float:
    """Return how many of `n` records are on the disk per second, while so many sessions append one after the other."""

    async def measure(store: SqliteStore) -> float:
        left, through = sessions, trio.Event()

        def done() -> None:
            nonlocal left
            left -= 1
            if not left:
                through.set()

        appending = [_Appending(store, f"s{number}", n // sessions, done) for number in range(sessions)]
        before = perf_counter()
        for session in appending:
            session.start()
        await through.wait()
        return n / (perf_counter() - before)

    return _with_store(measure)


def commit_ms(n: int, percent: int) -> float:
    """Return a percentile, in milliseconds, of the time from an append to its commit at 2,000 appends per second."""

    async def measure(store: SqliteStore) -> float:
        timed = _Timed(n)
        store.create("s", "s")
        start, sent = perf_counter(), 0
        while sent < n:
            due = min(n, int((perf_counter() - start) * _RATE) + 1)
            while sent < due:
                timed.taken[sent] = start + sent / _RATE
                sent += 1
                store.append("s", [record(sent)], timed)
            await trio.sleep(0.5 / _RATE)
        await timed.through.wait()
        return _percentile([kept - taken for kept, taken in zip(timed.kept, timed.taken, strict=True)], percent)

    return _with_store(measure)


def reload_ms(n: int) -> float:
    """Return how long a log of `n` records takes from the file to its state, in milliseconds."""

    async def measure(store: SqliteStore) -> float:
        await store.load("s0")  # the first call of all starts the thread
        before = perf_counter()
        loaded = await store.load("s1")
        assert loaded is not None
        state = fold(loaded.events, loaded.snapshot)
        took = perf_counter() - before
        assert state.seq == n
        return took * 1e3

    return _with_store(measure, lambda path: _fill(path, n, sessions=2))


def open_ms(n: int) -> float:
    """Return how long a store of `n` records takes to open with a log to be recovered, in milliseconds."""

    async def run(path: Path) -> float:
        async with open_system(name="bench") as system:
            before = perf_counter()
            store = SqliteStore(path)
            await store.open(system)
            took = perf_counter() - before
            await store.aclose()
            return took * 1e3

    with tempfile.TemporaryDirectory() as folder:
        _fill(Path(folder, "filled.db"), n // 100, sessions=100, left_as_killed=Path(folder, "killed.db"))
        return trio.run(run, Path(folder, "killed.db"))


# ---- references


def commits_per_second(n: int) -> float:
    """Return how many commits of one record bare sqlite3 makes per second, each awaited in a worker thread."""

    async def run(connection: sqlite3.Connection, body: bytes) -> float:
        before = perf_counter()
        for seq in range(n):
            await trio.to_thread.run_sync(connection.execute, "INSERT INTO events VALUES (?, ?)", (seq, body))
        return n / (perf_counter() - before)

    with tempfile.TemporaryDirectory() as folder:
        connection = _bare(folder)
        rate = trio.run(run, connection, encode_record(record(1)))
        connection.close()
        return rate


def awaited_commit_ms(n: int) -> float:
    """Return the p50 of `n` commits of one record in bare sqlite3, each awaited in a worker thread, in milliseconds."""

    async def run(connection: sqlite3.Connection, body: bytes) -> float:
        times: list[float] = []
        for seq in range(n):
            before = perf_counter()
            await trio.to_thread.run_sync(connection.execute, "INSERT INTO events VALUES (?, ?)", (seq, body))
            times.append(perf_counter() - before)
        return _percentile(times, 50)

    with tempfile.TemporaryDirectory() as folder:
        connection = _bare(folder)
        took = trio.run(run, connection, encode_record(record(1)))
        connection.close()
        return took


def one_commit_ms(n: int, percent: int) -> float:
    """Return a percentile, in milliseconds, of `n` commits of one record in bare sqlite3."""
    return _percentile(_one_by_one(n), percent)


def read_rows_ms(n: int) -> float:
    """Return how long bare sqlite3 takes to read the rows of a session, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        _fill(Path(folder, "s.db"), n, sessions=2)
        connection = connect(str(Path(folder, "s.db")))
        before = perf_counter()
        rows = connection.execute("SELECT seq, crc, body FROM events WHERE session = 2 ORDER BY seq").fetchall()
        took = perf_counter() - before
        connection.close()
        assert len(rows) == n
        return took * 1e3


def connect_ms(n: int) -> float:
    """Return how long bare sqlite3 takes to open a store and read its first row, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        _fill(Path(folder, "s.db"), n // 100, sessions=100)
        before = perf_counter()
        connection = connect(str(Path(folder, "s.db")))
        connection.execute("SELECT * FROM sessions LIMIT 1").fetchone()
        took = perf_counter() - before
        connection.close()
        return took * 1e3


def _one_by_one(n: int) -> list[float]:
    times: list[float] = []
    body = encode_record(record(1))
    with tempfile.TemporaryDirectory() as folder:
        connection = _bare(folder)
        for seq in range(n):
            before = perf_counter()
            connection.execute("INSERT INTO events VALUES (?, ?)", (seq, body))
            times.append(perf_counter() - before)
        connection.close()
    return times


def _bare(folder: str) -> sqlite3.Connection:
    connection = connect(str(Path(folder, "s.db")))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    return connection


def _with_store(measure: Callable[[SqliteStore], Awaitable[T]], fill: Callable[[Path], object] | None = None) -> T:
    async def run(path: Path) -> T:
        async with open_system(name="bench") as system:
            store = SqliteStore(path)
            await store.open(system)
            try:
                return await measure(store)
            finally:
                await store.aclose()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.db")
        if fill is not None:
            fill(path)
        return trio.run(run, path)


def _fill(path: Path, n: int, *, sessions: int, left_as_killed: Path | None = None) -> None:
    """Write `n` records for each session, their rows between one another, as sessions do that work side by side."""
    writer = Writer(path)
    step = 100
    for after in range(0, n, step):
        bodies = [encode_record(record(seq)) for seq in range(after + 1, min(n, after + step) + 1)]
        for number in range(sessions):
            name = f"s{number}"
            writer.write([Append(name, after, bodies, 1.0, log_id="" if after else name)])
    if left_as_killed is not None:
        shutil.copy(path, left_as_killed)
        shutil.copy(f"{path}-wal", f"{left_as_killed}-wal")
    writer.close()


def _percentile(times: list[float], percent: int) -> float:
    """Return a percentile of seconds, in milliseconds."""
    if percent == 50:
        return median(times) * 1e3
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)] * 1e3
