"""Finds data that waits to be read: a call can change it and leave no trace in files, the shell, or CPU times.

Data can be taken out of a fifo, or be queued for a sleeping process, without any other process running. `tvsnap-init
holds` checks what else processes can change of each other.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterable

from tvsnap.sandboxes.kernel.borrowing import borrowed, events, unread
from tvsnap.sandboxes.kernel.procfs import status


def pending_signals(pid: int) -> tuple[int, int]:
    """Returns the signals pending for a process, and the ones among them that it does not block, as bit sets."""
    own, shared, blocked = (int(value, 16) for value in status(pid, "SigPnd", "ShdPnd", "SigBlk"))
    return own | shared, (own | shared) & ~blocked


def data_waits(pid: int, numbers: Iterable[int]) -> bool:
    """Whether any of a process' descriptors has data that was not read yet.

    These can be pipes, fifos, sockets, terminals, inotify instances, timers, eventfds and epolls.
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
