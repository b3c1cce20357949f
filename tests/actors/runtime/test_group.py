"""Restart of a group, as a table, and against a world that carries the steps out in any order it likes."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.runtime.group import Group, Start, Stop, Strategy

ALL, REST, ONE = Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE, Strategy.ONE_FOR_ONE


def group_of(strategy: Strategy, names: str) -> Group:
    group = Group(strategy)
    for name in names:
        group.joined(name)
        group.ready(name)
    return group


def carry_out(group: Group) -> list[str]:
    """Do at once whatever the group asks for."""
    trace: list[str] = []
    while (step := group.next_step()) is not None:
        if isinstance(step, Start):
            trace.append("+" + step.name)
            group.ready(step.name)
        else:
            trace.append("-" + step.name)
            group.down(step.name)
    return trace


@pytest.mark.parametrize(
    ("strategy", "crashed", "stops", "starts"),
    [
        (ALL, "a", "-d -c -b", "+a +b +c +d"),
        (ALL, "b", "-d -c -a", "+a +b +c +d"),
        (ALL, "d", "-c -b -a", "+a +b +c +d"),
        (REST, "a", "-d -c -b", "+a +b +c +d"),
        (REST, "c", "-d", "+c +d"),
        (REST, "d", "", "+d"),
        (ONE, "b", "-d -c", "+b +c +d"),  # a supervisor asks no group for it; as a group it is rest_for_one
    ],
)
def test_what_a_crash_concerns_stops_in_reverse_and_starts_in_order(
    strategy: Strategy, crashed: str, stops: str, starts: str
) -> None:
    group = group_of(strategy, "abcd")
    assert not group.restarting
    group.crashed(crashed)
    assert group.restarting
    assert carry_out(group) == stops.split()
    assert group.restarting  # nothing starts before the backoff has passed
    group.backoff_over()
    assert carry_out(group) == starts.split()
    assert not group.restarting


def test_the_next_is_stopped_when_the_one_before_is_down_and_started_when_it_is_ready() -> None:
    group = group_of(ALL, "abc")
    group.crashed("b")
    group.backoff_over()
    assert group.next_step() == Stop("c")
    assert group.next_step() is None
    assert (group.stopping("c"), group.stopping("a"), group.stopping("nobody")) == (True, False, False)
    group.down("c")
    assert group.next_step() == Stop("a")
    group.down("a")
    assert group.next_step() == Start("a")
    assert group.next_step() is None
    group.ready("a")
    assert group.next_step() == Start("b")


def test_one_that_overruns_its_grace_lets_the_others_stop_and_none_start() -> None:
    group = group_of(ALL, "abc")
    group.crashed("a")
    group.backoff_over()
    assert group.next_step() == Stop("c")
    group.overran("c")
    assert group.next_step() == Stop("b")
    group.down("b")
    assert group.next_step() is None
    group.down("c")
    assert carry_out(group) == ["+a", "+b", "+c"]
    # It is forgiven: next time it has its whole grace again.
    group.crashed("a")
    assert group.next_step() == Stop("c")
    assert group.next_step() is None


def test_one_that_overruns_and_leaves_is_not_waited_for() -> None:
    group = group_of(ALL, "ab")
    group.crashed("a")
    group.backoff_over()
    assert group.next_step() == Stop("b")
    group.overran("b")
    assert group.next_step() is None
    group.left("b")
    assert carry_out(group) == ["+a"]


def test_a_crash_while_the_others_stop_starts_the_wait_anew() -> None:
    group = group_of(REST, "abcd")
    group.crashed("c")
    assert group.next_step() == Stop("d")
    group.backoff_over()
    group.crashed("a")
    group.down("d")
    assert carry_out(group) == ["-b"]
    group.backoff_over()
    assert carry_out(group) == ["+a", "+b", "+c", "+d"]


def test_a_crash_in_a_restarted_start_stops_what_had_started_again() -> None:
    group = group_of(ALL, "abc")
    group.crashed("a")
    group.backoff_over()
    for name in "cb":
        assert group.next_step() == Stop(name)
        group.down(name)
    assert group.next_step() == Start("a")
    group.ready("a")
    assert group.next_step() == Start("b")
    group.crashed("b")
    assert carry_out(group) == ["-a"]
    group.backoff_over()
    assert carry_out(group) == ["+a", "+b", "+c"]


def test_with_rest_for_one_a_start_that_fails_leaves_those_before_it_alone() -> None:
    group = group_of(REST, "abc")
    group.crashed("a")
    group.backoff_over()
    for name in "cb":
        assert group.next_step() == Stop(name)
        group.down(name)
    assert group.next_step() == Start("a")
    group.ready("a")
    assert group.next_step() == Start("b")
    group.crashed("b")
    group.backoff_over()
    assert carry_out(group) == ["+b", "+c"]


def test_one_that_joins_meanwhile_is_stopped_with_the_others_and_starts_after_them() -> None:
    group = group_of(ALL, "ab")
    group.joined("c")
    group.crashed("a")
    assert carry_out(group) == ["-c", "-b"]
    group.backoff_over()
    assert carry_out(group) == ["+a", "+b", "+c"]


def test_ready_comes_too_late_from_one_that_is_being_stopped() -> None:
    group = group_of(ALL, "a")
    group.joined("b")
    group.crashed("a")
    group.backoff_over()
    assert group.next_step() == Stop("b")
    group.ready("b")
    assert group.stopping("b")
    assert group.next_step() is None


def test_one_that_leaves_during_its_start_lets_the_next_start() -> None:
    group = group_of(ALL, "ab")
    group.crashed("a")
    group.backoff_over()
    assert group.next_step() == Stop("b")
    group.down("b")
    assert group.next_step() == Start("a")
    group.left("a")
    assert carry_out(group) == ["+b"]
    group.left("b")
    assert (group.restarting, group.next_step()) == (False, None)


@dataclass
class World:
    """Children that do what they are told when they like, and an independent idea of what may be asked of them."""

    strategy: Strategy
    group: Group
    order: list[str] = field(default_factory=list)
    is_: dict[str, str] = field(default_factory=dict)  # up, joining, stopping, late, down, starting
    owed: set[str] = field(default_factory=set)  # stops that a crash has ordered and the group has not asked for
    down_first: set[str] = field(default_factory=set)  # whom the restart concerns: none starts before all are down
    waits: bool = False

    def crash(self, name: str) -> None:
        self.group.crashed(name)
        first = 0 if self.strategy is ALL else self.order.index(name)
        self.is_[name] = "down"
        self.owed.discard(name)
        self.down_first.update(self.order[first:])
        self.owed.update(n for n in self.order[first:] if self.is_[n] in ("up", "joining", "starting"))
        self.waits = True

    def leave(self, name: str) -> None:
        self.group.left(name)
        self.order.remove(name)
        del self.is_[name]
        self.owed.discard(name)
        self.down_first.discard(name)

    def ask(self) -> None:
        while (step := self.group.next_step()) is not None:
            self.check(step)

    def check(self, step: Stop | Start) -> None:
        name = step.name
        if isinstance(step, Stop):
            assert name in self.owed, "nobody is stopped whom no crash concerns"
            assert name == max(self.owed, key=self.order.index), "the last started stops first"
            assert "stopping" not in self.is_.values(), "one at a time"
            self.owed.discard(name)
            self.is_[name] = "stopping"
            return
        if self.down_first:
            assert {self.is_[n] for n in self.down_first} == {"down"}, "first all are down"
            assert not self.waits, "and the backoff has passed"
            self.down_first.clear()
        assert self.is_[name] == "down"
        down = [n for n in self.order if self.is_[n] == "down"]
        assert name == down[0], "the first starts first"
        assert "starting" not in self.is_.values(), "one at a time"
        self.is_[name] = "starting"

    def settle(self) -> None:
        """Let everything that is under way come to its end."""
        for _ in range(1000):
            self.ask()
            if self.waits:
                self.waits = False
                self.group.backoff_over()
                continue
            busy = [n for n in self.order if self.is_[n] not in ("up", "down")]
            if not busy:
                break
            self.finish(busy[0])
        assert set(self.is_.values()) <= {"up"}
        assert not self.group.restarting
        assert self.group.next_step() is None

    def finish(self, name: str) -> None:
        if self.is_[name] in ("stopping", "late"):
            self.group.down(name)
            self.is_[name] = "down"
        else:
            self.group.ready(name)
            self.is_[name] = "up"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([ALL, REST]), st.integers(1, 5), st.data())
def test_in_any_interleaving_the_order_is_kept_and_in_the_end_all_are_up(
    strategy: Strategy, count: int, data: st.DataObject
) -> None:
    world = World(strategy, Group(strategy))
    for number in range(count):
        name = f"c{number}"
        world.order.append(name)
        world.is_[name] = "joining"
        world.group.joined(name)
        world.finish(name)
    for number in range(data.draw(st.integers(0, 30), label="events")):
        what = data.draw(st.sampled_from(["crash", "crash", "finish", "finish", "backoff", "late", "leave", "join"]))
        running = [n for n in world.order if world.is_[n] in ("up", "starting")]
        stopping = [n for n in world.order if world.is_[n] == "stopping"]
        busy = [n for n in world.order if world.is_[n] not in ("up", "down")]
        if what == "crash" and running:
            world.crash(data.draw(st.sampled_from(running)))
        elif what == "finish" and busy:
            name = data.draw(st.sampled_from(busy))
            if name not in world.owed:
                world.finish(name)
        elif what == "backoff" and world.waits:
            world.waits = False
            world.group.backoff_over()
        elif what == "late" and stopping:
            world.group.overran(stopping[0])
            world.is_[stopping[0]] = "late"
        elif what == "leave" and world.order:
            world.leave(data.draw(st.sampled_from(world.order)))
        elif what == "join" and not world.group.restarting:
            world.order.append(f"n{number}")
            world.is_[f"n{number}"] = "joining"
            world.group.joined(f"n{number}")
        assert not world.owed or world.group.restarting
        world.ask()
    world.settle()
