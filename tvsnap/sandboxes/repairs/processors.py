"""Saves and restores the CPU affinity of threads (taskset), which CRIU gives its own affinity in a fork."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tvsnap.host.attempts import AttemptFailed
from tvsnap.sandboxes.kernel.procfs import inner_pid, insiders
from tvsnap.sandboxes.repairs.repair import Fork, Frozen


@dataclass(frozen=True, slots=True)
class Bound:
    """Threads, by their ids in the sandbox, that have the same CPU affinity."""

    processors: tuple[int, ...]
    threads: tuple[int, ...]


def note(pids: Iterable[int], init: int) -> list[Bound]:
    """Returns the threads of a sandbox with another CPU affinity than its PID 1; none of them runs meanwhile."""
    usual = os.sched_getaffinity(init)
    by_processors: dict[tuple[int, ...], list[int]] = {}
    for pid in pids:
        for thread in _threads(pid):
            processors = os.sched_getaffinity(thread)
            if processors != usual:
                by_processors.setdefault(tuple(sorted(processors)), []).append(inner_pid(thread))
    return [Bound(processors, tuple(threads)) for processors, threads in by_processors.items()]


def bind(bound: Iterable[Bound], init: int, pids: Iterable[int]) -> None:
    """Sets the CPU affinity of a fork's threads, none of which runs yet; `pids` may include other sandboxes' processes.

    Raises AttemptFailed if that is impossible.
    """
    threads = {inner_pid(thread): thread for pid in insiders(init, pids).values() for thread in _threads(pid)}
    try:
        for one in bound:
            for thread in one.threads:
                os.sched_setaffinity(threads[thread], one.processors)
    except (OSError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else "one is not there"
        raise AttemptFailed(f"threads could not be bound to processors in a fork: {reason}") from None


@dataclass(frozen=True, slots=True)
class Affinities:
    """See `Repair`: the threads with their own CPU affinity."""

    bound: tuple[Bound, ...] = ()

    @classmethod
    def note(cls, frozen: Frozen) -> Affinities | None:
        """See `Repair.note`."""
        bound = note(frozen.pids, frozen.init)
        return cls(tuple(bound)) if bound else None

    @classmethod
    def from_json(cls, manifest: Mapping[str, Any]) -> Affinities | None:
        """See `Repair.from_json`."""
        entries = manifest.get("bound", ())
        bound = tuple(Bound(**{name: tuple(value) for name, value in one.items()}) for one in entries)
        return cls(bound) if bound else None

    def to_json(self) -> dict[str, Any]:
        """See `Repair.to_json`."""
        return {"bound": [asdict(one) for one in self.bound]}

    def bring_back(self, fork: Fork) -> None:
        """See `Repair.bring_back`."""
        bind(self.bound, fork.init, fork.pids())


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError):  # it has ended, with all its threads
        return [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
    return []
