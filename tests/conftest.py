"""Fixtures that all tests share: a data directory and the terminal image, made once a session."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.backend import FakeBackend, fake_image
from tvsnap.errors import MachineLacks
from tvsnap.images import Image

MARKERS = (
    "needs_programs: runs real programs of the terminal image; not generated for backends without (the fake)",
    "needs_processes: needs snapshots that capture live processes; skipped where the machine has no such",
)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    # Where the suite was started in the background, interrupts are ignored, and would be in all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tvsnap_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory for the session; `TVSNAP_TEST_HOME` names one to keep, which spares building images."""
    kept = os.environ.get("TVSNAP_TEST_HOME")
    if kept:
        path = Path(kept).absolute()
        path.mkdir(parents=True, exist_ok=True)
        yield path
        return
    path = tmp_path_factory.mktemp("tvsnap-home")
    yield path
    shutil.rmtree(path, ignore_errors=True)  # pytest would keep three, with an image each


@pytest.fixture(scope="session")
def terminal_image(tvsnap_home: Path) -> Image:
    """The image `terminal`, built in the session's data directory."""
    from tvsnap.images import ImageStore

    try:
        return ImageStore(tvsnap_home).build(Path(__file__).parents[1] / "images" / "terminal")
    except MachineLacks as lack:
        pytest.skip(str(lack))


@pytest.fixture
def fake_backend() -> Iterator[FakeBackend]:
    """A fresh fake backend."""
    backend = FakeBackend()
    yield backend
    backend.close()


@pytest.fixture
def fake_terminal() -> Image:
    """An image that the fake backend can start."""
    return fake_image()
