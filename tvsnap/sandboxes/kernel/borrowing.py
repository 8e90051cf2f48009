"""Duplicates descriptors of other processes, so that their open files can be inspected without disturbing them."""

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
    """Yields a descriptor of our own for another process' open file; raises OSError if that is gone."""
    with closing(os.pidfd_open(pid)) as process:
        what = f"descriptor {number} of process {pid}"
        descriptor = checked(libc.syscall(_PIDFD_GETFD, process, number, 0), what)
    with closing(descriptor):
        yield descriptor


def compare(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Compares two descriptors, each a process (as the host sees it) and a number, by an order among open files.

    Returns 0 if they are the same open file, else -1 or 1. Raises OSError if one is gone, or if this kernel lacks kcmp.
    """
    (pid, number), (other_pid, other_number) = one, other
    order = libc.syscall(_KCMP, pid, other_pid, _KCMP_FILE, number, other_number)
    return (0, -1, 1)[checked(order, f"descriptor {number} of process {pid}")]


@contextlib.contextmanager
def file_of(socket: int) -> Iterator[int | None]:
    """Yields a descriptor (O_PATH) of the file that a Unix socket is bound to; None if it is bound to none."""
    descriptor = libc.ioctl(socket, ctypes.c_ulong(_SIOCUNIXFILE), 0)
    if descriptor < 0:
        yield None
        return
    with closing(descriptor):
        yield descriptor


def events(socket: int) -> int:
    """Returns the events that poll(2) reports for a socket, without consuming anything."""
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLRDHUP)
    return dict(poll.poll(0)).get(socket, 0)


def takes_output(terminal: int) -> bool:
    """Whether a terminal accepts output; it does not after Ctrl-S or tcflow()."""
    poll = select.poll()
    poll.register(terminal, select.POLLOUT)
    return bool(poll.poll(0))


def hung_up(master: int) -> bool:
    """Whether all descriptors of a terminal's slave were closed."""
    poll = select.poll()
    poll.register(master, 0)
    return bool(poll.poll(0))


def is_exclusive(terminal: int) -> bool:
    """Whether a terminal is in exclusive mode (TIOCEXCL)."""
    return any(fcntl.ioctl(terminal, _TIOCGEXCL, bytes(4)))


def sends_packets(master: int) -> bool:
    """Whether a terminal's master is in packet mode (TIOCPKT)."""
    return any(fcntl.ioctl(master, _TIOCGPKT, bytes(4)))


def unread(pipe: int) -> int:
    """Returns how many bytes are in a pipe or a fifo, given either end."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])
