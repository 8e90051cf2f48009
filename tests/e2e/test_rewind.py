"""Evidence from outside: a shell is made what it was, or it is told in what it is another."""

from __future__ import annotations

import contextlib
import os
import platform
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conformance.helpers import eventually
from tvsnap.sandboxes.looks.rewind import Note, OwnProcesses

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or os.geteuid() != 0, reason="processes are looked at by root, on x86-64"
)

READING = "0 0x0 "
"""How /proc/PID/syscall begins where a process reads from its standard input."""

LOOP = 'x=1; while read -r command; do eval "$command"; builtin echo done; done'
WRITES_WHAT_IS_READ_ONLY = """
import os
shell = os.getppid()
for line in open(f"/proc/{shell}/maps"):
    where, rights, *_, path = line.split(maxsplit=5)
    if path.strip().endswith("/bash") and rights == "r--p":
        with open(f"/proc/{shell}/mem", "r+b", buffering=0) as memory:
            memory.seek(int(where.split("-")[1], 16) - 8)
            memory.write(b"poisoned")
        break
"""

GONE_BACK = {
    "nothing": ":",
    "a variable": "x=2",
    "a function": "cat() { builtin printf forged; }",
    "an alias": "alias done=forged",
    "a larger heap": "for i in {1..3000}; do y[i]=$i; done",
    "a smaller heap": "unset large",
    "more memory": "x=$(printf '%300000d' 1)",
    "less memory": "unset long",
    "other memory": "long=; y=$(printf '%400000d' 2); long=$(printf '%200000d' 3)",
    "a deep call": "deep() { (($1 == 0)) || deep $(($1 - 1)); }; deep 900",
    "a child": "/bin/true",
    "where it reads from": "read -r rest <<< 'more'",
}
ANOTHER = {
    "directory": ("cd /usr", "cwd"),
    "mask": ("umask 077", "Umask"),
    "limits": ("ulimit -n 99", "limits|Max open files"),
    "descriptor": ("exec 9< /dev/null", "fd/9"),
    "signal that is ignored": ("trap '' USR1", "SigIgn"),
    "handler of a signal": ("trap 'echo forged' USR1", "SigCgt"),
    "name": ("printf forged > /proc/$$/comm", "comm|forged"),
    "read-only page": ("python3 patch.py", "read-only"),
}


