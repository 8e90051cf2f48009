"""A reserve on the disk of a data directory for a full disk, because deleting needs a little room itself.

The graph writes deletions into its log first, and the pool of snapshots writes its trees anew. Neither is possible on a
full disk. So a file reserves some MiB; it is deleted before such work, and made again afterwards.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tvsnap.host.disk import DiskSpace
from tvsnap.model.limits import MIB

FILE = "spare"
SIZE = 16 * MIB


def keep(home: Path) -> None:
    """Makes the file, unless it is there, or the disk has no room to spare."""
    path = home / FILE
    with contextlib.suppress(OSError):
        if DiskSpace.on(home, home).free < 4 * SIZE or path.exists():
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, SIZE)
        except OSError:
            path.unlink()
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def lent(home: Path) -> Iterator[None]:
    """A block in which the reserve is free if the disk is full, to free more."""
    with contextlib.suppress(OSError):
        if DiskSpace.on(home, home).free < SIZE:
            (home / FILE).unlink()
    try:
        yield
    finally:
        keep(home)
