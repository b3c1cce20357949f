"""What has sessions is put under the loads of `cancel/*`, where it is installed."""

import importlib
from importlib.metadata import PackageNotFoundError, version

import pytest

from bench.peers.measure import SESSION_PACKAGES, Package, measure_peers

LOADS = ("cancel_setup", "cancel_all", "cancel_one", "cancel_end", "cancel_memory")


@pytest.fixture(params=SESSION_PACKAGES, ids=lambda package: package.name)
def package(request: pytest.FixtureRequest) -> Package:
    found: Package = request.param
    if not found.included:
        try:
            version(found.name)
        except PackageNotFoundError:
            pytest.skip(f"{found.name} is not installed")
    return found


def test_a_library_knows_every_load(package: Package) -> None:
    loads = importlib.import_module(f"bench.peers.{package.module}").LOADS
    assert set(loads) == set(LOADS)
    assert package.differs.keys() <= set(LOADS)
    for load in ("cancel_setup", "cancel_all", "cancel_one", "cancel_end"):
        # In a process of its own, as it is measured: under pytest every warning of asyncio's would be an error.
        (peer,) = measure_peers(load, 3, 1, packages=[package])
        assert peer.value is not None, peer.note
        assert peer.value > 0


def test_a_load_is_measured_in_a_process_of_its_own(package: Package) -> None:
    (peer,) = measure_peers("cancel_memory", 100, 1, actors=100, packages=[package])
    assert peer.value is not None, peer.note
    assert 200 < peer.value < 400_000
