"""The store in a file: opened by one, closed in order, damaged in one place and good in all others."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel

from actors.agent.ports import StoreError
from actors.runtime import InlineThreads, NameTaken, open_system
from actors.stores import SqliteStore
from actors.stores.reading import Reader
from actors.stores.records import Append, Damaged, Snapshot, Trim
from actors.stores.schema import APPLICATION_ID, VERSION, NotAStore
from actors.stores.writing import Writer
from protocol import events as ev
from tests.actors.stores.keeping import Sink, Writing, custom, sqlite_store

REPOSITORY = Path(__file__).parents[3]


async def filled(path: Path, *names: str, **options: Any) -> None:
    """Make a store of sessions with three records, a snapshot and a blob each."""
    async with sqlite_store(path, **options) as store:
        for name in names:
            session = Writing(store, name).begin()
            session.append(ev.Custom(f"findme-record-of-{name}"))
            session.append(ev.StateChanged("k", f"findme-value-of-{name}"))
            store.put_blob(name, f"findme-blob-of-{name}".encode())
            store.save_snapshot(name, session.state)
            session.append(*custom(0))
            await session.wait_kept()


def flip(path: Path, needle: bytes) -> None:
    """Turn one bit of every place in the file where these bytes are."""
    data = bytearray(path.read_bytes())
    assert needle in data
    place = data.find(needle)
    while place >= 0:
        data[place + len(needle) // 2] ^= 1
        place = data.find(needle, place + 1)
    path.write_bytes(data)


# ---- opening and closing


async def test_what_was_committed_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    await filled(tmp_path / "s.db", "a", "b")
    async with sqlite_store(tmp_path / "s.db") as store:
        loaded = await store.load("a")
        assert loaded is not None
        assert loaded.snapshot is not None
        assert (loaded.snapshot.seq, [event.seq for event in loaded.events]) == (3, [4])
        assert [listed.id for listed in await store.list_sessions()] == ["a", "b"]


async def test_closing_writes_what_waits_and_moves_the_log_into_the_file(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        session = Writing(store).begin()
        for _ in range(3_000):
            session.append(*custom(0))
    assert session.heads[-1] == 3_001
    assert not (tmp_path / "s.db-wal").exists()


async def test_a_system_that_stops_closes_its_store_and_keeps_what_waits(tmp_path: Path) -> None:
    async with open_system(name="test") as system:
        store = SqliteStore(tmp_path / "s.db")
        await store.open(system)
        session = Writing(store).begin()
    assert session.heads == [1]
    session.append(*custom(0))
    assert session.errors == [f"store.failed: store {tmp_path / 's.db'} is closed"]
    with pytest.raises(StoreError, match=r"is closed$"):
        await store.load("s")
    with pytest.raises(StoreError, match=r"is closed$"):
        await store.read("s", after=0, limit=1)
    with pytest.raises(StoreError, match=r"is closed$"):
        await store.delete("s")
    async with sqlite_store(tmp_path / "s.db") as again:
        assert await again.load("s") is not None


async def test_a_store_that_was_not_opened_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    with pytest.raises(StoreError, match=r"^store\.failed: store .*s\.db is not open$"):
        await store.load("s")
    await store.aclose()


@pytest.mark.parametrize("path", [":memory:", ""])
def test_a_store_is_a_file(path: str) -> None:
    with pytest.raises(ValueError, match=r"^a store is a file, not '.*'; MemoryStore keeps logs in memory$"):
        SqliteStore(path)


async def test_a_store_is_opened_once(tmp_path: Path) -> None:
    async with open_system(name="test") as system:
        store = SqliteStore(tmp_path / "s.db")
        await store.open(system)
        with pytest.raises(StoreError, match=r"s\.db was opened before; make another one$"):
            await store.open(system)


async def test_a_second_owner_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        session = Writing(store).begin()
        with pytest.raises(
            StoreError,
            match=rf"^store\.failed: store .*s\.db is in use by process {os.getpid()}; "
            r"a store has one owner at a time$",
        ):
            async with sqlite_store(tmp_path / "s.db"):
                pass
        session.append(*custom(0))
        await session.wait_kept()
    async with sqlite_store(tmp_path / "s.db") as store:
        assert await store.load("s") is not None


async def test_a_second_process_is_refused_by_the_id_of_the_first(tmp_path: Path) -> None:
    program = """
import sys, trio
from actors.runtime import open_system
from actors.stores import SqliteStore, StoreError
async def main():
    async with open_system(name="second") as system:
        try:
            await SqliteStore(sys.argv[1]).open(system)
        except StoreError as error:
            print(error)
