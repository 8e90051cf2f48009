"""Simulates fleets larger than we have: `python -m benchmarks.fleet_simulation`, or with `--hosts 10000`.

No sandbox runs: these are discrete events. Which host a rollout is at is decided by the product's own
`tvsnap.plugins.fleet.routing`, for as many names as there are hosts. What forks, checkpoints and hits cost was measured
(docs/benchmarks.md); what agents do is assumed (`Assumptions`). Tasks are as popular as Zipf's law says. In each state,
a rollout makes a call that others have made there, as often as each was made, or with a chance of
`novelty / (visits + novelty)` a new one, as in benchmarks/eviction.py. A host answers calls that it knows, has those
that come while one is executed wait for its result, and executes others on its processors, first come, first served.
Hosts are lost, with what they knew, and come back empty. Rollouts that were there make their calls again elsewhere,
with the time that passed between them, as `tvsnap.fleet.Fleet` has them do.

The next epoch is made by the same agents on hosts that know nothing, as in a training job that begins anew. With a
store, as `tvsnap serve --store` has it, hosts push what they record, and pull what the store has of a task when a
rollout begins, once a minute at most: first the calls, then the snapshots, which share its bandwidth in the order of
arrival.

The same seed gives the same figures.
"""

from __future__ import annotations

import argparse
import functools
import gc
import heapq
import itertools
import json
import math
import random
import sys
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from tvsnap.plugins.fleet.fleet import SPREAD
from tvsnap.plugins.fleet.routing import choose, ranking


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is simulated. Times are in seconds, sizes in bytes.

    Attributes:
        hosts: how many there are.
        cores: calls that one executes at a time.
        rollouts: how many are made in all.
        in_flight: how many are open at a time, across the fleet.
        tasks: how many there are.
        zipf: the exponent of their popularity.
        calls: of a rollout.
        think: of the model between calls, on average (exponentially distributed).
        median, sigma, longest: of what a call takes (log-normally distributed): as of recorded terminal calls, 78 %
            take less than 0.1 s.
        novelty: how readily agents do what nobody did.
        fork, checkpoint, observe, hit, start: what these take, as measured; `start` is of a sandbox from its image.
        trip: to the host and back.
        lost_per_hour: the chance of a host to be lost within an hour.
        noticed: until a client gives up a host that is gone without a word.
        back: until another host has its place.
        spread: open rollouts of a task that a host has before the task spreads.
        bound: a host is passed over that has so many times the mean of open rollouts; 0 for none, as in the product.
        store: bandwidth of the object store, in bytes a second; 0 for none.
        link: what a host pulls in a second, with checks and decompression, as measured.
        snapshot: what a state takes in the store, as measured for an idle shell; 0 where only calls are pulled.
        record: what a call takes there.
        push_every: until what was recorded is in the store, and between looks for what is new there.
        seed: of all that is drawn.
    """

    hosts: int = 1000
    cores: int = 4
    rollouts: int = 100_000
    in_flight: int = 50_000
    tasks: int = 10_000
    zipf: float = 1.0
    calls: int = 8
    think: float = 5.0
    median: float = 0.03
    sigma: float = 1.56
    longest: float = 30.0
    novelty: float = 1.0
    fork: float = 0.0134
    checkpoint: float = 0.0175
    observe: float = 0.0017
    hit: float = 0.00008
    start: float = 0.0101
    trip: float = 0.001
    lost_per_hour: float = 0.2
    noticed: float = 35.0
    back: float = 300.0
    spread: int = SPREAD
    bound: float = 0.0
    store: float = 0.0
    link: float = 90e6
    snapshot: float = 0.8e6
    record: float = 2e3
    push_every: float = 60.0
    seed: int = 1


SAMPLED = 5.0
"""Seconds between looks at how the load is shared."""


class _Call(NamedTuple):
    """A call as it is made: by whom, in which of its lives, and since when."""

    rollout: int
    life: int
    edge: int
    asked: float


@dataclass(slots=True)
class _Host:
    """A host: what it knows and does."""

    alive: bool = True
    life: int = 0
    busy: int = 0
    known: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    running: dict[int, list[_Call]] = field(default_factory=dict)
    queue: deque[_Call] = field(default_factory=deque)
    tasks: dict[int, tuple[float, int]] = field(default_factory=dict)  # when the store was asked, and what had come
    rollouts: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Rollout:
    """A rollout: its calls so far, and the time before each. `life` counts its moves: what was begun before is void."""

    task: int
    host: int = -1
    life: int = 0
    place: int = 0
    again: int = 0
    lost_at: float = 0.0
    warm: bool = False
    path: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    """What came out: counts, and lists of seconds or of numbers."""

    finished: int = 0
    moves: int = 0
    lost: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    rebuilds: list[float] = field(default_factory=list)
    executed_again: int = 0
    pulls: list[float] = field(default_factory=list)
    moved_bytes: Counter[int] = field(default_factory=Counter)
    imbalance: list[tuple[float, float, float]] = field(default_factory=list)
    seconds: float = 0.0

    def figures(self) -> dict[str, float]:
        """Returns what is reported, by name."""
        calls = max(1, sum(self.answers.values()))
        moved = [size for part, size in self.moved_bytes.items() if part * SAMPLED < self.seconds]
        loaded = self.imbalance or [(0.0, 0.0, 0.0)]
        return {
            "simulated seconds": self.seconds,
            "hit rate": self.answers["hit"] / calls,
            "coalesced": self.answers["coalesced"] / calls,
            "executed": self.answers["executed"] / calls,
            **{f"waiting p{part} s": quantile(self.waits, part / 100) for part in (50, 95, 99)},
            "waiting more than 1 s": sum(wait > 1 for wait in self.waits) / max(1, len(self.waits)),
            "load of the fullest / mean": sum(most for _, most, _ in loaded) / len(loaded),
            "load at p99 / mean": sum(high for _, _, high in loaded) / len(loaded),
            "hosts lost": self.lost,
            "rollouts moved": self.moves,
            "rebuild p50 s": quantile(self.rebuilds, 0.5),
            "rebuild p95 s": quantile(self.rebuilds, 0.95),
            "calls executed again": self.executed_again,
            "store GB/s mean": sum(moved) / (SAMPLED * math.ceil(self.seconds / SAMPLED)) / 1e9,
            "store GB/s peak": max(moved, default=0) / SAMPLED / 1e9,
            "pull p95 s": quantile(self.pulls, 0.95),
        }


def quantile(values: Sequence[float], part: float) -> float:
    """Returns the value below which a part of the values is; 0 if there are none."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0.0


