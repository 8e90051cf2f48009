"""What a call can change without a trace in files, in the shell, or in what has run: what waits to be read.

Nobody has to run for data to be taken out of a fifo, or to be queued for a sleeping process. What else others change of
a process is looked at by `tvsnap-init holds`.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterable

from tvsnap.sandboxes.processes.borrowing import borrowed, events, unread
from tvsnap.sandboxes.processes.procfs import status


def pending_signals(pid: int) -> tuple[int, int]:
    """Returns the signals that wait for a process, and those of them that it does not block, as sets of bits."""
    own, shared, blocked = (int(value, 16) for value in status(pid, "SigPnd", "ShdPnd", "SigBlk"))
    return own | shared, (own | shared) & ~blocked


def data_waits(pid: int, numbers: Iterable[int]) -> bool:
    """Whether anything among a process' descriptors holds what has not been read yet.

    That is a pipe, a fifo, a socket, a terminal, a queue of inotify, a timer, a counter or an epoll.
    """
    return any(_waits(pid, number) for number in numbers)


def _waits(pid: int, number: int) -> bool:
    path = f"/proc/{pid}/fd/{number}"
    target = os.readlink(path)
    if target.startswith("socket:"):
        with borrowed(pid, number) as socket:
            return bool(events(socket) & (select.POLLIN | select.POLLERR))
    if target.startswith(("anon_inode:", "/dev/pts/", "/dev/ptmx", "/dev/tty")):
        with borrowed(pid, number) as queue:
            return bool(events(queue) & select.POLLIN)
    if target.startswith("pipe:") or (target.startswith("/") and stat.S_ISFIFO(os.stat(path).st_mode)):
        with borrowed(pid, number) as pipe:
            return unread(pipe) > 0
    return False