trio.run(main)
"""
    async with sqlite_store(tmp_path / "s.db"):
        done = await trio.run_process(
            [sys.executable, "-c", program, str(tmp_path / "s.db")], capture_stdout=True, cwd=REPOSITORY
        )
    assert f"is in use by process {os.getpid()};" in done.stdout.decode()


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"^store\.failed: store .*nowhere/s\.db: .*No such file or directory"):
        async with sqlite_store(tmp_path / "nowhere" / "s.db"):
            pass


async def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"s\.db is a database of another program$"):
        async with sqlite_store(path):
            pass
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"dear diary, " * 1_000)
    with pytest.raises(StoreError, match=r"s\.db is a file of another program$"):
        async with sqlite_store(path):
            pass
    assert path.read_bytes() == b"dear diary, " * 1_000


async def test_a_newer_layout_is_refused_by_its_number_and_left_as_it_is(tmp_path: Path) -> None:
    await filled(tmp_path / "s.db", "a")
    with sqlite3.connect(tmp_path / "s.db") as other:
        other.execute(f"PRAGMA user_version = {VERSION + 1}")
    other.close()
    before = (tmp_path / "s.db").read_bytes()
    with pytest.raises(StoreError, match=rf"has layout {VERSION + 1}; this version knows layouts up to {VERSION}$"):
        async with sqlite_store(tmp_path / "s.db"):
            pass
    assert (tmp_path / "s.db").read_bytes() == before


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "s.db").touch()
    await filled(tmp_path / "s.db", "a")
    with sqlite3.connect(tmp_path / "s.db") as other:
        assert other.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    other.close()


async def test_under_a_mock_clock_the_file_is_written_without_threads(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_system(name="test") as system:
        assert isinstance(system.threads, InlineThreads)
        store = SqliteStore(tmp_path / "s.db")
        await store.open(system)
        session = Writing(store).begin()
        with trio.fail_after(1):
            await session.wait_kept()
        await store.aclose()


async def test_blocked_threads_of_tools_do_not_hold_up_commits(tmp_path: Path) -> None:
    limiter = trio.to_thread.current_default_thread_limiter()
    async with sqlite_store(tmp_path / "s.db") as store:
        for number in range(int(limiter.total_tokens)):
            limiter.acquire_on_behalf_of_nowait(number)
        try:
            session = Writing(store).begin()
            await session.wait_kept()
        finally:
            for number in range(int(limiter.total_tokens)):
                limiter.release_on_behalf_of(number)


# ---- together


async def test_what_waits_is_written_in_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    from actors.stores import writing

    before = writing.Writer.write

    def write(self: writing.Writer, batch: Any) -> frozenset[str]:
        sizes.append(len(batch))
        return before(self, batch)

    monkeypatch.setattr(writing.Writer, "write", write)
    async with sqlite_store(tmp_path / "s.db") as store:
        sessions = [Writing(store, f"s{number}").begin() for number in range(2_500)]
        for session in sessions:
            await session.wait_kept()
    assert sum(sizes) == 2_500
    assert max(sizes) == 1_000
    assert len(sizes) <= 4


async def test_a_transaction_takes_about_a_megabyte(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        session = Writing(store).begin()
        for _ in range(10):
            session.append(*custom(0, text="x" * 600_000))
        await session.wait_kept()
        assert session.heads == list(range(1, 12))
        loaded = await store.load("s")
        assert loaded is not None
        assert list(loaded.events) == session.log


async def test_a_cancelled_delete_has_happened(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        await Writing(store).begin().wait_kept()
        with trio.CancelScope() as scope:
            scope.cancel()
            assert await store.delete("s")
        assert await store.load("s") is None


async def test_a_record_that_cannot_be_written_concerns_its_session_only(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        good, bad = Writing(store, "good").begin(), Writing(store, "bad").begin()
        await bad.wait_kept()
        bad.append(ev.StateChanged("k", object()))
        good.append(*custom(0))
        assert (await bad.wait_failed()).startswith("store.failed: session 'bad': record 2 cannot be written: ")
        await good.wait_kept()
        assert await store.load("bad") is not None


async def test_a_sink_that_raises_keeps_nobody_else_from_hearing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Sink):
        def commit(self, head: int) -> None:
            raise ValueError("mine")

    async with sqlite_store(tmp_path / "s.db") as store:
        store.create("a", "log")
        store.append("a", custom(1), Broken())
        session = Writing(store, "b").begin()
        await session.wait_kept()
    assert "a session raised when it was told of a commit" in caplog.text


# ---- damage


async def test_a_damaged_record_keeps_its_session_closed_and_the_others_open(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path, "a", "b")
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM snapshots")
    other.close()
    flip(path, b"findme-record-of-a")
    why = "record 2 of session 'a' is not what was written"
    async with sqlite_store(path) as store:
        for _ in range(2):
            with pytest.raises(StoreError, match=rf"^store\.damaged: {why}$"):
                await store.load("a")
        loaded = await store.load("b")
        assert loaded is not None
        assert len(loaded.events) == 4
    async with sqlite_store(path) as store:  # also after a restart
        assert [listed.damage for listed in await store.list_sessions()] == [why, ""]
        with pytest.raises(StoreError, match=why):
            await store.load("a")
        assert await store.delete("a")


async def test_a_damaged_snapshot_is_found(tmp_path: Path) -> None:
    await filled(tmp_path / "s.db", "a", "b")
    flip(tmp_path / "s.db", b"findme-value-of-a")
    async with sqlite_store(tmp_path / "s.db") as store:
        with pytest.raises(
            StoreError,
            match=r"^store\.damaged: the snapshot of session 'a' at record 3 is not what was written$",
        ):
            await store.load("a")
        assert await store.load("b") is not None


async def test_a_damaged_blob_is_found(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await filled(path, "a", "b")
    reader = Reader(path)
    (name,) = reader.blob_names("a")
    reader.close()
    flip(path, b"findme-blob-of-a")
    async with sqlite_store(path) as store:
        with pytest.raises(StoreError, match=rf"^store\.damaged: blob {name} of session 'a' is not what was written$"):
            await store.get_blob("a", name)
        assert await store.load("b") is not None


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DELETE FROM events WHERE session = 1 AND seq = 4", "record 4 of session 'a' is missing"),
        ("UPDATE sessions SET head = 3 WHERE id = 1", "session 'a' has a record 4 behind its end"),
        ("UPDATE sessions SET head = 2 WHERE id = 1", "the snapshot of record 3 is not one of records 1 to 2"),
        ("UPDATE snapshots SET seq = 2 WHERE session = 1", "the snapshot of session 'a' at record 2 is not what was "),
        ("UPDATE events SET seq = 9 WHERE session = 1 AND seq = 4", "record 4 of session 'a' is missing"),
        (
            "UPDATE events SET body = (SELECT body FROM events WHERE session = 2 AND seq = 4), "
            "crc = (SELECT crc FROM events WHERE session = 2 AND seq = 4) WHERE session = 1 AND seq = 4",
            "record 4 of session 'a' is not what was written",
        ),
    ],
)
async def test_what_is_missing_or_in_the_wrong_place_is_found(tmp_path: Path, statement: str, why: str) -> None:
    await filled(tmp_path / "s.db", "a", "b")
    with sqlite3.connect(tmp_path / "s.db") as other:
        other.execute(statement)
    other.close()
    async with sqlite_store(tmp_path / "s.db") as store:
        with pytest.raises(StoreError, match=rf"^store\.damaged: {why}"):
            await store.load("a")
        assert await store.load("b") is not None


async def test_any_flipped_bit_is_found_or_harmless(tmp_path: Path) -> None:
    """Whatever the file has suffered: a log that is handed out is one that was written."""
    path = tmp_path / "s.db"
    await filled(path, *"abc")
    reader = Reader(path)
    good = {name: reader.load(name) for name in "abc"}
    reader.close()
    pristine, rng = path.read_bytes(), random.Random(5)
    found = 0
    for _ in range(150):
        data = bytearray(pristine)
        data[rng.randrange(100, len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            reader = Reader(path)
        except (NotAStore, sqlite3.Error):
            found += 1
            continue
        for name in "abc":
            try:
                loaded = reader.load(name)
            except (Damaged, sqlite3.Error):
                found += 1
                continue
            kept = good[name]
            assert kept is not None
            # None: its name is another one now. The id of a log, and the oldest seq, are not under a checksum.
            assert loaded is None or (loaded.snapshot, loaded.bodies) == (kept.snapshot, kept.bodies)
        reader.close()
    assert found > 0


async def test_a_snapshot_of_another_version_is_left_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protocol.stored.STATE_FORMAT", 3)
    await filled(tmp_path / "s.db", "a", "b")
    monkeypatch.undo()
    async with sqlite_store(tmp_path / "s.db") as store:
        loaded = await store.load("a")
        assert loaded is not None
        assert (loaded.snapshot, [event.seq for event in loaded.events]) == (None, [1, 2, 3, 4])
        store.trim("b", 3)
        with pytest.raises(StoreError, match=r"is of another version, and its older records were trimmed$"):
            await store.load("b")
        (_, listed) = await store.list_sessions()
        assert listed.damage == ""  # a later version can read it


# ---- beside a writer


async def test_a_reader_sees_only_whole_commits_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with sqlite_store(path) as store:
        session = Writing(store).begin()
        await session.wait_kept()
        reader = Reader(path)
        for _ in range(20):
            session.append(*custom(0, 0, 0))
            loaded = reader.load("s")
            assert loaded is not None
            assert len(loaded.bodies) % 3 == 1
            await trio.lowlevel.checkpoint()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._connection.execute("DELETE FROM events")
        reader.close()
        await session.wait_kept()


async def test_a_backup_is_a_store_of_one_moment(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        sessions = [Writing(store, f"s{number}").begin() for number in range(10)]
        for _ in range(20):
            for session in sessions:
                session.append(*custom(0))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.backup, tmp_path / "backup.db")
            for session in sessions:
                session.append(*custom(0))
        with pytest.raises(StoreError, match=r"backup\.db exists already; a backup overwrites nothing$"):
            await store.backup(tmp_path / "backup.db")
    reader = Reader(tmp_path / "backup.db")
    assert reader.integrity() == []
    for number in range(10):
        loaded = reader.load(f"s{number}")
        assert loaded is not None
        assert len(loaded.bodies) in (21, 22)
    reader.close()
    async with sqlite_store(tmp_path / "backup.db") as store:
        assert len(await store.list_sessions()) == 10


async def test_trimmed_records_are_in_the_archive_before_they_are_gone(tmp_path: Path) -> None:
    archive = tmp_path / "old.jsonl"
    async with sqlite_store(tmp_path / "s.db", archive=archive) as store:
        session = Writing(store).begin()
        session.append(*custom(0, 0, 0))
        store.save_snapshot("s", session.state)
        store.trim("s", 3)
        store.trim("s", 4)
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.first == 4
    lines = [json.loads(line) for line in archive.read_text().splitlines()]
    assert [(line["session"], line["log_id"], line["record"]["seq"]) for line in lines] == [
        ("s", "log of s", 1), ("s", "log of s", 2), ("s", "log of s", 3),
    ]  # fmt: skip


# ---- killed

WRITER = """
import sys, trio
from tests.actors.stores.keeping import Writing, custom, sqlite_store
class Told(Writing):
    def commit(self, head):
        super().commit(head)
        print(self.name, head, flush=True)
    async def go(self):
        loaded = await self.store.load(self.name)
        if loaded is None:
            self.begin()
        else:
            self.state.seq = loaded.events[-1].seq
        while True:
            self.append(*custom(0, 0))
            await self.wait_head(self.state.seq)
