"""For how long no snapshots are tried after one failed: of the sandbox where it did, or of all.

What a checkpoint says of its failure may be a sandbox's own doing, be it by chance or on purpose. So one sandbox delays
its own snapshots only. All are delayed where the host itself has seen that there is no room, and where checkpoints of
several sandboxes failed one after the other while none succeeded, of whichever sandbox.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

RETRY_AFTER = 60.0  # seconds, where there is no room; the longest delay
SHORTEST_PAUSE = 1.0  # seconds after a failure; twice as long each time that it fails again
INDEPENDENT = 3  # sandboxes, after whose failures in a row it is taken for the machine's doing
_REMEMBERED = 10_000  # sandboxes


class _Pause:
    """A time without tries, longer each time that it begins anew before a success."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._until = 0.0

    def __bool__(self) -> bool:
        return time.monotonic() < self._until

    def begin(self, seconds: float = 0.0) -> None:
        self._seconds = min(max(2 * self._seconds, SHORTEST_PAUSE, seconds), RETRY_AFTER)
        self._until = time.monotonic() + self._seconds


class Pauses:
    """When no snapshots are tried, by the ids of sandboxes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all = _Pause()
        self._of: OrderedDict[str, _Pause] = OrderedDict()
        self._failed: set[str] = set()

    def __contains__(self, sandbox: str) -> bool:
        with self._lock:
            return bool(self._all or self._of.get(sandbox))

    def failed(self, sandbox: str) -> None:
        """Says that a snapshot of a sandbox failed, for a reason that is not known to be the state's."""
        with self._lock:
            self._of.setdefault(sandbox, _Pause()).begin()
            self._of.move_to_end(sandbox)
            while len(self._of) > _REMEMBERED:
                self._of.popitem(last=False)
            self._failed.add(sandbox)
            if len(self._failed) >= INDEPENDENT:
                self._failed.clear()
                self._all.begin()

    def no_room(self) -> None:
        """Says that the host has no room for any."""
        with self._lock:
            self._all.begin(RETRY_AFTER)

    def succeeded(self, sandbox: str) -> None:
        """Says that a snapshot of a sandbox was taken."""
        with self._lock:
            self._of.pop(sandbox, None)
            self._failed.clear()
            self._all = _Pause()

    def end(self) -> None:
        """Lets snapshots be tried at once again."""
        with self._lock:
            self._of.clear()
            self._failed.clear()
            self._all = _Pause()
