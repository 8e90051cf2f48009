"""What tests of faults share: the local backend on the session's data directory, and a laboratory for its sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab
from tvsnap.host.owners import Owner
from tvsnap.images import Image
from tvsnap.sandboxes.local import LocalBackend


@pytest.fixture
def backend(tvsnap_home: Path) -> Iterator[LocalBackend]:
    """A local backend of an owner of its own."""
    owner = Owner(tvsnap_home)
    backend = LocalBackend(tvsnap_home, owner.id)
    yield backend
    backend.close()
    owner.close()


@pytest.fixture
def lab(backend: LocalBackend, terminal_image: Image) -> Iterator[Lab]:
    """Starts, checkpoints and forks sandboxes of the local backend, and removes them all at the end of the test."""
    laboratory = Lab(backend, terminal_image)
    yield laboratory
    laboratory.close()


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Path:
    """A fresh data directory with the terminal image."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    return tmp_path