@functools.cache
def _names(hosts: int) -> list[str]:
    return [f"http://host-{number}:8420" for number in range(hosts)]


@functools.cache
def _ranked(task: str, hosts: int) -> list[str]:
    return ranking("image", task, _names(hosts))


class Simulation:
    """One fleet and its rollouts."""

    def __init__(self, assumed: Assumptions, before: Simulation | None = None) -> None:
        """
        Args:
            assumed: what is simulated.
            before: an epoch of the same tasks on hosts that are gone since: agents choose among what was done there,
                too, and what was executed is in the store, if there is one.
        """
        self.assumed = assumed
        self.now = 0.0
        self.result = Result()
        self.hosts = [_Host() for _ in range(assumed.hosts)]
        self.load: Counter[str] = Counter()
        self.open: dict[int, _Rollout] = {}
        self._names = _names(assumed.hosts)
        self._number = {name: number for number, name in enumerate(self._names)}
        self._agents, self._faults = random.Random(assumed.seed), random.Random(assumed.seed + 1)
        weights = [1 / (rank + 1) ** assumed.zipf for rank in range(assumed.tasks)]
        self._tasks = self._agents.choices(range(assumed.tasks), weights, k=assumed.rollouts)
        self._begun = 0
        self._here: dict[int, Counter[str]] = {}
        self._visits: dict[int, list[int]] = {}  # the calls made from a state; a state is the call that led to it
        self._takes: list[float] = [0.0] * assumed.tasks  # by call; the first ones stand for the tasks' images
        self._published: dict[int, tuple[list[float], list[int]]] = {}
        if before is not None:
            self._visits = {state: list(visits) for state, visits in before._visits.items()}
            self._takes = list(before._takes)
            self._published = {
                task: ([0.0] * len(edges), list(edges)) for task, (_, edges) in before._published.items()
            }
        self._store_free = 0.0
        self._events: list[tuple[float, int, Any, tuple[Any, ...]]] = []
        self._order = itertools.count()
        for _ in range(min(assumed.in_flight, assumed.rollouts)):  # they begin within the time of a call
            self._at(self._agents.uniform(0, assumed.think), self._begin)
        self._at(SAMPLED, self._sample)
        self._plan_loss()

    def run(self) -> Result:
        """Returns what came out when all rollouts have ended."""
        while self.step():
            pass
        return self.result

    def step(self) -> bool:
        """Has the next event happen; returns whether rollouts are left."""
        self.now, _, act, given = heapq.heappop(self._events)
        act(*given)
        self.result.seconds = self.now
        return self.result.finished < self.assumed.rollouts

    def _at(self, when: float, act: Any, *given: Any) -> None:
        heapq.heappush(self._events, (when, next(self._order), act, given))

    # -- rollouts ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._begun < self.assumed.rollouts:
            number, self._begun = self._begun, self._begun + 1
            rollout = self.open[number] = _Rollout(self._tasks[number])
            self._place(number, rollout)
            self._think(number, rollout, self.now)

    def _place(self, number: int, rollout: _Rollout) -> None:
        """Gives a rollout a host, as `Fleet` does."""
        task = rollout.task
        here = self._here.setdefault(task, Counter())
        most = self.assumed.bound * (len(self.open) / self.assumed.hosts + 1) or math.inf
        ranked = _ranked(f"task-{task}", self.assumed.hosts)
        fitting = (name for name in ranked if self.hosts[self._number[name]].alive and self.load[name] < most)
        # Among so many, one has fewer than `spread`: the rest of the list changes nothing.
        preferred = list(itertools.islice(fitting, here.total() // self.assumed.spread + 1))
        name = choose(preferred, here, self.load, self.assumed.spread)
        here[name] += 1
        self.load[name] += 1
        rollout.host = self._number[name]
        host = self.hosts[rollout.host]
        assert host.alive
        host.rollouts.add(number)
        looked, had = host.tasks.get(task, (-math.inf, 0))
        if self.assumed.store and self.now - looked >= self.assumed.push_every:
            host.tasks[task] = (self.now, self._pull(rollout.host, task, had))

    def _leave(self, number: int, rollout: _Rollout) -> None:
        name = self._names[rollout.host]
        self._here[rollout.task][name] -= 1
        self.load[name] -= 1
        self.hosts[rollout.host].rollouts.discard(number)

    def _think(self, number: int, rollout: _Rollout, since: float) -> None:
        """Has the model think before the next call, or the rollout end after the last."""
        if rollout.place == self.assumed.calls:
            self._leave(number, rollout)
            del self.open[number]
            self.result.finished += 1
            self._begin()
            return
        if rollout.place == len(rollout.gaps):
            rollout.gaps.append(self._agents.expovariate(1 / self.assumed.think))
        self._at(max(self.now, since + rollout.gaps[rollout.place]), self._call, number, rollout.life)

    def _call(self, number: int, life: int) -> None:
        rollout = self.open.get(number)
        if rollout is None or rollout.life != life:
            return  # its host was lost meanwhile
        if rollout.place == len(rollout.path):
            rollout.path.append(self._next(rollout.path[-1] if rollout.path else rollout.task))
        edge, host = rollout.path[rollout.place], self.hosts[rollout.host]
        call = _Call(number, life, edge, self.now)
        if edge in host.known:
            self._answered(call, "hit", self.now + self.assumed.hit + self.assumed.trip)
            rollout.warm = False  # whatever sandbox it had stands elsewhere
        elif edge in host.running:
            host.running[edge].append(call)
        else:
            host.running[edge] = []
            if host.busy < self.assumed.cores:
                self._execute(rollout.host, call)
            else:
                host.queue.append(call)

    def _next(self, state: int) -> int:
        """Returns the call that an agent makes in a state."""
        visits = self._visits.setdefault(state, [])
        drawn = self._agents.random() * (len(visits) + self.assumed.novelty)
        if drawn < len(visits):
            edge = visits[int(drawn)]
        else:
            edge = len(self._takes)
            drawn = self._agents.lognormvariate(math.log(self.assumed.median), self.assumed.sigma)
            self._takes.append(min(drawn, self.assumed.longest))
        visits.append(edge)
        return edge

    def _execute(self, place: int, call: _Call) -> None:
        host, assumed, rollout = self.hosts[place], self.assumed, self.open[call.rollout]
        host.busy += 1
        self.result.waits.append(self.now - call.asked)
        took = self._takes[call.edge] + (0.0 if rollout.warm else self._acquire(host, rollout))
        after = assumed.observe + (assumed.checkpoint if self._pays(call.edge) else 0.0)
        self._at(self.now + took + after, self._executed, place, host.life, call, after)

    def _acquire(self, host: _Host, rollout: _Rollout) -> float:
        """Returns what a sandbox where a rollout stands takes: a fork, and the calls since that snapshot."""
        took = 0.0
        for edge in reversed(rollout.path[: rollout.place]):
            if edge in host.kept:
                return took + self.assumed.fork
            took += self._takes[edge]
        return took + self.assumed.start

    def _pays(self, edge: int) -> bool:
        """Returns whether a snapshot is taken of what a call led to: roughly, if it takes longer than a fork."""
        return self._takes[edge] > self.assumed.fork

    def _executed(self, place: int, life: int, call: _Call, after: float) -> None:
        host = self.hosts[place]
        if host.life != life:
            return
        host.busy -= 1
        host.known.add(call.edge)
        if self._pays(call.edge):
            host.kept.add(call.edge)
        rollout = self.open.get(call.rollout)
        if rollout is not None:
            times, edges = self._published.setdefault(rollout.task, ([], []))
            times.append(self.now + self.assumed.push_every)
            edges.append(call.edge)
            if self.assumed.store:
                self._use_store(self.assumed.record + self.assumed.snapshot * self._pays(call.edge))
        for waiting in host.running.pop(call.edge):
            self._answered(waiting, "coalesced", self.now + self.assumed.trip)
        if rollout is not None and rollout.life == call.life:
            rollout.warm = True
            self.result.executed_again += rollout.place < rollout.again
        self._answered(call, "executed", self.now - after + self.assumed.trip)
        if host.queue:
            self._execute(place, host.queue.popleft())

    def _answered(self, call: _Call, source: str, when: float) -> None:
        rollout = self.open.get(call.rollout)
        if rollout is None or rollout.life != call.life:
            return
        self.result.answers[source] += 1
        rollout.place += 1
        if rollout.place == rollout.again and rollout.lost_at:
            self.result.rebuilds.append(self.now - rollout.lost_at)
            rollout.lost_at = 0.0
        self._think(call.rollout, rollout, when)

    # -- hosts ------------------------------------------------------------------------------------------------------

    def _plan_loss(self) -> None:
        if self.assumed.lost_per_hour:
            rate = self.assumed.lost_per_hour * self.assumed.hosts / 3600
            self._at(self.now + self._faults.expovariate(rate), self._lose)

    def _lose(self) -> None:
        place = self._faults.randrange(self.assumed.hosts)
        self._plan_loss()
        if self.hosts[place].alive and sum(host.alive for host in self.hosts) > 1:
            self.lose(place)

    def lose(self, place: int) -> None:
        """Has a host vanish, with what it knows."""
        gone, self.hosts[place] = self.hosts[place], _Host(alive=False, life=self.hosts[place].life + 1)
        self.result.lost += 1
        self._at(self.now + self.assumed.back, self._come_back, place)
        for number in sorted(gone.rollouts):
            rollout = self.open[number]
            self._leave(number, rollout)
            rollout.life += 1
            rollout.lost_at, rollout.again = rollout.lost_at or self.now, max(rollout.again, rollout.place)
            rollout.host, rollout.warm = -1, False
            self._at(self.now + self.assumed.noticed, self._move, number)

    def _move(self, number: int) -> None:
        rollout = self.open[number]
        rollout.place = 0
        if not rollout.again:
            rollout.lost_at = 0.0  # it had made no call
        self.result.moves += 1
        self._place(number, rollout)
        self._think(number, rollout, self.now)

    def _come_back(self, place: int) -> None:
        self.hosts[place].alive = True

    # -- the store --------------------------------------------------------------------------------------------------

    def _use_store(self, size: float) -> float:
        """Takes snapshots through the store; returns when that is done."""
        began = max(self.now, self._store_free)
        self._store_free = began + size / self.assumed.store
        while began < self._store_free:
            part = int(began / SAMPLED)
            until = min(self._store_free, (part + 1) * SAMPLED)
            self.result.moved_bytes[part] += round((until - began) * self.assumed.store)
            began = until if until > began else self._store_free
        return self._store_free

    def _pull(self, place: int, task: int, had: int) -> int:
        """Pulls what the store has of a task beyond so many calls; returns how many it has. Calls come first."""
        times, edges = self._published.get(task, ([], []))
        count = bisect_right(times, self.now)
        new, life = edges[had:count], self.hosts[place].life
        if new:
            size = self.assumed.record * len(new)
            self.result.moved_bytes[int(self.now / SAMPLED)] += int(size)
            done = self.now + size / self.assumed.link
            self._at(done, self._pulled, place, life, new, False)
            if size := self.assumed.snapshot * sum(map(self._pays, new)):
                done = max(self._use_store(size), done + size / self.assumed.link)
                self._at(done, self._pulled, place, life, new, True)
            self.result.pulls.append(done - self.now)
        return count

    def _pulled(self, place: int, life: int, edges: Sequence[int], snapshots: bool) -> None:
        host = self.hosts[place]
        if host.life == life:
            if snapshots:
                host.kept.update(filter(self._pays, edges))
            else:
                host.known.update(edges)

    def _sample(self) -> None:
        self._at(self.now + SAMPLED, self._sample)
        loads = sorted(self.load[name] for name, host in zip(self._names, self.hosts, strict=True) if host.alive)
        mean = sum(loads) / len(loads)
        if len(self.open) >= min(self.assumed.in_flight, self.assumed.rollouts) / 2:
            self.result.imbalance.append((self.now, loads[-1] / mean, loads[int(0.99 * len(loads))] / mean))


LARGE = {"hosts": 10_000, "rollouts": 300_000, "in_flight": 300_000, "tasks": 3_000, "calls": 4}
"""What 10,000 hosts are simulated with, so that it ends within minutes."""


def variants(base: Assumptions) -> dict[str, Assumptions]:
    """Returns what is compared, by name: the first epoch of tasks, then the next one on hosts that know nothing."""
    return {
        "first epoch": base,
        "first, bounded": replace(base, bound=1.25),
        NEXT: base,
        f"{NEXT}, store": replace(base, store=10e9),
        f"{NEXT}, calls only": replace(base, store=10e9, snapshot=0.0),
    }


NEXT = "next"


def run(chosen: Mapping[str, Assumptions]) -> dict[str, Result]:
    """Returns what came out of each variant; those of the next epoch follow upon the first."""
    results: dict[str, Result] = {}
    first: Simulation | None = None
    for name, assumed in chosen.items():
        if name.startswith(NEXT) and first is None:
            first = Simulation(replace(assumed, store=0.0))
            first.run()
        simulation = (
            Simulation(replace(assumed, seed=assumed.seed + 2), first) if name.startswith(NEXT) else Simulation(assumed)
        )
        results[name] = simulation.run()
        first = first or simulation
    return results


def report(results: Mapping[str, Result], console: Console) -> None:
    """Prints the figures side by side."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    figures = [result.figures() for result in results.values()]
    for name in figures[0]:
        table.add_row(name, *(_number(one[name]) for one in figures))
    console.print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def draw(results: Mapping[str, Result], file: Path) -> None:
    """Draws waiting, imbalance and the store's traffic; needs matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tvsnap"
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for number, (name, result) in enumerate(results.items()):
        look: Any = {"label": name, "color": f"C{number}"}
        waits = sorted(result.waits)
        parts = [place / 200 for place in range(180, 200)]
        left.plot([100 * part for part in parts], [max(1e-3, quantile(waits, part)) for part in parts], **look)
        middle.plot([when for when, _, _ in result.imbalance], [most for _, most, _ in result.imbalance], **look)
        if result.moved_bytes:
            bins = range(int(result.seconds / SAMPLED))
            right.plot(
                [SAMPLED * one for one in bins], [result.moved_bytes[one] / SAMPLED / 1e9 for one in bins], **look
            )
    left.set(yscale="log", xlabel="percentile of executed calls", ylabel="s", title="waiting for a processor")
    middle.set(xlabel="s", ylabel="times the mean", title="open rollouts of the fullest host", ylim=(0, None))
    right.set(xlabel="s", ylabel="GB/s", title="traffic of the store")
    left.legend(fontsize="small")
    right.legend(fontsize="small")
    figure.savefig(file, format="svg", metadata={"Date": None})


def main() -> int:
    """Simulates what was asked for; returns the exit status."""
    text = "Simulates a large fleet by discrete events, with the product's own routing and measured costs."
    example = "example: python -m benchmarks.fleet_simulation --hosts 10000 --only 'first epoch' --json figures.json"
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet_simulation", description=text, epilog=example)
    parser.add_argument("--hosts", type=int, choices=(100, 1000, 10_000), default=1000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (%(default)s)")
    parser.add_argument("--only", metavar="NAME", action="append", help=", ".join(variants(Assumptions())))
    parser.add_argument("--json", metavar="FILE", help="write assumptions and figures as JSON; - for standard output")
    parser.add_argument("--plots", type=Path, metavar="FILE", help="draw them as SVG (pip install matplotlib)")
    options = parser.parse_args()
    base = replace(Assumptions(), seed=options.seed)
    if options.hosts == 10_000:
        base = replace(base, **LARGE)
    elif options.hosts == 100:
        base = replace(base, hosts=100, rollouts=10_000, in_flight=5_000, tasks=1_000)
    chosen = variants(base)
    if unknown := set(options.only or ()) - chosen.keys():
        parser.error(f"no variant {', '.join(sorted(unknown))}; have: {', '.join(chosen)}")
    gc.disable()  # events make no cycles, and there are millions of objects to look through
    chosen = {name: one for name, one in chosen.items() if not options.only or name in options.only}
    results = run(chosen)
    report(results, Console(stderr=options.json == "-", width=120, highlight=False))
    if options.plots:
        draw(results, options.plots)
    if options.json:
        told = {
            name: {"assumptions": asdict(chosen[name]), "figures": result.figures()} for name, result in results.items()
        }
        written = json.dumps(told, indent=2) + "\n"
        sys.stdout.write(written) if options.json == "-" else Path(options.json).write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
