"""The same question is asked once at a time, by all threads of all processes that have the file open."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from tvsnap import MachineLacks, UsageError

_FLOCK = "hhqqi"
"""`struct flock` with the compiler's padding: kind, whence, start, length, process."""


class Flights:
    """Locks by digests: each is a byte of an empty file, far beyond its end.

    The kernel frees the lock of a process that dies. Each holder opens the file anew, so that threads exclude each
    other, too (open file description locks).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mine = threading.local()  # the digests that this thread has

    @contextlib.contextmanager
    def alone(self, digest: bytes) -> Iterator[None]:
        """A block in which no other thread or process has the same digest; it waits until none has.

        Raises:
            UsageError: this thread has it already, and would wait for itself.
            MachineLacks: the file cannot be opened or locked.
        """
        mine = self._mine.__dict__.setdefault("digests", set())
        if digest in mine:
            raise UsageError("what asks the model must not put the question to the cache that it is asked for")
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise MachineLacks(f"{self._path}: cannot be opened ({error.strerror}); mend its rights") from error
        try:
            byte = int.from_bytes(digest[:8], "big") >> 2
            request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, request)
            except OSError as error:
                raise MachineLacks(
                    f"{self._path}: cannot be locked ({error.strerror}); keep it on a local disk"
                ) from error
            mine.add(digest)
            yield
        finally:
            mine.discard(digest)
            os.close(descriptor)
