"""At every task step something else goes wrong, and what must hold still holds. `SWEEP=full` plays far more cases."""

import logging
import os
from collections.abc import Iterator, Sequence

import pytest

from actors.agent import session as session_module
from actors.agent.run import LiveRun
from actors.agent.session import Session
from protocol import decisions
from protocol import events as ev
from tests.faults.scene import ACTS, NEVER, Case, Found
from tests.faults.sweep import every_step, play, sweep

FULL = os.environ.get("SWEEP") == "full"
SEEDS = range(5) if FULL else range(1)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of planned failures are not worth a line each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _check(cases: Iterator[Case], at_least: int) -> None:
    played, found = sweep(cases)
    assert not found, f"{len(found)} of {played} cases; the first: {found[0]}"
    assert played >= at_least, f"only {played} cases: the scenario has become too short to find anything"


@pytest.mark.parametrize("act", ACTS)
def test_the_invariants_hold_whatever_happens_at_any_step(act: str) -> None:
    _check(every_step(stores=["memory"], acts=[act], seconds=(0, 1, 2, 3) if FULL else (0, 1), seeds=SEEDS), 80)


@pytest.mark.parametrize("second", [2, 3])
def test_a_second_cancel_shortly_after_the_first_changes_nothing_a09(second: int) -> None:
    _check(every_step(stores=["memory"], acts=["cancel"], seconds=(second,), seeds=(1,)), 40)


@pytest.mark.parametrize("store", ["slow", "slow clock"])
def test_the_invariants_hold_while_the_store_commits_later(store: str) -> None:
    _check(every_step(stores=[store], stride=1 if FULL else 8, seeds=SEEDS, seconds=(0, 2) if FULL else (0,)), 140)


@pytest.mark.parametrize("store", ["failing", "failing later"])
def test_the_session_recovers_whichever_append_fails(store: str) -> None:
    _check((Case(store=store, fails_at=n, seed=seed) for n in range(36) for seed in SEEDS), 36)


@pytest.mark.parametrize("store", ["failing", "failing later"])
def test_the_invariants_hold_while_the_store_fails_beside_something_else(store: str) -> None:
    appends = range(0, 30, 1 if FULL else 5)
    _check(every_step(stores=[store], fails_at=appends, stride=2 if FULL else 8, seeds=SEEDS), 180)


@pytest.mark.parametrize("act", ["answer cancel", "cancel answer"])
def test_an_answer_and_a_cancel_in_one_tick_agree_with_the_log_in_every_interleaving_a24_b21(act: str) -> None:
    seeds = range(20, 120 if FULL else 28)
    _check(every_step(stores=["memory"], acts=[act], stride=5, seeds=seeds), 60)


# ---- the controls: a planted fault must be found, or the sweep proves nothing


@pytest.mark.parametrize("append", range(2, 8))
def test_a_store_that_acknowledges_before_it_keeps_is_found(append: int) -> None:
    with pytest.raises(Found):
        play(Case(store="lying", fails_at=append))


def test_a_session_that_publishes_before_it_registers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Session.append

    def hasty(session: Session, events: Sequence[ev.Event], *, run: str = "", cause: str = "") -> int:
        for event in events:
            if isinstance(event, ev.AskOpened):
                for reader in session._readers:
                    reader.offer(event)
        return append(session, events, run=run, cause=cause)

    monkeypatch.setattr(Session, "append", hasty)
    with pytest.raises(Found, match="an ask was seen before it could be answered"):
        play(Case())


def test_a_cancel_that_leaves_asks_open_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_close_asks", lambda state, run: [])
    _, found = sweep(every_step(stores=["memory"], acts=["cancel"]))
    assert found


def test_a_run_that_forgets_its_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveRun, "ended", lambda live: None)
    with pytest.raises(Found, match="still counted as active"):
        play(Case())


def test_a_session_that_forgets_its_waiters_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = {kind: effect for kind, effect in session_module._EFFECTS.items() if kind is not ev.AskSettled}
    monkeypatch.setattr(session_module, "_EFFECTS", effects)
    with pytest.raises(Found, match="TooSlowError"):
        play(Case())


def test_the_same_case_plays_the_same_steps() -> None:
    case = Case("cancel", 20, 2, seed=7)
    assert play(case) == play(case) < NEVER
