"""Threads that are bound to some processors (taskset), in forks: CRIU lets them run where it may run itself."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from tvsnap.host.attempts import AttemptFailed
from tvsnap.sandboxes.processes.procfs import inner_pid, insiders


@dataclass(frozen=True, slots=True)
class Bound:
    """Threads that may run on the same processors.

    Attributes:
        processors: their numbers.
        threads: as the sandbox numbers them.
    """

    processors: tuple[int, ...]
    threads: tuple[int, ...]


def note(pids: Iterable[int], init: int) -> list[Bound]:
    """Returns the threads of a sandbox that may run elsewhere than its PID 1.

    Args:
        pids: its processes, none of which runs meanwhile.
        init: its PID 1, as the host sees it.
    """
    usual = os.sched_getaffinity(init)
    found: dict[tuple[int, ...], list[int]] = {}
    for pid in pids:
        for thread in _threads(pid):
            processors = os.sched_getaffinity(thread)
            if processors != usual:
                found.setdefault(tuple(sorted(processors)), []).append(inner_pid(thread))
    return [Bound(processors, tuple(threads)) for processors, threads in found.items()]


def bind(bound: Iterable[Bound], init: int, pids: Iterable[int]) -> None:
    """Binds the threads of a fork, none of which runs yet.

    Args:
        bound: what was noted.
        init: PID 1 of the fork, as the host sees it.
        pids: processes, of which those of the fork are looked at.

    Raises:
        AttemptFailed: they cannot be bound.
    """
    threads = {inner_pid(thread): thread for pid in insiders(init, pids).values() for thread in _threads(pid)}
    try:
        for one in bound:
            for thread in one.threads:
                os.sched_setaffinity(threads[thread], one.processors)
    except (OSError, KeyError) as error:
        told = error.strerror if isinstance(error, OSError) else "one is not there"
        raise AttemptFailed(f"threads could not be bound to processors in a fork: {told}") from None


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError):  # it has ended, in as many threads as it had
        return [int(thread) for thread in os.listdir(f"/proc/{pid}/task")]
    return []
