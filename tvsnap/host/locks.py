"""Locks on open files (flock) that end when they should, also in a program that forks meanwhile.

A lock belongs to the open file, which the child of a fork has, too. To close the descriptor would leave the file locked
for as long as the child lives (flock(2)); to unlock it frees it for all.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def locked(descriptor: int, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """A block in which an open file is locked; `how` is as for `fcntl.flock`.

    Raises BlockingIOError if it must not wait, and somebody else has locked the file.
    """
    fcntl.flock(descriptor, how)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def release(descriptor: int) -> None:
    """Unlocks a file and closes it."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
