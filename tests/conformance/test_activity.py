"""What may change by itself in a sandbox: observations name it, and say for how long nothing does."""

from __future__ import annotations

import math
import time

import pytest

from tests.conformance.helpers import Lab, asleep, eventually, job, keys, sh
from tvsnap.model.observations import Observation
from tvsnap.sandboxes.protocol import Sandbox

# Name -> what leads to a state in which everything waits for what only a call can bring.
AT_REST = {
    "nothing": "true",
    "fifo to open": "mkfifo /tmp/f; cat /tmp/f &",
    "fifo to read": "mkfifo /tmp/f; exec 5<> /tmp/f; cat /tmp/f > /dev/null &",
    "server in accept": "python3 -c \"import socket; socket.create_server(('127.0.0.1', 9100)).accept()\" &",
    "server in epoll": "python3 -c 'import select; select.epoll().poll()' &",
    "server in select": "python3 -c 'import select; select.select([0], [], [])' < /dev/tty &",
    "threads": "python3 -c 'from threading import *; e = Event(); [Thread(target=e.wait).start() for _ in range(3)]' &",
    "signal": "python3 -c 'import signal; signal.pause()' &",
    "lock": "exec 6> /tmp/lock; flock 6; flock /tmp/lock true &",
    "child of one that waits": "mkfifo /tmp/f; (cat /tmp/f; true) &",
    "zombie": "python3 -c 'import os, signal; os.fork() or os._exit(0); signal.pause()' &",
    "timer that is not set": (
        "python3 -c 'import ctypes, signal; ctypes.CDLL(None).timerfd_create(1, 0); signal.pause()' &"
    ),
    "alarm that was taken back": "python3 -c 'import signal; signal.alarm(9); signal.alarm(0); signal.pause()' &",
    "loop, stopped": "yes > /dev/null & sleep 0.1; kill -STOP $!",
}

ALARM = r"""cat > /tmp/alarm.c <<'END'
#include <unistd.h>
int ring(void *words) { return (int)alarm(60); }
char *const ring_doc[] = {"", 0};
struct { char *name; int (*function)(void *); int flags; char *const *doc, *usage, *handle; }
    ring_struct = {"ring", ring, 1, ring_doc, "ring", 0};
END
gcc -shared -fPIC -o /tmp/alarm.so /tmp/alarm.c && enable -f /tmp/alarm.so ring && ring"""
"""A builtin of the shell's own that sets an alarm."""

PERIODIC = 'python3 -c \'import ctypes, signal, struct; c = ctypes.CDLL("librt.so.1"); '

