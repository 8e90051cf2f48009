"""Snapshots of the changes since an earlier one: when they are taken, and whether forks have all of it."""

from __future__ import annotations

import os
import platform
import signal
import threading
from collections.abc import Callable

import pytest

from tests.conformance.heap import backend_with
from tests.conformance.helpers import Lab, sh
from tvsnap.model.errors import NotCheckpointable
from tvsnap.model.observations import SnapshotInfo
from tvsnap.sandboxes.criu import changes, pages
from tvsnap.sandboxes.local.backend import LocalBackend
from tvsnap.sandboxes.local.sandbox import LocalSandbox
from tvsnap.sandboxes.protocol import Sandbox

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="other processes cannot be compared")


def take(lab: Lab, sandbox: Sandbox) -> SnapshotInfo:
    """Takes a snapshot once the shell is idle, as the cache does."""
    sandbox.observe()
    return lab.checkpoint(sandbox)


def take_changes(lab: Lab, sandbox: Sandbox, is_whole: Callable[[SnapshotInfo], bool]) -> SnapshotInfo:
    """Takes snapshots up to one that holds changes: on a busy machine, a dump may catch the shell on its way."""
    for _ in range(20):
        info = take(lab, sandbox)
        if not is_whole(info):
            return info
    raise AssertionError("20 snapshots were whole, one after the other")


def has_registers_of_its_own(lab: Lab, info: SnapshotInfo, earlier: str) -> bool:
    assert isinstance(lab.backend, LocalBackend)
    images = lab.backend._snapshots.images
    return any(
        (images(earlier) / core.name).stat().st_ino != core.stat().st_ino for core in images(info.id).glob("core-*.img")
    )


HELD = "exec 3> /tmp/held"


@pytest.fixture
def is_whole(local_lab: Lab) -> Callable[[SnapshotInfo], bool]:
    """Returns whether CRIU wrote a snapshot just now: one of changes has names of the images of an earlier one."""
    local = backend_with(local_lab, pages.ADDITION)
    return lambda info: (local._snapshots.images(info.id) / "stats-dump").stat().st_nlink == 1


@pytest.fixture
def begun(local_lab: Lab) -> LocalSandbox:
    """A sandbox that has a snapshot."""
    sandbox = local_lab.start()
    sh(sandbox, "cd /root; a=1; echo a > a")
    take(local_lab, sandbox)
    assert isinstance(sandbox, LocalSandbox)
    return sandbox


def test_a_chain_of_forks(local_lab: Lab, begun: LocalSandbox, is_whole: Callable[[SnapshotInfo], bool]) -> None:
    """Each snapshot has the changes of all before it, however many of these are deleted."""
    sandbox: Sandbox = begun
    taken: list[SnapshotInfo] = []
    for number in range(6):
        sh(sandbox, f"v{number}={'x' * number}; f{number}() {{ echo f{number}; }}; echo {number} > n{number}; rm -f a")
        taken.append(take_changes(local_lab, sandbox, is_whole))
        sandbox = local_lab.fork(taken[-1])
    for info in taken[:-1]:
        local_lab.backend.delete_snapshot(info.id)
    last = local_lab.fork(taken[-1])
    assert sh(last, "echo $a $v1 $v5; f0; f5; cat n*; ls a; pwd").split() == [
        "1", "x", "xxxxx", "f0", "f5", "0", "1", "2", "3", "4", "5", "ls:", "cannot", "access", "'a':", "No", "such",
        "file", "or", "directory", "/root",
    ]  # fmt: skip
    assert sh(last, "(exit 3); echo $?; v1=y; echo $v1$v5") == "3\nyxxxxx\n"


def test_siblings_and_what_goes_on(
    local_lab: Lab, begun: LocalSandbox, is_whole: Callable[[SnapshotInfo], bool]
) -> None:
    """A sandbox goes on after a snapshot, and snapshots of its past and of its forks stay as they are."""
    infos = []
    for value in "bcd":
        sh(begun, f"a={value}")
        infos.append(take_changes(local_lab, begun, is_whole))
    fork = local_lab.fork(infos[0])
    sh(fork, "a=$a$a")
    infos.append(take_changes(local_lab, fork, is_whole))
    assert [sh(local_lab.fork(info), "echo $a") for info in infos] == ["b\n", "c\n", "d\n", "bb\n"]
    assert sh(begun, "echo $a") == "d\n"


