"""Fixtures that all tests share: a data directory and the terminal image, made once a session."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import engine
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
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


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
    """The image `terminal`, in the session's data directory.

    `TVSNAP_TEST_IMAGES` names a directory in which several sessions, one after another or side by side, build it once.
    """
    from tvsnap.images import ImageStore

    source = Path(__file__).parents[1] / "images" / "terminal"
    shared = os.environ.get("TVSNAP_TEST_IMAGES")
    try:
        if shared and not (tvsnap_home / "images").exists():
            built = ImageStore(Path(shared)).build(source).rootfs.parent
            (tvsnap_home / "images").mkdir()
            for path in (built, built.parent / "recipes"):  # and nothing that another session is just making
                subprocess.run(["cp", "--archive", "--reflink=auto", str(path), f"{tvsnap_home}/images"], check=True)
        return ImageStore(tvsnap_home).build(source)
    except MachineLacks as lack:
        pytest.skip(str(lack))


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[str]:
    """The address of a Docker Engine, to which DOCKER_HOST points for the rest of the session."""
    with engine.docker_engine() as address:
        yield address


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
