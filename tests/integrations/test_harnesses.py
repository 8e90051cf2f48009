"""Harnesses themselves on tvsnap's plug-ins: their own code with scripted models, run by a Python that has them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks
from tests.hosted import PASSED
from tests.integrations.conftest import PLAIN_USER
from tests.server.conftest import Server

HOSTED = Path(__file__).parent / "hosted"
CHECKS = sorted(path.name for path in HOSTED.glob("check_*.py"))
EXAMPLES = [block for block in blocks("python") if block.mark == "harness"]


def run(command: Sequence[str | Path], folder: Path, **variables: str) -> str:
    """Runs a program of the harnesses, which must succeed, in a folder of its own; returns what it prints."""
    own = {"HOME": str(folder), "MSWEA_GLOBAL_CONFIG_DIR": str(folder), **variables}
    others = {name: value for name, value in os.environ.items() if not name.startswith(("TVSNAP_", "PYTHONPATH"))}
    env = {**others, **own, "MSWEA_SILENT_STARTUP": "1"}
    ran = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def pytest_of(programs: Path, folder: Path, name: str) -> list[str | Path]:
    """Returns the command line that runs one file of checks, whose temporary files are in a folder."""
    options: list[str | Path] = ["-q", "-c", HOSTED / "pytest.ini", "--basetemp", folder / "checks"]
    return [programs / "python", "-m", "pytest", *options, HOSTED / name]


@pytest.mark.usefixtures("terminal_image")
@pytest.mark.parametrize("name", CHECKS)
def test_checks_pass(name: str, harness_programs: Path, tvsnap_home: Path, tmp_path: Path) -> None:
    said = run(pytest_of(harness_programs, tmp_path, name), tmp_path, TVSNAP_HOME=str(tvsnap_home))
    assert PASSED.search(said), said


@pytest.mark.parametrize("name", ["with_server.py", "check_inspect_contract.py"])
def test_checks_pass_with_a_server_and_without_root(
    name: str, harness_programs: Path, server: Server, tmp_path: Path
) -> None:
    said = run([*PLAIN_USER, *pytest_of(harness_programs, tmp_path, name)], tmp_path, TVSNAP_URL=server.url)
    assert PASSED.search(said), said


@pytest.mark.usefixtures("terminal_image")
@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_examples_of_the_guide(block: Block, harness_programs: Path, tvsnap_home: Path, tmp_path: Path) -> None:
    run([harness_programs / "python", "-c", block.text], tmp_path, TVSNAP_HOME=str(tvsnap_home))
