"""What every store keeps to, whatever it is made of."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from actors.agent.ports import SessionStore, StoreError
from actors.runtime import open_system
from actors.stores import MemoryStore, SqliteStore
from protocol import events as ev
from protocol.chat import UserMessage
from protocol.errors import Code
from protocol.history import fold
from tests.actors.stores.keeping import Sink, Writing, custom, golden


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    made: SessionStore = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "store.db")
    async with open_system(name="test") as system:
        await made.open(system)
        yield made
        await made.aclose()


async def test_a_log_is_loaded_as_it_was_appended(store: SessionStore) -> None:
    session = Writing(store).begin()
    session.append(*custom(0, 0))
    session.append(*custom(0))
    await session.wait_kept()
    loaded = await store.load("s")
    assert loaded is not None
    assert (loaded.log_id, loaded.first, loaded.snapshot) == ("log of s", 1, None)
    assert list(loaded.events) == session.log


async def test_load_has_what_was_taken_just_before(store: SessionStore) -> None:
    session = Writing(store).begin()
    session.append(*custom(0, 0))
    loaded = await store.load("s")
    assert loaded is not None
    assert list(loaded.events) == session.log


async def test_a_session_that_is_not_there_has_nothing(store: SessionStore) -> None:
    assert await store.load("s") is None
    assert list(await store.read("s", after=0, limit=10)) == []
    assert await store.get_blob("s", "0" * 64) is None
    assert await store.delete("s") is False
    assert list(await store.list_sessions()) == []


async def test_each_session_hears_of_its_commits_in_its_own_order(store: SessionStore) -> None:
    sessions = [Writing(store, f"s{number}").begin() for number in range(20)]
    for _ in range(30):
        for session in sessions:
            session.append(*custom(0))
    for session in sessions:
        await session.wait_kept()
        assert session.heads == list(range(1, 32))


async def test_every_type_of_event_is_kept_and_the_fold_is_the_live_state_at_every_seq(store: SessionStore) -> None:
    events = golden()
    session = Writing(store)
    store.create("s", "log")
    for event in events:
        session.append(event)
        if event.seq % 3 == 0:
            store.save_snapshot("s", session.state)
        loaded = await store.load("s")
        assert loaded is not None
        assert fold(loaded.events, loaded.snapshot) == session.state
        kept = await store.read("s", after=0, limit=1_000)
        assert fold(kept) == session.state


async def test_a_snapshot_is_of_the_moment_it_was_saved_and_belongs_to_who_loads_it(store: SessionStore) -> None:
    session = Writing(store).begin()
    session.append(ev.MessageAdded(UserMessage("a")))
    store.save_snapshot("s", session.state)
    session.append(ev.MessageAdded(UserMessage("b")))
    for _ in range(2):
        loaded = await store.load("s")
        assert loaded is not None
        assert loaded.snapshot is not None
        assert (loaded.first, loaded.snapshot.seq, loaded.snapshot.messages) == (1, 2, [UserMessage("a")])
        assert fold(loaded.events, loaded.snapshot) == session.state


async def test_an_append_that_does_not_follow_is_refused_and_concerns_its_session_only(store: SessionStore) -> None:
    good, wrong = Writing(store, "good").begin(), Sink()
    other = Writing(store, "other").begin()
    await other.wait_kept()
    store.append("other", custom(5), wrong)
    good.append(*custom(0))
    why = await wrong.wait_failed()
    assert why == ("store.failed: the log of session 'other' does not end at record 4; somebody else has written to it")
    await good.wait_kept()
    good.append(*custom(0))
    await good.wait_kept()
    assert wrong.heads == []
    loaded = await store.load("other")
    assert loaded is not None
    assert list(loaded.events) == other.log


async def test_records_are_read_behind_a_cursor_and_no_more_than_asked_for(store: SessionStore) -> None:
    session = Writing(store).begin()
    session.append(*custom(*range(9)))
    await session.wait_kept()

    async def seqs(after: int, limit: int) -> list[int]:
        return [event.seq for event in await store.read("s", after=after, limit=limit)]

    assert await seqs(0, 3) == [1, 2, 3]
    assert await seqs(7, 100) == [8, 9, 10]
    assert await seqs(10, 5) == []
    assert await seqs(99, 5) == []
    assert await seqs(3, 0) == []


async def test_records_are_trimmed_as_far_as_a_snapshot_covers_them(store: SessionStore) -> None:
    session = Writing(store).begin()
    session.append(*custom(*range(5)))
    store.trim("s", 4)
    loaded = await store.load("s")
    assert loaded is not None
    assert (loaded.first, len(loaded.events)) == (1, 6)  # there is no snapshot
    store.save_snapshot("s", session.state)
    session.append(*custom(*range(4)))
    store.trim("s", 4)
    store.trim("s", 2)
    loaded = await store.load("s")
    assert loaded is not None
    assert (loaded.first, [event.seq for event in loaded.events]) == (4, [7, 8, 9, 10])
    store.trim("s", 100)
    loaded = await store.load("s")
    assert loaded is not None
    assert (loaded.first, fold(loaded.events, loaded.snapshot)) == (7, session.state)
    session.append(*custom(0))
    await session.wait_kept()


async def test_only_records_from_before_a_time_are_trimmed_where_one_is_given(store: SessionStore) -> None:
    session = Writing(store).begin()
    session.append(*custom(*range(5)))  # record n is made at second n
    store.save_snapshot("s", session.state)
    for first, before, oldest in ((5, 0.5, 1), (5, 3.0, 3), (3, 100.0, 3), (5, 100.0, 5), (100, 5.0, 5)):
        store.trim("s", first, before=before)
        loaded = await store.load("s")
        assert loaded is not None and loaded.first == oldest, (first, before)
    assert [event.seq for event in await store.read("s", after=4, limit=100)] == [5, 6]


async def test_the_last_record_stays_whatever_is_trimmed(store: SessionStore) -> None:
    session = Writing(store).begin()
    session.append(*custom(0, 0))
    store.save_snapshot("s", session.state)
    store.trim("s", 100)
    loaded = await store.load("s")
    assert loaded is not None
    assert (loaded.first, list(loaded.events)) == (3, [])
    (listed,) = await store.list_sessions()
    assert (listed.seq, listed.created, listed.updated) == (3, 1.0, 3.0)


async def test_a_record_that_was_trimmed_is_refused_by_name(store: SessionStore) -> None:
    session = Writing(store).begin()
    session.append(*custom(0, 0, 0))
    store.save_snapshot("s", session.state)
    store.trim("s", 3)
    assert await store.load("s") is not None
    with pytest.raises(
        StoreError,
        match=r"^store\.damaged: record 2 of session 's' is not kept any more; the oldest one is 3$",
    ):
        await store.read("s", after=1, limit=5)
    assert [event.seq for event in await store.read("s", after=2, limit=5)] == [3, 4]
    assert await store.load("s") is not None  # nothing is wrong with it


async def test_large_parts_are_kept_by_their_hash_in_their_session(store: SessionStore) -> None:
    Writing(store, "a").begin()
    Writing(store, "b").begin()
    data = b"x" * 100_000
    name = store.put_blob("a", data)
    assert store.put_blob("a", data) == name == hashlib.sha256(data).hexdigest()
    assert await store.get_blob("a", name) == data
    assert await store.get_blob("b", name) is None


async def test_sessions_are_listed_in_the_order_of_their_ids_in_pages(store: SessionStore) -> None:
    sessions = {name: Writing(store, name).begin() for name in ("b", "a", "ä", "c")}
    sessions["c"].append(ev.RunStarted(UserMessage("go"), 3, run="r2"))
    for session in sessions.values():
        await session.wait_kept()
    assert [listed.id for listed in await store.list_sessions()] == ["a", "b", "c", "ä"]
    assert [listed.id for listed in await store.list_sessions(after="a", limit=2)] == ["b", "c"]
    (listed,) = await store.list_sessions(after="b", limit=1)
    assert (listed.log_id, listed.seq, listed.created, listed.updated) == ("log of c", 2, 1.0, 2.0)
    assert (listed.status, listed.asks, listed.damage) == ("running", 0, "")


async def test_a_session_that_was_deleted_leaves_nothing_and_its_name_is_free(store: SessionStore) -> None:
    session = Writing(store).begin()
    name = store.put_blob("s", b"data")
    store.save_snapshot("s", session.state)
    assert await store.delete("s") is True
    assert await store.delete("s") is False
    assert await store.load("s") is None
    assert await store.get_blob("s", name) is None
    again = Writing(store)
    store.create("s", "another log")
    again.append(ev.SessionOpened("s", "another log"))
    loaded = await store.load("s")
    assert loaded is not None
    assert (loaded.log_id, loaded.snapshot, len(loaded.events)) == ("another log", None, 1)


async def test_a_released_session_is_kept_where_the_store_is_durable(store: SessionStore) -> None:
    session = Writing(store).begin()
    await session.wait_kept()
    await store.release("s")
    assert (await store.load("s") is not None) == isinstance(store, SqliteStore)


async def test_a_session_has_one_log(store: SessionStore) -> None:
    store.create("s", "log")
    with pytest.raises(Exception, match=r"^store\.failed: session 's' has a log already$") as refused:
        store.create("s", "other")
    assert getattr(refused.value, "code", None) is Code.STORE_FAILED


async def test_a_store_is_closed_as_often_as_one_likes(store: SessionStore) -> None:
    await store.aclose()
    await store.aclose()


async def test_appends_from_within_a_commit_come_behind(store: SessionStore) -> None:
    class Eager(Writing):
        def commit(self, head: int) -> None:
            super().commit(head)
            if head < 20:
                self.append(*custom(0))

    session = Eager(store).begin()
    while session.state.seq < 20:
        await trio.lowlevel.checkpoint()
    await session.wait_kept()
    loaded = await store.load("s")
    assert loaded is not None
    assert [event.seq for event in loaded.events] == list(range(1, 21))
