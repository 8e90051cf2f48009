"""What `/proc/PID/maps`, `smaps` and `map_files` show of a process is the same in a fork.

The local backend alone: an engine's CRIU has no additions.
"""

from __future__ import annotations

import os

import pytest

from tests.conformance.heap import backend_with
from tests.conformance.helpers import Lab, sh
from tvsnap.model.observations import SnapshotInfo
from tvsnap.sandboxes.criu import pages
from tvsnap.sandboxes.kernel import procfs
from tvsnap.sandboxes.local.backend import LocalBackend
from tvsnap.sandboxes.local.sandbox import LocalSandbox
from tvsnap.sandboxes.protocol import Sandbox

ADDITION = "mappings"
"""Entry of `binary.additions` of a CRIU that has no mapping writable that never was."""

PROGRAM = """
import ctypes, os, signal
PAGE, READ, WRITE, EXECUTE, PRIVATE, FIXED, ANONYMOUS = 4096, 1, 2, 4, 2, 16, 32
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

with open("data", "wb") as file:
    file.write(bytes(range(256)) * 1024)
there = libc.mmap(0x10000000, 64 * PAGE, READ, PRIVATE | FIXED, os.open("data", os.O_RDONLY), 0)
assert there == 0x10000000

def protect(page, *rights):  # two pages, one step after the other
    for right in rights:
        assert libc.mprotect(there + page * PAGE, 2 * PAGE, right) == 0

def write(page, text):  # also where the process may not write, as a debugger does
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(there + page * PAGE)
        memory.write(text)

protect(2, READ | WRITE, READ)
protect(6, READ | WRITE)
write(6, b"written")
protect(6, READ)
protect(10, READ | EXECUTE)
write(10, b"\\x00")  # what is there in the file
protect(14, READ | EXECUTE)
protect(18, 0)
assert libc.mmap(None, 1 << 42, 0, PRIVATE | ANONYMOUS, -1, 0) not in (None, 2**64 - 1)
name = "first"
if not os.fork():
    name = "second"
    protect(22, READ | WRITE)
    write(22, b"child")
    protect(22, READ)
    protect(26, READ | EXECUTE)
    protect(30, READ | WRITE)
    write(14, b"\\xcc")

def tell(*_):
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(there)
        text = memory.read(64 * PAGE)
    with open(name + ".new", "wb") as file:
        file.write(text)
    os.rename(name + ".new", name)

tell()
signal.signal(signal.SIGUSR1, tell)
open(name + ".ready", "w").close()  # what tell has used is free again
while True:
    signal.pause()
"""
BREAKPOINT = "1000e000-"
"""How the line of the mapping begins that the second process writes to although it may not."""


def shown(sandbox: Sandbox) -> dict[int, dict[str, str]]:
    """Returns what is shown of the mappings of each process, by its id inside; without the number of the device."""
    assert isinstance(sandbox, LocalSandbox)
    return {procfs.inner_pid(pid): _mappings(pid) | _mapped_files(pid) for pid in sandbox.cgroup.pids()}


def _mappings(pid: int) -> dict[str, str]:
    """Returns the flags of each mapping."""
    found: dict[str, str] = {}
    for line in procfs.lines(f"/proc/{pid}/smaps"):
        first, *others = line.split()
        if not first.endswith(":"):
            mapping = " ".join([first, *others[:2], *others[3:]])
        elif first == "VmFlags:":
            found[mapping] = " ".join(others)
    return found


def _mapped_files(pid: int) -> dict[str, str]:
    directory = f"/proc/{pid}/map_files"
    return {name: os.readlink(os.path.join(directory, name)) for name in os.listdir(directory)}


@pytest.fixture
def sandbox(local_lab: Lab) -> Sandbox:
    backend_with(local_lab, ADDITION)
    return local_lab.start()


def test_of_an_idle_shell(local_lab: Lab, sandbox: Sandbox) -> None:
    """In forks of a whole dump, of the changes since one, and of what such a fork became."""
    of_changes = 0
    for number in range(20):  # on a busy machine, a dump may catch the shell on its way, and the next is whole, too
        sh(sandbox, f"a={number}")
        sandbox.observe()
        info = local_lab.checkpoint(sandbox)
        fork = local_lab.fork(info)
        assert shown(fork) == shown(sandbox), number
        of_changes += has_parent(local_lab, info)
        if of_changes == 4:
            return
        sandbox = fork if number % 2 else sandbox
    raise AssertionError(f"{of_changes} of 20 snapshots held changes")


def has_parent(lab: Lab, info: SnapshotInfo) -> bool:
    """Whether a snapshot holds the changes since an earlier one."""
    assert isinstance(lab.backend, LocalBackend)
    return (lab.backend._snapshots.images(info.id) / pages.DIRECTORY).exists()


def test_of_programs_that_fork(local_lab: Lab, sandbox: Sandbox) -> None:
    """Of mappings that were writable for a time, that never were, and that a process shares with its parent."""
    sandbox.write_file("program.py", PROGRAM.encode())
    sh(sandbox, "python3 program.py & until [ -e first.ready ] && [ -e second.ready ]; do sleep 0.02; done")
    fork = local_lab.fork_of(sandbox)
    assert without_heaps(fork) == without_heaps(sandbox)
    fork = local_lab.fork_of(fork)
    assert without_heaps(fork) == without_heaps(sandbox)
    told = "rm first second; kill -USR1 -- -$!; until [ -e first ] && [ -e second ]; do sleep 0.02; done"
    lines = sh(fork, f"cksum first second; {told}; cksum first second").splitlines()
    assert lines[:2] == lines[2:]


def without_heaps(sandbox: Sandbox) -> dict[int, dict[str, str]]:
    """Returns what is shown of mappings but heaps: the kernel keeps apart what one had before its process was forked.

    Of a mapping that nobody may write to, and that was written to nevertheless, it is not compared whether it counts.
    """
    return {
        pid: {
            name: "" if name.startswith(BREAKPOINT) else flags for name, flags in seen.items() if "[heap]" not in name
        }
        for pid, seen in shown(sandbox).items()
    }
