"""Writes a dump of processes that have changed in memory and registers only since they were as in an earlier dump.

CRIU has no part in it, so it takes a fraction of a dump's time. All other images are those of the earlier dump, by
another name. The pages that differ from those of a whole dump are written, as in the dumps of `pages`; an earlier dump
that is not whole has a whole one in `parent`.

The format is that of CRIU 4.2: images/pagemap.proto, images/core.proto and images/timens.proto.
"""

from __future__ import annotations

import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tvsnap.sandboxes.criu.messages import BOOL, LONG, UINT, message_classes
from tvsnap.sandboxes.criu.pages import DIRECTORY
from tvsnap.sandboxes.kernel import procfs
from tvsnap.sandboxes.looks.frame import PAGE, REGISTERS, Frame, Memory

_HEAD = struct.Struct("<II")  # the two magic numbers of an image
_LENGTH = struct.Struct("<I")
_IN_PARENT, _PRESENT = 1, 4  # flags of pages
_ANY = frozenset([*range(10), *range(11, 15)])
"""Registers that may differ, in the order of user_regs_struct: r15 to r8, and rcx to rdi. The others tell where a
process waits.
"""
_SAME = (*range(6), 7, 8, 9, 12, 13, 14, 19)
"""Registers that a waiting process keeps from before its system call: r15 to rbx, r10 to r8, rdx to rdi, rsp."""
_RESULT, _CALL, _NEXT = 10, 15, 16  # rax, orig_rax, rip
_SYSCALL = 2  # bytes of the instruction
_CLOCKS_IMAGE = re.compile(r"timens-\d+\.img")
"""Its number is another one in a dump of processes that were restored."""
_CLOCKS = {"monotonic": time.CLOCK_MONOTONIC, "boottime": time.CLOCK_BOOTTIME}

_BESIDE = f"{DIRECTORY}/"
_KNOWN = re.compile(
    r"(parent/)?pages-\d+\.img|(parent/)?pagemap-\d+\.img|pagemap-shmem-\d+\.img|timens-\d+\.img|stats-dump"
    r"|(core|fdinfo|fs|ids|ipcns-var|mm|mountpoints|userns|utsns)-\d+\.img"
    r"|(cgroup|fifo-data|files|inventory|memfd|pipes-data|pstree|seccomp|tty-info)\.img"
)
"""The images of an idle shell. Others have contents that change unseen, such as deleted files or shared memory."""

_TYPES = message_classes(
    "images",
    {
        "PagesHead": {"pages_id": (1, UINT)},
        "Pages": {
            "vaddr": (1, LONG),
            "compat_nr_pages": (2, UINT),
            "in_parent": (3, BOOL),
            "flags": (4, UINT),
            "nr_pages": (5, LONG),
        },
        "Registers": {f"r{number}": (number, LONG) for number in range(1, REGISTERS + 1)},
        "Thread": {"registers": (2, "Registers")},
        "Core": {"thread": (2, "Thread")},
        "Time": {"seconds": (1, LONG), "nanoseconds": (2, LONG)},
        "Clocks": {"monotonic": (1, "Time"), "boottime": (2, "Time")},
    },
)


class UnknownFormat(Exception):
    """An earlier dump is not as this module knows dumps; the text says why."""


def is_possible(processes: Sequence[Memory]) -> bool:
    """Whether all processes wait in the same places as in the earlier dump, for the same."""
    return all(process.registers.keys() <= _ANY for process in processes)


def holds(dump: int, frame: Frame) -> bool:
    """Whether processes wait as in a dump, so that they have not run since.

    A shell runs for a moment after it has told that it is idle, and may be dumped then.

    Args:
        dump: a descriptor of the directory of the dump.
        frame: the processes, just after the dump or after they were restored.

    Raises:
        OSError: the dump is gone.
    """
    for pid, registers in frame.registers():
        core = _TYPES["Core"].FromString(_messages(_read(dump, f"core-{procfs.inner_pid(pid)}.img"))[0])
        dumped = [getattr(core.thread.registers, f"r{number}") for number in range(1, REGISTERS + 1)]
        if any(dumped[place] != registers[place] for place in _SAME):
            return False
        if (dumped[_RESULT], dumped[_NEXT]) != (registers[_CALL], registers[_NEXT] - _SYSCALL):
            return False
    return True


