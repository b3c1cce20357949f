"""What a supervisor does in which order, held against the documented rules of OTP's `supervisor`.

In a trace `+a` is a start of a, `*a` that it is ready, `!a` that its body fails, and `-a` that it has ended.
"""

import logging
from collections.abc import Callable
from typing import Any, Literal

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.runtime import Backoff, Crash, Ctx, DownKind, NotAccepting, Ref, Supervisor, open_system
from actors.runtime.group import StrategyName
from actors.runtime.restart import RestartName
from actors.testing import seeds

AT_ONCE = Backoff(first_s=0.0, jitter=0.0)
OFTEN = (100, 10.0)
Word = Literal["crash", "return", "hold"]


class Team:
    """Children that write down what happens to them."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.start_s: dict[str, list[float]] = {}  # how long the next starts take
        self.end_s: dict[str, float] = {}  # how long it takes to end when it is stopped
        self.bad_starts: dict[str, list[int]] = {}  # the numbers of the starts that fail; 1 is the first
        self.bad_ends: set[str] = set()
        self.starts: dict[str, int] = {}
        self.refs: dict[str, Ref[Word]] = {}

    async def body(self, ctx: Ctx[Word]) -> None:
        name = ctx.name
        number = self.starts[name] = self.starts.get(name, 0) + 1
        self.trace.append("+" + name)
        try:
            times = self.start_s.get(name)
            if times:
                await trio.sleep(times.pop(0))
            if number in self.bad_starts.get(name, ()):
                self.trace.append("!" + name)
                raise OSError(f"{name} does not start")
            ctx.ready()
            async for word in ctx:
                if word == "crash":
                    self.trace.append("!" + name)
                    raise ValueError(name)
                if word == "return":
                    return
        finally:
            if name in self.end_s:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.end_s[name])
            self.trace.append("-" + name)
            if name in self.bad_ends:
                raise RuntimeError(f"{name} does not end well")

    async def spawn(self, sup: Supervisor, names: str, **options: Any) -> None:
        for name in names:
            self.refs[name] = await sup.spawn(self.body, name=name, **options)

    def since(self) -> str:
        """Return the trace since this was last called."""
        trace, self.trace = self.trace, []
        return " ".join(trace)


@pytest.fixture
def team() -> Team:
    return Team()


def tell(word: Word) -> Callable[[Ref[Word]], object]:
    return lambda ref: ref.tell(word)


def drain(ref: Ref[Word]) -> None:
    ref.drain()


def stop(ref: Ref[Word]) -> None:
    ref.stop()


ALONE = "-b"
BACK = "-b +b"
CRASHED, CRASHED_BACK = "!b -b", "!b -b +b"
ALL_CRASHED, ALL_RETURNED = "!b -b -d -c -a +a +b +c +d", "-b -d -c -a +a +b +c +d"
REST_CRASHED, REST_RETURNED = "!b -b -d -c +b +c +d", "-b -d -c +b +c +d"


@pytest.mark.parametrize(
    ("strategy", "restart", "crash", "returned"),
    [
        ("one_for_one", "permanent", CRASHED_BACK, BACK),
        ("one_for_one", "transient", CRASHED_BACK, ALONE),
        ("one_for_one", "temporary", CRASHED, ALONE),
        ("one_for_all", "permanent", ALL_CRASHED, ALL_RETURNED),
        ("one_for_all", "transient", ALL_CRASHED, ALONE),
        ("one_for_all", "temporary", CRASHED, ALONE),
        ("rest_for_one", "permanent", REST_CRASHED, REST_RETURNED),
        ("rest_for_one", "transient", REST_CRASHED, ALONE),
        ("rest_for_one", "temporary", CRASHED, ALONE),
    ],
)
async def test_strategy_and_restart_decide_what_an_end_leads_to_r12(
    strategy: StrategyName, restart: RestartName, crash: str, returned: str, autojump_clock: MockClock, team: Team
) -> None:
    ends: list[tuple[Callable[[Ref[Word]], object], str]] = [
        (tell("crash"), crash),
        (tell("return"), returned),
        (drain, ALONE),  # as `terminate_child`: it was meant to end, and concerns no other
        (stop, ALONE),
    ]
    for end, expected in ends:
        async with open_system() as system:
            sup = await system.supervise(
                name="sup", strategy=strategy, restart=restart, backoff=Backoff(5.0), intensity=OFTEN
            )
            await team.spawn(sup, "abcd")
            assert team.since() == "+a +b +c +d"
            end(team.refs["b"])
            await trio.sleep(60)
            assert team.since() == expected
            assert [ref.name for ref in sup.children] == list("abcd" if "+b" in expected else "acd")
        assert team.since() == ("-d -c -b -a" if "+b" in expected else "-d -c -a")


async def test_temporary_children_are_stopped_with_their_group_and_do_not_come_back(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="one_for_all", restart="permanent", backoff=AT_ONCE)
        await team.spawn(sup, "a")
        await team.spawn(sup, "b", restart="temporary")
        await team.spawn(sup, "c", restart="transient")
        await team.spawn(sup, "d", restart="temporary")
        team.since()
        team.refs["a"].tell("crash")
        await trio.sleep(1)
        assert team.since() == "!a -a -d -c -b +a +c"
        down = await team.refs["b"].join()
        assert (down.kind, down.reason) == (DownKind.STOPPED, "supervisor 'sup' restarts its children")
        await team.spawn(sup, "b", restart="temporary")  # the name is free
        team.since()
        team.refs["b"].tell("crash")
        await trio.sleep(1)
        assert team.since() == "!b -b"


async def test_what_a_supervisor_says_by_default_a_child_may_say_otherwise(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="rest_for_one", backoff=AT_ONCE)
        await team.spawn(sup, "a", restart="permanent")
        await team.spawn(sup, "b")
        team.since()
        team.refs["a"].tell("return")
        await trio.sleep(1)
        assert team.since() == "-a -b +a"


async def test_an_end_without_restart_is_final_also_where_the_others_restart(
    autojump_clock: MockClock, team: Team
) -> None:
    # Not as in OTP, which keeps the spec of a transient child that was done: here its one `Down` has been told.
    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="one_for_all", restart="transient", backoff=AT_ONCE)
        await team.spawn(sup, "abc")
        team.refs["b"].tell("return")
        await team.refs["b"].join()
        team.since()
        team.refs["a"].tell("crash")
        await trio.sleep(1)
        assert team.since() == "!a -a -c +a +c"


async def test_the_next_starts_when_the_one_before_is_ready_and_stops_when_the_one_after_has_ended(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="one_for_all", restart="transient", backoff=AT_ONCE)
        await team.spawn(sup, "abc")
        team.end_s = {"c": 2.0, "a": 1.0}
        team.start_s = {"a": [3.0], "b": [1.0]}
        team.since()
        team.refs["b"].tell("crash")
        for at, expected in [(0.5, "!b -b"), (2.5, "-c"), (3.5, "-a +a"), (6.5, "+b"), (7.5, "+c")]:
            await trio.sleep_until(at)
            assert (at, team.since()) == (at, expected)
        assert [ref.alive for ref in sup.children] == [True] * 3


async def test_a_start_that_fails_in_a_restart_begins_it_again_and_counts(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(
            name="sup", strategy="one_for_all", restart="transient", backoff=AT_ONCE, budget="supervisor"
        )
        team.bad_starts = {"b": [2, 3]}
        await team.spawn(sup, "abc")
        team.since()
        team.refs["c"].tell("crash")
        await trio.sleep(1)
        assert team.since() == "!c -c -b -a +a +b !b -b -a +a +b !b -b -a +a +b +c"
        assert system.statistics().crashes == 3


async def test_rest_for_one_begins_again_at_the_child_that_did_not_start(autojump_clock: MockClock, team: Team) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="rest_for_one", restart="transient", backoff=AT_ONCE)
        team.bad_starts = {"b": [2]}
        await team.spawn(sup, "abc")
        team.since()
        team.refs["a"].tell("crash")
        await trio.sleep(1)
        assert team.since() == "!a -a -c -b +a +b !b -b +b +c"


async def test_a_first_start_that_fails_concerns_no_other(autojump_clock: MockClock, team: Team) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="one_for_all", restart="permanent", backoff=AT_ONCE)
        team.bad_starts = {"b": [1]}
        await team.spawn(sup, "a")
        with pytest.raises(OSError, match="b does not start"):
            await team.spawn(sup, "b")
        await team.spawn(sup, "bc")
        await trio.sleep(60)
        assert team.since() == "+a +b !b -b +b +c"


async def test_a_crash_on_the_way_down_is_told_and_does_not_count_as_another(
    autojump_clock: MockClock, team: Team
) -> None:
    crashes: list[Crash] = []
    async with open_system(on_crash=crashes.append) as system:
        sup = await system.supervise(
            name="sup", strategy="one_for_all", restart="transient", intensity=(1, 10.0), backoff=AT_ONCE
        )
        await team.spawn(sup, "abc")
        team.bad_ends = {"c"}
        team.since()
        team.refs["a"].tell("crash")
        await trio.sleep(1)
        assert team.since() == "!a -a -c -b +a +b +c"
        assert [(crash.name, str(crash.error), crash.gave_up) for crash in crashes] == [
            ("a", "a", False),
            ("c", "c does not end well", False),
        ]
        team.bad_ends = set()


async def test_cleanup_that_fails_holds_up_no_restart(
    autojump_clock: MockClock, team: Team, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails() -> None:
        raise RuntimeError("no cleanup")

    async def untidy(ctx: Ctx[Word]) -> None:
        ctx.on_stop(fails)
        ctx.on_stop(trio.sleep_forever, within=2.0)
        await team.body(ctx)

    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="one_for_all", restart="transient", backoff=AT_ONCE)
        await team.spawn(sup, "a")
        await sup.spawn(untidy, name="b")
        team.since()
        team.refs["a"].tell("crash")
        await trio.sleep(1.9)
        assert team.since() == "!a -a -b"
        await trio.sleep(0.2)
        assert team.since() == "+a +b"
    said = [record.getMessage() for record in caplog.records if "on_stop" in record.getMessage()]
    assert said[:2] == [
        "actor 'sup/b': on_stop 'sleep_forever' did not end within 2 s",
        "actor 'sup/b': on_stop 'fails' raised RuntimeError('no cleanup')",
    ]


async def test_a_child_that_overruns_its_grace_holds_up_the_start_and_no_other_stop(
    autojump_clock: MockClock, team: Team, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with open_system() as system:
        sup = await system.supervise(
            name="sup", strategy="one_for_all", restart="transient", stop_grace_s=3.0, backoff=AT_ONCE
        )
        await team.spawn(sup, "abc")
        team.end_s = {"c": 20.0}
        team.since()
        team.refs["a"].tell("crash")
        await trio.sleep(2.9)
        assert team.since() == "!a -a"
        await trio.sleep(0.2)
        assert team.since() == "-b"
        await trio.sleep(16.8)
        assert team.since() == ""
        await trio.sleep(0.2)
        assert team.since() == "-c +a +b +c"
        team.end_s = {}
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["actor 'sup/c' has not ended 3 s after it was stopped to be restarted"]


async def test_in_the_ordered_stop_one_that_overruns_is_named_and_the_next_is_stopped(
    autojump_clock: MockClock, team: Team, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", stop_grace_s=3.0)
        await team.spawn(sup, "ab")
        await team.spawn(sup, "c", stop_grace_s=1.0)
        team.end_s = {"c": 10.0, "b": 2.0}
        team.since()
        sup.stop("enough")
        await trio.sleep_until(2.9)
        assert team.since() == ""
        await trio.sleep_until(3.1)
        assert team.since() == "-b -a"
        await sup.join()
        assert trio.current_time() == pytest.approx(10)
        assert [(await ref.join()).reason for ref in team.refs.values()] == ["enough"] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "actor 'sup/c' has not ended 1 s after it was stopped; the next is stopped"
    ]


async def test_during_a_groups_backoff_another_supervisors_child_crashes_and_is_back(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        slow = await system.supervise(name="slow", strategy="one_for_all", restart="transient", backoff=Backoff(60.0))
        fast = await system.supervise(name="fast", strategy="one_for_all", restart="transient", backoff=AT_ONCE)
        await team.spawn(slow, "ab")
        await team.spawn(fast, "cd")
        team.since()
        team.refs["a"].tell("crash")
        await trio.sleep(1)
        assert team.since() == "!a -a -b"
        team.refs["c"].tell("crash")
        await trio.sleep(1)
        assert team.since() == "!c -c -d +c +d"
        await trio.sleep(120)
        assert team.since() == "+a +b"


async def test_rest_for_one_lets_an_earlier_child_work_and_crash_during_a_backoff(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        backoff = Backoff(first_s=10.0, factor=1.0, jitter=0.0)
        sup = await system.supervise(name="sup", strategy="rest_for_one", restart="transient", backoff=backoff)
        await team.spawn(sup, "abc")
        team.since()
        team.refs["b"].tell("crash")
        await trio.sleep(6)
        assert team.since() == "!b -b -c"
        team.refs["a"].tell("crash")
        await trio.sleep(9)  # the earlier backoff has passed, the later has not
        assert team.since() == "!a -a"
        await trio.sleep(2)
        assert team.since() == "+a +b +c"


async def test_a_crash_of_one_that_is_ready_again_begins_the_restart_anew(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="one_for_all", restart="transient", backoff=AT_ONCE)
        await team.spawn(sup, "abc")
        team.start_s = {"b": [5.0]}
        team.since()
        team.refs["c"].tell("crash")
        await trio.sleep(1)
        assert team.since() == "!c -c -b -a +a +b"
        team.refs["a"].tell("crash")  # b is on the way up
        await trio.sleep(1)
        assert team.since() == "!a -a -b +a +b +c"


async def test_a_spawn_during_a_restart_waits_until_all_are_back(autojump_clock: MockClock, team: Team) -> None:
    async with open_system() as system:
        sup = await system.supervise(
            name="sup", strategy="one_for_all", restart="transient", backoff=Backoff(first_s=10.0, jitter=0.0)
        )
        await team.spawn(sup, "ab")
        team.since()
        team.refs["a"].tell("crash")
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(team.spawn, sup, "c")
            await trio.sleep(9)
            assert team.since() == "!a -a -b"
        assert team.since() == "+a +b +c"
        assert trio.current_time() == pytest.approx(10)
        team.refs["c"].tell("crash")
        await trio.sleep(60)
        assert team.since() == "!c -c -b -a +a +b +c"


async def test_a_spawn_that_is_cancelled_as_it_waits_for_a_restart_leaves_nothing(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="one_for_all", restart="transient", backoff=Backoff(10.0))
        await team.spawn(sup, "a")
        team.refs["a"].tell("crash")
        await wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await team.spawn(sup, "b")
        await trio.sleep(60)
        assert [ref.name for ref in sup.children] == ["a"]
        await team.spawn(sup, "b")


async def test_a_spawn_that_waits_for_a_restart_is_turned_away_when_the_supervisor_stops(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="one_for_all", restart="transient", backoff=Backoff(10.0))
        await team.spawn(sup, "a")
        team.refs["a"].tell("crash")
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def late() -> None:
                with pytest.raises(NotAccepting):
                    await team.spawn(sup, "b")

            await wait_all_tasks_blocked()
            sup.stop()


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (0.5, "-c -b"),  # c stops, b is up; a has crashed
        (2.5, "-b"),  # c is down, b stops
        (4.5, ""),  # all are down, the backoff runs
        (10.5, "-a"),  # a starts
        (12.5, "-b -a"),  # a is up, b starts
        (20.0, "-c -b -a"),
    ],
)
async def test_a_stop_in_any_phase_of_a_restart_ends_each_child_once_in_reverse(
    at: float, expected: str, autojump_clock: MockClock, team: Team
) -> None:
    downs: list[str] = []
    async with open_system(on_down=lambda down: downs.append(f"{down.name} {down.reason}")) as system:
        sup = await system.supervise(
            name="sup", strategy="one_for_all", restart="transient", backoff=Backoff(first_s=10.0, jitter=0.0)
        )
        await team.spawn(sup, "abcd")
        team.end_s = {"c": 2.0, "b": 2.0}
        team.start_s = {"a": [2.0], "b": [2.0]}
        team.refs["d"].stop()  # so that c is the last
        await team.refs["d"].join()
        team.refs["a"].tell("crash")
        await trio.sleep_until(at)
        team.since()
        sup.stop("enough")
        await sup.join()
        assert (at, team.since()) == (at, expected)
        assert sup.children == ()
        assert (sup.closing, sup.ended) == (True, True)
        await trio.sleep(60)
        assert team.since() == ""
    assert sorted(downs) == ["a enough", "b enough", "c enough", "d stopped"]
    assert [line[0] for line in downs] == list("dcba")


# Budgets. A restart that was made exactly a window ago has left it.


@pytest.mark.parametrize(("third", "gave_up"), [(10.9, True), (11.0, False), (11.1, False)])
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_a_supervisors_budget_counts_the_restarts_of_all_in_any_window_r13(
    third: float, gave_up: bool, strategy: StrategyName, autojump_clock: MockClock, team: Team
) -> None:
    crashes: list[Crash] = []

    async def scenario() -> None:
        async with open_system(on_crash=crashes.append) as system:
            sup = await system.supervise(
                name="sup",
                strategy=strategy,
                restart="transient",
                intensity=(2, 10.0),
                budget="supervisor",
                backoff=AT_ONCE,
            )
            await team.spawn(sup, "abc")
            for at, name in [(1.0, "a"), (6.0, "b"), (third, "c")]:
                await trio.sleep_until(at)
                team.refs[name].tell("crash")
            await trio.sleep(5)
            assert not gave_up

    if gave_up:
        with pytest.raises(ValueError, match=r"^c") as caught:
            await scenario()
        assert caught.value.__notes__ == [
            "in actor 'sup/c', while handling str",
            "supervisor 'sup' gave up: 2 restarts in 10 s were used up",
        ]
    else:
        await scenario()
    # Then the supervisor itself is reported too, as the child of the system that it is.
    assert [(crash.name, crash.gave_up) for crash in crashes[:3]] == [("a", False), ("b", False), ("c", gave_up)]
    assert [crash.name for crash in crashes[3:]] == (["sup"] if gave_up else [])


@pytest.mark.parametrize(("third", "gave_up"), [(9.9, True), (10.0, False)])
async def test_a_childs_own_budget_counts_the_time_it_was_up_r13(
    third: float, gave_up: bool, autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        backoff = Backoff(first_s=100.0, factor=1.0, cap_s=100.0, jitter=0.0)
        sup = await system.supervise(name="sup", restart="transient", intensity=(2, 10.0), backoff=backoff)
        await team.spawn(sup, "a")
        # The first restart is decided when it was up for 0 s, the second after 4 s, the third in question.
        for up_until in (0.0, 100 + 4.0, 200 + third):
            await trio.sleep_until(up_until)
            team.refs["a"].tell("crash")
            await wait_all_tasks_blocked()
        assert team.refs["a"].alive is not gave_up


async def test_with_a_budget_of_its_own_a_child_that_uses_it_up_ends_alone_r13(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", intensity=(1, 10.0), backoff=AT_ONCE)
        await team.spawn(sup, "abc")
        team.since()
        for name in "aba":
            team.refs[name].tell("crash")
            await trio.sleep(0.1)
        assert team.since() == "!a -a +a !b -b +b !a -a"
        assert [ref.name for ref in sup.children] == ["b", "c"]
        assert (await team.refs["a"].join()).kind is DownKind.CRASHED


async def test_a_supervisor_that_gives_up_stops_what_is_left_in_reverse(autojump_clock: MockClock, team: Team) -> None:
    with pytest.raises(ValueError, match="b"):
        async with open_system() as system:
            sup = await system.supervise(name="sup", strategy="one_for_all", restart="permanent", intensity=(0, 1.0))
            await team.spawn(sup, "abcd")
            team.since()
            team.refs["b"].tell("crash")
            await trio.sleep(60)
    assert team.since() == "!b -b -d -c -a"


@pytest.mark.parametrize("word", ["crash", "return"])
async def test_a_permanent_group_gives_up_on_ends_of_either_kind(
    word: Word, autojump_clock: MockClock, team: Team
) -> None:
    with pytest.raises(ValueError if word == "crash" else RuntimeError):
        async with open_system() as system:
            sup = await system.supervise(
                name="sup", strategy="rest_for_one", restart="permanent", intensity=(1, 10.0), backoff=AT_ONCE
            )
            await team.spawn(sup, "ab")
            for _ in range(2):
                team.refs["a"].tell(word)
                await trio.sleep(1)


async def test_a_draining_child_that_crashes_is_started_again_to_finish_what_it_has(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", backoff=AT_ONCE)
        await team.spawn(sup, "a")
        ref = team.refs["a"]
        for word in ("crash", "hold", "hold"):
            assert ref.tell(word)
        ref.drain()
        assert not ref.tell("hold")
        down = await ref.join()
        assert (down.kind, down.handled, ref.statistics().returned) == (DownKind.DRAINED, 3, 0)


async def test_a_draining_child_of_a_restarted_group_finishes_what_it_has(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", strategy="one_for_all", restart="transient", backoff=AT_ONCE)
        await team.spawn(sup, "abc")
        ref = team.refs["b"]
        team.refs["a"].tell("crash")
        await wait_all_tasks_blocked()
        team.start_s = {"a": [5.0]}
        team.refs["a"].tell("crash")
        await trio.sleep(1)  # b is down, until a is ready
        ref.tell("hold")
        ref.drain()
        down = await ref.join()
        assert (down.kind, down.handled) == (DownKind.DRAINED, 1)
        assert trio.current_time() == pytest.approx(5)


async def test_a_supervisor_that_stops_starts_nobody_again_whose_turn_has_not_come(
    autojump_clock: MockClock, team: Team
) -> None:
    async with open_system() as system:
        sup = await system.supervise(name="sup", restart="transient", backoff=Backoff(first_s=1.0, jitter=0.0))
        await team.spawn(sup, "ab")
        team.end_s = {"b": 3.0}
        team.since()
        team.refs["a"].tell("crash")
        await wait_all_tasks_blocked()
        sup.stop()  # b takes longer to end than a has to wait
        await sup.join()
        assert team.since() == "!a -a -b"


@seeds(30)
async def test_a_start_that_was_ordered_as_the_supervisor_gives_up_is_not_made() -> None:
    trace: list[str] = []

    async def plain(ctx: Ctx[Word]) -> None:
        trace.append("+" + ctx.name)
        async for _ in ctx:  # is ready here, and has the first message in the same breath
            trace.append("!" + ctx.name)
            raise ValueError(ctx.name)

    with pytest.raises(ValueError, match="a"):
        async with open_system() as system:
            sup = await system.supervise(
                name="sup", strategy="one_for_all", restart="transient", intensity=(1, 10.0), backoff=AT_ONCE
            )
            refs: list[Ref[Word]] = [await sup.spawn(plain, name=name) for name in "abc"]
            refs[0].tell("crash")
            refs[0].tell("crash")
            await trio.sleep(1)
    assert trace == ["+a", "+b", "+c", "!a", "+a", "!a"]