# Name -> what leads to a state that develops by itself; what is told of it; seconds in which nothing does.
DEVELOPING = {
    "sleep": ("sleep 1000 &", "(sleep 1000) waits at most 1000 s", 1000),
    "sleep and then": ("(sleep 700; echo done > /tmp/f) &", "(sleep 700) waits at most 700 s", 700),
    "two of them": ("sleep 1000 & sleep 50 &", "(sleep 50)", 50),
    "loop": ("yes > /dev/null &", "is running", 0),
    "server that polls": ("python3 -m http.server 9101 > /dev/null 2>&1 &", "waits at most 0.5 s", 0.5),
    "timeout": ("mkfifo /tmp/f; timeout 100 cat /tmp/f &", "has set a timer", 100),
    "alarm": ("python3 -c 'import signal; signal.alarm(60); signal.pause()' &", "has set an alarm", 60),
    "alarm that kills": ("perl -e 'alarm 70; sleep' &", "has set an alarm", 70),
    "alarm behind a wait": ("perl -e 'alarm 70; exec q(cat)' < /dev/tty &", "has set an alarm", 70),
    "alarm of the idle shell": (ALARM, "(bash) has set an alarm", 60),
    "interval": ("python3 -c 'import signal; signal.setitimer(0, 80, 5); signal.pause()' &", "has set an alarm", 80),
    "timerfd": (
        "python3 -c 'import ctypes, os, struct; c = ctypes.CDLL(None); f = c.timerfd_create(1, 0); "
        'c.timerfd_settime(f, 0, struct.pack("4q", 0, 0, 40, 0), None); os.read(f, 8)\' &',
        "has a timer that rings",
        40,
    ),
    "timerfd that rings again and again, and is not read": (
        PERIODIC + "f = c.timerfd_create(1, 0); "
        'c.timerfd_settime(f, 0, struct.pack("4q", 300, 0, 0, 1), None); signal.pause()\' &',
        "has a timer that rings",
        0,
    ),
    "timer that rings again and again, with its signal blocked": (
        PERIODIC + "signal.pthread_sigmask(0, [10]); t = ctypes.c_void_p(); "
        'c.timer_create(1, struct.pack("qii48x", 0, 10, 0), ctypes.byref(t)); '
        'c.timer_settime(t, 0, struct.pack("4q", 300, 0, 0, 1), None); signal.pause()\' &',
        "has a timer that rings at an unknown time",
        0,
    ),
    "timer that sends nothing": (
        PERIODIC + "t = ctypes.c_void_p(); "
        'c.timer_create(1, struct.pack("qii48x", 0, 2 ** 31 - 1, 1), ctypes.byref(t)); '
        'c.timer_settime(t, 0, struct.pack("4q", 0, 0, 300, 0), None); signal.pause()\' &',
        "has a timer that rings at an unknown time",
        0,
    ),
    "one thread of several": (
        "python3 -c 'import threading as t; t.Thread(target=lambda: t.Event().wait(30)).start(); t.Event().wait()' &",
        "waits at most",
        30,
    ),
    "read -t": ("bash -c 'read -t 50' < /dev/tty &", "waits at most 50 s", 50),
    "select": ("python3 -c 'import select; select.select([], [], [], 77)' &", "waits at most 77 s", 77),
    "epoll": ("python3 -c 'import select; select.epoll().poll(33)' &", "waits at most 33 s", 33),
    "asyncio": ("python3 -c 'import asyncio; asyncio.run(asyncio.sleep(44))' &", "waits at most 44 s", 44),
    "sigtimedwait": ("python3 -c 'import signal; signal.sigtimedwait([10], 66)' &", "waits at most 66 s", 66),
    "socket with a timeout": (
        "python3 -c 'import socket, struct; s = socket.socket(type=socket.SOCK_DGRAM); "
        's.setsockopt(1, 20, struct.pack("ll", 55, 0)); s.bind(("127.0.0.1", 0)); s.recv(5)\' &',
        "waits at most 55 s",
        55,
    ),
    "terminal with a timeout": ("stty -icanon min 0 time 250 < /dev/tty; cat < /dev/tty &", "waits at most 25 s", 25),
    "clock": (
        "python3 -c 'import ctypes, struct, time; "
        'ctypes.CDLL(None).clock_nanosleep(0, 1, struct.pack("2q", int(time.time()) + 90, 0), None)\' &',
        "waits at most",
        90,
    ),
    "stopped before its end": (f"sleep 500 & {asleep('sleep')}; kill -STOP $!", "(sleep 500)", 500),
    "timer of a process whose first thread has ended": (
        "python3 -c 'import ctypes, os, signal, struct, threading; c = ctypes.CDLL(None); f = c.timerfd_create(1, 0); "
        'c.timerfd_settime(f, 0, struct.pack("4q", 0, 0, 40, 0), None); '
        "threading.Thread(target=os.read, args=(f, 8), daemon=True).start(); "
        'c.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)\' &',
        "goes on after its first thread has ended",
        0,
    ),
    "closed connection": (
        "python3 -c \"import socket; s = socket.create_server(('127.0.0.1', 9102)); "
        "c = socket.create_connection(('127.0.0.1', 9102)); s.accept()[0].close()\"",
        "TCP port 9102 is in TIME_WAIT",
        60,
    ),
    "connection that is not taken": (
        "python3 -c \"import signal, socket; s = socket.create_server(('127.0.0.1', 9103), backlog=0); "
        "c = [socket.socket() for _ in range(4)]; [x.setblocking(False) for x in c]; "
        "[x.connect_ex(('127.0.0.1', 9103)) for x in c]; signal.pause()\" &",
        "is in SYN_SENT",
        0,
    ),
}


def at_rest(sandbox: Sandbox) -> bool:
    seen = sandbox.observe()
    assert (seen.quiet_s == math.inf) == (not seen.active)
    return not seen.active


def test_fresh_sandbox_is_at_rest(sandbox: Sandbox) -> None:
    for command in ("true", "x=1; cd /tmp", "echo x > f; cat f"):
        assert (sandbox.observe().active, sandbox.observe().quiet_s) == (None, math.inf)
        sh(sandbox, command)


@pytest.mark.parametrize("name", AT_REST)
def test_at_rest(reused: Sandbox, name: str) -> None:
    sh(reused, f"rm -f /tmp/f; {END_ALL}")
    sh(reused, AT_REST[name])
    eventually(lambda: at_rest(reused))
    time.sleep(0.1)
    assert reused.observe().active is None


