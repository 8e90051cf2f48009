"""Hits through rollouts, from a graph of 100,000 edges, and how they grow with the graph."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence

from benchmarks import graph_scale
from benchmarks.figures import Figure, figure
from benchmarks.graph_scale import Growth
from benchmarks.workspace import IMAGE, Workspace
from tvsnap import AsyncCache
from tvsnap.cache import Cache
from tvsnap.model.calls import ToolCall

EDGES = 100_000
PATHS = 500
SIZES = (1_000, 10_000, 100_000, 1_000_000)
GROWN = 1.5
"""How many times a hit in the smallest graph one in the largest may cost: processor caches miss more."""

Path = tuple[str, Sequence[ToolCall]]
"""A salt, which names a root, and calls from there on."""


class RealGrowth(Growth):
    """Made-up rollouts below roots at which real rollouts begin."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache.graph)
        self._cache = cache
        self._salts: dict[str, str] = {}

    def _new_root(self) -> str:
        salt = f"hits-{self.edges}"
        with self._cache.rollout(IMAGE, salt=salt) as rollout:
            self._salts[rollout.root] = salt
            return rollout.root

    def paths(self, count: int) -> list[Path]:
        """Returns the ways from roots to calls drawn at random."""
        graph = self._cache.graph
        drawn = random.Random(count).choices(self.sample, k=count)
        return [
            (self._salts[graph.state(state).root], [*(edge.call for edge in graph.lineage(state)), call])
            for state, call in drawn
        ]


def run(space: Workspace) -> Iterator[Figure]:
    """Measures hits of both kinds of rollout."""
    space.tell(f"hits with {EDGES:,} edges in the graph")
    with space.cache() as cache:
        growth = RealGrowth(cache)
        growth.grow(EDGES)
        cache.graph.flush()
        paths = growth.paths(space.samples(PATHS))
        seconds = [item for path in paths for item in _walk(cache, path)]
    yield figure("hit", f"hit, {EDGES // 1000}k edges, `Rollout.call`", seconds, "µs", at_most=100)
    awaited = asyncio.run(_awaited(space, paths))
    yield figure("hit_async", "hit, `AsyncRollout.call`", awaited, "µs", at_most=100)


def _walk(cache: Cache, path: Path) -> list[float]:
    """Makes the calls of a path in a rollout; returns the seconds that each hit took."""
    salt, calls = path
    seconds = []
    with cache.rollout(IMAGE, salt=salt) as rollout:
        for call in calls:
            began = time.perf_counter()
            result = rollout.call(call.name, call.arguments)
            seconds.append(time.perf_counter() - began)
            assert result.source == "hit", result
    return seconds


async def _awaited(space: Workspace, paths: Sequence[Path]) -> list[float]:
    seconds = []
    async with AsyncCache(space.home, images=space.images) as cache:
        for salt, calls in paths:
            async with cache.rollout(IMAGE, salt=salt) as rollout:
                for call in calls:
                    began = time.perf_counter()
                    result = await rollout.call(call.name, call.arguments)
                    seconds.append(time.perf_counter() - began)
                    assert result.source == "hit", result
    return seconds


def scale(space: Workspace) -> Iterator[Figure]:
    """Measures lookups in graphs of growing size."""
    sizes = [size for size in SIZES if size < 1_000_000 or not space.quick]
    space.tell(f"graphs of up to {sizes[-1]:,} edges")
    rows = graph_scale.run(sizes)["sizes"]
    for row in rows:
        hit = row["hit_us"]
        yield Figure(
            f"graph_hit_{row['edges']}",
            f"lookup, {row['edges']:,} edges",
            "µs",
            hit["p50"],
            hit["p90"],
            hit["p99"],
            graph_scale.LOOKUPS,
        )
    growth = rows[-1]["hit_us"]["p50"] / rows[0]["hit_us"]["p50"]
    yield figure("graph_growth", f"{sizes[-1]:,} edges against {sizes[0]:,}", [growth], "times", at_most=GROWN)
