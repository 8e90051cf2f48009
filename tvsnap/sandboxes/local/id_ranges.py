"""Ranges of the host's user and group ids, one for each sandbox.

The kernel limits many things by user: pipe buffers, descriptors in flight, inotify instances, pending signals,
processes. Sandboxes that share no user take none of that from each other. Files on disk always belong to users from
`UID_BASE` on; `owners.c` shows them as those of the sandbox's range.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
from pathlib import Path

from tvsnap.host.locks import release
from tvsnap.model.images import UID_BASE, UID_COUNT

LOCKS = Path("/run/tvsnap-users")
"""File n in this directory is locked while a process of this machine uses range n."""
RANGES = (2**31 - UID_BASE) // UID_COUNT - 1
"""Number of ranges, 4095: programs on the host misread higher user ids as negative numbers."""


class IdRanges:
    """Takes ranges that no process of this machine uses. Thread-safe."""

    def __init__(self) -> None:
        """Prepares the directory of locks; raises OSError if that is impossible."""
        LOCKS.mkdir(mode=0o700, exist_ok=True)
        self._descriptors: dict[int, int] = {}  # number of a range -> descriptor of its file
        self._next = random.randrange(RANGES)
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """Returns the first user of a range; None if all are in use, or no more files can be opened."""
        with self._lock:
            for _ in range(RANGES):
                number, self._next = self._next, (self._next + 1) % RANGES
                if number in self._descriptors:
                    continue
                try:
                    self._descriptors[number] = _lock_file(LOCKS / str(number))
                except BlockingIOError:
                    continue
                except OSError:
                    break
                return UID_BASE + (number + 1) * UID_COUNT
        return None

    def give_back(self, first: int) -> None:
        """Releases a range, given its first user."""
        with self._lock:
            descriptor = self._descriptors.pop((first - UID_BASE) // UID_COUNT - 1, None)
            if descriptor is not None:  # otherwise it was released before
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for processes that were forked meanwhile
                os.close(descriptor)

    def close(self) -> None:
        """Releases all ranges that were taken here."""
        with self._lock:
            while self._descriptors:
                release(self._descriptors.popitem()[1])


def _lock_file(path: Path) -> int:
    """Returns a descriptor of a file that nobody else has locked; raises BlockingIOError if somebody has.

    This uses flock, because fcntl's open file description locks are visible in /proc/locks of every container.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
