"""The disk fails at any moment: nobody is told of a commit that is none, and the file opens again as it was kept."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from actors.agent.ports import StoreError
from actors.runtime import InlineThreads
from actors.stores import SqliteStore, writing
from protocol.history import fold
from tests.actors.stores.keeping import Faulty, Sink, Writing, custom, sqlite_store

TEXTS = {
    "database or disk is full": "the disk is full; make room, then start again",
    "disk I/O error": "the disk reported an error; check the disk, then start again",
    "attempt to write a readonly database": "it may only be read; give this user the right to write the file and its "
    "folder, then start again",
    "database is locked": "another program keeps it locked; close that program, then start again",
    "database disk image is malformed": "the file is damaged; put a backup in its place, then start again",
}


def inject(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int, str], str | None]) -> list[Faulty]:
    made: list[Faulty] = []

    def connect(path: str) -> Faulty:
        made.append(Faulty(path, fails))
        return made[-1]

    monkeypatch.setattr(writing, "connect", connect)
    return made


async def play(store: SqliteStore, sessions: dict[str, Writing]) -> None:
    """Do everything there is, three records at a time."""
    for name in ("a", "b", "gone"):
        session = sessions[name] = Writing(store, name).begin()
        session.append(*custom(0, 0, 0))
    await store.load("a")
    for session in sessions.values():
        session.append(*custom(0, 0, 0))
        store.put_blob(session.name, b"data")
        store.save_snapshot(session.name, session.state)
    store.trim("a", 5)
    await store.load("a")
    await store.delete("gone")
    for name in ("a", "b"):
        sessions[name].append(*custom(0, 0, 0))
        sessions[name].append(*custom(0, 0, 0))


@pytest.mark.parametrize(
    ("text", "lasting"),
    [("database or disk is full", False), ("disk I/O error", False), ("disk I/O error", True)],
)
async def test_an_error_at_any_statement_makes_no_false_commit_and_no_half_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, lasting: bool
) -> None:
    for fatal in range(1, 200):
        path = tmp_path / f"{fatal}.db"

        def fails(count: int, statement: str, fatal: int = fatal) -> str | None:
            return text if count == fatal or (lasting and count > fatal) else None

        with monkeypatch.context() as patch:
            made = inject(patch, fails)
            sessions: dict[str, Writing] = {}
            try:
                async with sqlite_store(path, threads=InlineThreads()) as store:
                    await play(store, sessions)
            except* StoreError as group:
                for error in group.exceptions:
                    assert TEXTS[text] in str(error)
        if made[0].count < fatal:
            assert all(not session.errors for session in sessions.values())
            assert fatal > 30
            break
        async with sqlite_store(path, threads=InlineThreads()) as store:
            for session in sessions.values():
                for error in session.errors:
                    assert TEXTS[text] in error
                loaded = await store.load(session.name)
                acknowledged = session.heads[-1] if session.heads else 0
                if loaded is None:
                    assert acknowledged == 0 or session.name == "gone"
                    continue
                state = fold(loaded.events, loaded.snapshot)
                assert acknowledged <= state.seq <= session.state.seq
                assert state.seq % 3 == 1  # an append is whole or not at all
    else:
        pytest.fail("there are more statements than this has tried")


async def test_a_commit_that_fails_after_it_was_made_is_not_acknowledged_and_the_file_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lying(Faulty):
        def execute(self, statement: str, parameters: object = ()) -> sqlite3.Cursor:
            cursor = super().execute(statement, parameters)  # type: ignore[arg-type]
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return cursor

    with monkeypatch.context() as patch:
        patch.setattr(writing, "connect", lambda path: Lying(path, lambda count, statement: None))
        async with sqlite_store(tmp_path / "s.db", threads=InlineThreads()) as store:
            session = Writing(store).begin()
            await session.wait_failed()
            assert session.heads == []
    async with sqlite_store(tmp_path / "s.db") as store:
        loaded = await store.load("s")
        assert loaded is not None
        assert len(loaded.events) == 1


@pytest.mark.parametrize("text", TEXTS)
async def test_after_an_error_everybody_is_told_why_in_clear_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = False
    inject(monkeypatch, lambda count, statement: text if broken and statement.startswith("INSERT INTO ev") else None)
    path = tmp_path / "s.db"
    async with sqlite_store(path) as store:
        sessions = [Writing(store, f"s{number}").begin() for number in range(100)]
        for session in sessions:
            await session.wait_kept()
        broken = True
        for session in sessions:
            session.append(*custom(0))
        said = f"store.failed: store {path}: {TEXTS[text]} ({text})"
        for session in sessions:
            assert await session.wait_failed() == said
            assert session.heads == [1]
        broken = False  # the disk is well again; what was said holds all the same
        late = Sink()
        store.append("s0", custom(2), late)
        assert (late.errors, late.heads) == ([said], [])
        for wrong in (store.load("s1"), store.delete("s1")):
            with pytest.raises(StoreError) as refused:
                await wrong
            assert str(refused.value) == said
        assert [event.seq for event in await store.read("s1", after=0, limit=9)] == [1]
    assert f"nothing more is written: store {path}: {TEXTS[text]}" in caplog.text
    async with sqlite_store(path) as store:
        loaded = await store.load("s0")
        assert loaded is not None
        assert len(loaded.events) == 1


async def test_an_error_that_nobody_knows_is_told_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = False

    def fails(count: int, statement: str) -> str | None:
        if broken and statement == "COMMIT":
            raise MemoryError("no more")
        return None

    inject(monkeypatch, fails)
    async with sqlite_store(tmp_path / "s.db") as store:
        broken = True
        assert (await Writing(store).begin().wait_failed()).endswith("s.db: MemoryError: no more")
        broken = False


async def test_a_file_locked_by_another_program_fails_the_store_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.stores.connecting.BUSY_S", 0.05)
    async with sqlite_store(tmp_path / "s.db") as store:
        session = Writing(store).begin()
        await session.wait_kept()
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        session.append(*custom(0))
        assert "another program keeps it locked; close that program" in await session.wait_failed()
        other.execute("ROLLBACK")
        other.close()


async def test_a_log_that_somebody_else_has_written_to_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        mine, good = Writing(store, "mine").begin(), Writing(store, "good").begin()
        await mine.wait_kept()
        await good.wait_kept()
        other = sqlite3.connect(tmp_path / "s.db")
        other.execute("UPDATE sessions SET head = 2 WHERE name = 'mine'")  # as many as `mine` is about to write
        other.commit()
        other.close()
        for _ in range(3):
            mine.append(*custom(0))
            good.append(*custom(0))
        await good.wait_kept()
        assert mine.heads == [1]
        assert mine.errors[0] == (
            "store.failed: the log of session 'mine' does not end at record 1; somebody else has written to it"
        )


async def test_a_session_that_is_there_cannot_be_begun_again(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        await Writing(store).begin().wait_kept()
        assert await Writing(store).begin().wait_failed() == "store.failed: session 's' has a log already"
        assert await store.load("s") is not None


async def test_what_is_put_for_a_session_without_a_log_is_refused(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        good = Writing(store, "good").begin()
        store.put_blob("s", b"data")
        store.trim("s", 3)
        store.save_snapshot("s", good.state)
        sink = Sink()
        store.append("s", custom(2), sink)
        assert await sink.wait_failed() == "store.failed: session 's' has no log in the store"
        await good.wait_kept()


async def test_a_snapshot_of_what_was_never_recorded_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        session = Writing(store).begin()
        await session.wait_kept()
        session.state.seq = 7
        store.save_snapshot("s", session.state)
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.snapshot is None
    assert "session 's' has no record 7 for its snapshot" in caplog.text


async def test_an_archive_that_cannot_be_written_keeps_the_records(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db", archive=tmp_path / "nowhere" / "old.jsonl") as store:
        session = Writing(store).begin()
        session.append(*custom(0))
        await session.wait_kept()
        store.save_snapshot("s", session.state)
        store.trim("s", 2)
        with pytest.raises(StoreError, match="No such file or directory"):
            await store.load("s")
    async with sqlite_store(tmp_path / "s.db") as store:
        loaded = await store.load("s")
        assert loaded is not None
        assert (loaded.first, len(loaded.events)) == (1, 2)


async def test_what_follows_at_once_is_in_the_same_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer, and what its run records when it has it: one wait for the disk and not two."""
    commits: list[int] = []
    write = writing.Writer.write

    def counted(writer: writing.Writer, batch: Any) -> Any:
        commits.append(len(batch))
        return write(writer, batch)

    monkeypatch.setattr(writing.Writer, "write", counted)
    async with sqlite_store(tmp_path / "s.db", threads=InlineThreads()) as store, trio.open_nursery() as nursery:
        session, answered = Writing(store).begin(), trio.Event()
        await session.wait_kept()

        async def run() -> None:
            await answered.wait()
            session.append(*custom(0))
            session.append(*custom(0))

        for _ in range(20):
            answered = trio.Event()
            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            commits.clear()
            session.append(*custom(0))
            answered.set()
            await trio.testing.wait_all_tasks_blocked()
            await session.wait_kept()
            assert commits == [3]
