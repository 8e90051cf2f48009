"""Descriptors of other processes, borrowed: the same open file, at which one can look without disturbing it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import select
import struct
import termios
from collections.abc import Iterator

from tvsnap.host.libc import checked, closing, libc

_PIDFD_GETFD = 438
_KCMP, _KCMP_FILE = 312 if platform.machine() == "x86_64" else 272, 0
_SIOCUNIXFILE = 0x89E0
_TIOCGPKT, _TIOCGEXCL = 0x80045438, 0x80045440


@contextlib.contextmanager
def borrowed(pid: int, number: int) -> Iterator[int]:
    """A block with a descriptor of our own for what another process has open.

    Raises:
        OSError: it is gone.
    """
    with closing(os.pidfd_open(pid)) as process:
        what = f"descriptor {number} of process {pid}"
        descriptor = checked(libc.syscall(_PIDFD_GETFD, process, number, 0), what)
    with closing(descriptor):
        yield descriptor


def compare(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Returns 0 if two descriptors are the same open file, else -1 or 1: an order among open files.

    Args:
        one, other: process, as the host sees it, and number.

    Raises:
        OSError: one is gone, or this kernel does not tell.
    """
    (pid, number), (other_pid, other_number) = one, other
    found = libc.syscall(_KCMP, pid, other_pid, _KCMP_FILE, number, other_number)
    return (0, -1, 1)[checked(found, f"descriptor {number} of process {pid}")]


@contextlib.contextmanager
def file_of(socket: int) -> Iterator[int | None]:
    """A block with a descriptor (O_PATH) of the file that a Unix socket is bound to; None if it has none."""
    descriptor = libc.ioctl(socket, ctypes.c_ulong(_SIOCUNIXFILE), 0)
    if descriptor < 0:
        yield None
        return
    with closing(descriptor):
        yield descriptor


def events(socket: int) -> int:
    """Returns what waits at a socket, as poll(2) says it; unlike reading, this leaves all of it there."""
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLRDHUP)
    return dict(poll.poll(0)).get(socket, 0)


def takes_output(terminal: int) -> bool:
    """Whether there is room for output to a terminal: none where it was stopped (Ctrl-S, tcflow)."""
    poll = select.poll()
    poll.register(terminal, select.POLLOUT)
    return bool(poll.poll(0))


def hung_up(master: int) -> bool:
    """Whether all who had the slave of a terminal open have closed it."""
    poll = select.poll()
    poll.register(master, 0)
    return bool(poll.poll(0))


def is_exclusive(terminal: int) -> bool:
    """Whether a terminal may not be opened any more (TIOCEXCL)."""
    return any(fcntl.ioctl(terminal, _TIOCGEXCL, bytes(4)))


def sends_packets(master: int) -> bool:
    """Whether the master of a terminal is in packet mode (TIOCPKT)."""
    return any(fcntl.ioctl(master, _TIOCGPKT, bytes(4)))


def unread(pipe: int) -> int:
    """Returns how many bytes are in a pipe or a fifo, whichever end of it this is."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])
