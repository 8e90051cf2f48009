"""What only the local backend has to see to: impostors in the place of PID 1's socket, and what the host hands down."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.helpers import LIMITS, eventually, sh
from tvsnap.backends.local import LocalBackend
from tvsnap.backends.local import sandbox as local_sandbox
from tvsnap.backends.local.sandbox import LocalSandbox
from tvsnap.errors import SandboxDied
from tvsnap.images import Image
from tvsnap.owners import Owner

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
def backend(tvsnap_home: Path) -> Iterator[LocalBackend]:
    owner = Owner(tvsnap_home)
    backend = LocalBackend(tvsnap_home, owner.id)
    yield backend
    backend.close()
    owner.close()


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
