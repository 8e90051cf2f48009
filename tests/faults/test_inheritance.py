"""What a sandbox has from who started tvsnap is no other for a rollout that is answered by somebody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.dying import REPOSITORY
from tvsnap.images import Image

PROGRAM = """
import sys
from tvsnap import Cache
with Cache(sys.argv[1]) as cache, cache.rollout(sys.argv[2]) as rollout:
    for command in sys.argv[3:]:
        result = rollout.call("bash", {"command": command})
        print(result.source, *result.output.split())
"""
LOOK = "nproc; taskset -p $$ | sed 's/.*: //'; ulimit -n; ulimit -Hn; ulimit -s; ulimit -Hs; ulimit -Hf; uname -m"


def shown(home: Path, image: Image, before: str, *commands: str) -> list[list[str]]:
    """Returns how each call was answered and what it printed, in a process that a shell command makes unusual."""
    program = [sys.executable, "-c", PROGRAM, str(home), image.name, *commands]
    run = subprocess.run(
        ["bash", "-c", f'{before} "$@"', "bash", *program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    return [line.split() for line in run.stdout.splitlines()]


UNUSUAL = ["taskset -c 0", "ulimit -n 1500; exec", "ulimit -s 4096; exec", "ulimit -f 1000000; exec", "setarch -R"]


@pytest.mark.parametrize("before", UNUSUAL)
def test_a_hit_shows_what_the_next_call_shows(tmp_path: Path, terminal_image: Image, before: str) -> None:
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    shown(tmp_path, terminal_image, "exec", LOOK)
    again = shown(tmp_path, terminal_image, "exec", LOOK)
    assert again[0][0] == "hit"
    first, second = shown(tmp_path, terminal_image, before, LOOK, f"{LOOK} # again")
    assert first[1:] == second[1:]
    assert second[0] == "executed"
