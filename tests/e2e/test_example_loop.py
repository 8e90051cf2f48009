"""The GRPO loop that README shows: it learns, and from the second epoch on a good part of its calls is answered."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpo.py"
EPOCH = re.compile(r"epoch (\d): reward (\d\.\d\d), +(\d+)% of calls answered, (\d+\.\d) s")


@pytest.mark.usefixtures("terminal_image")
def test_the_loop_as_printed(tvsnap_home: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--think", "0.1"]
    env = {**os.environ, "TVSNAP_HOME": str(tvsnap_home)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=True)
    epochs = [match.groups() for match in map(EPOCH.fullmatch, done.stdout.splitlines()) if match]
    assert [int(epoch) for epoch, *_ in epochs] == [0, 1, 2], done.stdout
    rewards, answered = [float(reward) for _, reward, *_ in epochs], [int(part) for _, _, part, _ in epochs]
    assert rewards[2] > rewards[0]
    assert answered[0] < answered[2]
    assert answered[2] >= 30, done.stdout
