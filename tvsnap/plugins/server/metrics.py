"""Figures for Prometheus: what the server counts itself, and what the cache has counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tvsnap.model.stats import Stats

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0)
_COUNTED = {
    "rollouts": "Rollouts begun.",
    "replayed": "Recorded calls executed again to rebuild a state.",
    "starts": "Sandboxes started from an image.",
    "forks": "Sandboxes forked from a snapshot.",
    "checkpoints": "Snapshots taken.",
    "evicted": "Snapshots deleted to make room.",
    "snapshots_refused": "Snapshots not taken for want of room.",
    "audited": "Answers that were made again in the background.",
    "audit_differences": "Audited answers that turned out to differ.",
}
_GAUGES = {
    "sandboxes": "Sandboxes alive.",
    "parked": "Sandboxes that nobody uses any more.",
    "ready": "Sandboxes made ahead of time.",
}
_USED = {
    "disk": ("tvsnap_snapshot_bytes", "Bytes that snapshots take on disk."),
    "snapshots": ("tvsnap_snapshots", "Snapshots kept."),
    "memory": ("tvsnap_sandbox_memory_bytes", "Memory of the sandboxes in bytes, as far as they were weighed."),
}


class Metrics:
    """The counts of a server. It is used on one event loop, and read by any thread."""

    def __init__(self, stats: Callable[[], Stats], counts: Callable[[], Mapping[str, int]]) -> None:
        """
        Args:
            stats: returns the cache's counts.
            counts: returns the numbers of rollouts and sandboxes that clients hold, by these words.
        """
        self._registry = CollectorRegistry()
        self._registry.register(_OfCache(stats, counts))
        calls = Histogram(
            "tvsnap_call_seconds",
            "How long calls took at the server, by what answered them.",
            ["source"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._calls = {source: calls.labels(source) for source in ("hit", "coalesced", "executed")}
        self._refusals = Counter(
            "tvsnap_refusals", "Requests that ended with an error, by its class.", ["type"], registry=self._registry
        )
        self._ended = Counter(
            "tvsnap_ended_idle",
            "Rollouts and sandboxes ended after their time to live.",
            ["what"],
            registry=self._registry,
        )

    def call(self, source: str, seconds: float) -> None:
        """Counts a call.

        Args:
            source: the source of its answer.
            seconds: seconds that it took.
        """
        self._calls[source].observe(seconds)

    def refuse(self, error: BaseException) -> None:
        """Counts a request that ended with an error."""
        self._refusals.labels(type(error).__name__).inc()

    def ended(self, what: str) -> None:
        """Counts a rollout or a sandbox that was ended after its time to live."""
        self._ended.labels(what).inc()

    def text(self) -> bytes:
        """Returns all figures in the text format of Prometheus. It reads the graph, which blocks."""
        return generate_latest(self._registry)


class _OfCache(Collector):
    def __init__(self, stats: Callable[[], Stats], counts: Callable[[], Mapping[str, int]]) -> None:
        self._stats = stats
        self._counts = counts

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        for name, words in _COUNTED.items():
            yield CounterMetricFamily(f"tvsnap_{name}", words, value=getattr(stats, name))
        for name, words in _GAUGES.items():
            yield GaugeMetricFamily(f"tvsnap_{name}", words, value=getattr(stats, name))
        for name, (metric, words) in _USED.items():
            if name in stats.budget:
                yield GaugeMetricFamily(metric, words, value=stats.budget[name][0])
        gauge = GaugeMetricFamily("tvsnap_held", "What clients hold open.", labels=["what"])
        for what, count in self._counts().items():
            gauge.add_metric([what], count)
        yield gauge
        yield GaugeMetricFamily(
            "tvsnap_trouble", "1 while no snapshots are taken.", value=float(stats.trouble is not None)
        )
