"""Waits and timers of processes in other time namespaces than this one's: how long they last is told all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.helpers import eventually
from tvsnap.sandboxes.processes import clocks
from tvsnap.sandboxes.processes.activity import Look, Watch

LASTS = 600.0
"""Seconds; none of the waits here comes to its end, and no load of the machine makes a test as late."""
LATE = 300.0
OFFSETS = {"ahead": 2000, "behind": -int(time.clock_gettime(time.CLOCK_MONOTONIC) / 2)}
"""Seconds by which a namespace's clocks are shifted; none may show less than 0."""

WAITS = {
    "sleep": f"time.sleep({LASTS})",
    "condition": f"c = threading.Condition(); c.acquire(); c.wait({LASTS})",
    "lock": f"l = threading.Lock(); l.acquire(); l.acquire(timeout={LASTS})",
    "nanosleep": "libc.clock_nanosleep(1, 1, at(time.CLOCK_MONOTONIC), None)",
    "boottime": "libc.clock_nanosleep(7, 1, at(time.CLOCK_BOOTTIME), None)",
    "realtime": "libc.clock_nanosleep(0, 1, at(time.CLOCK_REALTIME), None)",
    "relative": f"libc.nanosleep((ctypes.c_long * 2)({LASTS:.0f}, 0), None)",
    "futex": "libc.syscall(202, (ctypes.c_int * 1)(), 9 | 128, 0, at(time.CLOCK_MONOTONIC), None, -1)",
    "poll": f"import select; select.select([], [], [], {LASTS})",
    "timerfd": """
fd = libc.timerfd_create(1, 0)
libc.timerfd_settime(fd, 1, (ctypes.c_long * 4)(0, 0, *at(time.CLOCK_MONOTONIC)), None)
os.read(fd, 8)""",
    "timer": f"""
timer = ctypes.c_void_p()
libc.timer_create(1, None, ctypes.byref(timer))
libc.timer_settime(timer, 1, (ctypes.c_long * 4)(0, 0, *at(time.CLOCK_MONOTONIC)), None)
signal.pause()""",
    "alarm": f"signal.alarm({LASTS:.0f}); signal.pause()",
}
PROGRAM = f"""
import ctypes, os, signal, threading, time
libc = ctypes.CDLL(None)
def at(clock):
    return (ctypes.c_long * 2)(int(time.clock_gettime(clock)) + {LASTS:.0f}, 0)
print(os.getpid(), flush=True)
"""
LOOK = f"""
import json, sys
from tests.e2e.test_clocks import look_at
look = look_at(int(sys.argv[1]))
print(json.dumps([look.active, look.quiet_s]))
"""


def shifted(seconds: int, *command: str) -> list[str]:
    """Returns the command line of a command that is to run in a time namespace of its own."""
    return ["unshare", "-T", "-f", f"--monotonic={seconds}", f"--boottime={seconds}", *command]


@pytest.fixture
def begin() -> Iterator[Callable[[list[str]], int]]:
    """Begins a Python program; returns its process once it has said which that is."""
    begun: dict[int, subprocess.Popen[bytes]] = {}

    def begin(command: list[str]) -> int:
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        begun[pid] = process
        return pid

    yield begin
    for pid, process in begun.items():
        os.kill(pid, signal.SIGKILL)
        process.communicate()


def look_at(pid: int) -> Look:
    """Returns what is seen of one process, once it has come to its wait."""

    def seen() -> Look | None:
        look = Watch(lambda: [pid], os.getpid(), list).look(0)
        return look if "running" not in str(look.active) and "has just" not in str(look.active) else None

    return eventually(seen)


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("offset", OFFSETS)
def test_waits_in_another_namespace(begin: Callable[[list[str]], int], offset: str, wait: str) -> None:
    pid = begin(shifted(OFFSETS[offset], sys.executable, "-c", PROGRAM + WAITS[wait]))
    look = look_at(pid)
    assert LASTS - LATE < look.quiet_s <= LASTS + 1, look


@pytest.mark.parametrize("offset", OFFSETS)
def test_who_looks_is_in_another_namespace(begin: Callable[[list[str]], int], offset: str) -> None:
    for wait in ("sleep", "timerfd", "timer", "alarm"):
        pid = begin([sys.executable, "-c", PROGRAM + WAITS[wait]])
        look_at(pid)
        command = shifted(OFFSETS[offset], sys.executable, "-c", LOOK, str(pid))
        active, quiet_s = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        assert LASTS - LATE < quiet_s <= LASTS + 1, (wait, active)


def test_a_clock_is_as_its_process_sees_it(begin: Callable[[list[str]], int]) -> None:
    for offset in OFFSETS.values():
        pid = begin(shifted(offset, sys.executable, "-c", PROGRAM + "signal.pause()"))
        for number, clock in clocks.CLOCKS.items():
            ahead = clocks.shown_to(pid, number) / 1e9 - time.clock_gettime(clock)
            assert ahead == pytest.approx(offset if number in (1, 7) else 0, abs=LATE)
            assert clocks.of_the_kernel(number) / 1e9 == pytest.approx(time.clock_gettime(clock), abs=LATE)


def test_what_cannot_be_told_is_not_guessed(begin: Callable[[list[str]], int]) -> None:
    """The kernel tells of the namespace that a process has made for its children, and not of its own."""
    other = f"libc.unshare({0x80})\n"
    pid = begin(
        shifted(OFFSETS["ahead"], sys.executable, "-c", PROGRAM.replace("print", other + "print") + WAITS["sleep"])
    )
    with pytest.raises(OSError, match="for its children"):
        clocks.shown_to(pid, 1)
    assert look_at(pid).quiet_s == 0.0
