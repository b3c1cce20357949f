from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import Agent, RuleViolation, UserMessage
from actors.agent.ports import CommitSink
from actors.agent.session import Session
from actors.models.scripted import say
from protocol import decisions
from protocol import events as ev
from protocol.errors import Code
from protocol.history import Ack, State, fold
from tests.faults.stores import PlainStore
from tests.scenarios.staging import ask, staged, until_asked


class HandStore(PlainStore):
    """Commits what a test says, when it says so."""

    def __init__(self) -> None:
        self.sink: CommitSink | None = None
        self.taken: list[ev.Event] = []
        self.fails = False

    def append(self, session_id: str, events: Sequence[ev.Event], sink: CommitSink) -> None:
        self.sink = sink
        if self.fails:
            sink.store_failed(OSError("disk"))
        else:
            self.taken.extend(events)

    def commit(self, head: int | None = None) -> None:
        """Report as kept up to `head`, or all."""
        assert self.sink is not None
        self.sink.commit(head or self.taken[-1].seq)


class Reader:
    """Takes `room` events, and notes them."""

    def __init__(self, room: int = 10**9) -> None:
        self.room = room
        self.seen: list[Any] = []
        self.end: tuple[Code, int] | None = None

    def offer(self, event: ev.Event) -> bool:
        self.room -= 1
        if self.room < 0:
            return False
        self.seen.append(event.seq or type(event).__name__)
        return True

    def closed(self, code: Code, seq: int) -> None:
        self.end = (code, seq)


def _emit(*names: str) -> list[ev.Event]:
    return [ev.Custom(name) for name in names]


async def _by_hand(agent: Agent) -> Session:
    session = Session(agent, "s")
    session.open_log("log")
    return session


