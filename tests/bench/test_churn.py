"""Random cancels leave nothing behind, and a leak of any kind is no figure."""

import os
from collections.abc import Awaitable, Callable, Generator

import pytest
import trio

from actors import AgentRunContext, AskUserExtension
from actors.agent.grace import CancelGrace
from actors.agent.memory import MemoryStore
from actors.agent.run import LiveRun
from bench import churn
from bench.books import Violation
from protocol import decisions


@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_is_left_of_random_cancels(seed: int) -> None:
    assert churn.cancels_per_second(20, 120, seed=seed) > 0


def test_one_session_is_enough() -> None:
    assert churn.cancels_per_second(1, 10) > 0


def fails(said: str) -> None:
    with pytest.raises(Violation, match=said):
        churn.cancels_per_second(6, 30)


Told = Callable[[AskUserExtension, AgentRunContext, object], Awaitable[None]]


def on_cancel(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    """Have `told` called with each run that is cancelled."""
    monkeypatch.setattr(AskUserExtension, "on_event", told, raising=False)


def test_a_task_that_outlives_its_session_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    over = trio.Event()

    async def told(extension: AskUserExtension, context: AgentRunContext, event: object) -> None:
        trio.lowlevel.spawn_system_task(over.wait)

    on_cancel(monkeypatch, told)
    fails(r"^seed 0: \d+ tasks left when every session was closed$")


def test_a_descriptor_that_stays_open_is_a_leak(monkeypatch: pytest.MonkeyPatch, opened: list[int]) -> None:
    async def told(extension: AskUserExtension, context: AgentRunContext, event: object) -> None:
        if not opened:
            opened.extend(os.pipe())

    on_cancel(monkeypatch, told)
    fails(r"^seed 0: 2 descriptors left when everything had ended$")


@pytest.fixture
def opened() -> Generator[list[int]]:
    descriptors: list[int] = []
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


def test_a_run_that_is_kept_somewhere_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[AgentRunContext] = []

    async def told(extension: AskUserExtension, context: AgentRunContext, event: object) -> None:
        kept.append(context)

    on_cancel(monkeypatch, told)
    fails(r"^seed 0: \d+ session objects, \d+ run objects left when everything had ended$")


def test_a_deadline_that_is_not_taken_back_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CancelGrace, "ended", lambda grace, live: None)
    fails(r"^seed 0: \d+ timers left when every session was closed$")


def test_a_run_that_is_still_counted_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(live: LiveRun) -> None:
        live.agent.grace.ended(live)

    monkeypatch.setattr(LiveRun, "ended", ended)
    fails(r"^seed 0: \d+ runs left when every session was closed$")


def test_a_log_that_is_kept_after_its_session_was_closed_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    release_before = MemoryStore.release

    async def release_late(store: MemoryStore, session_id: str) -> None:
        await release_before(store, session_id)
        if session_id == "s-3":
            store.create(session_id, "again")

    monkeypatch.setattr(MemoryStore, "release", release_late)
    fails(r"^seed 0: session s-3 was closed, and its log is kept$")


def test_an_ask_that_stays_open_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_close_asks", lambda state, run: [])
    fails(r"^seed 0: session s-\d+: the asks of c[c0-9, ]+ are open$")


def test_a_session_that_gets_stuck_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(churn, "_WITHIN_S", 0.1)

    async def told(extension: AskUserExtension, context: AgentRunContext, event: object) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.5)

    on_cancel(monkeypatch, told)
    fails(r"^seed 0: session s-\d+ is stuck: \w+ for 0\.1 s$")
