"""What only the local backend has to see to: impostors in the place of PID 1's socket, and what the host hands down."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import LIMITS, Lab, eventually, sh
from tvsnap.host import native
from tvsnap.images import Image
from tvsnap.model.errors import SandboxDied, TvsnapError
from tvsnap.model.limits import Limits
from tvsnap.sandboxes.criu import fidelity
from tvsnap.sandboxes.local import LocalBackend
from tvsnap.sandboxes.local import sandbox as local_sandbox
from tvsnap.sandboxes.local.sandbox import LocalSandbox

TRIES = 22

IMPOSTORS = """
import contextlib, itertools, os, socket, sys, time
outside, home, away, control = sys.argv[1], "/run/tvsnap", "/run/away", "/run/tvsnap/control"
held = []

def listener(path, backlog):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(backlog)
    held[:] = [server]

def directory():
    os.rename(home, away)
    os.symlink(outside, home)

def indirectly():
    listener("/tmp/control", 5)
    os.symlink("/tmp/control", control)

kinds = [
    lambda: listener(control, 5),
    lambda: listener(control, 0),  # deaf, once one has called
    indirectly,
    directory,
    lambda: os.symlink(outside + "/control", control),
    lambda: os.symlink("../" * 9 + outside + "/control", control),
    lambda: os.symlink("/proc/1/root" + outside + "/control", control),
    lambda: os.symlink("control", control),
    lambda: os.mkfifo(control),
    lambda: os.mknod(control),
    lambda: None,
]
for round in itertools.count():
    for kind in kinds:
        if os.path.islink(home):
            os.unlink(home)
            os.rename(away, home)
        for path in (control, "/tmp/control"):
            with contextlib.suppress(OSError):
                os.unlink(path)
        with contextlib.suppress(OSError):
            kind()
        time.sleep(0.01)
    open("/tmp/rounds", "w").write(str(round))
"""


@pytest.fixture
def sandbox(backend: LocalBackend, terminal_image: Image) -> LocalSandbox:
    return backend.start(terminal_image, LIMITS)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A server on the host that everybody may call, as PID 1's is called."""
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as server:
        Path(name).chmod(0o755)
        server.bind(f"{name}/control")
        Path(name, "control").chmod(0o777)
        server.listen()
        server.setblocking(False)
        yield server


def wait_for_a_round(rounds: Path) -> None:
    """Waits until the impostors have been through all their kinds once more."""
    seen = rounds.read_text() if rounds.exists() else ""
    eventually(lambda: rounds.exists() and rounds.read_text() not in ("", seen), timeout=60)


