"""CRIU's reasons in words. The logs are CRIU 4.2.1's own; only the process ids in them are such as none can have."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest

from tests.conformance.helpers import eventually
from tvsnap.backends.local import refusals
from tvsnap.backends.local.refusals import describe, reason

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


@pytest.mark.parametrize(("log", "words"), LOGS, ids=[words.removeprefix("process 9999999 ") for _, words in LOGS])
def test_log_in_words(log: str, words: str) -> None:
    assert reason(LIMITS + log + END) == words


def test_log_that_tells_nothing() -> None:
    assert reason("") == ""
    assert reason(LIMITS) == ""
    assert reason("Warn  (criu/log.c:203): The early log isn't empty\n") == ""


def test_living_process_is_named_with_its_descriptor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        told = reason(
            "Error (criu/sk-inet.c:200): inet: Connected TCP socket, consider using --tcp-established option.\n"
            f"Error (criu/cr-dump.c:1545): Dump files (pid: {os.getpid()}) failed with -1\n"
        )
        inode = os.fstat(server.fileno()).st_ino
        waiting = reason(
            f"Error (criu/sk-inet.c:185): inet: In-flight connection (l) for {inode:x}\n"
            f"Error (criu/cr-dump.c:1545): Dump files (pid: {os.getpid()}) failed with -1\n"
        )
    assert told.startswith(f"{describe(os.getpid())} has a connected TCP socket (descriptor ")
    assert waiting.endswith(f" has TCP connections that wait to be accepted (descriptor {server_number(waiting)})")


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
    monkeypatch.setattr(refusals, "_status", lambda pid: {"TracerPid": "9999998"} if pid == 9999999 else {})
    log = "Error (compel/src/lib/infect.c:262): Unseizable non-zombie 9999999 found, state t, err -1/10\n"
    assert reason(log) == "process 9999999 is traced by process 9999998"
