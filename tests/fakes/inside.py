"""What tests look at inside of a cache: the one place in the tests of its parts that names their private members."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tvsnap.acquisition.pool import SandboxPool
from tvsnap.cache import Cache
from tvsnap.rollout import Rollout


def settle(rollout: Rollout) -> None:
    """Waits until nothing of the rollout's last call is left to be done."""
    freed = rollout._freed
    if freed is not None:
        freed.result(60)


def rollouts(cache: Cache) -> Collection[Any]:
    """Returns the rollouts that are open."""
    return cache._rollouts


def held(cache: Cache) -> Collection[str]:
    """Returns the states whose values no collection of garbage may take."""
    return cache._holds.held()


def calls_under_way(cache: Cache) -> Collection[Any]:
    """Returns the calls that others could wait for."""
    return cache._claims._claims


def snapshot_again(cache: Cache) -> None:
    """Lets snapshots be taken at once after trouble, of which some time is waited otherwise."""
    cache._snapshotter._paused_until = 0.0


def waiting(pool: SandboxPool) -> Collection[Any]:
    """Returns those that wait for a sandbox's turn."""
    return pool._queue


def ready(pool: SandboxPool) -> dict[Any, Any]:
    """Returns the sandboxes made ahead, and from what."""
    return pool._ready


def parked(pool: SandboxPool) -> Collection[Any]:
    """Returns the sandboxes that rollouts have left."""
    return pool._parked


def parked_at(pool: SandboxPool, state: str) -> Any:
    """Returns what is parked at a state."""
    return pool._by_state.get(state)


def preforker(cache: Cache) -> Any:
    """Returns what makes sandboxes ahead."""
    return cache._preforker
