"""What a call can change in the kernel without a trace in files, in the shell, or in what has run.

Nobody has to run for data to be taken out of a fifo, for a stopped process to be sent a signal, or for a sleeping one
to be given another priority.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterable

from tvsnap.backends.local.borrowing import borrowed, events, unread


def attributes(pid: int, fields: list[str]) -> str:
    """Returns what others can change of a process: priority, scheduling, processors, limits, signals that it has not
    taken yet.

    Args:
        pid: the process, as the host sees it.
        fields: what /proc/PID/stat says from its state on.
    """
    pending = pending_signals(pid)[0]
    return (
        f"{fields[16]} {fields[37:39]} {sorted(os.sched_getaffinity(pid))} {pending:x} {_read(f'/proc/{pid}/limits')}"
    )


def pending_signals(pid: int) -> tuple[int, int]:
    """Returns the signals that wait for a process, and those of them that it does not block, as sets of bits."""
    status = dict(line.split(":\t", 1) for line in _read(f"/proc/{pid}/status").splitlines())
    pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    return pending, pending & ~int(status["SigBlk"], 16)


def _read(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return file.read().decode(errors="replace")


def data_waits(pid: int, numbers: Iterable[int]) -> bool:
    """Whether any pipe, fifo or socket among a process' descriptors holds what has not been read yet.

    Args:
        pid: the process, as the host sees it.
        numbers: the descriptors to look at.
    """
    return any(_waits(pid, number) for number in numbers)


def _waits(pid: int, number: int) -> bool:
    path = f"/proc/{pid}/fd/{number}"
    target = os.readlink(path)
    if target.startswith("socket:"):
        with borrowed(pid, number) as socket:
            return bool(events(socket) & (select.POLLIN | select.POLLERR))
    if target.startswith("pipe:") or (target.startswith("/") and stat.S_ISFIFO(os.stat(path).st_mode)):
        with borrowed(pid, number) as pipe:
            return unread(pipe) > 0
    return False
