"""Clocks as a process sees them.

A fork lives in a time namespace: the clocks that count from the machine's start go on there as they did in the
snapshot, also after another start of the machine. So a moment is compared with the clock of whoever gave it: a process,
or the kernel, whose timers go by clocks of no namespace. Moments that /proc tells, such as when a process began, are by
the clock of whoever reads them.
"""

from __future__ import annotations

import functools
import os
import time

CLOCKS = {0: time.CLOCK_REALTIME, 1: time.CLOCK_MONOTONIC, 7: time.CLOCK_BOOTTIME, 11: time.CLOCK_TAI}
"""Those that run without anyone's processor time, by the kernel's numbers of them."""
_SHIFTED = {1: "monotonic", 7: "boottime"}
"""Those of them that each time namespace has of its own."""
_SECOND = 1_000_000_000  # nanoseconds
_TICK = 1 / os.sysconf("SC_CLK_TCK")


def shown_to(pid: int, clock: int) -> int:
    """Returns what a clock shows to a process, nanoseconds.

    Args:
        pid: the process, as the host sees it.
        clock: one of `CLOCKS`.

    Raises:
        OSError: that cannot be told, or the process has ended.
    """
    if clock not in _SHIFTED or _namespace("self") == _namespace(str(pid)):
        return time.clock_gettime_ns(CLOCKS[clock])
    return of_the_kernel(clock) + _shifts(str(pid))[clock]


def of_the_kernel(clock: int) -> int:
    """Returns what a clock shows outside of all time namespaces, nanoseconds.

    Args:
        clock: one of `CLOCKS`.

    Raises:
        OSError: that cannot be told.
    """
    return time.clock_gettime_ns(CLOCKS[clock]) - _own_shifts().get(clock, 0)


def age_of(start: int) -> float:
    """Returns for how long a process or thread has lived, in seconds.

    Args:
        start: when it began, as /proc tells this process (starttime in proc(5)).
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start * _TICK


def _namespace(process: str) -> str:
    """Returns the name of a process' time namespace; empty where the kernel has no such namespaces."""
    try:
        return os.readlink(f"/proc/{process}/ns/time")
    except FileNotFoundError:
        if os.path.lexists("/proc/self/ns/time"):
            raise
        return ""


def _shifts(process: str) -> dict[int, int]:
    """Returns by how much clocks are ahead of the kernel's in a process' time namespace, nanoseconds."""
    namespace = _namespace(process)
    if not namespace:
        return dict.fromkeys(_SHIFTED, 0)
    # What is told is true of the namespace that its children will have; nearly always that is its own.
    if os.readlink(f"/proc/{process}/ns/time_for_children") != namespace:
        raise OSError(f"process {process} has made a time namespace for its children")
    with open(f"/proc/{process}/timens_offsets") as offsets:
        told = {name: int(seconds) * _SECOND + int(rest) for name, seconds, rest in map(str.split, offsets)}
    return {clock: told[name] for clock, name in _SHIFTED.items()}


@functools.cache
def _own_shifts() -> dict[int, int]:
    """See `_shifts`. A process with threads stays in its namespace."""
    return _shifts("self")
