"""What is said of other libraries: what they took, or why there is no figure. None has to be installed for this."""

import sys
from collections.abc import Sequence

import pytest

from bench.harness import PeerFigure
from bench.peers import measure
from bench.peers.measure import Package, measure_peers

# An installed distribution stands in for a library.
HERE = Package(name="trio", module="sizes", python=(3, 11), most=100, differs={"spawn": "in its own way"})


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    seen: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> list[float]:
        seen.append(command)
        return [5.0, 1.0, 3.0]

    monkeypatch.setattr(measure, "_run", run)
    monkeypatch.setattr(measure, "version", lambda name: "1.2.3")
    return seen


def test_all_three_are_asked_one_after_the_other(commands: list[Sequence[str]]) -> None:
    names = [peer.name for peer in measure_peers("tell", 10, 3)]
    assert names == ["pykka", "casty", "everything-is-an-actor"]
    assert [command[3] for command in commands] == ["with_pykka", "with_casty", "with_everything"]


def test_a_figure_is_the_median_of_what_one_process_measured(commands: list[Sequence[str]]) -> None:
    assert measure_peers("tell", 10, 3, packages=[HERE]) == [PeerFigure(name="trio", version="1.2.3", value=3.0)]
    assert commands == [[sys.executable, "-m", "bench.peers", "sizes", "tell", "10", "3"]]


def test_a_difference_in_the_load_is_told(commands: list[Sequence[str]]) -> None:
    (peer,) = measure_peers("spawn", 10, 3, actors=10, packages=[HERE])
    assert peer.note == "in its own way"


def test_a_library_that_takes_fewer_actors_gets_a_smaller_load_and_says_so(commands: list[Sequence[str]]) -> None:
    (peer,) = measure_peers("fanout", 50_000, 3, actors=1_000, packages=[HERE])
    assert peer.note == "100 actors"
    assert commands[0][5] == "5000"


@pytest.mark.parametrize("package", [measure.PYKKA, measure.CASTY])
def test_a_load_without_a_counterpart_is_not_measured(package: Package, commands: list[Sequence[str]]) -> None:
    (peer,) = measure_peers("send", 10, 3, packages=[package])
    assert peer == PeerFigure(name=package.name, note="its tell never waits for room")
    assert commands == []


def test_a_library_that_is_not_installed_says_how_to_get_it() -> None:
    missing = Package(name="no-such-distribution", module="nowhere", python=(3, 11), most=1)
    (peer,) = measure_peers("tell", 10, 1, packages=[missing])
    assert peer == PeerFigure(name="no-such-distribution", note="not installed: pip install no-such-distribution")


def test_a_library_that_this_python_is_too_old_for_says_which_it_needs() -> None:
    later = Package(name="no-such-distribution", module="nowhere", python=(3, 99), most=1)
    (peer,) = measure_peers("tell", 10, 1, packages=[later])
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert peer.note == f"not installed: needs Python >= 3.99, this is {here}"


def test_a_process_that_fails_is_a_note_and_no_end_of_the_bench() -> None:
    broken = Package(name="trio", module="nowhere", python=(3, 11), most=1)
    (peer,) = measure_peers("tell", 10, 1, packages=[broken])
    assert peer.value is None
    assert peer.note == "failed with 1: ModuleNotFoundError: No module named 'bench.peers.nowhere'"


def test_a_process_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_WITHIN_S", 0.0)
    (peer,) = measure_peers("tell", 10, 1, packages=[HERE])
    assert (peer.value, peer.note) == (None, "failed: not through within 0 s")


def test_what_is_part_of_python_has_its_version(commands: list[Sequence[str]]) -> None:
    (peer,) = measure_peers("cancel_all", 10, 3, packages=[measure.ASYNCIO])
    assert peer.version == ".".join(map(str, sys.version_info[:3]))
    assert peer.note == "tasks in groups, without a record of anything"


def test_a_library_may_be_left_out_beyond_its_most_and_says_why(commands: list[Sequence[str]]) -> None:
    (peer,) = measure_peers("cancel_all", 5_000, 3, actors=5_000, packages=[measure.ZETT])
    assert (peer.value, peer.note) == (None, "it is quadratic: not measured beyond 1,000 sessions")
    assert commands == []


def test_a_slow_library_is_not_measured_as_often(commands: list[Sequence[str]]) -> None:
    measure_peers("cancel_all", 100, 3, actors=100, packages=measure.SESSION_PACKAGES)
    assert [(command[3], command[6]) for command in commands] == [("with_asyncio", "3"), ("with_zett", "1")]
