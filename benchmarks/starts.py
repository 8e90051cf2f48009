"""Fresh sandboxes and commands in live ones, turn by turn with the raw floor of both."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.figures import Figure, figure
from benchmarks.floor import Floor
from benchmarks.workspace import Workspace

STARTS = 60
COMMANDS = 2000


def run(space: Workspace) -> Iterator[Figure]:
    """Measures starting, closing, `true`, and observing."""
    space.tell("fresh sandboxes, and `true` in a live one")
    floor = Floor(space)
    raw, ours, closing = [], [], []
    for _ in range(space.samples(STARTS)):
        bare, seconds = floor.start()
        raw.append(seconds)
        bare.close()
        space.settle()
        began = time.perf_counter()
        sandbox = space.start()
        sandbox.run("echo ready", timeout=10)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        sandbox.close()
        closing.append(time.perf_counter() - began)
        space.settle()
    yield figure("floor_start", "namespaces + overlay + bash, first output", raw, "ms", floor=True)
    yield figure("start", "fresh sandbox to first output", ours, "ms")
    yield figure("close", "closing it", closing, "ms")

    raw, ours = [], []
    bare, _ = floor.start()
    sandbox = space.start()
    for _ in range(space.samples(COMMANDS)):
        began = time.perf_counter()
        bare.ask("true\necho $?\n")
        raw.append(time.perf_counter() - began)
        began = time.perf_counter()
        sandbox.run("true", timeout=10)
        ours.append(time.perf_counter() - began)
    observing = []
    for _ in range(space.samples(COMMANDS // 10)):
        began = time.perf_counter()
        sandbox.observe()
        observing.append(time.perf_counter() - began)
    bare.close()
    sandbox.close()
    yield figure("floor_true", "`true` in bash through a pipe", raw, "ms", floor=True)
    yield figure("true", "`true` in a live sandbox", ours, "ms", at_most=2)
    yield figure("observe", "observing whether it changed anything", observing, "ms")
