"""Any mailbox, driven at random beside a model of plain lists: what it does, what it counts and what it tells agree."""

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from trio.lowlevel import Task, current_task
from trio.testing import wait_all_tasks_blocked

from actors.runtime.errors import MailboxFull, StashFull
from actors.runtime.mailbox import Lost, Mailbox
from actors.runtime.overflow import Overflow, latest, make_mailbox
from actors.runtime.reply import Replies, Reply, attach

STASH_SIZE = 3
PLACES = st.integers(0, 5)


class Note(Replies[None]):
    def __init__(self, number: int, key: str | None) -> None:
        self.number = number
        self.key = key

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.number}, {self.key!r})"


class StubbornNote(Note):
    handle_abandoned = True


class Loop:
    """A trio loop in a thread of its own, in which each step runs until all its tasks wait."""

    def __init__(self) -> None:
        started = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main, started))
        self._thread.start()
        started.wait()

    async def _main(self, started: threading.Event) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._over = trio.Event()
        async with trio.open_nursery() as self.nursery:
            started.set()
            await self._over.wait()
            self.nursery.cancel_scope.cancel()

    def step(self, act: Callable[[], Any]) -> Any:
        async def run() -> Any:
            result = act()
            await wait_all_tasks_blocked()
            return result

        return trio.from_thread.run(run, trio_token=self._token)

    def close(self) -> None:
        trio.from_thread.run_sync(self._over.set, trio_token=self._token)
        self._thread.join()


@pytest.fixture(scope="module")
def loop() -> Any:
    loop = Loop()
    yield loop
    loop.close()


@dataclass(eq=False)
class Sender:
    """A task in `put`, and what became of it."""

    message: Note
    arrival: int
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    task: Task | None = None
    ended: str = ""  # what the task saw
    expected: str = ""  # what the model says


@dataclass(eq=False)
class Entry:
    """A message in the model's queue."""

    message: Note
    arrival: int
    key: str | None = None
    own: bool = False


