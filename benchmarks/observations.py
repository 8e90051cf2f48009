"""Observations of sandboxes, one of which follows each call: how long they take, and how much of a processor."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

from benchmarks.figures import Figure, figure
from benchmarks.workspace import Workspace

LOOKS = 200
SUBJECTS = {
    "idle": ("an idle shell", "true"),
    "files": ("1,000 changed files", "mkdir w; for i in {1..1000}; do echo $i > w/$i; done"),
    "sleep": ("`sleep` in the background", "sleep 100000 &"),
    "python": ("a Python prompt in the background", "sleep 100000 | python3 -i >/dev/null 2>&1 &"),
}


def run(space: Workspace) -> Iterator[Figure]:
    """Measures observations, each of which follows a call that changes nothing."""
    for name, (what, command) in SUBJECTS.items():
        space.tell(f"observations of {what}")
        waiting, working = measure(space, command, space.samples(LOOKS))
        yield figure(f"observe_{name}", f"observation: {what}", waiting, "ms")
        yield figure(f"observe_{name}_processor", "... of a processor", working, "ms")


def measure(space: Workspace, command: str, count: int) -> tuple[list[float], list[float]]:
    """Returns how long observations took after `command`, and how much processor time of this machine's programs.

    What PID 1 takes to answer is in the former only.
    """
    sandbox = space.start()
    sandbox.run(command, timeout=60)
    waiting, working = [], []
    for number in range(count + 1):
        sandbox.run("true", timeout=60)
        space.settle()
        children, thread, began = _children(), time.thread_time(), time.perf_counter()
        sandbox.observe()
        if number:  # the first one has nothing to go by
            waiting.append(time.perf_counter() - began)
            working.append(time.thread_time() - thread + _children() - children)
    sandbox.close()
    return waiting, working


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
