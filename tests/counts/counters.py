"""Counts what this process does, in ways that do not depend on how fast or busy the machine is.

What depends on which thread or process comes first is left out: system calls that wait for others or have memory
(`LEFT_OUT`), and Python functions by which threads work together (`MEETING`). Functions written in C are not counted
as calls, and what other processes ask of the kernel is not counted: a shell goes on for a while after it has answered.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FrameType

from tvsnap.host.libc import checked, closing, libc

LEFT_OUT = (
    *("futex", "sched_yield", "nanosleep", "clock_nanosleep", "wait4", "waitid", "restart_syscall"),
    *("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"),
    *("brk", "mmap", "munmap", "mprotect", "mremap", "madvise"),
)
OPENS = ("open", "openat", "openat2", "open_by_handle_at")
MEETING = ("threading", "queue", "weakref", "_weakrefset", "concurrent.futures.thread", "concurrent.futures._base")
OURS = "tests.counts."

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_FSOPEN, _FSCONFIG, _FSMOUNT, _FSCONFIG_CREATE = 430, 431, 432, 6
_ATTRIBUTES = struct.Struct("=IIQQQQQ80x")  # struct perf_event_attr: type, its size, event, three times nothing, flags
_TRACE_POINT, _CLOSE_ON_EXEC = 2, 8
_INHERIT, _BY_THREADS_ONLY = 1 << 1, 1 << 35
_SET_FILTER = 0x40082406
_CLONE_THREAD = 0x10000


class CannotCount(Exception):
    """The kernel does not let this process count; the message says why."""


class KernelCounter:
    """Counts what the threads of this process ask of the kernel, and the processes below it.

    Threads and processes that were started before are left out.
    """

    def __init__(self) -> None:
        """Begins to count.

        Raises:
            CannotCount: the kernel does not let it.
        """
        try:
            with closing(_trace_points()) as points:
                self._all = _event(_point(points, "raw_syscalls/sys_enter"), _BY_THREADS_ONLY)
                self._left_out = _system_calls(points, LEFT_OUT)
                self._opens = _system_calls(points, OPENS)
                self._processes = _event(_point(points, "task/task_newtask"))
                fcntl.ioctl(self._processes, _SET_FILTER, f"!(clone_flags & {_CLONE_THREAD})\0".encode())
                self._programs = _event(_point(points, "sched/sched_process_exec"))
        except OSError as error:
            raise CannotCount(f"system calls and processes cannot be counted here ({error})") from None

    def read(self) -> Mapping[str, int]:
        """Returns what was counted so far."""
        return {
            "system calls": _value(self._all) - sum(map(_value, self._left_out)),
            "files opened": sum(map(_value, self._opens)),
            "processes started": _value(self._processes),
            "programs executed": _value(self._programs),
        }


class PythonCalls:
    """Counts calls of functions written in Python, in this thread and in all that are started from now on."""

    def __init__(self) -> None:
        """Does not count yet."""
        self._made: list[CodeType] | None = None
        threading.setprofile(self._note)

    def of(self, operate: Callable[[], object], settle: Callable[[], object]) -> list[CodeType]:
        """Returns the functions that were called, while `operate` ran, and by other threads while `settle` waited."""
        made = self._made = []
        sys.setprofile(self._note)
        try:
            operate()
        finally:
            sys.setprofile(None)
        settle()
        self._made = None
        return made

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        made = self._made
        if event == "call" and made is not None:
            module = frame.f_globals.get("__name__", "")
            if module not in MEETING and not module.startswith(OURS):
                made.append(frame.f_code)


def _trace_points() -> int:
    """Returns a descriptor of the directory of trace points, mounted nowhere."""
    with closing(checked(libc.syscall(_FSOPEN, b"tracefs", 1), "fsopen tracefs")) as context:
        checked(libc.syscall(_FSCONFIG, context, _FSCONFIG_CREATE, None, None, 0), "fsconfig tracefs")
        return checked(libc.syscall(_FSMOUNT, context, 1, 0), "fsmount tracefs")


def _point(points: int, name: str) -> int:
    """Returns the number of a trace point."""
    with open(os.open(f"events/{name}/id", os.O_RDONLY, dir_fd=points)) as file:
        return int(file.read())


def _system_calls(points: int, names: Iterable[str]) -> list[int]:
    """Returns what counts some system calls of this process; this machine may not have all of them."""
    events = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            events.append(_event(_point(points, f"syscalls/sys_enter_{name}"), _BY_THREADS_ONLY))
    return events


def _event(point: int, flags: int = 0) -> int:
    """Returns a descriptor that counts a trace point in this thread, and in what it starts from now on."""
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        raise OSError(f"perf_event_open has an unknown number on {platform.machine()}")
    attributes = _ATTRIBUTES.pack(_TRACE_POINT, _ATTRIBUTES.size, point, 0, 0, 0, _INHERIT | flags)
    return checked(libc.syscall(number, attributes, 0, -1, -1, ctypes.c_ulong(_CLOSE_ON_EXEC)), "perf_event_open")


def _value(event: int) -> int:
    return int.from_bytes(os.read(event, 8), sys.byteorder)