def test_registers(local_lab: Lab, begun: LocalSandbox, is_whole: Callable[[SnapshotInfo], bool]) -> None:
    """Programs of many kinds leave the shell with registers of many kinds."""
    commands = (
        "case x in x) :;; esac", "for i in 1 2 3; do :; done", "x=$(echo a | tr a b)", "[[ a =~ (.) ]]", "((y=3*4))",
        "read z <<< word", "echo {1..400} > /dev/null", "printf -v p %05d 7", "trap - INT", "set -- q r",
        "cat > /tmp/lines <<'EOF'\n" + "line\n" * 2000 + "EOF",
    )  # fmt: skip
    written = 0
    for command in commands:
        sh(begun, command)
        fork = local_lab.fork(info := take_changes(local_lab, begun, is_whole))
        written += begun.base is not None and has_registers_of_its_own(local_lab, info, begun.base.snapshot)
        assert sh(fork, "echo $a; (exit 4); echo $?") == "1\n4\n", command
    assert written, "no command has left the shell with other registers"
    assert sh(fork, "echo $x ${BASH_REMATCH[1]} $y $z $p $*") == "b a 12 word 00007 q r\n"


@pytest.mark.parametrize(
    ("change", "check", "expected"),
    [
        ("cd /usr", "pwd", "/usr\n"),
        ("ulimit -n 77", "ulimit -n", "77\n"),
        ("trap 'echo caught' USR1", "kill -USR1 $$", "caught\n"),
        ("sleep 1000 &", "jobs | grep -c sleep", "1\n"),
        ("for i in {1..20000}; do b[$i]=$i; done", "echo ${#b[@]}", "20000\n"),
        (f"{HELD}; echo one >&3", "echo two >&3; cat /tmp/held", "one\ntwo\n"),
        (f"{HELD}; rm /tmp/held; echo x >&3", "readlink /proc/$$/fd/3", "/tmp/held (deleted)\n"),
        ("mkfifo p; exec 4<>p; echo x >&4", "read -r -t 1 line <&4; echo $line", "x\n"),
        ("mkdir d; cd d; rmdir ../d; mkdir -p /root/e", "pwd; ls -a /root/e | wc -l", "/root/d\n2\n"),
        ("python3 -c 'import os; os.umask(0)'; umask 027", "umask", "0027\n"),
    ],
)
def test_other_changes(
    local_lab: Lab,
    begun: LocalSandbox,
    is_whole: Callable[[SnapshotInfo], bool],
    change: str,
    check: str,
    expected: str,
) -> None:
    """What is more than memory is in a whole dump; a second change on top of it, too, is in the fork."""
    sh(begun, change)
    first = take(local_lab, begun)
    assert is_whole(first) or "umask" in change
    sh(begun, "a=2")
    second = take(local_lab, begun)
    assert sh(local_lab.fork(first), f"echo $a; {check}") == "1\n" + expected
    assert sh(local_lab.fork(second), f"echo $a; {check}") == "2\n" + expected


@pytest.mark.parametrize(
    ("change", "check", "expected"),
    [
        ("chmod 700 .", "stat -c %a .", "700\n"),
        ("chmod 711 /", "stat -c %a /", "711\n"),
        ("chmod 711 /usr/bin/bash", "stat -c %a /usr/bin/bash", "711\n"),
        ("chmod 711 $(grep -m 1 -o '/[^ ]*libc[.]so[^ ]*' /proc/$$/maps)", "true", ""),
        ("chmod 770 /run/tvsnap/control; chown 5 $_", "stat -c '%a %u' /run/tvsnap/control", "770 5\n"),
    ],
)
def test_modes_of_files_in_use(local_lab: Lab, begun: LocalSandbox, change: str, check: str, expected: str) -> None:
    """CRIU expects those of the dump, and gives a socket's file those again."""
    sh(begun, change)
    assert sh(local_lab.fork(take(local_lab, begun)), check) == expected


