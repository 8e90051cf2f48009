"""What /proc says of processes: as it is, and no more of it than is wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tvsnap.sandboxes.kernel.procfs import HEAD, command, head, inner_pid, lines, stat_fields, status

PROGRAM = """
import ctypes, os, sys, time
if os.geteuid() == 0:
    os.setgroups([60000 - number for number in range(50000)])
ctypes.CDLL(None).prctl(15, b"\\xc3\\xa9) b\\rSigIgn:", 0, 0, 0)
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One with a long command line, many groups, and a name that looks like something else."""
    arguments = [sys.executable, "-c", PROGRAM, *(["x" * 100_000] * 10)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_what_is_said_is_found_and_bounded(process: subprocess.Popen[bytes]) -> None:
    said = command(process.pid)
    assert said.startswith(f"{sys.executable} -c")
    assert len(said) <= HEAD
    assert stat_fields(process.pid)[1] == str(os.getpid())
    shared, missing, threads = status(process.pid, "ShdPnd", "NoSuch", "Threads")
    assert (int(shared, 16), missing, threads) == (0, "", "1")
    assert inner_pid(process.pid) == process.pid
    assert status(process.pid, "SigIgn") == status(process.pid, "SigIgn", "Name")[:1] != [""]
    assert len(head(f"/proc/{process.pid}/maps", 100)) == 100
    assert sum(1 for line in lines(f"/proc/{process.pid}/maps") if line.endswith("[stack]")) == 1


def test_a_process_that_has_ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert inner_pid(process.pid) == 0
    for ask in (command, stat_fields, status):
        with pytest.raises((FileNotFoundError, ProcessLookupError)):
            ask(process.pid)


def test_a_process_without_a_command_line() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert command(process.pid) == "[true]"
