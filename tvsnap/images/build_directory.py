"""The directory of a build under way, and the lock on it that its builder holds."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from tvsnap.images.rootfs import remove_entry

_LOCK = "lock"


@contextlib.contextmanager
def locked(directory: Path, *, wait: bool) -> Iterator[bool]:
    """Holds the lock of a build directory, which is made if need be and goes with the lock's release if it is empty.

    Yields:
        Whether the lock was got; always, if `wait`.
    """
    descriptor = _acquire(directory, wait)
    if descriptor is None:
        yield False
        return
    try:
        yield True
    finally:
        # The lock's file goes last but for the directory: whoever finds it sees a directory that has an owner.
        with contextlib.suppress(OSError):
            if [entry.name for entry in os.scandir(directory)] == [_LOCK]:
                (directory / _LOCK).unlink()
                directory.rmdir()
        os.close(descriptor)


def _acquire(directory: Path, wait: bool) -> int | None:
    while True:
        # Closed while it is being filled: files in it may still be root's of this machine, and set the user id.
        with contextlib.suppress(FileExistsError):  # `exist_ok` would still raise it if another removes it just now
            directory.mkdir(mode=0o700, parents=True)
        try:
            descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # The holder before us may have removed the file that we opened.
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
    """Removes all in it but the lock."""
    for entry in tuple(os.scandir(directory)):
        if entry.name != _LOCK:
            remove_entry(Path(entry.path))
