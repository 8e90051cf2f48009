"""Files of an image that a process has mapped, and that were written in place since.

overlayfs copies a file of the image up when it is opened for writing. What was mapped before stays mapped from the
image, with the old bytes; a fork would map the copy.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from tvsnap.host.libc import closing
from tvsnap.model.errors import NotCheckpointable
from tvsnap.sandboxes import paths
from tvsnap.sandboxes.processes.procfs import describe, parts

_ORIGINS = ("trusted.overlay.origin", "user.overlay.origin")
"""Attributes of what overlayfs has copied up, but not of what was made anew."""
_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ [1-9]\d* +(/.*)$", re.MULTILINE)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PAGES = 256
"""How many are compared at once, where all of them are of the file."""
_MOST = 256 << 20
"""Bytes that are compared of all mappings of a sandbox, while its processes stand still; about 0.1 s."""
_SWAPPED, _PRESENT, _OF_A_FILE = 1 << 62, 1 << 63, 1 << 61  # in an entry of /proc/PID/pagemap


class MappedFiles:
    """Compares what the processes of one sandbox, which stand still, have mapped of files that were copied up."""

    def __init__(self, upper: int) -> None:
        """Args: upper: descriptor of the writable layer of the sandbox's overlay."""
        self._upper = upper
        self._copied_up: dict[str, bool] = {}
        self._left = _MOST

    def changed_under(self, pid: int) -> str:
        """Returns a file that a process has mapped otherwise than it is now; empty if there is none.

        Raises:
            NotCheckpointable: there is more to compare than is looked at.
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
        """Whether a mapping shows anything else than its file now holds, but for what the process itself wrote."""
        with ExitStack() as stack:
            file = os.fdopen(paths.open_beneath(self._upper, path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
            stack.enter_context(file)
            memory = stack.enter_context(open(f"/proc/{pid}/mem", "rb", buffering=0))
            pagemap = stack.enter_context(open(f"/proc/{pid}/pagemap", "rb", buffering=0))
            for first, count in _runs(pagemap.fileno(), start // _PAGE, end // _PAGE):
                self._left -= count * _PAGE
                if self._left < 0:
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
    # It may be of the image as it is, deleted, or on no overlay.
    with suppress(OSError), closing(paths.open_beneath(upper, path)) as descriptor:
        for name in _ORIGINS:
            with suppress(OSError):
                os.getxattr(f"/proc/self/fd/{descriptor}", name)
                return True
    return False


def _runs(pagemap: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields runs of pages that are a file's, and not a process' own copies of such: the first, and how many."""
    for first in range(start, end, _PAGES):
        count = min(_PAGES, end - first)
        entries = struct.unpack(f"{count}Q", os.pread(pagemap, 8 * count, 8 * first))
        own = [bool(entry & _SWAPPED or (entry & _PRESENT and not entry & _OF_A_FILE)) for entry in entries]
        if not any(own):
            yield first, count
        else:
            yield from ((first + number, 1) for number in range(count) if not own[number])


def _read(descriptor: int, size: int, at: int) -> bytes:
    """Returns what can be read at a place: less than `size` at the end of a file, and of a mapping that goes beyond."""
    found = bytearray()
    while len(found) < size:
        try:
            data = os.pread(descriptor, size - len(found), at + len(found))
        except OSError:
            break
        if not data:
            break
        found += data
    return bytes(found)
