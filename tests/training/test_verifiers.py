"""verifiers itself on tvsnap's plug-in, by a Python that has it: it wants an older `openai` than the other trainers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tvsnap.images import Image

CHECKS = Path(__file__).parent / "verifiers" / "check_verifiers.py"


def test_checks_pass(terminal_image: Image, tvsnap_home: Path, tmp_path: Path) -> None:
    python = os.environ.get("TVSNAP_TEST_VERIFIERS")
    if not python:
        pytest.skip("TVSNAP_TEST_VERIFIERS names no Python that has verifiers, pytest and what tvsnap needs")
    options: list[str | Path] = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--noconftest",
        "-c",
        os.devnull,
        "--basetemp",
        tmp_path / "checks",
    ]
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "TVSNAP_HOME": str(tvsnap_home), "PYTHONPATH": root}
    command: list[str | Path] = [python, "-m", "pytest", *options, CHECKS]
    ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
