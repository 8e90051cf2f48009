"""Room on the disk of a data directory that is kept for when the disk is full: deleting needs a little room itself.

The graph writes what it deletes into its log first, and the pool of snapshots writes its trees anew. On a disk on which
others have left nothing, neither can. So a file holds some MiB, which is deleted before, and made again afterwards.
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
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(made, 0, SIZE)
        except OSError:
            path.unlink()
        finally:
            os.close(made)


@contextlib.contextmanager
def lent(home: Path) -> Iterator[None]:
    """A block in which there is the room, to free more, if the disk is full."""
    with contextlib.suppress(OSError):
        if DiskSpace.on(home, home).free < SIZE:
            (home / FILE).unlink()
    try:
        yield
    finally:
        keep(home)
