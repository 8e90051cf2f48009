"""Finds kernel timers that expire for a process whatever it waits for: timerfds, POSIX timers and alarms.

/proc shows the remaining time of a timerfd; of POSIX timers only that they exist; of alarms (alarm, setitimer) nothing.
But /proc/timer_list shows all timers that are set on the machine, by kind and not by owner: none of a process' timers
can expire before the first of its kind. On most kernels `alarms.py` finds the owners.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tvsnap.host.libc import libc
from tvsnap.sandboxes.kernel.borrowing import borrowed
from tvsnap.sandboxes.kernel.procfs import read, status
from tvsnap.sandboxes.looks import native_look

ALARM, POSIX = "it_real_fn", "posix_timer_fn"
"""The kinds, by the kernel function that is called when a timer expires."""
_LIST = Path("/proc/timer_list")
_LONGEST = 16 << 20
_ENTRY = re.compile(rb"(?m)^(now at|  \.offset:| clock| #\s*\d+:.*?, (\w+), S:.*\n # expires at) *(\d+)")
TIMERFD = "anon_inode:[timerfd]"
"""The link of a timerfd in /proc/PID/fd."""
_LEFT = re.compile(rb"^it_value: \((\d+), (\d+)\)", re.MULTILINE)
_INTERVAL = re.compile(rb"^it_interval: \((\d+), (\d+)\)", re.MULTILINE)
_TICKS = re.compile(rb"^ticks: (\d+)", re.MULTILINE)
_FLAGS = re.compile(rb"^settime flags: (\d+)", re.MULTILINE)
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
_ITIMERSPEC = 32  # bytes: the interval, and the remaining time
_CLOCK = re.compile(rb"^ClockID: (-?\d+)", re.MULTILINE)
_SIGNAL = re.compile(rb"^signal: (\d+)/", re.MULTILINE)
_LAST_SIGNAL = 64
_SENDS_NOTHING = re.compile(rb"^notify: none/", re.MULTILINE)
_WALL_CLOCKS = {0, 1, 7, 11}
"""Clocks that do not count processor time, and have their timers in the list."""
_CPU_CLOCKS = {2, 3}


def first_to_ring() -> dict[str, float]:
    """Returns, for each kind of timer set on this machine, the seconds until the first one expires.

    Raises OSError if this machine does not show its timers.
    """
    text = _LIST.read_bytes()
    if len(text) > _LONGEST or not text.startswith(b"Timer List"):
        raise OSError("timers are not listed as expected")
    now = offset = 0
    nearest: dict[str, float] = {}
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
            seconds = max(0.0, (number - now - offset) / 1e9)
            nearest[name] = min(nearest.get(name, math.inf), seconds)
    return nearest


def timerfds(pid: int, targets: Mapping[int, str]) -> Iterator[float]:
    """Yields the seconds until each armed timerfd of a process expires; 0 if unknown.

    That of a periodic timer which has expired is unknown until it is read: the kernel counts on only when it is asked,
    and shows no time until then. `targets` has the links in /proc/PID/fd by descriptor.
    """
    for number, target in targets.items():
        if target != TIMERFD:
            continue
        try:
            info = read(f"/proc/{pid}/fdinfo/{number}")
        except FileNotFoundError:
            continue  # it was just closed; then the process ran, which is noticed
        remaining = _LEFT.search(info)
        if remaining is None or _has_rung(info):
            yield 0.0
        elif remaining[1] != b"0" or remaining[2] != b"0":
            yield int(remaining[1]) + int(remaining[2]) / 1e9


def prepare_for_dump(pids: Iterable[int]) -> None:
    """Makes the kernel report all that CRIU needs to know about the timerfds of these processes.

    The kernel updates how often a periodic timer has expired since it was read only when it is asked; until then /proc,
    and so CRIU, sees the first expiration only.
    """
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for number, target in native_look.descriptors(pid):
                if target == TIMERFD and _has_rung(read(f"/proc/{pid}/fdinfo/{number}")):
                    with borrowed(pid, number) as timer:
                        libc.timerfd_gettime(timer, ctypes.create_string_buffer(_ITIMERSPEC))


def rings_at_a_moment(pid: int, number: str) -> bool:
    """Whether a timerfd is armed and was set with TFD_TIMER_ABSTIME."""
    info = read(f"/proc/{pid}/fdinfo/{number}")
    flags, remaining = _FLAGS.search(info), _LEFT.search(info)
    return bool(flags and remaining and int(flags[1], 8) & _ABSOLUTE and (int(remaining[1]) or int(remaining[2])))


def _has_rung(info: bytes) -> bool:
    ticks, interval = _TICKS.search(info), _INTERVAL.search(info)
    return bool(ticks and interval and int(ticks[1]) and (int(interval[1]) or int(interval[2])))


def posix_timers(pid: int) -> bool | None:
    """Whether a process may have set POSIX timers; None if one of them may not be in the list of all timers.

    A timer that sends nothing never is, and one whose signal waits to be noticed is not until then, though the kernel
    counts how often it would have rung.
    """
    text = read(f"/proc/{pid}/timers", 1 << 16)
    clocks = {int(number) for number in _CLOCK.findall(text)}
    waking = {clock for clock in clocks if clock >= 0 and clock not in _CPU_CLOCKS}
    if waking - _WALL_CLOCKS or len(text) == 1 << 16 or _SENDS_NOTHING.search(text):
        return None
    if waking and _has_rung_unnoticed(pid, text):
        return None
    return bool(waking)


def has_rung_unnoticed(pid: int) -> bool:
    """Whether the signal of one of a process' POSIX timers waits to be noticed; how often it has rung is counted."""
    return _has_rung_unnoticed(pid, read(f"/proc/{pid}/timers", 1 << 16))


def _has_rung_unnoticed(pid: int, text: bytes) -> bool:
    signals = {int(number) for number in _SIGNAL.findall(text)}  # any numbers, if they are not sent
    pending = _pending(pid) if signals else 0
    return any(pending >> number - 1 & 1 for number in signals if 0 < number <= _LAST_SIGNAL)


def _pending(pid: int) -> int:
    """Returns the set of signals that wait to be noticed by a process or one of its threads."""
    pending = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        for signals in status(int(thread), "SigPnd", "ShdPnd"):
            pending |= int(signals, 16)
    return pending