class Books(RuleBasedStateMachine):
    loop: ClassVar[Loop]
    overflow: ClassVar[Overflow]
    asks: dict[Reply[Any], None]

    @initialize(capacity=st.integers(0, 3))
    def begin(self, capacity: int) -> None:
        self.capacity = capacity
        self.mailbox: Mailbox[Note] = make_mailbox(capacity, self.overflow, self)
        self.conflates = not isinstance(self.overflow, str)
        self.told: list[tuple[object, Lost]] = []
        self.asks = {}
        self.clock = 0
        self.senders: list[Sender] = []
        self.got: list[object] = []  # what tasks that received got
        self.receiving = trio.CancelScope()
        # The model.
        self.open_to_send = self.open_to_receive = True
        self.queue: list[Entry] = []
        self.system: list[Note] = []
        self.aside: list[Note] = []
        self.waiting: list[Sender] = []
        self.parked = False
        self.in_hand: Note | None = None
        self.expects = 0
        self.peak = 0
        self.counts = dict.fromkeys(("accepted", "rejected", "handled", "expired", "dropped", "returned"), 0)
        self.expected_told: list[tuple[object, Lost]] = []
        self.expected_got: list[object] = []

    # What a mailbox and a reply call.

    def lost(self, message: object, how: Lost) -> None:
        self.told.append((message, how))
        self.books_are_right()

    def ask_given_up(self) -> None:
        self.mailbox.abandoned += 1

    def ask_late(self) -> None: ...

    def ask_timeout(self, within: float) -> Exception:
        return TimeoutError(within)

    def withdraw(self, task: Task, error: Exception) -> bool:
        return self.mailbox.withdraw(task, error)

    # Helpers.

    def new(self, key: str | None, asked: bool, stubborn: bool = False) -> Note:
        self.clock += 1
        note = (StubbornNote if stubborn else Note)(self.clock, key)
        if asked:
            attach(note, self)
        return note

    def do(self, act: Callable[[], Any]) -> Any:
        now = self.mailbox.statistics()
        # A trip to the other thread takes a millisecond; with nobody to wake, none is needed.
        return self.loop.step(act) if now.tasks_waiting_send or now.tasks_waiting_receive else act()

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        self.loop.step(lambda: self.loop.nursery.start_soon(task))

    def lose(self, message: Note, how: Lost) -> None:
        self.counts[how.value] += 1
        self.expected_told.append((message, how))

    def enqueue(self, entry: Entry) -> None:
        same = [old for old in self.queue if entry.key is not None and old.key == entry.key]
        if not same:
            self.queue.append(entry)
        elif same[0].arrival > entry.arrival:
            self.lose(entry.message, Lost.DROPPED)
        else:
            older = same[0].message
            same[0].message, same[0].arrival = entry.message, entry.arrival
            self.lose(older, Lost.DROPPED)

    def sent(self, message: Note) -> bool:
        """A message is sent: does it get in at once?"""
        key = message.key if self.conflates else None
        full = len(self.queue) >= self.capacity
        droppable = [entry for entry in self.queue if not entry.own] if self.overflow == "drop_oldest" else []
        if not self.open_to_send or not self.open_to_receive:
            return False
        if self.parked:
            self.hand_over(message)
        elif not full or (key is not None and any(entry.key == key for entry in self.queue)):
            self.counts["accepted"] += 1
            self.enqueue(Entry(message, self.clock, key))
        elif droppable and self.capacity:
            self.counts["accepted"] += 1
            self.queue.remove(droppable[0])
            self.queue.append(Entry(message, self.clock))
            self.lose(droppable[0].message, Lost.DROPPED)
        else:
            return False
        return True

    def hand_over(self, message: Note) -> None:
        self.parked = False
        self.counts["accepted"] += 1
        self.counts["handled"] += 1
        self.expected_got.append(message)
        self.in_hand = message

    def refill(self) -> None:
        while self.waiting and len(self.queue) < self.capacity:
            sender = self.waiting.pop(0)
            sender.expected = "sent"
            self.counts["accepted"] += 1
            self.enqueue(Entry(sender.message, sender.arrival, sender.message.key if self.conflates else None))

    def skip(self) -> None:
        while self.queue and self.gone(self.queue[0].message):
            message = self.queue.pop(0).message
            self.refill()
            self.lose(message, Lost.EXPIRED)

    def gone(self, message: Note) -> bool:
        return message.reply.abandoned and hasattr(message, "_reply") and not message.handle_abandoned

    def next(self) -> object:
        """Say what a receive now brings, or the error it raises."""
        self.skip()
        message: Note
        if self.system:
            message = self.system.pop(0)
        elif self.queue:
            message = self.queue.pop(0).message
        elif self.waiting:
            sender = self.waiting.pop(0)
            sender.expected = "sent"
            self.counts["accepted"] += 1
            message = sender.message
        elif not self.open_to_receive:
            return trio.ClosedResourceError
        else:
            return trio.WouldBlock if self.open_to_send or self.expects else trio.EndOfChannel
        self.counts["handled"] += 1
        self.in_hand = message
        self.refill()
        return message

    def end_if_drained(self) -> None:
        if self.parked and not self.open_to_send and not self.expects:
            self.parked = False
            self.expected_got.append(trio.EndOfChannel)

    def turn_away(self, said: str) -> None:
        for sender in self.waiting:
            sender.expected = said
            self.counts["rejected"] += 1
        self.waiting = []

    # Sending.

    @rule(key=st.sampled_from([None, "a", "b"]), asked=st.booleans(), stubborn=st.booleans())
    def offer(self, key: str | None, asked: bool, stubborn: bool) -> None:
        message = self.new(key, asked, stubborn)
        room = self.mailbox.has_room
        taken = self.do(lambda: self.mailbox.offer(message))
        expected = self.sent(message)
        assert taken is expected
        assert taken or not room
        self.counts["rejected"] += not expected

    @rule(key=st.sampled_from([None, "a", "b"]), asked=st.booleans())
    def put(self, key: str | None, asked: bool) -> None:
        sender = Sender(self.new(key, asked), self.clock)
        self.senders.append(sender)

        async def send() -> None:
            sender.task = current_task()
            try:
                with sender.scope:
                    await self.mailbox.put(sender.message)
                sender.ended = "cancelled" if sender.scope.cancelled_caught else "sent"
            except (trio.ClosedResourceError, trio.BrokenResourceError, MailboxFull, TimeoutError) as error:
                sender.ended = type(error).__name__

        if self.sent(sender.message):
            sender.expected = "sent"
        elif not self.open_to_send or not self.open_to_receive or self.overflow in ("reject", "drop_oldest"):
            self.counts["rejected"] += 1
            open_ = self.open_to_send and self.open_to_receive
            sender.expected = (
                "MailboxFull" if open_ else "BrokenResourceError" if self.open_to_send else "ClosedResourceError"
            )
        else:
            self.waiting.append(sender)
        self.start(send)

    @precondition(lambda self: self.waiting)
    @rule(place=PLACES, how=st.sampled_from(["cancel", "withdraw"]))
    def one_stops_waiting_r22(self, place: int, how: str) -> None:
        sender = self.waiting.pop(place % len(self.waiting))
        self.counts["rejected"] += 1
        assert sender.task is not None
        if how == "cancel":
            sender.expected = "cancelled"
            self.do(sender.scope.cancel)
        else:
            sender.expected = "TimeoutError"
            assert self.do(partial(self.mailbox.withdraw, sender.task, TimeoutError()))
            assert not self.do(partial(self.mailbox.withdraw, sender.task, TimeoutError()))

    @rule(system=st.booleans())
    def post(self, system: bool) -> None:
        message = self.new(None if system else "a", False)
        posted = self.do(lambda: (self.mailbox.post_system if system else self.mailbox.post)(message))
        assert posted is self.open_to_receive
        if not self.open_to_receive:
            self.counts["rejected"] += 1
        elif self.parked:
            self.hand_over(message)
        else:
            self.counts["accepted"] += 1
            if system:
                self.system.append(message)
            else:
                self.queue.append(Entry(message, self.clock, own=True))

    # Receiving.

    @precondition(lambda self: not self.parked)
    @rule(poll=st.booleans())
    def take(self, poll: bool) -> None:
        expected = self.next()
        if isinstance(expected, Note):
            assert self.do(lambda: self.mailbox.poll(None) if poll else self.mailbox.take()) is expected
        elif poll and expected is trio.WouldBlock:
            assert self.do(lambda: self.mailbox.poll(None)) is None
        else:
            assert isinstance(expected, type)
            with pytest.raises(expected):
                self.do(lambda: self.mailbox.poll(None) if poll else self.mailbox.take())

    @precondition(lambda self: not self.parked)
    @rule()
    def look(self) -> None:
        self.skip()
        empty = not self.queue and not self.system and not self.waiting
        more = self.open_to_receive and (self.open_to_send or self.expects > 0)
        assert self.do(lambda: self.mailbox.would_block) is (empty and more)

    @precondition(lambda self: not self.parked)
    @rule()
    def receive(self) -> None:
        expected = self.next()
        if expected is trio.WouldBlock:
            self.parked = True
        else:
            self.expected_got.append(expected)
        self.receiving = trio.CancelScope()

        async def get() -> None:
            with self.receiving:
                try:
                    self.got.append(await self.mailbox.get())
                except (trio.EndOfChannel, trio.ClosedResourceError) as error:
                    self.got.append(type(error))

        self.start(get)

    @precondition(lambda self: self.parked)
    @rule()
    def stop_receiving(self) -> None:
        self.parked = False
        self.do(self.receiving.cancel)

    # What the receiver does beside.

    @precondition(lambda self: self.in_hand is not None and self.open_to_receive)
    @rule()
    def stash(self) -> None:
        message = self.in_hand
        assert message is not None
        if len(self.aside) == STASH_SIZE:
            with pytest.raises(StashFull):
                self.mailbox.stash(message, STASH_SIZE)
            return
        self.mailbox.stash(message, STASH_SIZE)
        self.counts["handled"] -= 1
        self.aside.append(message)
        self.in_hand = None

    @rule()
    def unstash(self) -> None:
        self.do(self.mailbox.unstash)
        aside, self.aside = self.aside, []
        if aside and self.parked:
            self.parked = False
            self.counts["handled"] += 1
            self.expected_got.append(aside[0])
            self.in_hand = aside.pop(0)
        self.queue[:0] = [Entry(message, message.number) for message in aside]

    @precondition(lambda self: self.asks)
    @rule(place=PLACES)
    def asker_goes(self, place: int) -> None:
        waiting = [sender.message.reply for sender in self.waiting]  # these are withdrawn
        if slots := [slot for slot in self.asks if slot not in waiting]:
            self.do(slots[place % len(slots)].give_up)

    @rule(first=PLACES, step=st.integers(2, 4))
    def hand_back(self, first: int, step: int) -> None:
        chosen = self.mailbox.queued()[first::step]
        self.do(lambda: self.mailbox.hand_back(chosen))
        before = len(self.contents())
        self.queue = [entry for entry in self.queue if entry.message not in chosen]
        self.system = [message for message in self.system if message not in chosen]
        self.aside = [message for message in self.aside if message not in chosen]
        self.counts["returned"] += before - len(self.contents())
        self.refill()

    @rule(more=st.booleans())
    def expect(self, more: bool) -> None:
        if more:
            self.mailbox.expect_more()
            self.expects += 1
        elif self.expects:
            self.do(self.mailbox.expect_less)
            self.expects -= 1
            self.end_if_drained()
        else:
            with pytest.raises(RuntimeError):
                self.mailbox.expect_less()

    # The end.

    @precondition(lambda self: self.clock > 5)
    @rule()
    def close_sending(self) -> None:
        self.do(self.mailbox.close_sending)
        self.open_to_send = False
        self.turn_away("ClosedResourceError")
        self.end_if_drained()

    @precondition(lambda self: self.clock > 15)
    @rule()
    def close_receiving(self) -> None:
        assert self.do(self.mailbox.close_receiving) == self.contents()
        self.counts["returned"] += len(self.contents())
        self.open_to_receive = False
        self.queue, self.system, self.aside = [], [], []
        self.turn_away("BrokenResourceError")
        if self.parked:
            self.parked = False
            self.expected_got.append(trio.ClosedResourceError)

    def teardown(self) -> None:
        if hasattr(self, "mailbox"):
            self.do(self.mailbox.close_receiving)
            self.books_are_right()

    # What always holds.

    def contents(self) -> list[Note]:
        return [*self.aside, *self.system, *(entry.message for entry in self.queue)]

    @invariant()
    def books_are_right(self) -> None:
        now = self.mailbox.statistics()
        assert now.sent == now.rejected + now.accepted
        assert now.accepted == now.handled + now.expired + now.dropped + now.returned + now.queued
        assert now.queued == len(self.mailbox.queued())

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        now = self.mailbox.statistics()
        self.peak = max(self.peak, len(self.queue) + len(self.system))
        assert {name: getattr(now, name) for name in self.counts} == self.counts
        assert self.mailbox.queued() == self.contents()
        assert self.mailbox.waiting() == [sender.message for sender in self.waiting]
        assert self.told == self.expected_told
        assert self.got == self.expected_got
        assert [sender.ended for sender in self.senders] == [sender.expected for sender in self.senders]
        assert (now.current_buffer_used, now.peak_buffer_used) == (len(self.queue) + len(self.system), self.peak)
        assert (now.tasks_waiting_send, now.tasks_waiting_receive) == (len(self.waiting), self.parked)
        assert self.mailbox.expected == self.expects


@pytest.mark.parametrize(
    "policy",
    ["wait", "reject", "drop_oldest", latest(lambda message: message.key)],
    ids=["wait", "reject", "drop", "latest"],
)
def test_any_mailbox_does_and_counts_as_a_model_of_plain_lists_r18_r21_r22(loop: Loop, policy: Overflow) -> None:
    class OfPolicy(Books):
        pass

    OfPolicy.loop, OfPolicy.overflow = loop, policy
    run_state_machine_as_test(OfPolicy, settings=settings(max_examples=60, stateful_step_count=50, deadline=None))
