"""Timers of the kernel that ring for a process whatever it waits for: timerfd, POSIX timers, and alarms.

What a timerfd has left, /proc tells. Of POSIX timers it tells that they are there, of alarms (alarm, setitimer) nothing
at all. But /proc/timer_list names all timers that are set on the machine by their kind, not by their owner: none of a
process's can ring before the first of its kind. Whose they are is told by `alarms.py` on most kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tvsnap.host.libc import libc
from tvsnap.sandboxes import native_look
from tvsnap.sandboxes.processes.borrowing import borrowed
from tvsnap.sandboxes.processes.procfs import read

ALARM, POSIX = "it_real_fn", "posix_timer_fn"
"""The kinds, by the function that the kernel calls when one rings."""
_LIST = Path("/proc/timer_list")
_LONGEST = 16 << 20
_ENTRY = re.compile(rb"(?m)^(now at|  \.offset:| clock| #\s*\d+:.*?, (\w+), S:.*\n # expires at) *(\d+)")
_TIMERFD = "anon_inode:[timerfd]"
_LEFT = re.compile(rb"^it_value: \((\d+), (\d+)\)", re.MULTILINE)
_INTERVAL = re.compile(rb"^it_interval: \((\d+), (\d+)\)", re.MULTILINE)
_TICKS = re.compile(rb"^ticks: (\d+)", re.MULTILINE)
_FLAGS = re.compile(rb"^settime flags: (\d+)", re.MULTILINE)
_OF_CLOCK = re.compile(rb"^clockid: (\d+)", re.MULTILINE)
_ITIMERSPEC = 32  # bytes: its interval, and what is left
_SET_TICKS = 0x40085400
_CLOCK = re.compile(rb"^ClockID: (-?\d+)", re.MULTILINE)
_WALL_CLOCKS = {0, 1, 7, 11}
"""Of those, timers run without anyone's processor time and are in the list."""
_CPU_CLOCKS = {2, 3}


def first_to_ring() -> dict[str, float]:
    """Returns, for each kind of timer that is set on this machine, seconds until the first of them rings.

    Raises:
        OSError: this machine does not tell.
    """
    text = _LIST.read_bytes()
    if len(text) > _LONGEST or not text.startswith(b"Timer List"):
        raise OSError("timers are not listed as expected")
    now = offset = 0
    found: dict[str, float] = {}
    for match in _ENTRY.finditer(text):
        what, kind, number = match[1], match[2], int(match[3])
        if what == b"now at":
            now = number
        elif what == b"  .offset:":
            offset = number
        elif what == b" clock":
            offset = 0
        else:
            name = kind.decode()
            left = max(0.0, (number - now - offset) / 1e9)
            found[name] = min(found.get(name, math.inf), left)
    return found


def timerfds(pid: int, targets: Mapping[int, str]) -> Iterator[float]:
    """Yields seconds until each armed timerfd of a process rings; 0 where that cannot be told.

    Args:
        pid: its id.
        targets: what its descriptors lead to, by their numbers.
    """
    for number, target in targets.items():
        if target != _TIMERFD:
            continue
        try:
            left = _LEFT.search(read(f"/proc/{pid}/fdinfo/{number}"))
        except FileNotFoundError:
            continue  # closed under our eyes; then it ran, which is seen
        if left is None:
            yield 0.0
        elif left[1] != b"0" or left[2] != b"0":
            yield int(left[1]) + int(left[2]) / 1e9


def prepare_for_dump(pids: Iterable[int]) -> None:
    """Has the kernel tell all that CRIU needs to know of timerfds.

    How often periodic ones have rung since somebody read them, the kernel counts when it is asked; until then /proc,
    and with it CRIU, tells of the first time only. And one that was set to ring at a moment is set to ring after the
    time that is left until then, which is the same to its process: CRIU takes the whole seconds only of the time at
    which it sets the former again, so that they would ring up to a second early (`criu/pie/restorer.c`).

    Args:
        pids: the processes that have them.
    """
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for number, target in native_look.descriptors(pid):
                if target != _TIMERFD:
                    continue
                info = read(f"/proc/{pid}/fdinfo/{number}")
                if not (_has_rung(info) or _rings_at_a_moment(info)):
                    continue
                with borrowed(pid, number) as timer:
                    setting = ctypes.create_string_buffer(_ITIMERSPEC)
                    libc.timerfd_gettime(timer, setting)
                    if _rings_at_a_moment(info):
                        _set_relative(timer, setting, read(f"/proc/{pid}/fdinfo/{number}"))


def _set_relative(timer: int, setting: ctypes.Array[ctypes.c_char], info: bytes) -> None:
    """Sets a timerfd to ring after a time; how often it has rung without having been read is kept."""
    if not any(setting.raw[_ITIMERSPEC // 2 :]):  # it is not armed
        return
    libc.timerfd_settime(timer, 0, setting, None)
    ticks = _TICKS.search(info)
    if ticks and int(ticks[1]):
        libc.ioctl(timer, ctypes.c_ulong(_SET_TICKS), ctypes.byref(ctypes.c_uint64(int(ticks[1]))))


def _rings_at_a_moment(info: bytes) -> bool:
    """Whether a timerfd was set with TFD_TIMER_ABSTIME, and nothing else, on the clock that CRIU brings back."""
    flags, clock = _FLAGS.search(info), _OF_CLOCK.search(info)
    return bool(flags and clock and int(flags[1], 8) == 1 and int(clock[1]) == time.CLOCK_MONOTONIC)


def _has_rung(info: bytes) -> bool:
    ticks, interval = _TICKS.search(info), _INTERVAL.search(info)
    return bool(ticks and interval and int(ticks[1]) and (int(interval[1]) or int(interval[2])))


def posix_timers(pid: int) -> bool | None:
    """Whether a process has made POSIX timers that may be set; None if one of them could not be found in the list."""
    text = read(f"/proc/{pid}/timers", 1 << 16)
    clocks = {int(number) for number in _CLOCK.findall(text)}
    waking = {clock for clock in clocks if clock >= 0 and clock not in _CPU_CLOCKS}
    if waking - _WALL_CLOCKS or len(text) == 1 << 16:
        return None
    return bool(waking)
