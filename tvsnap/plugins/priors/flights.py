"""The same question is asked once at a time, by all threads of all processes that have the file open."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from tvsnap import UsageError
from tvsnap.errors import MachineLacks

_holders: dict[tuple[str, int], int] = {}
"""Which thread of this process has a lock."""
_waiting: dict[int, tuple[str, int]] = {}
"""Which lock a thread of this process waits for."""
_table = threading.Lock()
"""Is held while these are read and changed: by it, the last thread of a circle finds that it would close one."""
_FLOCK = "hhqqi"
"""`struct flock` with the compiler's padding: kind, whence, start, length, process."""


class Flights:
    """Locks by digests: each is a byte of an empty file, far beyond its end.

    The kernel frees the lock of a process that dies. Each holder opens the file anew, so that threads exclude each
    other, too (open file description locks). Threads of one process never wait for each other in a circle.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.path.realpath(path)

    @contextlib.contextmanager
    def alone(self, digest: bytes) -> Iterator[None]:
        """A block in which no other thread or process has the same digest; it waits until none has.

        Raises:
            UsageError: this thread has it already, or one that has it waits for this thread: it would wait for ever.
            MachineLacks: the file cannot be opened or locked.
        """
        byte = int.from_bytes(digest[:8], "big") >> 2
        lock, me = (self._file, byte), threading.get_ident()
        with _waits(me, lock):
            descriptor = self._locked(byte)
            with _table:
                _holders[lock] = me
        try:
            yield
        finally:
            with _table:
                del _holders[lock]
            _unlock(descriptor, byte)

    def _locked(self, byte: int) -> int:
        """Returns a descriptor that has the lock."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise MachineLacks(f"{self._path}: cannot be opened ({error.strerror}); mend its rights") from error
        request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, request)
        except BaseException as error:
            os.close(descriptor)
            if not isinstance(error, OSError):
                raise
            raise MachineLacks(f"{self._path}: cannot be locked ({error.strerror}); keep it on a local disk") from error
        return descriptor


def _unlock(descriptor: int, byte: int) -> None:
    """Frees a lock, also for those processes that were forked meanwhile: they have the open file, too, and the lock."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))
    os.close(descriptor)


@contextlib.contextmanager
def _waits(thread: int, lock: tuple[str, int]) -> Iterator[None]:
    """A block in which a thread waits for a lock; raises UsageError if that would be for ever."""
    with _table:
        holder = _holders.get(lock)
        while holder is not None:
            if holder == thread:
                raise UsageError(
                    "what asks the model must not put the question to the cache that it is asked for, nor one that is "
                    "asked by another thread which waits for that: they would wait for each other"
                )
            holder = _holders.get(_waiting[holder]) if holder in _waiting else None
        _waiting[thread] = lock
    try:
        yield
    finally:
        with _table:
            del _waiting[thread]


def _forget() -> None:
    """Forgets, in the child of a fork, the threads of the parent."""
    global _table
    _table = threading.Lock()
    _holders.clear()
    _waiting.clear()


os.register_at_fork(after_in_child=_forget)
