"""Python programs in a sandbox that hold something unusual, and tell of it when they are asked."""

from __future__ import annotations

import pytest

from tests.conformance.helpers import eventually, sh
from tvsnap.sandboxes.protocol import Sandbox

COMMON = """
import ctypes, fcntl, mmap, os, select, signal, socket, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
ME, HERE = os.getpid(), os.path.abspath(sys.argv[1])
PATTERN = bytes(range(251)) * 40
def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        while True: time.sleep(1000)
    return pid
def state(pid):
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
def until(probe):
    while not probe(): time.sleep(0.01)
def attempt(function, *arguments):
    try: return function(*arguments)
    except OSError as error: return error.strerror
def fill(s):
    "Sends all that there is room for; returns what that was."
    sent = 0
    while not isinstance(part := attempt(s.send, PATTERN[sent % 251:][:9000], socket.MSG_DONTWAIT), str): sent += part
    return sent
def drain(s, size):
    "Receives so much; returns whether it is what fill() sends."
    data = bytearray()
    while len(data) < size and (part := s.recv(1 << 16)): data += part
    return len(data) == size and data == (PATTERN * (size // len(PATTERN) + 1))[:size]
def hangs_up(s):
    look = select.poll()
    look.register(s, select.POLLRDHUP)
    return bool(look.poll(0))
def stopped(*signals):
    pid = child(lambda: None)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(pid) == "T")
    for each in signals: os.kill(pid, each)
    return pid
"""
READY = """
open(HERE + ".ready", "w").close()
while True: time.sleep(1000)
"""
REPORTING = """
def write(*_):
    if os.getpid() != ME: return
    with open(HERE + ".new", "w") as file: file.write(repr(report()))
    os.rename(HERE + ".new", HERE + ".report")
signal.signal(signal.SIGUSR1, write)
"""


def start(sandbox: Sandbox, name: str, program: str) -> None:
    """Runs a Python program as a background job in a directory of its own, and waits until it is ready."""
    name = name.replace(" ", "-")
    sandbox.write_file(f"/tmp/jobs/{name}/job.py", f"{COMMON}\n{program}\n{READY}".encode())
    sh(sandbox, f"cd /tmp/jobs/{name}; python3 job.py {name} > log 2>&1 & disown; echo $! > pid; cd /")
    eventually(
        lambda: sh(sandbox, f"cat /tmp/jobs/{name}/log 2> /dev/null; ls /tmp/jobs/{name} | grep ready"), timeout=60
    )
    said = sh(sandbox, f"cat /tmp/jobs/{name}/log")
    assert said == "", (name, said)


def report_of(sandbox: Sandbox, name: str) -> str:
    """Returns what such a program has to say, which is the value of its `report()`."""
    name = name.replace(" ", "-")
    sh(sandbox, f"kill -USR1 $(cat /tmp/jobs/{name}/pid)")
    look = f"cd /tmp/jobs/{name}; cat log *.report 2> /dev/null; cd /"
    try:
        eventually(lambda: sh(sandbox, look), timeout=60)
    except pytest.fail.Exception:
        seen = sh(sandbox, f"cd /tmp/jobs/{name}; ls -la; cat /proc/$(cat pid)/status; cd /")
        pytest.fail(f"no report of {name!r}: {seen}")
    return sh(sandbox, look)
