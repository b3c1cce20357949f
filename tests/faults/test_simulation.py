"""An hour of everything that can go wrong, under some seeds; `python -m tests.faults.simulation` plays any number.

The controls show that it would find what it is there for.
"""

# pyright: reportPrivateUsage=false

import logging
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Literal

import pytest
import trio

from actors.agent.run import LiveRun
from actors.agent.session import Session
from protocol import events as ev
from tests.faults import simulation
from tests.faults.simulation import main, simulate
from tests.faults.simulation_trace import Found, Trace

SEEDS = int(os.environ.get("SIMULATION", "20"))
PARTS = 10
#: In how many seeds a planted fault is found at the latest.
ENOUGH = 8

played = cache(simulate)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_invariants_hold_through_an_hour_of_everything_at_random_a23_b24_d04(part: int) -> None:
    """Among them: one end and it is the last (a23); what one client answered stands for all (b24); what is shown when
    one attaches, and what follows, is what the log says, without a gap (d04)."""
    for seed in range(part, SEEDS, PARTS):
        played(seed)


def test_one_seed_plays_the_same_hour_again_and_another_seed_another() -> None:
    first = played(0)
    assert simulate(0) == first
    assert played(1).digest != first.digest


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_one_seed_plays_the_same_hour_in_another_process_in_whatever_order_its_sets_are(hash_seed: str) -> None:
    code = "from tests.faults.simulation import simulate; print(simulate(2).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == played(2).digest


def test_everything_that_can_happen_does_happen() -> None:
    counts = Counter[str]()
    for seed in range(20):
        counts.update(played(seed).counts)
    wanted = {
        "hosts closed", "hosts cancelled", "hosts killed", "clock jumps", "disconnects", "store failures", "looks",
        "prompt acknowledged", "prompt refused", "answer acknowledged", "answer refused", "cancel acknowledged",
        "steer acknowledged", "externalevent acknowledged", "repeats", "repeats acknowledged as before", "snapshots",
        "commands withdrawn", "attached tail", "attached snapshot", "attached reset", "readers that stopped reading",
        "readers closed link.too_slow", "readers closed session.closed", "readers closed store.failed",
        "sessions closed", "sessions that took the next prompt", "ends that extensions were told of",
        "streams left early", "answers of callers accepted", "answers of callers refused", "answers fed",
        "answers within the delivery", "RunCompleted", "RunFailed", "RunCancelled", "RunCancelled with a straggler",
        "RunFailed session.crashed", "RunFailed model.failed", "RunFailed model.truncated", "RunFailed run.max_turns",
        "RunQueued", "SteeringStarted", "SteeringInterrupted", "TodosChanged", "ToolSkipped", "AskSettled answered",
        "AskSettled declined", "AskSettled cancelled", "ToolFailed call.interrupted", "ToolFailed call.invalid",
        "ToolFailed tool.unknown", "ToolFailed tool.failed", "ToolFailed todo.refused",
    }  # fmt: skip
    assert wanted <= counts.keys(), f"these never happened: {sorted(wanted - counts.keys())}"
    commands = sum(counts[f"{kind} {end}"] for kind in ("prompt", "answer", "cancel", "steer", "externalevent")
                   for end in ("acknowledged", "refused"))  # fmt: skip
    assert commands >= 20 * 100, f"only {commands} commands in 20 hours: there is too little to find anything in"


def test_a_seed_that_finds_something_is_said_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = simulation._hour

    async def wrong(seed: int) -> Trace:
        if seed == 1:
            raise ValueError("a\nplanted fault")
        return await real(seed)

    monkeypatch.setattr(simulation, "_hour", wrong)
    assert main(["--first", "0", "--seeds", "3"]) == 1
    said = capsys.readouterr().out.splitlines()
    (found,) = [line for line in said if "planted fault" in line]
    again = "to repeat: python -m tests.faults.simulation --first 1 --seeds 1"
    assert found.endswith(f"seed 1: ValueError('a\\nplanted fault'); {again}")
    assert said[-1].startswith("3 seeds from 0 on in ") and said[-1].endswith(" s: 1 found something")


def _log(message: str) -> None:
    try:
        raise OSError("not planned")
    except OSError:
        logging.getLogger("actors.session").exception(message)


_UNHEARD: dict[str, Callable[[], object]] = {
    "logged with a traceback: oh": partial(_log, "oh"),
    "on stderr: oh": lambda: print("oh", file=sys.stderr),
    "ignored RuntimeError('oh')": lambda: Loud() and None,
    "1 descriptors are left": lambda: _left.append(os.open(os.devnull, os.O_RDONLY)),
}
_left: list[int] = []


class Loud:
    def __del__(self) -> None:
        raise RuntimeError("oh")


@pytest.mark.parametrize("found", list(_UNHEARD))
def test_what_is_said_beside_it_and_what_is_left_in_the_process_is_found(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hour(seed: int) -> Trace:
        await trio.lowlevel.checkpoint()
        _UNHEARD[found]()
        return Trace(seed, "", {})

    monkeypatch.setattr(simulation, "_hour", hour)
    with pytest.raises(Found, match=re.escape(f"seed 5: {found}")):
        simulate(5)
    while _left:
        os.close(_left.pop())


# ---- the controls: a planted fault must be found, or the simulation proves nothing


def _must_be_found(match: str) -> None:
    """Play until something is found, in no more than `ENOUGH` seeds."""
    with pytest.raises(Found, match=match):
        for seed in range(ENOUGH):
            simulate(seed)


def test_a_cleanup_without_a_shield_is_found_a08(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_end = LiveRun._tell_end

    async def bare(live: LiveRun, error: BaseException | None, *, cancelled: bool) -> None:
        await trio.lowlevel.checkpoint()  # what is told of the end is shielded, this is not
        await tell_end(live, error, cancelled=cancelled)

    monkeypatch.setattr(LiveRun, "_tell_end", bare)
    _must_be_found("extensions were told 0 times as good, 0 as bad")


def test_a_run_that_waits_unshielded_before_its_end_is_recorded_is_found_a08(monkeypatch: pytest.MonkeyPatch) -> None:
    async def execute(live: LiveRun) -> None:
        how: Literal["completed", "failed"] = "failed"
        error: BaseException | None = None
        try:
            with live.scope:
                await live._loop()
                how = "completed"
        except* Exception as errors:
            error = errors
        finally:
            cancelled = live.record.cancelling
            if how == "failed" or cancelled:
                await live._tell_end(error, cancelled=cancelled)  # noqa: ASYNC102
            await trio.lowlevel.checkpoint()  # noqa: ASYNC102 - only here does it differ
            live._finish("cancelled" if cancelled else how, error)

    monkeypatch.setattr(LiveRun, "execute", execute)
    _must_be_found("have no end")


def test_a_session_that_publishes_before_it_registers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Session.append

    def hasty(session: Session, events: Sequence[ev.Event], *, run: str = "", cause: str = "") -> int:
        for event in events:
            if isinstance(event, ev.AskOpened):
                for reader in session._readers:
                    reader.offer(event)
        return append(session, events, run=run, cause=cause)

    monkeypatch.setattr(Session, "append", hasty)
    _must_be_found("saw record 0")
