"""Functions for descriptors and system calls that Python lacks. Those through ctypes let other threads run."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """Returns the result of a call, or raises its OSError, about `what`."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Yields a descriptor, and closes it at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
