"""What needs PyTorch or a trainer, run by a Python that has these."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks
from tests.server.conftest import Server, start
from tvsnap.images import Image

HOSTED = Path(__file__).parent / "hosted"
ROOT = Path(__file__).parents[2]
CHECKS = sorted(path.name for path in HOSTED.glob("check_*.py"))


@pytest.fixture(scope="session")
def training_programs() -> Path:
    """The folder of programs of a Python that has PyTorch, PEFT and tvsnap."""
    subprocess.run([ROOT / "scripts/install_training.sh"], check=True)
    programs = ROOT / ".venv-train/bin"
    if not programs.is_dir():
        pytest.skip("training needs Python 3.11 or newer, and .venv has an older one")
    return programs


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
    command: list[str | Path] = [training_programs / "python", "-m", "pytest", "-q", "-c", HOSTED / "pytest.ini"]
    own = {"TVSNAP_HOME": str(tvsnap_home), "TVSNAP_TEST_URL": served.url}
    env = {**os.environ, **own, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"}
    ran = subprocess.run(
        [*command, "--basetemp", tmp_path / "checks", HOSTED / name],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^\d+ passed(, \d+ warnings?)? in", ran.stdout, re.MULTILINE), ran.stdout
