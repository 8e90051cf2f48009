"""Rollouts for `benchmarks.eviction`: as they were recorded, more that are like them, and what they need when."""

from __future__ import annotations

import heapq
import itertools
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tvsnap.graph import Edge, Graph
from tvsnap.host.home import GRAPH_FILE
from tvsnap.model.errors import UsageError
from tvsnap.upkeep.rollout_files import PlannedRollout, read_rollouts

THINK = (1.0, 5.0)  # seconds between calls


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a rollout: which, what it took (s), and the size (bytes) of a snapshot behind it; 0: no change."""

    call: str
    seconds: float
    size: int
    proven: bool


@dataclass(slots=True)
class Node:
    """A state: the one above, the call that led here, and how many calls are known that lead on."""

    name: str
    above: Node | None = None
    step: Step | None = None
    children: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """At some second, a sandbox is needed in a state, or (`made`) a call led to it for the first time."""

    at: float
    state: Node
    made: bool


@dataclass(slots=True)
class Branch:
    """Where rollouts of a task stand after the same calls: what they did next, and how often."""

    steps: dict[str, tuple[Step, Branch]] = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)

    def follow(self, step: Step) -> Branch:
        """Returns where a call leads, which is counted."""
        self.taken[step.call] += 1
        return self.steps.setdefault(step.call, (step, Branch()))[1]


def load(files: Sequence[str], home: Path) -> dict[str, list[list[Step]]]:
    """Returns the rollouts' steps by task, as far as the graph knows them.

    Raises:
        UsageError: it knows none.
    """
    planned, _ = read_rollouts(files)
    tasks: dict[str, list[list[Step]]] = defaultdict(list)
    with Graph(home / GRAPH_FILE) as graph:
        sizes = {snapshot.state: snapshot.size for snapshot in graph.snapshots()}
        usual = int(statistics.median(sizes.values())) if sizes else 0
        roots = [root.hash for root in graph.roots()]
        for rollout in planned:
            edges = max((_follow(graph, root, rollout) for root in roots), key=len, default=[])
            if edges:
                tasks[rollout.task].append([_step(edge, sizes.get(edge.next_state, usual)) for edge in edges])
    if not tasks:
        raise UsageError(f"{home} knows none of these rollouts; replay them there first, with --policy eager")
    return dict(tasks)


def _follow(graph: Graph, root: str, rollout: PlannedRollout) -> list[Edge]:
    """Returns what was recorded of a rollout, up to the first call that timed out, or that is not shared."""
    edges: list[Edge] = []
    for call in rollout.calls:
        edge = graph.recorded(edges[-1].next_state if edges else root, rollout.made(call))
        if edge is None:
            break
        edges.append(edge)
    return edges


def _step(edge: Edge, size: int) -> Step:
    return Step(edge.call.key, edge.result.duration, size if edge.changed else 0, edge.proven or not edge.changed)


def arrivals(
    tasks: Mapping[str, list[list[Step]]], epochs: int, novelty: float, chance: random.Random
) -> Iterator[list[Step]]:
    """Yields the rollouts of all epochs in the order in which they begin."""
    branches = {task: Branch() for task in tasks}
    fresh = itertools.count()
    for epoch in range(epochs):
        coming = [(task, steps) for task, known in tasks.items() for steps in known]
        chance.shuffle(coming)
        for task, steps in coming:
            if epoch:
                steps = _like(branches[task], tasks[task], novelty, fresh, chance)
            branch = branches[task]
            for step in steps:
                branch = branch.follow(step)
            branch.follow(END)
            yield steps


END = Step("", 0.0, 0, False)


def _like(
    branch: Branch, known: list[list[Step]], novelty: float, fresh: Iterator[int], chance: random.Random
) -> list[Step]:
    """Returns a rollout that does what others of its task did, until it does something new."""
    steps: list[Step] = []
    while True:
        visits = branch.taken.total()
        if chance.random() < novelty / (visits + novelty):
            rest = chance.choice(known)[len(steps) :]
            return steps + [replace(step, call=f"new {next(fresh)}") for step in rest]
        call = chance.choices(list(branch.taken), list(branch.taken.values()))[0]
        step, branch = branch.steps[call]
        if step is END:
            return steps
        steps.append(step)


def events(coming: Iterable[list[Step]], parallel: int, chance: random.Random) -> list[Event]:
    """Lets rollouts run side by side; returns what they need and make, in the order of time."""
    root = Node("")
    known: dict[tuple[str, str], Node] = {}
    found: list[Event] = []
    waiting = iter(coming)
    order = itertools.count()
    # When each goes on, where it stands, if its own sandbox stands there, and what it will do.
    running: list[tuple[float, int, Node, bool, list[Step]]] = []
    for _ in range(parallel):
        if (steps := next(waiting, None)) is not None:
            heapq.heappush(running, (chance.uniform(*THINK), next(order), root, False, steps))
    while running:
        now, _, node, own, steps = heapq.heappop(running)
        if not steps:
            if (steps := next(waiting, None)) is None:
                continue
            node, own = root, False
        step, rest = steps[0], steps[1:]
        seconds = 0.0
        after = known.get((node.name, step.call))
        if after is None:
            if not own:
                found.append(Event(now, node, made=False))
            own, seconds, after = True, step.seconds, node
            if step.size:
                after = Node(f"{node.name[:24]}/{next(order)}", node, step)
                found.append(Event(now + seconds, after, made=True))
            known[node.name, step.call] = after
        elif after is not node:
            own = False
        heapq.heappush(running, (now + seconds + chance.uniform(*THINK), next(order), after, own, rest))
    return sorted(found, key=lambda event: event.at)
