"""The library that remembers a sandbox's files, built with sanitizers, beside the program that tells of all of them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.caches import eventually
from tests.native.building import HERE, ROOT, SANITIZERS, build, variable
from tests.native.mess import Mess
from tvsnap.host.native import INIT

DONE, NOT_ALL, TOO_LONG, TOO_MUCH = range(4)
SECONDS = 10.0
ROUNDS = 150
RACE_LOOKS = 60
_ATIME = 6
"""Where in a record's numbers the time of access is."""

Records = dict[bytes, list[bytes]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inputs = [HERE / "look_at_files.c", *(ROOT / name for name in variable("LOOK"))]
    return build(tmp_path_factory.mktemp("look") / "look_at_files", *inputs, flags=SANITIZERS)


@pytest.fixture(scope="module")
def process_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inputs = [HERE / "look_at_processes.c", *(ROOT / name for name in variable("LOOK"))]
    return build(tmp_path_factory.mktemp("look") / "look_at_processes", *inputs, flags=SANITIZERS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    directory = tmp_path / "tree"
    directory.mkdir()
    return directory


def records_of(told: bytes) -> Records:
    """Returns records by path, without times of access that looking may have moved."""
    fields = told.split(b"\0")[:-1]
    found = {}
    for path, numbers in zip(fields[::2], fields[1::2], strict=True):
        words = numbers.split()
        if not stat.S_ISDIR(int(words[0], 8)):
            words[_ATIME] = b"0"
        found[path] = words
    return found


def listed(tree: Path) -> Records:
    """Returns what the program tells of all that lies there."""
    with open_directory(tree) as descriptor:
        command = [str(INIT), "walk", "list", "--home", str(descriptor)]
        return records_of(subprocess.run(command, pass_fds=[descriptor], capture_output=True, check=True).stdout)


@contextlib.contextmanager
def open_directory(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Looker:
    """A process that looks at one directory, and what it told so far."""

    def __init__(self, program: Path, tree: Path) -> None:
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
        self._process = subprocess.Popen(
            [program, tree], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        self.seen: Records = {}
        self.told = 0  # by the last look

    def look(self, seconds: float = SECONDS) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n".encode())
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            pytest.fail(self._process.communicate()[1].decode())
        result, changed, gone, reason = map(int, line.split())
        assert (result == DONE) == (reason == 0)
        if result != DONE:
            assert changed == gone == 0
            self.seen = {}
            return result
        new = records_of(self._process.stdout.read(changed))
        old = self._process.stdout.read(gone).split(b"\0")[:-1]
        self.told = len(new) + len(old)
        for path in old:
            del self.seen[path]
        self.seen |= new
        return result

    def end(self) -> None:
        _, said = self._process.communicate()
        assert self._process.returncode == 0, said.decode()


@contextlib.contextmanager
def looking(program: Path, tree: Path) -> Iterator[Looker]:
    looker = Looker(program, tree)
    yield looker
    looker.end()


@pytest.mark.parametrize("seed", range(3))
def test_what_is_told_adds_up_to_what_there_is(program: Path, tree: Path, seed: int) -> None:
    mess = Mess(tree, seed)
    with looking(program, tree) as looker:
        for each in range(ROUNDS):
            mess.stir(each % 12)
            assert looker.look() == DONE
            assert looker.seen == listed(tree), each
            assert looker.look() == DONE
            assert looker.told == 0


def test_a_tree_that_is_changed_meanwhile(program: Path, tree: Path) -> None:
    over = threading.Event()

    def stir() -> None:
        mess = Mess(tree, 7)
        while not over.is_set():
            mess.stir(5)

    thread = threading.Thread(target=stir)
    with looking(program, tree) as looker:
        thread.start()
        try:
            results = {looker.look() for _ in range(RACE_LOOKS)}
        finally:
            over.set()
            thread.join()
        assert results <= {DONE, NOT_ALL}
        assert looker.look() == DONE
        assert looker.seen == listed(tree)


def test_attributes_count_that_change_as_soon_as_they_were_seen(program: Path, tree: Path) -> None:
    """The clock of times of change may not have moved since."""
    file = tree / "file"
    file.touch()
    with looking(program, tree) as looker:
        for number in range(300):
            os.setxattr(file, "user.x", b"%d" % number)
            assert looker.look() == DONE
            assert looker.told >= 1, number
        assert looker.seen == listed(tree)


def test_what_is_known_is_told_anew_after_a_look_that_failed(program: Path, tree: Path) -> None:
    for number in range(100):
        (tree / str(number)).touch()
    with looking(program, tree) as looker:
        assert looker.look() == DONE
        assert looker.look(-1.0) == TOO_LONG
        assert looker.look() == DONE
        assert looker.seen == listed(tree)


def test_too_many_levels_or_files_are_left_to_the_program(program: Path, tree: Path) -> None:
    deep = tree
    with looking(program, tree) as looker:
        for _ in range(70):
            deep /= "d"
        deep.mkdir(parents=True)
        assert looker.look() == TOO_MUCH
        shutil.rmtree(tree / "d")
        assert looker.look() == DONE
        many = tree / "many"
        many.mkdir()
        for number in range(8 << 20 >> 8):
            os.close(os.open(f"{many}/{number:0>128}", os.O_CREAT | os.O_WRONLY))
        assert looker.look() == TOO_MUCH
        shutil.rmtree(many)
        assert looker.look() == DONE
        assert looker.seen == listed(tree)


def test_paths_that_nobody_can_use_are_not_looked_at(program: Path, tree: Path) -> None:
    with contextlib.ExitStack() as stack:
        descriptor = stack.enter_context(open_directory(tree))
        for _ in range(17):
            os.mkdir("n" * 250, dir_fd=descriptor)
            descriptor = os.open("n" * 250, os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
            stack.callback(os.close, descriptor)
        with looking(program, tree) as looker:
            assert looker.look() == NOT_ALL


PROGRAM = """
import ctypes, fcntl, os, socket, sys, threading
files = [open("/tmp", "r", opener=lambda name, _: os.open(name, os.O_TMPFILE | os.O_RDWR, 0o600)), open("/dev/null")]
fcntl.lockf(files[0], fcntl.LOCK_SH)
others = os.pipe(), socket.socketpair(), os.memfd_create("a b"), os.eventfd(3), os.openpty()
fcntl.fcntl(others[0][0], fcntl.F_SETOWN, os.getpid())
for _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()
os.write(1, b"ready\\n")
sys.stdin.read()
"""


def looks_at(program: Path, pids: list[int], *arguments: str) -> list[list[tuple[int, bytes]]]:
    """Returns five results and what they told for each process."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    asked = "".join(f"{pid}\n" for pid in pids).encode()
    run = subprocess.run([program, *arguments], input=asked, capture_output=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr.decode()
    rest, found = run.stdout, []
    while rest:
        line, _, rest = rest.partition(b"\n")
        result, length = map(int, line.split())
        found.append((result, rest[:length]))
        rest = rest[length:]
    return [found[at : at + 5] for at in range(0, len(found), 5)]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as its:
        assert its.stdout is not None
        assert its.stdout.readline() == b"ready\n"
        reads = ["0x0"]  # from standard input
        eventually(lambda: Path(f"/proc/{its.pid}/syscall").read_text().split()[1:2] == reads)
        yield its
        its.kill()


def test_what_processes_do_and_have_open(process_program: Path, process: subprocess.Popen[bytes]) -> None:
    proc = Path(f"/proc/{process.pid}")
    ((ran, threads, opened, shell, holds),) = looks_at(process_program, [process.pid])
    assert {ran[0], threads[0], opened[0], shell[0], holds[0]} == {DONE}
    numbers = sorted(os.listdir(proc / "task"))
    assert sorted(line.split()[0].decode() for line in ran[1].removesuffix(b"\0").splitlines()) == numbers
    fields = threads[1].split(b"\0")[:-1]
    assert sorted(map(bytes.decode, fields[::3])) == numbers
    for thread, said, call in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        assert said.startswith(thread + b" (")
        assert call.split()[0].isdigit()
    there, places = [], []
    for name in os.listdir(proc / "fd"):
        told, target = (proc / "fdinfo" / name).read_text(), os.readlink(proc / "fd" / name)
        position, flags = (line.split()[1] for line in told.splitlines()[:2])
        signalled = int(name) > 2 and target.startswith("pipe:") and not int(flags, 8) & os.O_WRONLY
        there.append(f"{name} {target}".encode())
        places.append(f"{name} {position} {flags} {int('lock:' in told)} {int(signalled)} {target}".encode())
    assert sorted(opened[1].split(b"\0")[:-1]) == sorted(there)
    head, *descriptors = shell[1].split(b"\0")[:-1]
    stat_fields = (proc / "stat").read_text().rpartition(")")[2].split()
    processors = re.search(r"Cpus_allowed:\t(.*)", (proc / "status").read_text())
    assert processors is not None
    assert head.decode() == f"{stat_fields[19]} {stat_fields[16]} 0 {processors[1]}"
    assert sorted(descriptors) == sorted(places)
    said = subprocess.run([INIT, "holds", str(process.pid)], capture_output=True, check=True).stdout
    assert holds[1] == said
    assert b"?" not in said
    few = looks_at(process_program, [process.pid], "3")
    assert [few[0][0][0], few[0][2][0]] == [TOO_MUCH, TOO_MUCH]


def test_processes_that_end_meanwhile(process_program: Path) -> None:
    over = threading.Event()
    pids = []

    def churn() -> None:
        while not over.is_set():
            with subprocess.Popen(["sh", "-c", "sleep 0.001 & exec true 5</dev/null"]) as its:
                pids.append(its.pid)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(20):
            first = pids[-1] if pids else os.getpid()
            for results in looks_at(process_program, [*range(first, first + 40)]):
                assert {result for result, _ in results} <= {DONE, NOT_ALL}
    finally:
        over.set()
        thread.join()
