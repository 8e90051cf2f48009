"""Memory of processes: the arenas of the C library, the proportional share of shared memory, and free memory."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

_M_ARENA_MAX = -8  # of glibc's malloc.h
_LITTLE = 4 << 20  # bytes


def keep_few_arenas() -> bool:
    """Makes all threads of this process share two of glibc's arenas, as MALLOC_ARENA_MAX does; returns success.

    By default each thread gets one of its own, up to eight a processor, and memory freed in one cannot be used by the
    others: with 40 threads, `benchmarks.soak` takes 61 MB without this and 46 MB with it. Call it before threads are
    started. Other C libraries have no arenas.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_ARENA_MAX, 2) == 1


def proportional(pid: int) -> int:
    """Returns the bytes of memory that a process takes, with its part of shared pages.

    Raises OSError if it has ended.
    """
    match = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def occupied(pid: int) -> tuple[int, int]:
    """Returns the resident bytes of a process, and how many of these no file and no other process has.

    Raises OSError if it has ended.
    """
    _, resident, of_files, *_ = map(int, Path(f"/proc/{pid}/statm").read_bytes().split())
    page = os.sysconf("SC_PAGE_SIZE")
    unshared = (resident - of_files) * page
    if unshared > _LITTLE:  # a fork shares memory with its snapshot; to count that takes milliseconds
        match = re.search(rb"^Private_Dirty: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_bytes(), re.MULTILINE)
        unshared = min(unshared, int(match[1]) * 1024) if match else unshared
    return resident * page, unshared


def available() -> int:
    """Returns the bytes of memory that new programs of this machine can have without others losing any."""
    match = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
