"""Makes SQLite accept its open files in a fork, and counts its requests for the time.

SQLite writes to no file whose inode number has changed: that is how it notices a file that was moved or replaced. But a
fork's files are in another mount, and may all have other numbers there. So it is shown the number that a file had when
it was opened, if the file at its path is still the very file that this process has open.
"""

from __future__ import annotations

import _sqlite3
import contextlib
import ctypes
import os
from typing import Dict

_POINTER = ctypes.c_void_p
_STAT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, _POINTER)
_GET = ctypes.CFUNCTYPE(_POINTER, _POINTER, ctypes.c_char_p)
_SET = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_char_p, _POINTER)
_NOW = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER)
_TIMES = (10, 12)
"""Indexes of the methods that return the time, as a float and as an integer."""
_INODE = 8
"""Offset of the number in a `struct stat`, on Linux with 64 bits."""


class _Vfs(ctypes.Structure):
    """SQLite's `sqlite3_vfs`, version 3."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("sizes", ctypes.c_int * 2),
        ("names", _POINTER * 3),
        ("methods", _POINTER * 13),
        ("set_system_call", _SET),
        ("get_system_call", _GET),
    )


_numbers: Dict[bytes, int] = {}
_kept: Dict[str, object] = {}
"""Objects that SQLite calls, which must not be collected."""
_asked = [0]


def times_asked() -> int:
    """Returns how often SQLite has requested the time: any function of it does, wherever it is used."""
    return _asked[0]


def remember(path: str) -> None:
    if not _kept:
        _take_over()
    _numbers[os.fsencode(path)] = os.stat(path).st_ino


def _take_over() -> None:
    library = ctypes.CDLL(_sqlite3.__file__)  # finds the library that the module was linked with
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    pointer = library.sqlite3_vfs_find(None)
    vfs = pointer.contents
    real = _STAT(vfs.get_system_call(ctypes.addressof(vfs), b"stat"))

    def show(path: bytes, buffer: int) -> int:
        code: int = real(path, buffer)
        number_kept = _numbers.get(path)
        if code == 0 and number_kept is not None:
            number = ctypes.c_uint64.from_address(buffer + _INODE)
            if number.value != number_kept and _has_open(path):
                number.value = number_kept
        return code

    stat = _STAT(show)
    _kept.update(library=library, stat=stat)
    vfs.set_system_call(ctypes.addressof(vfs), b"stat", ctypes.cast(stat, _POINTER))
    for at in _TIMES:
        clock = _NOW(vfs.methods[at])
        counted = _NOW(lambda vfs, into, clock=clock: _count(clock(vfs, into)))
        _kept[f"time {at}"] = (clock, counted)
        vfs.methods[at] = ctypes.cast(counted, _POINTER)


def _count(code: int) -> int:
    _asked[0] += 1
    return code


def _has_open(path: bytes) -> bool:
    try:
        file = os.stat(path)
    except OSError:
        return False
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor with which the directory was read
            if os.path.samestat(os.fstat(int(name)), file):
                return True
    return False
