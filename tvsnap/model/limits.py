"""What a sandbox may use."""

from __future__ import annotations

from dataclasses import dataclass

from tvsnap.model.arguments import check_number, check_whole

MIB = 1024 * 1024
LEAST_MEMORY = 6 * MIB
"""What a sandbox needs to run anything at all; Docker takes no less either."""
LEAST_PROCESSES = 4
"""Its PID 1, its shell, and a pipeline of two."""
MOST_PROCESSES = 1 << 22
"""As many as Linux can number."""
LEAST_CPUS = 0.01
"""The smallest share of a processor that Linux can give out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox may use. What goes beyond a limit fails inside the sandbox.

    Attributes:
        memory: memory in bytes, at least 6 MiB.
        processes: how many processes and threads there may be at once, at least 4.
        cpus: processor time, as a number of processors, at least 0.01; 0 for no limit.
        output: the length of one call's output in bytes; a longer one is cut in the middle.
        disk: how many bytes its files may take beyond the image; 0 for no limit. `tvsnap doctor` tells whether the
            backend can enforce this limit on this machine; where it cannot, there is none.

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
