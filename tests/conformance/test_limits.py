"""Limits: what goes beyond them fails inside, and the sandbox lives on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.conformance.helpers import Lab, commands, eventually, job, on_host, run, sh, unique_sleep, usable
from tvsnap import Cache
from tvsnap.images import Image
from tvsnap.model.limits import MIB, Limits
from tvsnap.sandboxes.protocol import Backend


def test_memory(lab: Lab) -> None:
    sandbox = lab.start(Limits(memory=128 * MIB))
    sh(sandbox, "x=kept")
    job(sandbox, "sleep 1000")
    outcome = run(sandbox, "python3 -c 'x = bytearray(512 << 20); print(len(x))'")
    assert outcome.exit_code != 0
    assert not outcome.timed_out
    assert b"536870912" not in outcome.output
    assert not outcome.shell_lost
    assert sh(sandbox, "echo $x") == "kept\n"
    assert "sleep 1000" in commands(sandbox)
    usable(sandbox)


def test_memory_of_a_fork(lab: Lab) -> None:
    limits = Limits(memory=128 * MIB)
    sandbox = lab.start(limits)
    fork = lab.fork_of(sandbox, limits)
    assert run(fork, "python3 -c 'x = bytearray(512 << 20)'").exit_code != 0
    usable(fork)
    assert run(sandbox, "python3 -c 'x = bytearray(16 << 20)'").exit_code == 0


def test_memory_that_is_allowed(lab: Lab) -> None:
    sandbox = lab.start(Limits(memory=256 * MIB))
    assert sh(sandbox, "python3 -c 'x = bytearray(128 << 20); print(len(x))'") == f"{128 << 20}\n"


def test_processes(lab: Lab) -> None:
    sandbox = lab.start(Limits(processes=40))
    sandbox.write_file("/tmp/p.py", b"import subprocess\nfor _ in range(100): subprocess.Popen(['sleep', '60'])\n")
    outcome = run(sandbox, "python3 /tmp/p.py")
    assert b"Resource temporarily unavailable" in outcome.output
    assert 20 < commands(sandbox).count("sleep 60") <= 40
    sh(sandbox, 'for c in /proc/[0-9]*/comm; do read -r n < $c; [ "$n" != sleep ] || kill ${c//[!0-9]/}; done')
    eventually(lambda: "sleep" not in commands(sandbox))
    usable(sandbox)


def test_fork_bomb(lab: Lab) -> None:
    sandbox = lab.start(Limits(processes=64))
    bystander = lab.start()
    run(sandbox, "bomb() { bomb | bomb & }; bomb; sleep 0.5; true", timeout=5)
    usable(bystander)
    assert run(sandbox, "x=1").exit_code == 0
    assert len(sandbox.processes()) <= 64
    began = time.monotonic()
    sandbox.close()
    assert time.monotonic() - began < 60


BURN = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nprint(time.process_time())"


@pytest.mark.parametrize("cpus", [0.2])
def test_processor_time(lab: Lab, cpus: float) -> None:
    sandbox = lab.start(Limits(cpus=cpus))
    sandbox.write_file("burn.py", BURN.encode())
    assert float(sh(sandbox, "python3 burn.py")) < 0.6


def test_a_call_that_was_throttled_says_so(backend: Backend, terminal_image: Image, tvsnap_home: Path) -> None:
    """On an idle machine it might have come to something else."""
    cache, salt = Cache(tvsnap_home, backend=backend.name), f"strain-{time.time_ns()}"
    with cache, cache.rollout(terminal_image, salt=salt, limits=Limits(cpus=0.2)) as rollout:
        strained = rollout.call("bash", {"command": f"python3 -c '{BURN}'"})
        calm = rollout.call("bash", {"command": "sleep 0.1"})
    # Where others want the processors, too, its own limit may never hold it up.
    assert "was throttled for" in str(strained.strain) or "the processors were taken" in str(strained.strain)
    assert calm.strain is None


def test_processor_time_of_forks(backend: Backend, terminal_image: Image, tvsnap_home: Path) -> None:
    """With less of it, more times out: it is part of the root's name, and forks have what their rollout had."""
    salt, limits = f"processor-{time.time_ns()}", Limits(cpus=0.2)
    with Cache(tvsnap_home, backend=backend.name, policy="eager") as cache:
        roots = {cache.rollout(terminal_image, salt=salt, limits=its).root for its in (None, limits)}
        assert len(roots) == 2
        with cache.rollout(terminal_image, salt=salt, limits=limits) as rollout:
            rollout.call("write_file", {"path": "/tmp/burn.py", "content": BURN})
            state = rollout.state
    with Cache(tvsnap_home, backend=backend.name, limits=Limits(cpus=2.0)) as cache, cache.materialise(state) as fork:
        assert float(sh(fork, "python3 /tmp/burn.py")) < 0.6


MEMORY_FILLERS = {
    "a file in memory": b"""
import os
file = os.memfd_create("filler")
for _ in range(512): os.write(file, bytes(1 << 20))
""",
    "shared memory, which stays when its makers end": b"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for _ in range(64):
    at = libc.shmat(libc.shmget(0, 16 << 20, 0o1600), None, 0)
    if at == 2**64 - 1: raise MemoryError
    ctypes.memset(at, 1, 16 << 20)
""",
    "what sockets hold": b"""
import socket
pairs = []
while True:
    pairs.append(socket.socketpair())
    pairs[-1][0].setblocking(False)
    try:
        while True: pairs[-1][0].send(bytes(60_000))
    except BlockingIOError: pass
""",
}


def test_places_in_memory(lab: Lab) -> None:
    """All that is kept in memory counts, and no file system in memory can be mounted."""
    sandbox = lab.start(Limits(memory=128 * MIB))
    assert run(sandbox, "mount -t tmpfs none /mnt").exit_code != 0
    for name, program in MEMORY_FILLERS.items():
        sandbox.write_file("/tmp/fill.py", program)
        outcome = run(sandbox, "python3 /tmp/fill.py 2>/dev/null")
        assert outcome.exit_code not in (0, None), name
        assert not outcome.timed_out, name
        usable(sandbox)
        sh(sandbox, "ipcrm --all")
    assert sh(sandbox, "python3 -c 'print(len(bytearray(64 << 20)))'") == f"{64 << 20}\n"


def test_marker_is_seen_on_the_host(lab: Lab) -> None:
    """Guards the tests below: a sandbox's processes can be seen from here at all."""
    sandbox = lab.start()
    sleep = unique_sleep()
    job(sandbox, sleep)
    assert on_host(sleep)
    sandbox.close()
    assert not on_host(sleep)
