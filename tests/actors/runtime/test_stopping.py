"""The ordered stop alone, with children and a clock that do nothing by themselves."""

from dataclasses import dataclass, field
from typing import ClassVar, cast

import pytest

from actors.runtime import DownKind
from actors.runtime.stopping import StopChain
from actors.runtime.wheel import Due, Wheel


@dataclass
class Clock:
    """A wheel that is turned by hand."""

    time: float = 0.0
    entries: list[tuple[float, Due]] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def add(self, entry: Due, at: float) -> None:
        self.entries.append((at, entry))

    def advance(self, seconds: float) -> None:
        end = self.time + seconds
        while due := sorted((at, n) for n, (at, _) in enumerate(self.entries) if at <= end):
            at, entry = self.entries.pop(due[0][1])
            self.time = max(self.time, at)
            if entry.active:
                entry.due()
        self.time = end


@dataclass
class Child:
    path: str
    log: list[str]
    grace: float = 5.0
    ended: bool = False
    names_its_own: ClassVar[bool] = False

    def stop(self, reason: str, kind: DownKind) -> None:
        self.log.append(f"{self.path}: {reason}, {kind.value}")

    def grace_s(self) -> float:
        return self.grace


class Parent(Child):
    names_its_own: ClassVar[bool] = True


def chain_of(clock: Clock, *children: Child) -> StopChain:
    return StopChain(cast(Wheel, clock), children, "enough", DownKind.STOPPED)


def end(chain: StopChain, child: Child) -> None:
    child.ended = True
    chain.child_ended(child)


def test_each_is_stopped_when_the_one_after_it_has_ended() -> None:
    log: list[str] = []
    a, b, c = (Child(name, log) for name in "abc")
    chain = chain_of(Clock(), a, b, c)
    assert log == ["c: enough, stopped"]
    end(chain, c)
    assert log[1:] == ["b: enough, stopped"]
    end(chain, b)
    assert log[2:] == ["a: enough, stopped"]
    assert chain.active
    end(chain, a)
    assert not chain.active


def test_nothing_to_stop_is_over_at_once() -> None:
    assert not chain_of(Clock()).active
    assert not chain_of(Clock(), Child("a", [], ended=True)).active


def test_who_has_ended_before_its_turn_is_not_stopped_and_does_not_hurry_the_others() -> None:
    log: list[str] = []
    a, b, c, d = (Child(name, log) for name in "abcd")
    chain = chain_of(Clock(), a, b, c, d)
    end(chain, b)
    assert log == ["d: enough, stopped"]
    end(chain, d)
    end(chain, c)
    assert log == ["d: enough, stopped", "c: enough, stopped", "a: enough, stopped"]


def test_the_kind_of_the_stop_reaches_every_child() -> None:
    log: list[str] = []
    a = Child("a", log)
    StopChain(cast(Wheel, Clock()), [a], "cut off", DownKind.CANCELLED)
    assert log == ["a: cut off, cancelled"]


def test_each_has_its_own_grace_from_when_it_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    clock = Clock()
    a, b, c = Child("a", log, 1.0), Child("b", log, 10.0), Child("c", log, 2.0)
    chain = chain_of(clock, a, b, c)
    clock.advance(1.9)
    assert len(log) == 1
    clock.advance(0.1)
    assert log[1:] == ["b: enough, stopped"]
    clock.advance(9.9)
    assert len(log) == 2
    clock.advance(0.1)
    assert log[2:] == ["a: enough, stopped"]
    clock.advance(0.5)
    assert chain.active
    clock.advance(0.5)
    assert not chain.active
    assert [record.message for record in caplog.records] == [
        "actor 'c' has not ended 2 s after it was stopped; the next is stopped",
        "actor 'b' has not ended 10 s after it was stopped; the next is stopped",
        "actor 'a' has not ended 1 s after it was stopped; the next is stopped",
    ]


def test_a_shorter_grace_after_a_longer_one_is_kept_too() -> None:
    log: list[str] = []
    clock = Clock()
    a, b, c = Child("a", log), Child("b", log, 1.0), Child("c", log, 60.0)
    chain = chain_of(clock, a, b, c)
    end(chain, c)
    clock.advance(0.9)
    assert log[2:] == []
    clock.advance(0.1)
    assert log[2:] == ["a: enough, stopped"]


def test_the_time_of_one_that_has_ended_is_not_taken_for_the_next_ones() -> None:
    log: list[str] = []
    clock = Clock()
    a, b, c = Child("a", log), Child("b", log, 5.0), Child("c", log, 5.0)
    chain = chain_of(clock, a, b, c)
    clock.advance(4)
    end(chain, c)
    clock.advance(1)  # c's time: b has had 1 of its 5 s
    assert log[2:] == []
    clock.advance(4)
    assert log[2:] == ["a: enough, stopped"]


def test_one_that_ends_after_it_was_passed_over_changes_nothing() -> None:
    log: list[str] = []
    clock = Clock()
    a, b = Child("a", log), Child("b", log)
    chain = chain_of(clock, a, b)
    clock.advance(5)
    assert len(log) == 2
    end(chain, b)
    assert chain.active
    end(chain, a)
    assert not chain.active


def test_a_supervisor_that_overruns_is_passed_over_and_names_its_own(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    clock = Clock()
    chain_of(clock, Child("a", log), Parent("sup", log))
    clock.advance(5)
    assert log == ["sup: enough, stopped", "a: enough, stopped"]
    assert caplog.records == []


def test_a_chain_of_a_thousand_has_one_entry_on_the_wheel() -> None:
    log: list[str] = []
    clock = Clock()
    children = [Child(str(number), log) for number in range(1000)]
    chain = chain_of(clock, *children)
    for child in reversed(children):
        end(chain, child)
    assert len(clock.entries) == 1
    assert not chain.active
    clock.advance(10)
    assert len(log) == 1000


def test_one_that_ends_within_its_stop_is_followed_by_the_next() -> None:
    log: list[str] = []

    class Sudden(Child):
        def stop(self, reason: str, kind: DownKind) -> None:
            super().stop(reason, kind)
            self.ended = True

    a, b = Child("a", log), Sudden("b", log)
    chain = chain_of(Clock(), a, b)
    chain.child_ended(b)
    assert log == ["b: enough, stopped", "a: enough, stopped"]
