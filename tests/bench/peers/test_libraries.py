"""The libraries that are installed here do what their loads are named after. Those that are not are left out."""

import importlib
from importlib.metadata import PackageNotFoundError, version

import pytest

from bench.peers.measure import PACKAGES, Package, measure_peers

LOADS = ("tell", "send", "ask", "ask64", "fanout", "spawn", "idle", "stop")


@pytest.fixture(params=PACKAGES, ids=lambda package: package.name)
def package(request: pytest.FixtureRequest) -> Package:
    found: Package = request.param
    try:
        version(found.name)
    except PackageNotFoundError:
        pytest.skip(f"{found.name} is not installed")
    return found


def test_a_library_knows_every_load_that_it_has_a_counterpart_for(package: Package) -> None:
    loads = importlib.import_module(f"bench.peers.{package.module}").LOADS
    assert {*loads, *package.cannot} == set(LOADS)
    assert not {*loads} & {*package.cannot}


@pytest.mark.parametrize("load", [load for load in LOADS if load != "idle"])
def test_a_load_is_measured(package: Package, load: str) -> None:
    (peer,) = measure_peers(load, 128, 1, packages=[package])
    if load in package.cannot:
        assert peer.value is None
    else:
        assert peer.value is not None, peer.note
        assert peer.value > 0


def test_idle_actors_hold_memory(package: Package) -> None:
    (peer,) = measure_peers("idle", 500, 1, actors=500, packages=[package])
    assert peer.value is not None, peer.note
    assert 500 < peer.value < 200_000