@pytest.mark.parametrize(("before", "after", "position"), [("<.", "<&3", 7), ("<&3", "<.", 0)])
def test_duplicates_of_descriptors(local_lab: Lab, begun: LocalSandbox, before: str, after: str, position: int) -> None:
    """They have the position of the first one, which is no property of any one of them."""
    sh(begun, f"exec 3<. 4{before}")
    take(local_lab, begun)
    sh(begun, f"exec 4{after}")
    fork = local_lab.fork(take(local_lab, begun))
    assert sh(fork, "python3 -c 'import os; os.lseek(3, 7, 0); print(os.lseek(4, 0, 1))'") == f"{position}\n"


def test_a_file_with_the_name_of_the_commands(local_lab: Lab, begun: LocalSandbox) -> None:
    """PID 1 writes its own file again before each command, but not another that has the same name."""
    name = "/memfd:command (deleted)"
    sh(begun, f"printf '1\\n2\\n3\\n' > '{name}'; exec 3< '{name}'")
    take(local_lab, begun)
    assert sh(begun, "read -r x <&3; echo $x") == "1\n"
    assert sh(local_lab.fork(take(local_lab, begun)), "read -r x <&3; echo $x") == "2\n"


def test_a_file_in_memory_with_the_name_of_the_commands(local_lab: Lab, begun: LocalSandbox) -> None:
    begun.write_file("hold.py", b"import os, time; os.memfd_create('command', 0); open('held', 'w'); time.sleep(100)")
    sh(begun, "python3 hold.py & until [ -e held ]; do sleep 0.02; done")
    sh(begun, "for f in /proc/$!/fd/*; do case $(readlink $f) in /memfd:*) exec 3<> $f; esac; done; kill $!; wait; :")
    assert sh(begun, "echo one > /proc/$$/fd/3; cat /proc/$$/fd/3") == "one\n"
    take(local_lab, begun)
    sh(begun, "echo two > /proc/$$/fd/3")
    assert sh(local_lab.fork(take(local_lab, begun)), "cat /proc/$$/fd/3") == "two\n"


@pytest.mark.parametrize("image", ["pagemap-16.img", "core-16.img", "mm-16.img", "files.img", "timens-0.img"])
def test_a_damaged_earlier_snapshot(local_lab: Lab, image: str) -> None:
    """Its images are in no later one."""
    sandbox = local_lab.start()
    sh(sandbox, "a=1")
    first = take(local_lab, sandbox)
    assert isinstance(local_lab.backend, LocalBackend)
    path = local_lab.backend._snapshots.images(first.id) / image
    data = path.read_bytes()
    path.write_bytes(data[:9] + bytes([data[9] ^ 0xFF]) + data[10:])
    sh(sandbox, "b=2")
    second = take(local_lab, sandbox)
    assert sh(local_lab.fork(second), "echo $a$b") == "12\n"


def test_data_in_a_pipe_of_the_same_length(local_lab: Lab, begun: LocalSandbox) -> None:
    sh(begun, "mkfifo p; exec 4<>p; echo x >&4")
    take(local_lab, begun)
    sh(begun, "read -r line <&4; echo y >&4")
    assert sh(local_lab.fork_of(begun), "read -r line <&4; echo $line") == "y\n"


def test_shared_memory(local_lab: Lab, begun: LocalSandbox) -> None:
    """Objects of System V are in no page of a process."""
    sh(begun, "python3 -c 'import ctypes; print(ctypes.CDLL(None).shmget(77, 4096, 0o1600))'")
    fork = local_lab.fork_of(begun)
    assert sh(fork, "tail -n +2 /proc/sysvipc/shm | wc -l") == "1\n"
    sh(fork, "python3 -c 'import ctypes; c = ctypes.CDLL(None); c.shmctl(c.shmget(77, 0, 0), 0, None)'")
    assert sh(local_lab.fork_of(fork), "tail -n +2 /proc/sysvipc/shm | wc -l") == "0\n"


def test_clocks_go_on(local_lab: Lab, begun: LocalSandbox, is_whole: Callable[[SnapshotInfo], bool]) -> None:
    """Time in a fork counts from its snapshot, not from the earlier one."""
    clock = "python3 -c 'import time; print(time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))'"
    sh(begun, "sleep 3")
    before = [*map(float, sh(begun, clock).split())]
    info = take_changes(local_lab, begun, is_whole)
    after = [*map(float, sh(local_lab.fork(info), clock).split())]
    assert all(later > earlier for earlier, later in zip(before, after, strict=True))


