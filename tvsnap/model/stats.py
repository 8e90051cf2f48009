"""Statistics of a cache, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from tvsnap.model.display import Displayed
from tvsnap.model.reasons import Kind

Latency = Literal["hit", "coalesced", "executed", "fork", "start", "checkpoint"]
Way = Literal["parked", "ready", "forked", "started", "replayed"]
"""The ways in which a sandbox in a state is acquired."""
WAYS: tuple[Way, ...] = ("parked", "ready", "forked", "started", "replayed")
LATENCIES: tuple[Latency, ...] = ("hit", "coalesced", "executed", "fork", "start", "checkpoint")
DEEPEST = 99  # later calls of a rollout are counted with this one


SAVED = "saved_cost."
"""The prefix of counters of saved costs; the unit follows."""


@dataclass(frozen=True)
class Stats(Displayed):
    """Statistics of one cache, in one process, since it was opened. Times are in seconds.

    Attributes:
        rollouts: rollouts begun.
        hits: calls answered from the graph.
        coalesced: calls answered by waiting for another rollout that was executing the same.
        executed: calls executed.
        reasons: the numbers of these by the kind of the reason; see `tvsnap.model.reasons`.
        prefix_hits: executed calls for which there was a parked or ready sandbox, or a snapshot, of exactly their
            state.
        arrivals: executed calls that needed another sandbox than the rollout's own, by how it was obtained: `parked`,
            `ready`, `forked`, `started` or `replayed`.
        replayed: recorded calls executed again to rebuild a state.
        starts: sandboxes started from an image.
        forks: sandboxes forked from a snapshot.
        preforks: sandboxes forked or started ahead of time, which are not among `starts` and `forks`.
        preforks_used: preforked sandboxes that a rollout took.
        checkpoints: snapshots taken.
        tool_time_s: durations of the calls executed.
        answered_s: recorded durations of the calls answered without executing them.
        hit_time_s: time spent on hits.
        waited_s: time spent waiting for another rollout's result.
        start_time_s: time spent on starting sandboxes.
        fork_time_s: time spent on forks.
        replay_time_s: time spent on replays.
        checkpoint_time_s: time spent on checkpoints, which are taken while the caller thinks.
        prefork_time_s: time spent on forks and starts ahead of time, for which nobody waited.
        aside_time_s: time spent on sandboxes outside of rollouts (`Cache.materialise`, `Cache.fork`, audits, and
            people's): that of their forks, starts, replays and checkpoints, which is in no time above.
        audited: answers of the graph that were audited: made again in the background. Their forks, starts and replays
            are included in the other numbers, and their time in `aside_time_s`.
        audit_differences: recorded calls that turned out to return something else.
        evicted: snapshots that were deleted to make room for others.
        evicted_bytes: bytes that these took on disk.
        snapshots_refused: snapshots that were not taken for lack of room.
        sandboxes: sandboxes alive now.
        parked: live sandboxes that are parked.
        ready: live sandboxes that were made ahead of time and not used yet.
        budget: (used, limit or None) by the attributes of `Budget`: `disk` and `snapshots` of all processes, `memory`
            and `sandboxes` of this one; the memory of sandboxes is measured between calls, and not at all without such
            a limit.
        trouble: the reason why no snapshots are being taken at present; None if they are.
        latency_s: the latest durations by kind (`hit`, `coalesced`, `executed`, `fork`, `start`, `checkpoint`); of
            calls as their callers saw them.
        by_depth: (calls, calls answered) by the call's place in its rollout, from 1 on.
        saved_cost: the cost beyond time of the executions of answered calls, by unit, as {"usd": 0.25}.
        totals: counters of all processes that ever used this data directory, named as the attributes here; written when
            a rollout ends.
    """

    rollouts: int = 0
    hits: int = 0
    coalesced: int = 0
    executed: int = 0
    reasons: Mapping[Kind, int] = field(default_factory=dict)
    prefix_hits: int = 0
    arrivals: Mapping[Way, int] = field(default_factory=dict)
    replayed: int = 0
    starts: int = 0
    forks: int = 0
    preforks: int = 0
    preforks_used: int = 0
    checkpoints: int = 0
    tool_time_s: float = 0.0
    answered_s: float = 0.0
    hit_time_s: float = 0.0
    waited_s: float = 0.0
    start_time_s: float = 0.0
    fork_time_s: float = 0.0
    replay_time_s: float = 0.0
    checkpoint_time_s: float = 0.0
    prefork_time_s: float = 0.0
    aside_time_s: float = 0.0
    audited: int = 0
    audit_differences: int = 0
    evicted: int = 0
    evicted_bytes: int = 0
    snapshots_refused: int = 0
    sandboxes: int = 0
    parked: int = 0
    ready: int = 0
    budget: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    trouble: str | None = None
    latency_s: Mapping[Latency, tuple[float, ...]] = field(default_factory=dict)
    by_depth: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    saved_cost: Mapping[str, float] = field(default_factory=dict)
    totals: Mapping[str, float] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """Calls made."""
        return self.hits + self.coalesced + self.executed

    @property
    def hit_rate(self) -> float:
        """The part of the calls that were answered without executing them, 0 to 1."""
        return (self.hits + self.coalesced) / self.calls if self.calls else 0.0

    @property
    def preforks_wasted(self) -> int:
        """Sandboxes that were made ahead of time and closed without being used."""
        return max(0, self.preforks - self.preforks_used - self.ready)

    @property
    def saved_s(self) -> float:
        """Net time saved: the durations of answered calls, minus those of answers, forks, replays and checkpoints."""
        spent = self.hit_time_s + self.waited_s + self.fork_time_s + self.replay_time_s + self.checkpoint_time_s
        return self.answered_s - spent

    def __add__(self, other: Stats) -> Stats:
        """Returns the sum for two caches that share nothing, such as those of two hosts."""
        both = {one.name: _sum(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)}
        return Stats(**{**both, "trouble": self.trouble or other.trouble})

    def since(self, earlier: Stats) -> Stats:
        """Returns the difference from an earlier moment, without single latencies and figures by depth.

        Args:
            earlier: the statistics at that moment.
        """
        less: dict[str, Any] = {"latency_s": {}, "by_depth": {}}
        for one in fields(self):
            new, old = getattr(self, one.name), getattr(earlier, one.name)
            if one.name in less or one.name in ("sandboxes", "parked", "ready", "budget", "trouble", "totals"):
                continue
            if isinstance(new, Mapping):
                less[one.name] = {name: value - old.get(name, 0) for name, value in new.items()}
            else:
                less[one.name] = new - old
        return replace(self, **less)


def _sum(one: Any, other: Any) -> Any:
    """Returns the sum of figures of `Stats`, member by member.

    Samples are put together; if one has no limit, both together have none.
    """
    if isinstance(one, Mapping):
        both = {name: _sum(one[name], other[name]) for name in one.keys() & other.keys()}
        return {**one, **other, **both}
    if isinstance(one, tuple):  # (used, limit), (calls, answered), or samples
        return tuple(map(_sum, one, other)) if len(one) == len(other) == 2 else one + other
    return None if one is None or other is None else one + other
