"""Sandboxes see neither the host nor each other."""

from __future__ import annotations

import fcntl
import os
import resource
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab, eventually, job, run, sh
from tvsnap.plugins.docker.sandbox import DockerSandbox
from tvsnap.sandboxes.protocol import Sandbox


def test_files_of_another_sandbox(lab: Lab, sandbox: Sandbox) -> None:
    other = lab.start()
    sh(sandbox, "echo mine > /tmp/mine; rm /etc/os-release")
    assert sh(other, "ls /tmp; test -e /etc/os-release; echo $?") == "0\n"


def test_device_nodes_are_its_own(lab: Lab, sandbox: Sandbox) -> None:
    """Who locks one, or touches it, reaches nobody else."""
    other = lab.start()
    before = os.stat("/dev/full")
    assert sh(sandbox, "exec 9< /dev/full; flock -n 9 && touch /dev/full && echo done") == "done\n"
    assert sh(other, "flock -n /dev/full echo free") == "free\n"
    with open("/dev/full", "rb") as node:
        fcntl.flock(node, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert os.stat("/dev/full").st_mtime_ns == before.st_mtime_ns


def test_locks_of_another_sandbox(local_lab: Lab) -> None:
    """Locks of open files belong to no process, and so to no namespace."""
    one, other = local_lab.start(), local_lab.start()
    lock = 'import fcntl, struct; fcntl.fcntl(9, 37, struct.pack("hhlli4x", 1, 0, 424242, 31337, 0))'
    sh(one, f"exec 9> /tmp/locked; python3 -c '{lock}'")
    with open("/proc/locks") as locks:
        assert any("424242" in line for line in locks)
    assert sh(other, "cat /proc/locks") == ""


def test_each_start_is_fresh(lab: Lab, sandbox: Sandbox) -> None:
    assert dict(sandbox.changes()) == {}
    sh(sandbox, "echo mine > f; cd /; x=1")
    sandbox.close()
    other = lab.start()
    assert dict(other.changes()) == {}
    assert dict(other.shell_state()) == dict(lab.start().shell_state())


def test_resource_limits_are_its_own(lab: Lab) -> None:
    """Those of the program that uses tvsnap are of no account."""
    usual = {number: resource.getrlimit(number) for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_STACK)}
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, usual[resource.RLIMIT_NOFILE][1]))  # more than a suite opens
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, usual[resource.RLIMIT_STACK][1]))
    try:
        sandbox = lab.start()
    finally:
        for number, limits in usual.items():
            resource.setrlimit(number, limits)
    assert sh(sandbox, "ulimit -n; ulimit -s; ulimit -c; ulimit -l; ulimit -i") == "1024\n8192\n0\n8192\n65536\n"
    assert sh(sandbox, "(ulimit -c unlimited; ulimit -c)") == "unlimited\n"


def test_processes_of_another_sandbox(lab: Lab, sandbox: Sandbox) -> None:
    job(sandbox, "sleep 4321")
    other = lab.start()
    assert "4321" not in sh(other, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")


def test_processes_of_the_host(sandbox: Sandbox) -> None:
    numbers = sh(sandbox, "echo /proc/[0-9]*").split()
    assert len(numbers) < 10
    assert "/proc/1" in numbers


def test_files_of_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    assert sh(sandbox, f"cat {secret} /proc/1/root{secret} /proc/self/root{secret} 2>/dev/null; echo end") == "end\n"


def test_network(sandbox: Sandbox) -> None:
    interfaces = sh(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1").split()
    assert interfaces == ["lo"]
    program = "import socket; s = socket.socket(); s.settimeout(2); s.connect(('192.0.2.1', 80))"
    outcome = run(sandbox, f'python3 -c "{program}"')
    assert outcome.exit_code == 1
    assert b"Network is unreachable" in outcome.output


def test_loopback_is_the_sandboxes_own(lab: Lab, sandbox: Sandbox) -> None:
    other = lab.start()
    server = "python3 -m http.server 8765 --bind 127.0.0.1 > /dev/null 2>&1 &"
    client = "python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:8765\").status)' 2>&1"
    sh(sandbox, server)
    eventually(lambda: sh(sandbox, client) == "200\n")
    assert "refused" in sh(other, client)
    sh(other, server)
    eventually(lambda: sh(other, client) == "200\n")


@pytest.mark.parametrize(
    "command",
    [
        "mount -t proc none /mnt",
        "mknod /tmp/disk b 8 0 && head -c 1 /tmp/disk",
        "cat /dev/sda /dev/vda /dev/mem /dev/kmsg",
        "dmesg",
        "[ -w /proc/sysrq-trigger ]",
        "[ -w /proc/sys/kernel/core_pattern ]",
        "python3 -c 'import os; os.kill(-1, 0); os.setpriority(os.PRIO_PROCESS, 0, -20)'",
        "hostname changed-by-sandbox",
        "date -s 2001-01-01",
        "chroot / true && mount -o remount,rw /proc/sys",
    ],
)
def test_privileges_that_are_not_there(reused: Sandbox, command: str) -> None:
    """Root inside is nobody outside."""
    outcome = run(reused, command)
    allowed_inside = {"hostname changed-by-sandbox"}
    if command in allowed_inside and outcome.exit_code == 0:
        assert "changed-by-sandbox" not in Path("/proc/sys/kernel/hostname").read_text()
        return
    assert outcome.exit_code != 0, outcome.output


ALLOWED = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29, 31))
"""The capabilities of Docker's default set (linux/capability.h), without the making of device nodes."""


def test_root_inside_is_unprivileged_outside(sandbox: Sandbox) -> None:
    assert sh(sandbox, "id -u") == "0\n"
    if isinstance(sandbox, DockerSandbox):  # its engine decides on user namespaces; what root may do is bounded
        bounds = int(sh(sandbox, "grep CapBnd /proc/self/status").split()[1], 16)
        assert bounds == ALLOWED
        return
    first = sh(sandbox, "cat /proc/self/uid_map").split()
    assert first[1] != "0"
