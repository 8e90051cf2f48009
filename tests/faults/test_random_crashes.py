"""Processes that share a data directory, and die at random times: the others go on, and no answer is ever wrong."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import eventually
from tests.faults.consistency import assert_consistent
from tests.faults.dying import REPOSITORY
from tvsnap import Cache
from tvsnap.images import Image

WORKERS = 3
DEATHS = 15
SHORTEST, LONGEST = 0.2, 0.9  # seconds between deaths; a worker takes half a second to begin
SOURCES = {"hit", "executed", "coalesced"}
HISTORIES = [
    (
        "cd /tmp; mkdir d; x=1",
        f"sleep 1000 & echo {first} > d/f",
        "cat d/f; jobs -r | wc -l",
        f"x=$((x + {second})); echo $x >> d/f",
        "cat d/f; echo $x; ls; jobs -r | wc -l",
    )
    for first in ("one", "two")
    for second in (1, 2, 3)
]

# All workers meet in the same new part of the graph for a while, and then move on to another.
WORK = """
import json, os, random, sys, time
from pathlib import Path
from tvsnap import Cache
from tvsnap.upkeep.maintenance import plan_gc, run_gc

home, image, seed, histories = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
chance = random.Random(seed)
policy = ("eager", "default")[seed % 2]
with Cache(home, policy=policy, same_ids=True) as cache, open(home / f"answers-{seed}", "w") as answers:
    while not (home / "stop").exists():
        number = chance.randrange(len(histories))
        with cache.rollout(image, salt=str(int(time.time() / 1.5))) as rollout:
            for index, command in enumerate(histories[number]):
                result = rollout.call("bash", {"command": command})
                print(json.dumps([number, index, result.output, result.source]), file=answers, flush=True)
            assert not rollout.private, rollout.private
        if seed % 3 == 0:
            run_gc(home, cache.graph, cache.backend, plan_gc(home, cache.graph, cache.backend, keep_bytes=4 << 20))
"""


class Workers:
    """Starts workers on a data directory, each with a number of its own."""

    def __init__(self, home: Path, image: Image) -> None:
        self.live: list[subprocess.Popen[str]] = []
        self._home = home
        self._image = image
        self._count = 0

    def start(self) -> None:
        arguments = [str(self._home), self._image.name, str(self._count), json.dumps(HISTORIES)]
        self.live.append(
            subprocess.Popen(
                [sys.executable, "-c", WORK, *arguments],
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            )
        )
        self._count += 1

    def kill(self, number: int) -> None:
        worker = self.live.pop(number)
        worker.kill()
        _, complaints = worker.communicate()
        assert complaints == ""

    def answers(self) -> Iterator[tuple[int, int, str, str]]:
        """Yields all answers that were written in full: history, call, output, source."""
        for path in self._home.glob("answers-*"):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    number, index, output, source = json.loads(line)
                    yield number, index, output, source

    def sources(self) -> set[str]:
        return {source for *_, source in self.answers()}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        while self.live:
            worker = self.live.pop()
            worker.kill()
            worker.communicate()


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Path:
    """A fresh data directory with the terminal image."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    return tmp_path


def uncached(home: Path, image: Image) -> list[list[str]]:
    with Cache(home, use_cache=False, same_ids=True) as cache:
        found = []
        for history in HISTORIES:
            with cache.rollout(image.name) as rollout:
                found.append([rollout.call("bash", {"command": command}).output for command in history])
        return found


def test_killed_at_random(home: Path, terminal_image: Image) -> None:
    expected = uncached(home, terminal_image)
    chance = random.Random(5)
    with Workers(home, terminal_image) as workers:
        for _ in range(WORKERS):
            workers.start()
        eventually(lambda: any(workers.answers()), timeout=60)
        for _ in range(DEATHS):
            time.sleep(chance.uniform(SHORTEST, LONGEST))
            workers.kill(chance.randrange(WORKERS))
            workers.start()
        last = len(list(workers.answers()))
        eventually(lambda: len(list(workers.answers())) > last + 20 and workers.sources() == SOURCES, timeout=300)
        (home / "stop").touch()
        for worker in workers.live:
            _, complaints = worker.communicate(timeout=120)
            assert (worker.returncode, complaints) == (0, "")
        for number, index, output, _ in workers.answers():
            assert output == expected[number][index], HISTORIES[number][: index + 1]
    assert_consistent(home, terminal_image)
