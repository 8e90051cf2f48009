"""Ranges of users and groups of this machine, one for each sandbox.

The kernel counts much for each user: buffers of pipes, descriptors in flight, inotify instances, pending signals,
processes. Sandboxes that share no user take none of that from each other. Files on disk always belong to users from
`UID_BASE` on; `owners.c` shows them as those of the sandbox's range.
"""

from __future__ import annotations

import fcntl
import os
import random
import struct
import threading
from pathlib import Path

from tvsnap.images import UID_BASE, UID_COUNT

LOCK = Path("/run/tvsnap.ids")
"""Byte n is locked while somebody on this machine uses the range with number n."""
RANGES = (2**31 - UID_BASE) // UID_COUNT - 1
"""How many there are, 4095: beyond, programs of the host's take users for negative numbers."""
_FLOCK = struct.Struct("@hhqqi4x")


class IdRanges:
    """Takes ranges that nobody else on this machine uses, in whichever process. Thread-safe."""

    def __init__(self) -> None:
        self._file = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._taken: set[int] = set()  # in here: our own locks keep nobody out of this process
        self._next = random.randrange(RANGES)
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """Returns the first user of a range; None if all are in use."""
        with self._lock:
            for _ in range(RANGES):
                number, self._next = self._next, (self._next + 1) % RANGES
                if number not in self._taken and self._set(number, fcntl.F_WRLCK):
                    self._taken.add(number)
                    return UID_BASE + (number + 1) * UID_COUNT
        return None

    def give_back(self, first: int) -> None:
        """Lets others have a range.

        Args:
            first: what `take` returned.
        """
        number = (first - UID_BASE) // UID_COUNT - 1
        with self._lock:
            self._set(number, fcntl.F_UNLCK)
            self._taken.discard(number)

    def close(self) -> None:
        """Lets others have all ranges that were taken here."""
        os.close(self._file)

    def _set(self, number: int, kind: int) -> bool:
        # A lock of the open file, not of the process: it holds against others who have it open in this process, too.
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, number, 1, 0))
        except BlockingIOError:
            return False
        return True
