"""CRIU's reasons in words. The logs are CRIU 4.2.1's own; only the process ids in them are such as none can have."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import eventually
from tvsnap.sandboxes.criu import refusals
from tvsnap.sandboxes.criu.client import left_its_code
from tvsnap.sandboxes.criu.refusals import cause, reason
from tvsnap.sandboxes.kernel.procfs import describe

LIMITS = "Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n"
FILES = "Error (criu/cr-dump.c:1545): Dump files (pid: 9999999) failed with -1\n"
END = "Error (criu/cr-dump.c:1975): Dumping FAILED.\n"

LOGS = [
    (
        "Error (criu/sk-inet.c:200): inet: Connected TCP socket, consider using --tcp-established option.\n" + FILES,
        "process 9999999 has a connected TCP socket",
    ),
    (
        "Error (criu/sk-inet.c:185): inet: In-flight connection (l) for dad849\n"
        "Error (criu/sk-inet.c:186): inet: In-flight connections can be ignored with the --skip-in-flight option.\n"
        + FILES,
        "process 9999999 has TCP connections that wait to be accepted",
    ),
    (
        "Error (criu/sk-inet.c:504): inet: Can't dump corked dgram socket db9a83\n" + FILES,
        "process 9999999 has a UDP socket with a message that is not finished (UDP_CORK)",
    ),
    (
        "Error (criu/sk-inet.c:137): inet: Unsupported proto 262 for socket ddc6de\n"
        'Error (criu/sk-inet.c:139): inet: For Go programs, consider using "GODEBUG=multipathtcp=0" to disable MPTCP\n'
        + FILES,
        "process 9999999 has a socket of Multipath TCP",
    ),
    (
        "Error (criu/sockets.c:767): sockets: BUG! Unknown socket collected (family 40)\n" + FILES,
        "process 9999999 has a socket of address family 40",
    ),
    (
        "Error (criu/sk-netlink.c:77): netlink: The socket has data to read\n" + FILES,
        "process 9999999 has a netlink socket with messages that wait to be read",
    ),
    (
        "Error (criu/sk-queue.c:144): skqueue: Control messages in queue, not supported\n" + FILES,
        "process 9999999 has a Unix socket with control messages that wait to be read",
    ),
    (
        "Error (criu/sk-unix.c:506): unix: Non-empty write queue on an in-flight socket 0xdf54eb\n" + FILES,
        "process 9999999 has connections to a Unix socket that wait to be accepted",
    ),
    (
        "Error (criu/sk-unix.c:525): unix: Found a closed in-flight socket to 0xdf5f1d\n" + FILES,
        "process 9999999 has connections to a Unix socket that wait to be accepted",
    ),
    (
        "Error (criu/fsnotify.c:284): fsnotify: \tCan't dump that handle\n" + FILES,
        "process 9999999 watches files with inotify or fanotify",
    ),
    (
        "Error (criu/cr-dump.c:1550): Dump eventpoll (pid: 9999999) failed with -1\n",
        "process 9999999 has an epoll that watches a descriptor which the process has closed",
    ),
    (
        "Warn  (compel/src/lib/infect.c:132): Unable to interrupt task: 9999999 (Operation not permitted)\n"
        "Error (compel/src/lib/infect.c:262): Unseizable non-zombie 9999999 found, state t, err -1/10\n",
        "process 9999999 cannot be stopped (its state is t)",
    ),
    (
        "Error (criu/cr-dump.c:1655): Timeout reached. Try to interrupt: 0\n"
        "Error (compel/src/lib/infect.c:262): Unseizable non-zombie 9999999 found, state D, err -1/4\n",
        "process 9999999 waits in the kernel for what does not come, such as the end of a child made by vfork()",
    ),
    (
        "Error (compel/src/lib/infect.c:360): SEIZE 9999999: unsupported stop signal 21\n" * 3,
        "process 9999999 was stopped when it wanted to read from the terminal",
    ),
    (
        "Error (compel/src/lib/infect.c:360): SEIZE 9999999: unsupported stop signal 22\n",
        "process 9999999 was stopped when it wanted to write to or change the terminal",
    ),
    (
        "Warn  (compel/src/lib/infect.c:132): Unable to interrupt task: 9999999 (Operation not permitted)\n"
        "Error (criu/seize.c:882): Zombies with threads are not supported\n",
        "a process has ended while threads of it go on",
    ),
    (
        "Error (criu/cr-dump.c:669): Can't make VM id for 9999999\n",
        "process 9999999 shares with another process what threads share (VM; made by clone)",
    ),
    (
        "Error (criu/pipes.c:490): The packetized mode for pipes is not supported yet\n" + FILES,
        "process 9999999 has a pipe of packets (O_DIRECT)",
    ),
    (
        "Error (criu/tty.c:2286): tty: ctty inheritance detected sid/pgrp 16 "
        "(ctty pid_real 9999999 pty pid_real 9999998)\n",
        "process 9999999 has the terminal of its session open as /dev/tty",
    ),
    (
        "Error (criu/sockets.c:640): sockets: Can't get 1:39 opt: Bad file descriptor\n" + FILES,
        "process 9999999 holds a socket's file that was opened with O_PATH",
    ),
    (
        "Error (criu/files-reg.c:1931): Can't link  -> ./etc/link_remap.50: Operation not permitted\n"
        "Error (criu/files-reg.c:1159): Can't link remap to /etc/vim: Operation not permitted\n"
        "Error (criu/cr-dump.c:1627): Dump fs (pid: 9999999) failed with -1\n",
        "process 9999999 uses /etc/vim, which was deleted or moved away",
    ),
    (
        "Error (criu/files-reg.c:1121): Can't create link remap for /app/d/log. Use link-remap option.\n"
        "Error (criu/cr-dump.c:1629): Dump files (pid: 9999999) failed with -1\n",
        "process 9999999 uses /app/d/log, which was deleted or replaced and has another name still",
    ),
    (
        "Error (criu/files-reg.c:1790): Can't lookup mount=18 for fd=3 path=/memfd:h (deleted)\n" + FILES,
        "process 9999999 has /memfd:h (deleted) open, which is no file of the sandbox (descriptor 3)",
    ),
    (
        "Error (criu/files-ext.c:94): Can't dump file 3 of that type [600] (anon anon_inode:[landlock-ruleset])\n"
        + FILES,
        "process 9999999 has anon_inode:[landlock-ruleset] open (descriptor 3)",
    ),
    (
        "Error (criu/proc_parse.c:502): Unknown shit 100600 (/secretmem (deleted))\n"
        "Error (criu/proc_parse.c:738): Can't open 9999999's mapfile link 7f7418926000: No such device or address\n"
        "Error (criu/cr-dump.c:1440): Collect mappings (pid: 9999999) failed with -1\n",
        "process 9999999 has mapped /secretmem (deleted)",
    ),
    (  # what no rule knows
        "     1: Error (criu/files-reg.c:2592): No entry for reg-file-ID 0x31\n"
        "Error (criu/cr-restore.c:2331): Restoring FAILED.\n"
        "Error (criu/cgroup.c:2055): cg: cgroupd: recv req error: No such file or directory\n",
        "CRIU: No entry for reg-file-ID 0x31",
    ),
    ("Error (criu/parasite-syscall.c:1): Never seen before\n" + FILES, "CRIU: Never seen before (process 9999999)"),
    (FILES, "CRIU: Dump files (pid: 9999999) failed with -1; Dumping FAILED. (process 9999999)"),
]


# What CRIU logged when the machine was in trouble: why -> the log. None of it is true of the processes.
TROUBLE = {
    "many descriptors in flight": "pie: 17: Error (criu/pie/parasite.c:588): send_fds failed (-109)\n"
    "Error (criu/parasite-syscall.c:280): Can't retrieve FDs from socket\n"
    "Error (compel/src/lib/infect-rpc.c:44): Message reply from daemon is trimmed (12/0)\n" + FILES,
    "more descriptors in flight": "Error (criu/parasite-syscall.c:300): Can't retrieve FD from socket\n"
    "Error (compel/src/lib/infect-rpc.c:44): Message reply from daemon is trimmed (12/0)\n"
    "Error (criu/cr-dump.c:1494): Can't get proc fd (pid: 9999999)\n",
    "descriptors in flight at a restore": "     1: Error (criu/namespaces.c:1407): uns: send req error: Too many "
    "references: cannot splice\n     1: Error (criu/mount-v2.c:458): mnt-v2: Unable to mount /tmp/.criu.mntns.P0TgM9/"
    "mnt-0000000094\nError (criu/cr-restore.c:2331): Restoring FAILED.\n",
    "few descriptors for CRIU": "Error (criu/page-pipe.c:118): page-pipe: Can't make pipe for page-pipe: Too many "
    "open files\nError (criu/mem.c:718): Can't dump page with parasite\n",
    "few descriptors for images": "Error (criu/image.c:635): Unable to open pipes-data.img: Too many open files\n"
    + FILES,
    "few descriptors at a restore": "    16: Error (criu/servicefd.c:142): sfd: Can't chose service_fd_base: 128 287\n"
    "     1: Error (criu/cr-restore.c:1265): 16 exited, status=1\n",
    "few processes at a restore": "     1: Error (criu/cr-restore.c:1237): Can't fork for 16: Resource temporarily "
    "unavailable\nError (criu/cr-restore.c:2331): Restoring FAILED.\n",
    "no memory in the restorer": "pie: 16: Error (criu/pie/restorer.c:1883): Can't restore 0x5620c96dd000 mapping with "
    "0xfffffffffffffff4\npie: 16: Error (criu/pie/restorer.c:2332): Restorer fail 16\n",
    "no memory at a restore": "Error (criu/cr-restore.c:1269): 17298 killed by signal 9: Killed\n",
    "killed as namespaces were looked at": "Error (criu/namespaces.c:460): Can't dump nested ipc namespace for 21180\n"
    "Error (criu/namespaces.c:714): Can't make ipcns id\n"
    "Error (compel/src/lib/infect.c:417): Unable to detach from 21180: No such process\n",
    "killed as it was compared with others": "Error (criu/cr-dump.c:669): Can't make VM id for 9999999\n"
    "Error (compel/src/lib/infect.c:417): Unable to detach from 9999999: No such process\n",
    "killed with CRIU's code in it": "Error (criu/parasite-syscall.c:87): si_code=2 si_pid=21224 si_status=9\n"
    "Error (criu/parasite-syscall.c:92): 21231 was killed by 9 unexpectedly: Killed\n",
}
UNKNOWN = {
    "an error that nobody knows": "Error (criu/parasite-syscall.c:1): Never seen before\n" + FILES,
    "a wait in the kernel": "Error (compel/src/lib/infect.c:262): Unseizable non-zombie 9999999 found, state D, err "
    "-1/4\n",
}


@pytest.mark.parametrize("log", TROUBLE.values(), ids=TROUBLE)
def test_trouble_of_the_machine_is_known_by_its_words(log: str) -> None:
    assert cause(LIMITS + log + END) == "machine"


@pytest.mark.parametrize("log", UNKNOWN.values(), ids=UNKNOWN)
def test_a_cause_that_is_not_known(log: str) -> None:
    assert cause(LIMITS + log + END) == "unknown"


@pytest.mark.parametrize(("log", "words"), LOGS, ids=[words.removeprefix("process 9999999 ") for _, words in LOGS])
def test_what_the_rules_know_is_a_property_of_the_processes(log: str, words: str) -> None:
    assert cause(LIMITS + log + END) == ("unknown" if words.startswith("CRIU: ") else "state")


def test_a_log_without_a_reason_says_nothing_of_the_processes() -> None:
    assert cause("") == cause(LIMITS) == "machine"


@pytest.mark.parametrize(("log", "words"), LOGS, ids=[words.removeprefix("process 9999999 ") for _, words in LOGS])
def test_log_in_words(log: str, words: str) -> None:
    assert reason(LIMITS + log + END, os.getpid()) == words


def test_log_that_tells_nothing() -> None:
    assert reason("", 0) == ""
    assert reason(LIMITS, 0) == ""
    assert reason("Warn  (criu/log.c:203): The early log isn't empty\n", 0) == ""


def test_living_process_is_named_with_its_descriptor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        told = reason(
            "Error (criu/sk-inet.c:200): inet: Connected TCP socket, consider using --tcp-established option.\n"
            f"Error (criu/cr-dump.c:1545): Dump files (pid: {os.getpid()}) failed with -1\n",
            os.getpid(),
        )
        inode = os.fstat(server.fileno()).st_ino
        waiting = reason(
            f"Error (criu/sk-inet.c:185): inet: In-flight connection (l) for {inode:x}\n"
            f"Error (criu/cr-dump.c:1545): Dump files (pid: {os.getpid()}) failed with -1\n",
            os.getpid(),
        )
    assert told.startswith(f"{describe(os.getpid())} has a connected TCP socket (descriptor ")
    assert waiting.endswith(f" has TCP connections that wait to be accepted (descriptor {server_number(waiting)})")


@pytest.fixture(scope="module")
def init() -> Iterator[int]:
    """The first process of a namespace of process ids."""
    with subprocess.Popen(["unshare", "--user", "--fork", "--pid", "--kill-child", "sleep", "1000"]) as sandbox:
        try:
            children = Path(f"/proc/{sandbox.pid}/task/{sandbox.pid}/children")
            yield int(eventually(children.read_text))
        finally:
            sandbox.kill()


@pytest.mark.parametrize(
    "name",
    [
        "Can't cure (pid: {0})", "x\nError (criu/parasite-syscall.c:1): Can't cure (pid: {0}) from parasite",
        "x\nError (criu/x.c:1): Unable to detach from {0}: Operation not permitted",
        "Dump files (pid: {0}) failed with -1", "x\nError (criu/cr-dump.c:1545): Dump files (pid: {0}) failed with -1",
        "x\n(00.000001) Error (compel/src/lib/infect.c:360): SEIZE {0}: unsupported stop signal 21",
    ],
)  # fmt: skip
def test_a_file_s_name_says_nothing_of_other_processes(init: int, name: str) -> None:
    """Nobody outside of the sandbox is named, and no sandbox is ended for what lives outside."""
    for outside in (1, os.getpid()):
        log = f"Error (criu/files-reg.c:1931): Can't dump ghost file {name.format(outside)}\n" + FILES
        told = reason(log, init)
        assert "(process 9999999)" in told or told.startswith("process 9999999 "), told
        assert not left_its_code(log, init)


@pytest.mark.parametrize(
    "name",
    [
        "No space left on device", "x: No space left on device", "x failed with -12", "Too many open files",
        "killed by signal 9", "/tvsnap/criu_plugin/interrupted.so", "Unable to load /tvsnap/criu_plugin/interrupted.so",
        "x\nError (criu/plugin.c:1): Unable to load /tvsnap/criu_plugin/interrupted.so: x",
    ],
)  # fmt: skip
def test_a_file_s_name_is_no_trouble_of_the_machine_nor_of_the_plugin(name: str) -> None:
    log = f"Error (criu/files-reg.c:1790): Can't lookup mount=18 for fd=3 path=/memfd:{name} (deleted)\n" + FILES
    assert cause(LIMITS + log + END) == "state"
    assert not refusals.refused_plugin(LIMITS + log + END, "/tvsnap/criu_plugin/interrupted.so")
    assert refusals.kind(LIMITS + log + END) == "criu/files-reg.c:1790"


@pytest.mark.parametrize("words", ["Unable to load {}: cannot open", "Can't load plugin {}", "Corrupted plugin {}"])
def test_a_plugin_that_criu_refuses(words: str) -> None:
    log = f"{LIMITS}Error (criu/plugin.c:190): {words.format('/a/b.so')}\n{END}"
    assert refusals.refused_plugin(log, "/a/b.so")
    assert not refusals.refused_plugin(FILES + log, "/a/b.so"), "it is said before anything else"


def test_a_process_that_could_not_be_cured(init: int) -> None:
    assert left_its_code(f"Error (criu/parasite-syscall.c:1): Can't cure (pid: {init}) from parasite\n", init)


def server_number(told: str) -> int:
    return int(told.rpartition("descriptor ")[2].rstrip(")"))


def test_process_is_described_by_its_command() -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        try:
            eventually(lambda: describe(sleeper.pid) == f"process {sleeper.pid} (sleep 1000)")
        finally:
            sleeper.kill()
    assert describe(9999999) == "process 9999999"


def test_long_command_is_cut() -> None:
    with subprocess.Popen(["sleep", "1000", *["0"] * 100]) as sleeper:
        try:
            eventually(lambda: describe(sleeper.pid).endswith("…)"))
            assert len(describe(sleeper.pid)) < 100
        finally:
            sleeper.kill()


def test_tracer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "status", lambda pid, *_: ["9999998" if pid == 9999999 else "0"])
    log = "Error (compel/src/lib/infect.c:262): Unseizable non-zombie 9999999 found, state t, err -1/10\n"
    assert reason(log, os.getpid()) == "process 9999999 is traced by process 9999998"
