"""Compares what to evict, by the time saved over real rollouts: `python -m benchmarks.eviction ROLLOUTS... --home DIR`.

A simulation; no sandbox runs. What calls took, which of them changed the state and how big its snapshot is comes from a
data directory in which the rollouts were replayed once, each state with a snapshot:

    tvsnap replay ROLLOUTS... --image IMAGE --policy eager --home DIR

The first epoch is those rollouts. In each later one, every task gets as many, which choose among the calls that were
made from where they stand, as often as each was chosen, or with a chance of `NOVELTY / (visits + NOVELTY)` make a new
one (a Chinese restaurant process) and go on as some rollout of the task did, with calls that are all new. A few run at
once, in random order. A call that nobody made needs a sandbox in its state, unless the rollout has its own there. It is
forked from the nearest snapshot that is left, and the calls since then are run again; the time that this takes less
than from the image is what the snapshots saved. States get snapshots by the default rule, whoever evicts.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table

from benchmarks.eviction_rollouts import Event, Node, Step, arrivals, events, load
from tvsnap.engine.keeping.budgets import SPARE
from tvsnap.engine.keeping.policy import Costs, Default, Rebuild
from tvsnap.engine.keeping.policy.eviction import Kept, SnapshotLimits, choose_evicted
from tvsnap.engine.keeping.policy.snapshotting import CALL_OVERHEAD
from tvsnap.model.errors import TvsnapError, UsageError

PARTS = (0.02, 0.05, 0.10, 0.25, 0.50)  # of what all snapshots would take
EPOCHS = 8
PARALLEL = 16
SEEDS = 5
NOVELTY = 1.0
COSTS = Costs("simulated")  # those of a shell sandbox


@dataclass(slots=True)
class Snapshot:
    """A snapshot that is there."""

    node: Node
    size: int
    created: float
    used: float
    forks: int = 0


class Shelf:
    """The snapshots that are there."""

    def __init__(self) -> None:
        self.snapshots: dict[str, Snapshot] = {}
        self.size = 0

    def way(self, node: Node, *, beyond: bool = False) -> tuple[Snapshot | None, list[Step]]:
        """Returns the nearest snapshot, and the steps from there; with `beyond`, not the node's own."""
        steps: list[Step] = []
        at: Node | None = node
        while at is not None:
            snapshot = self.snapshots.get(at.name)
            if snapshot is not None and not (beyond and at is node):
                return snapshot, steps
            if at.step is not None:
                steps.append(at.step)
            at = at.above
        return None, steps

    def add(self, snapshot: Snapshot) -> None:
        self.snapshots[snapshot.node.name] = snapshot
        self.size += snapshot.size

    def remove(self, snapshot: Snapshot) -> None:
        del self.snapshots[snapshot.node.name]
        self.size -= snapshot.size


class Evictor(Protocol):
    """Makes room for a snapshot; returns whether it may be taken."""

    def __call__(self, shelf: Shelf, new: Snapshot, limit: float, now: float) -> bool: ...


def unlimited(shelf: Shelf, new: Snapshot, limit: float, now: float) -> bool:
    return True


def never(shelf: Shelf, new: Snapshot, limit: float, now: float) -> bool:
    return False


def _evict_by(key: Callable[[Snapshot], tuple[float, ...]]) -> Evictor:
    def evict(shelf: Shelf, new: Snapshot, limit: float, now: float) -> bool:
        if new.size > limit:
            return False
        queue = sorted(shelf.snapshots.values(), key=key) if shelf.size + new.size > limit else []
        for snapshot in queue:
            if shelf.size + new.size <= limit:
                break
            shelf.remove(snapshot)
        return True

    return evict


least_recently_used = _evict_by(lambda snapshot: (snapshot.used,))
fewest_children = _evict_by(lambda snapshot: (snapshot.node.children, snapshot.created))


def ours(shelf: Shelf, new: Snapshot, limit: float, now: float) -> bool:
    """As `recording.budgets` does it: one that would be the next to go is not taken; many are evicted at once."""
    if shelf.size + new.size <= limit:
        return True

    def kept(snapshot: Snapshot) -> Kept:
        above, steps = shelf.way(snapshot.node, beyond=True)
        return Kept(
            snapshot.node.name,
            None if above is None else above.node.name,
            snapshot.size,
            sum(step.seconds for step in steps) + CALL_OVERHEAD * len(steps),
            snapshot.forks,
            snapshot.created,
            proven=all(step.proven for step in steps),
        )

    room = SnapshotLimits(int(limit))
    there = [kept(snapshot) for snapshot in shelf.snapshots.values()]
    candidate = kept(new)
    if any(each.state == candidate.state for each in choose_evicted([*there, candidate], room, now)):
        return False
    for each in choose_evicted([*there, candidate._replace(pinned=True)], room.part(1 - SPARE), now):
        shelf.remove(shelf.snapshots[each.state])
    return True


