"""The load of this machine, and the delays of its processes."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_LOADAVG = "/proc/loadavg"
_STAT = "/proc/stat"
_TICKS = os.sysconf("SC_CLK_TCK")
_PRESSURE = "/proc/pressure/cpu"
_LONGEST = 4096
LOOK_AGAIN = 0.05  # seconds between two measurements of the processors' load
STEADY = 0.5  # seconds over which the load is averaged: all rollouts of a group begin at once
BUSY = 0.85  # share of the processors' time above which they are short
CROWDED = 2.5  # runnable threads for each processor, above which they are short at once
_FRESH = 0.02
"""Seconds for which the machine's waiting time is not read again: many sandboxes need it at once."""


class Load(NamedTuple):
    """The delays of the processes of a control group so far; the difference of two is that of the time between.

    Attributes:
        throttled: seconds for which it was stopped, because it had used up its processor quota.
        waited: seconds during which a runnable thread waited for a processor: of the group if the kernel counts that
            for each (control groups of version 2), else of the whole machine, up to `_FRESH` seconds ago; 0 if the
            kernel does not count it.
        used: seconds of processor time that its processes have used; 0 if that is not known.
    """

    throttled: float = 0.0
    waited: float = 0.0
    used: float = 0.0

    def __sub__(self, earlier: Load) -> Load:
        return Load(self.throttled - earlier.throttled, self.waited - earlier.waited, self.used - earlier.used)


class LoadGauge:
    """Reads the `Load` of the control group that a process is in."""

    def __init__(self, pid: int, *, limited: bool = True) -> None:
        """
        Args:
            pid: the process, as this machine sees it.
            limited: whether its group may have a processor quota.
        """
        group = _group(pid, "cpu") or _group(pid, "")
        self._stat = "" if group is None else f"{group}/cpu.stat"
        own = "" if group is None else f"{group}/cpu.pressure"
        self._pressure = own if os.path.exists(own) else _PRESSURE
        counting = _group(pid, "cpuacct")  # of version 1; version 2 counts processor time in `cpu.stat`
        self._usage = "" if counting is None else f"{counting}/cpuacct.usage"
        if self._usage and not limited:
            self._stat = ""

    def read(self) -> Load:
        """Returns the load so far, with zeros for unknown values."""
        throttled, used = _of_stat(_read(self._stat))
        if self._usage:
            used = int(_read(self._usage) or 0) / 1e9
        waited = _machine_waited() if self._pressure == _PRESSURE else _waited(_read(self._pressure))
        return Load(throttled, waited, used)


def busy_seconds() -> float:
    """Returns the seconds for which all processors of this machine together have been busy since it was started.

    0 if the kernel does not tell (proc_stat(5)).
    """
    fields = [int(field) for field in _read(_STAT, 256).partition("\n")[0].split()[1:9]]
    return (sum(fields) - sum(fields[3:5])) / _TICKS  # without those that were idle, or waited for disks


def crowding() -> float:
    """Returns the runnable threads for each processor now, at least 1: computations take as many times longer.

    The kernel's count of threads that run or could run (proc_loadavg(5)), without the calling one.
    """
    return max(1.0, running() / len(os.sched_getaffinity(0)))


def is_idle() -> bool:
    """Returns whether a processor of this machine is idle now."""
    return running() + 1 < len(os.sched_getaffinity(0))


def running() -> int:
    """Returns the number of threads of this machine that run or could run now, without the calling one."""
    threads, _, _ = _read(_LOADAVG).split()[3].partition("/")
    return int(threads) - 1


class Processors:
    """Tells whether the processors of this machine are short: work for one rollout then delays others. Thread-safe."""

    def __init__(
        self,
        *,
        busy_seconds: Callable[[], float] = busy_seconds,
        crowding: Callable[[], float] = crowding,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            busy_seconds: returns the seconds for which the processors have been busy.
            crowding: returns the runnable threads for each processor, at least 1.
            clock: returns the time in seconds.
        """
        self._busy_seconds = busy_seconds
        self._crowding = crowding
        self._clock = clock
        self._lock = threading.Lock()
        self._looked, self._busy_s = clock(), busy_seconds()
        self._busy, self._crowded = 0.0, 1.0

    @property
    def short(self) -> bool:
        """Whether they have been busy lately, or several threads compete for each of them now."""
        self._look()
        return self._busy > BUSY or self._crowded >= CROWDED

    def _look(self) -> None:
        now = self._clock()
        with self._lock:
            passed = now - self._looked
            if passed < LOOK_AGAIN:
                return
            before, self._looked, self._busy_s = self._busy_s, now, self._busy_seconds()
            busy = min(1.0, (self._busy_s - before) / (passed * (os.cpu_count() or 1)))
            self._busy += min(1.0, passed / STEADY) * (busy - self._busy)
            self._crowded = self._crowding()


def _group(pid: int, controller: str) -> Path | None:
    """Returns the directory of a process' control group of version 1, by controller, or of version 2, by no name.

    None if there is none.
    """
    groups = {}
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))  # of version 2, the name is empty
    where = _hierarchy(controller)
    return Path(where + groups[controller]) if where and controller in groups else None


@functools.cache
def _hierarchy(controller: str) -> str | None:
    """Returns the mount point of a controller's control groups (version 2 for an empty name); None if there is none."""
    for line in _read("/proc/self/mounts", 1 << 20).splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup" and controller in options.split(",") if controller else kind == "cgroup2":
            return where
    return None


def _of_stat(stat: str) -> tuple[float, float]:
    """Returns the seconds of throttling and of processor time of a file `cpu.stat`; version 1 lacks the latter."""
    throttled = used = 0.0
    for line in stat.splitlines():
        name, _, value = line.partition(" ")
        if name == "usage_usec":
            used = int(value) / 1e6
        elif name == "throttled_usec":  # version 2
            throttled = int(value) / 1e6
        elif name == "throttled_time":  # version 1
            throttled = int(value) / 1e9
    return throttled, used


def _waited(pressure: str) -> float:
    """Returns the seconds of `some` (the kernel's accounting/psi.rst)."""
    return int(pressure.partition("total=")[2].partition("\n")[0]) / 1e6 if pressure.startswith("some") else 0.0


def _machine_waited() -> float:
    """Returns the seconds during which a thread of this machine waited for a processor, up to `_FRESH` seconds ago."""
    global _last_waited
    when, seconds = _last_waited
    if time.monotonic() - when > _FRESH:
        seconds = _waited(_read(_PRESSURE))
        _last_waited = (time.monotonic(), seconds)
    return seconds


_last_waited = (-math.inf, 0.0)


def _read(path: str, most: int = _LONGEST) -> str:
    """Returns the contents of a file of the kernel; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, most).decode(errors="replace")
        finally:
            os.close(descriptor)
    return ""
