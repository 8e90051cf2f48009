"""Finds the limits of the process that started tvsnap which sandboxes inherit and cannot change."""

from __future__ import annotations

import os
import subprocess

from tvsnap.host import native


def unusual() -> list[str]:
    """Returns, in words, the resources of which this process has less than the first process of this machine.

    Commands can see the difference (`nproc`, `ulimit`), so states are shared only among processes with the same
    difference. The limits are those of `resource_limits.h` that this process cannot raise; with CAP_SYS_RESOURCE it can
    raise all.
    """
    run = subprocess.run([native.LAUNCH, "lacks"], capture_output=True, text=True, check=True)
    limits = run.stdout.splitlines()
    processors = os.sched_getaffinity(os.getpid())
    if processors != os.sched_getaffinity(1):
        limits.append(f"processors {sorted(processors)}")
    return limits
