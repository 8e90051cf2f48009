"""Rollouts that are never closed: what they hold comes back once nobody holds them any more."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes import inside
from tests.fakes.backend import FakeBackend
from tests.fakes.caches import BUSY, bash, eventually, open_cache, run, settle
from tvsnap import Budget
from tvsnap.model.errors import InfrastructureError
from tvsnap.rollout import Rollout


def look_inside(rollout: Rollout) -> None:
    rollout.sandbox().exec("echo graded > f", timeout=20)


def go_private(rollout: Rollout) -> None:
    assert bash(rollout, BUSY, 0.1).timed_out
    assert rollout.private


def stay(rollout: Rollout) -> None:
    bash(rollout, "x=1")
    settle(rollout)


@pytest.mark.parametrize("use", [look_inside, go_private, stay])
def test_what_a_dropped_rollout_held_is_free_for_others(tmp_path: Path, use: Callable[[Rollout], None]) -> None:
    with open_cache(tmp_path, budget=Budget(sandboxes=1, parked=0)) as cache:
        for _ in range(3):
            rollout = cache.rollout("terminal")
            use(rollout)
            settle(rollout)
            del rollout
            gc.collect()
        assert run(cache, "y=2; echo $y")[0].output == "2\n"  # there is room for its sandbox
        eventually(lambda: cache.pool.live == 0)
        assert len(inside.rollouts(cache)) == 0
        assert all(record.finished for record in cache.graph.rollouts())


def test_nothing_refers_to_what_was_closed(tmp_path: Path) -> None:
    """A trainer grades some thousands of rollouts: none of them, nor an earlier cache, stays in memory."""
    kept: list[weakref.ref[object]] = []
    with open_cache(tmp_path) as cache:
        kept.append(weakref.ref(cache))
        for _ in range(2):
            with cache.rollout("terminal") as rollout:
                bash(rollout, "echo 1 > f")
                assert rollout.grade("echo 1").reward == 1.0
                kept.append(weakref.ref(rollout._engine))
            del rollout
        gc.collect()
        eventually(lambda: gc.collect() >= 0 and [one() for one in kept[1:]] == [None, None])
    del cache
    eventually(lambda: gc.collect() >= 0 and kept[0]() is None)


def test_one_that_is_dropped_in_a_failing_call_ends_too(tmp_path: Path) -> None:
    def fail(sandbox: object, subject: str) -> None:
        raise InfrastructureError("no")

    with open_cache(tmp_path, FakeBackend(hooks={"run": fail})) as cache:
        with pytest.raises(InfrastructureError):
            bash(cache.rollout("terminal"), "x=1")
        gc.collect()
        cache.rollout("terminal").close()
        assert all(record.finished for record in cache.graph.rollouts())
        eventually(lambda: cache.pool.live == 0)


def test_closing_the_cache_ends_dropped_rollouts(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        bash(cache.rollout("terminal"), "x=1")
    with open_cache(tmp_path) as cache:
        assert all(record.finished for record in cache.graph.rollouts())
