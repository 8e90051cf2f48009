"""Compares files of an image that a process has mapped with their copies that were written in place since.

overlayfs copies a file of the image up when it is opened for writing. Older mappings still show the image's file with
the old bytes, but a fork would map the copy.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from tvsnap.host.libc import closing
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes.kernel import paths
from tvsnap.sandboxes.kernel.procfs import describe, parts

_ORIGINS = ("trusted.overlay.origin", "user.overlay.origin")
"""Attributes of files that overlayfs has copied up; newly created files lack them."""
_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ [1-9]\d* +(/.*)$", re.MULTILINE)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PAGES = 256
"""Pages that are compared at once if all of them belong to the file."""
_MOST = 256 << 20
"""Bytes that are compared for all mappings of a sandbox while its processes are frozen; takes about 0.1 s."""
_SWAPPED, _PRESENT, _OF_A_FILE = 1 << 62, 1 << 63, 1 << 61  # bits in an entry of /proc/PID/pagemap


class MappedFiles:
    """Compares the mapped files of one sandbox's frozen processes with the copies of overlayfs."""

    def __init__(self, upper: int) -> None:
        """`upper` is a descriptor of the writable layer of the sandbox's overlay."""
        self._upper = upper
        self._copied_up: dict[str, bool] = {}
        self._bytes_left = _MOST

    def changed_under(self, pid: int) -> str:
        """Returns a file that differs from its mapping in a process; empty if there is none.

        Raises NotCheckpointable if there is more to compare than the limit.
        """
        for part in parts(f"/proc/{pid}/maps"):
            for *numbers, path in _MAPPING.findall(part):
                name = os.fsdecode(path)
                if self._is_copied_up(name):
                    start, end, offset = (int(number, 16) for number in numbers)
                    if self._differs(pid, name, start, end, offset):
                        return name
        return ""

    def _is_copied_up(self, path: str) -> bool:
        if path not in self._copied_up:
            self._copied_up[path] = _was_copied_up(self._upper, path)
        return self._copied_up[path]

    def _differs(self, pid: int, path: str, start: int, end: int, offset: int) -> bool:
        """Whether a mapping, apart from pages that the process wrote itself, differs from its file's content now."""
        with ExitStack() as stack:
            file = os.fdopen(paths.open_beneath(self._upper, path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
            stack.enter_context(file)
            memory = stack.enter_context(open(f"/proc/{pid}/mem", "rb", buffering=0))
            pagemap = stack.enter_context(open(f"/proc/{pid}/pagemap", "rb", buffering=0))
            for first, count in _runs(pagemap.fileno(), start // _PAGE, end // _PAGE):
                self._bytes_left -= count * _PAGE
                if self._bytes_left < 0:
                    raise NotCheckpointable(
                        f"{describe(pid)} has mapped {path}, a file of the image that was written since, and more than "
                        f"{_MOST >> 20} MiB of such files are not compared with what forks would map"
                    )
                there = _read(memory.fileno(), count * _PAGE, first * _PAGE)
                now = _read(file.fileno(), count * _PAGE, offset + first * _PAGE - start)
                if there != now.ljust(len(there), b"\0"):
                    return True
        return False


def _was_copied_up(upper: int, path: str) -> bool:
    # If this fails, it is an unchanged file of the image, deleted, or not on the overlay.
    with suppress(OSError), closing(paths.open_beneath(upper, path)) as descriptor:
        for name in _ORIGINS:
            with suppress(OSError):
                os.getxattr(f"/proc/self/fd/{descriptor}", name)
                return True
    return False


def _runs(pagemap: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields runs of pages that belong to the file, not to the process: the first page, and the count."""
    for first in range(start, end, _PAGES):
        count = min(_PAGES, end - first)
        entries = struct.unpack(f"{count}Q", os.pread(pagemap, 8 * count, 8 * first))
        own = [bool(entry & _SWAPPED or (entry & _PRESENT and not entry & _OF_A_FILE)) for entry in entries]
        if not any(own):
            yield first, count
        else:
            yield from ((first + number, 1) for number in range(count) if not own[number])


def _read(descriptor: int, size: int, at: int) -> bytes:
    """Returns up to `size` bytes: fewer at the end of a file, or of a mapping that extends beyond it."""
    content = bytearray()
    while len(content) < size:
        try:
            data = os.pread(descriptor, size - len(content), at + len(content))
        except OSError:
            break
        if not data:
            break
        content += data
    return bytes(content)