async def test_append_stamps_applies_and_logs_in_one_step(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        seq = session.append(_emit("a", "b"), cause="k1")
        assert seq == 3 == session.state.seq == session.committed
        assert [(e.seq, e.cause, e.time) for e in session.log[1:]] == [
            (2, "k1", agent.clock.now()), (3, "k1", agent.clock.now()),
        ]  # fmt: skip
        assert fold(session.log) == session.state
        assert session.append([]) == 3, "nothing is no record"


async def test_a_straggler_of_an_ended_run_changes_nothing(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        with pytest.raises(RuleViolation, match=r"^run\.settled: run r9 of session 's' has ended$"):
            session.append(_emit("late"), run="r9")
        assert session.state.seq == 1


async def test_nothing_leaves_before_it_is_committed_and_all_of_it_in_order(autojump_clock: MockClock) -> None:
    store = HandStore()
    async with staged([], store=store) as agent:
        session, reader, notes = await _by_hand(agent), Reader(), list[Any]()
        session.attach(reader, joined=lambda: notes.append("joined"))
        session.append(_emit("a"))
        session.leave(notes.append, "reply")
        session.show(ev.TextStreamed("m1", 0, "te"))
        session.append(_emit("b"))
        assert (notes, reader.seen) == ([], [])
        store.commit(1)
        assert (notes, reader.seen) == (["joined"], [])
        store.commit(2)
        assert (notes, reader.seen) == (["joined", "reply"], [2, "TextStreamed"])
        store.commit(2)
        store.commit()
        assert reader.seen == [2, "TextStreamed", 3]
        session.leave(notes.append, "at once")
        assert notes[-1] == "at once" and session._outbox is None


async def test_whoever_calls_back_within_a_delivery_keeps_the_order(autojump_clock: MockClock) -> None:
    class Echo(Reader):
        def offer(self, event: ev.Event) -> bool:
            if isinstance(event, ev.Custom) and event.name == "a":
                session.append(_emit("echo"))
                session.leave(self.seen.append, "left")
            return super().offer(event)

    async with staged([]) as agent:
        session = await agent.open("s")
        first, second = Echo(), Reader()
        session.attach(first)
        session.attach(second)
        session.append(_emit("a"))
        assert first.seen == [2, 3, "left"] and second.seen == [2, 3]
        session.detach(first)
        session.detach(second)


async def test_a_reader_without_room_is_cut_off_with_its_cursor_and_no_other(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        small, large = Reader(room=1), Reader()
        session.attach(small)
        session.attach(large)
        session.append(_emit("a", "b", "c"))
        assert small.seen == [2] and small.end == (Code.LINK_TOO_SLOW, 2)
        assert large.seen == [2, 3, 4] and large.end is None
        tail = Reader(room=2)
        session.attach(tail, after=0)
        assert tail.seen == [1, 2] and tail.end == (Code.LINK_TOO_SLOW, 2)
        gone = Reader(room=0)
        session.attach(gone)
        session.show(ev.TextStreamed("m1", 0, "te"))
        assert gone.end == (Code.LINK_TOO_SLOW, 4)
        session.detach(large)
        assert not session.watched


async def test_a_reader_may_leave_before_it_has_joined(autojump_clock: MockClock) -> None:
    store = HandStore()
    async with staged([], store=store) as agent:
        session, stays, leaves = await _by_hand(agent), Reader(), Reader()
        session.attach(stays)
        session.attach(leaves)
        session.detach(leaves)
        session.append(_emit("a"))
        store.commit()
        assert (stays.seen, leaves.seen) == ([2], [])


async def test_a_failing_store_drops_what_is_not_committed_and_tells_everybody(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = HandStore()
    async with staged([], store=store) as agent:
        session, reader, failed = await _by_hand(agent), Reader(), list[str]()
        store.commit()
        session.attach(reader)
        session.append(_emit("a"))
        note: Callable[[RuleViolation], object] = lambda why: failed.append(why.code)  # noqa: E731
        session.leave(failed.append, "never", failed=note)
        session.leave(failed.append, "never")
        session.store_failed(OSError("disk"))
        session.store_failed(OSError("again"))
        assert (reader.seen, reader.end, failed) == ([], (Code.STORE_FAILED, 1), ["store.failed"])
        assert [r.message for r in caplog.records] == ["session s: the store failed: disk"]
        store.commit()
        assert reader.seen == [], "too late"
        with pytest.raises(RuleViolation, match=r"^store\.failed: session 's' could not be stored$"):
            session.append(_emit("b"))
        session.leave(failed.append, "never", failed=note)
        session.leave(failed.append, "never")
        assert failed == ["store.failed", "store.failed"]


async def test_a_store_that_fails_within_append_starts_nothing_and_refuses_the_command(
    autojump_clock: MockClock,
) -> None:
    store = HandStore()
    async with staged([], store=store) as agent:
        session = await _by_hand(agent)
        store.fails = True
        with pytest.raises(RuleViolation, match=r"^store\.failed: "):
            session.act("", decisions.prompt, UserMessage("go"), max_turns=1)
        assert not session.lives and agent.active_runs == 0


def _note(state: State) -> list[ev.Event]:
    return _emit("noted")


def _nothing(state: State) -> list[ev.Event]:
    return []


async def test_a_command_is_carried_out_once_also_where_it_led_to_nothing(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        first = session.act("k1", _note)
        assert first == Ack(2, time=session.log[1].time) == session.act("k1", _note)
        nothing = session.act("k2", _nothing)
        session.append(_emit("x"))
        assert session.act("k2", _note) == nothing == Ack(2)
        assert session.known("k3") is None
        for number in range(300):
            session.act(f"n{number}", _nothing)
        assert session.known("n299") is not None and session.known("n0") is None, "the last 256"


async def test_who_waits_for_an_ask_is_registered_while_it_waits(autojump_clock: MockClock) -> None:
    async with staged([[ask("q1"), ask("q2")], ask("q3"), say("done")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        assert sorted(session._waiters) == ["q1", "q2"]
        await agent.session("s").answer("q1", "x")
        assert sorted(session._waiters) == ["q2"]
        await agent.session("s").answer("q2", "x")
        await wait_all_tasks_blocked()
        assert sorted(session._waiters or ()) == ["q3"]
        await agent.session("s").cancel()
        assert not session._waiters, "a cancel takes it away at once"
        await agent.session("s").wait_idle()


async def test_waiting_for_an_ask_that_is_settled_does_not_wait(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        session = agent.find("s")
        assert session is not None
        session.act("", decisions.answer, "q1", {"answer": "x"})
        await session.wait_settled("q1")
        assert not session._waiters
        with trio.CancelScope() as scope:
            scope.cancel()
            await session.wait_settled("q1")
        assert scope.cancelled_caught
        await agent.session("s").cancel()
        await agent.session("s").wait_idle()


async def test_waiting_for_a_commit_returns_once_it_is_kept_or_raises(autojump_clock: MockClock) -> None:
    store = HandStore()
    async with staged([], store=store) as agent:
        session = await _by_hand(agent)
        results: list[str] = []

        async def wait() -> None:
            try:
                await session.wait_committed(session.state.seq)
                results.append("kept")
            except RuleViolation as error:
                results.append(error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            assert results == []
            store.commit()
            await wait_all_tasks_blocked()
            session.append(_emit("a"))
            nursery.start_soon(wait)
            nursery.start_soon(session.wait_kept)
            await wait_all_tasks_blocked()
            session.store_failed(OSError("disk"))
        assert results == ["kept", "store.failed"]
        await session.wait_committed(1)


async def test_waiting_for_idle_ends_also_where_the_session_does(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent:
        await agent.session("s").prompt("go")
        session = agent.find("s")
        assert session is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.wait_idle)
            nursery.start_soon(session.wait_idle)
            await wait_all_tasks_blocked()
            session.shut(RuleViolation(Code.SESSION_CLOSED))
            session.shut(RuleViolation(Code.STORE_FAILED))
        assert session.closed is not None and session.closed.code == Code.SESSION_CLOSED
        await session.wait_idle()


async def test_cancelling_what_is_not_there_is_nothing(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        session.cancel_run("r9", "no such run")
        assert session.state.seq == 1


async def test_recovery_ends_what_was_cut_off_once_and_keeps_what_waited(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("queued")], resume="never") as agent:
        await agent.session("s").prompt("go")
        await wait_all_tasks_blocked()
        await agent.session("s").prompt("next", when_busy="queue")
        session = agent.find("s")
        assert session is not None
        log = list(session.log)
        session.shut(RuleViolation(Code.SESSION_CRASHED))
        await wait_all_tasks_blocked()
        again = await agent.open("s")
        assert again is not session and again.log[: len(log)] == log
        await again.wait_idle()
        kinds = [type(event).__name__ for event in again.log[len(log) :]]
        assert kinds[:4] == ["AskSettled", "ToolSkipped", "RunFailed", "RunStarted"]
        assert kinds[-1] == "RunCompleted"


async def test_a_caller_that_comes_too_late_is_not_kept(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        session.call_for("r9", agent.stream("go"))
        assert session.callers is None


async def test_who_queues_is_the_caller_of_its_run_until_that_is_cancelled(autojump_clock: MockClock) -> None:
    async with staged([ask("q1")]) as agent, agent.stream("first", session_id="s") as first:
        await until_asked(first)
        session = agent.find("s")
        assert session is not None
        async with agent.stream("second", session_id="s", when_busy="queue") as second:
            assert session.callers == {second.run_id: second}
            session.call_for(first.run_id, second)
            live = session.live(first.run_id)
            assert live is not None and live.caller is first, "the first caller stays"
            await agent.session("s").prompt("third", when_busy="queue")
            session.cancel_run(second.run_id, "not now")
            assert session.callers is None and len(session.state.queue or ()) == 1
        session.cancel_run((session.state.queue or [])[0].id, "nor this")
        assert session.state.queue is None


async def test_waiting_for_idle_ends_when_the_last_run_does(autojump_clock: MockClock) -> None:
    async with staged([ask("q1"), say("x"), say("y")]) as agent:
        handle = agent.session("s")
        await handle.prompt("one")
        await handle.prompt("two", when_busy="queue")
        await wait_all_tasks_blocked()
        ended: list[float] = []

        async def wait() -> None:
            await handle.wait_idle()
            ended.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(5)
            await handle.answer("q1", "x")
        assert ended == [trio.current_time()]


async def test_a_store_that_raises_has_failed(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    class Raising(HandStore):
        def append(self, session_id: str, events: Sequence[ev.Event], sink: CommitSink) -> None:
            if self.fails:
                raise OSError("disk")

    store = Raising()
    async with staged([], store=store) as agent:
        session = await _by_hand(agent)
        store.fails = True
        session.append(_emit("a"))
        assert session.closed is not None and session.closed.code == Code.STORE_FAILED
    assert [r.getMessage() for r in caplog.records] == ["session s: the store failed: disk"]


async def test_who_waits_to_join_misses_nothing_that_is_shown_until_then_d04(autojump_clock: MockClock) -> None:
    store = HandStore()
    async with staged([], store=store) as agent:
        session = await _by_hand(agent)
        assert not session.watched or session.committed < session.state.seq
        store.commit()
        assert not session.watched
        session.append(_emit("a"))
        session.attach(Reader())
        assert session.watched, "a model's text is only shown while somebody watches"


async def test_a_repeated_command_gets_the_very_acknowledgement_of_the_first(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        reader = Reader()
        session.attach(reader)

        def offer(event: ev.Event) -> bool:
            if isinstance(event, ev.Custom) and event.name == "a":
                session.append(_emit("behind it"))
            return True

        reader.offer = offer  # type: ignore[method-assign]
        first = session.act("k1", lambda _: _emit("a"))
        assert session.act("k1", lambda _: _emit("a")) == first == Ack(2, time=first.time)
        assert session.state.seq == 3
        session.detach(reader)


async def test_the_id_of_a_command_can_be_recorded_or_is_refused(autojump_clock: MockClock) -> None:
    async with staged([]) as agent:
        session = await agent.open("s")
        with pytest.raises(RuleViolation, match=r"^event\.unsendable: a command's id holds half a character"):
            session.act("\ud800", lambda _: _emit("a"))
        assert session.state.seq == 1