EVICTORS: Mapping[str, Evictor] = {
    "tvsnap": ours,
    "least recently used": least_recently_used,
    "fewest children, oldest": fewest_children,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.

    Attributes:
        rebuilding_s: seconds that all sandboxes took which were needed.
        unproven: how many of them had to make a call again that is not known to do the same each time.
        largest: bytes that the snapshots took at most.
        taken: snapshots taken.
    """

    rebuilding_s: float
    unproven: int
    largest: int
    taken: int


def simulate(coming: Sequence[Event], evictor: Evictor, limit: float = float("inf")) -> Outcome:
    """Runs what comes against one way to evict."""
    shelf, policy = Shelf(), Default()
    spent: defaultdict[str, float] = defaultdict(float)
    total, unproven, largest, taken = 0.0, 0, 0, 0
    for event in coming:
        snapshot, steps = shelf.way(event.state)
        replay_s = sum(step.seconds for step in steps)
        proven = all(step.proven for step in steps)
        if event.made:
            if event.state.above is not None:
                event.state.above.children += 1
        else:
            cost = (COSTS.start_s if snapshot is None else COSTS.fork_s) + replay_s + CALL_OVERHEAD * len(steps)
            total += cost
            unproven += not proven
            if snapshot is not None:
                snapshot.forks += 1
                snapshot.used = event.at
            spent[event.state.name] += cost
        if not steps:
            continue
        rebuild = Rebuild(snapshot is None, len(steps), replay_s, spent[event.state.name], proven or not event.made)
        step = event.state.step
        if step is None or not policy.should_checkpoint(rebuild, COSTS):
            continue
        new = Snapshot(event.state, step.size, event.at, event.at)
        if evictor(shelf, new, limit, event.at):
            shelf.add(new)
            taken += 1
            largest = max(largest, shelf.size)
    return Outcome(total, unproven, largest, taken)


def _reset(coming: Sequence[Event]) -> None:
    for event in coming:
        event.state.children = 0
        if event.state.above is not None:
            event.state.above.children = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One way to evict at one size: time saved, as a part of what unlimited snapshots save; and departures."""

    policy: str
    part: float
    saved: float
    unproven: float


def compare(tasks: Mapping[str, list[list[Step]]], options: argparse.Namespace) -> tuple[list[Row], dict[str, float]]:
    """Returns the rows, and what unlimited snapshots come to, on average over the seeds."""
    saved: defaultdict[tuple[str, float], list[float]] = defaultdict(list)
    unproven: defaultdict[tuple[str, float], list[float]] = defaultdict(list)
    figures: defaultdict[str, list[float]] = defaultdict(list)
    for seed in range(options.seeds):
        chance = random.Random(seed)
        coming = events(arrivals(tasks, options.epochs, options.novelty, chance), options.parallel, chance)

        def run(evictor: Evictor, limit: float = float("inf"), coming: Sequence[Event] = coming) -> Outcome:
            _reset(coming)
            return simulate(coming, evictor, limit)

        nothing, everything = run(never), run(unlimited)
        most = nothing.rebuilding_s - everything.rebuilding_s
        if most <= 0:
            raise UsageError("snapshots save no time over these rollouts, so there is nothing to compare")
        for name, value in {
            "sandboxes": sum(not event.made for event in coming),
            "states": sum(event.made for event in coming),
            "snapshots": everything.taken,
            "bytes": everything.largest,
            "replayed_s": nothing.rebuilding_s,
            "saved_s": most,
        }.items():
            figures[name].append(value)
        for part in options.parts:
            for name, evictor in EVICTORS.items():
                outcome = run(evictor, part * everything.largest)
                assert outcome.largest <= part * everything.largest
                saved[name, part].append((nothing.rebuilding_s - outcome.rebuilding_s) / most)
                unproven[name, part].append(outcome.unproven)
    rows = [
        Row(name, part, statistics.mean(values), statistics.mean(unproven[name, part]))
        for (name, part), values in saved.items()
    ]
    return rows, {name: statistics.mean(values) for name, values in figures.items()}


def main() -> int:
    """Runs what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eviction", description=__doc__.partition("\n")[0])
    parser.add_argument("rollouts", nargs="+", metavar="ROLLOUTS", help="rollout files")
    parser.add_argument("--home", type=Path, required=True, metavar="DIR", help="where they were replayed once")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--parallel", type=int, default=PARALLEL, help="rollouts at once")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs that are averaged")
    parser.add_argument("--novelty", type=float, default=NOVELTY, help="how readily rollouts do what nobody did")
    parser.add_argument("--parts", type=float, nargs="+", default=PARTS, help="of what all snapshots take")
    options = parser.parse_args()
    try:
        rows, figures = compare(load(options.rollouts, options.home), options)
    except TvsnapError as error:
        Console(stderr=True).print(f"error: {error}", highlight=False)
        return error.exit_status
    if options.json:
        data = [{name: getattr(row, name) for name in Row.__slots__} for row in rows]
        sys.stdout.write(json.dumps({"figures": figures, "rows": data}, indent=2) + "\n")
        return 0
    console = Console(highlight=False)
    console.print(
        f"{figures['sandboxes']:,.0f} sandboxes needed in {figures['states']:,.0f} states; "
        f"{figures['replayed_s']:,.0f} s without snapshots, {figures['saved_s']:,.0f} s less with all "
        f"{figures['snapshots']:,.0f} ({figures['bytes'] / 1e6:,.0f} MB)"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("time saved, of that with all snapshots")
    for part in options.parts:
        table.add_column(f"{part:.0%}", justify="right")
    for name in EVICTORS:
        table.add_row(name, *(f"{row.saved:.1%}" for row in rows if row.policy == name))
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
