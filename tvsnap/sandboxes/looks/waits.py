"""Tells how long a sleeping thread may sleep, by the arguments of the system call that it is in.

A relative timeout is in the caller's registers or memory, but nothing shows when the wait began: at the earliest when
the thread did. So the remaining time is at least the timeout minus the thread's age.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import socket
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass

from tvsnap.sandboxes.kernel.borrowing import borrowed
from tvsnap.sandboxes.kernel.procfs import head
from tvsnap.sandboxes.looks.clocks import CLOCKS, shown_to

FOR_EVER = 366 * 86400.0
"""Seconds; a wait that long counts as unlimited (the idle shell's own timeout is 68 years)."""

# Name -> number on x86-64 and on arm64; None if the architecture lacks the call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "pread64": (17, 67), "readv": (19, 65), "preadv": (295, 69), "write": (1, 64), "writev": (20, 66),
    "accept": (43, 202), "accept4": (288, 242), "connect": (42, 203), "recvfrom": (45, 207), "recvmsg": (47, 212),
    "recvmmsg": (299, 243), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "sendfile": (40, 71), "splice": (275, 76), "tee": (276, 77), "vmsplice": (278, 75),
    "vfork": (58, None), "clone": (56, 220), "execve": (59, 221), "execveat": (322, 281),
    "pwrite64": (18, 68), "pwritev": (296, 70), "pwritev2": (328, 287), "preadv2": (327, 286),
    "io_getevents": (208, 4), "io_pgetevents": (333, 292),
    "wait4": (61, 260), "waitid": (247, 95), "pause": (34, None), "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137), "flock": (73, 32), "fcntl": (72, 25),
    "open": (2, None), "openat": (257, 56), "creat": (85, None), "openat2": (437, 437),
    "semop": (65, 193), "semtimedop": (220, 192), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "futex": (202, 98), "futex_waitv": (449, 449),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "restart_syscall": (219, 128),
}  # fmt: skip
_NAMES = {
    numbers[platform.machine() == "aarch64"]: name
    for name, numbers in _NUMBERS.items()
    if numbers[platform.machine() == "aarch64"] is not None
}

_FUTEX_COMMAND, _FUTEX_WAIT, _FUTEX_REALTIME = 0x7F, 0, 256
_FUTEX_ABSOLUTE = {9: False, 13: False, 11: False, 6: True}  # WAIT_BITSET, LOCK_PI2, WAIT_REQUEUE_PI; LOCK_PI: realtime
_TIMER_ABSTIME = 1
_FIFO_WAITS = ("fifo_open", "wait_for_partner")
_LARGEST_CLOCK = 64
TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console", "/dev/ptmx")
"""How the links in /proc/PID/fd that lead to terminals begin."""
_SO_TIMEOUTS = (getattr(socket, "SO_RCVTIMEO", 20), getattr(socket, "SO_SNDTIMEO", 21))


@dataclass(frozen=True, slots=True)
class Wait:
    """The time limits of a wait.

    Attributes:
        most: seconds that it can last at most, from its beginning; infinite if unlimited, NaN if unknown.
        least: seconds that it lasts at least from now on, unless something wakes the thread.
    """

    most: float
    least: float

    @classmethod
    def lasting(cls, most: float, age: float) -> Wait:
        """Returns a wait of `most` seconds by a thread that is `age` seconds old."""
        return ENDLESS if most - age >= FOR_EVER else cls(most, max(0.0, most - age))


ENDLESS = Wait(math.inf, math.inf)
UNKNOWN = Wait(math.nan, 0.0)


class Unreadable(Exception):
    """The arguments of a thread's system call cannot be read."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A system call that a thread is in; ids are the host's, `age` is the thread's in seconds."""

    pid: int
    thread: int
    arguments: tuple[int, ...]
    age: float

    def number(self, index: int) -> int:
        """Returns an argument that is an `int`."""
        return ctypes.c_int(self.arguments[index] & 0xFFFFFFFF).value

    def time(self, index: int, *, fraction: float = 1e-9) -> float | None:
        """Returns a `struct timespec` argument in seconds (None for NULL); its second member counts `fraction` s."""
        address = self.arguments[index]
        if not address:
            return None
        try:
            with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
                data = os.pread(memory.fileno(), 16, address)
        except (OSError, OverflowError):
            raise Unreadable from None
        if len(data) != 16:
            raise Unreadable
        seconds, rest = struct.unpack("qq", data)
        return float(seconds + rest * fraction)

    def relative(self, seconds: float | None) -> Wait:
        return ENDLESS if seconds is None else Wait.lasting(seconds, self.age)

    def until(self, moment: float | None, clock: int) -> Wait:
        """Returns a wait until a clock shows `moment` to the process."""
        if moment is None:
            return ENDLESS
        if clock not in CLOCKS:
            raise Unreadable
        return Wait.lasting(moment - shown_to(self.pid, clock) / 1e9, 0.0)


def _milliseconds(index: int) -> Callable[[_Call], Wait]:
    def look(call: _Call) -> Wait:
        milliseconds = call.number(index)
        return call.relative(None if milliseconds < 0 else milliseconds / 1000)

    return look


def _timespec(index: int, fraction: float = 1e-9) -> Callable[[_Call], Wait]:
    return lambda call: call.relative(call.time(index, fraction=fraction))


