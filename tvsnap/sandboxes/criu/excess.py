"""Refuses a dump that would take CRIU too much time or space.

CRIU cannot be ended while it has its code in a process. So it only gets work of limited size: everything
that its time grows with is counted before, including files that belong to no descriptor, such as a file that was
mapped, closed and deleted, or one in a message that was not received yet.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
import socket
import stat
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice

from tvsnap.host.attempts import AttemptFailed
from tvsnap.host.libc import closing
from tvsnap.model.errors import NotCheckpointable
from tvsnap.model.limits import Limits
from tvsnap.sandboxes.kernel import procfs
from tvsnap.sandboxes.kernel.allowance import NotSeen, go_on
from tvsnap.sandboxes.kernel.borrowing import borrowed
from tvsnap.sandboxes.kernel.namespaces import in_namespace_of
from tvsnap.sandboxes.kernel.procfs import describe, head, lines

MOST_MAPPINGS = 50_000
"""CRIU takes some 20 to 50 µs for each while all processes are frozen, and as long again in a fork."""
MOST_SHARED = 5000
"""Mappings of shared memory: a restore sends a descriptor for each, and the kernel limits descriptors in flight."""
MOST_LINES = 20_000
"""Lines in fdinfo: one for each lock, and for each file that an epoll watches."""
MOST_SENT = 200
"""Descriptors in messages that were not received yet."""
_MOST_DELETED = 1 << 30
"""Bytes of deleted files that are open or mapped: CRIU copies each of them, even if they share blocks on the disk."""
_MOST_EXTENT = 1 << 40
"""Bytes of deleted files with holes, and of all shared memory, used or not: CRIU scans a TiB in 0.3 to 1 s."""
_SHARED = 2.0
"""Times the sandbox's memory limit: CRIU saves memory that forked processes share once for each of them."""
_SIZE, _ID = 3, 1
"""Columns of /proc/sysvipc/shm: bytes, and the number from which the kernel derives the segment's inode."""
_SHARED_MEMORY = b" /dev/zero (deleted)\n"
UNNAMED = re.compile(rb"(?m)^([0-9a-f]+-[0-9a-f]+) \S+ \S+ (\S+ \d+) .* \(deleted\)$")
"""A mapping of a file that has no name (any more): its address range, and which file it is."""
_PART = 1 << 16
_OPEN_FILES = re.compile(r"^Max open files +(\d+)", re.MULTILINE)
_ADDRESS_SPACE = re.compile(r"^Max address space +(\d+)", re.MULTILINE)
_SENT = re.compile(r"^scm_fds: (\d+)", re.MULTILINE)
_FOR_CRIU = 4
"""Descriptors that CRIU opens in a process while it works there."""
_MAPPINGS_FOR_CRIU = 16
_BYTES_FOR_CRIU = 1 << 20
_BYTES_FOR_EACH_MAPPING = 64
"""Size of CRIU's own mappings there: its code, a stack, and buffers for descriptors and mappings; with a margin."""
_PEEK_OFFSET = 42  # SO_PEEK_OFF
_LARGEST_MESSAGE = 253
"""Descriptors in one message (SCM_MAX_FD)."""


def refuse_excess(pids: Collection[int], init: int, limits: Limits) -> None:
    """Raises NotCheckpointable if saving a sandbox's processes (ids on the host) would take too much time or space."""
    if procfs.has_too_many_descriptors(pids):
        raise _more_than(procfs.MOST_DESCRIPTORS, "descriptors open")
    mapped = _Mapped(int(head("/proc/sys/vm/max_map_count")))
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            mapped.add(pid)
    if full := mapped.without_room():
        raise NotCheckpointable(f"{describe(full)} has mapped all memory that it may, and CRIU needs a little")
    if mapped.shared > MOST_SHARED:
        raise _more_than(MOST_SHARED, "mappings of shared memory")
    if sum(mapped.counts.values()) > MOST_MAPPINGS:
        raise _more_than(MOST_MAPPINGS, "mappings")
    memory = procfs.private_memory(pids)
    _refuse_more(memory, int(limits.memory * _SHARED), "has", "of memory, counted for each that shares it")
    if full := _without_room_for_descriptors(pids):
        raise NotCheckpointable(f"{describe(full)} has all descriptors open that it may have, and CRIU needs a few")
    segments = {(in_memory(), int(words[_ID])): int(words[_SIZE]) for words in objects(init, "shm")}
    _refuse_more(sum(segments.values()), _MOST_EXTENT, "has made", "of shared memory of System V, used or not", unit=40)
    files = _Unnamed(segments)
    _look_at_descriptors(pids, files)
    for about in mapped.unnamed():
        files.add(about)
    extent, deleted = sum(files.extents.values()), sum(files.on_disk.values())
    what = "of shared memory and deleted files, holes included"
    _refuse_more(extent, _MOST_EXTENT, "holds or has mapped", what, unit=40)
    _refuse_more(deleted, _MOST_DELETED, "holds or has mapped", "of deleted files")


