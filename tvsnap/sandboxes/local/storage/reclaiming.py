"""Giving back to the disk what the file of a pool holds no longer.

The kernel could do so by itself (`discard`), but would give back the regions of trees as well. Those stay: a full disk
must not keep a file system from writing its trees.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

from tvsnap.sandboxes.local.storage import btrfs

_SOON, _PATIENCE = 30.0, 4
"""Seconds until something is given back, in the background; so often, if the kernel did not clear it away before."""
_POLL = 0.05
_SLICE = 64 << 20
"""Bytes looked at at a time: a hole takes up to 0.5 ms, and `close` waits for one slice."""
_LEAST_PIECE, _SMALLEST_PIECE = 64 << 10, 4 << 10
"""Bytes: what is given back in passing, and when it is asked for. What stays is used again by the pool."""
_WORTH_IT, _LEAST_EXCESS = 64 << 20, 1 << 20
"""Bytes that a file takes too much, for the one and the other."""


class Reclaimer:
    """Sees to it that a pool's file gets smaller when the pool holds less."""

    def __init__(self, mount: int, file: Path) -> None:
        """Does nothing yet.

        Args:
            mount: a descriptor of a directory on the mounted pool.
            file: the file that holds it.
        """
        self._mount = os.dup(mount)
        self._directory = Path(f"/proc/self/fd/{self._mount}")
        self._file = file
        self._hurry, self._closing = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def soon(self, *, hurry: bool = False) -> None:
        """Something was deleted: gives it back in the background.

        Args:
            hurry: the disk needs it: at once, not in half a minute.
        """
        if hurry:
            self._hurry.set()
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._later, name="tvsnap-reclaim", daemon=True)
                self._thread.start()

    def now(self, timeout: float) -> None:
        """Waits until the kernel has cleared away what was deleted, and gives it all back.

        Args:
            timeout: how long to wait for the kernel, seconds.
        """
        with contextlib.suppress(OSError):  # a file system that became read-only, or cannot make holes in files
            self._clear_away(timeout)
            self._trim(_SMALLEST_PIECE, _LEAST_EXCESS)

    def close(self) -> None:
        """Ends what goes on in the background, after the slice that is being looked at."""
        with self._lock:
            self._closing.set()
            self._hurry.set()
            thread = self._thread
        if thread is not None:
            thread.join()
        os.close(self._mount)

    def _later(self) -> None:
        with contextlib.suppress(OSError):
            for _ in range(_PATIENCE):
                if self._hurry.wait(_SOON) or not btrfs.deleted_subvolumes(self._directory):
                    break
            if self._hurry.is_set():
                self._clear_away(_SOON)
            self._trim(_LEAST_PIECE, _LEAST_EXCESS if self._hurry.is_set() else _WORTH_IT)
        with self._lock:
            if not self._closing.is_set():
                self._hurry.clear()
            self._thread = None

    def _clear_away(self, timeout: float) -> None:
        """Waits until the kernel has cleared away what was deleted before, and makes it begin now."""
        deadline = time.monotonic() + timeout
        deleted = btrfs.deleted_subvolumes(self._directory)
        while deleted & btrfs.deleted_subvolumes(self._directory) and time.monotonic() < deadline:
            os.utime(self._directory)  # something to commit: after that, the kernel clears away what was deleted
            btrfs.commit(self._directory)
            if self._closing.wait(_POLL):
                return

    def _excess(self) -> int:
        """Returns how many bytes the file takes beyond what the pool needs, about."""
        inside = os.statvfs(self._mount)
        used = (inside.f_blocks - inside.f_bfree) * inside.f_frsize
        trees = sum(region.length for region in btrfs.regions(self._directory) if region.holds_trees)
        return self._file.stat().st_blocks * 512 - used - trees

    def _trim(self, least: int, worth_it: int) -> None:
        """Gives back pieces of at least so many bytes, if the file takes so much more than it needs."""
        if self._excess() <= worth_it:
            return
        for region in btrfs.regions(self._directory):
            if not region.holds_files:
                continue
            end = region.address + region.length
            for start in range(region.address, end, _SLICE):
                if self._closing.is_set():
                    return
                btrfs.trim(self._directory, start, min(_SLICE, end - start), least)
