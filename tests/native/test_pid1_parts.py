"""Parts of PID 1 by themselves: the shell's modes, and whom the end of an action meets."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from tests.native.building import HERE, SANITIZERS, build, sources
from tests.native.header import read_header

MODES = read_header().enums["shell_mode"]
FOLLOWS = {
    "gone": {"starting"},
    "starting": {"idle", "gone"},
    "idle": {"running", "prompt", "starting", "gone"},
    "running": {"idle", "gone"},
    "prompt": {"idle", "gone"},
}
NAMES = {name: int(MODES[f"SHELL_{name.upper()}"]) for name in FOLLOWS}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parts")


def build_part(directory: Path, name: str) -> Path:
    """Compiles a program with all of PID 1 but its `main`."""
    others = [file for file in sources("init") if file.name != "init.c"]
    return build(directory / name, HERE / f"{name}.c", *others, flags=SANITIZERS)


@pytest.fixture(scope="module")
def shell_modes(directory: Path) -> Path:
    return build_part(directory, "shell_modes")


def test_the_table_of_modes(shell_modes: Path) -> None:
    said = subprocess.run([shell_modes, "table"], capture_output=True, text=True, check=True).stdout
    assert set(said.splitlines()) == {f"{start} {end}" for start, ends in FOLLOWS.items() for end in ends}


@pytest.mark.parametrize("start", FOLLOWS)
@pytest.mark.parametrize("end", FOLLOWS)
def test_a_mode_that_cannot_follow_ends_the_call_and_is_told(shell_modes: Path, start: str, end: str) -> None:
    command = [str(shell_modes), "step", str(NAMES[start]), str(NAMES[end])]
    run = subprocess.run(command, capture_output=True, check=True)
    *complaints, left = run.stderr.decode().splitlines()
    if end in FOLLOWS[start]:
        assert (left, complaints, run.stdout) == (f"done {end} 1 0", [], b"")
        return
    why = f"the shell, which was {start}, cannot be {end} next"
    assert left == f"refused {start} 0 1"
    assert complaints == [f"tvsnap-init: {why}"]
    assert run.stdout == struct.pack("<I", len(why) + 1) + b"E" + why.encode()


def test_a_number_that_was_given_again_is_another_process(directory: Path) -> None:
    program = build_part(directory, "reused_numbers")
    enter = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child", str(program)]
    run = subprocess.run(enter, capture_output=True, text=True, check=False, timeout=60)
    assert (run.stdout, run.stderr) == ("same lives ended ended\n", "")
