"""Counts the calls, forks and other operations of a cache."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping

from tvsnap.engine.events import Answered, Executed
from tvsnap.model.reasons import COUNTED, Kind, of_counters
from tvsnap.model.stats import DEEPEST, LATENCIES, SAVED, WAYS, Latency, Stats

AT_HAND = ("parked", "ready", "forked")  # the ways that need a sandbox or a snapshot of exactly the state
SAMPLES = 65_536  # the latest of each kind are kept


class Meter:
    """Counts for `Stats`. Thread-safe, and cheap enough for a hit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._saved: dict[str, float] = {}
        self._here = threading.local()  # whether this thread makes sandboxes for no rollout
        self._latency: dict[Latency, deque[float]] = {kind: deque(maxlen=SAMPLES) for kind in LATENCIES}

    def add(self, **counts: float) -> None:
        """Adds to counters, named as the attributes of `Stats`."""
        with self._lock:
            for name, value in counts.items():
                self._counts[name] += value

    def answered(self, event: Answered) -> None:
        """Counts a call that was answered, and the costs, beside time, of its execution."""
        result, source, seconds = event.edge.result, event.source, event.seconds
        depth = event.index if event.index < DEEPEST else DEEPEST
        with self._lock:
            counts = self._counts
            if source == "hit":
                counts["hits"] += 1
                counts["hit_time_s"] += seconds
            else:
                counts["coalesced"] += 1
                counts["waited_s"] += seconds
            for unit, amount in result.cost.items():
                counts[f"{SAVED}{unit}"] += amount
            counts["answered_s"] += result.duration
            counts[f"depth.{depth}.calls"] += 1
            counts[f"depth.{depth}.answered"] += 1
            self._latency[source].append(seconds)

    def executed(self, event: Executed) -> None:
        """Counts a call that was executed."""
        way, why = event.way, event.why
        with self._lock:
            counts = self._counts
            counts["executed"] += 1
            counts["prefix_hits"] += way in AT_HAND
            if way is not None:
                counts[f"arrivals.{way}"] += 1
            if why is not None:
                counts[f"{COUNTED}{why.kind}"] += 1
            counts["tool_time_s"] += event.result.duration
            counts[f"depth.{min(event.index, DEEPEST)}.calls"] += 1
            self._latency["executed"].append(event.seconds)

    def reasons(self) -> tuple[int, int, Mapping[Kind, int]]:
        """Returns the number of calls, the number of executed ones, and the reasons of these."""
        with self._lock:
            counts = self._counts
            executed = int(counts["executed"])
            return int(counts["hits"] + counts["coalesced"]) + executed, executed, of_counters(counts)

    def fork(self, seconds: float) -> None:
        """Counts a fork that took `seconds`."""
        self._timed("forks", "fork_time_s", "fork", seconds)

    def start(self, seconds: float) -> None:
        """Counts a fresh start that took `seconds`."""
        self._timed("starts", "start_time_s", "start", seconds)

    def prefork(self, seconds: float) -> None:
        """Counts a fork or a fresh start ahead of time that took `seconds`."""
        self.add(preforks=1, prefork_time_s=seconds)

    def checkpoint(self, seconds: float) -> None:
        """Counts a checkpoint that took `seconds`."""
        self._timed("checkpoints", "checkpoint_time_s", "checkpoint", seconds)

    def replay(self, seconds: float) -> None:
        """Counts a recorded call that was executed again in `seconds`."""
        self.add(**{"replayed": 1, self._spent_as("replay_time_s"): seconds})

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """A block in which this thread makes sandboxes for no rollout: their times are counted by themselves."""
        self._here.aside = True
        try:
            yield
        finally:
            self._here.aside = False

    def _spent_as(self, time: str) -> str:
        return "aside_time_s" if getattr(self._here, "aside", False) else time

    def _timed(self, count: str, time: str, kind: Latency, seconds: float) -> None:
        with self._lock:
            self._counts[count] += 1
            self._counts[self._spent_as(time)] += seconds
            self._latency[kind].append(seconds)

    def take_unsaved(self) -> Mapping[str, float]:
        """Returns the counts since the last time, for the graph's counters."""
        with self._lock:
            unsaved = {
                name: value - self._saved.get(name, 0.0)
                for name, value in self._counts.items()
                if value != self._saved.get(name)
            }
            self._saved = dict(self._counts)
        return unsaved

    def stats(
        self,
        *,
        sandboxes: int,
        parked: int,
        ready: int,
        budget: Mapping[str, tuple[int, int | None]],
        trouble: str | None,
        totals: Mapping[str, float],
    ) -> Stats:
        """Returns all counts; see `Stats` for the arguments."""
        with self._lock:
            counts = dict(self._counts)
            latency = {kind: tuple(samples) for kind, samples in self._latency.items()}
        by_depth = {
            index: (int(calls), int(counts.get(f"depth.{index}.answered", 0)))
            for index in range(1, DEEPEST + 1)
            if (calls := counts.get(f"depth.{index}.calls", 0))
        }
        arrivals = {way: int(counts.get(f"arrivals.{way}", 0)) for way in WAYS}
        saved = {name.removeprefix(SAVED): value for name, value in counts.items() if name.startswith(SAVED)}
        plain = {name: value for name, value in counts.items() if "." not in name}
        times = {name: value for name, value in plain.items() if name.endswith("_s")}
        numbers = {name: int(value) for name, value in plain.items() if name not in times}
        return Stats(
            **times,  # type: ignore[arg-type]  # the counters are named for the attributes
            **numbers,
            sandboxes=sandboxes,
            parked=parked,
            ready=ready,
            budget=budget,
            trouble=trouble,
            arrivals=arrivals,
            reasons=of_counters(counts),
            latency_s=latency,
            by_depth=by_depth,
            saved_cost=saved,
            totals=totals,
        )
