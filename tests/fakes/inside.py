"""What tests look at inside of a cache: the one place in the tests of its parts that names their private members."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tvsnap import Budget
from tvsnap.cache import Cache
from tvsnap.engine.claiming.cancellation import Cancellation
from tvsnap.engine.claiming.claims import Claim, Wanted
from tvsnap.engine.supply.pool import SandboxPool
from tvsnap.graph import Graph, Snapshot
from tvsnap.rollout import Rollout

if TYPE_CHECKING:  # the processes that tests start need neither
    import pytest

    from tvsnap.aio.cache import AsyncCache


def settle(rollout: Rollout) -> None:
    """Waits until nothing of the rollout's last call is left to be done."""
    freed = rollout._engine._own._freed
    if freed is not None:
        freed.result(60)


def rollouts(cache: Cache) -> Collection[Any]:
    """Returns the rollouts that are open."""
    return cache._rollouts.all()


def held(cache: Cache) -> Collection[str]:
    """Returns the states whose values no collection of garbage may take."""
    return cache._services.holds.held()


def calls_under_way(cache: Cache) -> Collection[Any]:
    """Returns the calls that others could wait for."""
    return cache._services.claims._claims


def waits(monkeypatch: pytest.MonkeyPatch) -> list[Claim]:
    """Returns a list to which each call adds the one that it waits for, once it does."""
    found: list[Claim] = []
    wait = Claim.wait

    def noted(claim: Claim, wanted: Wanted, cancellation: Cancellation) -> bool:
        found.append(claim)
        return wait(claim, wanted, cancellation)

    monkeypatch.setattr(Claim, "wait", noted)
    return found


def snapshot_again(cache: Cache) -> None:
    """Lets snapshots be taken at once after trouble, of which some time is waited otherwise."""
    cache._services.snapshotter._pauses.end()


def threads(cache: AsyncCache) -> ThreadPoolExecutor:
    """Returns the threads in which its calls are made."""
    threads: ThreadPoolExecutor = cache._threads
    return threads


def writer(graph: Graph) -> sqlite3.Connection:
    """Returns the connection that writes to a graph's database."""
    return graph._database._writer


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
    return cache._services.preforker


def workers(cache: Cache) -> list[threading.Thread]:
    """Returns the threads that make sandboxes ahead."""
    return preforker(cache)._workers  # type: ignore[no-any-return]


def wake(cache: Cache) -> None:
    """Has those threads look again at what there is to do."""
    maker = preforker(cache)
    with maker._changed:
        maker._wake()


def mistakes(cache: Cache) -> int:
    """Returns how often sandboxes of one origin were made in vain, of the origin where that was most often."""
    return max((count for count, _ in preforker(cache)._mistakes.values()), default=0)


def is_wanted(cache: Cache, rollout: Rollout) -> bool:
    """Whether sandboxes of a rollout's image should be made ahead."""
    return bool(preforker(cache).wants(rollout._engine.recipe.forked_from(None)))


def fix_costs(cache: Cache, patch: pytest.MonkeyPatch, seconds: dict[str, float]) -> None:
    """Sets what operations cost, however long they take."""
    cache._services.costs.add("start", 1.0)
    patch.setattr(cache._services.costs, "_medians", seconds)


def drop(cache: Cache, snapshot: Snapshot) -> None:
    """Lets a snapshot go as one that turned out to be unusable."""
    cache._services.acquirer.drop(snapshot)


def park_nothing(pool: SandboxPool) -> None:
    """Lets no sandbox stay that rollouts leave from now on."""
    pool._budget = Budget(parked=0)


def sandboxes(pool: SandboxPool) -> list[Any]:
    """Returns the sandboxes that live."""
    with pool._lock:
        return [live.sandbox for live in pool._live - pool._closing]
