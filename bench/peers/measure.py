"""Runs other libraries, one process after the other, and says of each what it took or why there is no figure.

Only what is installed beside this Python can be measured. Whatever a peer does wrong ends as a note on its figure and
never ends a bench.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from bench.harness import PeerFigure

_ROOT = Path(__file__).resolve().parent.parent.parent
_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A library that is measured.

    Attributes:
        name: Of the distribution.
        module: What runs in its process, in `bench.peers`.
        python: The oldest Python that it installs on.
        most: The most actors that it is given.
        cannot: Which loads it has no counterpart for, and why.
        differs: What is not the same about a load, to its favour or not.
        included: It is part of Python, and has its version.
        beyond: Why it is not measured beyond `most`; without a reason it is given `most` of them.
        repeats: The most repeats that it is given.
    """

    name: str
    module: str
    python: tuple[int, int]
    most: int
    cannot: Mapping[str, str] = field(default_factory=dict[str, str])
    differs: Mapping[str, str] = field(default_factory=dict[str, str])
    included: bool = False
    beyond: str = ""
    repeats: int = 100


PYKKA = Package(
    name="pykka",
    module="with_pykka",
    python=(3, 10),
    most=1_000,  # each is a thread
    cannot={"send": "its tell never waits for room"},
    differs={"ask64": "64 futures at a time"},
)
CASTY = Package(
    name="casty",
    module="with_casty",
    python=(3, 12),
    most=10_000,
    cannot={"send": "its tell never waits for room"},
    differs={"spawn": "with one ask each, which is what starts it", "stop": "the end of its system"},
)
EVERYTHING = Package(
    name="everything-is-an-actor",
    module="with_everything",
    python=(3, 12),
    most=10_000,
    differs={"stop": "the end of its system"},
)
PACKAGES = (PYKKA, CASTY, EVERYTHING)

_NO_RECORD = "tasks in groups, without a record of anything"
ASYNCIO = Package(
    name="asyncio",
    module="with_asyncio",
    python=(3, 11),
    most=1_000_000,
    differs={f"cancel_{load}": _NO_RECORD for load in ("setup", "all", "one", "end", "memory")},
    included=True,
)
ZETT = Package(
    name="zett-agent",
    module="with_zett",
    python=(3, 10),
    most=1_000,
    differs={"cancel_end": "the cancel of all: its sessions have no life of their own"},
    beyond="it is quadratic: not measured beyond 1,000 sessions",
    repeats=1,  # and slow
)
#: Those that have sessions, under the loads of `cancel/*`.
SESSION_PACKAGES = (ASYNCIO, ZETT)


def measure_peers(
    load: str, n: int, repeats: int, *, actors: int = 1, packages: Sequence[Package] = PACKAGES
) -> list[PeerFigure]:
    """Put one load on every library, one after the other.

    Args:
        load: Of those that the modules know.
        n: Its size: messages, asks or actors.
        repeats: How often each measures it, in one process.
        actors: How many actors it takes; a library that is given fewer has a smaller load, and its note says so.
        packages: Which libraries.
    """
    return [_measure(package, load, n, repeats, actors) for package in packages]


def _measure(package: Package, load: str, n: int, repeats: int, actors: int) -> PeerFigure:
    if load in package.cannot:
        return PeerFigure(name=package.name, note=package.cannot[load])
    try:
        installed = platform.python_version() if package.included else version(package.name)
    except PackageNotFoundError:
        return PeerFigure(name=package.name, note=_missing(package))
    if package.beyond and actors > package.most:
        return PeerFigure(name=package.name, version=installed, note=package.beyond)
    notes = [package.differs[load]] if load in package.differs else []
    if actors > package.most:
        n = n * package.most // actors
        notes.append(f"{package.most:,} actors")
    command = [sys.executable, "-m", "bench.peers", package.module, load, str(n)]
    command.append(str(min(repeats, package.repeats)))
    try:
        values = _run(command)
    except RuntimeError as error:
        return PeerFigure(name=package.name, version=installed, note=str(error))
    return PeerFigure(name=package.name, version=installed, value=median(values), note="; ".join(notes))


def _missing(package: Package) -> str:
    if sys.version_info[:2] < package.python:
        needed = ".".join(map(str, package.python))
        return f"not installed: needs Python >= {needed}, this is {sys.version_info[0]}.{sys.version_info[1]}"
    return f"not installed: pip install {package.name}"


def _run(command: Sequence[str]) -> list[float]:
    try:
        done = subprocess.run(
            command, cwd=_ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"failed: not through within {_WITHIN_S:g} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RuntimeError(f"failed with {done.returncode}: {said[-1] if said else 'it said nothing'}")
    values: list[float] = json.loads(done.stdout)
    return values
