"""Sessions that leave memory and come back: idle ones by themselves, all of them with their process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import AskUserExtension, ExternalEvent, RuleViolation, ScriptedModel, open_agent
from actors.agent.handle import SessionInfo
from actors.agent.memory import MemoryStore
from actors.models.scripted import say, stall
from protocol import commands as cmd
from protocol import events as ev
from protocol.errors import Code
from protocol.history import Status, fold
from protocol.limits import Limits
from tests.scenarios.lives import KINDS, Disk, attach
from tests.scenarios.staging import ask, staged

IDLE_S = 60.0


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return Disk(request.param, tmp_path)


class Watcher:
    """Notes what it is shown, and how that ended."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.end: Code | None = None

    def offer(self, event: ev.Event | ev.Ephemeral) -> bool:
        if event.durable:
            self.seen.append(event.seq)
        return True

    def closed(self, code: Code, seq: int) -> None:
        self.end = code


def emit(session: Any, count: int) -> None:
    for number in range(count):
        session.append([ev.Custom("tick", {"n": number})])


# ---- leaving memory


async def test_an_idle_session_leaves_memory_and_comes_back_as_it_was(autojump_clock: MockClock, disk: Disk) -> None:
    model = ScriptedModel([say("one"), say("two")])
    async with open_agent(model, store=disk.store(), idle_s=IDLE_S) as agent:
        await agent.run("go", session_id="s")
        before = agent.find("s")
        assert before is not None
        await trio.sleep(IDLE_S - 1)
        assert agent.find("s") is before
        await trio.sleep(IDLE_S / 2)
        assert agent.find("s") is None and agent.ref("s") is None
        assert before.closed is not None and before.closed.code is Code.SESSION_CLOSED
        assert await agent.list_sessions() == ([SessionInfo("s", Status.IDLE, before.state.seq)], False)
        assert agent.open_sessions() == ([], False)
        after = await agent.open("s")
        assert after is not before and after.state == before.state
        assert (await agent.run("again", session_id="s")).content == "two"
        assert [m.content for m in agent.session("s").history] == ["go", "one", "again", "two"]


async def test_a_session_that_is_used_or_watched_or_waits_stays(autojump_clock: MockClock, disk: Disk) -> None:
    turns = [ask("q1"), stall()]
    extensions = [AskUserExtension()]
    async with open_agent(ScriptedModel(turns), store=disk.store(), idle_s=IDLE_S, extensions=extensions) as agent:
        watched, watcher = await agent.open("watched"), Watcher()
        watched.attach(watcher)
        await agent.open("used")
        await agent.session("asks").prompt("go")
        await agent.session("runs").prompt("go")
        send, receive = trio.open_memory_channel[ExternalEvent](0)
        await agent.attach(receive, session_id="fed")
        for _ in range(20):
            await trio.sleep(IDLE_S / 4)
            await agent.open("used")
        assert [info.session for info in agent.open_sessions()[0]] == ["asks", "fed", "runs", "used", "watched"]
        assert watcher.end is None
        watched.detach(watcher)
        await send.aclose()
        await trio.sleep(2 * IDLE_S)
        assert [info.session for info in agent.open_sessions()[0]] == ["asks", "runs"]


async def test_who_addresses_a_session_that_is_leaving_notices_nothing(autojump_clock: MockClock, disk: Disk) -> None:
    """At each moment around the one at which it leaves, by the mailbox and by the handle."""
    store, turns = disk.store(), [say("fine")]
    async with open_agent(ScriptedModel(turns, repeat=True), store=store, idle_s=IDLE_S) as agent:
        for checkpoints in range(12):
            session = await agent.open("s")
            await trio.sleep(IDLE_S / 8)  # not in the same instant as a look
            agent.let_go(session)
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            replies: list[Any] = []
            await agent.session("s").submit(cmd.Prompt(session="s", text="go", when_busy="queue"), replies.append)
            await agent.session("s").prompt("next", when_busy="queue")
            await wait_all_tasks_blocked()
            await agent.session("s").wait_idle()
            assert session.passive and agent.find("s") is not session
            assert not isinstance(replies[0], RuleViolation)
        assert len(agent.session("s").history) == 4 * 12


