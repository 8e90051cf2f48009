"""More than a hundred rollouts of mixed commands, side by side: afterwards there is no more of anything than before.

`make soak` makes thousands, and asks for throughput too.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.soak import Soak, ceilings, open_cache
from benchmarks.soak_gauges import Gauges
from benchmarks.soak_report import Window, judge, tenths
from tests.fakes.caches import eventually
from tvsnap import Cache
from tvsnap.images import Image, ImageStore
from tvsnap.model.limits import MIB
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.local.sandbox import LocalSandbox
from tvsnap.types import Stats

ROLLOUTS, EVERY, PARALLEL, VISITS = 120, 10, 8, 2
MEMORY = 32 * MIB
"""Bytes. Caches still fill: it is thousands of rollouts that tell whether memory grows."""
ELSEWHERE = {"throughput", "own memory", "allocated", "blocks", "descriptors"}
"""What so few rollouts say nothing of."""


@pytest.fixture
def home(tmp_path: Path, terminal_image: Image) -> Path:
    """A fresh data directory with the terminal image."""
    (tmp_path / "images").symlink_to(terminal_image.rootfs.parents[1])
    return tmp_path


def test_nothing_grows(home: Path, terminal_image: Image) -> None:
    soaked(home, terminal_image, PARALLEL)  # what a process has once for all caches is there then
    before = descriptors()
    soak, windows, stats = soaked(home, terminal_image, ROLLOUTS)
    assert soak.complaints == []
    verdicts = judge(windows, ceilings(PARALLEL))
    broken = {verdict.name: verdict.by_tenth for verdict in verdicts if verdict.holds is False}
    assert {name: seen for name, seen in broken.items() if name not in ELSEWHERE} == {}
    _, start, *_, end = (part[-1].levels["own memory"] for part in tenths(windows))
    assert end - start < MEMORY
    del soak
    assert descriptors() == before
    # The rollouts did what they are to be a test of.
    assert stats.rollouts == ROLLOUTS
    assert min(stats.hits, stats.coalesced, stats.executed, stats.checkpoints, stats.replayed) > 0
    assert stats.arrivals["forked"] > 0


def soaked(home: Path, image: Image, rollouts: int) -> tuple[Soak, list[Window], Stats]:
    with open_cache(home, ImageStore(home)) as cache:
        soak = Soak(cache, image, PARALLEL, visits=VISITS)
        return soak, list(soak.windows(rollouts, EVERY)), cache.stats()


def descriptors() -> Counter[str]:
    """Returns what this process has open, once all that nobody needs any longer has gone."""
    gc.collect()
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that the list was read by
            found[os.readlink(f"/proc/self/fd/{name}").partition(":")[0]] += 1
    return found


def test_accounts_of_deleted_layers_go_when_the_directory_is_opened(home: Path, terminal_image: Image) -> None:
    """A snapshot holds what a sandbox has written, so the kernel keeps the account of that sandbox's layer."""
    with open_cache(home, ImageStore(home)) as cache:
        with cache.rollout(terminal_image) as rollout:
            rollout.call("bash", {"command": "seq 1 100000 > held"})
            sandbox = rollout.sandbox()
            sandbox.checkpoint()
        assert isinstance(sandbox, LocalSandbox)
        eventually(lambda: not sandbox.layer.exists(), 60)
        for snapshot in cache.backend.snapshots():
            cache.backend.delete_snapshot(snapshot)
        assert Gauges(cache).empty_quota_groups() or not _limiting(cache)
    with open_cache(home, ImageStore(home)) as cache:
        assert Gauges(cache).empty_quota_groups() == []


def _limiting(cache: Cache) -> bool:
    assert isinstance(cache.backend, LocalBackend)
    return cache.backend._storage.limiting
