"""Changes that are made such that a weak look would not see them: by whoever knows how the look is taken."""

from __future__ import annotations

import pytest

from tests.conformance.helpers import changed, eventually, sh, still
from tvsnap.sandboxes.protocol import Sandbox

SLEEPER = """
import ctypes, mmap, os, time
memory = mmap.mmap(-1, 4096)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
memory[:16] = b"what it answers."
open("/tmp/sleeper", "w").write(f"S={os.getpid()} AT={at}")
time.sleep(100000)
"""
FORGE = """
import os, struct, sys
process, at = map(int, sys.argv[1:])
memory = os.open(f"/proc/{process}/mem", os.O_RDWR)
first, second = struct.unpack("2Q", os.pread(memory, 16, at))
os.pwrite(memory, struct.pack("2Q", first ^ 1 << 63, second ^ (1 << 63 | 1 << 34)), at)
"""
"""Changes two words. Where s = (s ^ word) * odd; s ^= s >> 29 is taken of each, the second makes up for the first."""
HOME = "/run/tvsnap"
PATCHED = {
    "library": f"{HOME}/fixed.so",
    "program of PID 1": f"{HOME}/init",
    "file of one's own": f"{HOME}/own",
}
PATCH = """
import os, sys
path, aside = sys.argv[1], "/run/aside"
about = os.stat(path)
data = bytearray(open(path, "rb").read())
data[-8] ^= 1
with open(aside, "wb") as file:
    file.write(data)
os.chmod(aside, about.st_mode)
os.chown(aside, about.st_uid, about.st_gid)
os.utime(aside, ns=(about.st_atime_ns, about.st_mtime_ns))
os.rename(aside, path)
"""
"""Puts a file in another's place that differs beyond its first 4095 bytes only, as old and as long."""
OVERWRITE = """
import os, sys
about = os.stat(sys.argv[1])
with open(sys.argv[1], "r+b") as file:
    file.seek(-8, 2)
    file.write(b"forged!!")
os.utime(sys.argv[1], ns=(about.st_atime_ns, about.st_mtime_ns))
"""


def test_memory_in_which_two_words_make_up_for_each_other(sandbox: Sandbox) -> None:
    sandbox.write_file("/tmp/program.py", SLEEPER.encode())
    sandbox.write_file("/tmp/forge.py", FORGE.encode())
    sh(
        sandbox,
        "setsid python3 /tmp/program.py < /dev/null > /dev/null 2>&1 & until [ -s /tmp/sleeper ]; do sleep 0.05; done",
    )
    eventually(lambda: still(sandbox, "sleep 0.2; true"))
    assert changed(sandbox, "(. /tmp/sleeper; python3 /tmp/forge.py $S $AT)") == {"processes"}


@pytest.fixture
def prepared(sandbox: Sandbox) -> Sandbox:
    sandbox.write_file("/tmp/patch.py", PATCH.encode())
    sandbox.write_file("/tmp/overwrite.py", OVERWRITE.encode())
    sh(sandbox, f"head -c 9000 /dev/urandom > {HOME}/own; mkdir {HOME}/folder; cp {HOME}/own {HOME}/folder/")
    return sandbox


@pytest.mark.parametrize("path", PATCHED.values(), ids=PATCHED)
def test_file_of_ours_that_is_patched_where_nobody_would_look(prepared: Sandbox, path: str) -> None:
    before = sh(prepared, "stat -c %y /run")
    assert changed(prepared, f"python3 /tmp/patch.py {path}; touch -m -d '{before.strip()}' /run")


@pytest.mark.parametrize("name", ["own", "folder/own", "fixed.so"])
def test_file_that_is_written_to_where_nobody_would_look(prepared: Sandbox, name: str) -> None:
    assert changed(prepared, f"python3 /tmp/overwrite.py {HOME}/{name}")


def test_what_is_hidden_in_the_file_by_which_layers_differ(sandbox: Sandbox) -> None:
    """On Docker the host writes digits into it for each snapshot; a call may write others."""
    before = sh(sandbox, f"cat {HOME}/layer 2> /dev/null || true")
    assert changed(sandbox, f"printf {'5' * 32} > {HOME}/layer; touch -d '1 hour ago' {HOME}/layer")
    assert sh(sandbox, f"cat {HOME}/layer") == "5" * 32 != before
    assert changed(sandbox, f"printf {'6' * 32} > {HOME}/layer; touch -d '1 hour ago' {HOME}/layer")


def test_times_of_the_control_socket(sandbox: Sandbox) -> None:
    assert changed(sandbox, f"touch -d 2001-01-01 {HOME}/control")


def test_times_of_the_output_are_nobody_s_message(sandbox: Sandbox) -> None:
    """Each output moves them, so that they do not count: a call finds none that another has set."""
    sh(sandbox, f"touch -d 2001-01-01 {HOME}/out")
    assert "2001" not in sh(sandbox, f"stat -c '%x %y' {HOME}/out")


def test_our_directory_is_the_same_when_nothing_is_done_to_it(prepared: Sandbox) -> None:
    assert changed(prepared, f"ls -lR {HOME}; cat {HOME}/own > /dev/null; stat {HOME}/*") == set()
    for _ in range(3):
        assert changed(prepared, "true") == set()


def test_a_job_that_keeps_the_output_leaves_no_trace_in_our_directory(sandbox: Sandbox) -> None:
    """PID 1 then makes another FIFO for the next call."""
    time = sh(sandbox, f"stat -c %y {HOME}")
    sh(sandbox, "sleep 1000 &")
    assert sh(sandbox, f"stat -c %y {HOME}") == time
    assert changed(sandbox, f"touch -d 2001-01-01 {HOME}")
