"""The memory store: commits at once, forgets what was closed."""

import pytest
import trio

from actors.agent.memory import MemoryStore
from protocol.errors import Code, RuleViolation
from protocol.events import Custom, Event


class Sink:
    """What a session is to a store."""

    def __init__(self) -> None:
        self.heads: list[int] = []

    def commit(self, head: int) -> None:
        self.heads.append(head)

    def store_failed(self, error: Exception) -> None:
        raise AssertionError(f"a memory store does not fail: {error}")


def events(*seqs: int) -> list[Event]:
    return [Custom("x", seq=seq) for seq in seqs]


def test_what_is_appended_is_committed_before_append_returns() -> None:
    store, sink = MemoryStore(), Sink()
    store.create("s", "log")
    store.append("s", events(1), sink)
    store.append("s", events(2, 3), sink)
    assert sink.heads == [1, 3]


async def test_a_log_is_loaded_as_it_was_appended() -> None:
    store = MemoryStore()
    store.create("s", "log")
    store.append("s", events(1, 2), Sink())
    loaded = await store.load("s")
    assert loaded is not None
    assert (loaded.log_id, list(loaded.events)) == ("log", events(1, 2))


async def test_a_session_that_is_not_there_has_no_log() -> None:
    assert await MemoryStore().load("s") is None


async def test_a_session_has_one_log() -> None:
    store = MemoryStore()
    store.create("s", "log")
    store.append("s", events(1), Sink())
    with pytest.raises(RuleViolation, match=r"^store\.failed: session 's' has a log already$") as refused:
        store.create("s", "other")
    assert refused.value.code is Code.STORE_FAILED
    loaded = await store.load("s")
    assert loaded is not None
    assert (loaded.log_id, loaded.events) == ("log", events(1))


async def test_sessions_do_not_know_each_other() -> None:
    store, first, second = MemoryStore(), Sink(), Sink()
    store.create("a", "log-a")
    store.create("b", "log-b")
    store.append("a", events(1), first)
    store.append("b", events(1, 2), second)
    assert (first.heads, second.heads) == ([1], [2])
    await store.release("a")
    assert await store.load("a") is None
    assert await store.load("b") is not None


async def test_a_released_session_is_forgotten_and_its_name_is_free_e19() -> None:
    store = MemoryStore()
    store.create("s", "log")
    await store.release("s")
    await store.release("s")
    assert await store.load("s") is None
    store.create("s", "new log")
    loaded = await store.load("s")
    assert loaded is not None
    assert (loaded.log_id, loaded.events) == ("new log", [])


async def test_a_closed_store_has_nothing() -> None:
    store = MemoryStore()
    store.create("s", "log")
    await store.aclose()
    await store.aclose()
    assert await store.load("s") is None


async def test_nothing_of_it_waits() -> None:
    store = MemoryStore()
    store.create("s", "log")
    with trio.CancelScope() as scope:
        scope.cancel()
        assert await store.load("s") is not None
        await store.release("s")
        await store.aclose()
    assert not scope.cancelled_caught
