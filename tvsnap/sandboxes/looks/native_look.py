"""The library that inspects a sandbox from outside, within this process; see native/look/look.h.

It runs in the calling thread, so that its processor time counts for the look's limit (`kernel/allowance.py`). Other
threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum

from tvsnap.host import native
from tvsnap.model.errors import InfrastructureError
from tvsnap.sandboxes.kernel import allowance

_LONGEST_REASON = 512
_DONE, _TOO_LONG, _TOO_MUCH = 0, 2, 3


class TooMuch(InfrastructureError):
    """There is more of something than was asked for, or there are more files than are remembered for a sandbox."""


class Holder(IntEnum):
    """The kind of a process, which determines the extent of its inspection (holds.h)."""

    OTHER = 0
    SERVING = 1
    SHELL = 2


class FilesMemory:
    """The files below a directory as last seen. For one thread at a time."""

    def __init__(self, handle: int | None = None) -> None:
        """`handle` is one of the library's that has no other owner; by default a new one."""
        self._handle = handle if handle is not None else _library().look_files_new()
        if not self._handle:
            raise MemoryError

    def copy(self) -> FilesMemory:
        """Returns the same memory, for a look at a copy of the directory."""
        return FilesMemory(_library().look_files_copy(self._handle) or 0)

    def look(self, directory: int) -> tuple[bytes, bytes]:
        """Returns the changes since the last look; everything at the first one, and after an error.

        The first part has a record of each new or changed file, for `observing.parse_entries`; the second part has the
        path of each deleted file, with a zero byte after it. Raises TooMuch, InfrastructureError if not all files can
        be inspected, and NotSeen after the time limit.
        """
        return _look(_library().look_files, self._handle, directory, allowance.left())

    def __del__(self) -> None:
        try:  # noqa: SIM105  # contextlib may be gone, too
            _library().look_files_free(self._handle)
        except (AttributeError, TypeError):  # the interpreter is exiting, and imported names may be gone
            pass


def holds(processes: Sequence[tuple[int, Holder]]) -> dict[int, tuple[str, str]]:
    """Returns hashes of processes' resources that calls can change while they sleep, and of their locks, by process.

    The first hash is `?` if part of it cannot be seen. Raises OSError if memory is short, NotSeen after the time limit.
    """
    numbers = ctypes.c_int * len(processes)
    pids, kinds = numbers(*(pid for pid, _ in processes)), numbers(*(kind for _, kind in processes))
    text, _ = _look(_library().look_holds, pids, kinds, len(processes), allowance.left())
    lines = (line.split() for line in text.decode().splitlines())
    return {int(pid): (holding, locks) for pid, holding, locks in lines}


def seal(directory: int) -> tuple[int, int]:
    """Seals a tree of files that nobody writes to, without reading them or following links; see `sealing.seal`.

    Args:
        directory: a descriptor of its root.

    Returns:
        The bytes that the files take on the disk; and the CRC-32 of a record of the root and of each path below it, in
        an order that depends on names only: the path, and its mode, owner, group, size, inode, device number,
        modification and change time (ns), with a zero byte after each.

    Raises:
        OSError: part of it is unreadable.
        NotSeen: the time limit is reached.
    """
    text, _ = _look(_library().look_seal, directory, allowance.left())
    crc, size = map(int, text.split())
    return size, crc


def contents(root: int, paths: Iterable[str], most: int) -> Iterator[tuple[bytes, int, int, int] | None]:
    """Reads small files below a directory, without following links.

    Args:
        root: a descriptor of the directory.
        paths: their paths, as seen from there.
        most: bytes of a small file.

    Yields:
        For each path the contents, the modification and the change time (ns) after they were read, and the flags that
        the owner can set; None for anything but a small regular file, and for one that cannot be read.

    Raises:
        OSError: memory is short.
        NotSeen: the time limit is reached.
    """
    names = [os.fsencode(path) for path in paths]
    text, _ = _look(_library().look_contents, root, b"\0".join([*names, b""]), len(names), most, allowance.left())
    at = 0
    for _ in names:
        end = text.index(b"\0", at)
        head, at = text[at:end].split(), end + 1
        if not head:
            yield None
            continue
        size, mtime_ns, ctime_ns = map(int, head[:3])
        yield text[at : at + size], mtime_ns, ctime_ns, int(head[3], 16)
        at += size


