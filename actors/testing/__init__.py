"""A test kit for actors: probes, virtual time, orders of the scheduler, faults, the books. It knows no agents.

The names are loaded when they are first used: pytest imports its plugins, and so this package, in every project.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.testing.conservation import check_conservation, conserving
    from actors.testing.faults import Fault, count_checkpoints, every_checkpoint, inject
    from actors.testing.probe import MakeProbe, Probe, open_probe
    from actors.testing.running import run, seeds
    from actors.testing.scheduler import seeded

_WHERE = {
    "Fault": "faults",
    "MakeProbe": "probe",
    "Probe": "probe",
    "check_conservation": "conservation",
    "conserving": "conservation",
    "count_checkpoints": "faults",
    "every_checkpoint": "faults",
    "inject": "faults",
    "open_probe": "probe",
    "run": "running",
    "seeded": "scheduler",
    "seeds": "running",
}

__all__ = [
    "Fault",
    "MakeProbe",
    "Probe",
    "check_conservation",
    "conserving",
    "count_checkpoints",
    "every_checkpoint",
    "inject",
    "open_probe",
    "run",
    "seeded",
    "seeds",
]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'actors.testing' has no attribute {name!r}")
    value = getattr(import_module(f"actors.testing.{where}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