def _futex(call: _Call) -> Wait:
    operation = call.number(1)
    command = operation & _FUTEX_COMMAND
    if command == _FUTEX_WAIT:
        return call.relative(call.time(3))
    if command not in _FUTEX_ABSOLUTE:
        raise Unreadable
    realtime = _FUTEX_ABSOLUTE[command] or operation & _FUTEX_REALTIME
    return call.until(call.time(3), 0 if realtime else 1)


def _clock_nanosleep(call: _Call) -> Wait:
    clock = call.number(0)
    if clock not in CLOCKS:
        raise Unreadable
    seconds = call.time(2)
    return call.until(seconds, clock) if call.number(1) & _TIMER_ABSTIME else call.relative(seconds)


def _open_fifo(call: _Call) -> Wait:
    """Opening a fifo waits for the other side; opening a file may wait for a lease, which ends by itself."""
    if not _wait_channel(call).startswith(_FIFO_WAITS):
        raise Unreadable
    return ENDLESS


def _restarted(call: _Call) -> Wait:
    """A restarted call has the registers of the original one, one of three; its wait channel shows which."""
    channel = _wait_channel(call)
    if "nanosleep" in channel:
        first = call.arguments[0]
        return (_clock_nanosleep if first < _LARGEST_CLOCK else _timespec(0))(call)
    if "futex" in channel:
        return _futex(call)
    if "poll" in channel:
        return _milliseconds(2)(call)
    raise Unreadable


def _wait_channel(call: _Call) -> str:
    return head(f"/proc/{call.pid}/task/{call.thread}/wchan")


def _descriptors(*indexes: int) -> Callable[[_Call], Wait]:
    """Reading and writing: sockets and terminals may have their own timeouts."""

    def look(call: _Call) -> Wait:
        return min((_at_descriptor(call, call.number(index)) for index in indexes), key=lambda wait: wait.least)

    return look


def _at_descriptor(call: _Call, number: int) -> Wait:
    target = os.readlink(f"/proc/{call.pid}/fd/{number}")
    if target.startswith("socket:"):
        with borrowed(call.pid, number) as descriptor, socket.socket(fileno=os.dup(descriptor)) as sock:
            limits = [struct.unpack("ll", sock.getsockopt(socket.SOL_SOCKET, name, 16)) for name in _SO_TIMEOUTS]
        timeouts = [seconds + rest / 1e6 for seconds, rest in limits if seconds or rest]
        return call.relative(min(timeouts, default=None))
    if target.startswith(TERMINALS):
        with borrowed(call.pid, number) as descriptor:
            modes = termios.tcgetattr(descriptor)
        tenths = modes[6][termios.VTIME]
        if not modes[3] & termios.ICANON and tenths not in (0, b"\0"):
            return call.relative(ord(tenths) / 10 if isinstance(tenths, bytes) else tenths / 10)
    return ENDLESS


def _endless(call: _Call) -> Wait:
    return ENDLESS


def _recvmmsg(call: _Call) -> Wait:
    if call.arguments[4]:
        raise Unreadable
    return _at_descriptor(call, call.number(0))


_WAITS: dict[str, Callable[[_Call], Wait]] = {
    **dict.fromkeys(
        ("wait4", "waitid", "pause", "rt_sigsuspend", "flock", "fcntl", "semop", "msgsnd", "msgrcv"), _endless
    ),
    **dict.fromkeys(
        (
            *("read", "pread64", "readv", "preadv", "write", "writev", "accept", "accept4", "connect"),
            *("recvfrom", "recvmsg", "sendto", "sendmsg", "sendmmsg"),
        ),
        _descriptors(0),
    ),
    **dict.fromkeys(("sendfile", "tee"), _descriptors(0, 1)),
    "splice": _descriptors(0, 2),
    **dict.fromkeys(("open", "openat", "creat", "openat2"), _open_fifo),
    "recvmmsg": _recvmmsg,
    "rt_sigtimedwait": _timespec(2),
    "semtimedop": _timespec(3),
    "futex": _futex,
    "futex_waitv": lambda call: call.until(call.time(3), call.number(4)),
    "poll": _milliseconds(2),
    "ppoll": _timespec(2),
    "select": _timespec(4, 1e-6),
    "pselect6": _timespec(4),
    "epoll_wait": _milliseconds(3),
    "epoll_pwait": _milliseconds(3),
    "epoll_pwait2": _timespec(3),
    "nanosleep": _timespec(0),
    "clock_nanosleep": _clock_nanosleep,
    "restart_syscall": _restarted,
}


def call_of(text: str) -> tuple[str, tuple[int, ...]]:
    """Returns the name and the arguments of a thread's system call, given its /proc/PID/task/THREAD/syscall.

    The name is empty for calls not listed here, or if the thread runs, or waits for something else, such as a page.
    """
    words = text.split()
    if len(words) < 7 or not words[0].isdecimal():
        return "", ()
    return _NAMES.get(int(words[0]), ""), tuple(int(word, 16) for word in words[1:7])


def wait_of(pid: int, thread: int, text: str, age: float) -> Wait:
    """Returns the limits of a thread's wait, given its /proc/PID/task/THREAD/syscall.

    `pid` and `thread` are ids on the host; `age` is the thread's in seconds, or more.
    """
    name, arguments = call_of(text)
    look = _WAITS.get(name)
    if look is None:
        return UNKNOWN
    try:
        return look(_Call(pid, thread, arguments, age))
    except (Unreadable, OSError, ValueError, OverflowError, termios.error):
        return UNKNOWN
