"""Descriptors of other processes, borrowed: the same open file, at which one can look without disturbing it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import termios
from collections.abc import Iterator

from tvsnap.host.libc import checked, closing, libc

_PIDFD_GETFD = 438
_SIOCUNIXFILE = 0x89E0


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


def unread(pipe: int) -> int:
    """Returns how many bytes are in a pipe or a fifo, whichever end of it this is."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])
