"""What Python lacks for descriptors and system calls. Those through ctypes let other threads run meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """Returns what a call returned; raises OSError about `what` if that says that it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """A block with a descriptor, which is closed at its end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
