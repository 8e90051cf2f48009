"""Counts what each operation does, in a process of its own, in which nothing else runs."""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

from rich.console import Console

from benchmarks.workspace import workspace
from tests.counts.counters import CannotCount, KernelCounter, PythonCalls
from tests.counts.operations import OPERATIONS, Step, nothing
from tvsnap.engine.conclusion import conclusion
from tvsnap.engine.supply import companions
from tvsnap.graph import pending
from tvsnap.host import load
from tvsnap.host.home import SYSTEM_HOME

ROOT = Path(__file__).parents[2]
CALLS = "Python calls"
KEPT = ("HOME", "PATH", "TMPDIR", "TVSNAP_CRIU", "TVSNAP_HOME", "XDG_CACHE_HOME")
"""Environment variables that matter. The others are left out: each costs something where a program is started."""


@dataclass(frozen=True)
class Measured:
    """What was counted.

    Attributes:
        counts: by operation, then by what is counted: one for each repetition.
        lack: why nothing but Python calls was counted; empty if all was.
    """

    counts: Mapping[str, Mapping[str, Sequence[int]]]
    lack: str

    def lowest(self, operation: str) -> Mapping[str, int]:
        """Returns the lowest counts of an operation, by what is counted: a busy machine makes some of them higher."""
        return {what: min(counts) for what, counts in self.counts[operation].items()}


def measure(images: Path | None = None) -> Measured:
    """Counts all operations.

    Args:
        images: the data directory that has the image; by default the usual one. Where it has none, one is built.

    Raises:
        RuntimeError: an operation failed; the message holds what the process said.
    """
    environment = {"TVSNAP_HOME": str(SYSTEM_HOME), **{name: os.environ[name] for name in KEPT if name in os.environ}}
    if images is not None:
        environment["TVSNAP_HOME"] = str(images)
    command = [sys.executable, "-m", "tests.counts.measuring"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"nothing was counted:\n{run.stderr}")
    return Measured(**json.loads(run.stdout))


def functions(operation: str) -> Counter[str]:
    """Returns how often an operation calls which functions, in its last repetition, in this process."""
    calls = PythonCalls()
    with workspace(quick=True, console=Console(stderr=True)) as space:
        for step in OPERATIONS[operation](space):
            made = calls.of(step.operate, step.settle)
    return Counter(f"{code.co_filename}:{code.co_firstlineno} {code.co_name}" for code in made)


def _measure_here() -> Measured:
    """Counts all operations in this process, which has started no thread yet."""
    read: Callable[[], Mapping[str, int]] = dict
    lack = ""
    try:
        read = KernelCounter().read
    except CannotCount as error:
        lack = str(error)
    calls = PythonCalls()
    # Else it depends on the time between two operations whether it is looked how busy all is, and a thread is woken;
    # and on how busy all is, whether processes are recorded before it is known that they need to be.
    load.LOOK_AGAIN, companions.THINKING, conclusion.THINKING = math.inf, 3600.0, 3600.0
    load._FRESH = math.inf  # on a busy machine what processes waited would be read once more in a call
    pending.FLUSH_AFTER_SECONDS = 3600.0
    gc.disable()  # else objects end in one repetition or the next
    busy = mock.patch.object(load, "is_idle", _is_busy)
    with busy, workspace(quick=True, console=Console(stderr=True)) as space:
        own = {what: min(counts) for what, counts in _counts(nothing(space), read, calls).items()}
        found = {name: _counts(operation(space), read, calls) for name, operation in OPERATIONS.items()}
    less = {
        name: {what: [count - own[what] for count in counts] for what, counts in seen.items()}
        for name, seen in found.items()
    }
    return Measured(less, lack)


def _is_busy() -> bool:
    return False


def _counts(
    steps: Iterator[Step], read: Callable[[], Mapping[str, int]], calls: PythonCalls
) -> Mapping[str, Sequence[int]]:
    """Returns what was counted in each repetition."""
    counts: dict[str, list[int]] = {}
    for step in steps:
        gc.collect()
        before = read()
        made = calls.of(step.operate, step.settle)
        after = read()
        for what, count in {CALLS: len(made), **{what: after[what] - before[what] for what in after}}.items():
            counts.setdefault(what, []).append(count)
    return counts


if __name__ == "__main__":
    print(json.dumps(asdict(_measure_here())))