def test_a_fork_that_was_dumped_whole(
    local_lab: Lab, begun: LocalSandbox, is_whole: Callable[[SnapshotInfo], bool]
) -> None:
    """CRIU gives the image of a fork's clocks another name than that of a fresh sandbox."""
    fork = local_lab.fork(take(local_lab, begun))
    assert isinstance(fork, LocalSandbox)
    fork.base = None
    take(local_lab, fork)
    sh(fork, "a=2")
    before = float(sh(fork, "cut -d' ' -f1 /proc/uptime"))
    info = take_changes(local_lab, fork, is_whole)
    later = local_lab.fork(info)
    assert sh(later, "echo $a") == "2\n"
    assert float(sh(later, "cut -d' ' -f1 /proc/uptime")) >= before


def test_an_earlier_snapshot_that_is_gone(local_lab: Lab, is_whole: Callable[[SnapshotInfo], bool]) -> None:
    sandbox = local_lab.start()
    first = take(local_lab, sandbox)
    local_lab.backend.delete_snapshot(first.id)
    sh(sandbox, "a=3")
    second = take(local_lab, sandbox)
    assert is_whole(second)
    sh(sandbox, "a=4")
    third = take_changes(local_lab, sandbox, is_whole)
    assert [sh(local_lab.fork(info), "echo $a") for info in (second, third)] == ["3\n", "4\n"]


def test_a_library_written_in_place(local_lab: Lab, begun: LocalSandbox) -> None:
    """The shell has the old one mapped, and a fork would map the new one."""
    name = sh(begun, "grep -o '/[^ ]*libc[.]so[^ ]*' /proc/$$/maps | head -1").strip()
    sh(begun, f'python3 -c \'open("{name}", "r+b").write(b"\\x7fELX")\'; :')
    with pytest.raises(NotCheckpointable, match="as it was before it was written"):
        take(local_lab, begun)


def test_an_earlier_snapshot_of_another_process(local_lab: Lab) -> None:
    """A new backend on the same data directory goes on from snapshots that it did not take."""
    sandbox = local_lab.start()
    sh(sandbox, "a=5")
    take(local_lab, sandbox)
    sh(sandbox, "b=6")
    info = take(local_lab, sandbox)
    assert isinstance(local_lab.backend, LocalBackend)
    local_lab.backend._snapshots._sound.clear()  # as after a restart: all is read and verified again
    fork = local_lab.fork(info)
    sh(fork, "c=7")
    assert sh(local_lab.fork_of(fork), "echo $a $b $c") == "5 6 7\n"


def test_a_shell_that_is_starting(local_lab: Lab) -> None:
    """A dump may catch the shell on its way; what it does after that is no change since an earlier idle state."""
    forks = []
    for number in range(8):
        sandbox = local_lab.start()
        local_lab.checkpoint(sandbox)
        sh(sandbox, f"a={number}")
        forks.append(local_lab.fork_of(sandbox))
    assert [sh(fork, "echo $a") for fork in forks] == [f"{number}\n" for number in range(8)]


def test_a_process_that_was_dumped_on_its_way(local_lab: Lab, begun: LocalSandbox) -> None:
    """A shell that waits in another place than it was dumped in has run since."""
    assert isinstance(local_lab.backend, LocalBackend)
    assert begun.base is not None
    with local_lab.backend._snapshots.processes(begun.base.snapshot) as images:
        assert changes.holds(images, begun.base.frame)
    info = take(local_lab, begun)
    core = next(local_lab.backend._snapshots.images(info.id).glob("core-??.img"))
    image = core.read_bytes()
    core.unlink()  # a name of the earlier snapshot's file
    core.write_bytes(changes._with_registers(image, {19: 4096}))
    with local_lab.backend._snapshots.processes(info.id) as images:
        assert not changes.holds(images, begun.base.frame)


def test_what_is_noted_has_its_connection(local_lab: Lab, begun: LocalSandbox) -> None:
    """A checkpoint closes PID 1's connection, which on a busy machine it accepts long after it was made anew."""
    begun.note()  # sets which processes these are
    take(local_lab, begun)
    begun.disconnect()
    os.kill(begun.init, signal.SIGSTOP)
    goes_on = threading.Timer(0.5, os.kill, (begun.init, signal.SIGCONT))
    goes_on.start()
    begun.note()
    goes_on.join()
    sh(begun, "ls")
    assert begun.go_back()
