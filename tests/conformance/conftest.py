"""Generates each test for each backend that it applies to, and provides a laboratory that cleans up after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab, Worn
from tests.conformance.sql_lab import client, sql_backend, sql_cache, sql_lab, sql_warm
from tests.conformance.targets import TARGETS, Target, make_local
from tvsnap.images import Image
from tvsnap.model.errors import MachineLacks
from tvsnap.sandboxes.protocol import Backend, Sandbox

__all__ = ["client", "sql_backend", "sql_cache", "sql_lab", "sql_warm"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" not in metafunc.fixturenames:
        return
    metafunc.parametrize("target", TARGETS, indirect=True, scope="session")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Target:
    found = TARGETS[request.param]
    if found.engine:
        request.getfixturevalue("docker_engine")
    return found


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest, target: Target) -> Image:
    return target.image(request)


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest, target: Target) -> Iterator[Backend]:
    """The backend under test, one a session."""
    try:
        backend = target.make(request.getfixturevalue("tvsnap_home"))
    except MachineLacks as lack:
        pytest.skip(str(lack))
    yield backend
    backend.reap()  # what a failed test of dead owners may have left
    backend.close()


@pytest.fixture
def lab(request: pytest.FixtureRequest, backend: Backend, image: Image) -> Iterator[Lab]:
    """Starts, checkpoints and forks sandboxes, and removes them all at the end of the test."""
    if request.node.get_closest_marker("needs_processes") and not backend.captures.processes:
        pytest.skip(f"the {backend.name} backend cannot capture live processes on this machine (tvsnap doctor)")
    laboratory = Lab(backend, image)
    yield laboratory
    laboratory.close()


@pytest.fixture
def local_lab(tvsnap_home: Path, terminal_image: Image) -> Iterator[Lab]:
    """A laboratory of the local backend, for what concerns that alone; it captures live processes."""
    try:
        backend = make_local(tvsnap_home)
    except MachineLacks as lack:
        pytest.skip(str(lack))
    if not backend.captures.processes:
        pytest.skip("live processes cannot be captured on this machine (tvsnap doctor)")
    laboratory = Lab(backend, terminal_image)
    yield laboratory
    laboratory.close()
    backend.close()


@pytest.fixture
def sandbox(lab: Lab) -> Sandbox:
    """A fresh sandbox."""
    return lab.start()


@pytest.fixture(scope="session")
def worn(backend: Backend, image: Image) -> Iterator[Worn]:
    worn = Worn(backend, image)
    yield worn
    worn.close()


@pytest.fixture
def reused(request: pytest.FixtureRequest, worn: Worn) -> Sandbox:
    """A sandbox in which other cases of the test may have been; its shell is fresh, and in an empty directory."""
    return worn.lend(request.function.__name__)
