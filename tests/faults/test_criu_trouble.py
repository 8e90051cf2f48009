"""Trouble of the machine while CRIU is at work: none of it is held against a state or a snapshot, and all of it passes.

The trouble is real: descriptors in flight, of which the kernel lets a user have only so many, where all sandboxes are
one user to it; too few descriptors for this process or for CRIU; processes that are killed while they are being dumped.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conformance.helpers import Lab, eventually, sh
from tests.faults.consistency import local
from tvsnap import Budget, Cache
from tvsnap.errors import CheckpointFailed
from tvsnap.images import Image
from tvsnap.model.errors import ForkFailed, SandboxDied
from tvsnap.model.limits import Limits
from tvsnap.sandboxes.criu import client as criu
from tvsnap.sandboxes.local.sandbox import LocalSandbox
from tvsnap.sandboxes.protocol import Sandbox

IN_FLIGHT = """
import socket, time
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
socket.send_fds(a, [b"x"], [0] * 250)
print("sent", flush=True)
time.sleep(1000)
"""
MODEST = "(ulimit -n 12; exec sleep 1000) &"
"""A job that may not send descriptors while its user has more than 12 in flight, even where CRIU makes it do so."""
SETTLED = "until pgrep -x sleep >/dev/null; do :; done; sleep 0.1"
ENOUGH = 180
"""Descriptors with which tvsnap and CRIU get by."""


@pytest.fixture
def one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no sandbox can have users of its own."""
    monkeypatch.setattr("tvsnap.sandboxes.local.backend._id_ranges", lambda _: None)


@pytest.fixture
def cache(home: Path) -> Iterator[Cache]:
    """One that always forks, and snapshots all."""
    with Cache(home, policy="eager", budget=Budget(parked=0)) as opened:
        yield opened


@contextlib.contextmanager
def descriptors_in_flight(sandbox: Sandbox) -> Iterator[None]:
    """A block in which 250 descriptors are on their way through a socket of a sandbox, which is closed in the end."""
    sandbox.write_file("/tmp/send.py", IN_FLIGHT.encode())
    sh(sandbox, "python3 /tmp/send.py >/tmp/log 2>&1 &")
    eventually(lambda: sh(sandbox, "cat /tmp/log") == "sent\n")
    try:
        yield
    finally:
        sandbox.close()


