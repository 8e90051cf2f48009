"""What tests with other people's programs share: those programs, installed beside tvsnap."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosted import ROOT, programs_of
from tests.server.conftest import Server, start
from tvsnap.images import Image

PLAIN_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Runs a program as a user that is not root, and has no rights but those to its files."""


@pytest.fixture(scope="session")
def compose_program() -> Path:
    """The program of Docker Compose, in the version that `scripts/fetch_compose.sh` names."""
    subprocess.run([ROOT / "scripts/fetch_compose.sh", ROOT / ".compose"], check=True)
    return ROOT / ".compose/docker-compose"


@pytest.fixture(scope="session")
def harbor_programs() -> Path:
    """The folder of programs in which `harbor` is, with a Python that has Harbor and tvsnap."""
    return programs_of(".venv-harbor", "install_harbor.sh", "Harbor needs Python 3.12 or newer, and there is none")


@pytest.fixture(scope="session")
def harness_programs() -> Path:
    """The folder of programs of a Python that has mini-swe-agent, Inspect, SWE-ReX and tvsnap."""
    return programs_of(
        ".venv-harnesses", "install_harnesses.sh", "Inspect needs Python 3.11 or newer, and .venv has an older one"
    )


@pytest.fixture(scope="session")
def openhands_programs() -> Path:
    """The folder of programs of a Python that has OpenHands' SDK and tvsnap."""
    return programs_of(
        ".venv-openhands", "install_openhands.sh", "OpenHands is tried with Python 3.12.2 or newer, and there is none"
    )


@pytest.fixture(scope="session")
def server(terminal_image: Image, tvsnap_home: Path) -> Iterator[Server]:
    """A server on the session's data directory, which keeps all states however busy the machine is."""
    started = start(tvsnap_home, "--policy", "eager", socket="integrations.sock")
    yield started
    assert started.stop() == 0
