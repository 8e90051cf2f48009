"""Returns space of a pool's file to the disk when the pool no longer needs it.

The kernel can do so by itself (`discard`), but would also discard free space in tree regions. That has to stay
allocated, because a full disk must not prevent the file system from writing its trees.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

from tvsnap.sandboxes.local.storage import btrfs

_SOON, _PATIENCE = 30.0, 4
"""Seconds until freed space is discarded in the background; how often to wait that long for the kernel to free it."""
_POLL = 0.05
_LEAST_PIECE, _SMALLEST_PIECE = 64 << 10, 4 << 10
"""Bytes of the smallest pieces to discard in the background, and on request. The pool reuses the others."""
_WORTH_IT, _LEAST_EXCESS = 64 << 20, 1 << 20
"""Bytes by which the file must be too large, in either case."""


class Reclaimer:
    """Shrinks a pool's file when the pool holds less."""

    def __init__(self, mount: int, file: Path) -> None:
        """Takes a descriptor of a directory on the mounted pool, and the file that holds the pool; does nothing yet."""
        self._mount = os.dup(mount)
        self._directory = Path(f"/proc/self/fd/{self._mount}")
        self._file = file
        self._hurry, self._closing = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def soon(self, *, hurry: bool = False) -> None:
        """Schedules discarding in the background after a deletion; with `hurry`, at once and not in half a minute."""
        if hurry:
            self._hurry.set()
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                thread = threading.Thread(target=self._later, name="tvsnap-reclaim", daemon=True)
                with contextlib.suppress(RuntimeError):  # at its end, Python 3.12.1 starts none: others discard it
                    thread.start()
                    self._thread = thread

    def now(self, timeout: float) -> int:
        """Waits until the kernel has freed deleted files, `timeout` seconds at most, and discards their space.

        Returns:
            The bytes by which the file became smaller.
        """
        before = self._taken()
        with contextlib.suppress(OSError):  # the file system became read-only, or cannot punch holes
            self._clear_away(timeout)
            self._trim(_SMALLEST_PIECE, _LEAST_EXCESS)
        return max(before - self._taken(), 0)

    def close(self) -> None:
        """Ends the background work after the current region."""
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
        """Makes the kernel free deleted files, and waits for it."""
        deadline = time.monotonic() + timeout
        deleted = btrfs.deleted_subvolumes(self._directory)
        while deleted & btrfs.deleted_subvolumes(self._directory) and time.monotonic() < deadline:
            os.utime(self._directory)  # makes a commit necessary, after which the kernel frees deleted files
            btrfs.commit(self._directory)
            if self._closing.wait(_POLL):
                return

    def _taken(self) -> int:
        """Returns the bytes that the file takes on the disk."""
        return self._file.stat().st_blocks * 512

    def _excess(self) -> int:
        """Returns roughly the bytes of the file beyond the pool's needs."""
        inside = os.statvfs(self._mount)
        used = (inside.f_blocks - inside.f_bfree) * inside.f_frsize
        trees = sum(region.length for region in btrfs.regions(self._directory) if region.holds_trees)
        return self._taken() - used - trees

    def _trim(self, least: int, worth_it: int) -> None:
        """Discards free pieces of at least `least` bytes if the file is more than `worth_it` bytes too large."""
        if self._excess() <= worth_it:
            return
        for region in btrfs.regions(self._directory):
            if not region.holds_files:
                continue
            if self._closing.is_set():
                return
            btrfs.trim(self._directory, region.address, region.length, least)  # the kernel discards nothing in a part
