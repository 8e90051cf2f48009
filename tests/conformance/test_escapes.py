"""No way out of a sandbox: what it asks of the kernel, and what it can reach of the host and of another sandbox."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import escape_probes
from tests.conformance.helpers import TIMEOUT, Lab, job, run, sh, unique_sleep
from tvsnap.plugins.docker.sandbox import DockerSandbox
from tvsnap.sandboxes.protocol import Sandbox

PROBES = Path(escape_probes.__file__)
NOT_THERE = {"ENOENT", "ENXIO", "ENODEV"}
NOT_WRITABLE = {"EROFS", "EACCES", "EPERM", *NOT_THERE}
UNREACHABLE = {"ECONNREFUSED", "ENETUNREACH", *NOT_THERE}
CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 29, 31))
"""Docker's default set (linux/capability.h), without the making of device nodes."""

CONTAINED: list[tuple[str, set[str]]] = [
    (r"call (clone3|none_such|landlock_create_ruleset|of 32 bits|of x32)|message queue|copy a range", {"ENOSYS"}),
    (r"share blocks .+", {"EOPNOTSUPP", "ENOTSUP"}),
    (r"socket ping", {"EACCES"}),
    (r"flow label", {"ENOPROTOOPT"}),
    (r"call pidfd_getfd", {"EBADF", "EPERM"}),  # the former on Docker, where PID 1 makes it, see test_kernel_state
    (
        r"(call|unshare|clone) .+|personality|socket raw|type into a terminal|paste into a console",
        {"EPERM"},
    ),
    (r"socket (vsock|alg|packet)|pair of sockets .+", {"EAFNOSUPPORT"}),
    (r"socket (audit|firewall)", {"EPROTONOSUPPORT"}),
    (r"socket (route|diagnosis)", {"done"}),
    (r"own personality", {"done"}),
    (r"trace a child", {"7"}),
    (r"run from memory", {""}),
    (r"set user id program", {"65534 refused"}),
    (r"open /proc/kmsg", {"EACCES", "EPERM"}),
    (r"open /proc/kcore", {"read b''", *NOT_THERE}),
    (r"open /.+", NOT_THERE),
    (r"read .+/.+", {"read b''", "ENOENT"}),
    (r"list .+", {"list []", "ENOENT"}),
    (r"write .+/.+", NOT_WRITABLE),
    (r"make a .+", {"EPERM"}),
    (r"write to the program of PID 1", {"ETXTBSY", "EACCES"}),
    (r"write to .+", {"ETXTBSY"}),
    (r"replace the program of PID 1", {"replaced"}),
    (r"file of the host|open files of all|mounts name paths of the host|processes of the host", {"[]"}),
    (r"out of a chroot", {"True False"}),
    (r"root of PID 1", {"True", "EACCES"}),
    (r"control groups", {"['/'] []"}),
    (r"(signal to|descriptor of|trace|read) .*the host", {"ESRCH"}),
    (r"priority of the host", {"EACCES"}),
    (r"clock", {"EPERM"}),
    (r".+ of the host|metadata service", UNREACHABLE),
    (r"network interfaces", {"['lo']"}),
    (r"capabilities", {f"{CAPABILITIES} {CAPABILITIES} 0 0"}),
    (r"filter of system calls", {"2"}),
]
"""What each probe may come to. The first pattern that fits a probe counts."""
BY_ENGINE: list[tuple[str, set[str]]] = [
    (r"call of (32 bits|x32)", {f"killed by {signal.SIGSYS:d}", "ENOSYS"}),
    (r"socket raw", {"done"}),
    (r"read /proc/interrupts", {"read b''", "read b' '"}),
    (r"(trace|read) a process of the host", {"ESRCH", "EPERM"}),
]
"""What is different in an engine's containers: what they may do further ends at their namespaces."""


@dataclass(frozen=True)
class Host:
    """Things on this machine that no sandbox may reach.

    Attributes:
        told: where they are, as `escape_probes` wants it.
        servers: sockets that listen.
        sleeper: a process.
    """

    told: Mapping[str, Any]
    servers: tuple[socket.socket, ...]
    sleeper: subprocess.Popen[bytes]

    def untouched(self) -> bool:
        """Whether nobody has called at a server, and the process lives."""
        for server in self.servers:
            server.setblocking(False)
            try:
                server.accept()[0].close()
            except BlockingIOError:
                continue
            return False
        return self.sleeper.poll() is None


@pytest.fixture
def host(tvsnap_home: Path) -> Iterator[Host]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.chmod(0o755)  # everybody may come here: that nobody does is the sandbox's doing
        secret = directory / "secret"
        secret.write_text("secret")
        abstract = f"tvsnap-test-{directory.name}"
        servers = tuple(
            stack.enter_context(socket.socket(family)) for family in (socket.AF_UNIX, socket.AF_UNIX, socket.AF_INET)
        )
        addresses: tuple[Any, ...] = (f"\0{abstract}", f"{directory}/socket", ("127.0.0.1", 0))
        for server, address in zip(servers, addresses, strict=True):
            server.bind(address)
            server.listen()
        (directory / "socket").chmod(0o777)
        command = unique_sleep()
        sleeper = stack.enter_context(subprocess.Popen(command.split()))
        stack.callback(sleeper.kill)
        told = {
            "file": str(secret),
            "home": str(tvsnap_home.resolve()),
            "abstract": abstract,
            "socket": f"{directory}/socket",
            "port": servers[2].getsockname()[1],
            "address": "192.0.2.1",
            "command": command,
            "pids": [sleeper.pid],
        }
        yield Host(told, servers, sleeper)