def objects(init: int, *kinds: str) -> list[list[str]]:
    """Returns the lines of /proc/sysvipc for a sandbox's System V objects of some kinds, each split into words."""

    def list_all() -> list[list[str]]:
        return [line.split() for kind in kinds for line in islice(lines(f"/proc/sysvipc/{kind}"), 1, None)]

    try:
        return in_namespace_of(init, "ipc", list_all)
    except OSError:
        raise AttemptFailed("the objects of System V of a sandbox could not be looked at", machine=True) from None


@cache
def in_memory() -> int:
    """Returns the device of files that are in no directory: memfd, shared memory."""
    with closing(os.memfd_create("device", os.MFD_CLOEXEC)) as file:
        return os.fstat(file).st_dev


def _more_than(most: int, what: str) -> NotCheckpointable:
    return NotCheckpointable(f"a process has, with others, more than {most:,} {what}, the most for a snapshot")


def _refuse_more(amount: int, most: int, does: str, what: str, *, unit: int = 20) -> None:
    """Raises NotCheckpointable if `amount` of bytes exceeds `most`; the message uses units of 2^20 or 2^40."""
    if amount > most:
        name = {20: "MiB", 40: "TiB"}[unit]
        raise NotCheckpointable(
            f"a process {does}, with others, {amount >> unit} {name} {what}, more than the {most >> unit} {name} that "
            "are the most for a snapshot"
        )


# -- memory ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Mapped:
    """The mappings of processes.

    Attributes:
        most: the kernel's limit of mappings per process.
        counts: mappings by process; counting stops soon after the limit.
        shared: how many mappings are of shared memory.
        places: for each file without a name, a process and an address range that map it.
    """

    most: int
    counts: dict[int, int] = field(default_factory=dict)
    shared: int = 0
    places: dict[bytes, tuple[int, str]] = field(default_factory=dict)

    def add(self, pid: int) -> None:
        """Counts the mappings of a process; raises OSError if it has ended."""
        self.counts[pid] = 0
        for part in procfs.parts(f"/proc/{pid}/maps"):
            self.counts[pid] += part.count(b"\n")
            self.shared += part.count(_SHARED_MEMORY)
            for match in UNNAMED.finditer(part) if b" (deleted)\n" in part else ():
                self.places.setdefault(match[2], (pid, match[1].decode()))
            if self.counts[pid] > self.most:
                break

    def without_room(self) -> int:
        """Returns a process that can map hardly anything more, or 0 if there is none.

        Either its address space is limited (`ulimit -v`), or it has as many mappings as the kernel allows.
        """
        for pid, count in self.counts.items():
            with contextlib.suppress(OSError):  # it has ended
                if count + _MAPPINGS_FOR_CRIU > self.most:
                    return pid
                limit = _ADDRESS_SPACE.search(head(f"/proc/{pid}/limits"))
                needed = _BYTES_FOR_CRIU + count * _BYTES_FOR_EACH_MAPPING
                if limit and _mapped_bytes(pid) + needed > int(limit[1]):
                    return pid
        return 0

    def unnamed(self) -> Iterator[os.stat_result]:
        """Yields the attributes of the mapped files that have no name."""
        for pid, place in self.places.values():
            go_on()
            with contextlib.suppress(OSError):  # it has ended
                # In map_files the numbers have no leading zeros, unlike in maps.
                first, _, end = place.partition("-")
                yield os.stat(f"/proc/{pid}/map_files/{int(first, 16):x}-{int(end, 16):x}")


def _mapped_bytes(pid: int) -> int:
    return int(head(f"/proc/{pid}/statm").split()[0]) * os.sysconf("SC_PAGE_SIZE")


# -- descriptors ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Unnamed:
    """Files that have no name (any more), by device and inode.

    Attributes:
        extents: sizes in bytes, holes included.
        on_disk: bytes on the disk, without files that are in memory anyway.
    """

    extents: dict[tuple[int, int], int]
    on_disk: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, about: os.stat_result) -> None:
        if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
            file = about.st_dev, about.st_ino
            self.extents[file] = about.st_size
            if about.st_dev != in_memory():
                self.on_disk[file] = about.st_blocks * 512


def _without_room_for_descriptors(pids: Iterable[int]) -> int:
    """Returns a process that can open hardly any more files (`ulimit -n`), or 0 if there is none."""
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            limit = _OPEN_FILES.search(head(f"/proc/{pid}/limits"))
            if limit and len(os.listdir(f"/proc/{pid}/fd")) + _FOR_CRIU > int(limit[1]):
                return pid
    return 0