def ran(pids: Sequence[int], most: int) -> dict[int, bytes]:
    """Returns, by process, a text that changes when its threads run: a line for each, which begins with its number.

    Raises TooMuch if there are more than `most` threads in all, and OSError if a process has ended.
    """
    numbers = (ctypes.c_int * len(pids))(*pids)
    text, _ = _look(_library().look_ran, numbers, len(pids), most)
    return dict(zip(pids, text.split(b"\0"), strict=False))


def threads(pid: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields the number of each thread of a process, and its `stat` and `syscall` in /proc.

    Raises OSError if one has ended.
    """
    text, _ = _look(_library().look_threads, pid)
    fields = text.split(b"\0")
    for number, stat, call in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
        yield int(number), stat, call


def descriptors(pid: int, most: int = 1 << 30) -> Iterator[tuple[int, str]]:
    """Yields the number and the target of each descriptor of a process.

    Raises TooMuch if there are more than `most`, and OSError if it has ended.
    """
    text, _ = _look(_library().look_descriptors, pid, most)
    for each in text.split(b"\0")[:-1]:
        number, target = each.split(b" ", 1)
        yield int(number), os.fsdecode(target)


def shell(pid: int) -> bytes:
    """Returns a shell's resources that it does not report, in the format of `look_shell` (native/look/shell.c).

    Raises OSError if it has ended.
    """
    text, _ = _look(_library().look_shell, pid)
    return text


class _Report(ctypes.Structure):
    changed: int | None
    changed_length: int
    gone: int | None
    gone_length: int
    error: int
    why: bytes
    _fields_ = (
        ("changed", ctypes.c_void_p),
        ("changed_length", ctypes.c_size_t),
        ("gone", ctypes.c_void_p),
        ("gone_length", ctypes.c_size_t),
        ("error", ctypes.c_int),
        ("why", ctypes.c_char * _LONGEST_REASON),
    )


def _bytes(at: int | None, length: int) -> bytes:
    return ctypes.string_at(at, length) if at else b""


def _look(look: Callable[..., int], *arguments: object) -> tuple[bytes, bytes]:
    """Calls a function of the library; returns its findings, and deleted files; raises an exception for errors."""
    report = _Report()
    try:
        result = look(*arguments, ctypes.byref(report))
        if result != _DONE:
            raise _failure(result, report)
        return _bytes(report.changed, report.changed_length), _bytes(report.gone, report.gone_length)
    finally:
        _library().look_told_free(ctypes.byref(report))


def _failure(result: int, report: _Report) -> Exception:
    if result == _TOO_LONG:
        return allowance.too_long()
    why = report.why.decode(errors="replace")
    if result == _TOO_MUCH:
        return TooMuch(f"there is more in a sandbox than is looked at: {why}")
    return OSError(report.error, why) if report.error else InfrastructureError(f"a sandbox cannot be looked at: {why}")


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(native.LOOK))
    library.look_files_new.restype = ctypes.c_void_p
    library.look_files_copy.restype = ctypes.c_void_p
    library.look_files_copy.argtypes = [ctypes.c_void_p]
    library.look_files.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_double, ctypes.c_void_p]
    library.look_seal.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.c_void_p]
    library.look_contents.argtypes = [
        ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_double, ctypes.c_void_p,
    ]  # fmt: skip
    library.look_holds.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_double, ctypes.c_void_p]
    library.look_ran.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    library.look_threads.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.look_shell.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.look_descriptors.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    library.look_told_free.argtypes = [ctypes.c_void_p]
    library.look_files_free.argtypes = [ctypes.c_void_p]
    return library
