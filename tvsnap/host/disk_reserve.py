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
    with contextlib.suppress(OSError):
        if DiskSpace.on(home, home).free >= 4 * SIZE:
            _allocate(home / FILE, SIZE)


@contextlib.contextmanager
def lent(home: Path) -> Iterator[None]:
    """A block in which the reserve is free if the disk is full, to free more.

    Afterwards the reserve takes its room back, or half of it, before other writers do: what the block has freed may
    reach the disk later, and the next deletion needs the reserve, too.
    """
    was_lent = False
    with contextlib.suppress(OSError):
        if DiskSpace.on(home, home).free < SIZE:
            (home / FILE).unlink()
            was_lent = True
    try:
        yield
    finally:
        keep(home)
        with contextlib.suppress(OSError):
            if was_lent and not _allocate(home / FILE, SIZE):
                _allocate(home / FILE, SIZE // 2)


def _allocate(path: Path, size: int) -> bool:
    """Makes a file of `size` bytes, unless it is there; returns whether the disk has the room for it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return True
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        path.unlink()
        return False
    finally:
        os.close(descriptor)
    return True
