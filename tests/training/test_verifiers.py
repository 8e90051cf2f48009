"""verifiers itself on tvsnap's plug-in, by the Python of the harnesses: it wants an older `openai` than trainers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks
from tests.integrations.conftest import harness_programs

ROOT = Path(__file__).parents[2]
CHECKS = Path(__file__).parent / "verifiers" / "check_verifiers.py"
__all__ = ["harness_programs"]


def run(command: list[str | Path], folder: Path, **variables: str) -> None:
    ran = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.usefixtures("terminal_image")
def test_checks_pass(harness_programs: Path, tvsnap_home: Path, tmp_path: Path) -> None:
    options: list[str | Path] = ["-q", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull]
    options += ["--basetemp", tmp_path / "checks"]
    run([harness_programs / "python", "-m", "pytest", *options, CHECKS], tmp_path, TVSNAP_HOME=str(tvsnap_home))


@pytest.mark.parametrize("block", [each for each in blocks("python") if each.mark == "verifiers"], ids=str)
def test_examples_of_the_guide(block: Block, harness_programs: Path, tmp_path: Path) -> None:
    run([harness_programs / "python", "-c", block.text], tmp_path)
