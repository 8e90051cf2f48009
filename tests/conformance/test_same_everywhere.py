"""Backends look alike to commands: what one prints, the other prints, so that a graph recorded with one serves both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.helpers import LIMITS, asleep, sh
from tests.conformance.targets import TARGETS
from tvsnap.images import Image
from tvsnap.sandboxes.protocol import Backend, Sandbox

COMMANDS = (
    "env | sort",
    "echo $$ $PPID $SHLVL $- $BASH_VERSION",
    # No pipe, whose other end would be seen while it is about to become grep.
    f"{asleep(pid='1')}; ps ax -o pid,ppid,tty,stat,command > /dev/shm/ps; grep -v ps /dev/shm/ps; rm /dev/shm/ps",
    "id; umask; pwd; hostname; tty",
    "ulimit -a; ulimit -Ha",
    # /etc/hostname, which an engine lends, is as old as the sandbox; the sizes of directories are the file system's.
    "ls -lA --full-time /root /etc /tmp /app /usr/bin /usr/lib | grep -v -e hostname -e ^total -e ^d",
    "ls -A / /run /dev/shm",
    "cat /etc/hosts /etc/resolv.conf /etc/hostname /etc/passwd",
    "grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status",
    "set -o; shopt; alias; trap -p; declare -F; "
    "declare -p | grep -v -e _= -e RANDOM -e SECONDS -e EPOCH -e SRANDOM -e __tvsnap_o -e __tvsnap_start",
    "cat /proc/self/cgroup; cat /proc/self/uid_map | wc -l",
    "cat /proc/net/dev | wc -l; python3 -c 'import socket; print(socket.gethostbyname(\"localhost\"))'",
    "python3 -c 'import os; print(os.cpu_count(), os.getcwd(), sorted(os.environ))'",
    "find / -xdev -not -path '/run/*' -not -path '/proc/*' -not -path '/sys/*' -not -path '/dev/*' | sort | md5sum",
    "mknod /tmp/x c 1 3; unshare -U true; chroot / true; date -s now 2>&1 | head -1; echo $?",
    "dd if=/dev/zero of=/dev/shm/big bs=1M count=100 status=none; echo $?; rm /dev/shm/big",
)


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, terminal_image: Image) -> Iterator[tuple[Sandbox, Sandbox]]:
    """A fresh sandbox of each backend that runs real programs."""
    request.getfixturevalue("docker_engine")
    home = request.getfixturevalue("tvsnap_home")
    backends: list[Backend] = [TARGETS[name].make(home) for name in ("local", "docker")]
    assert backends[0].platform == backends[1].platform
    one, other = (backend.start(terminal_image, LIMITS) for backend in backends)
    yield one, other
    for backend in backends:
        backend.close()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_is_printed(pair: tuple[Sandbox, Sandbox], command: str) -> None:
    one, other = pair
    assert sh(one, command) == sh(other, command)