def words(sandbox: Sandbox, host: Host) -> dict[str, str]:
    """Returns what each probe comes to in a sandbox."""
    sandbox.write_file("/var/tmp/probes.py", PROBES.read_bytes())
    sandbox.write_file("/var/tmp/host.json", json.dumps(host.told).encode())
    outcome = sandbox.exec("python3 /var/tmp/probes.py </var/tmp/host.json", timeout=300)
    assert outcome.exit_code == 0, outcome
    found: dict[str, str] = json.loads(outcome.output)
    return found


def escaped(found: Mapping[str, str], expected: list[tuple[str, set[str]]]) -> str:
    """Returns the probes that came to something else than they should, one a line."""
    allowed = {name: next(words for pattern, words in expected if re.fullmatch(pattern, name)) for name in found}
    return "\n".join(f"{name}: {word}" for name, word in found.items() if word not in allowed[name])


def programs(home: Path) -> dict[str, str]:
    """Returns digests of the files of ours on this machine that all sandboxes of the local backend see."""
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in home.glob("guest/*/run/tvsnap/*")}


def test_every_way_out_is_closed(lab: Lab, sandbox: Sandbox, host: Host, tvsnap_home: Path) -> None:
    """Also in a fork: what CRIU or an engine brought back is confined as it was."""
    before = programs(tvsnap_home)
    sh(sandbox, "true")
    fork = lab.fork_of(sandbox)
    expected = BY_ENGINE + CONTAINED if isinstance(sandbox, DockerSandbox) else CONTAINED
    for each in (sandbox, fork):
        found = words(each, host)
        assert len(found) > 100
        assert escaped(found, expected) == ""
        assert sh(each, "echo still here") == "still here\n"
    assert programs(tvsnap_home) == before
    assert host.untouched()


WAYS_TO_MORE = """
setpriv --reuid=65534 --clear-groups /var/tmp/id -u
su nobody -s /bin/sh -c '/var/tmp/id -u; mount -t tmpfs none /mnt 2>/dev/null || echo refused'
"""
"""Commands of root that let a user of no rights run programs of root's that set the user id."""


@pytest.mark.parametrize("confined", [True, False])
def test_rights_are_gained_only_where_the_image_lets_them(lab: Lab, confined: bool) -> None:
    """By whatever runs in a sandbox, and in a fork. What root does is the same; root inside is all there is to gain."""
    variant = Lab(lab.backend, replace(lab.image, no_new_privileges=confined))
    with closing(variant):
        sandbox = variant.start()
        sh(sandbox, "cp /usr/bin/id /var/tmp/id; chmod 4755 /var/tmp/id")
        if lab.backend.captures.processes:
            job(sandbox, "sleep 4323")
        gained = b"65534\n" if confined else b"0\n"
        for each in (sandbox, variant.fork_of(sandbox)):
            flags = sh(each, "cat /proc/[0-9]*/status | grep NoNewPrivs | sort -u")
            assert flags == f"NoNewPrivs:\t{confined:d}\n"
            assert each.run(WAYS_TO_MORE, timeout=TIMEOUT).output == gained * 2 + b"refused\n"
            assert each.exec("/var/tmp/id -u", timeout=TIMEOUT, user="nobody").output == gained
            assert each.exec("/var/tmp/id -u", timeout=TIMEOUT, user="root").output == b"0\n"


def test_nothing_of_another_sandbox(lab: Lab, sandbox: Sandbox) -> None:
    """Though all have the same range of users: shared memory, abstract sockets, processes."""
    other = lab.start()
    sh(sandbox, "ipcmk -M 4096 >/dev/null; echo text >/dev/shm/shared")
    job(sandbox, "sleep 4322")
    serve = "import socket,time; s=socket.socket(1); s.bind(chr(0)+'of-one'); s.listen(); time.sleep(1000)"
    sh(sandbox, f'python3 -c "{serve}" & until grep -q @of-one /proc/net/unix; do sleep 0.05; done')
    assert sh(other, "ipcs -m | grep -c 0x; ls /dev/shm; grep -c @of-one /proc/net/unix") == "0\n0\n"
    assert "4322" not in sh(other, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")


PROGRAMS = {
    "compiler": (
        """printf '#include <stdio.h>\nint main(void) { puts("compiled"); }\n' >a.c && gcc -o a a.c && ./a""",
        "compiled\n",
    ),
    "package": (
        """mkdir -p p/DEBIAN p/opt && echo installed >p/opt/it &&
        printf 'Package: it\nVersion: 1\nArchitecture: all\nMaintainer: me\nDescription: it\n' >p/DEBIAN/control &&
        dpkg-deb --build p it.deb >/dev/null && apt-get install -qq -y ./it.deb >log 2>&1 || cat log; cat /opt/it""",
        "installed\n",
    ),
    "users": ("su nobody -s /bin/sh -c 'id -u'; setpriv --reuid=1 --clear-groups id -u", "65534\n1\n"),
    "threads and pools": (
        """python3 -c '
import asyncio, multiprocessing, subprocess, threading
print(sum(multiprocessing.Pool(2).map(abs, [-1, -2])))
thread = threading.Thread(target=print, args=("thread",))
thread.start(), thread.join()
print(asyncio.run(asyncio.sleep(0, "loop")), subprocess.check_output(["echo", "child"], text=True).strip())'""",
        "3\nthread\nloop child\n",
    ),
    "repository": (
        "git init -q r && cd r && git -c user.name=n -c user.email=e commit -q --allow-empty -m m; git log --format=%s",
        "m\n",
    ),
}
"""Command lines, and what they show."""


def test_ordinary_programs_are_not_hindered(sandbox: Sandbox) -> None:
    seen = {
        name: run(sandbox, f"(cd /var/tmp; {command}\n)", timeout=120).output.decode()
        for name, (command, _) in PROGRAMS.items()
    }
    assert seen == {name: shown for name, (_, shown) in PROGRAMS.items()}
