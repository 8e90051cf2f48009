"""Reads the clocks of processes.

A fork runs in a time namespace: clocks that count from the machine's boot continue there from the snapshot, also after
a reboot. So a time must be compared with the clock of its source: a process, or the kernel, which times by the clocks
of no namespace. Times in /proc, such as the start of a process, are by the clock of the process that reads them.
"""

from __future__ import annotations

import functools
import os
import time

CLOCKS = {0: time.CLOCK_REALTIME, 1: time.CLOCK_MONOTONIC, 7: time.CLOCK_BOOTTIME, 11: time.CLOCK_TAI}
"""The clocks that do not count processor time, by the kernel's numbers."""
_SHIFTED = {1: "monotonic", 7: "boottime"}
"""The clocks among them that have an offset in each time namespace."""
_SECOND = 1_000_000_000  # nanoseconds
_TICK = 1 / os.sysconf("SC_CLK_TCK")


def shown_to(pid: int, clock: int) -> int:
    """Returns the time of a clock of `CLOCKS` for a process, ns; raises OSError if that is unknown, or it has ended."""
    if clock not in _SHIFTED or _namespace("self") == _namespace(str(pid)):
        return time.clock_gettime_ns(CLOCKS[clock])
    return of_the_kernel(clock) + _shifts(str(pid))[clock]


def of_the_kernel(clock: int) -> int:
    """Returns the time of a clock of `CLOCKS` outside of all time namespaces, ns; raises OSError if that is unknown."""
    return time.clock_gettime_ns(CLOCKS[clock]) - _own_shifts().get(clock, 0)


def age_of(start: int) -> float:
    """Returns a process' or thread's age in seconds, given its starttime (proc(5)) as this process reads it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start * _TICK


def _namespace(process: str) -> str:
    """Returns the name of a process' time namespace; empty if the kernel has no time namespaces."""
    try:
        return os.readlink(f"/proc/{process}/ns/time")
    except FileNotFoundError:
        if os.path.lexists("/proc/self/ns/time"):
            raise
        return ""


def _shifts(process: str) -> dict[int, int]:
    """Returns the offsets of a process' time namespace from the kernel's clocks, ns."""
    namespace = _namespace(process)
    if not namespace:
        return dict.fromkeys(_SHIFTED, 0)
    # timens_offsets describes the namespace of the process' children, which nearly always is its own.
    if os.readlink(f"/proc/{process}/ns/time_for_children") != namespace:
        raise OSError(f"process {process} has made a time namespace for its children")
    with open(f"/proc/{process}/timens_offsets") as offsets:
        values = {name: int(seconds) * _SECOND + int(rest) for name, seconds, rest in map(str.split, offsets)}
    return {clock: values[name] for clock, name in _SHIFTED.items()}


@functools.cache
def _own_shifts() -> dict[int, int]:
    """See `_shifts`; cached, because a process with threads cannot change its time namespace."""
    return _shifts("self")
