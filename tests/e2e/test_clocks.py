"""Waits and timers of processes in other time namespaces than this one's: how long they last is told all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.helpers import eventually
from tvsnap.images import Image
from tvsnap.sandboxes.looks import clocks
from tvsnap.sandboxes.looks.activity import Look, Watch

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
    "timer": """
timer = ctypes.c_void_p()
libc.timer_create(1, None, ctypes.byref(timer))
libc.timer_settime(timer, 1, (ctypes.c_long * 4)(0, 0, *at(time.CLOCK_MONOTONIC)), None)
signal.pause()""",
    "alarm": f"signal.alarm({LASTS:.0f}); signal.pause()",
}
SAY = "print(os.getpid(), flush=True)"
PROGRAM = f"""
import ctypes, os, signal, threading, time
libc = ctypes.CDLL(None)
def at(clock):
    return (ctypes.c_long * 2)(int(time.clock_gettime(clock)) + {LASTS:.0f}, 0)
{SAY}
"""
LOOK = """
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

    look = eventually(seen)
    assert look is not None
    return look


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
    program = PROGRAM.replace(SAY, f"libc.unshare(0x80)\n{SAY}") + WAITS["sleep"]
    pid = begin(shifted(OFFSETS["ahead"], sys.executable, "-c", program))
    with pytest.raises(OSError, match="for its children"):
        clocks.shown_to(pid, 1)
    assert look_at(pid).quiet_s == 0.0


ROLLOUTS = """
import json, math, sys
from tests.fakes.caches import settle
from tvsnap import Budget, Cache
home, rollouts = sys.argv[1], json.loads(sys.argv[2])
with Cache(home, policy="default", budget=Budget(parked=0)) as cache:
    for salt, calls in rollouts:
        seen = []
        with cache.rollout("terminal", salt=salt) as rollout:
            for command, after in calls:
                result = rollout.call("bash", {"command": command}, 60.0, after=after)
                settle(rollout)
                made_by = cache.graph.edge_to(rollout.state)
                quiet_s = None if made_by is None or made_by.quiet_s == math.inf else made_by.quiet_s
                seen.append((result.output.strip(), result.source, quiet_s))
        print(json.dumps(seen))
"""
READY = "open('/tmp/ready', 'w')"
BEGUN = "until [ -e /tmp/ready ] && grep -q '^State:.S' /proc/$!/status; do :; done"
JOBS = {
    name: f'python3 -c "{PROGRAM.replace(SAY, READY)}{WAITS[name]}" & {BEGUN}'
    for name in ("sleep", "condition", "timerfd", "poll")
}
"""Commands that begin a wait, and end once it has begun."""


def roll(home: Path, offset: int, *rollouts: tuple[str, list[tuple[str, float]]]) -> list[list[Any]]:
    """Makes rollouts, each of a salt and of calls, in a process whose clocks are shifted.

    Returns:
        For each rollout and each of its calls: output, source, and for how long the state is quiet; None for ever.
    """
    command = shifted(offset, sys.executable, "-c", ROLLOUTS, str(home), json.dumps(rollouts))
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.parametrize(("first", "then"), [("ahead", "behind"), ("behind", "ahead")])
def test_forks_after_another_start_of_the_machine(
    tvsnap_home: Path, terminal_image: Image, first: str, then: str
) -> None:
    """Its clock shows less than it did, or more, and in forks it goes on as it was."""
    salts = {name: f"{name} {time.time_ns()}" for name in JOBS}
    begun = [(salts[name], [(job, 0.0)]) for name, job in JOBS.items()]
    for name, ((_, _, quiet_s),) in zip(JOBS, roll(tvsnap_home, OFFSETS[first], *begun), strict=True):
        assert LASTS - LATE < quiet_s <= LASTS + 1, name
    gone_on = [(salt, [*calls, ("echo 1 > /tmp/g", 0.0)]) for salt, calls in begun]
    for name, (was, went_on) in zip(JOBS, roll(tvsnap_home, OFFSETS[then], *gone_on), strict=True):
        assert (was[1], went_on[1]) == ("hit", "executed"), name
        assert LASTS - LATE < went_on[2] <= LASTS + 1, name


def test_who_has_waited_is_answered_so(tvsnap_home: Path, terminal_image: Image) -> None:
    """After another start of the machine, by whose clock the job would have long to wait."""
    salt = f"{time.time_ns()}"
    wait = PROGRAM.replace(SAY, READY) + "time.sleep(2); open('/tmp/f', 'w')"
    job = (f'python3 -c "{wait}" & {BEGUN}', 0.0)
    calls = [job, ("echo 1 > /tmp/g", 0.0)]
    look = "test -e /tmp/f && echo done || echo none"
    roll(tvsnap_home, OFFSETS["ahead"], (salt, [job]))
    _, late = roll(tvsnap_home, 0, (salt, [*calls, (look, 0.0)]), (salt, [*calls, (look, 3.5)]))
    assert late[2][0] == "done"