END_ALL = """
while :; do
    left=
    for pid in /proc/[0-9]*; do
        case ${pid#/proc/} in 1 | $$) ;; *) left=1; kill -9 ${pid#/proc/} ;; esac
    done
    [ "$left" ] || break
    sleep 0.02
done 2> /dev/null
"""
"""Ends all processes but PID 1 and the shell, and waits until they are gone."""


@pytest.mark.parametrize("name", DEVELOPING)
def test_develops(reused: Sandbox, name: str) -> None:
    command, says, most = DEVELOPING[name]
    sh(reused, "rm -f /tmp/f; kill -9 $(ps -eo pid= | grep -vx -e ' *1' -e \" *$$\") 2> /dev/null; true")
    eventually(lambda: reused.observe().alone)  # what was killed takes a moment to go
    began = time.monotonic()
    sh(reused, command)

    def seen() -> Observation | None:
        found = reused.observe()
        return found if says in str(found.active) and (found.quiet_s or most < 1) else None

    found = eventually(seen)
    assert found is not None
    assert found.quiet_s <= most
    if most > 1:
        assert found.quiet_s > most - (time.monotonic() - began) - 1.5, found


def test_job_of_either_kind(sandbox: Sandbox) -> None:
    job(sandbox, "sleep 1000")
    found = sandbox.observe()
    assert "sleep 1000" in str(found.active)
    assert 900 < found.quiet_s <= 1000
    sh(sandbox, "kill $!; wait $! 2> /dev/null; true")
    eventually(lambda: at_rest(sandbox))


def same_twice(sandbox: Sandbox) -> Observation | None:
    """Returns how a sandbox looks, if it looks so twice: what has just been started may not have come to its wait."""
    one, other = sandbox.observe(), sandbox.observe()
    return other if one == other else None


def test_nothing_happens_while_it_is_quiet(sandbox: Sandbox) -> None:
    sh(sandbox, "(sleep 9; echo done > /tmp/f) &")
    eventually(lambda: "sleep 9" in str(sandbox.observe().active))
    began = time.monotonic()
    first = eventually(lambda: same_twice(sandbox))
    assert first is not None
    assert 0 < first.quiet_s <= 9
    looks = []
    while True:
        looks.append(sandbox.observe())
        if time.monotonic() > began + first.quiet_s:  # it may have ended before the last look did
            break
        assert looks[-1] == first
        time.sleep(0.1)
    assert len(looks) > 1
    eventually(lambda: at_rest(sandbox))
    assert sh(sandbox, "cat /tmp/f") == "done\n"


@pytest.mark.parametrize(
    ("typed", "shows"), [("python3 -q\r", ">>> "), ("vim -u NONE /tmp/x\r", "~"), ("seq 500 | less\r", ":")]
)
def test_programs_at_the_terminal(sandbox: Sandbox, typed: str, shows: str) -> None:
    keys(sandbox, typed, shows=shows)
    eventually(lambda: at_rest(sandbox))


def test_shell_that_ends_by_itself(sandbox: Sandbox) -> None:
    sh(sandbox, "TMOUT=300")
    assert sandbox.observe().active is None
    sandbox.send_keys(b"true\r", wait=0.5)
    eventually(lambda: "has set an alarm" in str(sandbox.observe().active))
    assert 290 < sandbox.observe().quiet_s <= 300


def test_two_sandboxes(lab: Lab) -> None:
    """What rings in one says nothing of the other."""
    noisy, still = lab.start(), lab.start()
    sh(still, "python3 -c 'import signal; signal.pause()' &")
    sh(noisy, "python3 -c 'import signal; signal.alarm(60); signal.pause()' &")
    eventually(lambda: "alarm" in str(noisy.observe().active))
    eventually(lambda: at_rest(still))


@pytest.mark.needs_processes
def test_forks_say_the_same(lab: Lab) -> None:
    """Also where a wait was interrupted by the checkpoint and goes on, in the sandbox as in its fork."""
    sandbox = lab.start()
    sh(
        sandbox,
        "sleep 1000 & python3 -c 'import select; select.poll().poll()' & python3 -c 'import signal; signal.pause()' &",
    )
    eventually(lambda: str(sandbox.observe().active).count("process") == 1)
    fork = lab.fork_of(sandbox)
    for one in (sandbox, fork):
        eventually(lambda one=one: 900 < one.observe().quiet_s < math.inf)  # type: ignore[misc]
        assert str(one.observe().active).count("process") == 1
        sh(one, "kill %1; wait %1 2> /dev/null; true")
        eventually(lambda one=one: at_rest(one))  # type: ignore[misc]