@pytest.mark.timeout(300, func_only=True)
def test_impostors_in_the_place_of_PID_1(
    sandbox: LocalSandbox, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host talks to PID 1 or to nobody, be it inside or outside, and waits for nobody long."""
    met: list[int | None] = []
    connect = LocalSandbox._try_connect

    def watched(sandbox: LocalSandbox) -> socket.socket:
        try:
            return connect(sandbox)
        except OSError as error:
            met.append(error.errno)
            raise

    monkeypatch.setattr(LocalSandbox, "_try_connect", watched)
    monkeypatch.setattr(local_sandbox, "_START_TIMEOUT", 0.1)
    sandbox.write_file("/tmp/impostors.py", IMPOSTORS.encode())
    sh(sandbox, f"python3 /tmp/impostors.py {Path(server.getsockname()).parent} >/tmp/log 2>&1 &")
    rounds = Path(f"/proc/{sandbox.init}/root/tmp/rounds")
    for number in range(TRIES):
        sandbox.disconnect()
        wait_for_a_round(rounds)
        time.sleep(number * 0.01)  # so that each kind is met
        with contextlib.suppress(SandboxDied):
            assert sandbox.run(f"echo {number}", timeout=20).output == b"%d\n" % number
    assert met, "no impostor was met"
    with pytest.raises(BlockingIOError):
        server.accept()


def test_groups_of_the_caller_are_not_handed_down(backend: LocalBackend, terminal_image: Image) -> None:
    """Root's supplementary groups, `disk` for one, would count wherever a file of the host is in reach."""
    groups = os.getgroups()
    os.setgroups([*groups, 6])
    try:
        sandbox = backend.start(terminal_image, LIMITS)
    finally:
        os.setgroups(groups)
    snapshot = sandbox.checkpoint().id
    fork = backend.fork(snapshot, terminal_image, LIMITS)
    backend.delete_snapshot(snapshot)
    for each in (sandbox, fork):
        status = Path(f"/proc/{each.init}/status").read_text()
        assert re.search(r"^Groups:\s*$", status, re.MULTILINE), status


AWAY = {
    "deleted": "echo evil > /app/d/f; exec 5>> /app/d/f; rm -r /app/d; ln -s {there} /app/d",
    "with another name": "echo evil > /app/d/f; ln /app/d/f /app/g; exec 5>> /app/d/f; rm -r /app/d; "
    "ln -s {there} /app/d",
    "mapped": 'echo evil > /app/d/f; python3 -c \'import mmap, time; f = open("/app/d/f"); '
    'm = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); f.close(); open("/app/mapped", "w"); time.sleep(1000)\' & '
    "until [ -e /app/mapped ]; do sleep 0.01; done; rm -r /app/d; ln -s {there} /app/d",
}
"""Shell commands after which CRIU, as root of this machine, would follow a link that a sandbox has made."""


@pytest.mark.parametrize("checked", [True, False], ids=["looked for", "not seen"])
@pytest.mark.parametrize("case", AWAY)
def test_no_link_leads_criu_out(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, checked: bool
) -> None:
    there = tmp_path / "open to everybody"
    there.mkdir()
    for parent in (there, *there.parents):
        if parent.owner() == "root" and parent.is_relative_to(tempfile.gettempdir()):
            parent.chmod(0o1777)
    if not checked:
        monkeypatch.setattr(fidelity, "_leads_away", lambda *_: False)
    before = there.stat()
    said = []
    for file in (None, there / "f"):
        if file is not None:
            file.write_text("of this machine")
            before = there.stat()
        sandbox = lab.start()
        sh(sandbox, f"mkdir -p /app/d; {AWAY[case].format(there=shlex.quote(str(there)))}")
        try:
            fork = lab.fork_of(sandbox)
        except TvsnapError as error:
            told = re.sub(r"0x[0-9a-f]+|\d+", "N", str(error))  # processes, and files by CRIU's numbers
            if told.startswith("CRIU: "):  # what others of its processes say once one has given up: in any order, last
                told = "; ".join(told.split("; ")[:2])
            said.append(told)
        else:
            said.append(sh(fork, "cat /proc/self/fd/5 2> /dev/null"))
        assert there.stat().st_mtime_ns == before.st_mtime_ns, "something was made there"
        assert "of this machine" not in said[-1]
    assert said[0] == said[1], "whether a file is there can be told"
    if checked:
        assert "a symbolic link is where its directory was" in said[0]


MODULES, RAW_IO, TIME, NODES, RAW_SOCKETS = 16, 17, 25, 27, 13
"""Capabilities (capability.h)."""


def in_place_of_criu(lab: Lab, sandbox: LocalSandbox, *command: str, cgroups: Iterable[str] = ()) -> list[str]:
    """Runs a program of /usr/bin as CRIU is run for a checkpoint; returns the lines that it prints."""
    assert isinstance(lab.backend, LocalBackend)
    criu = lab.backend._criu
    assert criu is not None
    options = [*criu.directories, *native.DEVICE_OPTIONS, "--keep", "/usr/bin"]
    options += [item for path in cgroups for item in ("--cgroup", path)]
    run = subprocess.run(
        [native.LAUNCH, "dump", str(sandbox.init), *options, "--", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.splitlines()


def test_what_criu_sees_of_this_machine(lab: Lab) -> None:
    sandbox = lab.start()
    assert isinstance(sandbox, LocalSandbox)
    assert isinstance(lab.backend, LocalBackend)
    criu = lab.backend._criu
    assert criu is not None
    kept = [Path(path) for path in (*criu.directories, "/usr/bin") if path.startswith("/")]
    find = ["/usr/bin/find", "/", "-path", "/proc", "-prune", "-o", "-path", "/usr", "-prune", "-o", "-print"]
    seen = {path for path in in_place_of_criu(lab, sandbox, *find) if not path.startswith(("/lib/", "/lib64/"))}
    allowed = {str(above) for path in kept for above in (path, *path.parents)}
    allowed |= {"/tmp", "/run", "/run/dev", "/dev", *(f"/run/dev/{name}" for name in native.DEVICES)}
    allowed |= {f"/dev/{name}" for name in ("null", "shm", "shm/criu.kdat", "pts", "pts/ptmx")}
    allowed |= {str(path) for above in kept[:2] for path in above.iterdir()}
    assert seen <= allowed, seen - allowed


def test_what_criu_may_do_and_use(lab: Lab) -> None:
    sandbox = lab.start(Limits(memory=300 << 20, cpus=0.5))
    assert isinstance(sandbox, LocalSandbox)
    look = ["/usr/bin/grep", "-hE", "^Cap|/tvsnap/", "/proc/self/status", "/proc/self/cgroup"]
    with sandbox.cgroup.beside(sandbox.limits) as group:
        said = in_place_of_criu(lab, sandbox, *look, cgroups=group.paths)
        limits = [
            int(path.read_text().split()[0])
            for above in group.paths
            for name in ("memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us")
            if (path := Path(above, name)).exists()
        ]
    sets = dict(line.split(":\t") for line in said if line.startswith("Cap"))
    may = {number for number in range(64) if int(sets["CapEff"], 16) >> number & 1}
    assert sets["CapBnd"] == sets["CapPrm"] == sets["CapEff"]
    assert {MODULES, RAW_IO, TIME, NODES, RAW_SOCKETS}.isdisjoint(may)
    assert len(may) <= 17
    assert sum(line.endswith(f"/{group.name}") for line in said) == len(group.paths)
    assert limits == [(300 << 20) + (1 << 30), 100_000]
