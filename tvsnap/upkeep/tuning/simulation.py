"""Simulates recorded rollouts with a cache: what they wait for, and what processors and the disk do for it.

No sandbox runs. The decisions are those of the code that decides in a cache, `BreakEven`, `Worth` and the eviction,
with a clock of the simulation. What a fork, a start, a checkpoint and a look take is constant, as measured on the
machine; where more is computed than there are processors, it takes longer by that factor. Waiting for another rollout
that makes the same call, parked sandboxes and audits are left out. So its seconds are no prediction; it tells one
tuning from another.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvsnap.engine.keeping.policy import BreakEven, Costs, Rebuild
from tvsnap.engine.keeping.policy.eviction import Kept, SnapshotLimits, choose_evicted
from tvsnap.engine.keeping.policy.snapshotting import CALL_OVERHEAD
from tvsnap.engine.keeping.worth import BESIDE, Worth
from tvsnap.engine.supply.companions import THINKING
from tvsnap.model.tuning import DEFAULT_TUNING, Tuning
from tvsnap.upkeep.tuning.recorded import RecordedCall, RecordedRollout

GIB = 1 << 30
_FORKS = re.compile(r"cost\.[^.]+\.fork\.n")


@dataclass(frozen=True, slots=True)
class MachineCosts:
    """What a cache's own work takes on a machine, in seconds.

    Attributes:
        hit: an answer.
        look: a look at a sandbox after a call, and the record of the call.
        checkpoint, fork, start: as `Costs` has them.
    """

    hit: float = 0.0005
    look: float = 0.0015
    checkpoint: float = 0.012
    fork: float = 0.010
    start: float = 0.012

    @classmethod
    def measured(cls, counters: Mapping[str, float]) -> MachineCosts:
        """Returns what caches on a data directory have measured, of the backend that forked most; else the defaults.

        Args:
            counters: those of the graph.
        """
        forks = {name.split(".")[1]: value for name, value in counters.items() if _FORKS.fullmatch(name)}
        backend = max(forks, key=lambda name: forks[name], default="")
        costs = Costs(backend, counters)
        known = {
            kind: getattr(costs, f"{kind}_s")
            for kind in ("checkpoint", "fork", "start")
            if counters.get(f"cost.{backend}.{kind}.n")
        }
        return replace(cls(), **known)


@dataclass(frozen=True, slots=True)
class Setting:
    """How the rollouts run.

    Attributes:
        parallel: how many at once.
        think_s: seconds that a model takes between two calls.
        processors: of the machine.
        epochs: how often all rollouts are made. Later ones find what earlier ones left.
        room: bytes that snapshots may take together; None for no limit.
        costs: what the cache's own work takes.
    """

    parallel: int = 8
    think_s: float = 1.0
    processors: int = 2
    epochs: int = 1
    room: int | None = None
    costs: MachineCosts = field(default_factory=MachineCosts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What simulated rollouts came to.

    Attributes:
        waited_s: seconds for which they waited for their calls.
        processor_s: seconds of processor time, of calls and of the cache.
        kept_byte_s: bytes of snapshots, times the seconds for which they were kept.
        lasted_s: seconds from the first call to the last.
        calls, answered: how many calls were made, and answered without executing them.
        checkpoints, forks, starts: how many there were.
    """

    waited_s: float = 0.0
    processor_s: float = 0.0
    kept_byte_s: float = 0.0
    lasted_s: float = 0.0
    calls: int = 0
    answered: int = 0
    checkpoints: int = 0
    forks: int = 0
    starts: int = 0


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts how much, in seconds of waiting.

    Attributes:
        processor: a second of processor time.
        gib: a GiB of snapshots that is kept all the time, for each hour that the rollouts last.
    """

    processor: float = 0.5
    gib: float = 10.0

    def cost(self, outcome: Outcome) -> float:
        """Returns what an outcome costs, in seconds of waiting; less is better."""
        disk = self.gib * outcome.kept_byte_s / GIB / 3600.0
        return outcome.waited_s + self.processor * outcome.processor_s + disk


def without_cache(rollouts: Sequence[RecordedRollout], setting: Setting) -> Outcome:
    """Returns what the rollouts come to where all calls are executed, each rollout in a fresh sandbox."""
    return _Simulation(rollouts, None, setting).run()


def simulate(rollouts: Sequence[RecordedRollout], tuning: Tuning, setting: Setting) -> Outcome:
    """Returns what the rollouts come to with a cache of some tuning, which is empty at first.

    Args:
        rollouts: in the order in which they begin.
        tuning: the cache's parameters.
        setting: how they run.
    """
    return _Simulation(rollouts, tuning, setting).run()


@dataclass(slots=True)
class _State:
    """What a simulated cache knows of a state."""

    above: str | None
    made_by: RecordedCall | None
    runs: int = 0  # how often the call that led here was executed
    spent_s: float = 0.0
    snapshot: bool = False
    forks: int = 0
    created: float = 0.0
    edges: dict[str, int] = field(default_factory=dict)  # visits by call

    @property
    def proven(self) -> bool:
        return self.made_by is None or (self.runs > 1 and self.made_by.provable)


class _Simulation:
    def __init__(self, rollouts: Sequence[RecordedRollout], tuning: Tuning | None, setting: Setting) -> None:
        self._rollouts, self._setting, self._cached = rollouts, setting, tuning is not None
        self._tuning = tuning or DEFAULT_TUNING
        self._now, self._used_s, self._computing = 0.0, 0.0, 0
        self._calls_s = 0.0  # processor time of calls
        self._costs = Costs("simulated", tuning=lambda: self._tuning)
        for kind in ("checkpoint", "fork", "start"):
            for _ in range(5):
                self._costs.add(kind, getattr(setting.costs, kind))
        self._policy = BreakEven()
        self._worth = Worth(
            self._policy,
            tuning=lambda: self._tuning,
            crowding=lambda: max(1.0, self._computing / setting.processors),
            busy_seconds=lambda: self._used_s,
            computed=lambda: self._calls_s,
            clock=lambda: self._now,
        )
        self._states: dict[str, _State] = {}
        self._kept: set[str] = set()
        self._kept_bytes, self._kept_byte_s, self._kept_since = 0, 0.0, 0.0
        self._counts: defaultdict[str, float] = defaultdict(float)

    def run(self) -> Outcome:
        """Runs all rollouts, some at once."""
        waiting = iter([one for _ in range(self._setting.epochs) for one in self._rollouts])
        order = itertools.count()
        running: list[tuple[float, int, Generator[float, None, None]]] = []

        def begin() -> None:
            if (rollout := next(waiting, None)) is not None:
                heapq.heappush(running, (self._now, next(order), self._roll(rollout)))

        for _ in range(self._setting.parallel):
            begin()
        while running:
            self._now, _, rollout = heapq.heappop(running)
            try:
                pause = next(rollout)
            except StopIteration:
                begin()
            else:
                heapq.heappush(running, (self._now + pause, next(order), rollout))
        self._count_kept(0)
        counts = {name: int(self._counts[name]) for name in ("calls", "answered", "checkpoints", "forks", "starts")}
        return Outcome(self._counts["waited"], self._used_s, self._kept_byte_s, self._now, **counts)

    def _roll(self, rollout: RecordedRollout) -> Generator[float, None, None]:
        costs, image = self._setting.costs, rollout.image
        at, sandbox, free_at, private = rollout.root, None, 0.0, not self._cached
        self._states.setdefault(at, _State(None, None, runs=2))
        accounted, answered_before = self._now, 0.0
        for place, call in enumerate(rollout.calls):
            yield self._setting.think_s
            self._worth.call_begins()
            began = self._now
            self._counts["calls"] += 1
            if not private and self._answers(at, call):
                yield costs.hit
                self._used_s += costs.hit
                state = self._states[at]
                state.edges[call.key] += 1
                self._worth.repeats.answered(at)
                spared = costs.start if place == 0 else 0.0
                lasted, accounted = self._now - accounted, self._now
                self._worth.answered(image, call.seconds, waiting_s=self._now - began, lasted_s=lasted, spared_s=spared)
                self._counts["answered"] += 1
                answered_before = self._now
                at = call.after or at
            else:
                if sandbox != at:
                    yield from self._acquire(at, began - answered_before if answered_before else 0.0, place == 0)
                elif free_at > self._now:
                    yield free_at - self._now
                acquired = self._now
                yield from self._compute(call.processor_s, call.seconds)
                self._calls_s += call.processor_s
                self._worth.executed(call.seconds)
                self._costs.worked(call.seconds)
                reason = private or not call.shared or self._worth.objection(image, at, call.key) is not None
                lasted, accounted = self._now - accounted, self._now
                if self._cached:
                    self._worth.repeats.took(at, call.seconds)
                    waited = 0.0 if reason or place == 0 else acquired - began
                    self._worth.add(image, waiting_s=waited, lasted_s=lasted)
                self._counts["waited"] += self._now - began
                private = reason
                if private:
                    sandbox = at = call.after or at
                    self._worth.call_ends()
                    continue
                self._used_s += costs.look
                kept_s = self._record(at, call)
                sandbox = at = call.after or at
                free_at = self._now + costs.look + kept_s
                self._worth.add(image, working_s=costs.look, acquiring_s=kept_s)
                self._worth.call_ends()
                continue
            self._counts["waited"] += self._now - began
            self._worth.call_ends()

    def _answers(self, at: str, call: RecordedCall) -> bool:
        """Returns whether a call was recorded in a state, and leads to one that can be reached."""
        state = self._states.get(at)
        if state is None or call.key not in state.edges:
            return False
        return call.after is None or self._is_reachable(call.after)

    def _is_reachable(self, name: str) -> bool:
        state = self._states.get(name)
        while state is not None and not state.snapshot:
            if not state.proven:
                return False
            state = self._states.get(state.above or "")
        return True

    def _record(self, at: str, call: RecordedCall) -> float:
        """Records a call that was executed, and keeps the state that it led to where that pays; returns its seconds."""
        self._states[at].edges.setdefault(call.key, 0)
        if call.after is None:
            return 0.0
        state = self._states.setdefault(call.after, _State(at, call))
        state.runs += 1
        return self._consider(call.after, state)

    def _consider(self, name: str, state: _State) -> float:
        """Takes a snapshot of a state if the policy wants one; returns how long that takes."""
        if state.snapshot:
            return 0.0
        above, calls, seconds, proven, provable = self._way(name)
        rebuild = Rebuild(above is None, calls, seconds, state.spent_s, proven, provable)
        if not self._policy.should_checkpoint(rebuild, self._costs):
            return 0.0
        size = state.made_by.size if state.made_by else 0
        if not self._find_room(self._as_kept(name, state)._replace(size=size)):
            return 0.0
        took = self._setting.costs.checkpoint
        if provable and not proven:
            self._costs.spent(took)
        self._used_s += took * BESIDE
        self._counts["checkpoints"] += 1
        state.snapshot, state.created = True, self._now
        self._kept.add(name)
        self._count_kept(size)
        return took

    def _way(self, name: str) -> tuple[str | None, int, float, bool, bool]:
        """Returns the nearest snapshot above a state, and how many calls of how many seconds lead from there."""
        calls, seconds, proven, provable = 0, 0.0, True, True
        at: str | None = name
        while at is not None:
            state = self._states[at]
            if state.snapshot and at != name:
                return at, calls, seconds, proven, provable
            if state.made_by is not None:
                calls += 1
                seconds += state.made_by.seconds
                proven = proven and state.proven
                provable = provable and state.made_by.provable
            at = state.above
        return None, calls, seconds, proven, provable

    def _acquire(self, at: str, thought_s: float, first: bool) -> Generator[float, None, None]:
        """Gets a sandbox in a state: a companion, a fork, or a fresh one, in which calls are made again."""
        costs, state = self._setting.costs, self._states.get(at)
        if state is None or not self._cached:
            self._counts["starts"] += 1
            yield from self._compute(costs.start, costs.start, costs.start * (BESIDE - 1))
            return
        if state.snapshot:
            above, replay_s, calls = at, 0.0, 0
        else:
            found, calls, replay_s, _, _ = self._way(at)
            above = found or ""
        base = costs.fork if above else costs.start
        self._counts["forks" if above else "starts"] += 1
        if above:
            self._states[above].forks += 1
        took = base + replay_s + calls * CALL_OVERHEAD
        if not state.snapshot and calls:
            state.spent_s += took
        visits = sum(state.edges.values()) + len(state.edges)
        once = sum(1 for hits in state.edges.values() if not hits)
        chance = (once + 0.5) / (visits + 1) if state.edges else 1.0
        ahead = not first and thought_s > THINKING + took and self._computing < self._setting.processors
        if ahead and chance >= self._tuning.new_call_chance:
            self._used_s += base * BESIDE + replay_s
            return
        yield from self._compute(took, took, base * (BESIDE - 1))
        if calls and not state.snapshot:
            self._consider(at, state)

    def _compute(self, processor_s: float, seconds: float, beside_s: float = 0.0) -> Generator[float, None, None]:
        """Takes some seconds, of which processors work for some; the latter take longer where they are wanted more."""
        self._computing += 1
        crowded = max(1.0, self._computing / self._setting.processors)
        self._used_s += processor_s + beside_s
        yield max(0.0, seconds - processor_s) + processor_s * crowded
        self._computing -= 1

    def _find_room(self, new: Kept) -> bool:
        """Evicts what is worth less than a new snapshot; returns whether there is room."""
        if self._setting.room is None or self._kept_bytes + new.size <= self._setting.room:
            return True
        room = SnapshotLimits(self._setting.room)
        there = [self._as_kept(name, self._states[name]) for name in self._kept]
        chosen = choose_evicted([*there, new], room, self._now, tuning=self._tuning)
        if any(one.state == new.state for one in chosen):
            return False
        for one in chosen:
            self._states[one.state].snapshot = False
            self._kept.discard(one.state)
            self._count_kept(-one.size)
        return True

    def _as_kept(self, name: str, state: _State) -> Kept:
        above, calls, seconds, proven, _ = self._way(name)
        size = state.made_by.size if state.made_by else 0
        return Kept(name, above, size, seconds + calls * CALL_OVERHEAD, state.forks, state.created, proven=proven)

    def _count_kept(self, more: int) -> None:
        self._kept_byte_s += self._kept_bytes * (self._now - self._kept_since)
        self._kept_bytes, self._kept_since = self._kept_bytes + more, self._now
