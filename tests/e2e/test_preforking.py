"""Sandboxes made ahead of time on the real backend: used, not to be told from others, and gone in the end."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.control_groups import control_groups
from tests.fakes.caches import eventually
from tvsnap import Budget, Cache
from tvsnap.images import Image

TOGETHER = 8
NUMBERS = itertools.count()
MAKE = "mkdir -p /tmp/d; cd /tmp/d; echo made > f; name=value; trap 'true' USR1"
LOOK = "pwd; cat f; echo $name; trap; echo /proc/[0-9]*; ls -la --time-style=+ /tmp /app; echo $$ $?"


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Path:
    """A fresh data directory with the terminal image."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    return tmp_path


def open_cache(home: Path, prefork: int) -> Cache:
    return Cache(home, policy="eager", prefork=prefork, budget=Budget(parked=0))


def roll_together(cache: Cache, *commands: str) -> list[str]:
    """Makes rollouts side by side that execute the last of the commands, each one of its own; returns what it saw."""

    def roll(number: int) -> str:
        with cache.rollout("terminal") as rollout:
            for command in commands[:-1]:
                rollout.call("bash", {"command": command})
            return rollout.call("bash", {"command": f"{commands[-1]}; : {number}"}).output

    with ThreadPoolExecutor(TOGETHER) as threads:
        return list(threads.map(roll, itertools.islice(NUMBERS, TOGETHER)))


@pytest.mark.parametrize("commands", [(LOOK,), (MAKE, LOOK)], ids=["root", "state"])
def test_those_that_come_together_find_sandboxes_ready_and_see_what_others_see(
    home: Path, commands: tuple[str, ...]
) -> None:
    with open_cache(home, 0) as cache:
        expected = set(roll_together(cache, *commands))
        assert len(expected) == 1
    with open_cache(home, TOGETHER) as cache:
        owner = cache.owner
        for burst in range(4):
            before = cache.stats().arrivals["ready"]
            assert set(roll_together(cache, *commands)) == expected
            found = cache.stats().arrivals["ready"] - before
            # In doubt, a sandbox is taken for changed, as when it was looked at while its shell was still answering.
            assert burst == 0 or found >= TOGETHER - 2
            eventually(lambda: cache.pool.ready == TOGETHER, 60)
    alive = [path for path in Path("/proc").glob("[0-9]*/cgroup") if owner in _read(path)]
    assert not alive
    assert control_groups(f"*{owner}*") == []


WAITS = "mkfifo /tmp/ask; (read line < /tmp/ask; echo $line > /tmp/told) &"
RINGS = "sleep 1000 &"


@pytest.mark.parametrize(("begun", "staged"), [(WAITS, True), (RINGS, False)], ids=["waits", "has a timer"])
def test_a_fork_stands_still_only_where_time_does_not_count(home: Path, begun: str, staged: bool) -> None:
    """Clocks and timers go on while it stands: a rollout that has not waited would find that they have rung."""
    with open_cache(home, TOGETHER) as cache:
        for _ in range(2):
            roll_together(cache, begun, "pgrep -c sleep; jobs")
        if staged:
            eventually(lambda: forks_ready(cache) > 0, 60)
            before = cache.stats().arrivals["ready"]
            roll_together(cache, begun, "echo hello > /tmp/ask; wait; cat /tmp/told")
            assert cache.stats().arrivals["ready"] > before
        else:
            time.sleep(2.0)
            assert forks_ready(cache) == 0


def forks_ready(cache: Cache) -> int:
    return sum(count for origin, count in cache.pool.ready_by_origin().items() if origin.snapshot)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""