def write(earlier: int, there: Mapping[str, Sequence[int]], images: int, processes: Sequence[Memory]) -> dict[str, str]:
    """Writes a dump.

    Args:
        earlier: a descriptor of the directory of the earlier dump.
        there: the sizes and CRC-32s of its files, by name.
        images: a descriptor of an empty directory.
        processes: all processes of the sandbox, PID 1 first; they stand still.

    Returns:
        Names of files in the new dump that are files of the earlier one, and their names there.

    Raises:
        OSError: the earlier dump is gone, or the disk is full.
        UnknownFormat: the earlier dump has another format, or is damaged.
    """
    read = partial(_read_sound, earlier, there)
    if unknown := [name for name in there if not _KNOWN.fullmatch(name)]:
        raise UnknownFormat(f"it has {unknown[0]}")
    clocks = [name for name in there if _CLOCKS_IMAGE.fullmatch(name)]
    if len(clocks) != 1:
        raise UnknownFormat(f"it has {len(clocks)} images of clocks")
    new = {clocks[0]: _with_clocks(read(clocks[0]), processes[0].pid)}
    lent = {name: name for name in there if name.startswith(_BESIDE)}
    for process in processes:
        number = procfs.inner_pid(process.pid)
        pagemap = f"pagemap-{number}.img"
        pages = _pages_name(read(pagemap))
        if _BESIDE + pagemap not in there:
            lent |= {_BESIDE + pagemap: pagemap, _BESIDE + pages: pages}
        new[pagemap], new[pages] = _changed_pages(read, lent[_BESIDE + pagemap], process)
        if process.registers:
            core = f"core-{number}.img"
            new[core] = _with_registers(read(core), process.registers)
    if lacking := new.keys() - set(there):
        raise UnknownFormat(f"it lacks {min(lacking)}")
    lent |= {name: name for name in there if name not in new}
    os.mkdir(DIRECTORY, dir_fd=images)
    os.chmod(DIRECTORY, 0o755, dir_fd=images)
    for name, source in lent.items():
        os.link(source, name, src_dir_fd=earlier, dst_dir_fd=images)
    for name, data in new.items():
        with open(name, "xb", opener=partial(os.open, dir_fd=images)) as file:  # buffered, so it writes all or raises
            file.write(data)
    return lent


def _read(directory: int, name: str) -> bytes:
    with open(name, "rb", buffering=0, opener=partial(os.open, dir_fd=directory)) as file:
        return file.readall()


def _read_sound(directory: int, there: Mapping[str, Sequence[int]], name: str) -> bytes:
    """Returns the contents of an image; raises UnknownFormat if they are not what was written."""
    if name not in there:
        raise UnknownFormat(f"it lacks {name}")
    data = _read(directory, name)
    if [len(data), zlib.crc32(data)] != [*there[name]]:
        raise UnknownFormat(f"{name} is damaged")
    return data


def _messages(data: bytes) -> list[bytes]:
    """Returns the messages of an image."""
    found, at = [], _HEAD.size
    while at < len(data):
        length = _LENGTH.unpack_from(data, at)[0]
        found.append(data[at + _LENGTH.size : at + _LENGTH.size + length])
        at += _LENGTH.size + length
    return found


def _image(head: bytes, messages: Sequence[Any]) -> bytes:
    """Returns an image with the magic numbers in `head`."""
    texts = [message.SerializeToString() for message in messages]
    return b"".join([head, *(part for text in texts for part in (_LENGTH.pack(len(text)), text))])


def _pages_name(pagemap: bytes) -> str:
    """Returns the name of the file with the pages that an image lists."""
    return f"pages-{_TYPES['PagesHead'].FromString(_messages(pagemap)[0]).pages_id}.img"


def _changed_pages(read: Callable[[str], bytes], name: str, process: Memory) -> tuple[bytes, bytes]:
    """Returns the images with the pages of a process, beside those of a whole dump, which lists its own in `name`."""
    pagemap = read(name)
    pages = read(os.path.join(os.path.dirname(name), _pages_name(pagemap)))
    head, *entries = _messages(pagemap)
    before: dict[int, int] = {}  # where pages lie in `pages`, by address
    at = 0
    for text in entries:
        entry = _TYPES["Pages"].FromString(text)
        if not entry.flags & _PRESENT or not entry.nr_pages:
            raise UnknownFormat("it is not whole")
        for address in range(entry.vaddr, entry.vaddr + entry.nr_pages * PAGE, PAGE):
            before[address] = at
            at += PAGE
    runs: list[Any] = []
    data: list[bytes] = []
    for i, address in enumerate(process.own):
        page = process.contents[i * PAGE : (i + 1) * PAGE]
        known = before.get(address)
        flags = _IN_PARENT if known is not None and pages[known : known + PAGE] == page else _PRESENT
        if flags == _PRESENT:
            data.append(page)
        last = runs[-1] if runs else None
        if last is not None and last.flags == flags and last.vaddr + last.nr_pages * PAGE == address:
            last.nr_pages += 1
        else:
            runs.append(_TYPES["Pages"](vaddr=address, compat_nr_pages=0, flags=flags, nr_pages=1))
    return _image(pagemap[: _HEAD.size], [_TYPES["PagesHead"].FromString(head), *runs]), b"".join(data)


def _with_registers(image: bytes, registers: Mapping[int, int]) -> bytes:
    """Returns the image of a process with other registers."""
    messages = _messages(image)
    core = _TYPES["Core"].FromString(messages[0])
    for place, value in registers.items():
        setattr(core.thread.registers, f"r{place + 1}", value)  # numbered like user_regs_struct
    return _image(image[: _HEAD.size], [core]) + image[_HEAD.size + _LENGTH.size + len(messages[0]) :]


def _with_clocks(image: bytes, pid: int) -> bytes:
    """Returns the image of the clocks that a process sees, with their times now."""
    offsets = dict(line.split(maxsplit=1) for line in procfs.lines(f"/proc/{pid}/timens_offsets"))
    clocks = _TYPES["Clocks"]()
    for name, clock in _CLOCKS.items():
        seconds, nanoseconds = map(int, offsets[name].split())
        times = divmod(time.clock_gettime_ns(clock) + seconds * 10**9 + nanoseconds, 10**9)
        getattr(clocks, name).seconds, getattr(clocks, name).nanoseconds = times
    return _image(image[: _HEAD.size], [clocks])
