"""What sandboxes have from who started tvsnap, and cannot be given otherwise."""

from __future__ import annotations

import os
import subprocess

from tvsnap.host import native


def unusual() -> list[str]:
    """Returns in what this process has less than the first process of this machine, in words.

    Commands can see it (`nproc`, `ulimit`), so states are shared only among processes of which it is the same. The
    limits are those of `resource_limits.h` that this process may not raise: with CAP_SYS_RESOURCE there are none.
    """
    run = subprocess.run([native.LAUNCH, "lacks"], capture_output=True, text=True, check=True)
    found = run.stdout.splitlines()
    processors = os.sched_getaffinity(os.getpid())
    if processors != os.sched_getaffinity(1):
        found.append(f"processors {sorted(processors)}")
    return found
