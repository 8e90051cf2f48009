"""Other people's programs, installed beside tvsnap, and what is run by a Python that has these."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PASSED = re.compile(r"^\d+ passed(, \d+ xfailed)?(, \d+ warnings?)? in", re.MULTILINE)


def programs_of(venv: str, script: str, lack: str) -> Path:
    """Returns the folder of programs in an environment that a script makes; skips the test for a `lack` without one."""
    subprocess.run([ROOT / "scripts" / script], check=True)
    programs = ROOT / venv / "bin"
    if not programs.is_dir():
        pytest.skip(lack)
    return programs


def run_checks(programs: Path, checks: Path, folder: Path, **variables: str) -> None:
    """Runs a file of checks that need PyTorch, which must pass, in a folder of its own."""
    options: list[str | Path] = ["-q", "-c", checks.parent / "pytest.ini", "--basetemp", folder / "checks"]
    ran = subprocess.run(
        [programs / "python", "-m", "pytest", *options, checks],
        env={**os.environ, **variables, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert PASSED.search(ran.stdout), ran.stdout