class Shell:
    """A bash that runs commands from a pipe."""

    def __init__(self, directory: Path) -> None:
        (directory / "patch.py").write_text(WRITES_WHAT_IS_READ_ONLY)
        self.process = subprocess.Popen(
            ["bash", "-c", LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=directory
        )

    def run(self, command: str) -> str:
        """Returns what a command prints."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        said = []
        while (line := self.process.stdout.readline()) not in ("done\n", ""):
            said.append(line)
        eventually(self.waits)
        return "".join(said)

    def waits(self) -> bool:
        """Whether it waits for a command, or is no more."""
        with contextlib.suppress(OSError):
            call = Path(f"/proc/{self.process.pid}/syscall").read_text()
            return call.startswith(READING) or self.process.poll() is not None
        return True


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    with shell.process:
        shell.run("for i in {1..2000}; do large[i]=$i; done; long=$(printf '%250000d' 7)")
        yield shell
        shell.process.kill()


class Program(Shell):
    """A Python that executes lines from a pipe; a block ends it."""

    SETUP = (
        "import ctypes, mmap, sys, zlib; libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p\n"
        "libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t\n"
        "libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long\n"
        "libc.madvise.argtypes = libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int\n"
        "def cast(function): return ctypes.cast(function, ctypes.c_void_p)\n"
        "def start(memory): return ctypes.addressof(ctypes.c_char.from_buffer(memory))\n"
        "for line in sys.stdin: exec(line); print('done', flush=True)"
    )

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.SETUP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()


def noted(shell: Shell) -> Note:
    note = Note.of([shell.process.pid])
    assert note is not None
    return note


@pytest.mark.parametrize("command", GONE_BACK.values(), ids=GONE_BACK)
def test_it_is_what_it_was(shell: Shell, command: str) -> None:
    look = "declare -p; declare -f; alias; echo $x ${#large[@]} ${#long}"
    before = shell.run(look)
    note = noted(shell)
    for _ in range(3):
        shell.run(command)
        assert note.go_back() == ""
    assert shell.run(look) == before


@pytest.mark.parametrize(("command", "reason"), ANOTHER.values(), ids=ANOTHER)
def test_it_is_another(shell: Shell, command: str, reason: str) -> None:
    note = noted(shell)
    shell.run(command)
    shell.run("x=2")
    said = note.go_back()
    assert any(word in said for word in reason.split("|")), said
    assert shell.run("echo $x") == "2\n"  # nothing was done


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ("libc.signal(10, cast(libc.exit))", "libc.signal(10, cast(libc.abort))"),
        ("own = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE)", "libc.madvise(start(own), 1 << 20, 18)"),
        ("own = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE)", "libc.mprotect(start(own), 4096, 1)"),
        ("own = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE)", "assert libc.madvise(start(own) + 8192, 4096, 102) == 0"),
        ("pass", "shared = mmap.mmap(-1, 1 << 20)"),
        (
            "own = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE); own[:] = b'x' * len(own); at = start(own); "
            "assert libc.mprotect(at, 1 << 20, 1) == 0",
            "assert libc.madvise(at, 4096, 4) == 0",
        ),
    ],
    ids=[
        "handler that is replaced",
        "memory that children lack",
        "read-only memory",
        "guard page",
        "shared memory",
        "read-only page that is dropped",
    ],
)
def test_another_program(before: str, then: str) -> None:
    """Of signals that are caught already, only the process itself can tell how."""
    with Program() as program:
        program.run(before)
        note = noted(program)
        assert note.go_back() == ""
        program.run(then)
        assert note.go_back() != ""


def test_memory_lies_where_it_lay() -> None:
    """Unmapped, mapped, with holes, and written."""
    with Program() as program:
        program.run("kept = [mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE) for _ in range(8)]")
        program.run("for number, m in enumerate(kept): m[:] = bytes([number + 1]) * len(m)")
        program.run("where = [start(m) for m in kept]; libc.munmap(where[5] + 8192, 4096)")
        look = "print(*(ctypes.string_at(at, 8192)[::4095].hex() for at in where), zlib.crc32(kept[2]))"
        before = program.run(look)
        note = noted(program)
        for change in (
            "for at in where[1:4]: libc.munmap(at + 4096, 16384)",
            "del kept[3], kept[6]; more = [mmap.mmap(-1, 3 << 20, mmap.MAP_PRIVATE) for _ in range(5)]; more[0][0] = 9",
            "for m in kept: m[4096:4100] = b'else'",
            "libc.mmap(where[5] + 8192, 4096, 3, 0x32, -1, 0)",
        ):
            program.run(change)
            assert note.go_back() == ""
            assert program.run(look) == before
        assert program.run("print(len(kept), 'more' in globals())") == "8 False\n"


@pytest.mark.parametrize(
    "grow",
    [
        "libc.mmap(0, 32 << 40, 3, 0x4022, -1, 0)",
        "[libc.mmap(0, 1 << 30, 3, 0x4022, -1, 0) for _ in range(64)]",
        "import tempfile as t; f = t.TemporaryFile(); f.truncate(3 << 30); libc.mmap(0, 3 << 30, 3, 2, f.fileno(), 0)",
    ],
    ids=["one mapping", "many mappings", "a file that is all hole"],
)
def test_a_process_that_maps_much_is_another_at_once(grow: str) -> None:
    """Each page of it would be looked at, though it has none; that of another rollout waits for the processor too."""
    with Program() as program:
        program.run("pass")
        note = noted(program)
        program.run(grow)
        began = time.process_time()
        assert note.go_back() != ""
        assert Note.of([program.process.pid]) is None
        assert time.process_time() - began < 3
        assert program.run("print('on')") == "on\n"


def test_one_that_has_ended(shell: Shell) -> None:
    note = noted(shell)
    shell.process.kill()
    shell.process.wait()
    assert note.go_back() != ""
    assert Note.of([shell.process.pid]) is None


def test_none_that_is_out_of_reach() -> None:
    own = OwnProcesses()
    own.note(list)
    assert not own.go_back()


def test_what_runs_is_not_noted() -> None:
    with subprocess.Popen(["bash", "-c", "echo runs; while :; do :; done"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"runs\n"
            assert Note.of([process.pid]) is None
            assert os.path.exists(f"/proc/{process.pid}")
        finally:
            process.kill()


def test_it_goes_on_from_a_wait_with_a_timeout(shell: Shell) -> None:
    shell.run("mkfifo silent; exec 7<> silent")
    wait = "read -r -t 0.01 nothing <&7"
    shell.run(wait)  # from then on it catches more signals
    note = noted(shell)
    for number in range(20):
        assert shell.run(f"{wait}; echo {number}") == f"{number}\n"
        assert note.go_back() == ""


def test_no_signal_is_lost(shell: Shell) -> None:
    shell.run("count=0; trap 'count=$((count + 1))' USR1")
    for number in range(50):
        os.kill(shell.process.pid, signal.SIGUSR1)
        Note.of([shell.process.pid])
        assert shell.run("echo $count") == f"{number + 1}\n"


def test_signals_amid_a_look(shell: Shell) -> None:
    """They wait, lest they come in place of what it is to do for us: it would keep our memory, or be left half made."""
    look = f"/proc/{shell.process.pid}/maps"
    shell.run("trap : USR1")
    mappings = Path(look).read_text()
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.0002):
            os.kill(shell.process.pid, random.choice((signal.SIGUSR1, signal.SIGCHLD, signal.SIGWINCH)))

    with ThreadPoolExecutor() as pool:
        sending = pool.submit(send)
        for _ in range(100):
            if (note := Note.of([shell.process.pid])) is not None:
                note.go_back()
        ended.set()
        sending.result()
    assert shell.run("echo on") == "on\n"
    assert Path(look).read_text() == mappings


def test_no_call_is_interrupted() -> None:
    """epoll_wait(2) returns EINTR whenever its process is stopped."""
    program = (
        "import ctypes, select\nlibc = ctypes.CDLL(None)\nwatch = select.epoll()\nprint(flush=True)\n"
        "print(libc.epoll_wait(watch.fileno(), ctypes.create_string_buffer(64), 1, 1500))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        time.sleep(0.3)
        for _ in range(5):
            note = Note.of([process.pid])
            assert note is not None
            assert note.go_back() == ""
        assert process.stdout.readline() == "0\n"
