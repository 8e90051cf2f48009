"""How busy this machine is."""

from __future__ import annotations

import os
from pathlib import Path

_LOADAVG = Path("/proc/loadavg")


def crowding() -> float:
    """Returns how many threads want each processor at the moment, at least 1: what they compute takes as much longer.

    The kernel's count of threads that run or could run (proc_loadavg(5)), without the one that asks.
    """
    running, _, _ = _LOADAVG.read_text().split()[3].partition("/")
    return max(1.0, (int(running) - 1) / len(os.sched_getaffinity(0)))