async def test_many_sessions_leave_in_slices(autojump_clock: MockClock) -> None:
    async with staged([], idle_s=IDLE_S) as agent:
        for number in range(1_100):
            await agent.open(f"s{number:04}")
        await trio.sleep(2 * IDLE_S)
        assert agent.open_sessions() == ([], False)
        listed, more = await agent.list_sessions(after="s0099", limit=2)
        assert [info.session for info in listed] == ["s0100", "s0101"] and more


async def test_a_command_that_led_to_nothing_is_not_carried_out_after_the_session_was_away(
    autojump_clock: MockClock,
) -> None:
    async with staged([say("one"), stall()], idle_s=IDLE_S) as agent:
        await agent.run("go", session_id="s")
        first = await agent.session("s").cancel(command="k1")
        await trio.sleep(2 * IDLE_S)
        assert agent.find("s") is None
        await agent.session("s").prompt("again")
        assert await agent.session("s").cancel(command="k1") == first
        assert agent.session("s").status == "running"


async def test_closing_a_session_that_is_away_lets_its_store_forget_it(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with staged([say("one")], store=store, idle_s=IDLE_S) as agent:
        await agent.run("go", session_id="s")
        await trio.sleep(2 * IDLE_S)
        await agent.session("s").close()
        assert await agent.list_sessions() == ([], False) and await store.load("s") is None
        assert await agent.wake_session("s") is None


@pytest.mark.parametrize("idle_s", [0, -1.0, float("nan")])
async def test_a_time_that_is_none_is_refused(idle_s: float) -> None:
    with pytest.raises(ValueError, match=r"^idle_s is above 0, not "):
        async with open_agent(ScriptedModel([]), idle_s=idle_s):
            pass


async def test_a_word_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^resume is 'auto', 'ask' or 'never', not 'maybe'$"):
        async with open_agent(ScriptedModel([]), resume="maybe"):  # type: ignore[arg-type]
            pass


# ---- coming back


async def test_a_session_that_nobody_has_is_not_made_by_addressing_it(autojump_clock: MockClock, disk: Disk) -> None:
    async with open_agent(ScriptedModel([]), store=disk.store()) as agent:
        assert await agent.wake_session("s") is None
        with pytest.raises(RuleViolation, match=r"^session\.unknown: there is no session 's'$"):
            await agent.session("s").submit(cmd.GetState(session="s"), lambda _: None)
        assert await agent.list_sessions() == ([], False)


async def test_stored_sessions_and_open_ones_are_one_list(autojump_clock: MockClock, disk: Disk) -> None:
    extensions = [AskUserExtension()]
    async with open_agent(ScriptedModel([ask("q1")]), store=disk.store(), extensions=extensions) as agent:
        for name in ("b", "d", "e"):
            await agent.open(name)
    async with open_agent(ScriptedModel([ask("q1")]), store=disk.store(), extensions=extensions) as agent:
        for name in ("a", "d", "f"):
            await agent.open(name)
        await agent.session("f").prompt("go")
        await wait_all_tasks_blocked()
        listed, more = await agent.list_sessions()
        assert [info.session for info in listed] == ["a", "b", "d", "e", "f"] and not more
        assert (listed[-1].status, listed[-1].open_asks) == (Status.WAITING, 1)
        pages: list[str] = []
        more = True
        while more:
            page, more = await agent.list_sessions(after=pages[-1] if pages else "", limit=2)
            pages += [info.session for info in page]
        assert pages == ["a", "b", "d", "e", "f"]


async def test_a_client_goes_on_reading_where_it_was_in_another_process_d07_d09(
    autojump_clock: MockClock, disk: Disk
) -> None:
    """From what is in memory record by record, from before that with the state; from another log with all of it."""
    limits = Limits(snapshot_records=50)
    async with open_agent(ScriptedModel([]), store=disk.store(), limits=limits) as agent:
        emit(await agent.open("s"), 120)
        log_id = agent.session("s").log_id
        await agent.close_session("none of them")
    async with open_agent(ScriptedModel([]), store=disk.store(), limits=limits) as agent:
        session = await agent.open("s")
        assert 0 < session.log_base < session.state.seq == 121
        tail, late, other = Watcher(), Watcher(), Watcher()
        cursor = session.log_base + 3
        assert (await attach(agent, tail, log_id, cursor)).mode == "tail"
        attached = await attach(agent, late, log_id, session.log_base - 1)
        assert (attached.mode, attached.seq) == ("snapshot", 121) and attached.snapshot is not None
        assert (await attach(agent, other, "another", 3)).mode == "reset"
        emit(session, 2)
        await session.wait_committed(session.state.seq)
        assert tail.seen == list(range(cursor + 1, 124)) and late.seen == other.seen == [122, 123]


async def test_the_log_in_memory_is_cut_and_no_reader_misses_a_record(autojump_clock: MockClock, disk: Disk) -> None:
    limits = Limits(max_log_records=100, snapshot_records=40)
    store = disk.store()
    async with open_agent(ScriptedModel([]), store=store, limits=limits) as agent:
        session = await agent.open("s")
        reader = Watcher()
        session.attach(reader)
        for _ in range(50):
            emit(session, 13)
            await wait_all_tasks_blocked()
            assert len(session.log) <= 100 + 13
            assert [event.seq for event in session.log] == list(range(session.log_base + 1, session.state.seq + 1))
            joined = Watcher()
            session.attach(joined, after=session.log_base)
            assert joined.seen == list(range(session.log_base + 1, session.state.seq + 1))
            session.detach(joined)
        assert reader.seen == list(range(2, session.state.seq + 1))
        assert fold(await store.read("s", after=0, limit=10_000)) == session.state


class Held(MemoryStore):
    """Keeps at once and says so when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Any] = []

    def append(self, session_id: str, events: Sequence[ev.Event], sink: Any) -> None:
        outer = self

        class Sink:
            def commit(self, head: int) -> None:
                outer.held.append((sink, head))

            def store_failed(self, error: Exception) -> None:
                sink.store_failed(error)

        super().append(session_id, events, Sink())

    def say(self) -> None:
        sink, head = self.held.pop(0)
        sink.commit(head)


async def test_what_is_promised_to_a_reader_that_is_about_to_join_is_not_cut(autojump_clock: MockClock) -> None:
    store = Held()
    async with open_agent(ScriptedModel([]), store=store, limits=Limits(max_log_records=10)) as agent:
        session = await agent.open("s")
        emit(session, 8)
        while store.held:
            store.say()
        reader = Watcher()
        emit(session, 5)
        session.attach(reader, after=3)  # joins behind the records that are not kept yet
        store.say()
        assert (session.log_base, reader.seen) == (3, []), "the log is longer than it may be, and cut no further"
        emit(session, 26)
        while store.held:
            store.say()
        assert reader.seen == list(range(4, 41))
        assert [event.seq for event in session.log] == list(range(31, 41))
        session.detach(reader)


async def test_a_snapshot_is_saved_after_so_many_records(autojump_clock: MockClock) -> None:
    class Counting(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.saved: list[int] = []

        def save_snapshot(self, session_id: str, state: Any) -> None:
            self.saved.append(state.seq)
            if len(self.saved) == 2:
                raise OSError("no room for it")
            super().save_snapshot(session_id, state)

    store = Counting()
    model, limits = ScriptedModel([say("x")], repeat=True), Limits(snapshot_records=10)
    async with open_agent(model, store=store, limits=limits) as agent:
        session = await agent.open("s")
        emit(session, 9)
        assert store.saved == [10]
        for _ in range(3):
            await agent.run("go", session_id="s")
        assert store.saved == [10, 20], "a snapshot that fails is no failure of the session"
        emit(session, 10)
        assert store.saved == [10, 20, 30]