@contextlib.contextmanager
def descriptors_at_most(count: int) -> Iterator[None]:
    """A block in which this process, and what it starts, may have so many descriptors."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


@contextlib.contextmanager
def no_descriptor_to_spare() -> Iterator[None]:
    """A block in which this process can open nothing: those that it lacks below the limit are taken up before."""
    with contextlib.ExitStack() as taken, descriptors_at_most(max(map(int, os.listdir("/proc/self/fd")))):
        with contextlib.suppress(OSError):
            while True:
                taken.callback(os.close, os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        yield


def test_descriptors_in_flight_at_a_checkpoint(one_user: None, lab: Lab) -> None:
    sandbox, other = lab.start(), lab.start()
    sh(sandbox, f"x=1; {MODEST} {SETTLED}")
    with (
        descriptors_in_flight(other),
        pytest.raises(CheckpointFailed, match=r"send_fds failed \(-109\)"),  # ETOOMANYREFS
    ):
        lab.checkpoint(sandbox)
    assert sh(lab.fork_of(sandbox), "echo $x; pgrep -xc sleep") == "1\n1\n"


def test_trouble_that_passes_during_a_checkpoint(one_user: None, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox, other = lab.start(), lab.start()
    sh(sandbox, f"x=1; {MODEST} {SETTLED}")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        """It passes once it was met."""
        pauses.append(seconds)
        other.close()
        time.sleep(seconds)

    monkeypatch.setattr("tvsnap.host.attempts.time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
    with descriptors_in_flight(other):
        info = lab.checkpoint(sandbox)
    monkeypatch.undo()
    assert pauses
    assert sh(lab.fork(info), "echo $x") == "1\n"


def test_trouble_is_not_noted_as_a_property_of_the_state(one_user: None, cache: Cache, terminal_image: Image) -> None:
    job = f"x=1; {MODEST} {SETTLED}"
    other = local(cache).start(terminal_image, Limits())
    with descriptors_in_flight(other), cache.rollout("terminal") as rollout:
        rollout.call("bash", {"command": job})
        state = rollout.state
        eventually(lambda: "in flight" in str(cache.trouble) or "-109" in str(cache.trouble))
        edge = cache.graph.edge_to(state)
        assert edge is not None
        assert (cache.refusal(state), edge.refusals) == (None, {})
        assert cache.graph.snapshot(state, "local") is None
        assert rollout.call("bash", {"command": "echo $x"}).output == "1\n"
    time.sleep(2.5)  # it is not tried again at once
    with cache.rollout("terminal") as rollout:
        assert rollout.call("bash", {"command": job}).source == "executed", "nothing kept what it led to"
        assert rollout.state != state
        state = rollout.state
        assert rollout.call("bash", {"command": "pgrep -xc sleep"}).output == "1\n"
    eventually(lambda: cache.graph.snapshot(state, "local") is not None)
    eventually(lambda: cache.trouble is None)


def test_keeping_a_state_fails_only_while_there_is_trouble(one_user: None, cache: Cache, terminal_image: Image) -> None:
    other = local(cache).start(terminal_image, Limits())
    with cache.rollout("terminal") as rollout:
        sh(rollout.sandbox(), f"x=1; {MODEST} {SETTLED}")
        with descriptors_in_flight(other), pytest.raises(CheckpointFailed):
            rollout.keep("by hand")
        sh(rollout.sandbox(), "y=2")
        kept = rollout.keep("by hand")
    with cache.materialise(kept) as fork:
        assert sh(fork, "echo $x $y; pgrep -xc sleep") == "1 2\n1\n"


def test_descriptors_in_flight_at_a_fork(one_user: None, lab: Lab) -> None:
    """Where CRIU may not raise its limit; where it may, this is no trouble."""
    sandbox, other = lab.start(), lab.start()
    sh(sandbox, "x=1")
    snapshot = lab.checkpoint(sandbox)
    with descriptors_in_flight(other), descriptors_at_most(ENOUGH), contextlib.suppress(ForkFailed):
        lab.fork(snapshot)
    assert sh(lab.fork(snapshot), "echo $x") == "1\n"


def test_a_process_without_descriptors_to_spare(cache: Cache, terminal_image: Image) -> None:
    """It cannot read the snapshot, which is as sound as ever, and is not deleted."""
    with cache.rollout("terminal") as rollout:
        rollout.call("bash", {"command": "x=$RANDOM; echo > f"})
        state = rollout.state
        seen = rollout.call("bash", {"command": "echo $x"}).output
    snapshot = eventually(lambda: cache.graph.snapshot(state, "local"))
    assert snapshot is not None
    with Cache(cache.home, policy="never") as other:  # which has not read it yet
        with no_descriptor_to_spare(), pytest.raises(ForkFailed, match="Too many open files"):
            local(other).fork(snapshot.id, terminal_image, Limits())
        assert other.graph.snapshot(state, "local") == snapshot
        fork = local(other).fork(snapshot.id, terminal_image, Limits())
        assert sh(fork, "echo $x") == seen


def test_limits_too_low_for_a_snapshot_are_not_its_fault(lab: Lab) -> None:
    sandbox = lab.start()
    sh(sandbox, "x=1; for i in {1..20}; do sleep 1000 & done")
    snapshot = lab.checkpoint(sandbox)
    with pytest.raises(ForkFailed, match="Resource temporarily unavailable"):
        lab.fork(snapshot, Limits(processes=10))
    assert sh(lab.fork(snapshot), "echo $x") == "1\n"


def test_processes_killed_while_they_are_dumped(lab: Lab) -> None:
    """CRIU then says all sorts of things, of other processes, too, and none of it is a reason not to try again."""
    chance = random.Random(7)
    ended = 0
    for _ in range(12):
        sandbox = lab.start()
        assert isinstance(sandbox, LocalSandbox)
        sh(sandbox, "x=1; for i in {1..6}; do sleep 1000 & done; (while :; do sleep 0.01; done) &")
        shell = sandbox._host_pid(sandbox.guest().info().shell)
        jobs = [pid for pid in sandbox.cgroup.pids() if pid not in (sandbox.init, shell)]
        killer = threading.Timer(chance.uniform(0.002, 0.03), kill, (chance.sample(jobs, 3),))
        killer.start()
        try:
            with contextlib.suppress(CheckpointFailed):
                lab.checkpoint(sandbox)
            killer.join()
            fork = lab.fork_of(sandbox)
            assert sh(fork, "echo $x") == "1\n"
            fork.close()
        except SandboxDied:  # CRIU's code was left in a process
            ended += 1
        killer.join()
        sandbox.close()
    assert ended < 6


def test_a_criu_that_hangs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may, over a process that is killed; what it has done to the others by then is not known."""
    monkeypatch.setattr(criu, "_LOOK", 0.1)
    monkeypatch.setattr(criu, "_STUCK", 1.0)
    monkeypatch.setattr(criu, "_LAST_WORDS", 0.1)
    sandbox = lab.start()
    sh(sandbox, "x=1")
    with pytest.raises(SandboxDied, match="ended over a checkpoint"):
        stop_criu_amid(lab, sandbox)


def stop_criu_amid(lab: Lab, sandbox: Sandbox) -> None:
    """Stops the CRIU that takes a checkpoint; tries again if that was over before it was seen."""
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        while True:
            checkpoint = other.submit(lab.checkpoint, sandbox)
            while not checkpoint.done() and not stop(running_criu()):
                time.sleep(0.001)
            checkpoint.result(timeout=60)


def stop(pid: int) -> bool:
    """Stops a process, if it is there; returns whether it was."""
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.kill(pid, signal.SIGSTOP)
        return pid > 0
    return False


def running_criu() -> int:
    """Returns the process that is CRIU now and belongs to this one; 0 if there is none."""
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                if Path(f"/proc/{child}/cmdline").read_bytes().partition(b"\0")[0].endswith(b"/criu"):
                    return int(child)
    return 0


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
