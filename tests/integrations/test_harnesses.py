"""Harnesses themselves on tvsnap's plug-ins: their own code with scripted models, run by a Python that has them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks

HOSTED = Path(__file__).parent / "hosted"
CHECKS = sorted(path.name for path in HOSTED.glob("check_*.py"))
EXAMPLES = [block for block in blocks("python") if block.mark == "harness"]


def run(python: Path, arguments: Sequence[str | Path], home: Path, folder: Path) -> str:
    """Runs the harnesses' Python, which must succeed, in a folder of its own; returns what it prints."""
    own = {"HOME": str(folder), "MSWEA_GLOBAL_CONFIG_DIR": str(folder), "TVSNAP_HOME": str(home)}
    env = {**os.environ, **own, "MSWEA_SILENT_STARTUP": "1"}
    ran = subprocess.run(
        [python, *arguments], env=env, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.usefixtures("terminal_image")
@pytest.mark.parametrize("name", CHECKS)
def test_checks_pass(name: str, harness_programs: Path, tvsnap_home: Path, tmp_path: Path) -> None:
    options: list[str | Path] = ["-q", "-c", HOSTED / "pytest.ini", "--basetemp", tmp_path / "checks"]
    said = run(harness_programs / "python", ["-m", "pytest", *options, HOSTED / name], tvsnap_home, tmp_path)
    assert re.search(r"^\d+ passed(, \d+ xfailed)?(, \d+ warnings?)? in", said, re.MULTILINE), said


@pytest.mark.usefixtures("terminal_image")
@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_examples_of_the_guide(block: Block, harness_programs: Path, tvsnap_home: Path, tmp_path: Path) -> None:
    run(harness_programs / "python", ["-c", block.text], tvsnap_home, tmp_path)
