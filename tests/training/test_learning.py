"""What needs PyTorch or a trainer, run by a Python that has these."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks
from tests.hosted import programs_of, run_checks
from tests.server.conftest import Server, start
from tvsnap.images import Image

HOSTED = Path(__file__).parent / "hosted"
CHECKS = sorted(path.name for path in HOSTED.glob("check_*.py"))


@pytest.fixture(scope="session")
def training_programs() -> Path:
    """The folder of programs of a Python that has PyTorch, PEFT and tvsnap."""
    return programs_of(
        ".venv-train", "install_training.sh", "training needs Python 3.11 or newer, and .venv has an older one"
    )


@pytest.mark.parametrize("block", [each for each in blocks("python") if each.mark == "training"], ids=str)
def test_examples_of_the_guide(block: Block, training_programs: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [training_programs / "python", "-c", block.text]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def served(terminal_image: Image, tvsnap_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the images of the session."""
    home = tmp_path_factory.mktemp("served")
    (home / "images").symlink_to((tvsnap_home / "images").resolve())
    started = start(home, "--policy", "eager")
    yield started
    assert started.stop() == 0


@pytest.mark.parametrize("name", CHECKS)
def test_checks_pass(name: str, training_programs: Path, tvsnap_home: Path, served: Server, tmp_path: Path) -> None:
    own = {"TVSNAP_HOME": str(tvsnap_home), "TVSNAP_TEST_URL": served.url}
    run_checks(training_programs, HOSTED / name, tmp_path, **own)
