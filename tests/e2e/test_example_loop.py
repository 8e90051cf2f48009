"""The programs in `examples`: a GRPO loop that learns and is answered more and more, and a search over states."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
EPOCH = re.compile(r"epoch (\d): reward (\d\.\d\d), +(\d+)% of calls answered, (\d+\.\d) s")
SEARCH = re.compile(r"best reward ([\d.]+): (.+)\n(\d+) calls executed, (\d+) answered, (\d+) states in the search\n")


def run(home: Path, name: str, *options: str) -> str:
    """Returns what an example prints."""
    command = [sys.executable, str(EXAMPLES / name), *options]
    env = {**os.environ, "TVSNAP_HOME": str(home)}
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, timeout=600, check=True).stdout


@pytest.mark.usefixtures("terminal_image")
def test_the_loop_as_printed(tvsnap_home: Path) -> None:
    printed = run(tvsnap_home, "grpo.py", "--think", "0.1")
    epochs = [match.groups() for match in map(EPOCH.fullmatch, printed.splitlines()) if match]
    assert [int(epoch) for epoch, *_ in epochs] == [0, 1, 2], printed
    rewards, answered = [float(reward) for _, reward, *_ in epochs], [int(part) for _, _, part, _ in epochs]
    assert rewards[2] > rewards[0]
    assert answered[0] < answered[2]
    assert answered[2] >= 30, printed


@pytest.mark.usefixtures("terminal_image")
def test_the_search(tvsnap_home: Path) -> None:
    """No call is made again on the way to a state: a round makes at most the commands that are left of a rollout."""
    search = SEARCH.fullmatch(run(tvsnap_home, "tree_search.py", "--rounds", "12"))
    beside = SEARCH.fullmatch(run(tvsnap_home, "tree_search.py", "--best-of", "3"))
    assert search is not None
    assert beside is not None
    made = int(search[3]) + int(search[4])
    assert made < 1 + 12 * 4
    assert int(search[5]) > 6
    assert (int(beside[3]) + int(beside[4]), beside[5]) == (1 + 3 * 4, "1")
