"""Calls that are executed: what a caller waits for, and what is hidden while it thinks."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.figures import Figure, figure
from benchmarks.workspace import Workspace
from tvsnap.cache import Cache
from tvsnap.rollout import Rollout

CALLS = 300
THINKING = 0.1  # seconds
THOUGHTS = 60


def run(space: Workspace) -> Iterator[Figure]:
    """Measures uncached calls, and the waiting that checkpoints cause."""
    space.tell("calls that are executed")
    yield from _executed(space)
    space.tell("checkpoints while a caller thinks")
    yield from _waiting(space)


def _timed(rollout: Rollout, command: str) -> float:
    began = time.perf_counter()
    result = rollout.call("bash", {"command": command})
    seconds = time.perf_counter() - began
    assert (result.exit_code, result.source) == (0, "executed"), result
    return seconds


def _executed(space: Workspace) -> Iterator[Figure]:
    """`true` through a rollout: each call is one that the graph does not know."""
    with Cache(space.home, images=space.images, use_cache=False) as cache, cache.rollout(space.image) as rollout:
        _timed(rollout, "true")
        plain = [_timed(rollout, "true") for _ in range(space.samples(CALLS))]
    yield figure("call_uncached", "`true` through a rollout, cache off", plain, "ms", at_most=2)
    with space.cache() as cache, cache.rollout(space.image, salt="executed") as rollout:
        _timed(rollout, "true; : first")
        paused = []
        for number in range(space.samples(CALLS // 3)):
            time.sleep(0.02)
            paused.append(_timed(rollout, f"true; : {number}"))
        back_to_back = [_timed(rollout, f"true; : again {number}") for number in range(space.samples(CALLS))]
    yield figure("call_missed", "`true` that misses, caller thinks 20 ms", paused, "ms", at_most=2)
    yield figure("call_missed_at_once", "... without a pause: observed and recorded", back_to_back, "ms")


def _waiting(space: Workspace) -> Iterator[Figure]:
    """Calls that change a file, 100 ms apart: with a checkpoint after each, and without any."""
    with space.cache("eager") as eager, space.cache("never") as never:
        pair = [cache.rollout(space.image, salt=cache.owner) for cache in (eager, never)]
        for rollout in pair:
            _timed(rollout, "true; echo 0 > count")
        seconds: list[list[float]] = [[], []]
        for number in range(space.samples(THOUGHTS)):
            for rollout, samples in zip(pair, seconds, strict=True):
                time.sleep(THINKING)
                samples.append(_timed(rollout, f"echo {number} > count"))
        taken = eager.stats().checkpoints
        assert taken >= space.samples(THOUGHTS), taken
    yield figure("think_eager", "call 100 ms after one that is checkpointed", seconds[0], "ms")
    yield figure("think_never", "... after one that is not", seconds[1], "ms")
    waiting = [with_it - without for with_it, without in zip(*map(sorted, seconds), strict=True)]
    yield figure("waiting", "waiting caused by checkpoints", waiting, "ms", at_most=1)