async def main():
    async with sqlite_store(sys.argv[1]) as store, trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(Told(store, f"s{number}").go)
trio.run(main)
"""


def kill_cycle(path: Path, delay_s: float) -> dict[str, int]:
    """Let a process write, kill it, and return what it had said was kept."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, cwd=REPOSITORY, text=True
    )
    assert process.stdout is not None
    said = [process.stdout.readline()]  # from here on it writes
    try:
        process.wait(delay_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    said += process.stdout.read().splitlines()
    process.stdout.close()
    assert process.wait(30) == -signal.SIGKILL
    heads: dict[str, int] = {}
    for line in said:
        words = line.split()
        if len(words) == 2:  # the last line may be cut off
            heads[words[0]] = max(heads.get(words[0], 0), int(words[1]))
    return heads


def test_nothing_that_was_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    path, rng = tmp_path / "s.db", random.Random(1)
    for _ in range(int(os.environ.get("KILLS", "10"))):
        heads = kill_cycle(path, rng.uniform(0.0, 0.15))
        reader = Reader(path)
        assert heads
        for name, head in heads.items():
            loaded = reader.load(name)  # checks that there is no gap
            assert loaded is not None
            assert len(loaded.bodies) >= head, f"{name}: {head} was acknowledged, {len(loaded.bodies)} are there"
        assert reader.integrity() == []
        reader.close()


# ---- what else can happen


async def test_a_read_that_fails_is_told_to_who_reads_and_the_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async with sqlite_store(tmp_path / "s.db") as store:
        session = Writing(store).begin()
        await session.wait_kept()
        with monkeypatch.context() as patch:
            patch.setattr(Reader, "load", failing)
            with pytest.raises(StoreError, match=r"^store\.failed: store .*: the disk reported an error; check the "):
                await store.load("s")
        session.append(*custom(0))
        await session.wait_kept()
        assert await store.load("s") is not None


async def test_a_record_that_is_none_is_told_and_may_be_read_by_a_later_version(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "s.db")
    writer.write([Append("s", 0, [b'{"type":"custom","seq":1}'], 1.0, log_id="log")])
    writer.close()
    async with sqlite_store(tmp_path / "s.db") as store:
        with pytest.raises(StoreError, match=r"^store\.damaged: session 's': record 1 is no custom: Object missing"):
            await store.load("s")
        (listed,) = await store.list_sessions()
        assert listed.damage == ""


async def test_a_store_whose_actor_cannot_start_holds_nothing(tmp_path: Path) -> None:
    async with open_system(name="test") as system:

        async def body(ctx: Any) -> None:
            async for _ in ctx:
                pass

        other = await system.spawn(body, name=f"store {tmp_path / 's.db'}")
        with pytest.raises(NameTaken):
            await SqliteStore(tmp_path / "s.db").open(system)
        other.drain()
        await other.join()
        store = SqliteStore(tmp_path / "s.db")
        await store.open(system)
        await store.aclose()


async def test_a_backup_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        with pytest.raises(StoreError, match=r"nowhere/b\.db: .*No such file or directory"):
            await store.backup(tmp_path / "nowhere" / "b.db")
        await Writing(store).begin().wait_kept()


def test_half_a_backup_is_not_left_behind(tmp_path: Path) -> None:
    class Full:
        def backup(self, target: sqlite3.Connection) -> None:
            target.execute("CREATE TABLE t (x)")
            raise sqlite3.OperationalError("database or disk is full")

    Writer(tmp_path / "s.db").close()
    reader = Reader(tmp_path / "s.db")
    reader.close()
    reader._connection = Full()  # type: ignore[assignment]
    with pytest.raises(sqlite3.OperationalError, match=r"^database or disk is full$"):
        reader.backup(tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()


async def test_a_session_that_skips_a_record_within_one_transaction_is_refused(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        busy, sink, good = Writing(store, "busy").begin(), Sink(), Writing(store, "good").begin()
        store.create("s", "log")
        for seq in (1, 2, 4):
            store.append("s", custom(seq), sink)
        assert (await sink.wait_failed()).startswith("store.failed: the log of session 's' does not end at record 3;")
        assert sink.heads == []
        await busy.wait_kept()
        await good.wait_kept()
        assert await store.load("s") is None


async def test_a_file_that_cannot_be_closed_in_order_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = Writer.close

    def close(self: Writer) -> None:
        before(self)
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "close", close)
        async with sqlite_store(tmp_path / "s.db") as store:
            await Writing(store).begin().wait_kept()
    assert "s.db was not closed in order: disk I/O error" in caplog.text
    async with sqlite_store(tmp_path / "s.db") as store:
        assert await store.load("s") is not None


async def test_a_cancelled_load_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        session = Writing(store).begin()
        for _ in range(20):
            session.append(*custom(0))
            with trio.move_on_after(0):
                await store.load("s")
        await session.wait_kept()
        assert session.heads == list(range(1, 22))
        loaded = await store.load("s")
        assert loaded is not None
        assert list(loaded.events) == session.log


def test_a_commit_waits_for_the_disk(tmp_path: Path) -> None:
    """With less than FULL a power cut takes what was acknowledged; a killed process cannot show that."""
    writer = Writer(tmp_path / "s.db")
    assert writer._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert writer._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer._connection.execute("PRAGMA journal_size_limit").fetchone() == (16_777_216,)
    writer.close()


def test_a_session_is_loaded_as_it_was_at_one_moment(tmp_path: Path) -> None:
    """Between any two statements of a load somebody appends, saves a snapshot and trims."""
    writer = Writer(tmp_path / "s.db")
    writer.write([Append("s", 0, [b"1", b"2"], 1.0, log_id="log")])
    reader = Reader(tmp_path / "s.db")

    class Busy:
        head = 2
        in_transaction = True

        def __init__(self, inner: sqlite3.Connection) -> None:
            self._inner = inner

        def execute(self, *args: Any) -> sqlite3.Cursor:
            cursor = self._inner.execute(*args)
            self.head += 1
            writer.write([Append("s", self.head - 1, [b"x"], 1.0), Snapshot("s", self.head, b"state")])
            writer.write([Trim("s", self.head)])
            return cursor

    inner = reader._connection
    reader._connection = Busy(inner)  # type: ignore[assignment]
    for _ in range(5):
        loaded = reader.load("s")
        assert loaded is not None
        assert (loaded.snapshot is None) == (loaded.first == 1)
        assert loaded.snapshot_seq + len(loaded.bodies) >= loaded.first
    inner.close()
    writer.close()
