"""Cancel anywhere: a scenario is played once for every moment at which something could happen to it.

    from actors.testing.sweep import Stage, scenario, sweep

`python -m actors.testing.sweep` sweeps from the command line, and plays a single case again.
"""

from actors.testing.sweep.case import Case, Pattern, read_case, read_pattern, twice
from actors.testing.sweep.playing import Played, Wrong, play
from actors.testing.sweep.reach import Await, Reach, explain, read_reasons
from actors.testing.sweep.scenario import Scenario, scenario
from actors.testing.sweep.stage import InjectedError, Stage
from actors.testing.sweep.sweeping import Finding, Report, find, scenarios_in, sweep

__all__ = [
    "Await",
    "Case",
    "Finding",
    "InjectedError",
    "Pattern",
    "Played",
    "Reach",
    "Report",
    "Scenario",
    "Stage",
    "Wrong",
    "explain",
    "find",
    "play",
    "read_case",
    "read_pattern",
    "read_reasons",
    "scenario",
    "scenarios_in",
    "sweep",
    "twice",
]