def _look_at_descriptors(pids: Iterable[int], files: _Unnamed) -> None:
    """Adds the files that processes have open, or have been sent, to `files`.

    Raises NotCheckpointable if they have too many lines in fdinfo, or if one has a lease.
    """
    lines_left = MOST_LINES
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for name in os.listdir(f"/proc/{pid}/fd"):
                go_on()
                with contextlib.suppress(OSError):  # closed meanwhile
                    lines_left -= _look_at(pid, int(name), files)
                    if lines_left < 0:
                        raise NotCheckpointable(
                            f"a process has, with others, more than {MOST_LINES:,} locks and files that epolls watch, "
                            "the most for a snapshot"
                        )


def _look_at(pid: int, number: int, files: _Unnamed) -> int:
    """Adds the file of a descriptor to `files`; returns how many lines its fdinfo has."""
    target = os.readlink(f"/proc/{pid}/fd/{number}")
    if target.startswith("socket:"):
        if _sent(pid, number):
            try:
                with borrowed(pid, number) as descriptor:
                    _look_at_messages(pid, descriptor, files)
            except OSError as error:  # also one of this process: too few descriptors
                reason = f"what {describe(pid)} has been sent could not be looked at: {error.strerror}"
                raise AttemptFailed(reason, machine=True) from None
        return 0
    if target.startswith("/"):
        about = os.stat(f"/proc/{pid}/fd/{number}")
        if not stat.S_ISREG(about.st_mode):
            return 0
        if _is_leased(pid, number):
            raise NotCheckpointable(f"{describe(pid)} has a lease on a file, for which whoever opens it waits")
        files.add(about)
        return _lines_of(pid, number)
    return _lines_of(pid, number) if target == "anon_inode:[eventpoll]" else 0


def _lines_of(pid: int | str, number: int) -> int:
    """Returns how many lines fdinfo has for a descriptor; counting stops soon after `MOST_LINES`."""
    path = f"/proc/{pid}/fdinfo/{number}"
    count = 0
    with open(path, "rb", buffering=0) as file:
        while count <= MOST_LINES and (part := file.read(_PART)):
            go_on()
            count += part.count(b"\n")
    return count


def _is_leased(pid: int, number: int) -> bool:
    """Whether a process has a write lease: opening its file elsewhere would wait for that process."""
    with contextlib.suppress(OSError), borrowed(pid, number) as file:  # closed meanwhile
        return fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_WRLCK
    return False


# -- descriptors in messages ----------------------------------------------------------------------------------------


def _sent(pid: int | str, number: int) -> int:
    """Returns how many descriptors are in messages queued at a socket."""
    match = _SENT.search(head(f"/proc/{pid}/fdinfo/{number}"))
    return int(match[1]) if match else 0


def _look_at_messages(pid: int, holder: int, files: _Unnamed) -> None:
    """Adds the files sent to a socket, and to sockets that were sent, to `files`, without receiving them.

    Raises NotCheckpointable if not all of them can be seen, or if there are too many.

    Args:
        pid: the process that has the socket, as the host sees it.
        holder: our descriptor for the socket.
        files: the files found so far.
    """
    with contextlib.ExitStack() as stack:
        waiting, inodes, count, lines_left = deque([holder]), set[int](), 0, MOST_LINES
        while waiting:
            go_on()
            descriptor = waiting.popleft()
            expected = _sent("self", descriptor)
            if not expected or (inode := os.fstat(descriptor).st_ino) in inodes:
                continue
            inodes.add(inode)
            descriptors = _peek(descriptor)
            for one in descriptors:
                stack.enter_context(closing(one))
            count += len(descriptors)
            # The descriptors in a second message can only be seen after the first was received.
            if len(descriptors) < expected or count > MOST_SENT:
                raise NotCheckpointable(
                    f"{describe(pid)} has been sent descriptors which are not received yet, by several messages or "
                    f"more than {MOST_SENT:,}"
                )
            for one in descriptors:
                about = os.fstat(one)
                files.add(about)
                lines_left -= 0 if stat.S_ISSOCK(about.st_mode) else _lines_of("self", one)
                if stat.S_ISSOCK(about.st_mode):
                    waiting.append(one)
            if lines_left < 0:
                raise NotSeen(f"{describe(pid)} has been sent what there is too much to tell of")


def _peek(descriptor: int) -> list[int]:
    """Returns descriptors of our own for those in the first message queued at a socket."""
    descriptors = array.array("i")
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        if sock.getsockopt(socket.SOL_SOCKET, _PEEK_OFFSET) >= 0:
            return []  # peeking would move the position from which its owner peeks next
        room = socket.CMSG_SPACE(_LARGEST_MESSAGE * descriptors.itemsize)
        flags = socket.MSG_PEEK | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        with contextlib.suppress(BlockingIOError):
            for level, kind, data in sock.recvmsg(1, room, flags)[1]:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return list(descriptors)
