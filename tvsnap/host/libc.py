"""Functions for descriptors and system calls that Python lacks. Those through ctypes let other threads run."""

from __future__ import annotations

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """Returns the result of a call, or raises its OSError, about `what`."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


class closing:  # as contextlib's; a class, since each call uses it many times
    """Yields a descriptor, and closes it at the end of the block."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
