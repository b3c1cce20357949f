"""Every scenario, at some of its moments. `python -m actors.testing.sweep tests.sweeps` plays all of them."""

import logging
import os
from collections.abc import Iterator

import pytest

from actors.testing.sweep import Scenario, scenarios_in, sweep

#: Far apart, and starting elsewhere for each pattern. `SWEEP=full` leaves none out.
STRIDE = 1 if os.environ.get("SWEEP") == "full" else 97
SCENARIOS = scenarios_in("tests.sweeps")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Planned failures are not worth a line each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name.rpartition(".")[2] for one in SCENARIOS])
def test_whatever_happens_what_must_hold_does(scenario: Scenario) -> None:
    report = sweep(scenario, stride=STRIDE).check()
    assert report.checkpoints >= 5, "the scenario has become too short to find anything"
