"""The directory of a build in progress, and its lock, which the builder holds."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from tvsnap.host.locks import release
from tvsnap.images.rootfs import remove_entry

_LOCK = "lock"


@contextlib.contextmanager
def locked(directory: Path, *, wait: bool) -> Iterator[bool]:
    """Locks a build directory, which is created if necessary, and removed with the lock if it is empty.

    Yields whether the lock was acquired, which is always so with `wait`.
    """
    descriptor = _acquire(directory, wait)
    if descriptor is None:
        yield False
        return
    try:
        yield True
    finally:
        # The lock file is removed last, so that whoever finds the directory sees that it has an owner.
        with contextlib.suppress(OSError):
            if [entry.name for entry in os.scandir(directory)] == [_LOCK]:
                (directory / _LOCK).unlink()
                directory.rmdir()
        release(descriptor)


def _acquire(directory: Path, wait: bool) -> int | None:
    while True:
        # Not accessible to others while it is filled: files in it may still belong to the host's root, and be setuid.
        with contextlib.suppress(FileExistsError):  # `exist_ok` would still raise it if another process removes it now
            directory.mkdir(mode=0o700, parents=True)
        try:
            descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # The previous holder may have removed the file that we opened.
            if os.path.samestat(os.fstat(descriptor), os.stat(directory / _LOCK)):
                return descriptor
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def empty(directory: Path) -> None:
    """Removes everything in a build directory except the lock."""
    for entry in tuple(os.scandir(directory)):
        if entry.name != _LOCK:
            remove_entry(Path(entry.path))
