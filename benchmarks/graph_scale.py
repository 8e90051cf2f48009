"""What a hit costs as the graph grows, and what recording a call costs.

The graph has the shape of real ones: trees of rollouts of 20 calls, of which two in five change nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvsnap.graph import Graph, NewEdge, RootInfo
from tvsnap.model.calls import ToolCall, ToolResult, next_state, root_state

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LOOKUPS = 20_000
EDGES_PER_TASK = 1_000
CALLS_PER_ROLLOUT = 20
MEDIAN_OUTPUT = 300  # characters; the mean is about twice that
KEPT = 100_000  # calls remembered for the lookups


class Growth:
    """A graph that grows by made-up rollouts, and a fair sample of the calls in it."""

    def __init__(self, graph: Graph) -> None:
        self.edges = 0
        self.sample: list[tuple[str, ToolCall]] = []
        self._graph = graph
        self._state = ""
        self._states: list[str] = []
        self._random = random.Random(20)
        self._text = "".join(self._random.choices("abcdefghij klmnopqrst/uvwxyz0123456789\n", k=1 << 16))

    def grow(self, edges: int) -> list[float]:
        """Records calls until there are `edges`; returns the seconds that each record took."""
        seconds = []
        while self.edges < edges:
            if self.edges % EDGES_PER_TASK == 0:
                self._states = [self._new_root()]
            if self.edges % CALLS_PER_ROLLOUT == 0:
                self._state = self._random.choice(self._states)
            state = self._state
            call = ToolCall("bash", {"command": f"cd /app && python3 step.py --number {self.edges}"})
            after = state if self._random.random() < 0.4 else next_state(state, call)
            result = ToolResult.of_text(self._output(), 0, self._random.expovariate(2.0))
            begin = time.perf_counter()
            task = f"task-{self.edges // EDGES_PER_TASK}"
            self._graph.record(
                NewEdge(state, call, result, next_state=after, task=task, proven=True)
            )  # else it answers nothing
            seconds.append(time.perf_counter() - begin)
            self._keep(state, call)
            self.edges += 1
            if after != state:
                self._states.append(after)
            self._state = after
        return seconds

    def _new_root(self) -> str:
        salt = str(self.edges)
        root = root_state(
            image="made-up", environment="terminal", version="1", limits="", network="none", platform="", salt=salt
        )
        self._graph.ensure_root(RootInfo(root, "made-up", "made-up", "terminal", "", salt, time.time()))
        return root

    def _output(self) -> str:
        length = min(int(self._random.lognormvariate(0, 1.2) * MEDIAN_OUTPUT), len(self._text) // 2)
        start = self._random.randrange(len(self._text) // 2)
        return self._text[start : start + length]

    def _keep(self, state: str, call: ToolCall) -> None:
        if len(self.sample) < KEPT:
            self.sample.append((state, call))
        elif (place := self._random.randrange(self.edges + 1)) < KEPT:
            self.sample[place] = (state, call)


def microseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Returns median, 90th and 99th percentile of durations given in seconds."""
    ordered = sorted(seconds)
    return {
        "p50": round(statistics.median(ordered) * 1e6, 1),
        "p90": round(ordered[int(len(ordered) * 0.9)] * 1e6, 1),
        "p99": round(ordered[int(len(ordered) * 0.99)] * 1e6, 1),
    }


def lookups(graph: Graph, sample: Sequence[tuple[str, ToolCall]], *, answered: bool = True) -> list[float]:
    """Returns the seconds that each lookup took, from the call's name and arguments to its result, or to none."""
    seconds = []
    for state, known in sample:
        name, arguments = known.name, known.arguments
        begin = time.perf_counter()
        edge = graph.lookup(state, ToolCall(name, arguments), 1e6)
        seconds.append(time.perf_counter() - begin)
        assert (edge is not None) == answered
    return seconds


def run(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Measures graphs of each of `sizes` edges, one grown into the next.

    Returns:
        `sizes`: a list of rows with `edges`; `hit_us` for calls drawn at random, `warm_hit_us` for a hundred of them
        over and over, `miss_us`, `record_us`, each with `p50`, `p90` and `p99` in microseconds; and `bytes_per_edge`
        on disk.
    """
    rows = []
    with tempfile.TemporaryDirectory(prefix="tvsnap-bench-") as directory:
        path = Path(directory) / "tvsnap.db"
        with Graph(path) as graph:
            growth = Growth(graph)
            for size in sizes:
                recorded = growth.grow(size)
                drawn = random.Random(size).choices(growth.sample, k=LOOKUPS)
                elsewhere = [(state, ToolCall("bash", {"command": "never run"})) for state, _ in drawn]
                rows.append(
                    {
                        "edges": size,
                        "hit_us": microseconds(lookups(graph, drawn)),
                        "warm_hit_us": microseconds(lookups(graph, drawn[:100] * (LOOKUPS // 100))),
                        "miss_us": microseconds(lookups(graph, elsewhere, answered=False)),
                        "record_us": microseconds(recorded[-LOOKUPS:]),
                        "bytes_per_edge": round(path.stat().st_size / size),
                    }
                )
    return {"sizes": rows}


def main() -> None:
    """Prints the measurements as a table, or as JSON with `--json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--edges", type=int, default=SIZES[-1], help="size of the largest graph")
    arguments = parser.parse_args()
    measured = run([size for size in SIZES if size <= arguments.edges])
    if arguments.json:
        print(json.dumps(measured, indent=2))
        return
    kinds = ("hit_us", "warm_hit_us", "miss_us", "record_us")
    print(f"{'edges':>9}" + "".join(f"{kind:>16}" for kind in kinds) + f"{'bytes/edge':>12}")
    for row in measured["sizes"]:
        cells = (f"{row[kind]['p50']:.1f} ({row[kind]['p99']:.0f})" for kind in kinds)
        print(f"{row['edges']:>9}" + "".join(f"{cell:>16}" for cell in cells) + f"{row['bytes_per_edge']:>12}")
    print("median (99th percentile), microseconds")


if __name__ == "__main__":
    main()
