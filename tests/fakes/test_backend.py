"""The fake's extras over the protocol: faults, counts, hooks, delays, virtual time and chance."""

from __future__ import annotations

import threading
import time

import pytest

from tests.fakes.backend import FakeBackend, Faults, fake_image
from tvsnap.model.errors import InfrastructureError, NotCheckpointable, SandboxDied, SnapshotUnusable
from tvsnap.model.limits import Limits
from tvsnap.model.observations import Captures

IMAGE = fake_image()
LIMITS = Limits()


def test_faults_strike_when_planned() -> None:
    backend = FakeBackend(faults=Faults().fail("run", InfrastructureError("planned"), times=2, after=1))
    sandbox = backend.start(IMAGE, LIMITS)
    assert sandbox.run("echo 1", timeout=1).output == b"1\n"
    for _ in range(2):
        with pytest.raises(InfrastructureError, match="planned"):
            sandbox.run("echo 2 > f", timeout=1)
    assert sandbox.run("cat f", timeout=1).exit_code == 1


def test_faults_of_every_operation() -> None:
    backend = FakeBackend()
    sandbox = backend.start(IMAGE, LIMITS)
    snapshot = sandbox.checkpoint().id
    backend.faults.fail("start", InfrastructureError("no start"))
    backend.faults.fail("fork", SnapshotUnusable("no fork"))
    backend.faults.fail("checkpoint", NotCheckpointable("no checkpoint"))
    with pytest.raises(InfrastructureError, match="no start"):
        backend.start(IMAGE, LIMITS)
    with pytest.raises(SnapshotUnusable):
        backend.fork(snapshot, IMAGE, LIMITS)
    with pytest.raises(NotCheckpointable):
        sandbox.checkpoint()
    assert backend.fork(snapshot, IMAGE, LIMITS).checkpoint().id != snapshot


def test_death_ends_the_sandbox() -> None:
    backend = FakeBackend()
    sandbox = backend.start(IMAGE, LIMITS)
    backend.faults.fail("run", SandboxDied("gone"))
    for _ in range(2):
        with pytest.raises(SandboxDied):
            sandbox.run("true", timeout=1)
    assert sandbox.id not in backend.live


def test_counts_and_commands() -> None:
    backend = FakeBackend()
    sandbox = backend.start(IMAGE, LIMITS)
    sandbox.run("echo 1", timeout=1)
    sandbox.exec("echo 2", timeout=1)
    backend.fork(sandbox.checkpoint().id, IMAGE, LIMITS)
    assert backend.commands == ["echo 1", "echo 2"]
    assert backend.counts == {"start": 1, "run": 1, "exec": 1, "checkpoint": 1, "fork": 1}


def test_hooks_hold_an_operation() -> None:
    gate, entered = threading.Event(), threading.Event()

    def hook(sandbox: object, command: str) -> None:
        entered.set()
        assert gate.wait(60)

    backend = FakeBackend(hooks={"run": hook})
    sandbox = backend.start(IMAGE, LIMITS)
    thread = threading.Thread(target=lambda: sandbox.run("echo > f", timeout=1))
    thread.start()
    assert entered.wait(60)
    assert dict(sandbox.changes()) == {}
    gate.set()
    thread.join()
    assert list(sandbox.changes()) == ["/task/f"]


def test_delays_and_real_sleep() -> None:
    backend = FakeBackend(delays={"fork": 0.1}, sleep_scale=0.1)
    sandbox = backend.start(IMAGE, LIMITS)
    began = time.monotonic()
    assert sandbox.run("sleep 10", timeout=50).duration >= 10
    assert 1 <= time.monotonic() - began < 9
    began = time.monotonic()
    backend.fork(sandbox.checkpoint().id, IMAGE, LIMITS)
    assert time.monotonic() - began >= 0.1


def test_time_is_virtual() -> None:
    began = time.monotonic()
    sandbox = FakeBackend().start(IMAGE, LIMITS)
    assert sandbox.run("sleep 3600", timeout=7200).duration >= 3600
    assert sandbox.run("sleep 3600", timeout=60).timed_out
    assert time.monotonic() - began < 60


def test_without_live_processes() -> None:
    backend = FakeBackend(captures=Captures(files=True, processes=False, shell=True))
    sandbox = backend.start(IMAGE, LIMITS)
    sandbox.run("x=1", timeout=1)
    assert backend.fork(sandbox.checkpoint().id, IMAGE, LIMITS).run("echo $x", timeout=1).output == b"1\n"
    sandbox.run("sleep 99 &", timeout=1)
    with pytest.raises(NotCheckpointable, match="sleep 99"):
        sandbox.checkpoint()
    sandbox.run("kill $!", timeout=1)
    sandbox.checkpoint()


def test_files_only() -> None:
    backend = FakeBackend(captures=Captures())
    sandbox = backend.start(IMAGE, LIMITS)
    sandbox.run("x=1; echo 1 > f", timeout=1)
    fork = backend.fork(sandbox.checkpoint().id, IMAGE, LIMITS)
    assert fork.run('echo "[$x]"; cat f', timeout=1).output == b"[]\n1\n"


def test_chance_differs_between_sandboxes_and_not_between_runs() -> None:
    def draw() -> list[bytes]:
        backend = FakeBackend(seed=7)
        sandboxes = [backend.start(IMAGE, LIMITS) for _ in range(4)]
        return [sandbox.run("echo $RANDOM; date", timeout=1).output for sandbox in sandboxes]

    assert draw() == draw()
    assert len(set(draw())) == 4


def test_a_call_is_quick() -> None:
    backend = FakeBackend()
    sandbox = backend.start(IMAGE, LIMITS)
    began = time.perf_counter()
    for number in range(200):
        sandbox.run(f"x={number}; echo $x > f; cat f", timeout=1)
        sandbox.observe()
    assert (time.perf_counter() - began) / 200 < 0.05
