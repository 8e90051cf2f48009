"""The limits of a sandbox, and of a cache."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tvsnap.model.arguments import check_number, check_whole

MIB = 1024 * 1024
MOST_FETCHED = 4 << 30
"""Default limit for the bytes of files that are fetched from a sandbox; holes count as zeros."""
LEAST_MEMORY = 6 * MIB
"""Bytes that a sandbox needs to run anything at all; Docker accepts no less either."""
LEAST_PROCESSES = 4
"""Processes that a sandbox needs: its PID 1, its shell, and a pipeline of two."""
MOST_PROCESSES = 1 << 22
"""Processes that Linux can number."""
LEAST_CPUS = 0.01
"""The smallest share of a processor that Linux can limit a sandbox to."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one sandbox. Operations beyond a limit fail inside the sandbox.

    Attributes:
        memory: memory in bytes, at least 6 MiB.
        processes: processes and threads at once, at least 4.
        cpus: processor time, as a number of processors, at least 0.01; 0 for no limit.
        output: the length of one call's output in bytes; a longer one is cut in the middle.
        disk: bytes that its files may take beyond the image; 0 for no limit. `tvsnap doctor` tells whether the backend
            can enforce this limit on this machine; if it cannot, there is none.

    Raises:
        UsageError: a limit is out of its range.
    """

    memory: int = 2048 * MIB
    processes: int = 512
    cpus: float = 0.0
    output: int = 256 * 1024
    disk: int = 10240 * MIB

    def __post_init__(self) -> None:
        check_whole(self.memory, "Limits.memory", LEAST_MEMORY)
        check_whole(self.processes, "Limits.processes", LEAST_PROCESSES, MOST_PROCESSES)
        check_whole(self.output, "Limits.output", 1)
        check_whole(self.disk, "Limits.disk", 0)
        if self.cpus != 0 or isinstance(self.cpus, bool):
            check_number(self.cpus, "Limits.cpus, which is 0 for no limit,", LEAST_CPUS)


@dataclass(frozen=True, slots=True)
class GroupedLimits(Limits):
    """The limits of a sandbox that shares processors with others: those of a group have its part together.

    Attributes:
        group: the group's name, letters, digits, - and _; those of no owner have the empty name.
        part: the group's part of the processors while they are all busy, more than 0 and at most 1.
    """

    group: str = ""
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a cache. None stands for no limit, unless an attribute says otherwise.

    A limit that is reached stops snapshots, never a rollout.

    Attributes:
        disk: bytes that the snapshots of the cache's backend may take, of all processes on the data directory
            together. The snapshots that save least time for each byte are evicted. None for half of the free space on
            the file system of the data directory when the cache is opened, these snapshots included.
        snapshots: the greatest number of these snapshots.
        memory: bytes of memory that the sandboxes of this process may take together (proportional memory, measured
            between calls). Idle sandboxes are closed, and made again when they are needed. One rollout can always go
            on. Memory that forks share counts by their parts of it, and is a quarter of the machine's at most.
        sandboxes: the greatest number of live sandboxes in this process. A call that needs one more waits.
        parked: the greatest number of parked ones: unused, and kept for rollouts that come to their states. A sandbox
            in which programs run, other than those of a service, is not parked: they would use the processor, and
            change its state.
        parked_memory: bytes of memory that the parked sandboxes, and those that were made ahead of time, may take
            together.
        reserve: bytes that are left free on the file system of the data directory: with less, no snapshots are taken.
            None for a tenth of the file system, and 8 GiB at most.

    Raises:
        UsageError: a number is out of its range.
    """

    disk: int | None = None
    snapshots: int | None = None
    memory: int | None = None
    sandboxes: int = 256
    parked: int = 32
    parked_memory: int = 2048 * MIB
    reserve: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            required = field.name in ("sandboxes", "parked", "parked_memory")
            if required or value is not None:
                check_whole(value, f"Budget.{field.name}", 1 if field.name == "sandboxes" else 0)

    def compare(self, **used: int) -> dict[str, tuple[int, int | None]]:
        """Returns the use and the limit of resources, by the names of the attributes; None for no limit."""
        return {name: (value, getattr(self, name)) for name, value in used.items()}
