"""What others set of a process that sleeps: of each thread, and of files in memory, timers and pipes that it has."""

from __future__ import annotations

import pytest

from tests.conformance.helpers import changed, eventually, sh, still
from tvsnap.sandboxes.protocol import Sandbox

SLEEPER = """
import ctypes, os, signal, struct, threading, time
libc = ctypes.CDLL(None)
def work():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    time.sleep(100000)
for number in range(2):
    threading.Thread(target=work, daemon=True).start()
memory = libc.memfd_create(b"kept", 3)
os.ftruncate(memory, 100)
pipe = os.pipe()
clocks = [libc.timerfd_create(clock, 0) for clock in (0, 1, 7)]
for clock in clocks:
    libc.timerfd_settime(clock, 0, struct.pack("4q", 500, 0, 3000, 0), None)
open("/tmp/sleeper", "w").write(f"S={os.getpid()} M={memory} C=({' '.join(map(str, clocks))}) P={pipe[0]}")
time.sleep(100000)
"""
SEAL = "import fcntl, os, sys; fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), 1033, 8)"
SET = """
import ctypes, os, struct, sys
process, clock, left = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
clock = libc.syscall(438, os.pidfd_open(process), clock, 0)
if clock < 0: sys.exit(os.strerror(ctypes.get_errno()))
assert libc.timerfd_settime(clock, 0, struct.pack("4q", 500, 0, left, 0), None) == 0
"""
SIGNAL = "import ctypes, sys; assert ctypes.CDLL(None).syscall(234, int(sys.argv[1]), int(sys.argv[2]), 10) == 0"
OWNER = """
import ctypes, fcntl, os, sys
process, number, command, value = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
pipe = libc.syscall(438, os.pidfd_open(process), number, 0)
if pipe < 0: sys.exit(os.strerror(ctypes.get_errno()))
fcntl.fcntl(pipe, command, value)
"""
ENDED = """
import ctypes, mmap, os, threading, time
memory = mmap.mmap(-1, 4096)
memory[0] = 1
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
def work():
    open("/tmp/ended", "w").write(f"S={os.getpid()} AT={at}")
    time.sleep(100000)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
"""A program whose first thread ends while another goes on."""
CHANGES = {
    "priority of a thread": "renice -n 10 -p $T > /dev/null",
    "processors of a thread": "taskset -p 1 $T > /dev/null",
    "policy of a thread": "chrt --idle --pid 0 $T",
    "input and output of a thread": "ionice -c 3 -p $T",
    "signal that a thread blocks": "python3 /tmp/tell.py $S $T",
    "seals": "python3 /tmp/seal.py /proc/$S/fd/$M",
    "timer that rings earlier": "python3 /tmp/set.py $S ${C[1]} 2900",
    "timer that rings later": "python3 /tmp/set.py $S ${C[1]} 3100",
    "timer of the time of day": "python3 /tmp/set.py $S ${C[0]} 2900",
    "timer that counts sleep": "python3 /tmp/set.py $S ${C[2]} 2900",
    "timer that is stopped": "python3 /tmp/set.py $S ${C[1]} 0",
    "mode of a pipe": "chmod 0 /proc/$S/fd/$P",
    "who is signalled of a pipe": "python3 /tmp/owner.py $S $P 8 $S",
    "signal of a pipe": "python3 /tmp/owner.py $S $P 10 12",
    "owner of a pipe": "chown 5 /proc/$S/fd/$P",
}


@pytest.fixture
def sleeper(sandbox: Sandbox) -> Sandbox:
    for name, text in {"program": SLEEPER, "seal": SEAL, "set": SET, "tell": SIGNAL, "owner": OWNER}.items():
        sandbox.write_file(f"/tmp/{name}.py", text.encode())
    sh(
        sandbox,
        "setsid python3 /tmp/program.py < /dev/null > /dev/null 2>&1 & until [ -s /tmp/sleeper ]; do sleep 0.05; done",
    )
    eventually(lambda: still(sandbox, "sleep 0.2; true"))
    return sandbox


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_others_set_of_it_is_seen(sleeper: Sandbox, change: str) -> None:
    known = "(. /tmp/sleeper; T=(/proc/$S/task/*); T=${T[2]##*/}; "
    assert changed(sleeper, f"{known} true)") == set()
    found = changed(sleeper, f"{known} {change}) 2> /tmp/said")
    if sh(sleeper, "cat /tmp/said") == "Operation not permitted\n":  # pidfd_getfd, on the backend local
        assert found == {"files", "shell"}  # what it said, and its exit status
    else:
        assert found == {"files", "processes"}


def test_what_merely_sleeps_is_the_same(sleeper: Sandbox) -> None:
    for _ in range(20):
        assert changed(sleeper, "sleep 0.03; true") == set()


def test_a_process_whose_first_thread_has_ended_counts_as_changed(sandbox: Sandbox) -> None:
    """Its memory and files are those of its other threads, which may be changed by whoever finds them."""
    sandbox.write_file("/tmp/program.py", ENDED.encode())
    sh(
        sandbox,
        "setsid python3 /tmp/program.py </dev/null >/dev/null 2>&1 & until [ -s /tmp/ended ]; do sleep 0.05; done",
    )
    eventually(lambda: sh(sandbox, ". /tmp/ended; cut -d' ' -f3 /proc/$S/stat") == "Z\n")
    for _ in range(2):
        assert changed(sandbox, "sleep 0.2; true") == {"processes"}
